"""Notes of what left the engine, on every store."""

from __future__ import annotations

from datetime import timedelta

from edenmem.models.ids import new_id
from edenmem.models.scope import Scope
from edenmem.models.told import Note, Reply, Shown, make_note, pack, text_key, unpack
from edenmem.store.protocol.store import Store
from tests.engine.conftest import make_cast
from tests.support.builders import NOW, some
from tests.support.forgetting import forget
from tests.support.memory import add_fact

AGENT, ANNA, BRUNO, SESSION = new_id(), new_id(), new_id(), new_id()
OWN, SHARED = Scope.user(AGENT, ANNA), Scope.agent(AGENT)
FACT = Shown("fact", new_id(), 2, OWN)
COMMON = Shown("fact", new_id(), 1, SHARED)
TEXT = Shown("text", "", 3, SHARED)


def note(
    *items: Shown,
    found: tuple[Shown, ...] = (),
    user: str | None = ANNA,
    agent: str = AGENT,
    days: int = 0,
) -> Note:
    at = NOW + timedelta(days=days)
    reply = Reply(at=at, kind="chat", agent_id=agent, session_id=SESSION, user_id=user)
    return some(make_note(reply, pack(items), found))


def test_a_list_comes_back_in_order(store: Store) -> None:
    items = (FACT, Shown("reflection", new_id(), 1, OWN), COMMON, TEXT)
    assert unpack(pack(items)) == items
    both = note(*items, found=(COMMON,))
    store.told.add([both, both])
    store.told.add([both])
    assert store.told.replies() == [both.reply]
    assert store.told.lists(both.reply.lists) == {
        both.reply.context: items,
        both.reply.found: (COMMON,),
    }
    assert note(*items, user=BRUNO).lists.keys() < both.lists.keys()  # stored once
    assert make_note(both.reply) is None


def test_replies_are_found_by_each_filter(store: Store) -> None:
    mine, other = note(FACT, COMMON), note(TEXT, user=BRUNO, days=1)
    searched = note(found=(COMMON,), days=2)
    store.told.add([mine, other, searched])
    find = store.told.replies
    for found, expected in (
        (find(), [searched, other, mine]),
        (find(keys=[FACT.id]), [mine]),
        (find(keys=[COMMON.id]), [searched, mine]),
        (find(keys=[text_key(SHARED)]), [other]),
        (find(keys=[SHARED.key]), [searched, other, mine]),
        (find(keys=[new_id()]), []),
        (find(keys=[]), []),
        (find(user_ids=[BRUNO]), [other]),
        (find(user_ids=[]), []),
        (find(session_id=SESSION, limit=1), [searched]),
        (find(session_id=new_id()), []),
        (find(agent_id=AGENT, keys=[FACT.id, COMMON.id]), [searched, mine]),
        (find(reply_id=mine.reply.id), [mine]),
    ):
        assert found == [one.reply for one in expected]


def test_old_replies_are_pruned_and_lists_in_use_stay(store: Store) -> None:
    old, again, new = note(FACT), note(TEXT), note(TEXT, days=90)
    store.told.add([old, again, new])
    assert store.told.replies(until=new.reply.at) in (
        [old.reply, again.reply],
        [again.reply, old.reply],
    )
    assert store.told.prune(NOW + timedelta(days=90)) == 2
    assert store.told.replies() == [new.reply]
    lists = [*old.reply.lists, *new.reply.lists]
    assert store.told.lists(lists) == {new.reply.context: (TEXT,)}
    assert store.told.prune(NOW + timedelta(days=92)) == 1
    assert store.told.lists(lists) == {}


def test_a_forgotten_person_leaves_shared_lists_and_late_notes(store: Store) -> None:
    cast = make_cast(store)
    own = add_fact(store, cast.anna_scope, "Anna keeps owls.")
    shared = add_fact(store, cast.agent_scope, "The mill is closed.")
    gone, kept = (Shown("fact", one.id, 1, one.home) for one in (own, shared))

    def noted(user: str | None) -> Note:
        return note(gone, kept, agent=cast.eve.id, user=user)

    store.told.add([noted(cast.anna.id), noted(cast.bruno.id)])
    assert forget(store, user="anna").removed["notes of replies"] == 1
    # Other processes write what they noted before the end.
    store.told.add([noted(cast.anna.id), noted(cast.anna_on_discord.id)])
    store.told.add([note(found=(gone,), agent=cast.eve.id, user=None)])
    assert [one.user_id for one in store.told.replies()] in (
        [None, cast.bruno.id],
        [cast.bruno.id, None],
    )
    assert store.told.replies(keys=[own.id, cast.anna_scope.key]) == []
    (reply,) = store.told.replies(keys=[shared.id])
    assert store.told.lists(reply.lists) == {reply.context: (Shown("fact", "", 0, None), kept)}


def test_an_erased_fact_leaves_all_lists(store: Store) -> None:
    cast = make_cast(store)
    fact = add_fact(store, cast.agent_scope, "The mill is closed.")
    store.told.add([note(Shown("fact", fact.id, 1, fact.home), FACT)])
    forget(store, facts=[fact.id])
    (reply,) = store.told.replies()
    assert store.told.lists(reply.lists) == {reply.context: (Shown("fact", "", 0, None), FACT)}
