"""Compare a store with the source of a run: every v1 document, and everything else in the store.

The store is read once and kept as an ID and digest per document. Then the source is read again, and
each of its documents is looked up. A changed document is correct only if the log explains, entry by
entry, the change from what the run wrote. Memory that v1 does not have must be in the log too, or
be written by the platform.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from edenmem.embed.protocol import Embedder
from edenmem.engine.history.trails import (
    Logged,
    Trails,
    differing,
    digest,
    fields_of,
    is_written,
    read_after,
)
from edenmem.engine.migration.conflicts import (
    APPENDED,
    OnConflict,
    Standing,
    decide,
    find_standing,
)
from edenmem.engine.migration.inventory import (
    KINDS,
    SET_BY_STORE,
    Contents,
    Found,
    Inventory,
    Memory,
    content_of,
    key_of,
    key_of_scope,
    mark,
    mark_of_buffer,
)
from edenmem.engine.migration.items import (
    Forgotten,
    Outcome,
    Rounds,
    V1Plan,
    batched_items,
    change_id,
    classify_moved,
    classify_unmoved,
    expected_of,
    format_sources,
)
from edenmem.engine.migration.reports import Difference, VectorCheck, Verification
from edenmem.engine.migration.source import describe_agent, describe_user, has_own_accounts
from edenmem.engine.migration.vectors import check_vectors
from edenmem.errors import ConflictError, DocumentDamaged
from edenmem.models.backup import RecordKind
from edenmem.models.changes import AuditEntry
from edenmem.models.forgetting import Subject
from edenmem.models.host import Agent, User
from edenmem.models.memory import Consolidation, Fact, Policy, Reflection
from edenmem.models.migration import (
    TAKEN_BACK,
    UNFINISHED,
    MigrationRun,
    RunState,
    find_successor,
)
from edenmem.models.scope import Scope
from edenmem.models.v1 import (
    V1Item,
    V1Person,
    V1Ref,
    V1Text,
    V1Toggles,
)
from edenmem.store.protocol.store import Store, batched

#: Number of items compared together.
_BATCH = 500
#: Maximum number of differences in the report; all are counted.
_NAMED = 1000
#: Up to this number of surplus memories, look each up in the log; beyond it, read the whole log.
_FEW = 200

_KIND_OF: dict[type, RecordKind] = {
    Fact: RecordKind.FACT,
    Reflection: RecordKind.REFLECTION,
    Consolidation: RecordKind.CONSOLIDATION,
    Policy: RecordKind.POLICY,
}

#: Kinds with at most one document per scope.
_ONE_PER_SCOPE = (RecordKind.CONSOLIDATION, RecordKind.POLICY)
#: The kind of items in buffers. Episodes belong to sessions, which are not consolidated.
_BUFFERED = "reflection"
_AGENT_SWITCH = frozenset({"agent_memory_enabled"})
_NOTHING = frozenset[str]()
_BUT_AGENT_SWITCH = frozenset(fields_of(Agent)) - _AGENT_SWITCH
#: Key in the counts for items reverted by a rollback or undo.
_TAKEN_BACK = "taken_back"
_NO_REASON = "the log does not explain this"
#: Maximum number of characters of a text shown in a difference.
_LONGEST = 160


def verify(
    store: Store,
    plan: V1Plan,
    run: MigrationRun,
    *,
    embedder: Embedder | None = None,
    progress: Callable[[int], None] = lambda items: None,
) -> Verification:
    """Compare the items moved by a run with its source. Blocks.

    Args:
        store: The target.
        plan: The source.
        run: The run.
        embedder: A local model to check a sample of the vectors.
        progress: Called with the number of items done.

    Raises:
        ConflictError: the run was rolled back.
        StoreError: the database cannot be used.
    """
    if run.state in TAKEN_BACK:
        how = "undone" if run.state is RunState.UNDONE else "rolled back"
        raise ConflictError(f"run {run.id} was {how}: nothing to verify")
    check = _Check(store, plan, run, embedder)
    compared = 0
    for items in batched_items(plan.items(), _BATCH):
        check.compare(items)
        compared += len(items)
        progress(compared)
    check.finish()
    return check.result()


class _Check:
    """One verification."""

    def __init__(
        self, store: Store, plan: V1Plan, run: MigrationRun, embedder: Embedder | None
    ) -> None:
        self._store = store
        self._embedder = embedder
        self._own_accounts = has_own_accounts(store)
        self._plan = plan
        self._run = run
        self._rounds = Rounds(runs := store.migrations.migration_runs())
        self._undo_runs = {id for each in runs for id in each.undo_runs}
        forgettings = store.erasure.forgettings()
        self._forgotten = Forgotten(forgettings)
        self._forgotten_ids = {each.id for each in forgettings}
        self._trails = Trails(store, has_forgotten=bool(forgettings))
        self._on_conflict: OnConflict = run.options.get("on_conflict", "keep")
        self._stock = Inventory(store, [person.id for person in plan.agents()])
        self._contents = Contents()
        self._agents: dict[str, Agent | None] = {}
        self._switched = set[str]()
        self._counts: Counter[str] = Counter()
        self._documents = array("Q")
        self._named: list[Difference] = []
        self._differing = self._changed = self._kept = self._of_platform = 0
        self._buffer: tuple[Scope | None, list[str]] = (None, [])
        self._vectors: VectorCheck | None = None

    def result(self) -> Verification:
        """Return the verification."""
        order = [*Outcome, _TAKEN_BACK, "differs"]
        successor = find_successor(self._run, self._store.migrations.migration_runs())
        return Verification(
            run_id=self._run.id,
            superseded_by=None if successor is None else successor.id,
            documents=sum(self._plan.totals.values()),
            seen=_count_distinct(self._documents),
            counts={str(each): self._counts[each] for each in order if self._counts[each]},
            changed=self._changed,
            taken_back=self._counts[_TAKEN_BACK],
            kept=self._kept,
            platform=self._of_platform,
            differing=self._differing,
            differences=tuple(self._named),
            incomplete=() if self._run.incomplete_accepted else tuple(self._plan.incomplete),
            unreadable=len(self._trails.unreadable),
            unfinished=self._run.state in UNFINISHED,
            vectors=self._vectors,
        )

    # -- item by item ------------------------------------------------------------------------

    def compare(self, items: Sequence[V1Item]) -> None:
        """Compare a batch of items with the store and the log."""
        moved: list[V1Item] = []
        wanted: dict[RecordKind, list[tuple[V1Item, Memory]]] = {}
        for item in map(self._forgotten.without_users, items):
            self._documents.extend(_number(ref) for ref in item.sources)
            if item.target is None:
                self._counts[classify_unmoved(item)] += 1
            elif self._forgotten.has(item):
                self._counts[Outcome.LEFT_BEHIND] += 1
                self._kept += 1
            else:
                moved.append(item)
                if (expected := expected_of(item)) is not None:
                    wanted.setdefault(_KIND_OF[type(expected)], []).append((item, expected))
                    self._contents.add(expected)
                    if item.kind == _BUFFERED:
                        self._note_pending(expected)
        origins = self._find_written(moved)
        unlike: list[tuple[V1Item, Memory]] = []
        for kind, pairs in wanted.items():
            keys = [key_of(expected) for _, expected in pairs]
            same = self._stock.shelves[kind].find(keys, [mark(expected) for _, expected in pairs])
            for (item, expected), is_same in zip(pairs, same, strict=True):
                entry = origins.get(item.key)
                if is_same and entry is not None and _is_of(entry, item, expected):
                    self._counts[classify_moved(item)] += 1
                else:
                    unlike.append((item, expected))
        for item in moved:
            if isinstance(item.target, V1Toggles):
                self._judge_switch(item, item.target, origins.get(item.key))
        if unlike:
            self._examine(unlike, origins)

    def _find_written(self, items: Sequence[V1Item]) -> dict[str, AuditEntry]:
        """Return the latest log entry of a run that moved the item, by key."""
        asked = {
            change_id(item, round): item.key
            for item in items
            for round in range(self._rounds.latest(item) + 1)
        }
        found: dict[str, AuditEntry] = {}
        log, unreadable = self._store.log, self._trails.unreadable
        entries = log.audit_entries(list(asked), unreadable=unreadable) if asked else {}
        for id, entry in entries.items():
            known = found.get(asked[id])
            if known is None or (known.at, known.id) < (entry.at, entry.id):
                found[asked[id]] = entry
        return found

    def _agent(self, agent_id: str) -> Agent | None:
        if agent_id not in self._agents:
            self._agents = {agent_id: self._store.host.agent(agent_id)}
        return self._agents[agent_id]

    def _examine(
        self, unlike: Sequence[tuple[V1Item, Memory]], origins: Mapping[str, AuditEntry]
    ) -> None:
        """Judge by the log the memories that differ from v1."""
        try:
            found = Found(self._store, [expected for _, expected in unlike])
        except DocumentDamaged as error:
            if len(unlike) > 1:
                for pair in unlike:
                    self._examine([pair], origins)
            else:
                self._report(*unlike[0], None, error.message)
            return
        for item, expected in unlike:
            entry = origins.get(item.key)
            if isinstance(expected, Consolidation):
                self._judge_text(item, expected, found.texts.get(expected.home), entry)
            elif isinstance(expected, Policy):
                self._judge_policy(item, expected, found.policies.get(expected.home), entry)
            else:
                self._judge_memory(item, expected, found.memory(expected), entry)

    def _judge_memory(
        self,
        item: V1Item,
        expected: Fact | Reflection,
        found: Fact | Reflection | None,
        origin: AuditEntry | None,
    ) -> None:
        kind = _KIND_OF[type(expected)]
        if origin is not None:
            self._judge_written(item, expected, found, origin)
        elif found is not None and found.agent_id == expected.agent_id:
            entries = self._trails.entries(kind, found.id)
            if entries and self._trails.leads(entries, entries[0], found):
                if (found.home, found.content) == (expected.home, expected.content):
                    self._counts[Outcome.ALREADY] += 1
                else:
                    self._keep()
            else:
                self._report(item, expected, found)
        elif isinstance(expected, Fact) and self._has_twin(expected):
            self._counts[Outcome.ALREADY] += 1
        else:
            self._report(item, expected, None)

    def _has_twin(self, fact: Fact) -> bool:
        """Return whether the scope has the same fact under another ID."""
        twin = self._store.memory.facts_by_hashes(fact.home, [fact.hash]).get(fact.hash)
        return (
            twin is not None
            and (twin.home, twin.content) == (fact.home, fact.content)
            and set(fact.related_users) <= set(twin.related_users)
        )

    def _judge_written(
        self,
        item: V1Item,
        expected: Memory,
        found: Memory | None,
        origin: AuditEntry,
        *,
        has_written: bool = True,
    ) -> None:
        """Judge a memory written by a run: the log must explain its current state."""
        entries = self._trails.entries(origin.target_type, origin.target_id)
        has_written = has_written and _is_from(origin, item) and is_written(origin, expected)
        is_ours = self._trails.is_emptied(origin) or has_written
        if not is_ours:
            self._report(item, expected, found, "its log entry differs from v1")
        elif self._trails.leads(entries, origin, found):
            if entries[-1].actor.run_id in self._undo_runs and (
                found is None or content_of(found) != content_of(expected)
            ):
                self._counts[_TAKEN_BACK] += 1
                return
            since = (each for each in entries if each.at >= origin.at)
            is_own = all(each.actor.run_id == origin.actor.run_id for each in since)
            self._changed += not is_own or found is None or _is_remarked(expected, found)
            self._counts[classify_moved(item)] += 1
        else:
            self._report(item, expected, found, entries=entries)

    def _judge_policy(
        self, item: V1Item, expected: Policy, found: Policy | None, origin: AuditEntry | None
    ) -> None:
        if origin is not None:
            self._judge_written(item, expected, found, origin)
            return
        entries = [] if found is None else self._trails.entries("policy", found.id)
        if entries and self._trails.leads(entries, entries[0], found):
            self._keep()
        else:
            self._report(item, expected, found)

    def _judge_switch(self, item: V1Item, target: V1Toggles, origin: AuditEntry | None) -> None:
        self._switched.add(target.agent_id)
        found, wanted = self._agent(target.agent_id), target.agent_memory_enabled
        is_on = None if found is None else found.agent_memory_enabled
        if origin is None and found is None:
            self._keep()  # the host does not know the agent
            return
        if origin is not None:
            state = read_after(origin)
            is_ours = isinstance(state, Agent) and state.agent_memory_enabled is wanted
            entries = self._trails.entries("agent", origin.target_id)
            if (is_ours or self._trails.is_emptied(origin)) and self._trails.leads(
                entries, origin, found, _BUT_AGENT_SWITCH
            ):
                is_back = is_on is not wanted and entries[-1].actor.run_id in self._undo_runs
                self._changed += is_on is not wanted and not is_back
                self._counts[_TAKEN_BACK if is_back else classify_moved(item)] += 1
                return
        self._differ(
            item,
            Difference(
                kind="changed" if found else "missing",
                target_type="agent",
                target_id=target.agent_id,
                scope=Scope.agent(target.agent_id).key,
                source=format_sources(item.sources),
                field="agent_memory_enabled",
                expected=_show(wanted),
                found=_show(is_on),
                reason=_NO_REASON,
            ),
        )

    # -- texts -------------------------------------------------------------------------------

    def _judge_text(
        self,
        item: V1Item,
        expected: Consolidation,
        found: Consolidation | None,
        origin: AuditEntry | None,
    ) -> None:
        text = item.target
        assert isinstance(text, V1Text)
        if origin is None:
            self._judge_unwritten(item, text, expected, found)
            return
        lost = self._find_lost(text, origin) if text.earlier else None
        if lost is None:
            own = _is_text_of(origin, text.content)
            self._judge_written(item, expected, found, origin, has_written=own)
            return
        self._differ(
            item,
            _difference(
                "missing",
                expected,
                item,
                field="history",
                expected=_cut(lost),
                reason=f"an older text of v1 is missing from the history; {_NO_REASON}",
            ),
        )

    def _find_lost(self, text: V1Text, origin: AuditEntry) -> str | None:
        """Return an older text of v1 that is missing from the history, if any."""
        if any(
            map(self._trails.is_emptied, self._trails.entries("consolidation", origin.target_id))
        ):
            return None
        versions = self._store.history.versions("consolidation", "", scope=text.scope)
        kept = {version.content.strip() for version in versions}
        lost = (each.content for each in text.earlier if each.content.strip() not in kept)
        return next(lost, None)

    def _judge_unwritten(
        self, item: V1Item, text: V1Text, expected: Consolidation, found: Consolidation | None
    ) -> None:
        """Judge a text that no run origin: correct if a new run would not write it either."""
        standing = Standing()
        if found is not None and found.version:
            standing = find_standing(self._store, found, self._rounds.run_ids)
        decision = decide(text, standing, self._on_conflict)
        if decision.content is not None or found is None:
            why = "v1 has a newer text" if standing.moved else "it was not migrated"
            self._report(item, expected, found, f"{why}; run 'edenmem migrate v1' again")
            return
        entries = self._trails.entries("consolidation", found.id)
        is_platforms = found.updated_at is None and not self._own_accounts
        leads = bool(entries) and self._trails.leads(entries, entries[0], found)
        if not leads and not (is_platforms and not entries):
            self._report(item, expected, found, entries=entries)
        elif decision.treatment is None:
            self._counts[Outcome.ALREADY] += 1
        else:
            self._keep()

    # -- buffers -----------------------------------------------------------------------------

    def _note_pending(self, expected: Memory) -> None:
        """Collect the pending reflections of one scope after another, in order."""
        scope, ids = self._buffer
        if scope != expected.home:
            self._check_buffer(scope, ids)
            ids = []
            self._buffer = (expected.home, ids)
        assert isinstance(expected, Reflection)
        if not expected.absorbed:
            ids.append(expected.id)

    def _check_buffer(self, scope: Scope | None, ids: Sequence[str]) -> None:
        """Compare the buffer of a scope with v1 by its digest."""
        if scope is None or not ids:
            return
        key = key_of_scope(scope)
        if not self._stock.buffers.find([key], [mark_of_buffer(ids)])[0]:
            self._compare_buffer(scope, ids)

    def _compare_buffer(self, scope: Scope, ids: Sequence[str]) -> None:
        """Report an error in a scope's buffer, which holds ``ids`` in v1."""
        pending = {
            each.id: each for each in self._store.memory.reflections([scope], absorbed=False)
        }
        listed = self._store.memory.buffers([scope]).get(scope, ())
        wanted = [id for id in ids if id in pending]  # the others are reported as items
        places = {id: place for place, id in enumerate(listed)}
        error = ""
        if len(places) < len(listed):
            error = "a reflection is listed twice"
        elif not pending.keys() <= places.keys():
            error = "a pending reflection is missing"
        elif not places.keys() <= pending.keys():
            error = "a reflection is not pending"
        else:
            found = [pending[id] for id in sorted(wanted, key=lambda id: places[id])]
            order = [(each.formed_at, each.place) for each in found]
            error = "" if order == sorted(order) else "the order differs from v1"
        if error:
            self._differing += 1
            self._name(
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
                )
            )

    # -- people ------------------------------------------------------------------------------

    def finish(self) -> None:
        """Check the last buffer, other buffers, accounts, surplus memory and vectors."""
        self._check_buffer(*self._buffer)
        for scope in self._stock.find_other_buffers():
            self._compare_buffer(scope, ())
        if self._own_accounts:
            self._check_people()
        for kind in KINDS:
            self._check_surplus(kind)
        self._check_vectors()

    def _check_people(self) -> None:
        """Compare the agents and users added by runs."""
        host = self._store.host
        for person in self._plan.agents():
            if Subject(kind="agent", agent_id=person.id).id not in self._forgotten_ids:
                agent = host.agent(person.id)
                without = _AGENT_SWITCH if person.id in self._switched else _NOTHING
                if agent is None or differing(describe_agent(person), agent, without):
                    self._check_account("agent", person, agent)
        for people in batched(self._plan.users(), _BATCH):
            users = host.users_by_ids([person.id for person in people])
            for person in people:
                user = users.get(person.id)
                if Subject(kind="user", owner=person.id).id in self._forgotten_ids:
                    continue
                if user is None or differing(describe_user(person), user):
                    self._check_account("user", person, user)

    def _check_account(self, kind: str, person: V1Person, found: Agent | User | None) -> None:
        """Compare an account with the one that a run added, if any."""
        entries = self._trails.entries(kind, person.id)
        made = [each for each in entries if each.before is None and each.after is not None]
        ours = [each for each in made if each.actor.run_id in self._rounds.run_ids]
        without = _AGENT_SWITCH if person.id in self._switched else _NOTHING
        if not ours or self._trails.leads(entries, ours[-1], found, without):
            return
        self._differing += 1
        wanted = read_after(entries[-1])
        scope = Scope.agent(person.id).key if kind == "agent" else ""
        pairs = [] if wanted is None or found is None else differing(wanted, found, without)
        for field, want, have in pairs or [("", person.username, None)]:
            self._name(
                Difference(
                    kind="changed" if found is not None else "missing",
                    target_type=kind,
                    target_id=person.id,
                    scope=scope,
                    source="",
                    field=field,
                    expected=_show(want),
                    found=_show(have),
                    reason=_NO_REASON,
                )
            )

    # -- surplus -------------------------------------------------------------------------------

    def _check_surplus(self, kind: RecordKind) -> None:
        """Check memory that v1 does not have: it must be in the log, or the platform's."""
        logged: Logged | None = None
        count, twice = 0, set[Scope]()
        for models in self._stock.surplus(kind):
            unknown: list[Memory] = []
            for model in models:
                count += 1
                if isinstance(model, Consolidation) and not model.consolidated_content.strip():
                    continue
                if count > _FEW and logged is None:
                    logged = Logged(self._store, self._trails, kind, sorted(self._stock.agents))
                if not (self._is_logged(kind, model) if logged is None else logged.has(model)):
                    unknown.append(model)
            platform = self._find_platforms(unknown)
            self._of_platform += len(platform)
            for model in unknown:
                if model.id in platform or (kind in _ONE_PER_SCOPE and model.home in twice):
                    continue
                twice.add(model.home)
                self._report_surplus(kind, model)

    def _is_logged(self, kind: RecordKind, model: Memory) -> bool:
        """Return whether the last log entry puts the memory into its scope."""
        entries = self._trails.entries(kind, model.id)
        return bool(entries) and any(
            each.after is not None and each.scope == model.home for each in entries[-1:]
        )

    def _find_platforms(self, unknown: Sequence[Memory]) -> set[str]:
        """Return the IDs of memories written by the platform, which keeps no log.

        They are new to v1, and their conversations are in the store.
        """
        if self._own_accounts:
            return set()
        new = [model for model in unknown if self._contents.describe(model) == "extra"]
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

    def _report_surplus(self, kind: RecordKind, model: Memory) -> None:
        what = self._contents.describe(model)
        reason = {
            "duplicate": "duplicate in its scope",
            "copy": "in v1 only in another scope",
            "extra": "not in v1",
        }[what]
        self._differing += 1
        self._name(
            Difference(
                kind=what,
                target_type=kind,
                target_id=model.id,
                scope=model.home.key,
                source="",
                field="",
                expected="",
                found=_cut(content_of(model)),
                reason=f"{reason}, and the log does not explain its origin",
            )
        )

    def _check_vectors(self) -> None:
        self._vectors, wrong = check_vectors(
            self._stock.vectors, self._stock.read_vectors, self._embedder
        )
        self._differing += len(wrong)
        for each in wrong:
            self._name(each)

    # -- reporting -----------------------------------------------------------------------------

    def _report(
        self,
        item: V1Item,
        expected: Memory,
        found: Memory | None,
        reason: str = "",
        *,
        entries: Sequence[AuditEntry] = (),
    ) -> None:
        """Report how a memory differs from v1, or from the last log entry."""
        without = SET_BY_STORE[type(expected)]
        wanted = expected
        if entries:
            state = read_after(entries[-1])
            if isinstance(state, Memory) and type(state) is type(expected):
                wanted, without = state, frozenset()
        if found is None:
            gone = "removed" if entries else "missing"
            named = [
                _difference(
                    "missing",
                    expected,
                    item,
                    expected=_cut(content_of(wanted)),
                    reason=reason or f"{gone}, and {_NO_REASON}",
                )
            ]
        else:
            named = [
                _difference(
                    "changed",
                    expected,
                    item,
                    target_id=found.id,
                    field=field,
                    expected=_show(want, have),
                    found=_show(have, want),
                    reason=reason or _NO_REASON,
                )
                for field, want, have in differing(wanted, found, without)
            ]
        if not named:
            named = [
                _difference(
                    "changed",
                    expected,
                    item,
                    reason=reason or "the log does not explain the current state",
                )
            ]
        self._differ(item, *named)

    def _keep(self) -> None:
        self._counts[Outcome.KEPT] += 1
        self._kept += 1

    def _differ(self, item: V1Item, *named: Difference) -> None:
        self._counts["differs"] += 1
        self._differing += 1
        for each in named:
            self._name(each)

    def _name(self, difference: Difference) -> None:
        if len(self._named) < _NAMED:
            self._named.append(difference)


