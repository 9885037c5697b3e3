"""Undo one change, or all changes of a run, newest first.

The inverse of a change (see `edenmem.memory.inverse`) is a regular change: it is audited, and can
be undone. Its ID is derived from the ID of the undone entry, so a repeated undo is made once. An
entry, its undo, the undo of that, … form a chain; the entry is in force if the length is odd.

Entries are undone in pages: a page loads its state in one go, each entry is inverted and planned on
the state after the entries before it, and all changes are applied as one set. A dry run omits the
last step, and keeps the planned state.

An undo is refused if the target has changed since the entry, or if a later entry in force is in the
way; the later entries are reported.
``force`` undoes the entry anyway; the later state stays in the history.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import islice, takewhile
from typing import Any

import msgspec

from edenmem.engine.edits.vectors import NO_VECTOR
from edenmem.engine.embeddings.backfill import Backfiller
from edenmem.engine.embeddings.status import misfit_notice
from edenmem.engine.history.reader import existing_entry
from edenmem.engine.runtime.concurrency import in_thread
from edenmem.engine.runtime.runtime import Runtime
from edenmem.memory import Needs, State, fold, needs, plan
from edenmem.memory.inverse import (
    Inverse,
    Past,
    inverse_needs,
    invert,
    is_overridden_by,
    past_needs,
    versions_needed,
)
from edenmem.memory.inverse import undo_id as undo_id
from edenmem.memory.state import Effect, plain
from edenmem.models.changes import (
    AuditEntry,
    Change,
    ChangeResult,
    ChangeSet,
    ChangeStatus,
    ReviseFact,
    held_change_id,
)
from edenmem.models.ids import new_id
from edenmem.models.memory import Fact
from edenmem.models.records import SET_ASIDE, HistoryEntry
from edenmem.models.scope import Scope
from edenmem.models.search import FactFilter
from edenmem.store.protocol.store import Store, batched


class UndoOutcome(StrEnum):
    """The result of undoing one entry."""

    PLANNED = "planned"  # possible; nothing was written
    DONE = "done"
    ALREADY = "already"  # not in force any longer
    REFUSED = "refused"


class UndoStep(msgspec.Struct, frozen=True, kw_only=True):
    """The undo of one entry.

    Attributes:
        entry: The requested entry.
        outcome: The result.
        undo_id: ID of the undoing entry.
        of: The undone entry, if different: the latest redo of the requested entry.
        before: The current target, without its vector.
        after: The target afterwards; None if removed or unknown.
        why: Reason of a refusal, or of nothing to do.
        in_the_way: Later entries of the target, newest first.
        more: Number of further later entries.
        forced: True if the later entries were overridden.
        forceable: True if ``force`` can override them.
        notices: Notices for the operator.
    """

    entry: AuditEntry
    outcome: UndoOutcome
    undo_id: str
    of: AuditEntry | None = None
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    why: str = ""
    in_the_way: tuple[AuditEntry, ...] = ()
    more: int = 0
    forced: bool = False
    forceable: bool = False
    notices: tuple[str, ...] = ()


_MISSING = object()


async def make_vectors(runtime: Runtime, fact_ids: Iterable[str]) -> str:
    """Compute the vectors of restored facts; return a notice if some are missing, else "".

    An undo does not depend on the provider: text search finds facts without a vector.
    """
    if runtime.embedder is None:
        return NO_VECTOR
    store = runtime.store
    notice = await in_thread(misfit_notice, store, runtime.settings, runtime.embedder.model)
    if notice:
        return notice
    found = (store.memory.fact(id) for id in fact_ids)
    report = await Backfiller(runtime).run(facts=(fact for fact in found if fact is not None))
    why = report.failed[0].reason if report.failed else ""
    return why and f"{why}; add missing vectors with 'edenmem embed backfill'"


class UndoState:
    """The state and history that one page needs; with ``keep``, across the pages of a dry run."""

    def __init__(self, store: Store, *, keep: bool) -> None:
        self._store = store
        self._keep = keep
        self._versions: dict[Scope, tuple[HistoryEntry, ...]] = {}
        self.state = State()
        self.past = Past()

    def load(self, entries: Sequence[AuditEntry], at: datetime) -> None:
        """Load the state for inverting the entries of a page, and for planning their undo."""
        if self._keep:  # what no later page depends on goes, to limit memory
            self.state.answers.clear()
            self.state.blocks.clear()
            self.state.owners = {key: owner for key, owner in self.state.owners.items() if owner}
            self.past = Past(grown=self.past.grown)
        else:
            self.state, self.past = State(), Past()
        self._load_past(entries)
        self._load_state(inverse_needs(entries, self.past), at)
        self._load_versions(versions_needed(entries, self.state))
        found = (invert(entry, self.state, self.past, at=at).change for entry in entries)
        self._load_state(needs(change for change in found if change is not None), at)

    def load_for(self, change: Change, at: datetime) -> None:
        """Load the state of a change that earlier entries of the page have altered."""
        self._load_state(needs([change]), at)

    def fold(self, effect: Effect) -> None:
        """Apply an effect to the state for the next entries."""
        fold(self.state, effect)
        self.past.fold(effect)
        for version in effect.versions if self._keep else ():
            if version.absorbed_ids:
                self._versions[version.scope] = (*self._versions.get(version.scope, ()), version)

    def _load_state(self, wanted: Needs, at: datetime) -> None:
        left = self.state.missing(wanted)
        if not left:
            return
        loaded = self._store.changes.load_state(left, at=at)
        for (scope, digest), fact_id in loaded.owners.items():
            known = self.state.facts.get(fact_id or "", _MISSING)
            if known is None or (
                isinstance(known, Fact) and (known.home, known.hash) != (scope, digest)
            ):
                loaded.owners[scope, digest] = None
        self.state.take(loaded)

    # -- history -----------------------------------------------------------------------------

    def _load_past(self, entries: Sequence[AuditEntry]) -> None:
        wanted = past_needs(entries)
        for entry in wanted.snapshots:
            assert entry.scope is not None
            history = self._store.history.versions("fact", entry.target_id, scope=entry.scope)
            snapshots = [each for each in history if each.snapshot is not None]
            own = [each for each in snapshots if each.change_id == entry.id] or snapshots
            if own and own[-1].snapshot is not None:
                self.past.snapshots[entry.id] = own[-1].snapshot
        self._load_versions(wanted.versions)
        for scope, since in wanted.reverts.items():
            self.past.reverts[scope] = self._reverts(scope, since)
        for scope in wanted.contents:
            facts = self._store.memory.facts(FactFilter(scopes=(scope,)))
            reflections = self._store.memory.reflections([scope])
            self.past.contents[scope] = sum(1 for _ in facts) + sum(1 for _ in reflections)

    def _load_versions(self, scopes: set[Scope]) -> None:
        for scope in scopes - self.past.versions.keys():
            history = self._store.history.versions("consolidation", "", scope=scope)
            self.past.versions[scope] = (*history, *self._versions.get(scope, ()))

    def _reverts(self, scope: Scope, since: datetime) -> tuple[tuple[datetime, int], ...]:
        """Return time and version of each undone version of a scope's text."""
        reverts = [
            entry
            for entry in self._store.log.audit(
                scope=scope, actions=["revert_consolidation"], since=since
            )
            if entry.undoes
        ]
        undone = self._store.log.audit_entries([each.undoes for each in reverts if each.undoes])
        return tuple(
            (each.at, int((undone[each.undoes].after or {}).get("version", 0)))
            for each in reverts
            if each.undoes in undone and undone[each.undoes].action == "write_consolidation"
        )


