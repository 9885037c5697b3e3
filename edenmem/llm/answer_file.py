"""Answer files: one JSON object per line, or a JSON array of objects.

``{"task": "facts", "key": "night-shift/ada/1", "answer": {…}}``, with ``model`` and ``usage`` for
answers of an endpoint. Each task and key has one answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from edenmem.errors import InputError
from edenmem.invalid import explain_json, explain_value


class RecordedAnswer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One answer; ``usage`` is its cost at the time of recording."""

    task: str
    key: str
    answer: dict[str, Any]
    model: str | None = None
    usage: list[dict[str, Any]] | None = None

    @property
    def place(self) -> tuple[str, str]:
        """Return task and key of the request."""
        return self.task, self.key


def read_answers(path: Path) -> dict[tuple[str, str], RecordedAnswer]:
    """Return the answers of a file by task and key.

    Raises:
        InputError: the file cannot be read, or has an invalid line or a second answer to a request.
    """
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    answers: dict[tuple[str, str], RecordedAnswer] = {}
    first_lines: dict[tuple[str, str], int] = {}
    for number, item in _items(path, text):
        try:
            answer = msgspec.convert(item, RecordedAnswer)
        except msgspec.ValidationError as error:
            raise InputError(explain_value(error), line=number, file=str(path)) from error
        if answer.place in answers:
            raise InputError(
                f"task {answer.task!r} of {answer.key!r} is answered in line"
                f" {first_lines[answer.place]} already",
                line=number,
                file=str(path),
            )
        answers[answer.place] = answer
        first_lines[answer.place] = number
    return answers


def _items(path: Path, text: str) -> Iterator[tuple[int, object]]:
    if text.lstrip().startswith("["):
        # Items of an array are numbered like lines.
        yield from enumerate(_decode(path, text, None), start=1)
        return
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield number, _decode(path, line, number)


def _decode(path: Path, text: str, line: int | None) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        if line is None:
            raise InputError(f"{path} is not valid JSON: {error}") from error
        why = explain_json(text.encode("utf-8", "surrogatepass"))
        raise InputError(why, line=line, file=str(path)) from error


def line_of(answer: RecordedAnswer) -> str:
    """Return an answer as a line."""
    stored = {
        name: value for name, value in msgspec.structs.asdict(answer).items() if value is not None
    }
    return json.dumps(stored, ensure_ascii=False) + "\n"
