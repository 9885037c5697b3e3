"""Compare a store with the source of a run: every v1 document, and everything else in the store.

Targets that store and log both have unchanged are found by the stage. All others are examined one
by one: a changed document is correct only if the log explains, entry by entry, the change from what
the run wrote. Memory that v1 does not have must be in the log too, or be written by the platform.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from edenmem.engine.history.trails import Trails, differing, fields_of, read_after
from edenmem.engine.migration.comparison import KINDS, load_found, load_written, read_memory
from edenmem.engine.migration.deciding import (
    Base,
    Bases,
    Decider,
    Decision,
    Stored,
    written_by,
)
from edenmem.engine.migration.items import (
    SWITCH,
    Forgotten,
    Key,
    Memory,
    Outcome,
    classify_moved,
    digest_of,
    digest_of_text,
    format_sources,
    key_of,
    key_of_item,
    reason_of,
    target_scope,
    text_of,
    uncompared,
    wanted_of,
)
from edenmem.engine.migration.people import describe_agent, describe_user, has_own_accounts
from edenmem.engine.migration.reports import Difference, Verification
from edenmem.engine.migration.source import StagedPlan, stage_outcomes
from edenmem.errors import ConflictError, DocumentDamaged
from edenmem.models.backup import RecordKind
from edenmem.models.changes import AuditEntry
from edenmem.models.forgetting import Subject
from edenmem.models.host import Agent, User
from edenmem.models.ids import utc_now
from edenmem.models.memory import Consolidation, Fact, Policy, Reflection
from edenmem.models.migration import (
    TAKEN_BACK,
    UNFINISHED,
    MigrationRun,
    RunState,
    find_successor,
)
from edenmem.models.scope import Scope, ScopeKind
from edenmem.models.v1 import V1Item, V1Person, V1Text, V1Toggles
from edenmem.store.protocol.store import Store, batched

#: Number of accounts compared together.
_BATCH = 500
#: Maximum number of differences in the report; all are counted.
_NAMED = 1000
#: Maximum number of characters of a text shown in a difference.
_LONGEST = 160
_AGENT_SWITCH = frozenset({"agent_memory_enabled"})
_NO_REASON = "the log does not explain this"
_AGAIN = "run 'edenmem migrate v1' again"
#: Key in the counts for items reverted by a rollback or undo, and for those that differ.
_TAKEN_BACK, _DIFFERS = "taken_back", "differs"


class Finding(NamedTuple):
    """A document that differs, and what belongs there; ``reason`` names its v1 documents."""

    key: Key
    scope: Scope | None
    wanted: Memory | Agent | None = None
    reason: str = ""


def verify(
    store: Store,
    plan: StagedPlan,
    run: MigrationRun,
    *,
    progress: Callable[[int], None] = lambda items: None,
    is_loaded: bool = False,
    findings: list[Finding] | None = None,
) -> Verification:
    """Compare the items moved by a run with its source. Blocks.

    Args:
        store: The target.
        plan: The source.
        run: The run.
        progress: Called with the number of documents done.
        is_loaded: Whether the stage has the present state of the store already.
        findings: Collects the documents that differ, for a repair.

    Raises:
        ConflictError: the run was rolled back.
        StoreError: the database cannot be used.
    """
    if run.state in TAKEN_BACK:
        how = "undone" if run.state is RunState.UNDONE else "rolled back"
        raise ConflictError(f"run {run.id} was {how}: nothing to verify")
    if not is_loaded:
        load_found(store, plan, progress)
    check = _Check(store, plan, run, [] if findings is None else findings)
    check.compare(progress)
    check.finish()
    return check.result()


class _Check:
    """One verification."""

    def __init__(
        self, store: Store, plan: StagedPlan, run: MigrationRun, findings: list[Finding]
    ) -> None:
        self._store = store
        self._plan = plan
        self._stage = plan.stage
        self._run = run
        self._findings = findings
        self._own_accounts = has_own_accounts(store)
        self._runs = store.migrations.migration_runs()
        self._run_ids = {each.id for each in self._runs}
        self._undo_runs = {id for each in self._runs for id in each.undo_runs}
        forgettings = store.erasure.forgettings()
        self._forgotten = Forgotten(forgettings)
        self._trails = Trails(store, has_forgotten=bool(forgettings))
        self._bases = Bases(store, self._run_ids, self._trails.unreadable)
        self._decider = Decider(
            run.options.get("on_conflict", "keep"),
            utc_now(),
            lambda scope, at: 0,
            lambda item: (),
        )
        self._agents: dict[str, Agent] = {}
        for person in plan.agents():
            if (agent := store.host.agent(person.id)) is not None:
                self._agents[person.id] = agent
        self._named: list[Difference] = []
        self._counts: Counter[str] = Counter()
        self._differing = self._changed = self._kept = self._of_platform = 0
        unreadable = self._trails.unreadable
        load_written(store, plan, sorted(self._run_ids), unreadable)

    def result(self) -> Verification:
        """Return the verification."""
        order = [*Outcome, _TAKEN_BACK, _DIFFERS]
        successor = find_successor(self._run, self._runs)
        counts = Counter(stage_outcomes(self._stage))
        return Verification(
            run_id=self._run.id,
            superseded_by=None if successor is None else successor.id,
            documents=sum(self._plan.totals.values()),
            seen=sum(self._plan.fates.values()),
            counts={str(each): counts[each] for each in order if counts[each]},
            changed=self._changed,
            taken_back=counts[_TAKEN_BACK],
            kept=self._kept,
            platform=self._of_platform,
            differing=self._differing,
            differences=tuple(self._named),
            incomplete=() if self._run.incomplete_accepted else tuple(self._plan.incomplete),
            unreadable=len(self._trails.unreadable),
            unfinished=self._run.state in UNFINISHED,
        )

    # -- item by item ------------------------------------------------------------------------

    def compare(self, progress: Callable[[int], None]) -> None:
        """Examine the items that store and log do not both have unchanged."""
        self._stage.set_outcomes(())
        done = 0
        for page in self._stage.unproven():
            outcomes = self._examine(page)
            self._stage.set_outcomes(outcomes)
            done += len(page)
            progress(done)

    def _examine(self, page: Sequence[tuple[int, V1Item]]) -> list[tuple[int, str]]:
        items = [self._forgotten.without_users(item) for _, item in page]
        try:
            stored = Stored(self._store, items, self._agents)
        except (DocumentDamaged, msgspec.MsgspecError, ValueError) as error:
            if len(page) > 1:
                return [found for pair in page for found in self._examine([pair])]
            self._report(items[0], None, None, f"it cannot be read: {error}")
            return [(page[0][0], _DIFFERS)]
        self._bases.load(items)
        return [
            (number, self._judge(item, stored.find(item)))
            for (number, _), item in zip(page, items, strict=True)
        ]

    def _judge(self, item: V1Item, now: Any) -> str:
        """Return the outcome of one item, and report it if it differs."""
        if self._forgotten.has(item):
            self._kept += 1
            return Outcome.LEFT_BEHIND
        key = key_of_item(item)
        base, entries = self._bases.of(key), self._bases.entries(key)[::-1]
        if isinstance(now, Fact) and now.id != key.id:  # another fact with the same text
            entries = self._trails.entries(key.type, now.id)
        decision = self._decider.decide(item, now, base, self._bases.is_switched(item))
        why, wanted = self._find_fault(item, now, base, entries, decision)
        if why:
            self._report(item, now, wanted, why, entries)
            return _DIFFERS
        if (lost := self._find_lost(item, now)) is not None:
            self._report_lost(item, lost)
            return _DIFFERS
        if base is None and decision.changes:  # undone since
            is_run = entries[-1].actor.run_id in self._undo_runs
            self._changed += not is_run
            return _TAKEN_BACK if is_run else classify_moved(item)
        if decision.outcome is Outcome.KEPT:
            self._kept += 1
            return Outcome.KEPT
        if base is None:
            return Outcome.ALREADY
        return self._name_outcome(item, now, base, entries)

    def _find_fault(
        self,
        item: V1Item,
        now: Any,
        base: Base | None,
        entries: Sequence[AuditEntry],
        decision: Decision,
    ) -> tuple[str, Memory | Agent | None]:
        """Return why an item differs, or "", and what belongs in its place."""
        own = _wanted(item)
        if any(contradicts(entry, self._run_ids) for entry in entries):
            return "its log entry contradicts itself", own
        if isinstance(now, Memory) and not self._is_found(now):
            return "queries do not find it: a field has the wrong type", own
        is_switch = isinstance(item.target, V1Toggles)
        without = _BUT_SWITCH if is_switch else frozenset[str]()
        if base is not None:
            if not base.sources:
                return "its log entry does not name a document of v1", own
            if base.document is None and not self._trails.is_emptied(base.entry):
                return "its log entry is empty", own
            if not self._trails.leads(entries, base.entry, now, without):
                last = read_after(entries[-1])
                return _NO_REASON, self._marked(last, now, base, entries, without)
            return (f"v1 has changed; {_AGAIN}", None) if decision.changes else ("", None)
        written = written_by(entries, self._run_ids)
        if written and self._trails.leads(entries, written[-1], now, without):
            return "", None  # undone since
        if decision.changes:
            is_noted = is_switch and now is not None
            return f"it was not migrated; {_AGAIN}", None if is_noted else own
        if now is None or is_switch:
            return "", None  # the host does not know the agent
        if self._trails.leads(entries, entries[0], now) if entries else self._is_platforms(now):
            return "", None
        is_same = digest_of(now) == digest_of(own) if isinstance(own, Memory) else False
        return _NO_REASON, own if is_same else None

    def _is_found(self, now: Memory) -> bool:
        """Return whether queries of readers find a document; a blank text is none."""
        is_blank = isinstance(now, Consolidation) and not text_of(now)
        return is_blank or self._stage.has_found(*key_of(now))

    def _marked(
        self,
        last: Any,
        now: Any,
        base: Base,
        entries: Sequence[AuditEntry],
        without: frozenset[str],
    ) -> Memory | Agent | None:
        """Return the last state in the log; a reflection with its marks of consolidation."""
        if isinstance(last, Reflection):
            return self._trails.with_marks(last, entries[-1].at)
        return last if isinstance(last, Memory | Agent) else None

    def _is_platforms(self, now: Memory) -> bool:
        """Return whether the platform, which keeps no log, may have written a document."""
        if self._own_accounts or isinstance(now, Policy):
            return False
        return now.updated_at is None if isinstance(now, Consolidation) else True

    def _name_outcome(
        self, item: V1Item, now: Any, base: Base, entries: Sequence[AuditEntry]
    ) -> str:
        """Return the outcome of an item whose state the log explains."""
        wanted, last = wanted_of(item), entries[-1]
        assert wanted is not None
        if isinstance(now, Agent):
            is_same = now.agent_memory_enabled == bool(wanted.digest)
        else:
            is_same = now is not None and digest_of(now) == wanted.digest
        is_text = now is not None and text_of(now) == text_of(wanted.memory)
        if not is_same and not is_text and last.undoes and last.actor.run_id in self._undo_runs:
            return _TAKEN_BACK
        later = (each for each in entries if each.at >= base.entry.at)
        is_own = all(each.actor.run_id in self._run_ids for each in later)
        is_remarked = isinstance(now, Reflection) and now.absorbed is not base.document.absorbed
        self._changed += not is_same and (not is_own or now is None or is_remarked)
        return classify_moved(item)

    def _find_lost(self, item: V1Item, now: Any) -> str | None:
        """Return a text that is missing from the history: the current one, or an older one."""
        if not isinstance(item.target, V1Text):
            return None
        scope, earlier = item.target.scope, item.target.earlier
        if self._trails.has_emptied(self._bases.entries(Key("consolidation", scope.key))):
            return None
        if isinstance(now, Consolidation) and now.version and not self._is_platform_text(now):
            own = digest_of_text(now.consolidated_content)
            if not self._stage.has_version(scope.key, now.version, own):
                return now.consolidated_content
        if not earlier or self._bases.of(Key("consolidation", scope.key)) is None:
            return None
        versions = self._store.history.versions("consolidation", "", scope=scope)
        kept = {version.content.strip() for version in versions}
        return next((each.content for each in earlier if each.content.strip() not in kept), None)

    def _is_platform_text(self, now: Consolidation) -> bool:
        return not self._own_accounts and now.updated_at is None

    # -- buffers -----------------------------------------------------------------------------

    def finish(self) -> None:
        """Check buffers, accounts and surplus memory."""
        for key, is_v1 in self._stage.wrong_buffers():
            kind, agent_id, owner = (*key.split(":", 2), "")[:3]
            scope = Scope(ScopeKind(kind), agent_id, owner)
            self._compare_buffer(scope, self._stage.buffer(key) if is_v1 else [])
        if self._own_accounts:
            self._check_people()
        for kind in KINDS:
            self._check_surplus(kind)

    def _compare_buffer(self, scope: Scope, ids: Sequence[str]) -> None:
        """Report an error in a scope's buffer, which holds ``ids`` in v1."""
        try:
            found = self._store.memory.reflections([scope], absorbed=False)
            pending = {each.id: each for each in found}
        except (DocumentDamaged, msgspec.MsgspecError, ValueError):
            return  # reported as items
        listed = self._store.memory.buffers([scope]).get(scope, ())
        places = {id: place for place, id in enumerate(listed)}
        error = ""
        if len(places) < len(listed):
            error = "a reflection is listed twice"
        elif not pending.keys() <= places.keys():
            error = "a pending reflection is missing"
        elif not places.keys() <= pending.keys():
            error = "a reflection is not pending"
        else:
            there = [id for id in ids if id in pending]  # the others are reported as items
            order = [pending[id].formed_at for id in sorted(there, key=lambda id: places[id])]
            same = [id for id in listed if id in set(there)]
            ties = {pending[id].formed_at for id in there}
            if order != sorted(order) or (len(ties) < len(there) and same != there):
                error = "the order differs from v1"
        if error:
            self._add(
                Finding(Key("buffer", scope.key), scope),
                Difference(
                    kind="order",
                    target_type="buffer",
                    target_id="",
                    scope=scope.key,
                    source="",
                    field="unabsorbed_ids",
                    expected=_cut(", ".join(ids)),
                    found=_cut(", ".join(listed)),
                    reason=f"invalid buffer of reflections: {error}",
                ),
            )

    # -- people ------------------------------------------------------------------------------

    def _check_people(self) -> None:
        """Compare the agents and users added by runs."""
        host, forgotten = self._store.host, self._forgotten.ids
        for person in self._plan.agents():
            if Subject(kind="agent", agent_id=person.id).id not in forgotten:
                self._check_account(SWITCH, person, host.agent(person.id))
        for people in batched(self._plan.users(), _BATCH):
            users = host.users_by_ids([person.id for person in people])
            for person in people:
                if Subject(kind="user", owner=person.id).id not in forgotten:
                    self._check_account("user", person, users.get(person.id))

    def _check_account(self, kind: str, person: V1Person, found: Agent | User | None) -> None:
        """Compare an account with the one that a run added, if any."""
        is_switched = kind == SWITCH and self._stage.has_target(SWITCH, person.id)
        without = _AGENT_SWITCH if is_switched else _NOTHING  # compared as an item
        expected = describe_agent(person) if kind == SWITCH else describe_user(person)
        if found is not None and not differing(expected, found, without):
            return
        entries = self._trails.entries(kind, person.id)
        made = [each for each in entries if each.before is None and each.after is not None]
        ours = [each for each in made if each.actor.run_id in self._run_ids]
        if not ours or self._trails.leads(entries, ours[-1], found, without):
            return
        wanted = read_after(entries[-1])
        scope = Scope.agent(person.id) if kind == SWITCH else None
        pairs = [] if wanted is None or found is None else differing(wanted, found, without)
        self._add(
            Finding(Key(kind, person.id), scope),
            *(
                Difference(
                    kind="changed" if found is not None else "missing",
                    target_type=kind,
                    target_id=person.id,
                    scope=scope.key if scope else "",
                    source="",
                    field=field,
                    expected=_show(want),
                    found=_show(have),
                    reason=_NO_REASON,
                )
                for field, want, have in pairs or [("", person.username, None)]
            ),
        )

    # -- surplus -------------------------------------------------------------------------------

    def _check_surplus(self, kind: RecordKind) -> None:
        """Check memory that v1 does not have: it must be in the log, or the platform's."""
        for ids in self._stage.surplus(kind):
            bases = Bases(self._store, self._run_ids, self._trails.unreadable)
            bases.load_ids([Key(kind, id) for id in ids])
            unknown = []
            for model in self._read(kind, ids):
                last = next(iter(bases.entries(Key(kind, model.id))), None)
                is_logged = last is not None and last.after is not None
                if not (is_logged and last is not None and last.scope == model.home):
                    unknown.append(model)
            platform = self._find_platforms(unknown)
            self._of_platform += len(platform)
            for model in unknown:
                if model.id not in platform:
                    self._report_surplus(kind, model)
        for key in self._stage.repeated(kind):
            self._add(
                Finding(Key(kind, key), None),
                Difference(
                    kind="duplicate",
                    target_type=kind,
                    target_id="",
                    scope=key,
                    source="",
                    field="",
                    expected="",
                    found="",
                    reason="several documents of one scope",
                ),
            )

    def _read(self, kind: RecordKind, ids: Sequence[str]) -> Iterator[Memory]:
        memory = self._store.memory
        if kind is RecordKind.REFLECTION:
            yield from memory.reflections_by_ids(ids).values()
        elif kind is RecordKind.FACT:
            yield from filter(None, map(memory.fact, ids))
        else:
            wanted = set(ids)
            for model in read_memory(self._store, self._plan.about.agents, (kind,)):
                blank = isinstance(model, Consolidation) and not model.consolidated_content.strip()
                if model.id in wanted and not blank:
                    yield model

    def _find_platforms(self, unknown: Sequence[Memory]) -> set[str]:
        """Return the IDs of memories written by the platform, which keeps no log.

        They are new to v1, and their conversations are in the store.
        """
        if self._own_accounts:
            return set()
        new = [model for model in unknown if self._describe(model) == "extra"]
        items = [model for model in new if isinstance(model, Fact | Reflection)]
        present = self._store.walk.present
        sessions = present("session", [each.session_id for each in items if each.session_id])
        messages = present("message", [id for each in items for id in each.source_message_ids])
        found = {
            each.id
            for each in items
            if each.session_id in sessions
            and each.source_message_ids
            and messages.issuperset(each.source_message_ids)
        }
        for text in new:
            if isinstance(text, Consolidation):
                absorbed = self._store.memory.reflections([text.home], absorbed=True)
                if any(each.consolidated_into == text.id for each in absorbed):
                    found.add(text.id)
        return found

    def _describe(self, model: Memory) -> Literal["duplicate", "copy", "extra"]:
        """Classify a surplus document by the places of its text in v1."""
        if isinstance(model, Policy):
            is_double = self._stage.has_target("policy", model.home.key)
            return "duplicate" if is_double else "extra"
        places = self._stage.places_of_text(model.agent_id, digest_of_text(text_of(model)))
        if model.home.key in places:
            return "duplicate"
        return "copy" if places else "extra"

    def _report_surplus(self, kind: RecordKind, model: Memory) -> None:
        what = self._describe(model)
        reason = {
            "duplicate": "duplicate in its scope",
            "copy": "in v1 only in another scope",
            "extra": "not in v1",
        }[what]
        self._add(
            Finding(Key(kind, model.id), model.home),
            Difference(
                kind=what,
                target_type=kind,
                target_id=model.id,
                scope=model.home.key,
                source="",
                field="",
                expected="",
                found=_cut(text_of(model)),
                reason=f"{reason}, and the log does not explain its origin",
            ),
        )

    # -- reporting -----------------------------------------------------------------------------

    def _report(
        self,
        item: V1Item,
        now: Any,
        wanted: Memory | Agent | None,
        reason: str,
        entries: Sequence[AuditEntry] = (),
    ) -> None:
        """Report how an item differs from v1, or from the last log entry."""
        key, scope = key_of_item(item), target_scope(item)
        expected = wanted or _wanted(item)
        common = {
            "target_type": key.type,
            "target_id": getattr(now, "id", "") or (key.id if scope is None else ""),
            "scope": scope.key if scope else Scope.agent(item.agent_id).key,
            "source": format_sources(item.sources),
            "reason": reason,
        }
        named = []
        if now is None:
            gone = f"{'removed' if entries else 'missing'}, and {reason}"
            more = {**common, "reason": gone if reason == _NO_REASON else reason}
            text = _cut(text_of(expected))
            named = [Difference(kind="missing", field="", expected=text, found="", **more)]
        elif isinstance(now, Agent):
            on = item.target.agent_memory_enabled if isinstance(item.target, V1Toggles) else None
            shown = {"expected": _show(on), "found": _show(now.agent_memory_enabled)}
            named = [Difference(kind="changed", field="agent_memory_enabled", **shown, **common)]
        elif isinstance(expected, Memory) and type(expected) is type(now):
            without = uncompared(now) - ({"version"} if entries else set())
            named = [
                Difference(
                    kind="changed",
                    field=field,
                    expected=_show(want, have),
                    found=_show(have, want),
                    **common,
                )
                for field, want, have in differing(expected, now, without)
            ]
        blank = Difference(kind="changed", field="", expected="", found="", **common)
        self._add(Finding(key, scope, wanted, reason_of(item)), *(named or [blank]))

    def _report_lost(self, item: V1Item, lost: str) -> None:
        key, scope = key_of_item(item), target_scope(item)
        assert scope is not None
        self._add(
            Finding(Key("history", key.id), scope),
            Difference(
                kind="missing",
                target_type="history",
                target_id="",
                scope=scope.key,
                source=format_sources(item.sources),
                field="history",
                expected=_cut(lost),
                found="",
                reason=f"a text is missing from the history; {_NO_REASON}",
            ),
        )

    def _add(self, finding: Finding, *named: Difference) -> None:
        self._differing += 1
        self._findings.append(finding)
        self._named += named[: max(0, _NAMED - len(self._named))]


