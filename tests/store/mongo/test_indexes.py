"""Every query that the store makes is served by an index, as ``explain`` tells."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, get_args

import msgspec
import pytest
from pymongo.monitoring import CommandListener

from edenmem.models import backup
from edenmem.models.changes import (
    AddAgent,
    AddFact,
    AddReflection,
    AddUser,
    RemoveAgent,
    RemoveFact,
    RemovePolicy,
    RemoveReflection,
    RemoveUser,
    RepairBuffer,
    RestoreReflection,
    RevertConsolidation,
    ReviseFact,
    ReviseReflection,
    SetAgentToggles,
    SetPrivacy,
    WriteConsolidation,
    WritePolicy,
)
from edenmem.models.formation import FormationStatus, Reach, UsageEntry
from edenmem.models.host import CachedContext
from edenmem.models.ids import new_id
from edenmem.models.integrity import PresenceKind, RecordKind
from edenmem.models.memory import Fact
from edenmem.models.migration import MigrationRun
from edenmem.models.scope import Scope, ScopeKind
from edenmem.models.search import FactFilter
from edenmem.models.switch import SwitchPhase, VectorSwitch
from edenmem.store.mongo import MongoStore
from edenmem.store.mongo.core import collections
from edenmem.store.protocol.formations import Formations
from edenmem.store.protocol.store import Store
from tests.store.mongo.conftest import OpenMongo
from tests.support.builders import (
    ACTOR,
    NOW,
    ago,
    change_set,
    make_agent,
    make_fact,
    make_formation,
    make_messages,
    make_policy,
    make_reflection,
    make_session,
    make_user,
)
from tests.support.forgetting import fill, forget, make_town
from tests.support.vectors import random_unit

LATER = NOW + timedelta(hours=1)

#: Conditions that may be checked on what an index has narrowed down already. SecantusDB's
#: ``explain`` names an index only if it covers the whole filter, though like MongoDB it uses one
#: that covers a part; so these, and no others, are left out if the whole filter is not covered.
RESIDUAL = {
    "users3": {"deleted", "eden_user_id", "owner"},
    "sessions": {"deleted", "users", "group_id", "memory_context.cached_memory_context"},
    "messages": {"sender", "role", "trigger"},
    "memory2_facts": {
        "session_id",
        "formed_at",
        "updated_at",
        "embedding_model",
        "embedding",
        "embedding.0",
        "embedding_next_model",
        "$expr",
        "user_id",
        "group_id",
        "shard",
    },
    "memory2_reflections": {"absorbed", "formed_at", "user_id", "group_id", "shard", "session_id"},
    "memory2_consolidated": {"user_id", "group_id", "shard", "session_id"},
    "memory2_policies": {"user_id", "version"},
    "memory2_history": {"action", "agent_id", "scope", "owner"},
    "memory2_audit": {"agent_id", "action", "actor.command", "status", "$or"},
    "memory2_formations": {"status", "agent_id", "$or"},
}

#: What a filter must keep when residual conditions are left out: never an agent's or a kind's
#: whole share of a collection where the owner is known.
ANCHORS = {
    "messages": ({"session"}, {"sender"}),
    "memory2_facts": ({"agent_id", "scope"}, {"embedding_model"}),
    "memory2_reflections": ({"agent_id", "scope"},),
    "memory2_consolidated": ({"agent_id", "scope"},),
}


class Watcher(CommandListener):
    """Keeps the filter and sort of every command that reads or changes documents."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = []
        self.commands = 0

    def started(self, event: Any) -> None:
        self.commands += 1
        command = dict(event.command)
        name = event.command_name
        collection = str(command.get(name))
        for filter, sort in _filters(name, command):
            self.seen.append((name, collection, dict(filter), dict(sort)))

    def succeeded(self, event: Any) -> None:
        """Nothing to see."""

    def failed(self, event: Any) -> None:
        """Nothing to see."""


def _filters(
    name: str, command: Mapping[str, Any]
) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    match name:
        case "find":
            yield command["filter"], command.get("sort", {})
        case "findAndModify":
            yield command["query"], {}
        case "update":
            for update in command["updates"]:
                yield update["q"], {}
        case "delete":
            for delete in command["deletes"]:
                yield delete["q"], {}
        case "aggregate":
            first = command["pipeline"][0]
            if "$listSearchIndexes" not in first:  # which reads no documents
                yield first.get("$match", {}), {}
        case "distinct":
            yield command.get("query") or {command["key"]: {"$gte": ""}}, {}
        case "count" if command.get("query"):
            yield command["query"], {}