#: Entries per page.
PAGE = 500
#: Factor by which a page may exceed `PAGE` to keep the changes of a set together.
_LONGEST = 4
#: Maximum number of later entries to report, and to read.
_SHOWN = 5
_READ = 500
#: Maximum number of entries to read of a fact with the same text as a restored one.
_READ_OF_RIVAL = 20
_OF_POLICIES = ("write_policy", "remove_policy")


class Undoer:
    """Undo changes on behalf of the runtime's actor. Blocks."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = msgspec.structs.replace(runtime, clock=self._time)
        self._store = runtime.store
        self._clock = runtime.clock
        self._last: datetime | None = None

    def plan(self, entry_id: str, *, force: bool = False) -> UndoStep:
        """Preview the undo of an entry. Writes nothing.

        Raises:
            NotFoundError: the entry does not exist.
        """
        entries = self._decision_of(existing_entry(self._store, entry_id))
        work = _Work(self._runtime, force=force, dry_run=True)
        steps = list(work.undo_page(entries, explain=True))
        refused = next((step for step in steps if step.outcome is UndoOutcome.REFUSED), None)
        if refused is not None:
            return refused
        notices = steps[0].notices
        if len(steps) > 1:
            notices = (*notices, f"{len(steps)} changes of one decision are undone together")
        return msgspec.structs.replace(steps[0], notices=notices)

    def undo(self, entry_id: str, *, force: bool = False, reason: str = "") -> UndoStep:
        """Undo an entry, as the first of `undo_decision`.

        Raises:
            NotFoundError: the entry does not exist.
        """
        return self.undo_decision(entry_id, force=force, reason=reason)[0]

    def undo_decision(
        self, entry_id: str, *, force: bool = False, reason: str = ""
    ) -> list[UndoStep]:
        """Undo an entry, and with an entry of a review all of its decision, or nothing.

        Raises:
            NotFoundError: the entry does not exist.
        """
        entries = self._decision_of(existing_entry(self._store, entry_id))
        if len(entries) > 1:
            planned = self.plan(entry_id, force=force)
            if planned.outcome is UndoOutcome.REFUSED:
                return [planned]
        work = _Work(self._runtime, force=force, reason=reason)
        return list(work.undo_page(entries, explain=True))

    def undo_run(
        self, run_id: str, *, force: bool = False, dry_run: bool = False, reason: str = ""
    ) -> Iterator[UndoStep]:
        """Undo all changes of a run, newest first, and yield one step per entry.

        The undo can be interrupted and repeated. Refused entries are retried at the end, since
        entries of hosts with different clocks may block each other; final refusals come last.
        """
        work = _Work(self._runtime, force=force, dry_run=dry_run, reason=reason, run_id=run_id)
        pages: Iterable[list[AuditEntry]] = _whole_sets(self._store.log.audit(run_id=run_id))
        refused: list[str] = []
        while True:
            left: list[str] = []
            has_progress = False
            for page in pages:
                for step in work.undo_page(page):
                    if step.outcome is UndoOutcome.REFUSED:
                        left.append(step.entry.id)
                    else:
                        has_progress |= step.outcome is not UndoOutcome.ALREADY
                        yield step
            refused = left
            if not refused or not has_progress:
                break
            pages = self._pages(refused)
        for page in self._pages(refused):
            yield from work.undo_page(page, explain=True)

    def _decision_of(self, entry: AuditEntry) -> list[AuditEntry]:
        """Return an entry, and the others of its decision about a held item, if it is of one.

        Of an undo, these are the other undos.
        """
        log, root, depth = self._store.log, entry, 0
        while root.undoes and (undone := log.audit_entry(root.undoes)) is not None:
            root, depth = undone, depth + 1
        is_held = root.action == "remove_held"
        if not (is_held or log.audit_entry(held_change_id(root.id))):
            return [entry]
        made = log.audit(
            agent_id=root.agent_id, since=root.at, until=root.at + timedelta(milliseconds=1)
        )
        ids = [each.id for each in made if each.change_set_id == root.change_set_id]
        for _ in range(depth):
            ids = [undo_id(each) for each in ids]
        found = log.audit_entries([each for each in ids if each != entry.id])
        return [entry, *found.values()]

    def _pages(self, entry_ids: Sequence[str]) -> Iterator[list[AuditEntry]]:
        for ids in batched(entry_ids, PAGE):
            found = self._store.log.audit_entries(ids)
            yield [found[each] for each in ids if each in found]

    def _time(self) -> datetime:
        """Return the time, later than for the page before: the log is sorted by time."""
        now = self._clock()
        if self._last is not None and now <= self._last:
            now = self._last + timedelta(milliseconds=1)
        self._last = now
        return now


class _Work:
    """One undo, page by page. A dry run keeps a few bytes per target of earlier pages."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        force: bool,
        dry_run: bool = False,
        reason: str = "",
        run_id: str = "",
    ) -> None:
        self._store = runtime.store
        self._actor = runtime.actor
        self._clock = runtime.clock
        self._force = force
        self._dry_run = dry_run
        self._reason = reason
        self._run_id = run_id
        self._known = UndoState(runtime.store, keep=dry_run)
        # Planned results that the log does not have yet: entries of the run that stay in force,
        # and undone entries of other runs.
        self._kept: set[str] = set()
        self._undone: set[str] = set()
        # The entries of the targets of a page, newest first.
        self._log: dict[str, list[AuditEntry]] = {}

    def undo_page(
        self, entries: Sequence[AuditEntry], *, explain: bool = False
    ) -> Iterator[UndoStep]:
        """Undo a page of entries, and yield one step per entry, in order.

        Args:
            entries: The entries, newest first.
            explain: Find the later entries that block refused ones.
        """
        now = self._clock()
        entries = sorted(entries, key=_moment, reverse=True)
        chains = chains_of(self._store, entries)
        in_force = {id: chain[-1] for id, chain in chains.items() if len(chain) % 2}
        wanted = [in_force[each.id] for each in entries if each.id in in_force]
        self._known.load(wanted, now)
        self._load_log(wanted)
        context = ChangeSet(actor=self._actor, at=now)
        steps: list[UndoStep] = []
        changes: dict[int, Change] = {}
        for entry in entries:
            of = in_force.get(entry.id)
            if of is None:
                top = chains[entry.id][-1]
                why = f"already undone by {top.id}"
                step, effect = _step(entry, entry, UndoOutcome.ALREADY, why=why), None
            elif of.action == SET_ASIDE and of.before:
                step, effect = self._put_back(entry, of, now), None
            else:
                step, effect = self._step(entry, of, context, explain=explain)
            if effect is not None and step.outcome is UndoOutcome.PLANNED:
                self._known.fold(effect)
                changes[len(steps)] = effect.change
            self._note(step)
            steps.append(step)
        if changes and not self._dry_run:
            context = msgspec.structs.replace(context, changes=tuple(changes.values()))
            results = self._store.changes.apply(context)
            for (index, change), result in zip(changes.items(), results, strict=True):
                steps[index] = _settle(steps[index], change, result, UndoOutcome.DONE)
        yield from steps

    def _put_back(self, entry: AuditEntry, of: AuditEntry, at: datetime) -> UndoStep:
        """Restore a document that `doctor` has set aside."""
        if self._dry_run:
            return _step(entry, of, UndoOutcome.PLANNED)
        undo = msgspec.structs.replace(
            of,
            id=undo_id(of.id),
            change_set_id=new_id(at),
            at=at,
            actor=self._actor,
            action="put_back",
            before=None,
            reason=self._reason,
            undoes=of.id,
        )
        if self._store.walk.put_back(of, undo):
            return _step(entry, of, UndoOutcome.DONE)
        return _step(entry, of, UndoOutcome.REFUSED, why="its ID is in use again")

    def _step(
        self, entry: AuditEntry, of: AuditEntry, context: ChangeSet, *, explain: bool
    ) -> tuple[UndoStep, Effect | None]:
        """Plan the undo of an entry: the step, and its effect, if any."""
        inverse = invert(of, self._known.state, self._known.past, at=context.at)
        now = plain(inverse.now)
        step = _step(entry, of, UndoOutcome.PLANNED, before=now, notices=inverse.notices)
        if inverse.change is None and not inverse.blocked:
            step = _step(entry, of, UndoOutcome.ALREADY, why=inverse.why, before=now, after=now)
            return step, None
        effect = None
        if inverse.change is not None:
            self._known.load_for(inverse.change, context.at)
            change = msgspec.structs.replace(inverse.change, reason=self._reason)
            effect = plan(change, self._known.state, context)
            if not inverse.differs and any(
                # Undoing overrides a later entry, although the states are equal.
                is_overridden_by(of, each, inverse.now)
                for each in self._in_force_since(of)
            ):
                inverse = msgspec.structs.replace(inverse, differs=True)
            if effect.entry is not None:
                step = msgspec.structs.replace(
                    step, before=effect.entry.before, after=effect.entry.after
                )
        is_refused = inverse.blocked or (inverse.differs and not self._force)
        if (explain and is_refused) or (inverse.differs and self._force):
            found, more = self._later(of, inverse)
            step = msgspec.structs.replace(step, in_the_way=found, more=more)
        if is_refused:
            why = inverse.why or _why(of, step.in_the_way)
            return msgspec.structs.replace(
                step,
                outcome=UndoOutcome.REFUSED,
                why=why,
                forceable=not inverse.blocked,
                notices=(),
            ), None
        assert effect is not None
        step = msgspec.structs.replace(step, why=inverse.why, forced=inverse.differs)
        return _settle(step, effect.change, effect.result, UndoOutcome.PLANNED), effect

    def _note(self, step: UndoStep) -> None:
        """Record a planned result that the log does not have yet."""
        if step.outcome is not UndoOutcome.PLANNED:
            self._kept.add(step.entry.id)
            return
        self._kept.discard(step.entry.id)
        if step.of is not None:
            self._undone.add(step.of.id)

    # -- the log -----------------------------------------------------------------------------

    def _later(self, of: AuditEntry, inverse: Inverse) -> tuple[tuple[AuditEntry, ...], int]:
        """Return the later entries in force, newest first, and the number of further ones."""
        others = list(self._store.log.audit_entries(inverse.by).values())
        if inverse.rival:
            others += self._store.log.audit(target_id=inverse.rival, limit=_READ_OF_RIVAL)
        own = self._actor.run_id  # a dry run has written no entries
        found = [
            each
            for each in (*others, *self._in_force_since(of))
            if not own or each.actor.run_id != own
        ]
        return tuple(found[:_SHOWN]), len(found[_SHOWN:])

    def _in_force_since(self, of: AuditEntry) -> list[AuditEntry]:
        """Return the later entries in force, newest first; of an undo and redo, the last one."""
        since = list(islice(self._since(of), _READ))
        ids, undone = {entry.id for entry in since}, {entry.undoes: entry for entry in since}
        found = set()
        for entry in since:
            if entry.undoes in ids:
                continue  # part of the chain of another entry
            chain = [entry]
            while chain[-1].id in undone:
                chain.append(undone[chain[-1].id])
            if len(chain) % 2 and not self._is_gone(chain[-1]):
                found.add(chain[-1].id)
        return [entry for entry in since if entry.id in found]

    def _load_log(self, entries: Sequence[AuditEntry]) -> None:
        """Load the entries of the targets of a page, since its first entry."""
        self._log = {entry.target_id: [] for entry in entries}
        if entries:
            since = min(entry.at for entry in entries)
            for entry in self._store.log.audit(target_ids=list(self._log), since=since):
                self._log[entry.target_id].append(entry)
            for entries_of_target in self._log.values():
                entries_of_target.sort(key=_moment, reverse=True)

    def _is_gone(self, entry: AuditEntry) -> bool:
        """Check whether this undo has already planned the undo of an entry."""
        if not self._run_id:
            return False
        is_own = entry.actor.run_id == self._run_id and entry.id not in self._kept
        return is_own or entry.id in self._undone

    def _since(self, of: AuditEntry) -> Iterator[AuditEntry]:
        """Yield later entries of the same target, newest first; for a policy, of the same scope.

        A recreated policy has a new ID.
        """
        if of.scope is not None and of.action in _OF_POLICIES:
            entries = self._store.log.audit(scope=of.scope, since=of.at, actions=_OF_POLICIES)
        else:
            entries = iter(self._log[of.target_id])
        return takewhile(lambda entry: entry.id != of.id, entries)


