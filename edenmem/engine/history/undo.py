"""Taking changes back: one, or all of a run, newest first.

The way back of a change (see `edenmem.memory.inverse`) is a change of its own on the same audited
road, so it is logged, and can be taken back itself. Its id is derived from that of the entry that
it takes back: however often an undo is repeated, by whoever, it is made once. So the log is a
chain: an entry, the undo of it, the undo of that, and an entry is in force while its chain ends in
it or in a change that made it again.

Entries are taken back by pages: what a page needs is loaded at once, each entry is inverted and
planned on what the entries before it leave, and the changes are applied as one set. A dry run is
the same without the last step, on what its earlier pages would leave.

An undo is refused if the target is not as the entry left it; what stands in the way is shown.
``force`` makes it all the same, and the later state stays in history.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import islice, takewhile
from typing import Any

import msgspec

from edenmem.engine.edits.vectors import NO_VECTOR
from edenmem.engine.embeddings.status import misfit_notice
from edenmem.engine.runtime.concurrency import in_thread
from edenmem.engine.runtime.runtime import Runtime
from edenmem.errors import NotFoundError, ProviderError
from edenmem.memory import Needs, State, fold, needs, plan
from edenmem.memory.effect import Effect
from edenmem.memory.inverse import (
    Inverse,
    Past,
    inverse_needs,
    invert,
    past_needs,
    versions_needed,
)
from edenmem.memory.inverse import undo_id as undo_id
from edenmem.memory.outcome import plain
from edenmem.models.changes import (
    AuditEntry,
    Change,
    ChangeResult,
    ChangeSet,
    ChangeStatus,
    ReviseFact,
)
from edenmem.models.memory import Fact, content_hash
from edenmem.models.records import HistoryEntry
from edenmem.models.scope import Scope
from edenmem.models.search import FactFilter
from edenmem.store.protocol.store import Store, batched


class UndoOutcome(StrEnum):
    """What became of one entry, or would."""

    PLANNED = "planned"  # nothing was written: it can be done
    DONE = "done"
    ALREADY = "already"  # what it did is not so any more
    REFUSED = "refused"


class UndoStep(msgspec.Struct, frozen=True, kw_only=True):
    """One entry on its way back.

    Attributes:
        entry: What was asked for.
        outcome: What became of it.
        undo_id: The id of the entry that takes it back.
        of: What is taken back if that is another: the latest entry that made the same change again.
        before: The target as it is, without its vector.
        after: The target as it is afterwards; None where it goes, or nothing is known of it.
        why: What is the matter, where it is refused or there is nothing to do.
        in_the_way: Later entries of the target, newest first.
        more: How many more of them there are.
        forced: Whether they were overruled.
        forceable: Whether they can be.
        notices: What a person should know.
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


#: Texts that are embedded at once.
_TEXTS = 100
_MISSING = object()


class MissingVectors:
    """The facts that an undo brought back without a vector, and that are still there at its end."""

    def __init__(self) -> None:
        self._facts: dict[str, str] = {}

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._facts)

    def note(self, step: UndoStep) -> None:
        """Take account of one step."""
        if step.entry.target_type != "fact" or step.outcome is not UndoOutcome.DONE:
            return
        if step.after is None or step.after.get("embedding_model"):
            self._facts.pop(step.entry.target_id, None)
        else:
            self._facts[step.entry.target_id] = str(step.after["content"])

    async def make(self, runtime: Runtime) -> str:
        """Make the vectors; "", or what a person should know if there are none now.

        A provider that is down keeps nobody from an undo: the facts are found by their words.
        """
        if runtime.embedder is None:
            return NO_VECTOR
        notice = await in_thread(
            misfit_notice, runtime.store, runtime.settings, runtime.embedder.model
        )
        if notice:
            return notice
        for facts in batched(self._facts.items(), _TEXTS):
            try:
                embedding = await runtime.embedder.embed(
                    [content for _, content in facts], role="passage"
                )
            except ProviderError as error:
                return (
                    f"{error.message}; 'edenmem embed backfill' adds the vectors that are missing"
                )
            vectors = {
                fact_id: (content_hash(content), vector)
                for (fact_id, content), vector in zip(facts, embedding.vectors, strict=True)
            }
            await in_thread(
                runtime.store.vectors.set_vectors, vectors, model=runtime.embedder.model
            )
        return ""