def _explained(
    database: Any, collection: str, filter: dict[str, Any], sort: dict[str, Any]
) -> bool:
    """Whether the server says that an index serves the query."""
    command = {"find": collection, "filter": filter}
    if sort:
        command["sort"] = sort
    plan = database.command("explain", command, verbosity="queryPlanner")
    return "COLLSCAN" not in str(plan["queryPlanner"]["winningPlan"])


def _is_served(
    database: Any, collection: str, filter: dict[str, Any], sort: dict[str, Any]
) -> bool:
    if "_id" in filter:
        return True
    # A name in any case walks all names in the index, not the documents.
    filter = {
        field: {"$gte": ""} if isinstance(value, dict) and "$regex" in value else value
        for field, value in filter.items()
    }
    # MongoDB seeks each of several agents in an index that begins with the agent; ``explain`` of
    # the tests' server does not.
    agents = filter.get("agent_id")
    if isinstance(agents, dict) and len(agents.get("$in", ())) > 0:
        filter["agent_id"] = agents["$in"][0]
    if _explained(database, collection, filter, sort):
        return True
    known = RESIDUAL.get(collection, set())
    residual = [f for f in filter if f in known or f.startswith("edenmem_contexts.")]
    while residual:
        filter.pop(residual.pop())
        anchors = ANCHORS.get(collection)
        if anchors is not None and not any(anchor <= filter.keys() for anchor in anchors):
            return False
        if filter and _explained(database, collection, filter, sort):
            return True
    return False


@pytest.fixture
def watched(open_mongo: OpenMongo) -> tuple[MongoStore, Watcher]:
    watcher = Watcher()
    store = open_mongo(listeners=(watcher,))
    store.initialise()
    watcher.seen.clear()
    return store, watcher


def _use_migrations(store: Store) -> None:
    run_id = new_id()
    run = MigrationRun(
        id=run_id,
        source="a folder",
        actor=ACTOR,
        started_at=NOW,
        updated_at=NOW,
    )
    store.schema()
    store.migrate_down(store.schema()[-1].number)  # nothing: steps have queries of their own
    store.migrate_up()
    store.take_migration_lease(run_id, now=NOW, until=LATER)
    store.put_migration_run(run)
    store.migration_run(run_id)
    store.migration_runs()
    store.reflections_by_ids([run_id])
    store.end_migration_lease(run_id)


def _use_everything(store: Store) -> None:
    """Call every public method, with scopes of every kind and every option that makes a query."""
    agent, other, user = make_agent("eve"), make_agent("adam"), make_user("anna")
    store.info()
    _use_migrations(store)
    for added in (agent, other):
        store.add_agent(added)
    store.add_user(user)
    list(store.agents())
    list(store.users())
    store.agent(agent.id)
    store.user(user.id)
    store.users_by_ids([user.id, new_id()])

    session = make_session([agent, other], [user], name="garden", title="Garden", group_id="g")
    store.put_session(session)
    store.put_session(session)
    for named in ({}, {"agent_id": agent.id}, {"user_id": user.id}, {"group_id": "g"}):
        list(store.sessions(**named))
    list(store.sessions(agent_id=agent.id, user_id=user.id, group_id="g", limit=3))
    store.session(session.id)
    store.set_session_status(session.id, "paused")
    messages = make_messages(session, 6)
    store.add_messages(session.id, messages)
    list(store.messages(session.id))
    list(store.messages(session.id, newest=2))
    store.senders(session.id)
    list(store.messages(session.id, ids=[messages[0].id]))

    scopes = (
        Scope.agent(agent.id),
        Scope.agent(other.id),
        Scope.shard(agent.id, "lore"),
        Scope.group(agent.id, "g"),
        Scope.user(agent.id, user.id),
        Scope.user(agent.id, new_id()),
        Scope.session(agent.id, session.id),
        Scope.session(agent.id, new_id()),
    )
    for scope in scopes:
        _change_everything(store, scope, agent.id)
    _read_everything(store, scopes, agent.id)

    formation = make_formation(session, messages[:4])
    store.claim(formation)
    store.renew(formation.id, worker="worker-1", lease_until=LATER)
    store.release(formation.id, worker="worker-1", now=NOW)
    store.reclaim(formation.id, worker="worker-2", now=NOW, lease_until=LATER)
    changes = change_set(AddFact(fact=make_fact(scopes[0], "Formed.")))
    outcome: dict[str, Any] = {"decisions": (), "usage": (), "counts": {}}
    store.record(formation.id, worker="worker-2", changes=changes, now=NOW, **outcome)
    store.apply_formation(formation.id, now=NOW)
    failing = make_formation(session, messages[4:], seq=2)
    store.claim(failing)
    store.fail(failing.id, worker="worker-1", now=NOW, error="no")
    store.retry(failing.id, now=NOW)
    store.formation(formation.id)
    store.backlog(session.id, agent.id, limit=2)
    store.backlog(session.id, other.id, limit=2, reach=Reach.FROM_START)
    store.supersede(formation.id, now=NOW)
    of_session, of_agent = {"session_id": session.id}, {"agent_id": agent.id}
    for named in ({}, of_session, of_agent, of_session | of_agent):
        list(store.formations(**named))
        list(store.formations(**named, statuses=[FormationStatus.APPLIED], limit=1))

    context = CachedContext(xml="<x/>", fingerprint="f", built_at=NOW)
    for each in (agent, other):
        store.cache_context(session.id, each.id, context)
        store.find_context(session.id, each.id)
    for kind in ("agent", "user", "session", "fact", "reflection", "formation"):
        store.find(kind, "No such name")
        store.find(kind, "abcd")
        store.find(kind, new_id())
        store.beginning_with(kind, "abcd", limit=20)
    _back_up(store, agent.id, user.id)


