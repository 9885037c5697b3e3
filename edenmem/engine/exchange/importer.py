"""Import the records of a file into a store.

A backup with its own history is restored unchanged: history and audit entries are records too.
Records of other files are added as changes, with audit entries, and can be undone by run. Existing
records are overwritten only with ``replace``, as changes too.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from typing import Any, Literal

import msgspec

from edenmem.engine.edits import checks as edit_checks
from edenmem.engine.exchange.files import Lines
from edenmem.engine.exchange.records import MAX_PROBLEMS, FileCheck, ParsedLine, Parser, Problem
from edenmem.engine.runtime.runtime import Runtime
from edenmem.engine.scopes.overview import word_limit_of
from edenmem.engine.seals.sealer import Sealer
from edenmem.engine.sessions.importer import People
from edenmem.errors import (
    EdenmemError,
    InvalidLines,
    NotFoundError,
)
from edenmem.models.backup import (
    LoadResult,
    LoadStatus,
    Record,
    RecordKind,
    StoredAgent,
    StoredSession,
    StoredUser,
    StoredVersion,
    differences,
)
from edenmem.models.changes import (
    AddFact,
    AddReflection,
    Change,
    ChangeResult,
    ChangeSet,
    ChangeStatus,
    ReviseFact,
    ReviseReflection,
    SetAgentToggles,
    SetPrivacy,
    WriteConsolidation,
    WritePolicy,
)
from edenmem.models.forgetting import block
from edenmem.models.host import Message
from edenmem.models.ids import as_utc, derived_id
from edenmem.models.memory import Consolidation, Fact, Held, Policy, Reflection
from edenmem.models.scope import Scope
from edenmem.store.protocol.store import Store, batched


def _find_blocks(store: Store, header: dict[str, Any]) -> dict[str, datetime | None]:
    """Return the keys of erased records with the time of the erasure (None: it is open).

    A file without header counts as new: only open erasures block its records. A backup without a
    valid time counts as older than all erasures.
    """
    made: datetime | None = None
    if header:
        made = datetime.min.replace(tzinfo=UTC)
        with suppress(msgspec.ValidationError, ValueError):
            made = as_utc(msgspec.convert(header.get("created_at"), datetime))
    return {
        key: forgetting.closed_at
        for forgetting in store.erasure.forgettings()
        if forgetting.closed_at is None or (made is not None and made <= forgetting.closed_at)
        for key in forgetting.blocks
    }


#: What an erasure of a record itself blocks, by its type.
_ERASED = (
    (Fact, "fact"),
    (Reflection, "reflection"),
    (Held, "held"),
    (Message, "removed"),
    (StoredSession, "session"),
)


def _keys(record: Record) -> list[str]:
    """Return the keys of the erasures that concern a record."""
    scope = getattr(record, "scope", None)
    home = scope if isinstance(scope, Scope) else getattr(record, "home", None)
    account = record.id if isinstance(record, StoredUser) else getattr(record, "sender", None)
    concerned = [
        ("scope", home and home.key),
        ("session", getattr(record, "session_id", None)),
        ("called", account and account.casefold()),
        (next((name for type_, name in _ERASED if isinstance(record, type_)), ""), record.id),
        (getattr(record, "target_type", None), getattr(record, "target_id", None)),
        *(("reflection", parent) for parent in getattr(record, "propagated_from", ())),
    ]
    return [block(kind, id) for kind, id in concerned if kind and id]


class _UserLine(msgspec.Struct):
    type: str
    username: str
    id: str = ""


_DAMAGED = "the file was truncated or altered; import the readable part with --skip-bad"
_REASON = "replaced by an import"
_TOGGLES = {"user_memory_enabled", "agent_memory_enabled"}


def replacement(kind: RecordKind, stored: Record, given: Record, at: datetime) -> list[Change]:
    """Return the changes that replace a record; none if the difference cannot be changed."""
    fields = set(differences(kind, stored, given))
    match stored, given:
        case Fact() | Reflection(), Fact() | Reflection() if not fields & {"scope", "absorbed"}:
            changes: list[Change] = []
            if fields - {"private"}:
                if isinstance(stored, Fact) and isinstance(given, Fact):
                    changes.append(
                        ReviseFact(
                            scope=stored.home,
                            fact_id=stored.id,
                            expected_version=stored.version,
                            content=given.content,
                            at=at,
                            embedding=given.embedding,
                            embedding_model=given.embedding_model,
                            fields=given.fields,
                            reason=_REASON,
                        )
                    )
                elif isinstance(stored, Reflection) and not stored.absorbed:
                    changes.append(
                        ReviseReflection(
                            scope=stored.home,
                            reflection_id=stored.id,
                            expected_version=stored.version,
                            content=given.content,
                            at=at,
                            reason=_REASON,
                        )
                    )
                else:
                    return []
            if "private" in fields:
                changes.append(
                    SetPrivacy(
                        scope=stored.home,
                        target_type=kind.value,
                        target_id=stored.id,
                        private=given.private,
                        at=at,
                        reason=_REASON,
                    )
                )
            return changes
        case Consolidation(), Consolidation() if fields == {"consolidated_content"}:
            return [
                WriteConsolidation(
                    scope=stored.home,
                    expected_version=stored.version,
                    content=given.consolidated_content,
                    word_limit=stored.word_limit or given.word_limit,
                    at=at,
                    fixed=given.fixed,
                    reason=_REASON,
                )
            ]
        case Policy(), Policy() if "scope" not in fields:
            return [
                WritePolicy(policy=given, expected_version=stored.version, at=at, reason=_REASON)
            ]
        case StoredAgent(), StoredAgent() if fields <= _TOGGLES:
            return [
                SetAgentToggles(
                    agent_id=stored.id,
                    at=at,
                    user_memory_enabled=given.user_memory_enabled,
                    agent_memory_enabled=given.agent_memory_enabled,
                    reason=_REASON,
                )
            ]
    return []


OnConflict = Literal["keep", "replace"]
#: Number of records stored together.
_BATCH = 500
#: Types that are added as changes, unless part of a whole backup.
_NEWS = (Fact, Reflection, Consolidation, Policy)
#: Kinds that are imported only as part of a whole backup.
_PAST = (
    RecordKind.HELD,
    RecordKind.FORMATION,
    RecordKind.USAGE,
    RecordKind.AUDIT,
    RecordKind.HISTORY,
)


_LOADED = {
    ChangeStatus.APPLIED: LoadStatus.ADDED,
    ChangeStatus.ADDED_INSTEAD: LoadStatus.ADDED,
    ChangeStatus.ALREADY: LoadStatus.SAME,
    ChangeStatus.DUPLICATE: LoadStatus.SAME,
    ChangeStatus.CONFLICT: LoadStatus.REFUSED,
    ChangeStatus.MISSING: LoadStatus.REFUSED,
}


class Conflict(msgspec.Struct, frozen=True, kw_only=True):
    """A record that differs from the stored one."""

    line: int
    type: str
    id: str
    detail: str


class RestoreReport(msgspec.Struct, kw_only=True):
    """The result of an import, or of a dry run; filled record by record.

    Attributes:
        dry_run: Whether nothing was written.
        counts: Numbers of records by type and result.
        conflicts: The first records that differ from the store.
        problems: The first invalid or refused records.
        failed: Number of invalid or refused records.
        differing: Number of records that differ from the store.
        damage: The damage of the file, if any.
        run_id: The run of the audit entries, if memory was changed.
        without_vector: Number of added facts without a vector.
        vectors_left_out: Numbers of unusable vectors by reason.
        unit: The unit of line numbers: "line" or "entry".
    """

    dry_run: bool
    counts: dict[str, dict[str, int]] = msgspec.field(default_factory=dict)
    conflicts: list[Conflict] = msgspec.field(default_factory=list)
    problems: list[Problem] = msgspec.field(default_factory=list)
    failed: int = 0
    differing: int = 0
    damage: str = ""
    run_id: str | None = None
    without_vector: int = 0
    vectors_left_out: dict[str, int] = msgspec.field(default_factory=dict)
    unit: str = "line"

    def total(self, what: str) -> int:
        """Return the number of records with this result."""
        return sum(counts.get(what, 0) for counts in self.counts.values())

    def add(self, kind: RecordKind, word: str, number: int = 1) -> None:
        """Count records with this result."""
        counts = self.counts.setdefault(kind.value, {})
        counts[word] = counts.get(word, 0) + number

    def note(self, line: ParsedLine, record: Record, answer: LoadResult, word: str) -> None:
        """Note the result of one record."""
        self.add(line.kind, word)
        if answer.status is LoadStatus.DIFFERS:
            self.differing += 1
            if len(self.conflicts) < MAX_PROBLEMS:
                self.conflicts.append(
                    Conflict(
                        line=line.number, type=line.kind.value, id=record.id, detail=answer.detail
                    )
                )
        elif answer.status is LoadStatus.REFUSED:
            self.failed += 1
            if len(self.problems) < MAX_PROBLEMS:
                self.problems.append(Problem(line.number, answer.detail))
        elif word == "added" and isinstance(record, Fact) and record.embedding is None:
            self.without_vector += 1


def import_records(
    runtime: Runtime,
    source: Lines,
    *,
    on_conflict: OnConflict = "keep",
    skip_bad: bool = False,
    allow_long: bool = False,
    owner: str | None = None,
    dry_run: bool = False,
    progress: Callable[[str, int, int], None] = lambda step, done, total: None,
) -> RestoreReport:
    """Check the whole file, then store its new records.

    ``skip_bad`` imports the valid lines of a file with others, and what can be read of a damaged
    one.

    ``owner`` is the ID or username of a user, of the store or the file, who becomes the owner
    of agents and sessions without one, if the store requires an owner.

    ``progress`` is called with the current step, the number of records done, and their total
    (0 = unknown).

    Raises:
        InputError: the file is damaged, or has bad lines, and ``skip_bad`` is not set.
        NotFoundError: neither the store nor the file has the owner.
    """
    runtime = runtime.for_run()
    file = FileCheck(source)
    parser = partial(
        Parser,
        runtime.store,
        runtime.settings,
        now=runtime.clock(),
        whole=file.whole,
        allow_long=allow_long,
        owner_id=_user_id(runtime.store, source, owner) if owner else None,
    )
    for _ in file.records(parser()):
        progress("checking", file.digest.records, 0)
    if file.damage is not None and not skip_bad:
        file.damage.add_hint(_DAMAGED)
        raise file.damage
    if file.bad and not skip_bad:
        raise InvalidLines(
            file.problems,
            file.bad,
            unit=source.unit,
            hint="nothing was changed; import the others with --skip-bad",
        )
    report = RestoreReport(
        dry_run=dry_run, problems=list(file.problems), failed=file.bad, unit=source.unit
    )
    if file.damage is not None:
        file.damage.name_file(source.name)
        report.damage = file.damage.message
    job = _Import(runtime, file, report, replaces=on_conflict == "replace")
    done = 0
    lines = FileCheck(source).records(parser())
    for kind, of_kind in groupby(lines, key=lambda line: line.kind):
        for batch in batched(of_kind, _BATCH):
            job.take(kind, batch)
            done += len(batch)
            progress("comparing" if dry_run else "storing", done, file.digest.records)
    if not dry_run:
        migrations = runtime.store.migrations
        known = {run.id for run in migrations.migration_runs()}
        for run in file.runs.values():
            if run.id not in known:
                migrations.put_migration_run(run)
        Sealer(runtime).take(file.seals())
    return report


def _user_id(store: Store, source: Lines, name: str) -> str:
    """Return the ID of a user of the store, or else of the file."""
    user = People(store).user(name)
    if user is not None:
        return user.id
    for _, raw in source.lines():
        if b'"user"' not in raw[:200]:
            continue
        with suppress(msgspec.DecodeError, UnicodeDecodeError):
            line = msgspec.json.decode(raw, type=_UserLine)
            if line.type == "user" and name in (line.id, line.username):
                return line.id or derived_id("user", line.username)
    raise NotFoundError(f"unknown user: {name!r}", hint=f"edenmem user add {shlex.quote(name)}")


class _Import:
    """Store the records of a checked file, and fill the report."""

    def __init__(
        self, runtime: Runtime, file: FileCheck, report: RestoreReport, *, replaces: bool
    ) -> None:
        self._runtime = runtime
        self._store = runtime.store
        self._file = file
        self._report = report
        self._dry_run = report.dry_run
        self._replaces = replaces
        self._closed: dict[Scope, str] = {}
        self._misfits: dict[str, bool] = {}
        self._lengths: dict[str, int] = {}
        self._blocks = _find_blocks(runtime.store, file.header)

    def take(self, kind: RecordKind, lines: Sequence[ParsedLine]) -> None:
        """Store records of one kind."""
        news = not self._file.whole and isinstance(lines[0].record, _NEWS)
        if not self._file.whole and kind in _PAST:
            self._report.add(kind, "left out", len(lines))
            return
        records = [self._searchable(line.record) for line in lines]
        answers = self._load(kind, records, dry_run=self._dry_run or news)
        if news:
            answers = self._add(records, answers, [line.origin for line in lines])
        for line, record, answer in zip(lines, records, answers, strict=True):
            if answer.status is LoadStatus.DIFFERS and self._replaces:
                answer, word = self._replace(kind, record, answer)
            else:
                # The only version of a fact without history is derived from the fact, and there
                # only because this import added the fact.
                if (
                    isinstance(record, StoredVersion)
                    and record.target_type == "fact"
                    and answer.status is LoadStatus.SAME
                    and self._report.counts.get(RecordKind.FACT.value, {}).keys() == {"added"}
                ):
                    answer = LoadResult(status=LoadStatus.ADDED)
                word = answer.status.value
            self._report.note(line, record, answer, word)

    def _searchable(self, record: Record) -> Record:
        """Return the record, without a vector that search here cannot use."""
        if not isinstance(record, Fact) or record.embedding is None:
            return record
        model = record.embedding_model
        if model and model not in self._misfits:
            self._misfits[model] = bool(self._store.switches.platform_model(model))
        reason = "" if self._file.header else self._why_unusable(record.embedding, model)
        if reason:
            left_out = self._report.vectors_left_out
            left_out[reason] = left_out.get(reason, 0) + 1
        elif not model or not self._misfits[model]:
            return record
        return msgspec.structs.replace(record, embedding=None, embedding_model=None)

    def _why_unusable(self, vector: bytes, model: str | None) -> str:
        """Return why the vector of a handwritten line is unusable, or ""."""
        if not model:
            return "embedding_model is missing"
        embedder = self._runtime.embedder
        if embedder is not None and model != embedder.model:
            return f"vectors of {model}, but the configured model is {embedder.model}"
        length = (
            embedder.dimensions if embedder else self._lengths.setdefault(model, len(vector) // 4)
        )
        if len(vector) != 4 * length:
            return f"wrong length: a vector of {model} has {length} numbers"
        import numpy as np

        numbers = np.frombuffer(vector, dtype="<f4")
        if not np.isfinite(numbers).all() or not numbers.any():
            return "zero vectors, or numbers that are not finite"
        return ""

    def _load(
        self, kind: RecordKind, records: Sequence[Record], *, dry_run: bool
    ) -> list[LoadResult]:
        """Return the store's answers in order; records of erased owners are only compared."""
        reasons = [self._why_blocked(record) for record in records]
        if not any(reasons):
            return self._store.walk.load(kind, records, dry_run=dry_run)
        pairs = list(zip(records, reasons, strict=True))
        free = iter(
            self._store.walk.load(kind, [r for r, why in pairs if not why], dry_run=dry_run)
        )
        kept = iter(self._store.walk.load(kind, [r for r, why in pairs if why], dry_run=True))
        answers: list[LoadResult] = []
        for why in reasons:
            answer = next(kept if why else free)
            brings = answer.status is LoadStatus.ADDED or (
                answer.status is LoadStatus.DIFFERS and self._replaces
            )
            refused = LoadResult(status=LoadStatus.REFUSED, detail=why)
            answers.append(refused if why and brings else answer)
        return answers

    def _why_blocked(self, record: Record) -> str:
        """Return why an erasure blocks a record, or ""."""
        keys = _keys(record) if self._blocks else ()
        key = next((key for key in keys if key in self._blocks), None)
        if key is None:
            return ""
        at = self._blocks[key]
        if at is None:
            return "it or its owner is being erased"
        return f"it or its owner was erased on {at:%Y-%m-%d}, after the file was written"

    # -- new records -------------------------------------------------------------------------

    def _add(
        self, records: Sequence[Record], answers: Sequence[LoadResult], origins: Sequence[str]
    ) -> list[LoadResult]:
        """Add new records as changes, and return the updated answers."""
        found = list(answers)
        changes: dict[int, Change] = {}
        for index, (record, answer) in enumerate(zip(records, answers, strict=True)):
            if answer.status is not LoadStatus.ADDED:
                continue
            assert isinstance(record, _NEWS)
            closed = self._is_closed(record)
            if closed:
                found[index] = LoadResult(status=LoadStatus.REFUSED, detail=closed)
            elif not self._dry_run:
                changes[index] = self._addition(record, origins[index])
        for index, result in zip(changes, self._apply(changes.values()), strict=True):
            found[index] = LoadResult(status=_LOADED[result.status], detail=result.detail)
        return found

    def _addition(self, record: Fact | Reflection | Consolidation | Policy, origin: str) -> Change:
        at, reason = self._runtime.clock(), f"imported from {origin}" if origin else "imported"
        match record:
            case Fact():
                return AddFact(fact=record, reason=reason)
            case Reflection():
                limit = word_limit_of(self._store, self._runtime.settings, record.home, None)
                return AddReflection(reflection=record, word_limit=limit, reason=reason)
            case Consolidation():
                return WriteConsolidation(
                    scope=record.home,
                    expected_version=0,
                    as_version=record.version,
                    content=record.consolidated_content,
                    word_limit=max(
                        record.word_limit,
                        word_limit_of(self._store, self._runtime.settings, record.home, None),
                    ),
                    at=at,
                    fixed=record.fixed,
                    reason=reason,
                )
            case Policy():
                return WritePolicy(policy=record, expected_version=0, at=at, reason=reason)

    def _is_closed(self, record: Fact | Reflection | Consolidation | Policy) -> str:
        """Return why the scope accepts no record, or ""."""
        scope = record.home
        if scope not in self._closed:
            try:
                policy = edit_checks.check_scope_known(
                    self._store, scope, new_shard=isinstance(record, Policy)
                )
                if isinstance(record, Fact | Reflection):
                    edit_checks.check_open(policy, scope)
                self._closed[scope] = ""
            except EdenmemError as error:
                adds = self._file.digest.counts
                # The file itself may add a missing owner, which a dry run does not.
                if self._dry_run and any(
                    adds.get(kind) for kind in ("agent", "user", "policy", "session")
                ):
                    return ""
                self._closed[scope] = f"{error.message}; {error.hint}"
        return self._closed[scope]

    def _apply(self, changes: Iterable[Change]) -> list[ChangeResult]:
        made = tuple(changes)
        if not made:
            return []
        self._report.run_id = self._runtime.actor.run_id
        return self._store.changes.apply(
            ChangeSet(actor=self._runtime.actor, at=self._runtime.clock(), changes=made)
        )

    # -- conflicts ---------------------------------------------------------------------------

    def _replace(
        self, kind: RecordKind, record: Record, answer: LoadResult
    ) -> tuple[LoadResult, str]:
        """Replace the stored record; return the answer and the result for the report."""
        assert answer.stored is not None
        changes = replacement(kind, answer.stored, record, self._runtime.clock())
        if not changes:
            detail = f"{answer.detail}; cannot be replaced"
            return msgspec.structs.replace(answer, detail=detail), answer.status.value
        if not self._dry_run:
            for result in self._apply(changes):
                if not result.ok:
                    return msgspec.structs.replace(answer, detail=result.detail), "differs"
        return LoadResult(status=LoadStatus.ADDED), "replaced"
