"""Compare a store with the source of a run: every v1 document, and everything else in the store.

Targets that store and log both have unchanged are found by the stage. All others are examined one
by one: a changed document is correct only if its latest log entry left it as it is. Memory that v1
does not have must be in the log too, or be written by the platform.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from edenmem.engine.migration.comparison import (
    KINDS,
    State,
    States,
    contradicts,
    find_surplus,
    has_own_accounts,
    load_found,
    load_written,
    read_after,
    state_of,
    written_by,
)
from edenmem.engine.migration.deciding import Decision, decide
from edenmem.engine.migration.items import (
    SWITCH,
    UNCOMPARED,
    Key,
    differing,
    digest_of,
    digest_of_text,
    format_sources,
    key_of,
    key_of_item,
    read_sources,
    reason_of,
    scope_of,
    text_of,
)
from edenmem.engine.migration.reports import Difference, DifferenceKind, Verification
from edenmem.engine.migration.source import StagedPlan
from edenmem.errors import ConflictError, DocumentDamaged
from edenmem.models.backup import RecordKind
from edenmem.models.changes import AuditEntry
from edenmem.models.host import Agent, User
from edenmem.models.ids import utc_now
from edenmem.models.memory import Consolidation, Fact, Policy, Reflection
from edenmem.models.migration import UNFINISHED, MigrationRun, RunState, find_successor
from edenmem.models.scope import Scope
from edenmem.models.v1 import Memory, Outcome, V1Account, V1Item
from edenmem.store.protocol.store import Store, batched

#: Number of accounts compared together.
_BATCH = 500
#: Maximum number of differences in the report; all are counted.
_NAMED = 1000
#: Maximum number of characters of a text shown in a difference.
_LONGEST = 160
_NOTHING = frozenset[str]()
_AGENT_SWITCH = frozenset({"agent_memory_enabled"})
_BUT_SWITCH = frozenset(Agent.__struct_fields__) - _AGENT_SWITCH
_NO_REASON = "the log does not explain this"
_AGAIN = "run 'edenmem migrate v1' again"
#: Outcomes of items reverted by a rollback or undo, and of those that differ.
_TAKEN_BACK, _DIFFERS = "taken_back", "differs"
#: Errors of a document that cannot be read.
UNREADABLE = (DocumentDamaged, msgspec.MsgspecError, ValueError)

#: Consolidation marks of a reflection: absorbed, time, text.
_Marks = tuple[bool, datetime | None, str | None]


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
    if run.state is RunState.ROLLED_BACK:
        raise ConflictError(f"run {run.id} was rolled back: nothing to verify")
    if not is_loaded:
        load_found(store, plan.stage, plan.about.agents, progress)
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
        self._unreadable = set[str]()
        self._states = States(store, self._run_ids, plan.about.agents, unreadable=self._unreadable)
        self._erased = self._states.forgotten.ids
        self._marks: dict[Scope, dict[str, tuple[datetime, _Marks]]] = {}
        self._named: list[Difference] = []
        self._differing = self._changed = self._kept = self._of_platform = 0
        load_written(store, plan.stage, sorted(self._run_ids), self._unreadable)

    def result(self) -> Verification:
        """Return the verification."""
        order = [*Outcome, _TAKEN_BACK, _DIFFERS]
        successor = find_successor(self._run, self._runs)
        counts = self._stage.outcomes()
        about = self._plan.about
        found = Verification(
            run_id=self._run.id,
            superseded_by=None if successor is None else successor.id,
            documents=sum(about.totals.values()),
            seen=sum(about.results.values()),
            counts={str(each): counts[each] for each in order if counts[each]},
            changed=self._changed,
            taken_back=counts[_TAKEN_BACK],
            kept=self._kept,
            platform=self._of_platform,
            differing=self._differing,
            differences=tuple(self._named),
            incomplete=() if self._run.incomplete_accepted else about.incomplete,
            unreadable=len(self._unreadable),
            unfinished=self._run.state in UNFINISHED,
        )
        if not found.complete:
            return found
        state = state_of(self._store, about.fingerprint, self._stage)
        return msgspec.structs.replace(found, agents=about.agents, state=state)

    # -- item by item ------------------------------------------------------------------------

    def compare(self, progress: Callable[[int], None]) -> None:
        """Examine the items that store and log do not both have unchanged."""
        self._stage.set_outcomes(())
        done = 0
        for page in self._stage.unproven():
            self._stage.set_outcomes(self._examine(page))
            done += len(page)
            progress(done)

    def _examine(self, page: Sequence[tuple[int, V1Item]]) -> list[tuple[int, str]]:
        try:
            states = self._states.load([item for _, item in page])
        except UNREADABLE as error:
            if len(page) > 1:
                return [found for pair in page for found in self._examine([pair])]
            self._report(page[0][1], None, f"it cannot be read: {error}")
            return [(page[0][0], _DIFFERS)]
        return [
            (number, self._judge(state)) for (number, _), state in zip(page, states, strict=True)
        ]

    def _judge(self, state: State) -> str:
        """Return the outcome of one item, and report it if it differs."""
        item, now = state.item, state.now
        if state.is_erased:
            self._kept += 1
            return Outcome.LEFT_BEHIND
        if isinstance(now, Fact) and now.id != key_of_item(item).id:  # with the same text
            key = key_of(now)
            state = msgspec.structs.replace(state, entries=self._states.entries([key])[key])
        decision = decide(state, self._run.options.get("on_conflict", "keep"), utc_now())
        why, wanted = self._find_fault(state, decision)
        if why:
            self._report(item, now, why, wanted, state.entries)
            return _DIFFERS
        if self._report_lost(state):
            return _DIFFERS
        if not state.written and decision.changes:  # undone since
            is_run = state.entries[-1].actor.run_id in self._undo_runs
            self._changed += not is_run
            return _TAKEN_BACK if is_run else item.outcome
        if decision.outcome is Outcome.KEPT:
            self._kept += 1
            return Outcome.KEPT
        return self._name_outcome(state) if state.written else Outcome.ALREADY

    def _find_fault(self, state: State, decision: Decision) -> tuple[str, Memory | Agent | None]:
        """Return why an item differs, or "", and what belongs in its place."""
        now, entries, own = state.now, state.entries, state.item.memory
        if any(contradicts(entry, self._run_ids) for entry in entries):
            return "its log entry contradicts itself", own
        is_blank = isinstance(now, Consolidation) and not text_of(now)  # readers find none
        if isinstance(now, Memory) and not (is_blank or self._stage.has("found", *key_of(now))):
            return "queries do not find it: a field has the wrong type", own
        without = _BUT_SWITCH if own is None else _NOTHING
        if state.written:
            last = state.written[-1]
            if not read_sources(last.reason):
                return "its log entry does not name a document of v1", own
            if state.base is None and not self._is_emptied(last):
                return "its log entry is empty", own
            if not self._explains(entries, now, without):
                return _NO_REASON, self._after(entries[-1])
            return (f"v1 has changed; {_AGAIN}", None) if decision.changes else ("", None)
        if written_by(entries, self._run_ids) and self._explains(entries, now, without):
            return "", None  # undone since
        if decision.changes:
            return f"it was not migrated; {_AGAIN}", own
        if now is None or own is None:
            return "", None  # the host does not know the agent
        if self._explains(entries, now) if entries else self._is_platforms(now, own):
            return "", None
        return _NO_REASON, own if digest_of(now) == digest_of(own) else None

    def _is_platforms(self, now: Memory, own: Memory) -> bool:
        """Return whether the platform, which keeps no log, may have written a document."""
        if self._own_accounts or isinstance(now, Policy):
            return False
        return now.updated_at is None if isinstance(now, Consolidation) else now.id != own.id

    def _name_outcome(self, state: State) -> str:
        """Return the outcome of an item whose state the log explains."""
        item, now, last = state.item, state.now, state.entries[-1]
        memory = item.memory
        if isinstance(now, Agent):
            is_same = now.agent_memory_enabled is item.switch
        else:
            is_same = now is not None and memory is not None and digest_of(now) == digest_of(memory)
        is_text = now is not None and text_of(now) == text_of(memory)
        if not is_same and not is_text and last.undoes and last.actor.run_id in self._undo_runs:
            return _TAKEN_BACK
        later = (each for each in state.entries if each.at >= state.written[-1].at)
        is_own = all(each.actor.run_id in self._run_ids for each in later)
        is_remarked = isinstance(now, Reflection) and now.absorbed is not state.base.absorbed
        self._changed += not is_same and (not is_own or now is None or is_remarked)
        return item.outcome

    # -- the log -----------------------------------------------------------------------------

    def _explains(
        self, entries: Sequence[AuditEntry], now: Any, without: frozenset[str] = _NOTHING
    ) -> bool:
        """Return whether the latest entry left a document as it is.

        The log may not keep the order of entries of the same time.
        """
        latest = (each for each in entries if each.at == entries[-1].at)
        return any(self._left(entry, now, without) for entry in latest)

    def _left(self, entry: AuditEntry, now: Any, without: frozenset[str]) -> bool:
        if self._is_emptied(entry):
            return True
        state = self._after(entry)
        if state is None or now is None:
            return entry.after is None and now is None
        return not differing(state, now, without)

    def _is_emptied(self, entry: AuditEntry) -> bool:
        """Return whether a forgetting emptied an entry."""
        return bool(self._erased) and entry.before is None and entry.after is None

    def _after(self, entry: AuditEntry) -> Any:
        """Return the document after an entry, with the marks of later consolidations."""
        state = read_after(entry)
        if not isinstance(state, Reflection):
            return state
        at, marks = self._marked_in(state.home).get(state.id, (None, None))
        if at is None or marks is None or at < entry.at:
            return state
        absorbed, absorbed_at, into = marks
        return msgspec.structs.replace(
            state, absorbed=absorbed, absorbed_at=absorbed_at, consolidated_into=into
        )

    def _marked_in(self, scope: Scope) -> dict[str, tuple[datetime, _Marks]]:
        """Map reflection IDs to the time of their last absorption or release, and their marks."""
        if scope not in self._marks:
            found: dict[str, tuple[datetime, _Marks]] = {}
            actions = ("write_consolidation", "revert_consolidation")
            log = self._store.log
            for entry in log.audit(scope=scope, actions=actions, unreadable=self._unreadable):
                text = read_after(entry)
                if not isinstance(text, Consolidation):
                    continue
                marks: _Marks = (False, None, None)
                moved = entry.released_ids
                if entry.action == "write_consolidation":
                    marks, moved = (True, text.updated_at, text.id), text.absorbed_ids
                for each in moved:
                    found.setdefault(each, (entry.at, marks))
            self._marks = {scope: found}  # callers go scope by scope
        return self._marks[scope]

    # -- history -----------------------------------------------------------------------------

    def _report_lost(self, state: State) -> bool:
        """Report a text that is missing from the history: the current one, or an older one."""
        item, now = state.item, state.now
        if item.text is None or any(map(self._is_emptied, state.entries)):
            return False
        scope, lost = item.text.home, None
        is_logged = self._own_accounts or now is None or now.updated_at is not None
        if now is not None and now.version and is_logged:
            own = digest_of_text(now.consolidated_content)
            if not self._stage.has("version", scope.key, now.version, own):
                lost = now.consolidated_content
        if lost is None and item.earlier and state.written:
            versions = self._store.history.versions("consolidation", "", scope=scope)
            kept = {version.content.strip() for version in versions}
            texts = (each.content for each in item.earlier)
            lost = next((each for each in texts if each.strip() not in kept), None)
        if lost is None:
            return False
        self._add(
            Finding(Key("history", scope.key), scope),
            "missing",
            f"a text is missing from the history; {_NO_REASON}",
            source=format_sources(item.sources),
            fields=[("history", lost, "")],
        )
        return True

    # -- buffers -----------------------------------------------------------------------------

    def finish(self) -> None:
        """Check buffers, accounts and surplus memory."""
        for key, ids in self._stage.wrong_buffers():
            self._compare_buffer(scope_of(key), ids.split())
        if self._own_accounts:
            self._check_people()
        for kind in KINDS:
            self._check_surplus(kind)

    def _compare_buffer(self, scope: Scope, ids: Sequence[str]) -> None:
        """Report an error in a scope's buffer, which holds ``ids`` in v1."""
        try:
            found = self._store.memory.reflections([scope], absorbed=False)
            pending = {each.id: each for each in found}
        except UNREADABLE:
            return  # reported as items
        text = self._store.memory.consolidations([scope]).get(scope)
        listed = text.unabsorbed_ids if text else ()
        error = "it does not list each pending reflection once"
        if sorted(listed) == sorted(pending):
            there = [id for id in ids if id in pending]  # the others are reported as items
            same = [id for id in listed if id in set(there)]
            times = [pending[id].formed_at for id in same]
            is_free = len(set(times)) == len(times) or self._is_logged([pending[id] for id in same])
            if times == sorted(times) and (same == there or is_free):
                return
            error = "the order differs from v1"
        self._add(
            Finding(Key("buffer", scope.key), scope),
            "order",
            f"invalid buffer of reflections: {error}",
            fields=[("unabsorbed_ids", list(ids), listed)],
        )

    def _is_logged(self, buffer: Sequence[Reflection]) -> bool:
        """Return whether a buffer has the order of the log: v1's may have changed since."""
        entries = self._states.entries([key_of(each) for each in buffer])
        return buffer == sorted(buffer, key=lambda each: each.order) and all(
            entries[key_of(each)] and self._explains(entries[key_of(each)], each) for each in buffer
        )

    # -- people ------------------------------------------------------------------------------

    def _check_people(self) -> None:
        """Compare the agents and users added by runs with the log."""
        host = self._store.host
        for people in batched(chain(self._plan.agents(), self._plan.users()), _BATCH):
            keys = {Key(SWITCH if each.is_agent else "user", each.id): each for each in people}
            users = host.users_by_ids([each.id for each in people if not each.is_agent])
            for key, entries in self._states.entries(list(keys)).items():
                if any(
                    each.actor.run_id in self._run_ids and each.before is None and each.after
                    for each in entries
                ):
                    found = host.agent(key.id) if key.type == SWITCH else users.get(key.id)
                    self._check_account(keys[key], key, found, entries)

    def _check_account(
        self,
        person: V1Account,
        key: Key,
        found: Agent | User | None,
        entries: Sequence[AuditEntry],
    ) -> None:
        """Compare an account that a run added with the log."""
        is_switched = person.is_agent and self._stage.has("target", SWITCH, person.id)
        without = _AGENT_SWITCH if is_switched else _NOTHING  # compared as an item
        if self._explains(entries, found, without):
            return
        wanted = read_after(entries[-1])
        pairs = [] if wanted is None or found is None else differing(wanted, found, without)
        self._add(
            Finding(key, Scope.agent(person.id) if person.is_agent else None),
            "changed" if found is not None else "missing",
            _NO_REASON,
            id=person.id,
            fields=pairs or [("", person.username, None)],
        )

    # -- surplus -------------------------------------------------------------------------------

    def _check_surplus(self, kind: RecordKind) -> None:
        """Check memory that v1 does not have: it must be in the log, or the platform's."""
        for surplus, entries in self._states.surplus(self._stage, kind):
            unknown = []
            for model in find_surplus(self._store, kind, surplus):
                own = entries[Key(kind, model.id)]
                is_logged = bool(own) and own[-1].after is not None
                if not is_logged or own[-1].scope != model.home:
                    unknown.append(model)
            platform = self._find_platforms(unknown)
            self._of_platform += len(platform)
            for model in unknown:
                if model.id not in platform:
                    self._add(
                        Finding(Key(kind, model.id), model.home),
                        "extra",
                        "v1 does not have it there, and the log does not explain its origin",
                        id=model.id,
                        fields=[("", "", text_of(model))],
                    )
        for key in self._stage.column("repeated", kind):
            finding = Finding(Key(kind, key), None)
            self._add(finding, "duplicate", "several documents of one scope")

    def _find_platforms(self, new: Sequence[Memory]) -> set[str]:
        """Return the IDs of memories written by the platform, which keeps no log.

        They are new to v1, and their conversations are in the store.
        """
        if self._own_accounts:
            return set()
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

    # -- reporting -----------------------------------------------------------------------------

    def _report(
        self,
        item: V1Item,
        now: Any,
        why: str,
        wanted: Memory | Agent | None = None,
        entries: Sequence[AuditEntry] = (),
    ) -> None:
        """Report how an item differs from v1, or from the last log entry."""
        key, expected = key_of_item(item), wanted or item.memory
        fields: list[tuple[str, Any, Any]] = []
        if now is None:
            fields = [("", text_of(expected), "")]
            if why == _NO_REASON:
                why = f"{'removed' if entries else 'missing'}, and {why}"
        elif isinstance(now, Agent):
            fields = [("agent_memory_enabled", item.switch, now.agent_memory_enabled)]
        elif expected is not None and type(expected) is type(now):
            without = UNCOMPARED[type(now)] - ({"version"} if entries else set())
            fields = differing(expected, now, without)
        self._add(
            Finding(key, item.scope, wanted, reason_of(item)),
            "changed" if now is not None else "missing",
            why,
            id=getattr(now, "id", "") or (key.id if item.scope is None else ""),
            scope=item.scope or Scope.agent(item.agent_id),
            source=format_sources(item.sources),
            fields=fields,
        )

    def _add(
        self,
        finding: Finding,
        kind: DifferenceKind,
        reason: str,
        *,
        id: str = "",
        scope: Scope | None = None,
        source: str = "",
        fields: Sequence[tuple[str, Any, Any]] = (),
    ) -> None:
        """Add a finding, with a difference for each field: name, expected and actual value."""
        self._differing += 1
        self._findings.append(finding)
        scope = scope or finding.scope
        for field, want, have in (fields or [("", "", "")])[: _NAMED - len(self._named)]:
            self._named.append(
                Difference(
                    kind=kind,
                    target_type=finding.key.type,
                    target_id=id,
                    scope=scope.key if scope else ("" if id else finding.key.id),
                    source=source,
                    field=field,
                    expected=_show(want, have),
                    found=_show(have, want),
                    reason=reason,
                )
            )


def _show(value: Any, other: Any) -> str:
    """Return a value as text; of a long text, the part around its difference from ``other``."""
    if value is None or value == ():
        return "nothing"
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = ", ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
    pairs = enumerate(zip(text, str(other), strict=False))
    same = next((place for place, (a, b) in pairs if a != b), 0)
    start = max(0, same - _LONGEST // 4) if len(text) > _LONGEST else 0
    end = start + _LONGEST
    return f"{'…' if start else ''}{text[start:end]}{'…' if end < len(text) else ''}"
