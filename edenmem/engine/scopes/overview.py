"""Overview of scopes with their thresholds and retention, and of the store.

Read-only and cheap to import, for `scope list` and `status`.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import filterfalse, islice

import msgspec

from edenmem.engine.reports import ScopeStatus
from edenmem.models.changes import AddFact, Change, RemoveFact, ReviseFact
from edenmem.models.embeddings import VectorSwitch
from edenmem.models.formation import UNFINISHED, Formation, FormationStatus
from edenmem.models.host import Agent, Session
from edenmem.models.memory import Consolidation, HeldCount, Policy, Reflection, ScopeSummary
from edenmem.models.scope import Scope, ScopeKind
from edenmem.models.search import FactFilter
from edenmem.settings.keys import for_platform
from edenmem.settings.schema import OVERFLOW, ScopeSettings, Settings
from edenmem.store.protocol.database import StoreInfo
from edenmem.store.protocol.store import Store, batched

#: Scopes per query for pending reflections.
_BATCH = 500


class AgentOverview(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of one agent. ``due`` scopes have reached their threshold."""

    agent_id: str
    username: str = ""
    scopes: int = 0
    facts: int = 0
    pending: int = 0
    texts: int = 0
    due: int = 0


class GroupOverview(msgspec.Struct, frozen=True, kw_only=True):
    """A group: its sessions with their agents and users, and the facts of its scopes."""

    id: str
    agents: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    sessions: int = 0
    facts: int = 0
    last_activity: datetime | None = None


class StoreOverview(msgspec.Struct, frozen=True, kw_only=True):
    """The data of ``status``.

    ``vector_models`` counts facts by the model of their vector ("" without a vector).
    ``unfinished`` and ``failed`` are the latest formations with these states, ``formations`` are
    counts by state. ``held`` counts what waits for review. ``switch`` is the current switch to
    another embedding model, if any.
    """

    store: StoreInfo
    agents: tuple[AgentOverview, ...] = ()
    formations: dict[str, int] = msgspec.field(default_factory=dict)
    unfinished: tuple[Formation, ...] = ()
    failed: tuple[Formation, ...] = ()
    vector_models: dict[str, int] = msgspec.field(default_factory=dict)
    held: HeldCount = HeldCount()
    search: str = ""
    switch: VectorSwitch | None = None
    notices: tuple[str, ...] = ()


def group_overviews(store: Store, *, agent_id: str | None = None) -> list[GroupOverview]:
    """Return the groups that sessions or memory refer to, latest activity first.

    The host has no list of groups, so this reads all sessions of the agent.
    """
    agents: dict[str, set[str]] = defaultdict(set)
    facts, sessions = Counter[str](), defaultdict[str, list[Session]](list)
    for session in store.host.sessions(agent_id=agent_id):
        if session.group_id:
            sessions[session.group_id].append(session)
            agents[session.group_id].update(session.agents)
    for summary in store.memory.scopes(agent_id=agent_id, kinds=[ScopeKind.GROUP]):
        agents[summary.scope.owner].add(summary.scope.agent_id)
        facts[summary.scope.owner] += summary.facts
    return [
        GroupOverview(
            id=group,
            agents=tuple(sorted(agents[group])),
            users=tuple(sorted({user for session in sessions[group] for user in session.users})),
            sessions=len(sessions[group]),
            facts=facts[group],
            last_activity=next((each.last_activity for each in sessions[group]), None),
        )
        for group in dict.fromkeys([*sessions, *sorted(agents)])
    ]


def defaults_of(settings: Settings, kind: ScopeKind) -> ScopeSettings:
    """Return the configured settings of a kind of scope."""
    found: ScopeSettings = getattr(settings.scopes, kind.value)
    return found


def in_database(store: Store, settings: Settings) -> Settings:
    """Return the settings, with the platform's defaults if the platform uses the database."""
    return for_platform(settings) if store.database.is_beside_platform() else settings


