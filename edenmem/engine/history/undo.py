"""Taking changes back: one, or all of a run, newest first.

The way back of a change is a change of its own on the same audited road, so it is logged, and can
be taken back itself. Its id is derived from that of the entry that it takes back: however often an
undo is repeated, by whoever, it is made once. So the log is a chain: an entry, the undo of it, the
undo of that, and an entry is in force while its chain ends in it or in a change that made it again.

An undo is refused if the target is not as the entry left it; what stands in the way is shown.
``force`` makes it all the same, and the later state stays in history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import islice, takewhile

import msgspec

from edenmem.embed.protocol import Embedder
from edenmem.engine.edits.editor import NO_VECTOR
from edenmem.engine.embeddings.status import misfit_notice
from edenmem.engine.history.inverses import Now, UndoOutcome, UndoStep, Way, Ways
from edenmem.engine.runtime.concurrency import in_thread
from edenmem.errors import NotFoundError, ProviderError
from edenmem.models.changes import Actor, AuditEntry, Change, ChangeResult, ChangeSet, ChangeStatus
from edenmem.models.ids import derived_id, utc_now
from edenmem.models.memory import content_hash
from edenmem.settings.schema import Settings
from edenmem.store.protocol.store import Store, batched


def without_vector(steps: Iterable[UndoStep]) -> dict[str, str]:
    """Fact id → text, of the facts that came back without a vector."""
    return {
        step.entry.target_id: str(step.after["content"])
        for step in steps
        if step.outcome is UndoOutcome.DONE
        and step.entry.target_type == "fact"
        and step.after is not None
        and not step.after.get("embedding_model")
    }


async def give_vectors(
    store: Store, settings: Settings, embedder: Embedder | None, facts: dict[str, str]
) -> str:
    """Make vectors of these texts; "", or what a person should know if there are none now.

    A provider that is down keeps nobody from an undo: the facts are found by their words.
    """
    if embedder is None:
        return NO_VECTOR
    notice = await in_thread(misfit_notice, store, settings, embedder.model)
    if notice:
        return notice
    texts: Sequence[str] = list(facts.values())
    try:
        embedding = await embedder.embed(texts)
    except ProviderError as error:
        return f"{error.message}; 'edenmem embed backfill' adds the vectors that are missing"
    vectors = {
        fact_id: (content_hash(content), vector)
        for (fact_id, content), vector in zip(facts.items(), embedding.vectors, strict=True)
    }
    await in_thread(store.set_vectors, vectors, model=embedder.model)
    return ""


#: Entries whose targets are read together, and whose ways back are written together.
BATCH = 200
#: Entries in the way that are shown, and those that are looked through for them.
_SHOWN = 5
_READ = 500
#: Changes that no other of a batch has a say in, as long as it is of another target.
_ALONE = frozenset(
    {
        "add_fact",
        "revise_fact",
        "remove_fact",
        "set_privacy",
        "add_reflection",
        "revise_reflection",
        "remove_reflection",
    }
)
_OF_POLICIES = ("write_policy", "remove_policy")


def undo_id(entry_id: str) -> str:
    """The id of the entry that takes this one back."""
    return derived_id("undo", entry_id)


class _Task(msgspec.Struct, frozen=True):
    """An entry that was asked for, the one of its chain that is in force, and its way back."""

    entry: AuditEntry
    of: AuditEntry
    way: Way


class Undoer:
    """Takes changes back on behalf of ``actor``. Blocks."""

    def __init__(
        self, store: Store, *, actor: Actor, clock: Callable[[], datetime] = utc_now
    ) -> None:
        self._store = store
        self._actor = actor
        self._clock = clock
        self._last: datetime | None = None

    # -- one entry ---------------------------------------------------------------------------

    def plan(self, entry_id: str, *, force: bool = False) -> UndoStep:
        """What taking this entry back would do. Writes nothing.

        Raises:
            NotFoundError: there is no such entry.
        """
        (step,) = self._steps([self._entry(entry_id)], force=force, dry_run=True)
        return step

    def undo(self, entry_id: str, *, force: bool = False, reason: str = "") -> UndoStep:
        """Take this entry back.

        Raises:
            NotFoundError: there is no such entry.
        """
        (step,) = self._steps([self._entry(entry_id)], force=force, reason=reason)
        return step

    def _entry(self, entry_id: str) -> AuditEntry:
        entry = self._store.audit_entry(entry_id)
        if entry is None:
            raise NotFoundError(
                f"there is no entry {entry_id} in the log", hint="'edenmem log' lists them"
            )
        return entry

    # -- a run -------------------------------------------------------------------------------

    def undo_run(
        self, run_id: str, *, force: bool = False, dry_run: bool = False, reason: str = ""
    ) -> Iterator[UndoStep]:
        """Take back all that a run changed, newest first; what became of each entry.

        It may be stopped anywhere and repeated. Entries that are in each other's way, such as those
        of hosts whose clocks disagree, are tried again at the end. In a dry run what later entries
        of the same run did counts as taken back.
        """
        refused: list[str] = []
        entries = self._store.audit(run_id=run_id)
        for batch in batched(entries, BATCH):
            for step in self._steps(batch, force=force, dry_run=dry_run, reason=reason, run=run_id):
                if step.outcome is UndoOutcome.REFUSED and not dry_run:
                    refused.append(step.entry.id)
                else:
                    yield step
        while refused:
            left: list[str] = []
            for ids in batched(refused, BATCH):
                again = self._store.audit_entries(ids)
                there = [again[each] for each in ids if each in again]
                for step in self._steps(there, force=force, reason=reason, run=run_id):
                    if step.outcome is UndoOutcome.REFUSED:
                        left.append(step.entry.id)
                    else:
                        yield step
            if len(left) == len(refused):
                break
            refused = left
        for ids in batched(refused, BATCH):
            found = self._store.audit_entries(ids)
            there = [found[each] for each in ids if each in found]
            yield from self._steps(there, force=force, dry_run=True, run=run_id, told=True)

    # -- steps -------------------------------------------------------------------------------

    def _steps(
        self,
        entries: Sequence[AuditEntry],
        *,
        force: bool,
        dry_run: bool = False,
        reason: str = "",
        run: str | None = None,
        told: bool = False,
    ) -> Iterator[UndoStep]:
        """One step for each entry, in order. ``told``: a refusal is one in a dry run too."""
        simulated = run if dry_run and not told else None
        for group in _groups(entries):
            now = self._later_than_before()
            current = self._in_force(group)
            reading = Now(self._store, [each[-1] for each in current.values()])
            ways = Ways(self._store, reading, now, force=force)
            steps: dict[str, UndoStep] = {}
            tasks: list[_Task] = []
            for entry in group:
                chain = current[entry.id]
                top = chain[-1]
                if len(chain) % 2 == 0:
                    steps[entry.id] = _step(
                        entry, entry, UndoOutcome.ALREADY, Way(why=f"undone already by {top.id}")
                    )
                    continue
                task = _Task(entry, top, ways.back(top))
                step = self._judged(task, force=force, run=simulated)
                steps[entry.id] = step
                if step.outcome is UndoOutcome.PLANNED:
                    tasks.append(task)
            if tasks and not dry_run:
                steps |= self._made(tasks, steps, now, reason)
            yield from (steps[entry.id] for entry in group)

    def _later_than_before(self) -> datetime:
        """The time, but never that of the group before: the log is read back in order of time."""
        now = self._clock()
        if self._last is not None and now <= self._last:
            now = self._last + timedelta(milliseconds=1)
        self._last = now
        return now

    def _judged(self, task: _Task, *, force: bool, run: str | None) -> UndoStep:
        """Whether the way is open."""
        way, of = task.way, task.of
        if way.change is not None and not way.differs:
            return _step(task.entry, of, UndoOutcome.PLANNED, way)
        if run is not None and self._is_of_run(task, run):
            then = Way(before=of.after, after=of.before)
            return _step(task.entry, of, UndoOutcome.PLANNED, then)
        if way.change is None and not way.blocked:
            return _step(task.entry, of, UndoOutcome.ALREADY, way)
        later, more = self._later(task)
        if way.differs and force and way.change is not None:
            step = _step(task.entry, of, UndoOutcome.PLANNED, way)
            return msgspec.structs.replace(step, forced=True, in_the_way=later, more=more)
        why = way.why or _why(of, later)
        return msgspec.structs.replace(
            _step(task.entry, of, UndoOutcome.REFUSED, way),
            why=why,
            in_the_way=later,
            more=more,
            forceable=not way.blocked,
        )

    def _made(
        self, tasks: Sequence[_Task], steps: dict[str, UndoStep], now: datetime, reason: str
    ) -> dict[str, UndoStep]:
        changes = tuple(_named(task, reason) for task in tasks)
        results = self._store.apply(ChangeSet(actor=self._actor, at=now, changes=changes))
        return {
            task.entry.id: _done(steps[task.entry.id], task, result)
            for task, result in zip(tasks, results, strict=True)
        }

    # -- the log -----------------------------------------------------------------------------

    def _in_force(self, entries: Sequence[AuditEntry]) -> dict[str, list[AuditEntry]]:
        """The chain of each entry: itself, the undo of it, the undo of that, … ."""
        chains = {entry.id: [entry] for entry in entries}
        growing = list(chains.values())
        while growing:
            undone = self._finished([undo_id(chain[-1].id) for chain in growing])
            growing = [chain for chain in growing if undo_id(chain[-1].id) in undone]
            for chain in growing:
                chain.append(undone[undo_id(chain[-1].id)])
        return chains

    def _finished(self, ids: Sequence[str]) -> dict[str, AuditEntry]:
        """Those of these entries that there are."""
        return self._store.audit_entries(ids)

    def _later(self, task: _Task) -> tuple[tuple[AuditEntry, ...], int]:
        """The entries that stand in the way, newest first, and how many more there are. Of those
        that were taken back neither they nor their undo are in it."""
        others = self._store.audit_entries(task.way.by).values()
        since = list(islice(self._since(task.of), _READ))
        away = {entry.undoes for entry in since}
        gone = {id for entry in since if entry.id in away for id in (entry.id, undo_id(entry.id))}
        found = [*others, *(entry for entry in since if entry.id not in gone)]
        return tuple(found[:_SHOWN]), len(found[_SHOWN:])

    def _since(self, of: AuditEntry) -> Iterator[AuditEntry]:
        """The entries of the same target after this one, newest first. A policy that is made anew
        has an id of its own, and the scope is the same."""
        if of.scope is not None and of.action in _OF_POLICIES:
            entries = self._store.audit(scope=of.scope, since=of.at, actions=_OF_POLICIES)
        else:
            entries = self._store.audit(target_id=of.target_id, since=of.at)
        return takewhile(lambda entry: entry.id != of.id, entries)

    def _is_of_run(self, task: _Task, run: str) -> bool:
        """Whether all that stands in the way is of the run that is being taken back."""
        others = self._store.audit_entries(task.way.by).values()
        in_the_way = [*others, *self._since(task.of)]
        return bool(in_the_way) and all(entry.actor.run_id == run for entry in in_the_way)


def _groups(entries: Iterable[AuditEntry]) -> Iterator[list[AuditEntry]]:
    """Entries that may be judged together before any of them is taken back."""
    group: list[AuditEntry] = []
    targets: set[str] = set()
    for entry in entries:
        alone = entry.action in _ALONE
        if group and (not alone or entry.target_id in targets or group[0].action not in _ALONE):
            yield group
            group, targets = [], set()
        group.append(entry)
        targets.add(entry.target_id)
    if group:
        yield group


def _named(task: _Task, reason: str) -> Change:
    assert task.way.change is not None
    return msgspec.structs.replace(
        task.way.change, id=undo_id(task.of.id), undoes=task.of.id, reason=reason
    )


def _step(entry: AuditEntry, of: AuditEntry, outcome: UndoOutcome, way: Way) -> UndoStep:
    return UndoStep(
        entry=entry,
        outcome=outcome,
        undo_id=undo_id(of.id),
        of=of if of.id != entry.id else None,
        before=way.before,
        after=way.after,
        why=way.why,
        notices=way.notices,
    )


def _done(step: UndoStep, task: _Task, result: ChangeResult) -> UndoStep:
    if not result.ok:
        return msgspec.structs.replace(step, outcome=UndoOutcome.REFUSED, why=result.detail)
    if result.status is ChangeStatus.DUPLICATE and step.after is not None:
        why = f"the scope has that text in another fact, {result.target_id}"
        return msgspec.structs.replace(step, outcome=UndoOutcome.REFUSED, why=why)
    outcome = UndoOutcome.ALREADY if result.status is ChangeStatus.ALREADY else UndoOutcome.DONE
    return msgspec.structs.replace(step, outcome=outcome)


def _why(of: AuditEntry, later: Sequence[AuditEntry]) -> str:
    what = "text" if of.target_type == "consolidation" else of.target_type
    if later:
        return f"the {what} was changed since"
    return f"the {what} was changed since, by something that keeps no log"
