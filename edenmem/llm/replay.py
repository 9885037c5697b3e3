"""Answers from a file instead of a language model, for the demo, examples and tests."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import msgspec

from edenmem.errors import InputError, ProviderAnswerInvalid, ReplayMiss
from edenmem.llm.answer_file import RecordedAnswer, read_answers
from edenmem.llm.protocol import AnswerT, LLMAnswer, LLMRequest
from edenmem.llm.structured import InvalidAnswer, parse_answer


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
