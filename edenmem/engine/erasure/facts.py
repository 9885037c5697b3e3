"""Read what the store knows about facts to forget, current or deleted.

Read-only; all functions block.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from edenmem.models.changes import merged_into
from edenmem.models.forgetting import FORGOTTEN, list_texts, origin_in
from edenmem.models.memory import Fact
from edenmem.models.scope import Scope
from edenmem.store.protocol.store import Store


class FactTraces(msgspec.Struct, frozen=True, kw_only=True):
    """What facts and their past reveal: texts of all versions, sources, scopes and agents.

    ``facts`` includes the facts that were merged into them.
    """

    facts: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
    homes: tuple[Scope, ...] = ()
    agents: tuple[str, ...] = ()


def trace_facts(store: Store, fact_ids: Iterable[str]) -> FactTraces:
    """Return the traces of facts, and of those merged into them, in documents, history and log.

    Facts without recorded source messages count as formed from all messages of their formation.

    Raises:
        DocumentDamaged: an entry of the log is unreadable.
    """
    texts: dict[str, None] = {}
    messages: dict[str, None] = {}
    sessions: dict[str, None] = {}
    homes: dict[Scope, None] = {}
    agents: dict[str, None] = {}
    merges: dict[Scope, dict[str, list[str]]] = {}  # each scope is read once, for all facts
    facts = dict.fromkeys(fact_ids)
    waiting = list(facts)
    while waiting:
        fact_id = waiting.pop()
        fact = store.memory.fact(fact_id)
        versions = store.history.versions("fact", fact_id)
        entries = list(store.log.audit(target_id=fact_id))
        documents = [document for entry in entries for document in (entry.before, entry.after)]
        known = (fact, *(version.snapshot for version in versions))
        documents += [msgspec.structs.asdict(each) for each in known if each is not None]
        texts |= dict.fromkeys(list_texts(*documents))
        texts |= dict.fromkeys(version.content for version in versions)
        origins = [origin_in(document) for document in documents]
        found = {id for origin in origins for id in origin.source_message_ids}
        messages |= dict.fromkeys(sorted(found) or _formed_from(store, known))
        sessions |= {origin.session_id: None for origin in origins if origin.session_id}
        scopes = [*(version.scope for version in versions), *(entry.scope for entry in entries)]
        own = {scope: None for scope in scopes if scope is not None}
        homes |= own
        for scope in own:
            if scope not in merges:
                merges[scope] = _list_merges(store, scope)
            merged = [
                id
                for id in merges[scope].get(fact_id, ())
                if id not in facts and store.memory.fact(id) is None  # else it was restored
            ]
            facts |= dict.fromkeys(merged)
            waiting += dict.fromkeys(merged)
        agents |= {entry.agent_id: None for entry in entries if entry.agent_id}
    agents |= {scope.agent_id: None for scope in homes}
    # A fact that was revised or merged has sources in further sessions.
    sources = store.host.messages_by_ids(tuple(messages))
    sessions |= dict.fromkeys(message.session_id for message in sources)
    return FactTraces(
        facts=tuple(facts),
        texts=tuple(text for text in texts if text.strip() and text != FORGOTTEN),
        messages=tuple(messages),
        sessions=tuple(sessions),
        homes=tuple(homes),
        agents=tuple(sorted(agents)),
    )


def _list_merges(store: Store, scope: Scope) -> dict[str, list[str]]:
    """Return the facts of a scope that were merged into another one, by that fact."""
    merges: dict[str, list[str]] = {}
    for entry in store.log.audit(scope=scope, actions=("remove_fact",)):
        if kept := merged_into(entry.reason):
            merges.setdefault(kept, []).append(entry.target_id)
    return merges


def _formed_from(store: Store, facts: Iterable[Fact | None]) -> tuple[str, ...]:
    for fact in facts:
        if fact is not None and fact.formation_id:
            formation = store.formations.formation(fact.formation_id)
            if formation is not None:
                return (*formation.message_ids, *formation.superseded_message_ids)
    return ()
