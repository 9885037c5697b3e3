"""No query that a store of a million facts would feel reads a whole table."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator

from edenmem.models.changes import AddFact, ReviseFact, SetPrivacy
from edenmem.models.formation import FormationStatus, UsageEntry
from edenmem.models.ids import new_id
from edenmem.models.scope import Scope
from edenmem.models.search import FactFilter, Question
from edenmem.store.sqlite import SqliteStore
from tests.support.builders import (
    NOW,
    ago,
    make_agent,
    make_fact,
    make_formation,
    make_messages,
    make_session,
    make_user,
    writing,
)
from tests.support.formations import Steps
from tests.support.memory import add_fact, add_reflection, applied, set_policy
from tests.support.vectors import random_unit

AGENT = make_agent("robin")
SCOPE = Scope.user(AGENT.id, new_id())

#: Tables that grow without bound. Walking one along an index is a scan too, unless a limit and
#: the order make it stop: `_IN_ORDER` names the indexes that are walked so.
_LARGE = (
    r"f|r|h|a|v|m|s|o|x|u|c|usage_entries|facts|reflections|history|audit|messages|sessions|formations"
    r"|formation_messages|vectors|vector_codes|scopes|session_members|consolidations|policies"
)
_IN_ORDER = {
    "consolidations_unpropagated",  # partial: nearly always empty
    "sessions_activity",
    "formations_time",
    "audit_time",
    "sqlite_autoindex_scopes_1",
    "sqlite_autoindex_agents_1",
}
_SCAN = re.compile(rf"SCAN ({_LARGE})\b(?: USING (?:COVERING )?INDEX (\w+))?")


def test_every_query_uses_an_index(sqlite_store: SqliteStore) -> None:
    statements: set[str] = set()
    with sqlite_store.connections.reading() as connection:
        connection.set_trace_callback(statements.add)
    run_everything(sqlite_store)
    with sqlite_store.connections.reading() as connection:
        connection.set_trace_callback(None)
        assert len(statements) > 60
        scans = [found for one in sorted(statements) for found in full_scans(connection, one)]
    assert scans == []


def full_scans(connection: sqlite3.Connection, statement: str) -> Iterator[tuple[str, str]]:
    if not re.match(r"SELECT|UPDATE|DELETE|INSERT OR", statement):
        return
    if re.match(r"SELECT count\(\*\) FROM \w+$", statement):  # `info` counts: it is asked to
        return
    for *_, detail in connection.execute(f"EXPLAIN QUERY PLAN {statement}"):
        found = _SCAN.match(detail)
        if found and found[2] not in _IN_ORDER:
            yield detail, statement


def run_everything(store: SqliteStore) -> None:
    session = make_session([AGENT], [new_id()], group_id=new_id(), name="talk")
    store.host.add_agent(AGENT)
    store.host.add_user(make_user("anna"))
    store.host.put_session(session)
    messages = make_messages(session, 6)
    store.host.add_messages(session.id, messages)
    facts = [
        add_fact(
            store,
            SCOPE,
            f"Anna number {n}",
            session_id=session.id,
            embedding=random_unit(n),
            embedding_model="m",
        )
        for n in range(3)
    ]
    reflections = [add_reflection(store, SCOPE, f"thought {n}") for n in range(3)]
    set_policy(store, SCOPE)
    applied(
        store,
        ReviseFact(scope=SCOPE, fact_id=facts[0].id, expected_version=1, content="x", at=NOW),
        SetPrivacy(scope=SCOPE, target_type="fact", target_id=facts[1].id, private=True, at=NOW),
        AddFact(fact=make_fact(SCOPE)),
        writing(SCOPE, "text", word_limit=9, absorbed_ids=(reflections[0].id,)),
    )
    filters = (
        FactFilter(scopes=(SCOPE,)),
        FactFilter(scopes=(SCOPE,), since=ago(days=1), until=NOW, session_id=session.id),
    )
    for filter in filters:
        list(store.memory.facts(filter, with_vectors=True))
        for exact in (True, False):
            store.search.candidates(
                filter,
                [Question("anna numbr", random_unit(1))],
                ["semantic", "text"],
                model="m",
                limit=2,
                exact=exact,
            )
    store.memory.recent_facts([SCOPE], since=ago(days=1), limit=5, live_at=NOW)
    store.memory.facts_by_ids([SCOPE], [facts[0].id])
    store.memory.facts_by_hashes(SCOPE, [facts[0].hash])
    store.memory.fact(facts[0].id)
    store.search.track_access([facts[0].id], NOW)
    store.vectors.vector_models([SCOPE])
    store.vectors.vector_model_names([SCOPE])
    store.vectors.first_vector_model()
    store.vectors.vector_counts("m", dimensions=9)
    store.vectors.vector_counts("m", dimensions=9, agent_id=AGENT.id)
    list(store.vectors.stale_facts("n", dimensions=9))
    list(store.vectors.stale_facts("n", dimensions=9, agent_id=AGENT.id))
    store.vectors.set_vectors({facts[1].id: (facts[1].hash, random_unit(5))}, model="m")
    for absorbed in (None, True, False):
        list(store.memory.reflections([SCOPE], absorbed=absorbed, before=NOW))
    store.memory.pending(SCOPE)
    store.memory.consolidations([SCOPE])
    store.memory.policies([SCOPE])
    store.memory.shards(AGENT.id)
    store.memory.revisions([SCOPE])
    list(store.memory.scopes())
    list(store.memory.scopes(agent_id=AGENT.id, kinds=[SCOPE.kind]))
    list(store.memory.scopes(user_ids=[SCOPE.owner], min_pending=1))
    store.history.versions("fact", facts[0].id)
    store.history.versions("consolidation", "", scope=SCOPE)
    store.history.facts_at([SCOPE], ago(hours=1), limit=5)
    store.host.senders(session.id)
    store.memory.find_unpropagated()
    store.memory.find_unpropagated(agent_id=AGENT.id)
    store.changes.settle_propagation(SCOPE, 1)
    store.usage.add_usage(UsageEntry(id=new_id(), at=NOW, agent_id=AGENT.id, work="x", calls=()))
    store.usage.usage_by_day()
    store.usage.usage_by_day(agent_id=AGENT.id, since=NOW)
    store.history.pending_at(SCOPE, ago(hours=1))
    list(store.log.audit())
    list(store.log.audit(agent_id=AGENT.id, limit=2))
    list(store.log.audit(target_id=facts[0].id))
    list(store.log.audit(scope=SCOPE, since=ago(days=1)))
    list(store.log.audit(run_id=new_id(), until=NOW))
    list(store.log.audit(actor="anna", command="fact", actions=["add_fact"]))
    store.log.audit_entries([new_id()])
    for key in ("entry", "target", "run"):
        store.log.find_audited(key, facts[0].id)
    list(store.host.sessions())
    list(store.host.sessions(agent_id=AGENT.id, limit=3))
    store.host.session(session.id)
    list(store.host.messages(session.id))
    list(store.host.messages(session.id, newest=2))
    list(store.host.messages(session.id, ids=[messages[0].id]))
    store.formations.backlog(session.id, AGENT.id, limit=3)
    formation = make_formation(session, messages[:3])
    assert store.formations.claim(formation)
    Steps(store).claim(formation.id, worker="worker-1", now=NOW, lease_until=NOW)
    Steps(store).record(formation.id)
    Steps(store).apply(formation.id, now=NOW)
    Steps(store).retry(formation.id, now=NOW)
    list(store.formations.list_formations())
    list(store.formations.list_formations(session_id=session.id))
    list(store.formations.list_formations(session_id=session.id, agent_id=AGENT.id))
    list(store.formations.list_formations(agent_id=AGENT.id, statuses=[FormationStatus.APPLIED]))
    for kind in ("agent", "user", "session", "fact", "reflection", "formation"):
        store.host.find(kind, "anna")
        store.host.find(kind, facts[0].id[:6])
        store.host.find(kind, facts[0].id)
    store.contexts.find_context(session.id, AGENT.id)