def _back_up(store: Store, agent_id: str, user_id: str) -> None:
    """Dump everything, in every selection, and load it where it is."""
    kinds = tuple(backup.RecordKind)
    for selection in (
        backup.Selection(),
        backup.Selection(agent_ids=(agent_id,), member_ids=(user_id,), account_ids=(user_id,)),
        backup.Selection(user_ids=(user_id,)),
        backup.Selection(kinds=(ScopeKind.USER, ScopeKind.AGENT)),
    ):
        records = list(store.dump(kinds, selection))
    for kind in kinds:
        store.load(kind, [record for one, record in records if one is kind])


def _change_everything(store: Store, scope: Scope, agent_id: str) -> None:
    facts = [
        make_fact(scope, f"fact {n}", embedding=random_unit(n, 4), embedding_model="m")
        for n in range(3)
    ]
    reflections = [make_reflection(scope, f"thought {n}") for n in range(4)]
    same = {"scope": scope, "at": LATER}
    changes = change_set(
        *(AddFact(fact=fact) for fact in facts),
        AddFact(fact=make_fact(scope, "fact 0")),
        *(AddReflection(reflection=reflection, word_limit=9) for reflection in reflections),
        ReviseFact(fact_id=facts[0].id, expected_version=1, content="revised", **same),
        ReviseFact(fact_id=facts[1].id, expected_version=1, content="revised", **same),
        RemoveFact(fact_id=facts[2].id, expected_version=1, **same),
        SetPrivacy(target_type="fact", target_id=facts[0].id, private=True, **same),
        ReviseReflection(
            reflection_id=reflections[0].id, expected_version=1, content="again", **same
        ),
        RemoveReflection(reflection_id=reflections[1].id, expected_version=1, **same),
        WriteConsolidation(
            expected_version=0,
            content="One.",
            word_limit=9,
            absorbed_ids=(reflections[2].id,),
            **same,
        ),
        WriteConsolidation(expected_version=1, content="Two.", word_limit=9, **same),
        WriteConsolidation(expected_version=1, content="Late.", word_limit=9, **same),
        WritePolicy(policy=make_policy(scope), expected_version=0, at=LATER),
        SetAgentToggles(agent_id=agent_id, at=LATER, user_memory_enabled=True),
        AddFact(fact=facts[2]),
        RevertConsolidation(
            expected_version=2,
            content="",
            word_limit=9,
            released_ids=(reflections[2].id,),
            reverted_versions=(1,),
            **same,
        ),
        RestoreReflection(
            reflection=msgspec.structs.replace(reflections[1], version=2), word_limit=9
        ),
        RepairBuffer(**same),
        RemovePolicy(expected_version=1, **same),
        AddUser(user=(user := make_user(new_id()))),
        RemoveUser(user_id=user.id),
        AddAgent(agent=(agent := make_agent(new_id()))),
        RemoveAgent(agent_id=agent.id),
    )
    store.apply(changes)
    store.apply(changes)