class UndoState:
    """The state and the past of one page; with ``keep``, of a dry run, which writes nothing.

    A dry run of a million entries must not hold all of their documents: of what it would have
    removed only the ids stay when a page is done.
    """

    def __init__(self, store: Store, *, keep: bool) -> None:
        self._store = store
        self._keep = keep
        self._folded = State()
        self._grown: dict[Scope, int] = {}
        self._versions: dict[Scope, tuple[HistoryEntry, ...]] = {}
        self.state = State()
        self.past = Past()
        self._expected: dict[str, Change] = {}

    def load(self, entries: Sequence[AuditEntry], at: datetime) -> None:
        """Load what a page needs: to invert its entries, and to plan what takes them back."""
        self.state, self.past = State(), Past(grown=self._grown if self._keep else {})
        self._load_past(entries)
        self._load_state(inverse_needs(entries, self.past), at)
        self._load_versions(versions_needed(entries, self.state))
        found = (invert(entry, self.state, self.past, at=at).change for entry in entries)
        self._expected = {change.id: change for change in found if change is not None}
        self._load_state(needs(self._expected.values()), at)

    def load_for(self, change: Change, at: datetime) -> None:
        """Load what else a change needs, if earlier ones of the page made it another one."""
        if self._expected.get(change.id) != change:
            self._load_state(needs([change]), at)

    def fold(self, effect: Effect) -> None:
        """Let the next entry see what an effect does."""
        fold(self.state, effect)
        self.past.fold(effect)
        if self._keep:
            self._remember(effect)

    def _load_state(self, wanted: Needs, at: datetime) -> None:
        left = self.state.missing(wanted)
        if not left:
            return
        if self._keep:
            self.state.take(_part(self._folded, left))
            left = self.state.missing(left)
        loaded = self._store.changes.load_state(left, at=at)
        for (scope, digest), fact_id in loaded.owners.items():
            folded = self._folded.facts.get(fact_id or "", _MISSING)
            if folded is None or (
                isinstance(folded, Fact) and (folded.home, folded.hash) != (scope, digest)
            ):
                loaded.owners[scope, digest] = None
        self.state.take(loaded)

    def _remember(self, effect: Effect) -> None:
        """Keep of an effect what later pages can meet with."""
        folded = self._folded
        fold(folded, effect)
        folded.answers.clear()  # no entry of a run is taken back twice
        for version in effect.versions:
            if version.target_type == "fact" and version.action == "delete" and version.version < 2:
                folded.heads.pop(("fact", version.target_id), None)  # it has no earlier life
            elif version.absorbed_ids:
                self._versions[version.scope] = (*self._versions.get(version.scope, ()), version)
        for write in effect.writes:
            if isinstance(write.old, Fact):  # that its text is free follows from ``facts``
                key = (write.old.home, write.old.hash)
                if folded.owners.get(key, _MISSING) is None:
                    del folded.owners[key]

    # -- the past ----------------------------------------------------------------------------

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
            self.past.contents[scope] = self._count(scope)

    def _load_versions(self, scopes: set[Scope]) -> None:
        for scope in scopes - self.past.versions.keys():
            history = self._store.history.versions("consolidation", "", scope=scope)
            self.past.versions[scope] = (*history, *self._versions.get(scope, ()))

    def _reverts(self, scope: Scope, since: datetime) -> tuple[tuple[datetime, int], ...]:
        """When versions of a scope's text were taken back, and which."""
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

    def _count(self, scope: Scope) -> int:
        """How many facts and reflections a scope has."""
        facts = self._store.memory.facts(FactFilter(scopes=(scope,)))
        return sum(1 for _ in facts) + sum(1 for _ in self._store.memory.reflections([scope]))


