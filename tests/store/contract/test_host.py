"""The platform's agents, users, sessions and messages."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from edenmem.models.backup import RecordKind, StoredUser
from edenmem.models.host import Agent, Session, ToolCall
from edenmem.models.ids import new_id
from edenmem.models.scope import Scope
from edenmem.store.protocol.store import Store
from tests.support.builders import (
    NOW,
    ago,
    make_agent,
    make_message,
    make_messages,
    make_session,
    make_user,
    some,
)
from tests.support.memory import add_fact

# -- the database itself -------------------------------------------------------------------------


def test_initializing_again_creates_nothing(store: Store) -> None:
    before = store.database.info()
    assert list(store.database.initialize()) == []
    after = store.database.info()
    assert before.initialized
    assert after == before


def test_info_counts_documents(store: Store) -> None:
    empty = store.database.info()
    assert empty.kind in ("sqlite", "mongodb")
    assert empty.location
    assert set(empty.counts.values()) <= {0}
    for name in ("zoe", "adam"):
        assert store.host.add_agent(make_agent(name))
    assert store.host.add_user(make_user("anna"))
    add_fact(store, Scope.agent(new_id()))
    assert store.database.info().counts == {
        "agents": 2,
        "users": 1,
        "sessions": 0,
        "messages": 0,
        "facts": 1,
        "reflections": 0,
        "consolidations": 0,
        "policies": store.database.info().counts["policies"],  # MongoDB keeps revisions there too
        "formations": 0,
        "history": 0,
        "audit": 1,
    }


# -- agents and users ----------------------------------------------------------------------------


def test_agents_come_back_as_they_were_added(store: Store) -> None:
    zoe = make_agent("zoe", name="Zoë", persona="Curious.", owner=new_id(), created_at=NOW)
    adam = make_agent("adam", user_memory_enabled=False, agent_memory_enabled=False)
    assert store.host.add_agent(zoe)
    assert store.host.add_agent(adam)
    assert store.host.agent(zoe.id) == zoe
    stored = some(store.host.agent(adam.id))
    assert (stored.user_memory_enabled, stored.agent_memory_enabled) == (False, False)
    assert [agent.username for agent in store.host.agents()] == ["adam", "zoe"]
    assert store.host.agent(new_id()) is None


def test_known_failure_56_a_switch_that_is_not_set_is_off(store: Store) -> None:
    """Known failure 56: memory was on for an agent without toggles."""
    agent = Agent(id=new_id(), username="eve", owner=new_id())
    assert store.host.add_agent(agent)
    stored = some(store.host.agent(agent.id))
    assert (stored.user_memory_enabled, stored.agent_memory_enabled) == (False, False)


def test_users_come_back_as_they_were_added(store: Store) -> None:
    person = make_user("anna", created_at=NOW)
    account = make_user(
        "anna_discord",
        eden_user_id=person.id,
        subscription_tier=2,
        feature_flags=("preview", "x"),
        created_at=NOW,
    )
    assert store.host.add_user(account)
    assert store.host.add_user(person)
    assert store.host.user(account.id) == account
    assert store.host.user(person.id) == person
    assert [user.username for user in store.host.users()] == ["anna", "anna_discord"]
    assert store.host.user(new_id()) is None
    assert store.host.users_by_ids([account.id, new_id()]) == {account.id: account}
    assert store.host.users_by_ids([]) == {}
    assert store.host.users_named("anna") == [person]
    assert store.host.users_named("Anna") == store.host.users_named("ann") == []


def test_accounts_of_a_person_are_those_linked_and_the_one_itself(store: Store) -> None:
    person, unknown = make_user("anna"), new_id()
    linked = make_user("anna_discord", eden_user_id=person.id)
    orphan = make_user("zoe_telegram", eden_user_id=unknown)
    moved = make_user("moved", eden_user_id=linked.id)
    for user in (linked, person, orphan, moved, make_user("bruno")):
        assert store.host.add_user(user)
    deleted = StoredUser(id=new_id(), username="old", eden_user_id=person.id, deleted=True)
    store.walk.load(RecordKind.USER, [deleted])

    def accounts(person_id: str) -> set[tuple[str, bool]]:
        found = store.host.accounts_of(person_id)
        assert [each.id for each in found] == sorted(each.id for each in found)
        return {(each.username, each.deleted) for each in found}

    assert accounts(person.id) == {("anna", False), ("anna_discord", False), ("old", True)}
    assert accounts(unknown) == {("zoe_telegram", False)}
    assert accounts(linked.id) == {("anna_discord", False), ("moved", False)}
    assert accounts(new_id()) == accounts("no id") == set()


def test_a_taken_id_or_name_is_refused(store: Store) -> None:
    agent, user = make_agent("eve"), make_user("anna")
    assert store.host.add_agent(agent)
    assert store.host.add_user(user)
    assert not store.host.add_agent(make_agent("eve"))
    assert not store.host.add_agent(make_agent("other", id=agent.id))
    assert not store.host.add_user(make_user("anna"))
    assert not store.host.add_user(make_user("other", id=user.id))
    assert [a.id for a in store.host.agents()] == [agent.id]
    assert [u.id for u in store.host.users()] == [user.id]


def test_an_agent_and_a_user_may_have_one_name_and_are_not_each_other(store: Store) -> None:
    agent, user = make_agent("robin"), make_user("robin")
    assert store.host.add_agent(agent)
    assert store.host.add_user(user)
    assert store.host.agent(user.id) is None
    assert store.host.user(agent.id) is None
    assert store.host.users_by_ids([agent.id, user.id]).keys() == {user.id}


# -- sessions ------------------------------------------------------------------------------------


def test_a_session_comes_back_as_it_was_put(store: Store) -> None:
    session = make_session(
        (new_id(), new_id()),
        (new_id(),),
        group_id=new_id(),
        name="garden-1",
        title="In the garden",
        platform="discord",
        incognito=True,
    )
    assert store.host.put_session(session)
    assert store.host.session(session.id) == session
    assert store.host.session(new_id()) is None


def test_sessions_come_by_id_each_with_its_own_members(store: Store) -> None:
    sessions = [make_session([new_id(), new_id()], [new_id()], title=name) for name in "abc"]
    deleted = make_session(sessions[0].agents, [new_id()], deleted=True)
    for session in (*sessions, deleted):
        store.host.put_session(session)
    wanted = [sessions[2].id, new_id(), deleted.id, sessions[0].id, "no id"]
    assert store.host.sessions_by_ids(wanted) == {s.id: s for s in (sessions[0], sessions[2])}
    assert store.host.sessions_by_ids([]) == {}


def test_putting_again_adds_agents_and_users_and_takes_nothing_away(store: Store) -> None:
    """Known failure 14: rewriting the whole session document undid other writes."""
    agents, users = [new_id(), new_id(), new_id()], [new_id(), new_id()]
    first = make_session(agents[:2], users[:1], title="First", platform="web", group_id=new_id())
    assert store.host.put_session(first)
    assert not store.host.put_session(
        Session(id=first.id, agents=(agents[2], agents[0]), users=(users[1],))
    )
    stored = some(store.host.session(first.id))
    assert stored.agents == tuple(agents)
    assert stored.users == tuple(users)
    for field in ("title", "platform", "group_id", "owner", "status", "last_activity"):
        assert getattr(stored, field) == getattr(first, field), field


def test_sessions_match_all_filters_latest_activity_first(store: Store) -> None:
    agent, other, user, group = (new_id() for _ in range(4))
    old = make_session([agent], [user], last_activity=ago(days=3))
    new = make_session([other, agent], [user], last_activity=ago(days=1), group_id=group)
    newest = make_session([agent], [new_id()], last_activity=ago(hours=1))
    for session in (new, old, newest):
        store.host.put_session(session)
    deleted = make_session([agent], [user], deleted=True)
    store.host.put_session(deleted)

    def ids(**named: str) -> list[str]:
        return [session.id for session in store.host.sessions(**named)]

    assert ids() == [newest.id, new.id, old.id]
    assert ids(agent_id=agent) == [newest.id, new.id, old.id]
    assert ids(agent_id=other) == [new.id]
    assert ids(user_id=user) == [new.id, old.id]
    assert ids(agent_id=other, user_id=user) == [new.id]
    assert ids(group_id=group) == [new.id]
    assert ids(group_id=group, user_id=new_id()) == []
    assert [s.id for s in store.host.sessions(limit=2)] == [newest.id, new.id]
    assert store.host.session(deleted.id) is None


def test_messages_come_back_in_order(store: Store) -> None:
    session = make_session()
    store.host.put_session(session)
    messages = make_messages(session, 7, sender=new_id(), name="anna")
    same_time = [make_message(session, f"tie {n}", created_at=NOW) for n in range(3)]
    assert store.host.add_messages(session.id, [*reversed(messages), *reversed(same_time)]) == 10
    ordered = sorted([*messages, *same_time], key=lambda m: (m.created_at, m.id))
    assert list(store.host.messages(session.id)) == ordered
    assert list(store.host.messages(session.id, newest=3)) == ordered[-3:]
    assert list(store.host.messages(session.id, newest=99)) == ordered
    wanted = [ordered[4].id, ordered[1].id, new_id()]
    assert list(store.host.messages(session.id, ids=wanted)) == [ordered[1], ordered[4]]
    assert list(store.host.messages(session.id, ids=[])) == []


def test_putting_a_message_again_replaces_its_content(store: Store) -> None:
    session, other = make_session(parent=new_id()), make_session()
    for each in (session, other):
        store.host.put_session(each)
    found = some(store.host.session(session.id))
    assert found.parent == session.parent
    first, second = make_messages(session, 2)
    call = ToolCall(tool="look", args={"at": 1}, id="c1")
    for _ in range(2):
        store.host.put_message(first)
        store.host.put_message(second)
        later = msgspec.structs.replace(
            first, content="Changed.", tool_calls=(call,), created_at=ago(days=-1)
        )
        store.host.put_message(later)
    changed, kept = store.host.messages(session.id)
    assert (changed.content, changed.created_at) == ("Changed.", first.created_at)
    assert [(each.tool, each.args, each.id) for each in changed.tool_calls] == [
        ("look", {"at": 1}, "c1")
    ]
    assert kept == second
    store.host.put_message(msgspec.structs.replace(second, session_id=other.id, content="Stolen."))
    assert [each.content for each in store.host.messages(session.id)][-1] == second.content


def test_messages_of_another_session_stay_there(store: Store) -> None:
    one, two = make_session(), make_session()
    for session in (one, two):
        store.host.put_session(session)
    mine, theirs = make_messages(one, 2), make_messages(two, 2)
    store.host.add_messages(one.id, mine)
    store.host.add_messages(two.id, theirs)
    assert list(store.host.messages(one.id)) == mine
    wanted = [theirs[0].id, mine[1].id, new_id()]
    assert list(store.host.messages(one.id, ids=wanted)) == [mine[1]]
    found = store.host.messages_by_ids(wanted)
    assert sorted(found, key=lambda each: each.id) == sorted(
        [theirs[0], mine[1]], key=lambda each: each.id
    )
    assert list(store.host.messages(new_id())) == []


def test_every_field_of_a_message_is_kept(store: Store) -> None:
    session = make_session()
    store.host.put_session(session)
    calls = (
        ToolCall(
            id="call_1",
            tool="search",
            args={"query": "x", "deep": [1, {"y": None}]},
            status="completed",
        ),
        ToolCall(
            id="call_2",
            tool="paint",
            result=[{"url": "https://example.org"}, 1.5, True],
            other={"cost": 0.5, "error": None},
        ),
    )
    messages = [
        make_message(session, "a", role=role, created_at=NOW + timedelta(seconds=place))
        for place, role in enumerate(("user", "assistant", "system", "tool", "eden"))
    ]
    messages.append(
        make_message(
            session,
            "",
            role="assistant",
            tool_calls=calls,
            trigger=True,
            name="Eve",
            sender=new_id(),
            created_at=NOW + timedelta(minutes=1, milliseconds=7),
        )
    )
    store.host.add_messages(session.id, messages)
    assert list(store.host.messages(session.id)) == messages


def test_adding_messages_again_adds_only_what_is_new(store: Store) -> None:
    session = make_session()
    store.host.put_session(session)
    messages = make_messages(session, 5)
    assert store.host.add_messages(session.id, messages[:2]) == 2
    assert store.host.add_messages(session.id, messages) == 3
    assert store.host.add_messages(session.id, messages) == 0
    assert store.host.add_messages(session.id, []) == 0
    assert list(store.host.messages(session.id)) == messages


def test_a_known_message_is_not_rewritten(store: Store) -> None:
    session = make_session()
    store.host.put_session(session)
    message = make_message(session, "as it was said")
    store.host.add_messages(session.id, [message])
    forged = make_message(session, "as it was not said", id=message.id)
    after = make_message(session, "after the duplicate")
    assert store.host.add_messages(session.id, [forged, after]) == 1
    assert {m.content for m in store.host.messages(session.id)} == {
        "as it was said",
        "after the duplicate",
    }


def test_messages_move_the_last_activity_forward_only(store: Store) -> None:
    session = make_session(last_activity=NOW)
    store.host.put_session(session)

    def last_activity() -> object:
        stored = store.host.session(session.id)
        return stored and stored.last_activity

    store.host.add_messages(session.id, [make_message(session, created_at=ago(days=1))])
    assert last_activity() == NOW
    later = NOW + timedelta(minutes=5)
    store.host.add_messages(session.id, [make_message(session, created_at=later)])
    assert last_activity() == later


@pytest.mark.slow
def test_a_long_session_is_read_to_its_end(store: Store) -> None:
    """Known failure 20: messages beyond a read limit were not seen."""
    session = make_session()
    store.host.put_session(session)
    messages = make_messages(session, 1500)
    assert store.host.add_messages(session.id, messages) == 1500
    assert [m.id for m in store.host.messages(session.id)] == [m.id for m in messages]


# -- senders -------------------------------------------------------------------------------------


def test_senders_are_people_who_ever_wrote(store: Store) -> None:
    anna, bruno, carla, agent = sorted(new_id() for _ in range(4))
    session, other = make_session([agent], [anna]), make_session()
    for each in (session, other):
        store.host.put_session(each)
    assert store.host.senders(session.id) == ()
    store.host.add_messages(
        session.id,
        [
            make_message(session, sender=bruno, created_at=ago(days=900)),
            *(make_message(session, sender=anna) for _ in range(3)),
            make_message(session, sender=None),
            make_message(session, sender=carla, trigger=True),
            *(
                make_message(session, sender=carla, role=role)
                for role in ("assistant", "tool", "system", "eden")
            ),
        ],
    )
    store.host.add_messages(other.id, [make_message(other, sender=carla)])
    assert store.host.senders(session.id) == (anna, bruno)
    assert store.host.senders(other.id) == (carla,)
    assert store.host.senders(new_id()) == ()
