"""Answer files: record the answers of a language model, and replay them.

The demo, examples and tests replay. A file has one JSON object per line: ``{"task": "facts", "key":
"night-shift/ada/1", "answer": {…}}``, with ``model`` and ``usage`` for answers of an endpoint. The
last answer to a task and key counts.
"""

from __future__ import annotations

import asyncio
import json
import os
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from edenmem.errors import InputError, ProviderAnswerInvalid, ReplayMiss
from edenmem.invalid import explain_json, explain_value
from edenmem.llm.protocol import LLM, AnswerT, LLMAnswer, LLMRequest
from edenmem.llm.structured import InvalidAnswer, parse_answer
from edenmem.settings.paths import open_private


class RecordedAnswer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One answer; ``usage`` is its cost at the time of recording."""

    task: str
    key: str
    answer: dict[str, Any]
    model: str | None = None
    usage: list[dict[str, Any]] | None = None


def read_answers(path: Path) -> dict[tuple[str, str], RecordedAnswer]:
    """Return the answers of a file by task and key.

    Raises:
        InputError: the file cannot be read, or has an invalid line.
    """
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    answers: dict[tuple[str, str], RecordedAnswer] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            answer = msgspec.convert(json.loads(line), RecordedAnswer)
        except msgspec.ValidationError as error:
            raise InputError(explain_value(error), line=number, file=str(path)) from error
        except (ValueError, RecursionError) as error:
            why = explain_json(line.encode("utf-8", "surrogatepass"))
            raise InputError(why, line=number, file=str(path)) from error
        answers[answer.task, answer.key] = answer
    return answers


def line_of(answer: RecordedAnswer) -> str:
    """Return an answer as a line."""
    stored = {
        name: value for name, value in msgspec.structs.asdict(answer).items() if value is not None
    }
    return json.dumps(stored, ensure_ascii=False) + "\n"


class ReplayLLM:
    """An `edenmem.llm.protocol.LLM` that reads answers from a file, at no cost.

    Answers are validated like those of a model. The first request reads the file.
    """

    is_scripted = True

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def description(self) -> str:
        """Return the path of the file, and that no language model is called."""
        try:
            self._answers  # noqa: B018 - reads the file
        except InputError:
            return f"the scripted answers in {self._path} cannot be read"
        return f"Using scripted answers from {self._path}; no language model is called"

    async def ask(self, request: LLMRequest[AnswerT]) -> LLMAnswer[AnswerT]:
        """Return the answer of the file.

        Raises:
            ReplayMiss: the file has no answer for this task and key.
            ProviderAnswerInvalid: the answer does not validate.
            InputError: the file cannot be read.
        """
        recorded = self._answers.get((request.task, request.key))
        if recorded is None:
            raise ReplayMiss(
                f"{self._path} has no answer for task {request.task!r} of {request.key!r}",
                hint=self._nearest(request.task, request.key),
            )
        try:
            value = parse_answer(msgspec.json.encode(recorded.answer).decode(), request.answer)
        except InvalidAnswer as problem:
            raise ProviderAnswerInvalid(
                f"{self._path}: invalid answer for task {request.task!r} of {request.key!r}:"
                f" {problem}"
            ) from None
        return LLMAnswer(value=value)

    async def close(self) -> None:
        """Do nothing: no connection is open."""

    @cached_property
    def _answers(self) -> dict[tuple[str, str], RecordedAnswer]:
        return read_answers(self._path)

    def _nearest(self, task: str, key: str) -> str:
        import difflib

        keys = sorted(k for t, k in self._answers if t == task)
        if not keys:
            return f"it answers no task {task!r} at all"
        return "it has: " + ", ".join(
            difflib.get_close_matches(key, keys, n=3, cutoff=0) or keys[:3]
        )


class RecordingLLM:
    """An `edenmem.llm.protocol.LLM` that writes the answers of another one to a file.

    Only the owner can read the file, because answers hold personal data. Several processes may
    record to one file.
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
    """Add an answer to the file, unless it is a file of another kind."""
    file = open_private(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    try:
        read_answers(path)
        is_left_open = path.read_bytes()[-1:] not in (b"", b"\n")
        # A single write: a crash leaves a complete line or none.
        os.write(file, b"\n" * is_left_open + line_of(recorded).encode())
    finally:
        os.close(file)