def _number(ref: V1Ref) -> int:
    name = f"{ref.collection}/{ref.id}/{ref.content_hash}"
    return digest(name.encode("utf-8", "surrogatepass"))


def _count_distinct(numbers: array[int]) -> int:
    import numpy as np

    return len(np.unique(np.frombuffer(numbers, dtype=np.uint64))) if numbers else 0


def _is_of(origin: AuditEntry, item: V1Item, expected: Memory) -> bool:
    """Return whether a log entry matches v1; False for texts with older versions."""
    if isinstance(item.target, V1Text) and (
        item.target.earlier or not _is_text_of(origin, item.target.content)
    ):
        return False
    return _is_from(origin, item) and is_written(origin, expected)


def _is_from(origin: AuditEntry, item: V1Item) -> bool:
    """Return whether a log entry names the item's v1 documents."""
    return origin.reason.startswith(f"from {format_sources(item.sources)}")


def _is_remarked(expected: Memory, found: Memory) -> bool:
    """Return whether a reflection was consolidated or released; the log has that of its text."""
    if not isinstance(expected, Reflection) or not isinstance(found, Reflection):
        return False
    return expected.absorbed is not found.absorbed


def _is_text_of(origin: AuditEntry, content: str) -> bool:
    """Return whether a log entry wrote a v1 text, maybe appended to a v2 text."""
    after = read_after(origin)
    if not isinstance(after, Consolidation):
        return False
    written = after.consolidated_content
    return written == content or written.endswith(f"\n\n{APPENDED}\n\n{content}")


def _difference(
    kind: Literal["missing", "changed"],
    model: Memory,
    item: V1Item,
    *,
    target_id: str = "",
    **fields: Any,
) -> Difference:
    """Return a difference in a memory from v1."""
    return Difference(
        kind=kind,
        target_type=_KIND_OF[type(model)],
        target_id=target_id or model.id,
        scope=model.home.key,
        source=format_sources(item.sources),
        **{"field": "", "expected": "", "found": "", **fields},
    )


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
