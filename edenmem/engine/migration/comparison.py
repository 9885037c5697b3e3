"""Load what a store and its log have of the targets of a plan: onto its stage, and page by page."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any

import msgspec

from edenmem import __version__
from edenmem.engine.migration.items import (
    SWITCH,
    TYPES,
    Forgotten,
    Key,
    digest_of,
    digest_of_fields,
    digest_of_text,
    key_of,
    key_of_item,
    origin_of,
    scope_of,
    text_of,
)
from edenmem.models.backup import RecordKind, Selection
from edenmem.models.changes import AuditEntry, HistoryEntry
from edenmem.models.host import Agent, User
from edenmem.models.memory import Consolidation, Fact, Policy, Reflection
from edenmem.models.scope import Scope
from edenmem.models.v1 import Memory, V1Item
from edenmem.store.protocol.store import Store
from edenmem.store.sqlite.v1.queries import Found, Written
from edenmem.store.sqlite.v1.staging import SqliteV1Stage

#: The kinds of memory in a comparison.
KINDS = (
    RecordKind.POLICY,
    RecordKind.CONSOLIDATION,
    RecordKind.REFLECTION,
    RecordKind.FACT,
)
#: With more agents than this, read the whole store instead of filtering by agent.
_FEW_AGENTS = 100
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
#: Number of documents between progress reports.
_STEP = 500

Steps = Callable[[int], None]


def load_found(
    store: Store, stage: SqliteV1Stage, agents: Sequence[str], step: Steps = lambda done: None
) -> None:
    """Load what readers of the store find of agents. Blocks.

    Raises:
        StoreError: the database cannot be used.
    """
    stage.set_found(_find_all(store, agents, step))


def _find_all(store: Store, agents: Sequence[str], step: Steps) -> Iterator[Found]:
    for agent_id in agents:
        agent = store.host.agent(agent_id)
        if agent is not None:
            yield Found(SWITCH, agent_id, agent_id, None, int(agent.agent_memory_enabled))
    for done, model in enumerate(read_memory(store, agents, (*KINDS, RecordKind.HISTORY))):
        if done % _STEP == 0:
            step(done)
        scope = model.scope.key if isinstance(model, HistoryEntry) else model.home.key
        match model:
            case HistoryEntry(target_type="consolidation") as version:
                own = digest_of_text(version.content)
                yield Found("history", scope, version.id, scope, own, version.version)
            case Reflection():
                yield Found(
                    "reflection",
                    model.id,
                    model.id,
                    scope,
                    digest_of(model),
                    model.version,
                    not model.absorbed,
                    milliseconds(model.formed_at),
                    model.place,
                )
            case Consolidation():
                yield Found(
                    "consolidation",
                    scope,
                    model.id,
                    scope,
                    digest_of(model),
                    model.version,
                    at=digest_of_text(text_of(model)),
                    buffer=" ".join(model.unabsorbed_ids),
                )
            case Fact() | Policy():
                yield Found(*key_of(model), model.id, scope, digest_of(model), model.version)


def milliseconds(moment: datetime) -> int:
    """Return a time in milliseconds since 1970."""
    return (moment - _EPOCH) // _MILLISECOND


def read_memory(
    store: Store, agents: Sequence[str], kinds: Sequence[RecordKind]
) -> Iterator[Memory | HistoryEntry]:
    """Yield the memory of agents that queries find; damaged documents count as missing."""
    few = tuple(sorted(agents)) if len(agents) <= _FEW_AGENTS else ()
    wanted = frozenset(agents)
    for document in store.walk.documents(kinds, Selection(agent_ids=few)) if agents else ():
        record = document.record
        if document.fault or document.oddities or document.agent_id not in wanted:
            continue
        if isinstance(record, Consolidation) and not text_of(record) and not record.unabsorbed_ids:
            continue  # neither a text nor a buffer
        if isinstance(record, Memory | HistoryEntry):
            yield record


# -- the log -------------------------------------------------------------------------------------

#: Log actions of a run by type of target, and those that can undo them.
WRITES = {
    "fact": "add_fact",
    "reflection": "add_reflection",
    "consolidation": "write_consolidation",
    "policy": "write_policy",
    SWITCH: "set_agent_toggles",
}
_REVISES = ("revise_fact", "revise_reflection")
_OF_SCOPES = {
    "consolidation": ("write_consolidation", "revert_consolidation"),
    "policy": ("write_policy", "remove_policy"),
}
_MODELS: dict[str, Any] = {
    **{name: model for model, name in TYPES.items()},
    SWITCH: Agent,
    "user": User,
}


def read_after(entry: AuditEntry) -> Any:
    """Return the document after an entry; None if removed or unreadable."""
    kind = _MODELS.get(entry.target_type)
    try:
        return None if kind is None else msgspec.convert(entry.after, kind | None, strict=False)
    except msgspec.ValidationError:
        return None


def load_written(
    store: Store, stage: SqliteV1Stage, run_ids: Iterable[str], unreadable: set[str]
) -> None:
    """Load what the log says that runs wrote; ``unreadable`` collects unreadable entries."""

    def written() -> Iterator[Written]:
        for run_id in run_ids:
            for entry in store.log.audit(run_id=run_id, unreadable=unreadable):
                if (found := _written_by(entry, run_id)) is not None:
                    yield found

    stage.set_written(written())


def _written_by(entry: AuditEntry, run_id: str) -> Written | None:
    """Return the document that an entry added; None if the entry contradicts itself."""
    kind, after, scope = entry.target_type, entry.after, entry.scope
    if entry.undoes or after is None or scope is None or entry.action != WRITES.get(kind):
        return None
    version = after.get("version")
    said = (entry.target_id, entry.agent_id)
    if said != (after.get("id"), scope.agent_id) or type(version) is not int:
        return None
    key = entry.target_id if kind in ("fact", "reflection") else scope.key
    own = digest_of_fields(_MODELS[kind], after)
    return Written(kind, key, scope.key, own, version, origin_of(entry.reason), run_id)


def contradicts(entry: AuditEntry, run_ids: Collection[str]) -> bool:
    """Return whether an entry contradicts itself: its action, its target, or what it undoes."""
    if entry.undoes:
        return entry.actor.run_id in run_ids
    if entry.action.startswith("remove_"):
        return entry.after is not None
    state = read_after(entry)
    said = (entry.target_type, entry.target_id, entry.agent_id, entry.scope)
    return isinstance(state, Memory) and said != (
        TYPES[type(state)],
        state.id,
        state.agent_id,
        state.home,
    )


def written_by(entries: Iterable[AuditEntry], run_ids: Collection[str]) -> list[AuditEntry]:
    """Return the entries of one target that runs wrote, oldest first."""
    return [
        entry
        for entry in entries
        if entry.action in (WRITES.get(entry.target_type), *_REVISES)
        and entry.actor.run_id in run_ids
        and not entry.undoes
    ]


def in_force(entries: Sequence[AuditEntry], run_ids: Collection[str]) -> list[AuditEntry]:
    """Return the entries of runs for one target that are not undone, oldest first.

    An entry, its undo, the undo of that, … form a chain; an odd length means in force.
    """
    undone = {entry.undoes: entry.id for entry in entries if entry.undoes}

    def holds(entry: AuditEntry) -> bool:
        is_odd, last = True, entry.id
        while last in undone:
            is_odd, last = not is_odd, undone[last]
        return is_odd

    return [entry for entry in written_by(entries, run_ids) if holds(entry)]


def state_of(store: Store, fingerprint: str, stage: SqliteV1Stage) -> str:
    """Return hashes of a source, of the memory found in a store and what runs wrote, and of users.

    Only users of a store with accounts of its own count: nothing is added to a platform's.
    """
    users = blake2b(digest_size=16)
    for user in store.host.users() if has_own_accounts(store) else ():
        users.update(msgspec.msgpack.encode(user))
    return f"{__version__} {fingerprint} {stage.hash_of_store()} {users.hexdigest()}"


def has_own_accounts(store: Store) -> bool:
    """Return whether the store manages the accounts itself, without a platform."""
    return store.database.info().kind == "sqlite"


# -- one target ----------------------------------------------------------------------------------


class State(msgspec.Struct, frozen=True, kw_only=True):
    """What v1, v2 and the log have of a target.

    Attributes:
        item: What v1 has.
        now: The stored document; also another fact with the same text.
        entries: The log entries of the target, oldest first.
        written: Those by runs, unless undone. The last one has the *base*.
        is_erased: Whether the target, its owner or its agent was erased.
        run_ids: IDs of all runs in the ledger.
        word_limit: The word limit of the scope's text.
        next_place: Of a pending reflection: the first free place at its time.
        absorbed: Of a text: the migrated reflections that v1 has absorbed into it.
    """

    item: V1Item
    now: Any
    entries: Sequence[AuditEntry]
    written: Sequence[AuditEntry]
    run_ids: Collection[str]
    is_erased: bool = False
    word_limit: int = 0
    next_place: int = 0
    absorbed: Sequence[Reflection] = ()

    @property
    def base(self) -> Any:
        """Return the latest document that runs wrote; None if there is none, or it was erased."""
        return read_after(self.written[-1]) if self.written else None

    @property
    def is_switched(self) -> bool:
        """Return whether anyone but a run switched the agent."""
        return any(
            entry.action == WRITES[SWITCH]
            and not entry.undoes
            and entry.actor.run_id not in self.run_ids
            for entry in self.entries
        )


class States:
    """Load the states of targets.

    Args:
        store: The store.
        run_ids: IDs of all runs in the ledger.
        agents: IDs of the agents.
        new: Agents that are treated as existing.
        unreadable: Collects the IDs of unreadable entries, which are ignored; otherwise they are
            an error.
    """

    def __init__(
        self,
        store: Store,
        run_ids: Collection[str],
        agents: Iterable[str],
        new: Iterable[Agent] = (),
        unreadable: set[str] | None = None,
    ) -> None:
        self._store = store
        self.run_ids = run_ids
        self.forgotten = Forgotten(store.erasure.forgettings())
        known = filter(None, map(store.host.agent, agents))
        self._agents: dict[Key, Any] = {Key(SWITCH, each.id): each for each in (*new, *known)}
        self._unreadable = unreadable

    def load(self, items: Sequence[V1Item]) -> list[State]:
        """Return the states of items."""
        items = [self.forgotten.without_users(item) for item in items]
        wanted = (item.memory for item in items if item.memory is not None)
        stored = self._agents | find_stored(self._store, wanted)
        keys = [key_of_item(item) for item in items]
        entries: dict[Key, list[AuditEntry]] = {}
        if self.run_ids:
            entries = self.entries([key for key in keys if key.type not in _OF_SCOPES])
            for key, item in zip(keys, items, strict=True):
                if actions := _OF_SCOPES.get(key.type):
                    found = self._store.log.audit(
                        scope=item.scope, actions=actions, unreadable=self._unreadable
                    )
                    entries[key] = _in_order(found)
        return [
            State(
                item=item,
                now=stored.get(key),
                entries=entries.get(key, ()),
                written=in_force(entries.get(key, ()), self.run_ids),
                run_ids=self.run_ids,
                is_erased=self.forgotten.has(item),
            )
            for key, item in zip(keys, items, strict=True)
        ]

    def surplus(
        self, stage: SqliteV1Stage, kind: RecordKind
    ) -> Iterator[tuple[Sequence[tuple[str, str]], dict[Key, list[AuditEntry]]]]:
        """Yield pages of stored documents of a kind that have no target: (ID, scope), entries."""
        for rows in stage.surplus(kind):
            yield rows, self.entries([Key(kind, id) for id, _ in rows])

    def entries(self, keys: Sequence[Key]) -> dict[Key, list[AuditEntry]]:
        """Return the entries of documents by type and ID, oldest first."""
        found: dict[Key, list[AuditEntry]] = {key: [] for key in keys}
        ids = list({key.id for key in keys})
        for entry in (
            self._store.log.audit(target_ids=ids, unreadable=self._unreadable) if ids else ()
        ):
            if (entries := found.get(Key(entry.target_type, entry.target_id))) is not None:
                entries.append(entry)
        return {key: _in_order(entries) for key, entries in found.items()}


def _in_order(entries: Iterable[AuditEntry]) -> list[AuditEntry]:
    """Return entries oldest first; those of one set have the same time."""
    found = list(entries)[::-1]
    return sorted(found, key=lambda each: (each.at, each.place))


def find_stored(store: Store, wanted: Iterable[Memory]) -> dict[Key, Memory]:
    """Return what is stored in the places of documents; a fact with the same text counts, too."""
    by_kind: dict[type, list[Any]] = {kind: [] for kind in TYPES}
    for each in wanted:
        by_kind[type(each)].append(each)
    memory, found, twins = store.memory, dict[Key, Memory](), dict[Key, Memory]()
    if facts := by_kind[Fact]:
        homes = list(dict.fromkeys(each.home for each in facts))
        found |= {key_of(f): f for f in memory.facts_by_ids(homes, [f.id for f in facts]).values()}
        hashes: dict[Scope, dict[str, Key]] = {}
        for each in facts:
            if key_of(each) not in found:
                hashes.setdefault(each.home, {})[each.hash] = key_of(each)
        for scope, own in hashes.items():
            equal = memory.facts_by_hashes(scope, list(own))
            twins |= {own[hash]: fact for hash, fact in equal.items()}
    rest: list[Memory] = []
    if reflections := by_kind[Reflection]:
        rest += memory.reflections_by_ids([each.id for each in reflections]).values()
    if texts := by_kind[Consolidation]:
        rest += memory.consolidations([each.home for each in texts]).values()
    if policies := by_kind[Policy]:
        rest += memory.policies([each.home for each in policies]).values()
    return found | twins | {key_of(each): each for each in rest}


def find_surplus(
    store: Store, kind: RecordKind, surplus: Sequence[tuple[str, str]]
) -> Iterator[Memory]:
    """Yield documents of a kind, given by ID and scope."""
    ids, scopes = [id for id, _ in surplus], [scope_of(scope) for _, scope in surplus]
    if kind is RecordKind.REFLECTION:
        yield from store.memory.reflections_by_ids(ids).values()
    elif kind is RecordKind.FACT:
        yield from store.memory.facts_by_ids(scopes, ids).values()
    else:  # one under a wrong ID is found by no query for its scope
        wanted = set(ids)
        for model in read_memory(store, [each.agent_id for each in scopes], (kind,)):
            is_blank = isinstance(model, Consolidation) and not text_of(model)
            if isinstance(model, Memory) and model.id in wanted and not is_blank:
                yield model