def word_limit_of(
    store: Store,
    settings: Settings,
    scope: Scope,
    policy: Policy | ScopeSummary | None,
    text: Consolidation | None = None,
    *,
    stored: int = 0,
) -> int:
    """Return the maximum length of the scope's text in words.

    An explicit policy wins. In a database of the platform the limit stored with the text follows
    (``text``, or ``stored``), because the platform obeys it; elsewhere it is a copy of a setting.
    """
    own = policy.word_limit if policy is not None else None
    if own:
        return own
    kept = text.word_limit if text is not None else stored
    if kept > 0 and store.database.is_beside_platform():
        return kept
    return defaults_of(in_database(store, settings), scope.kind).word_limit


def slow_model_of(store: Store, settings: Settings, agent: Agent) -> str:
    """Return the configured model for the texts of an agent; premium owners have their own."""
    owner = store.host.user(agent.owner) if agent.owner else None
    llm = settings.llm
    return llm.premium_model if owner is not None and owner.is_premium else llm.slow_model


def most_words(word_limit: int) -> int:
    """Return the maximum length of a model's text: the limit, and the tolerated overflow."""
    return word_limit * (100 + OVERFLOW) // 100


def consolidate_at_of(
    store: Store, settings: Settings, scope: Scope, policy: Policy | ScopeSummary | None
) -> int:
    """Return the number of pending reflections after which the scope is due."""
    own = policy.consolidate_at if policy is not None else None
    return own or defaults_of(in_database(store, settings), scope.kind).consolidate_at


def why_not_due(policy: Policy | ScopeSummary | None, pending: int, threshold: int) -> str:
    """Return why a scope's pending reflections do not call for a new text; empty if they do."""
    if policy is not None and not policy.active:
        return "paused"
    if not pending:
        return "nothing_pending"
    return "" if pending >= threshold else "not_due"


def scope_statuses(
    store: Store,
    settings: Settings,
    *,
    agent_id: str | None = None,
    kinds: Sequence[ScopeKind] = (),
    user_ids: Sequence[str] | None = None,
    min_pending: int = 0,
    details: bool = False,
) -> Iterator[ScopeStatus]:
    """Yield all stored scopes with sizes and effective limits, by agent, kind and owner.

    Reads in batches. ``details`` adds the time of the oldest pending reflection, with two lookups
    per batch.
    """
    summaries = store.memory.scopes(
        agent_id=agent_id, kinds=kinds, user_ids=user_ids, min_pending=min_pending
    )
    for batch in batched(filterfalse(is_undone, summaries), _BATCH):
        oldest = _oldest_pending(store, batch) if details else {}
        for summary in batch:
            consolidate_at = consolidate_at_of(store, settings, summary.scope, summary)
            yield ScopeStatus(
                scope=summary.scope,
                facts=summary.facts,
                pending=summary.pending,
                consolidate_at=consolidate_at,
                due=not why_not_due(summary, summary.pending, consolidate_at),
                active=summary.active,
                version=summary.version,
                words=summary.words,
                word_limit=word_limit_of(
                    store, settings, summary.scope, summary, stored=summary.text_limit
                ),
                last_consolidated_at=summary.last_consolidated_at,
                oldest_pending_at=oldest.get(summary.scope),
            )


def is_undone(summary: ScopeSummary) -> bool:
    """Return whether a scope holds only a version number, as after an undo."""
    held = summary.facts or summary.pending or summary.words
    return bool(summary.version and not held and summary.active)


def pending_among(
    store: Store, buffers: Mapping[Scope, Sequence[str]]
) -> dict[Scope, tuple[Reflection, ...]]:
    """Return the reflections with these IDs that are pending in their scope, each once."""
    ids = [id for buffer in buffers.values() for id in buffer]
    known = store.memory.reflections_by_ids(ids) if ids else {}
    return {
        scope: tuple(
            known[id]
            for id in dict.fromkeys(buffer)
            if id in known and not known[id].absorbed and known[id].home == scope
        )
        for scope, buffer in buffers.items()
    }


def _oldest_pending(store: Store, summaries: Sequence[ScopeSummary]) -> dict[Scope, datetime]:
    waiting = [summary.scope for summary in summaries if summary.pending]
    texts = store.memory.consolidations(waiting).items()
    oldest = {scope: text.unabsorbed_ids[0] for scope, text in texts if text.unabsorbed_ids}
    found = store.memory.reflections_by_ids(list(oldest.values()))
    return {scope: found[id].formed_at for scope, id in oldest.items() if id in found}


