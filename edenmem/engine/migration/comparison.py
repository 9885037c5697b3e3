"""Load the state of a store and of its log onto the stage of a plan, next to the targets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta

from edenmem.engine.history.trails import read_after
from edenmem.engine.migration.deciding import WRITES
from edenmem.engine.migration.items import (
    SWITCH,
    TYPES,
    Memory,
    digest_of,
    digest_of_ids,
    digest_of_text,
    key_of,
)
from edenmem.engine.migration.source import StagedPlan, origin_digest
from edenmem.models.backup import Document, Record, RecordKind, Selection
from edenmem.models.changes import AuditEntry, HistoryEntry
from edenmem.models.host import Agent
from edenmem.models.memory import Consolidation, Reflection
from edenmem.store.protocol.store import Store
from edenmem.store.v1.protocol import Found, Written

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


def load_found(store: Store, plan: StagedPlan, step: Steps = lambda done: None) -> None:
    """Load what readers of the store find of the plan's agents. Blocks.

    Raises:
        StoreError: the database cannot be used.
    """
    plan.stage.set_found(_find_all(store, plan.about.agents, step))


def _find_all(store: Store, agents: Sequence[str], step: Steps) -> Iterator[Found]:
    for agent_id in agents:
        agent = store.host.agent(agent_id)
        if agent is not None:
            yield Found(SWITCH, agent_id, agent_id, None, int(agent.agent_memory_enabled))
    for done, model in enumerate(read_memory(store, agents)):
        if done % _STEP == 0:
            step(done)
        key, scope = key_of(model), model.home.key
        pending, at, place = False, None, None
        if isinstance(model, Reflection):
            pending, place = not model.absorbed, model.place
            at = milliseconds(model.formed_at)
        elif isinstance(model, Consolidation):
            at = digest_of_text(model.consolidated_content)
        yield Found(*key, model.id, scope, digest_of(model), model.version, pending, at, place)
        if isinstance(model, Consolidation) and model.unabsorbed_ids:
            yield Found("buffer", scope, scope, scope, digest_of_ids(model.unabsorbed_ids))
    for version in _walk(store, agents, (RecordKind.HISTORY,)):
        if isinstance(version, HistoryEntry) and version.target_type == "consolidation":
            scope, content = version.scope.key, digest_of_text(version.content)
            yield Found("history", scope, version.id, scope, content, version.version)


def milliseconds(moment: datetime) -> int:
    """Return a time in milliseconds since 1970."""
    return (moment - _EPOCH) // _MILLISECOND


def read_memory(
    store: Store, agents: Sequence[str], kinds: Sequence[RecordKind] = KINDS
) -> Iterator[Memory]:
    """Yield the memory of agents that queries find; damaged documents count as missing."""
    for record in _walk(store, agents, kinds):
        assert isinstance(record, Memory)
        if not (isinstance(record, Consolidation) and _is_blank(record)):
            yield record


def _walk(store: Store, agents: Sequence[str], kinds: Sequence[RecordKind]) -> Iterator[Record]:
    if not agents:
        return
    few = tuple(sorted(agents)) if len(agents) <= _FEW_AGENTS else ()
    wanted = frozenset(agents)
    for document in store.walk.documents(kinds, Selection(agent_ids=few)):
        if _is_sound(document) and document.agent_id in wanted and document.record is not None:
            yield document.record


def _is_sound(document: Document) -> bool:
    """Return whether a document can be read and found by queries."""
    return document.record is not None and not document.fault and not document.oddities


def _is_blank(text: Consolidation) -> bool:
    """Return whether a document of a text has neither a text nor a buffer."""
    return not text.consolidated_content.strip() and not text.unabsorbed_ids


def load_written(
    store: Store, plan: StagedPlan, run_ids: Sequence[str], unreadable: set[str]
) -> None:
    """Load what the log says that runs wrote; ``unreadable`` collects unreadable entries."""

    def written() -> Iterator[Written]:
        for run_id in run_ids:
            for entry in store.log.audit(run_id=run_id, unreadable=unreadable):
                if (found := _written_by(entry, run_id)) is not None:
                    yield found

    plan.stage.set_written(written())


def _written_by(entry: AuditEntry, run_id: str) -> Written | None:
    """Return the document that an entry added; None if the entry contradicts itself."""
    state = read_after(entry)
    if state is None or entry.undoes or entry.action != WRITES.get(entry.target_type):
        return None
    origin = origin_digest(entry.reason)
    if isinstance(state, Agent):
        own = int(state.agent_memory_enabled)
        is_own = entry.target_id == entry.agent_id == state.id
        return Written(SWITCH, state.id, own, 0, origin, run_id) if is_own else None
    if not isinstance(state, Memory) or state.id != entry.target_id:
        return None
    if entry.target_type != TYPES[type(state)] or entry.scope != state.home:
        return None
    if entry.agent_id != state.agent_id:
        return None
    return Written(*key_of(state), digest_of(state), state.version, origin, run_id)
