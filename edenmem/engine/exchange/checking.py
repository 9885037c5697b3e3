"""Check that a file is complete and each line valid, before it is imported."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from edenmem.engine.exchange import records as lines
from edenmem.engine.exchange.exporter import is_whole
from edenmem.engine.exchange.files import Lines
from edenmem.engine.exchange.records import Digest, Parser, take_origin
from edenmem.errors import InputError, line_place
from edenmem.invalid import MISSING, OBJECT, explain_json
from edenmem.models.backup import Record, RecordKind

#: Maximum number of reported problems; all are counted.
MAX_PROBLEMS = 100
_ALLOW = "the file was truncated or altered; import the readable part with --allow-incomplete"
_KINDS = frozenset(kind.value for kind in RecordKind)


class Problem(NamedTuple):
    """An invalid line."""

    line: int
    reason: str


class FileCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The result of checking a file.

    ``header`` is empty for a handwritten file. ``whole``: a backup with its own history, which is
    restored unchanged. ``last``: the last readable line, if the file is damaged. ``bad`` counts
    invalid lines; ``unreadable`` those among them that are damage of a backup.
    """

    header: dict[str, Any]
    whole: bool
    records: int
    counts: dict[str, int]
    problems: tuple[Problem, ...]
    bad: int
    unreadable: int = 0
    last: int | None = None
    damage: str = ""


class Line(NamedTuple):
    """A line with a record."""

    number: int
    kind: RecordKind
    data: dict[str, Any]


def read_header(source: Lines) -> dict[str, Any]:
    """Return the header of a file, or an empty one.

    Raises:
        InputError: a newer edenmem wrote the file.
    """
    for _, raw in source.lines():
        try:
            data = msgspec.json.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return {}
        if not isinstance(data, dict) or data.get("type") != lines.HEADER:
            return {}
        if data.get("format") != lines.FORMAT:
            raise InputError(
                f"unsupported file format: {data.get('format')!r} (supported: {lines.FORMAT})",
                line=1,
                hint="use the version of edenmem that wrote the file, or a newer one",
            )
        return data
    return {}


class Checker:
    """One pass through a file."""

    def __init__(self, source: Lines, *, allow_incomplete: bool = False) -> None:
        self._source = source
        self._allow_incomplete = allow_incomplete
        self.header = read_header(source)
        self.whole = bool(self.header) and is_whole(self.header.get("types") or ())
        self._digest = Digest()
        self._problems: list[Problem] = []
        self._bad = 0
        self._unreadable = 0
        self._damage = ""

    def check(
        self, parser: Parser, *, progress: Callable[[int], None] = lambda done: None
    ) -> FileCheck:
        """Parse every line of the file.

        Raises:
            InputError: a backup is damaged, and ``allow_incomplete`` is not set.
        """
        last = None
        try:
            for line in self._verify():
                try:
                    take_origin(line.kind, line.data, whole=self.whole)
                    parser.parse(line.kind, line.data)
                except InputError as error:
                    self._note(line.number, error.message)
                progress(self._digest.records)
        except InputError as error:
            if not self.header or error.line is None:
                raise
            if not self._allow_incomplete:
                error.add_hint(_ALLOW)
                raise
            last = error.line - 1
            error.name_file(self._source.name)
            self._damage = error.message
        return FileCheck(
            header=self.header,
            whole=self.whole,
            records=self._digest.records,
            counts=self._digest.counts,
            problems=tuple(self._problems),
            bad=self._bad,
            unreadable=self._unreadable,
            last=last,
            damage=self._damage,
        )

    def verify(self) -> int:
        """Compare a backup with its own checksums; return the number of its records.

        Raises:
            InputError: the file is damaged, or not a backup.
        """
        if not self.header:
            raise InputError("not an edenmem backup")
        for _ in self._verify():
            pass
        return self._digest.records

    def _note(self, number: int, reason: str) -> None:
        self._bad += 1
        if len(self._problems) < MAX_PROBLEMS:
            self._problems.append(Problem(number, reason))

    def _verify(self) -> Iterator[Line]:
        """Yield the lines with records, and compare checkpoints with the lines before them."""
        checkpoint, ended = 1, False
        number = 0
        for number, raw in self._source.lines():
            text = raw.rstrip(b"\r\n")
            if not text or (number == 1 and self.header):
                continue
            if ended:
                self._record_damage(number, "unexpected line after the end of the backup")
            try:
                data = _object(text)
            except InputError as error:
                if self.header:
                    self._record_damage(number, error.message)
                    self._unreadable += 1
                self._note(number, error.message)
                continue
            type_ = data.pop("type", None)
            if self.header and type_ in (lines.CHECKPOINT, lines.TRAILER):
                self._compare(data, number, checkpoint)
                checkpoint, ended = number, type_ == lines.TRAILER
            self._digest.add(text)
            if isinstance(type_, str) and type_ in _KINDS:
                kind = RecordKind(type_)
                self._digest.count(kind)
                yield Line(number, kind, data)
            elif not self.header or type_ not in (lines.CHECKPOINT, lines.TRAILER):
                known = isinstance(type_, str) and type_
                self._note(number, f"unknown type: {type_!r:.60}" if known else f"type {MISSING}")
        if self.header and not ended:
            self._record_damage(number + 1, "the backup is truncated")

    def _compare(self, mark: dict[str, Any], number: int, since: int) -> None:
        if mark.get("sha256") == self._digest.sha256 and mark.get("records") == (
            self._digest.records
        ):
            return
        self._record_damage(number, f"wrong checksum of lines {since + 1} to {number - 1}")

    def _record_damage(self, number: int, reason: str) -> None:
        if not self._allow_incomplete:
            raise InputError(reason, line=number)
        self._damage = self._damage or f"{line_place(number, self._source.name)}: {reason}"


def _object(text: bytes) -> dict[str, Any]:
    try:
        data = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(explain_json(text)) from error
    if not isinstance(data, dict):
        raise InputError(f"the line {OBJECT}")
    return data


class Good(NamedTuple):
    """A record of a file with its line number and stated origin."""

    number: int
    kind: RecordKind
    record: Record
    origin: str


def good_lines(source: Lines, checked: FileCheck, parser: Parser) -> Iterator[Good]:
    """Yield the valid records of a checked file."""
    for number, raw in islice(source.lines(), checked.last):
        text = raw.strip()
        if not text or (number == 1 and checked.header):
            continue
        try:
            data = _object(text)
            type_ = data.pop("type", None)
            if isinstance(type_, str) and type_ in _KINDS:
                kind = RecordKind(type_)
                origin = take_origin(kind, data, whole=checked.whole)
                yield Good(number, kind, parser.parse(kind, data), origin)
        except InputError:
            continue  # reported by the check