def _read_everything(store: Store, scopes: tuple[Scope, ...], agent_id: str) -> None:
    store.refusal(make_session([agent_id], owner=None))
    plain = FactFilter(scopes=scopes)
    narrow = FactFilter(scopes=scopes, since=ago(days=9), until=LATER, session_id=new_id())
    for filter in (plain, narrow):
        list(store.facts(filter))
        list(store.facts(filter, with_vectors=True, limit=1))
        store.semantic_candidates(filter, [random_unit(1, 4)], model="m", limit=3)
        store.text_candidates(filter, ["fact"], limit=3)
    store.vector_models()
    store.vector_models(scopes)
    store.recent_facts(scopes, since=ago(days=9), limit=5)
    for named in ({}, {"agent_id": agent_id}):
        store.vector_counts("m", dimensions=4, **named)
        list(store.stale_facts("m", dimensions=4, **named))
        list(store.stale_facts("n", dimensions=4, **named))
    store.unsearchable(scopes, model="m")
    store.vector_model_names(scopes)
    ids = [fact.id for fact in store.facts(plain)]
    store.fact(ids[0], with_vector=True)
    store.facts_by_ids(scopes, ids)
    store.track_access(ids, LATER)
    store.set_vectors({ids[0]: ("hash", random_unit(1, 4))}, model="m")
    for scope in scopes:
        store.facts_by_hashes(scope, ["a", "b"])
        store.pending(scope)
        store.history("consolidation", "", scope=scope)
        store.consolidation_at(scope, NOW)
        store.pending_at(scope, NOW)
    store.history("fact", ids[0])
    store.facts_at(scopes, NOW, limit=9)
    for absorbed in (None, True, False):
        list(store.reflections(scopes, absorbed=absorbed, before=LATER, limit=3))
    (reflection, *_) = store.reflections(scopes)
    store.reflection(reflection.id)
    store.consolidations(scopes)
    store.policies(scopes)
    store.revisions(scopes)
    store.shards(agent_id)
    list(store.scopes())
    list(
        store.scopes(agent_id=agent_id, kinds=[ScopeKind.USER], user_ids=[new_id()], min_pending=1)
    )
    entries = list(store.audit())
    list(store.audit(agent_id=agent_id, limit=1))
    list(store.audit(agent_id=agent_id, target_id=ids[0]))
    list(store.audit(target_id=ids[0]))
    store.audit_entry(entries[0].id)
    store.audit_entries([entry.id for entry in entries])
    for named in (
        {},
        {"scope": scopes[0]},
        {"run_id": new_id()},
        {"actor": "anna"},
        {"command": "fact edit"},
        {"actions": ["add_fact", "remove_fact"]},
    ):
        list(store.audit(**named, limit=2))
        list(store.audit(**named, since=ago(days=9), until=LATER))
    for key in ("entry", "target", "run"):
        store.find_audited(key, entries[0].id[:6])
    store.search_ability()
    store.preparation()
    store.demand_formable(scopes, model="m", dimensions=4)
    for named in ({}, {"agent_id": agent_id}):
        store.find_unpropagated(**named)
        store.usage(**named, since=ago(days=7))
    store.usage()
    store.settle_propagation(scopes[0], 1)
    list(store.quiet_sessions(before=LATER, rules=None))
    for quiet in store.quiet_sessions(before=LATER, rules="r"):
        store.settle(quiet.session.id, seen=quiet.seen, rules="r")
    list(store.quiet_sessions(before=LATER, rules="r"))
    store.add_usage(UsageEntry(id=new_id(), at=NOW, agent_id=agent_id, work="x", calls=()))
    _look_at_integrity(store, scopes, ids)
    _switch_models(store, scopes, ids)


def _switch_models(store: Store, scopes: Sequence[Scope], fact_ids: Sequence[str]) -> None:
    switch = VectorSwitch(model="next", dimensions=6, previous="m", begun_at=NOW)
    store.begin_switch(switch)
    vectors = {id: (fact.hash, random_unit(1, 6)) for id, fact in _facts(store, fact_ids).items()}
    store.set_vectors(vectors, model="next", staged=True)
    store.vector_counts("next", dimensions=6)
    list(store.stale_facts("next", dimensions=6))
    store.unsearchable(scopes, model="next")
    for filter in (FactFilter(scopes=tuple(scopes)), FactFilter(scopes=tuple(scopes), since=NOW)):
        store.semantic_candidates(filter, [random_unit(1, 6)], model="next", limit=3, prepared=True)
    store.vectors_of(fact_ids, model="next")
    store.switch_index()
    store.finds_vectors("next")
    phases: tuple[SwitchPhase, ...] = ("filling", "switched", "settling", "clearing")
    for before, after in itertools.pairwise(phases):
        store.move_switch("next", before=before, after=after, at=LATER)
        list(store.settle_vectors())
    store.drop_switch_index()
    list(store.clear_staged())
    assert store.end_switch("next")