_NOTHING = frozenset[str]()
_BUT_SWITCH = frozenset(fields_of(Agent)) - _AGENT_SWITCH


def contradicts(entry: AuditEntry, run_ids: Collection[str]) -> bool:
    """Return whether an entry contradicts itself: its action, its target, or what it undoes."""
    if entry.undoes:
        return entry.actor.run_id in run_ids
    if entry.action.startswith("remove_"):
        return entry.after is not None
    state = read_after(entry)
    if not isinstance(state, Memory):
        return False
    same = entry.agent_id == state.agent_id and entry.scope == state.home
    return not same or entry.target_id != state.id


def _wanted(item: V1Item) -> Memory | Agent | None:
    wanted = wanted_of(item)
    return wanted.memory if wanted is not None else None


def _show(value: Any, other: Any = None) -> str:
    """Return a value as text; of a long text, the part around its difference from ``other``."""
    if value is None or value == () or value == "":
        return "nothing"
    if isinstance(value, str):
        start = 0
        if isinstance(other, str):
            pairs = enumerate(zip(value, other, strict=False))
            same = next((place for place, (a, b) in pairs if a != b), min(len(value), len(other)))
            start = max(0, same - _LONGEST // 4)
        return _cut(value, start)
    if isinstance(value, tuple | list):
        return _cut(", ".join(map(str, value)))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _cut(text: str, start: int = 0) -> str:
    shown = text[start : start + _LONGEST]
    before = "…" if start else ""
    return f"{before}{shown}…" if start + _LONGEST < len(text) else f"{before}{shown}"