def _whole_sets(entries: Iterable[AuditEntry]) -> Iterator[list[AuditEntry]]:
    """Cut entries into pages, without splitting entries of the same time, which have no order."""
    page: list[AuditEntry] = []
    for entry in entries:
        is_full = len(page) >= PAGE and entry.at != page[-1].at
        if is_full or len(page) >= PAGE * _LONGEST:
            yield page
            page = []
        page.append(entry)
    if page:
        yield page


def chains_of(store: Store, entries: Sequence[AuditEntry]) -> dict[str, list[AuditEntry]]:
    """Return the chain of each entry: the entry, its undo, the undo of that, …

    An entry is in force if the length of its chain is odd.
    """
    chains = {entry.id: [entry] for entry in entries}
    growing = list(chains.values())
    while growing:
        undone = store.log.audit_entries([undo_id(chain[-1].id) for chain in growing])
        by_entry = {entry.undoes: entry for entry in undone.values()}
        growing = [chain for chain in growing if chain[-1].id in by_entry]
        for chain in growing:
            chain.append(by_entry[chain[-1].id])
    return chains


def _moment(entry: AuditEntry) -> tuple[datetime, int]:
    """Return when an entry was made: those of one set have the same time."""
    return entry.at, entry.place


def _step(entry: AuditEntry, of: AuditEntry, outcome: UndoOutcome, **fields: object) -> UndoStep:
    made = UndoStep(
        entry=entry,
        outcome=outcome,
        undo_id=undo_id(of.id),
        of=of if of.id != entry.id else None,
    )
    return msgspec.structs.replace(made, **fields)


def _settle(step: UndoStep, change: Change, result: ChangeResult, done: UndoOutcome) -> UndoStep:
    """Set the outcome of a step from the result of its change; ``done`` if applied."""
    outcome, why = done, step.why
    if not result.ok:
        outcome, why = UndoOutcome.REFUSED, result.detail
    elif result.status is ChangeStatus.DUPLICATE and not isinstance(change, ReviseFact):
        outcome, why = UndoOutcome.REFUSED, f"{result.detail}: {result.target_id}"
    elif result.status is ChangeStatus.ALREADY:
        outcome = UndoOutcome.ALREADY
    return msgspec.structs.replace(step, outcome=outcome, why=why)


def _why(of: AuditEntry, later: Sequence[AuditEntry]) -> str:
    what = "text" if of.target_type == "consolidation" else of.target_type
    if later:
        return f"the {what} has changed since"
    return f"the {what} has changed since, by a program without a log"