def store_overview(
    store: Store,
    settings: Settings,
    *,
    agent_id: str | None = None,
    latest: int = 20,
) -> StoreOverview:
    """Return the overview of the store, with counts by agent, formations and vectors."""
    info = store.database.info()
    if not info.initialized:
        return StoreOverview(store=info)
    counts: dict[str, int] = {}
    unfinished: list[Formation] = []
    failed: list[Formation] = []
    for formation in store.formations.list_formations(
        agent_id=agent_id, statuses=(*UNFINISHED, FormationStatus.FAILED)
    ):
        counts[formation.status] = counts.get(formation.status, 0) + 1
        kept = failed if formation.status is FormationStatus.FAILED else unfinished
        if len(kept) < latest:
            kept.append(formation)
    ability = store.search.search_ability()
    models: Counter[str] = Counter()
    for count in store.vectors.vector_counts("", dimensions=None):
        models[count.model] += count.facts
    return StoreOverview(
        store=info,
        agents=tuple(_agent_overviews(store, settings, agent_id)),
        formations=counts,
        unfinished=tuple(unfinished),
        failed=tuple(failed),
        vector_models=dict(models),
        held=store.memory.count_held(agent_id=agent_id),
        search=ability.kind,
        switch=store.switches.vector_switch(),
        notices=(ability.notice,) if ability.notice else (),
    )


def _agent_overviews(
    store: Store, settings: Settings, agent_id: str | None
) -> Iterator[AgentOverview]:
    totals: dict[str, AgentOverview] = {
        agent.id: AgentOverview(agent_id=agent.id, username=agent.username)
        for agent in store.host.agents()
        if agent_id in (None, agent.id)
    }
    for status in scope_statuses(store, settings, agent_id=agent_id):
        owner = status.scope.agent_id
        so_far = totals.get(owner) or AgentOverview(agent_id=owner)
        totals[owner] = msgspec.structs.replace(
            so_far,
            scopes=so_far.scopes + 1,
            facts=so_far.facts + status.facts,
            pending=so_far.pending + status.pending,
            texts=so_far.texts + (status.version > 0),
            due=so_far.due + status.due,
        )
    yield from totals.values()


#: Maximum number of removals in one set of changes, which must fit into the record of a formation.
#: A large scope reaches a new limit in several steps.
MOST_REMOVALS = 1000


def fact_buffer_max_of(settings: Settings, scope: Scope, policy: Policy | None) -> int:
    """Return the maximum number of facts in a scope (0 = no limit)."""
    own = policy.fact_buffer_max if policy is not None else None
    return own if own is not None else defaults_of(settings, scope.kind).fact_buffer_max


def retention_changes(
    store: Store,
    scope: Scope,
    changeable: Sequence[Scope],
    maximum: int,
    changes: Sequence[Change],
    at: datetime,
) -> list[RemoveFact]:
    """Return the removals that keep a scope within its limit once ``changes`` are applied. Blocks.

    Facts that ``changes`` add or revise are the newest, and always stay. Beyond `MOST_REMOVALS`,
    the oldest facts are removed first, and the others with the next change.

    Args:
        store: The store.
        scope: The scope of the new facts.
        changeable: Scopes whose facts count: for a user, those of all active accounts.
        maximum: Maximum number of facts (0 = no limit).
        changes: The changes to apply.
        at: Time of the removals.
    """
    added = sum(isinstance(each, AddFact) and each.fact.home == scope for each in changes)
    if not maximum or not added:
        return []
    touched = {
        each.fact_id
        for each in changes
        if isinstance(each, ReviseFact | RemoveFact) and each.scope in changeable
    }
    revised = sum(isinstance(each, ReviseFact) and each.fact_id in touched for each in changes)
    room = max(maximum - added - revised, 0)
    newest_first = store.memory.facts(FactFilter(scopes=tuple(changeable)))
    untouched = (fact for fact in newest_first if fact.id not in touched)
    oldest = deque(islice(untouched, room, None), maxlen=MOST_REMOVALS)
    return [RemoveFact.of(fact, at, "retention") for fact in oldest]
