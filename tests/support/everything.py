"""Every method of a store, called with all that makes a query of its own."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, get_args

import msgspec

from edenmem.engine.formation.sharing import drop_proof, note_proof
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
from edenmem.models.embeddings import VectorSwitch
from edenmem.models.formation import FormationStatus, Reach, UsageEntry
from edenmem.models.host import CachedContext
from edenmem.models.ids import new_id
from edenmem.models.integrity import PresenceKind
from edenmem.models.memory import Fact, FailedDrafts
from edenmem.models.migration import MigrationRun
from edenmem.models.scope import Scope, ScopeKind
from edenmem.models.search import FactFilter, Question
from edenmem.models.told import Reply, Shown, make_note
from edenmem.store.protocol.store import Store
from tests.support.backup import dump
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
    some,
)
from tests.support.formations import Steps
from tests.support.vectors import begin, end, enter, random_unit

LATER = NOW + timedelta(hours=1)


def _use_migrations(store: Store) -> None:
    run_id = new_id()
    run = MigrationRun(id=run_id, source="a folder", actor=ACTOR, started_at=NOW, updated_at=NOW)
    store.migrations.schema()
    store.migrations.migrate_down(
        store.migrations.schema()[-1].number
    )  # nothing: steps have separate queries
    store.migrations.migrate_up()
    store.migrations.take_migration_lease(run_id, now=NOW, until=LATER)
    store.migrations.put_migration_run(run)
    store.migrations.migration_runs()
    store.memory.reflections_by_ids([run_id])
    store.migrations.end_migration_lease(run_id)


def use_everything(store: Store, *, daily: bool = False) -> None:
    """Call every public method, with scopes of every kind and every option that makes a query.

    ``daily``: not those that read everything on request.
    """
    agent, other, user = make_agent("eve"), make_agent("adam"), make_user("anna")
    if not daily:
        store.database.info()
        _use_migrations(store)
    for added in (agent, other):
        store.host.add_agent(added)
    store.host.add_user(user)
    list(store.host.agents())
    list(store.host.users())
    store.host.agent(agent.id)
    store.host.user(user.id)
    store.host.users_by_ids([user.id, new_id()])
    store.host.users_named(user.username)

    session = make_session([agent, other], [user], name="garden", title="Garden", group_id="g")
    store.host.put_session(session)
    store.host.put_session(session)
    for named in ({}, {"agent_id": agent.id}, {"user_id": user.id}, {"group_id": "g"}):
        list(store.host.sessions(**named))
    list(store.host.sessions(agent_id=agent.id, user_id=user.id, group_id="g", limit=3))
    store.host.session(session.id)
    store.host.sessions_by_ids([session.id, new_id()])
    messages = make_messages(session, 6)
    store.host.add_messages(session.id, messages)
    shown = Shown("fact", new_id(), 1, Scope.user(agent.id, user.id))
    reply = Reply(at=NOW, kind="search", agent_id=agent.id, session_id=session.id, user_id=user.id)
    note = some(make_note(reply, found=[shown]))
    store.told.add([note])
    store.told.lists(note.reply.lists)
    for filters in (
        {"session_id": session.id},
        {"agent_id": agent.id},
        {"agent_id": agent.id, "user_ids": [user.id]},
        {"agent_id": agent.id, "user_ids": [user.id], "session_id": session.id},
        {"keys": [shown.id]},
        {"keys": [shown.id], "agent_id": agent.id, "user_ids": [user.id]},
        {"reply_id": note.reply.id},
    ):
        store.told.replies(**filters)
    store.told.prune(NOW)
    store.host.put_message(messages[0])
    list(store.host.messages(session.id))
    list(store.host.messages(session.id, newest=2))
    store.host.senders(session.id)
    list(store.host.messages(session.id, ids=[messages[0].id]))
    list(store.host.messages_by_ids([messages[0].id]))

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
    ids = _read_everything(store, scopes, agent.id)

    formation = make_formation(session, messages[:4])
    store.formations.claim(formation)
    Steps(store).renew(formation.id, worker="worker-1", lease_until=LATER)
    Steps(store).release(formation.id, worker="worker-1", now=NOW)
    Steps(store).claim(formation.id, worker="worker-2", now=NOW, lease_until=LATER)
    Steps(store).narrow(
        formation.id,
        worker="worker-2",
        message_ids=[each.id for each in messages[:3]],
        last_message_at=messages[2].created_at,
        now=NOW,
    )
    changes = change_set(AddFact(fact=make_fact(scopes[0], "Formed.")))
    outcome: dict[str, Any] = {"decisions": (), "usage": (), "counts": {}}
    Steps(store).record(formation.id, worker="worker-2", changes=changes, **outcome)
    Steps(store).apply(formation.id, now=NOW)
    failing = make_formation(session, messages[4:], seq=2)
    store.formations.claim(failing)
    Steps(store).fail(failing.id, worker="worker-1", now=NOW, error="no")
    Steps(store).retry(failing.id, now=NOW)
    store.formations.formation(formation.id)
    store.formations.backlog(session.id, agent.id, limit=2)
    store.formations.backlog(session.id, other.id, limit=2, reach=Reach.FROM_START)
    store.formations.proof(session.id, agent.id)
    store.formations.find_blocked([messages[5].id])
    pair = (store.formations, session.id, agent.id)
    note_proof(*pair, [messages[5].id], NOW)
    note_proof(*pair, [messages[4].id], NOW)
    drop_proof(*pair, [messages[4].id], NOW)
    store.formations.platform_memory_at(since=NOW)
    for latest in (None, 5):
        list(store.formations.find_readings(latest=latest))
    list(store.host.find_lost_progress(since=NOW))
    store.formations.advance_cursor(session.id)
    Steps(store).supersede(formation.id, now=NOW)
    of_session, of_agent = {"session_id": session.id}, {"agent_id": agent.id}
    for named in ({}, of_session, of_agent, of_session | of_agent):
        list(store.formations.list_formations(**named))
        list(store.formations.list_formations(**named, statuses=[FormationStatus.APPLIED], limit=1))

    context = CachedContext(xml="<x/>", fingerprint="f", built_at=NOW)
    for each in (agent, other):
        store.contexts.cache_context(session.id, each.id, context)
        store.contexts.find_context(session.id, each.id)
    for kind in ("agent", "user", "session", "fact", "reflection", "formation"):
        store.host.find(kind, "No such name")
        store.host.find(kind, "abcd")
        store.host.find(kind, new_id())
        store.host.find_by_prefix(kind, "abcd", limit=20)
    if not daily:
        _look_at_integrity(store, scopes, ids)
        _switch_models(store, scopes, ids)
        _back_up(store, agent.id, user.id)


def _back_up(store: Store, agent_id: str, user_id: str) -> None:
    """Dump everything, in every selection, and load it again."""
    kinds = tuple(backup.RecordKind)
    for selection in (
        backup.Selection(),
        backup.Selection(agent_ids=(agent_id,), member_ids=(user_id,), account_ids=(user_id,)),
        backup.Selection(user_ids=(user_id,)),
        backup.Selection(kinds=(ScopeKind.USER, ScopeKind.AGENT)),
    ):
        records = dump(store, kinds, selection)
    for kind in kinds:
        store.walk.load(kind, [record for one, record in records if one is kind])


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
    store.changes.apply(changes)
    store.changes.apply(changes)


def _read_everything(store: Store, scopes: tuple[Scope, ...], agent_id: str) -> list[str]:
    store.host.refusal(make_session([agent_id], owner=None))
    plain = FactFilter(scopes=scopes)
    narrow = FactFilter(scopes=scopes, since=ago(days=9), until=LATER, session_id=new_id())
    live = FactFilter(scopes=scopes, live_at=NOW, tags=("home",), key="k")
    for filter in (plain, narrow, live):
        list(store.memory.facts(filter))
        list(store.memory.facts(filter, with_vectors=True, limit=1))
        vector = random_unit(1, 4)
        question = Question("fact", vector)
        store.search.candidates(filter, [question], ["semantic", "text"], model="m", limit=3)
        store.search.semantic_candidates(filter, [vector], model="m", limit=3)
        store.search.text_candidates(filter, ["fact"], limit=3)
    store.memory.recent_facts(scopes, since=ago(days=9), limit=5, live_at=NOW)
    list(store.memory.facts(FactFilter(scopes=scopes, expired_at=NOW)))
    for agents in (None, [agent_id]):
        store.memory.expired_facts(NOW, agent_ids=agents, limit=5)
    for named in ({}, {"agent_id": agent_id}):
        store.vectors.vector_counts("m", dimensions=4, **named)
        list(store.vectors.stale_facts("m", dimensions=4, **named))
        list(store.vectors.stale_facts("n", dimensions=4, **named))
    store.vectors.vector_model_names(scopes)
    store.vectors.first_vector_model()
    ids = [fact.id for fact in store.memory.facts(plain)]
    store.memory.fact(ids[0], with_vector=True)
    store.memory.facts_by_ids(scopes, ids)
    store.search.track_access(ids, LATER)
    store.vectors.set_vectors({ids[0]: ("hash", random_unit(1, 4))}, model="m")
    for scope in scopes:
        store.memory.facts_by_hashes(scope, ["a", "b"])
        store.memory.pending(scope)
        store.history.versions("consolidation", "", scope=scope)
        store.history.pending_at(scope, NOW)
    store.history.versions("fact", ids[0])
    store.history.facts_at(scopes, NOW, limit=9)
    for absorbed in (None, True, False):
        list(store.memory.reflections(scopes, absorbed=absorbed, before=LATER, limit=3))
    (reflection, *_) = store.memory.reflections(scopes)
    store.memory.reflection(reflection.id)
    store.memory.consolidations(scopes)
    store.memory.failed_drafts(scopes)
    store.memory.policies(scopes)
    store.memory.revisions(scopes)
    list(store.memory.held(scopes))
    store.memory.count_held(agent_id=agent_id)
    store.memory.count_held()
    store.memory.shards(agent_id)
    list(store.memory.scopes())
    list(
        store.memory.scopes(
            agent_id=agent_id, kinds=[ScopeKind.USER], user_ids=[new_id()], min_pending=1
        )
    )
    entries = list(store.log.audit())
    list(store.log.audit(agent_id=agent_id, limit=1))
    list(store.log.audit(agent_id=agent_id, target_id=ids[0]))
    list(store.log.audit(target_id=ids[0]))
    store.log.audit_entry(entries[0].id)
    store.log.audit_entries([entry.id for entry in entries])
    for named in (
        {},
        {"scope": scopes[0]},
        {"run_id": new_id()},
        {"actor": "anna"},
        {"command": "fact edit"},
        {"actions": ["add_fact", "remove_fact"]},
    ):
        list(store.log.audit(**named, limit=2))
        list(store.log.audit(**named, since=ago(days=9), until=LATER))
    for key in ("entry", "target", "run"):
        store.log.find_audited(key, entries[0].id[:6])
    store.search.search_ability()
    store.database.preparation()
    store.search.require_formable(scopes, model="m", dimensions=4)
    for named in ({}, {"agent_id": agent_id}):
        store.memory.find_unpropagated(**named)
        store.usage.usage_by_day(**named, since=ago(days=7))
    store.usage.usage_by_day()
    store.changes.settle_propagation(scopes[0], 1)
    list(store.cold.quiet_sessions(before=LATER, rules=None))
    for quiet in store.cold.quiet_sessions(before=LATER, rules="r"):
        store.cold.settle(quiet.session.id, seen=quiet.seen, rules="r")
    list(store.cold.quiet_sessions(before=LATER, rules="r"))
    store.usage.add_usage(UsageEntry(id=new_id(), at=NOW, agent_id=agent_id, work="x", calls=()))
    return ids


def _switch_models(store: Store, scopes: Sequence[Scope], fact_ids: Sequence[str]) -> None:
    switch = VectorSwitch(model="next", dimensions=6, previous="m", begun_at=NOW)
    begin(store, switch)
    vectors = {id: (fact.hash, random_unit(1, 6)) for id, fact in _facts(store, fact_ids).items()}
    store.vectors.set_vectors(vectors, model="next", staged=True)
    store.vectors.vector_counts("next", dimensions=6)
    list(store.vectors.stale_facts("next", dimensions=6))
    asked: list[Any] = []
    for filter in (FactFilter(scopes=tuple(scopes)), FactFilter(scopes=tuple(scopes), since=NOW)):
        asked.append((filter, [Question("", random_unit(1, 6))], ["semantic"]))
    store.switches.vectors_of(fact_ids, model="next")
    store.switches.switch_index()
    store.switches.finds_vectors("next")
    enter(store, "switched")
    for question in asked:
        store.search.candidates(*question, model="next", limit=3)
    for phase in ("settling", "clearing"):
        enter(store, phase)
        list(store.switches.settle_vectors())
    store.switches.drop_switch_index()
    list(store.switches.clear_staged())
    end(store)


def _facts(store: Store, fact_ids: Sequence[str]) -> dict[str, Fact]:
    found = {fact_id: store.memory.fact(fact_id) for fact_id in fact_ids}
    return {fact_id: fact for fact_id, fact in found.items() if fact is not None}


def _look_at_integrity(store: Store, scopes: Sequence[Scope], fact_ids: Sequence[str]) -> None:
    for named in ({}, {"agent_id": scopes[0].agent_id}):
        selection = backup.Selection(agent_ids=tuple(named.values()))
        for kind in backup.RecordKind:
            list(store.walk.documents([kind], selection))
        for look in (
            store.memory.duplicate_facts,
            store.vectors.vector_faults,
            store.host.find_lost_progress,
        ):
            list(look(**named))
    for kind in get_args(PresenceKind):
        store.walk.present(kind, [new_id(), *fact_ids])
    store.host.people_of([session.id for session in store.host.sessions()])
    for mistrust in (
        store.database.file_faults,
        store.statistics.miscounts,
    ):
        list(mistrust())
    for scope in scopes:
        store.changes.finish_absorbing(scope)
        store.changes.set_failed_drafts(scope, FailedDrafts("f", 1))
    store.vectors.vector_counts("", dimensions=None)
    store.vectors.drop_vectors(fact_ids[:1])
    store.statistics.recount()
    store.database.repair_schema()
