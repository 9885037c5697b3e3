"""Check that a file is complete and each line valid, before it is imported."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from edenmem.engine.exchange import records as lines
from edenmem.engine.exchange.files import Lines
from edenmem.engine.exchange.records import Digest, Parser, is_whole, take_origin
from edenmem.errors import InputError, line_location
from edenmem.invalid import MISSING, OBJECT, explain_json
from edenmem.models.backup import Record, RecordKind
from edenmem.models.migration import MigrationRun
from edenmem.models.records import Seal

#: Maximum number of reported problems; all are counted.
MAX_PROBLEMS = 100
_ALLOW = "the file was truncated or altered; import the readable part with --allow-incomplete"
_KINDS = frozenset(kind.value for kind in RecordKind)


class Problem(NamedTuple):
    """An invalid line."""

    line: int
    reason: str


class Good(NamedTuple):
    """A record of a file with its line number and stated origin."""

    number: int
    kind: RecordKind
    record: Record
    origin: str


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


class FileCheck:
    """One pass through the lines of a file: their check, and the valid records.

    Attributes:
        header: The header; empty for a handwritten file.
        whole: Whether the file is a backup with its own history, which is restored unchanged.
        digest: The numbers of records, and the checksum.
        problems: The first invalid lines.
        bad: Number of invalid lines.
        unreadable: Number of those that are damage of a backup.
        damage: The damage of the file, or "".
        runs: The runs of migrations in a backup of everything, by ID.
    """

    def __init__(self, source: Lines, *, allow_incomplete: bool = False) -> None:
        self.source = source
        self._allow_incomplete = allow_incomplete
        self.header = read_header(source)
        self.whole = bool(self.header) and is_whole(self.header.get("types") or ())
        self.digest = Digest()
        self.problems: list[Problem] = []
        self.bad = 0
        self.unreadable = 0
        self.damage = ""
        self.runs: dict[str, MigrationRun] = {}

    def records(self, parser: Parser) -> Iterator[Good]:
        """Yield the valid records, and note the other lines.

        Raises:
            InputError: a backup is damaged, and ``allow_incomplete`` is not set.
        """
        try:
            for number, kind, data in self._verify():
                try:
                    origin = take_origin(kind, data, whole=self.whole)
                    record = parser.parse(kind, data)
                except InputError as error:
                    self._note(number, error.message)
                else:
                    yield Good(number, kind, record, origin)
        except InputError as error:
            if not self.header or error.line is None:
                raise
            if not self._allow_incomplete:
                error.add_hint(_ALLOW)
                raise
            error.name_file(self.source.name)
            self.damage = error.message

    def seals(self) -> Iterator[Seal]:
        """Yield the seals of a backup of everything, up to the first unreadable one."""
        with suppress(InputError, KeyError, msgspec.MsgspecError):
            for _, raw in self.source.lines() if self.header else ():
                if raw.startswith(_SEAL):
                    yield msgspec.convert(msgspec.json.decode(raw)["seal"], Seal)

    def verify(self) -> int:
        """Compare a backup with its own checksums; return the number of its records.

        Raises:
            InputError: the file is damaged, or not a backup.
        """
        if not self.header:
            raise InputError("not an edenmem backup")
        for _ in self._verify():
            pass
        return self.digest.records

    def _note(self, number: int, reason: str) -> None:
        self.bad += 1
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(Problem(number, reason))

    def _verify(self) -> Iterator[tuple[int, RecordKind, dict[str, Any]]]:
        """Yield number, kind and fields of the lines with records.

        Checkpoints are compared with the lines before them.
        """
        checkpoint, ended = 1, False
        number = 0
        for number, raw in self.source.lines():
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
                    self.unreadable += 1
                self._note(number, error.message)
                continue
            type_ = data.pop("type", None)
            if self.header and type_ in (lines.CHECKPOINT, lines.TRAILER):
                if data.get("sha256") != self.digest.sha256 or (
                    data.get("records") != self.digest.records
                ):
                    lines_ = f"lines {checkpoint + 1} to {number - 1}"
                    self._record_damage(number, f"wrong checksum of {lines_}")
                checkpoint, ended = number, type_ == lines.TRAILER
            self.digest.add(text)
            if isinstance(type_, str) and type_ in _KINDS:
                kind = RecordKind(type_)
                self.digest.count(kind)
                yield number, kind, data
            elif self.header and type_ == lines.LEDGER:
                self._take_run(number, data)
            elif not self.header or type_ not in (lines.CHECKPOINT, lines.TRAILER, lines.SEAL):
                known = isinstance(type_, str) and type_
                self._note(number, f"unknown type: {type_!r:.60}" if known else f"type {MISSING}")
        if self.header and not ended:
            self._record_damage(number + 1, "the backup is truncated")

    def _take_run(self, number: int, data: dict[str, Any]) -> None:
        try:
            run = msgspec.convert(data.get("run"), MigrationRun)
        except msgspec.ValidationError as error:
            self._note(number, f"invalid run of a migration: {error}")
            return
        self.runs[run.id] = run

    def _record_damage(self, number: int, reason: str) -> None:
        if not self._allow_incomplete:
            raise InputError(reason, line=number)
        self.damage = self.damage or f"{line_location(number, self.source.name)}: {reason}"


#: The beginning of a line with a seal.
_SEAL = lines.encode_mark(lines.SEAL, seal=None).removesuffix(b"null}")


def _object(text: bytes) -> dict[str, Any]:
    try:
        data = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(explain_json(text)) from error
    if not isinstance(data, dict):
        raise InputError(f"the line {OBJECT}")
    return data
