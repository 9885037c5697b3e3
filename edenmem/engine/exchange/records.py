"""The lines of a file of JSON Lines: encode records, check a file, and parse its lines to records.

Files are untrusted: each record is validated as if stored directly. Handwritten lines may use names
instead of IDs (``agent``, ``user``, ``group``, ``session``). Missing fields get defaults; a missing
ID is derived from the line, so that the same line always gives the same record.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from edenmem.engine.consolidation.draft import without_version
from edenmem.engine.edits.checks import check_fields
from edenmem.engine.exchange.files import Lines
from edenmem.engine.scopes.overview import word_limit_of
from edenmem.engine.sessions.importer import People
from edenmem.errors import EdenmemError, InputError
from edenmem.invalid import EMPTY, MISSING, OBJECT, UNKNOWN, explain_json, explain_value
from edenmem.models.backup import (
    OF_SCOPES,
    RECORD_TYPES,
    Record,
    RecordKind,
    StoredAgent,
    StoredSession,
    StoredUser,
)
from edenmem.models.changes import AuditEntry
from edenmem.models.host import Agent, Message, owner_of
from edenmem.models.ids import as_utc, derived_id, is_id
from edenmem.models.memory import (
    Consolidation,
    Fact,
    Held,
    Policy,
    Reflection,
    content_hash,
    join_times,
)
from edenmem.models.migration import MigrationRun
from edenmem.models.records import Seal
from edenmem.models.scope import OWNER_FIELD, ScopeKind
from edenmem.settings.schema import Settings
from edenmem.store.protocol.store import Store
from edenmem.text import clean, word_count

FORMAT = 2
HEADER, CHECKPOINT, TRAILER = "header", "checkpoint", "trailer"
#: A run in the ledger of migrations, which a backup of everything carries.
LEDGER = "migration"
#: A seal of the log, likewise.
SEAL = "seal"
#: Number of records between checkpoints.
STEP = 1000
OWNERS = ("user_id", "group_id", "shard", "session_id")


def encode(kind: RecordKind, record: Record) -> bytes:
    """Encode a record as a line, without the line end."""
    return b'{"type":"%s",' % kind.value.encode() + msgspec.json.encode(record)[1:]


def encode_mark(type: str, **fields: Any) -> bytes:
    """Encode a header, checkpoint or trailer as a line."""
    return msgspec.json.encode({"type": type, **fields})


def is_whole(kinds: Sequence[str]) -> bool:
    """Return whether a file of these kinds contains its own history, and is restored unchanged."""
    memory = {kind.value for kind in OF_SCOPES}
    return not memory & set(kinds) or {"audit", "history"} <= set(kinds)


class Digest:
    """The running checksum and counts of a file."""

    def __init__(self) -> None:
        self._sha256 = hashlib.sha256()
        self.records = 0
        self.counts: dict[str, int] = {}

    def add(self, line: bytes) -> None:
        """Add a line, without its line end."""
        self._sha256.update(line)
        self._sha256.update(b"\n")

    def count(self, kind: RecordKind) -> None:
        """Count a record."""
        self.records += 1
        self.counts[kind.value] = self.counts.get(kind.value, 0) + 1

    @property
    def sha256(self) -> str:
        """Return the hex digest of all lines so far."""
        return self._sha256.hexdigest()


#: Maximum lengths of texts and of names in characters. Texts of whole backups are not limited:
#: those of v1 can be longer.
_LONGEST, _LONGEST_NAME = 1_000_000, 1_000
_FIELDS = {
    kind: frozenset(field.encode_name for field in msgspec.structs.fields(type_))
    for kind, type_ in RECORD_TYPES.items()
}
#: Fields with names, and the fields for their IDs.
NAMES = {"agent": "agent_id", "user": "user_id", "group": "group_id", "session": "session_id"}
#: The time fields of each kind.
_TIMES = {
    kind: tuple(
        field.name
        for field in msgspec.structs.fields(type_)
        if field.type in (datetime, datetime | None)
    )
    for kind, type_ in RECORD_TYPES.items()
}
#: Minimum values of the limits of a policy.
_LEAST = {"consolidate_at": 1, "word_limit": 1, "fact_buffer_max": 0}
_OWNED = (Fact, Reflection, Held, Consolidation, Policy)
#: Kinds of memory; entries and versions have a scope object.
_OWNED_KINDS = OF_SCOPES - {RecordKind.AUDIT, RecordKind.HISTORY}


#: Maximum length of an origin in characters.
_LONGEST_ORIGIN = 300


def take_origin(kind: RecordKind, data: dict[str, Any], *, whole: bool) -> str:
    """Remove ``source`` from the fields of a fact or reflection and return it; "" for none.

    The origin becomes part of the reason in the audit entry.

    Raises:
        InputError: the origin is not a text, or too long.
    """
    if whole or kind not in (RecordKind.FACT, RecordKind.REFLECTION) or "source" not in data:
        return ""
    given = data.pop("source")
    if given is None:
        return ""
    if not isinstance(given, str) or len(given) > _LONGEST_ORIGIN:
        raise InputError(f"source must be text of at most {_LONGEST_ORIGIN} characters")
    return " ".join(clean(given).split())


class Parser:
    """Parse lines to records.

    Args:
        store: The store to look up names.
        settings: The word limits of handwritten lines.
        now: The time of records without one.
        whole: The lines are a backup with its own history: word limits do not apply.
        allow_long: Allow texts over their word limits.
        owner_id: The owner of agents and sessions without one, if the store requires an owner.
    """

    def __init__(
        self,
        store: Store,
        settings: Settings,
        *,
        now: datetime,
        whole: bool,
        allow_long: bool = False,
        owner_id: str | None = None,
    ) -> None:
        self._store = store
        self._settings = settings
        self._now = now
        self._is_limited = not (whole or allow_long)
        self._whole = whole
        self._people = People(store)
        self._owner_id = owner_id
        self._agents: dict[str, Agent] = {}

    def parse(self, kind: RecordKind, data: dict[str, Any]) -> Record:
        """Parse the fields of a line.

        Raises:
            InputError: the record is invalid.
        """
        try:
            return self._parse(kind, dict(data))
        except InputError:
            raise
        except msgspec.ValidationError as error:
            raise InputError(explain_value(error)) from error
        except EdenmemError as error:
            raise InputError(error.message, hint=error.hint) from error
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            raise InputError(f"invalid {kind}: {error}") from error

    def _parse(self, kind: RecordKind, data: dict[str, Any]) -> Record:
        if kind in _OWNED_KINDS:
            resolve_names(self._store, self._people, data)
        unknown = data.keys() - _FIELDS[kind]
        if kind in (RecordKind.FACT, RecordKind.REFLECTION) and not self._whole:
            unknown -= {"created_at"}
        if unknown:
            raise InputError(f"{min(unknown)} {UNKNOWN} of '{kind}'")
        if kind is RecordKind.FACT:
            data["embedding"] = _pack_embedding(data.get("embedding"))
        self._complete(kind, data)
        record = msgspec.convert(data, RECORD_TYPES[kind])
        given = ((name, getattr(record, name)) for name in _TIMES[kind])
        if times := {name: as_utc(at) for name, at in given if at is not None}:
            record = msgspec.structs.replace(record, **times)
        _check_ids(record)
        if isinstance(record, _OWNED):
            record = self._validate(record)
        record = self._fitting(record)
        if isinstance(record, StoredAgent):
            self._agents[record.id] = record
        # Later lines may use the name of an account that the file adds.
        if isinstance(record, StoredAgent) and not self._whole:
            self._people.new_agents[record.username] = record
        elif isinstance(record, StoredUser) and not self._whole:
            self._people.new_users[record.username] = record
        return record

    def _fitting(self, record: Any) -> Any:
        """Return the record, with an owner if the store requires one.

        Raises:
            InputError: the store does not accept the record.
        """
        reason = self._store.host.refusal(record)
        if reason and isinstance(record, StoredAgent | StoredSession):
            owner = record.owner or self._owner_id
            if isinstance(record, StoredSession):
                agents = [self._agents[id] for id in record.agents if id in self._agents]
                owner = owner_of(record, agents) or self._owner_id
            record = msgspec.structs.replace(record, owner=owner)
            reason = self._store.host.refusal(record)
        if reason:
            needs_owner = isinstance(record, StoredAgent | StoredSession) and record.owner is None
            name = f"message {record.id}: " if isinstance(record, Message) else ""
            owner = "; specify one with --owner USER" if needs_owner else ""
            raise InputError(f"{name}{reason}{owner}")
        return record

    # -- defaults ----------------------------------------------------------------------------

    def _complete(self, kind: RecordKind, data: dict[str, Any]) -> None:
        match kind:
            case RecordKind.FACT | RecordKind.REFLECTION:
                if not self._whole and "created_at" in data:
                    if "formed_at" in data:
                        raise InputError("both 'created_at' and 'formed_at' are given")
                    data["formed_at"] = data.pop("created_at")
                content = _text(data, "content")
                if not self._whole:
                    content = data["content"] = clean(content).strip()
                data.setdefault("formed_at", self._now)
                key = data.get("key")
                if "id" not in data:
                    named = (content,) if key is None else ("key", str(key))
                    data["id"] = _derive_id(kind, data, *named)
                if kind is RecordKind.FACT:
                    data["hash"] = content_hash(content, None if key is None else str(key))
            case RecordKind.CONSOLIDATION | RecordKind.POLICY:
                if "id" not in data:
                    data["id"] = _derive_id(kind, data)
                data.setdefault("version", 1)
            case RecordKind.AGENT | RecordKind.USER if "id" not in data:
                data["id"] = derived_id(kind.value, _text(data, "username"))

    # -- validation --------------------------------------------------------------------------

    def _validate(
        self, record: Fact | Reflection | Held | Consolidation | Policy
    ) -> Fact | Reflection | Held | Consolidation | Policy:
        _check_owner(record)
        match record:
            case Fact():
                if record.scope is ScopeKind.SESSION:
                    raise InputError("a session scope has no facts")
                self._check_text(record.content, self._settings.formation.fact_words)
                record = record.with_fields(check_fields(record.fields))
                if record.version < 1 or record.access_count < 0:
                    raise InputError("version must be at least 1, and access_count at least 0")
                if record.edited_at is not None:  # only a later edit counts
                    times = join_times([record.said_at], [record.edited_at])
                    record = msgspec.structs.replace(record, edited_at=times.edited_at)
                if record.embedding is None and record.embedding_model:
                    return msgspec.structs.replace(record, embedding_model=None)
            case Reflection():
                self._check_text(record.content, self._settings.formation.reflection_words)
                if record.version < 1:
                    raise InputError("version must be at least 1")
            case Consolidation():
                text = record.consolidated_content
                if not self._whole:
                    text = clean(without_version(text)).strip()
                    limit = word_limit_of(self._store, self._settings, record.home, None)
                    self._check_text(text, limit)
                if record.version < 0:
                    raise InputError("version must be at least 0")
                return msgspec.structs.replace(record, consolidated_content=text, unabsorbed_ids=())
            case Policy():
                for name, least in _LEAST.items():
                    if (limit := getattr(record, name)) is not None and limit < least:
                        raise InputError(f"{name} must be at least {least}")
        return record

    def _check_text(self, text: str, limit: int) -> None:
        if not text:
            raise InputError("the text is empty")
        if len(text) > _LONGEST and not self._whole:
            raise InputError(f"the text is too long: {len(text):,} characters")
        if self._is_limited and (words := word_count(text)) > limit:
            raise InputError(
                f"the text has {words} words, the limit is {limit}", hint="add --allow-long"
            )


def resolve_names(store: Store, people: People, data: dict[str, Any]) -> None:
    """Replace the names of a scope's agent and owner by IDs, and check its kind.

    Raises:
        InputError: a name is unknown, or given together with an ID.
    """
    for name, field in NAMES.items():
        if name not in data:
            continue
        if field in data:
            raise InputError(f"both {name!r} and {field!r} are given")
        given = data.pop(name)
        if given is None or (isinstance(given, str) and name == "group"):
            data[field] = given
            continue
        if not isinstance(given, str) or not given:
            raise InputError(f"invalid {name}: {given!r:.60}")
        if name == "session":
            found = store.host.find("session", given)
            if len(found) != 1:
                raise InputError(f"unknown session: {given!r}")
            data[field] = found[0].id
            continue
        account = people.agent(given) if name == "agent" else people.user(given)
        if account is None:
            raise InputError(f"unknown {name}: {given!r}", hint=f"edenmem {name} add {given}")
        data[field] = account.id
    kind = data.get("scope")
    if kind is not None and kind not in list(ScopeKind):
        raise InputError(f"unknown scope: {kind!r}")


def _derive_id(kind: RecordKind, data: dict[str, Any], *more: str) -> str:
    owner = [str(data.get(name) or "") for name in ("scope", "agent_id", *OWNERS)]
    return derived_id("import", kind.value, *owner, *more)


def _text(data: dict[str, Any], name: str) -> str:
    found = data.get(name)
    if found is None:
        raise InputError(f"{name} {MISSING}")
    if not isinstance(found, str):
        raise InputError(f"{name} must be text")
    if not found:
        raise InputError(f"{name} {EMPTY}")
    return found


def _pack_embedding(embedding: object) -> object:
    """Pack a list of numbers as float32 bytes; return other values unchanged."""
    if not isinstance(embedding, list):
        return embedding
    if not all(isinstance(number, int | float) for number in embedding):
        raise InputError("embedding must be a list of numbers")
    import numpy as np

    with np.errstate(over="ignore"):  # overflow becomes infinite, and is left out later
        return np.array(embedding, dtype=np.float64).astype("<f4").tobytes()


def _check_ids(record: Any) -> None:
    """Check IDs and names. IDs of users, groups and sessions may have any form."""
    for name in ("id", "agent_id"):
        value = getattr(record, name, None)
        if name == "agent_id" and isinstance(record, AuditEntry) and value == "":
            continue  # an entry about an account belongs to no agent
        if value is not None and not is_id(value):
            raise InputError(f"invalid {name}: {value!r:.60} (expected 24 hex digits)")
    for name in ("username", "group_id", "shard", "user_id", "session_id"):
        value = getattr(record, name, None)
        if value is not None and (not value or len(value) > _LONGEST_NAME or clean(value) != value):
            raise InputError(f"{name} is empty, too long, or has invalid characters")


def _check_owner(record: Fact | Reflection | Held | Consolidation | Policy) -> None:
    """Check that a memory has no owner fields of other scopes."""
    own = OWNER_FIELD[record.home.kind]
    source = "session_id" if isinstance(record, Fact | Reflection | Held) else None
    stray = [n for n in OWNERS if n not in (own, source) and getattr(record, n) is not None]
    if stray:
        raise InputError(f"the {record.scope} scope has no {' and no '.join(stray)}")


#: Maximum number of reported problems; all are counted.
MAX_PROBLEMS = 100
_KINDS = frozenset[str](RecordKind)
#: The beginning of a line with a seal.
_SEAL = encode_mark(SEAL, seal=None).removesuffix(b"null}")
#: The beginnings of lines that only a backup has.
_OF_BACKUPS = tuple(
    encode_mark(mark).removesuffix(b"}") for mark in (HEADER, CHECKPOINT, TRAILER, LEDGER, SEAL)
)


class Problem(NamedTuple):
    """An invalid line."""

    line: int
    reason: str


class ParsedLine(NamedTuple):
    """A record of a file with its line number and stated origin."""

    number: int
    kind: RecordKind
    record: Record
    origin: str


class FileCheck:
    """One pass through the lines of a file: their check, and the valid records.

    Attributes:
        header: The header; empty for a handwritten file, and without a format if it is damaged.
        whole: Whether the file is a backup with its own history, which is restored unchanged.
        digest: The numbers of records, and the checksum.
        problems: The first invalid lines.
        bad: Number of invalid lines.
        damage: The first damage of a backup, if any.
        runs: The runs of migrations in a backup of everything, by ID.

    Raises:
        InputError: a newer edenmem wrote the file.
    """

    def __init__(self, source: Lines) -> None:
        self.source = source
        self.header = _read_header(source)
        self.whole = bool(self.header) and is_whole(self.header.get("types") or ())
        self.digest = Digest()
        self.problems: list[Problem] = []
        self.bad = 0
        self.damage: InputError | None = None
        self.runs: dict[str, MigrationRun] = {}
        self._begins_with_header = "format" in self.header
        if self.header and not self._begins_with_header:
            self._note_damage(1, "the header of the backup is damaged or missing")

    def records(self, parser: Parser) -> Iterator[ParsedLine]:
        """Yield the valid records, and note the other lines."""
        for number, kind, data in self._read():
            try:
                origin = take_origin(kind, data, whole=self.whole)
                record = parser.parse(kind, data)
            except InputError as error:
                self._note(number, error.message)
            else:
                yield ParsedLine(number, kind, record, origin)

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
        for _ in self._read():
            pass
        if self.damage is not None:
            raise self.damage
        return self.digest.records

    def _note(self, number: int, reason: str) -> None:
        self.bad += 1
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(Problem(number, reason))

    def _note_damage(self, number: int, reason: str) -> None:
        self.damage = self.damage or InputError(reason, line=number)

    def _read(self) -> Iterator[tuple[int, RecordKind, dict[str, Any]]]:
        """Yield number, kind and fields of the lines with records.

        Checkpoints are compared with the lines before them.
        """
        checkpoint, ended, number = 1, False, 0
        try:
            for number, raw in self.source.lines():
                text = raw.rstrip(b"\r\n")
                if not text or (number == 1 and self._begins_with_header):
                    continue
                if ended:
                    self._note_damage(number, "unexpected line after the end of the backup")
                data = _decode(text)
                if isinstance(data, str):
                    if self.header:
                        self._note_damage(number, data)
                    self._note(number, data)
                    continue
                type_ = data.pop("type", None)
                if self.header and type_ in (CHECKPOINT, TRAILER):
                    stated = (data.get("sha256"), data.get("records"))
                    if stated != (self.digest.sha256, self.digest.records):
                        between = f"lines {checkpoint + 1} to {number - 1}"
                        self._note_damage(number, f"wrong checksum of {between}")
                    checkpoint, ended = number, type_ == TRAILER
                self.digest.add(text)
                if isinstance(type_, str) and type_ in _KINDS:
                    kind = RecordKind(type_)
                    self.digest.count(kind)
                    yield number, kind, data
                elif self.header and type_ == LEDGER:
                    try:
                        run = msgspec.convert(data.get("run"), MigrationRun)
                        self.runs[run.id] = run
                    except msgspec.ValidationError as error:
                        self._note(number, f"invalid run of a migration: {error}")
                elif not self.header or type_ not in (CHECKPOINT, TRAILER, SEAL):
                    is_known = isinstance(type_, str) and type_
                    problem = f"unknown type: {type_!r:.60}" if is_known else f"type {MISSING}"
                    self._note(number, problem)
        except InputError as error:  # the compressed file is damaged, or a line too long
            if not self.header or error.line is None:
                raise
            self.damage = self.damage or error
        if self.header and not ended:
            self._note_damage(number + 1, "the backup is truncated")


def _read_header(source: Lines) -> dict[str, Any]:
    """Return the header of a file, or an empty one.

    A backup whose header cannot be read is no handwritten file: what was erased would come back.
    """
    for _, raw in source.lines():
        data = _decode(raw)
        if isinstance(data, str) or data.get("type") != HEADER:
            break
        if data.get("format") != FORMAT:
            raise InputError(
                f"unsupported file format: {data.get('format')!r} (supported: {FORMAT})",
                line=1,
                hint="use the version of edenmem that wrote the file, or a newer one",
            )
        return data
    is_backup = any(raw.startswith(_OF_BACKUPS) for _, raw in source.lines())
    return {"type": HEADER} if is_backup else {}


def _decode(text: bytes) -> dict[str, Any] | str:
    """Return the object of a line, or why there is none."""
    try:
        data = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return explain_json(text)
    return data if isinstance(data, dict) else f"the line {OBJECT}"
