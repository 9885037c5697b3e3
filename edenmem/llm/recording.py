"""Recording of answers, in the format that a replay reads."""

from __future__ import annotations

import asyncio
import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from edenmem.errors import InputError
from edenmem.llm.answer_file import RecordedAnswer, line_of, read_answers
from edenmem.llm.protocol import LLM, AnswerT, LLMAnswer, LLMRequest
from edenmem.settings.paths import open_private


class RecordingLLM:
    """An `edenmem.llm.protocol.LLM` that writes the answers of another one to a file.

    Only the owner can read the file, because answers hold personal data. The last answer to a
    request is kept, because later requests depend on it. Several processes may record to one file.
    """

    def __init__(self, inner: LLM, path: Path) -> None:
        self._inner = inner
        self._path = path

    @property
    def description(self) -> str:
        """Return the source of answers, and the path of the file."""
        return f"{self._inner.description}, recorded in {self._path}"

    @property
    def is_scripted(self) -> bool:
        """Return whether answers come from a file and not from a model."""
        return self._inner.is_scripted

    async def ask(self, request: LLMRequest[AnswerT]) -> LLMAnswer[AnswerT]:
        """Return the answer after writing it to the file.

        Raises:
            InputError: the file cannot be written, or has another format.
        """
        answer = await self._inner.ask(request)
        recorded = RecordedAnswer(
            task=request.task,
            key=request.key,
            answer=answer.value.model_dump(mode="json", by_alias=True),
            model=request.model,
            usage=[msgspec.to_builtins(call) for call in answer.usage],
        )
        try:
            await asyncio.to_thread(_keep, self._path, recorded)
        except OSError as error:
            raise InputError(f"cannot record into {self._path}: {error.strerror}") from error
        return answer

    async def close(self) -> None:
        """Close the inner LLM."""
        await self._inner.close()


def _keep(path: Path, recorded: RecordedAnswer) -> None:
    with _lock(path) as file:
        content = path.read_bytes()
        answers = read_answers(path)
        if recorded.place not in answers and not content.lstrip().startswith(b"["):
            # A single write: a crash leaves a complete line or none.
            left_open = content and not content.endswith(b"\n")
            os.write(file, b"\n" * bool(left_open) + line_of(recorded).encode())
            return
        answers[recorded.place] = recorded
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as new:
                new.writelines(map(line_of, answers.values()))
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink()
            raise


@contextmanager
def _lock(path: Path) -> Iterator[int]:
    """Yield the file, open for appending and locked."""
    while True:
        file = open_private(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(file), path.stat()):  # not replaced meanwhile
                yield file
                return
        finally:
            os.close(file)