def _facts(store: Store, fact_ids: Sequence[str]) -> dict[str, Fact]:
    found = {fact_id: store.fact(fact_id) for fact_id in fact_ids}
    return {fact_id: fact for fact_id, fact in found.items() if fact is not None}


def _look_at_integrity(store: Store, scopes: Sequence[Scope], fact_ids: Sequence[str]) -> None:
    for named in ({}, {"agent_id": scopes[0].agent_id}):
        for kind in get_args(RecordKind):
            list(store.records(kind, **named))
        for look in (
            store.twins,
            store.find_shared_messages,
            store.vector_faults,
            store.find_lost_progress,
        ):
            list(look(**named))
    for kind in get_args(PresenceKind):
        store.present(kind, [new_id(), *fact_ids])
    store.people_of([session.id for session in store.sessions()])
    store.buffers(scopes)
    for target_type in ("fact", "consolidation"):
        store.list_versions(target_type, fact_ids)
    for mistrust in (store.file_faults, store.stray_contexts, store.miscounts):
        list(mistrust())
    for scope in scopes:
        store.finish_absorbing(scope)
    store.drop_vectors(fact_ids[:1])
    store.drop_contexts([(new_id(), new_id())])
    store.recount()
    store.mend_schema()


class Recorder:
    """A store that tells which of its methods were called."""

    def __init__(self, store: MongoStore) -> None:
        self._store = store
        self.called: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self.called.add(name)
        return getattr(self._store, name)


@pytest.mark.slow
def test_every_query_is_served_by_an_index(watched: tuple[MongoStore, Watcher]) -> None:
    """A method that is added to the protocol is added to `_use_everything`, too."""
    store, watcher = watched
    recorder: Any = Recorder(store)
    _use_everything(recorder)
    public = {
        name
        for protocol in (Store, Formations)
        for name, member in vars(protocol).items()
        if not name.startswith("_") and callable(member)
    }
    # The exchange of an index and what the platform would delete go through all facts, on request.
    on_request = {"replace_index", "platform_conflicts"}
    assert public - recorder.called <= {"close", "initialise"} | on_request
    seen = list(watcher.seen)
    assert {collection for _, collection, _, _ in seen} >= {
        *(set(collections.OURS) - {collections.MIGRATIONS}),
        "users3",
        "sessions",
        "messages",
    }
    assert {name for name, *_ in seen} >= {
        "find",
        "aggregate",
        "update",
        "delete",
        "findAndModify",
        "distinct",
    }
    scans = _scans(store, seen)
    assert not scans, "\n".join(scans)


def _scans(store: MongoStore, seen: Sequence[tuple[str, str, Any, Any]]) -> list[str]:
    checked: set[str] = set()
    scans: list[str] = []
    for name, collection, filter, sort in seen:
        shape = f"{name} {collection} {_shape(filter)} {list(sort)}"
        if shape not in checked:
            checked.add(shape)
            if not _is_served(store._database, collection, filter, sort):
                scans.append(shape)
    return scans


@pytest.mark.slow
def test_forgetting_is_served_by_indexes(watched: tuple[MongoStore, Watcher]) -> None:
    """Whoever is forgotten, nothing is found or removed by reading a whole collection, except for
    the one look at every text, which walks the ids."""
    store, watcher = watched
    town = make_town(store)
    fill(town)
    watcher.seen.clear()
    forget(store, user="zenobia", agent="adam")
    forget(store, session="balcony")
    forget(store, user="zenobia")
    forget(store, group="harbour", agent="eve")
    forget(store, agent="eve")
    scans = _scans(store, watcher.seen)
    assert not scans, "\n".join(scans)


def test_the_check_finds_a_scan(watched: tuple[MongoStore, Watcher]) -> None:
    """The test above would fail if a query had no index."""
    store, _ = watched
    database = store._database
    assert not _is_served(database, "memory2_facts", {"content": "x"}, {})
    assert not _is_served(database, "memory2_facts", {"scope": "user"}, {})
    assert not _is_served(database, "memory2_facts", {}, {})
    assert not _is_served(database, "sessions", {"deleted": {"$ne": True}}, {})
    assert not _is_served(database, "memory2_facts", {"agent_id": new_id(), "group_id": 1}, {})


def _shape(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _shape(inner) for key, inner in value.items()}
    return type(value).__name__