def _part(state: State, wanted: Needs) -> State:
    """What a state knows of what is wanted, in containers of its own."""
    found = State()
    for name in wanted.__struct_fields__:
        known, mine = getattr(state, name), getattr(found, name)
        for key in getattr(wanted, name):
            if key in known:
                mine[key] = known[key]
    for key in wanted.heads:
        if key in state.origins:
            found.origins[key] = state.origins[key]
    for scope in wanted.buffers | wanted.texts:
        if scope in state.moved:
            found.moved[scope] = dict(state.moved[scope])
    for key in wanted.used:
        if key in state.grown:
            found.grown[key] = dict(state.grown[key])
    return found


#: Entries whose targets are loaded together, and whose inverses are applied together.
PAGE = 500
#: How many times as long a page may be, so that the changes of a set stay together.
_LONGEST = 4
#: Entries in the way that are shown, and those that are looked through for them.
_SHOWN = 5
_READ = 500
#: Entries of a fact that are looked at where it keeps another from coming back.
_READ_OF_RIVAL = 20
_OF_POLICIES = ("write_policy", "remove_policy")
_PRIVACY = "set_privacy"
#: Version, content, and whether it is private.
_Look = tuple[int, str, bool]


class Undoer:
    """Takes changes back on behalf of ``actor``. Blocks."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = msgspec.structs.replace(runtime, clock=self._time)
        self._store = runtime.store
        self._clock = runtime.clock
        self._last: datetime | None = None

    def plan(self, entry_id: str, *, force: bool = False) -> UndoStep:
        """Say what taking this entry back would do. Writes nothing.

        Raises:
            NotFoundError: there is no such entry.
        """
        work = _Work(self._runtime, force=force, dry_run=True)
        (step,) = work.take_back([self._entry(entry_id)], explain=True)
        return step

    def undo(self, entry_id: str, *, force: bool = False, reason: str = "") -> UndoStep:
        """Take this entry back.

        Raises:
            NotFoundError: there is no such entry.
        """
        work = _Work(self._runtime, force=force, reason=reason)
        (step,) = work.take_back([self._entry(entry_id)], explain=True)
        return step

    def undo_run(
        self, run_id: str, *, force: bool = False, dry_run: bool = False, reason: str = ""
    ) -> Iterator[UndoStep]:
        """Take back all that a run changed, newest first; what became of each entry.

        It may be stopped anywhere and repeated. Entries that are in each other's way, such as those
        of hosts whose clocks disagree, are tried again at the end; those that are refused come
        last.
        """
        work = _Work(self._runtime, force=force, dry_run=dry_run, reason=reason, run_id=run_id)
        pages: Iterable[list[AuditEntry]] = _whole_sets(self._store.log.audit(run_id=run_id))
        refused: list[str] = []
        while True:
            left: list[str] = []
            has_progress = False
            for page in pages:
                for step in work.take_back(page):
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
            yield from work.take_back(page, explain=True)

    def _entry(self, entry_id: str) -> AuditEntry:
        entry = self._store.log.audit_entry(entry_id)
        if entry is None:
            raise NotFoundError(
                f"there is no entry {entry_id} in the log", hint="'edenmem log' lists them"
            )
        return entry

    def _pages(self, entry_ids: Sequence[str]) -> Iterator[list[AuditEntry]]:
        for ids in batched(entry_ids, PAGE):
            found = self._store.log.audit_entries(ids)
            yield [found[each] for each in ids if each in found]

    def _time(self) -> datetime:
        """The time, but never that of the page before: the log is read back in order of time."""
        now = self._clock()
        if self._last is not None and now <= self._last:
            now = self._last + timedelta(milliseconds=1)
        self._last = now
        return now


class _Work:
    """One undo, page by page. A dry run keeps a few bytes for each target of earlier pages."""

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
        # The log does not have yet what was planned: entries of the run that are not taken back,
        # and entries of other runs that are.
        self._kept: set[str] = set()
        self._taken: set[str] = set()

    def take_back(
        self, entries: Sequence[AuditEntry], *, explain: bool = False
    ) -> Iterator[UndoStep]:
        """Take a page of entries back; one step for each, in order.

        Args:
            entries: Newest first.
            explain: Find out which later entries are in the way of those that are refused.
        """
        now = self._clock()
        entries = _latest_first(self._store, entries)
        chains = chains_of(self._store, entries)
        in_force = {id: chain[-1] for id, chain in chains.items() if len(chain) % 2}
        self._known.load([in_force[each.id] for each in entries if each.id in in_force], now)
        context = ChangeSet(actor=self._actor, at=now)
        steps: list[UndoStep] = []
        changes: dict[int, Change] = {}
        for entry in entries:
            of = in_force.get(entry.id)
            if of is None:
                top = chains[entry.id][-1]
                why = f"undone already by {top.id}"
                step, effect = _step(entry, entry, UndoOutcome.ALREADY, why=why), None
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
            for (place, change), result in zip(changes.items(), results, strict=True):
                steps[place] = _settle(steps[place], change, result, UndoOutcome.DONE)
        yield from steps

    def _step(
        self, entry: AuditEntry, of: AuditEntry, context: ChangeSet, *, explain: bool
    ) -> tuple[UndoStep, Effect | None]:
        """What would become of an entry, and the effect of taking it back if there is one."""
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
        """Remember what the log will say, where the run of an entry does not tell."""
        if step.outcome is not UndoOutcome.PLANNED:
            self._kept.add(step.entry.id)
            return
        self._kept.discard(step.entry.id)
        if step.of is not None:
            self._taken.add(step.of.id)

    # -- the log -----------------------------------------------------------------------------

    def _later(self, of: AuditEntry, inverse: Inverse) -> tuple[tuple[AuditEntry, ...], int]:
        """The entries that are in the way, newest first, and how many more there are. Of those
        that were taken back neither they nor their undo are in it."""
        others = list(self._store.log.audit_entries(inverse.by).values())
        if inverse.rival:
            others += self._store.log.audit(target_id=inverse.rival, limit=_READ_OF_RIVAL)
        since = list(islice(self._since(of), _READ))
        away = {entry.undoes for entry in since}
        gone = {
            id
            for entry in since
            if entry.id in away or self._is_gone(entry)
            for id in (entry.id, undo_id(entry.id))
        }
        found = [*others, *(entry for entry in since if entry.id not in gone)]
        return tuple(found[:_SHOWN]), len(found[_SHOWN:])

    def _is_gone(self, entry: AuditEntry) -> bool:
        """Whether the entry is taken back by then, though the log does not say it yet."""
        if not self._run_id:
            return False
        is_own = entry.actor.run_id == self._run_id and entry.id not in self._kept
        return is_own or entry.id in self._taken

    def _since(self, of: AuditEntry) -> Iterator[AuditEntry]:
        """The entries of the same target after this one, newest first. A policy that is made anew
        has an id of its own, and the scope is the same."""
        if of.scope is not None and of.action in _OF_POLICIES:
            entries = self._store.log.audit(scope=of.scope, since=of.at, actions=_OF_POLICIES)
        else:
            entries = self._store.log.audit(target_id=of.target_id, since=of.at)
        return takewhile(lambda entry: entry.id != of.id, entries)


def _whole_sets(entries: Iterable[AuditEntry]) -> Iterator[list[AuditEntry]]:
    """Cut entries into pages; those of one time, whose order is not known, are not parted."""
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
    """Find the chain of each entry: itself, the undo of it, the undo of that, … . An entry is in
    force if the length of its chain is odd."""
    chains = {entry.id: [entry] for entry in entries}
    growing = list(chains.values())
    while growing:
        undone = store.log.audit_entries([undo_id(chain[-1].id) for chain in growing])
        by_entry = {entry.undoes: entry for entry in undone.values()}
        growing = [chain for chain in growing if chain[-1].id in by_entry]
        for chain in growing:
            chain.append(by_entry[chain[-1].id])
    return chains


def _latest_first(store: Store, entries: Sequence[AuditEntry]) -> list[AuditEntry]:
    """Put the entries of one target and time into the order in which they were made, backwards: the
    log of MongoDB does not say in which order the changes of a set were made."""
    places: dict[tuple[str, datetime], list[int]] = {}
    for place, entry in enumerate(entries):
        places.setdefault((entry.target_id, entry.at), []).append(place)
    ordered = list(entries)
    for same in places.values():
        if len(same) > 1:
            earliest = _in_order(store, [entries[place] for place in reversed(same)])
            for place, entry in zip(same, reversed(earliest), strict=True):
                ordered[place] = entry
    return ordered


def _in_order(store: Store, entries: Sequence[AuditEntry]) -> list[AuditEntry]:
    """Put the entries of one target into the order in which they were made: by version, and where a
    fact came and went, which says nothing of its version, as its history has it. What makes no
    version, that it is private, goes where the entries before and after it agree with it."""
    marks = [entry for entry in entries if entry.action == _PRIVACY]
    steps = sorted((entry for entry in entries if entry.action != _PRIVACY), key=_age)
    if _is_of_lives(steps):
        history = store.history.versions("fact", steps[0].target_id, scope=steps[0].scope)
        places = {version.change_id: place for place, version in enumerate(history)}
        # History begins with the first version that was replaced: what is not in it came before.
        steps.sort(key=lambda entry: places.get(entry.id, -1))
    if not marks:
        return steps
    begin = _look((steps or marks)[0].before)
    found = _chain(steps, marks, begin)
    if begin is not None and len(found) < len(entries):
        found = _chain(steps, marks, (*begin[:2], not begin[2]))
    return [*found, *(mark for mark in marks if mark not in found)]


def _is_of_lives(entries: Sequence[AuditEntry]) -> bool:
    comes = any(each.target_type == "fact" and each.before is None for each in entries)
    return comes and any(each.after is None for each in entries)


def _chain(
    steps: Sequence[AuditEntry], marks: Sequence[AuditEntry], begin: _Look | None
) -> list[AuditEntry]:
    """The steps in their order, and between them the marks that lead from one to the next."""
    now, left, found = begin, list(marks), list[AuditEntry]()
    for step in (*steps, None):
        between = list[AuditEntry]()
        while mark := next((each for each in left if now and _look(each.before) == now), None):
            left.remove(mark)
            between.append(mark)
            now = _look(mark.after)
        if step is not None and between and now != _look(step.before):
            left.append(between.pop())
        found += between
        if step is not None:
            found.append(step)
            now = _look(step.after)
    return found


def _look(document: dict[str, Any] | None) -> _Look | None:
    """What entries that follow each other agree in."""
    if document is None:
        return None
    return (
        document.get("version") or 0,
        document.get("content") or "",
        bool(document.get("private")),
    )


def _age(entry: AuditEntry) -> tuple[int, bool]:
    document = entry.after or entry.before or {}
    return document.get("version") or 0, entry.after is None


def _step(entry: AuditEntry, of: AuditEntry, outcome: UndoOutcome, **fields: object) -> UndoStep:
    made = UndoStep(
        entry=entry,
        outcome=outcome,
        undo_id=undo_id(of.id),
        of=of if of.id != entry.id else None,
    )
    return msgspec.structs.replace(made, **fields)


def _settle(step: UndoStep, change: Change, result: ChangeResult, done: UndoOutcome) -> UndoStep:
    """The step with what became, or would become, of its change; ``done`` if that is applied."""
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
        return f"the {what} was changed since"
    return f"the {what} was changed since, by something that keeps no log"
