"""Items that wait for review, on every store."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from edenmem.engine.history.undo import Undoer
from edenmem.models.backup import LoadStatus, RecordKind
from edenmem.models.changes import AddAgent, ChangeStatus, HoldItem, RemoveAgent, RemoveHeld
from edenmem.models.ids import new_id
from edenmem.models.memory import Held, HeldCount
from edenmem.models.scope import Scope
from edenmem.store.protocol.store import Store
from tests.support.backup import dump
from tests.support.builders import NOW, ago, make_agent, make_held, make_messages
from tests.support.forgetting import Town, forget, make_town
from tests.support.memory import add_fact, applied, apply
from tests.support.runtime import make_runtime

AGENT, OTHER = new_id(), new_id()
ANNA, BRUNO = Scope.user(AGENT, new_id()), Scope.user(AGENT, new_id())
SCOPES = (
    Scope.agent(AGENT),
    Scope.shard(AGENT, "lore"),
    Scope.group(AGENT, "g"),
    ANNA,
    Scope.session(AGENT, new_id()),
)


def hold(store: Store, *items: Held) -> None:
    applied(store, *(HoldItem(held=each) for each in items))


def held(store: Store, *scopes: Scope) -> list[str]:
    return [each.content for each in store.memory.held(scopes)]


@pytest.mark.parametrize("scope", SCOPES, ids=lambda scope: scope.kind)
def test_an_item_comes_back_as_it_was_held(store: Store, scope: Scope) -> None:
    item = make_held(
        scope,
        kind="reflection",
        quote="perhaps Faro",
        said_at=ago(days=3),
        source_message_ids=(new_id(), new_id()),
        private=True,
        formation_id=new_id(),
        session_id=scope.owner if scope == SCOPES[-1] else new_id(),
    )
    hold(store, item)
    assert list(store.memory.held([scope])) == [item]
    assert store.memory.count_held(agent_id=AGENT) == HeldCount(number=1, oldest=NOW)


def test_lists_are_of_their_scopes_newest_first(store: Store) -> None:
    hold(
        store,
        make_held(ANNA, "old", held_at=ago(days=2)),
        make_held(ANNA, "new"),
        make_held(BRUNO, "his", held_at=ago(days=1)),
        make_held(Scope.agent(OTHER), "of another agent", held_at=ago(days=9)),
    )
    assert held(store, ANNA) == ["new", "old"]
    assert held(store, ANNA, BRUNO) == ["new", "his", "old"]
    assert [each.content for each in store.memory.held(None, agent_id=AGENT)] == [
        "new",
        "his",
        "old",
    ]
    assert [each.content for each in store.memory.held(None)][-1] == "of another agent"
    assert held(store, Scope.agent(AGENT)) == []
    assert held(store, Scope.user(OTHER, ANNA.owner)) == []
    assert store.memory.count_held(agent_id=AGENT).number == 3
    assert store.memory.count_held() == HeldCount(number=4, oldest=ago(days=9))


def test_holding_is_undone_and_redone(store: Store) -> None:
    item = make_held(ANNA, quote="perhaps")
    change = HoldItem(held=item)
    applied(store, change)
    undoer = Undoer(make_runtime(store))
    undone = undoer.undo(change.id)
    assert held(store, ANNA) == []
    undoer.undo(undone.undo_id)
    assert list(store.memory.held([ANNA])) == [item]


def test_an_agent_with_held_items_is_in_use(store: Store) -> None:
    agent = make_agent("eve")
    applied(store, AddAgent(agent=agent))
    item = make_held(Scope.user(agent.id, new_id()))
    hold(store, item)
    (refused,) = apply(store, RemoveAgent(agent_id=agent.id))
    assert (refused.status, "wait for review" in refused.detail) == (ChangeStatus.CONFLICT, True)
    applied(store, RemoveHeld(scope=item.home, held_id=item.id))
    applied(store, RemoveAgent(agent_id=agent.id))


@pytest.mark.slow
def test_a_backup_brings_them_back(store: Store, open_store: Callable[[str], Store]) -> None:
    item = make_held(ANNA, quote="perhaps", source_message_ids=(new_id(),))
    hold(store, item)
    ((_, record),) = dump(store, [RecordKind.HELD])
    assert record == item
    other = open_store("sqlite" if store.database.info().kind != "sqlite" else "secantus")
    for expected in (LoadStatus.ADDED, LoadStatus.SAME):
        (answer,) = other.walk.load(RecordKind.HELD, [record])
        assert answer.status is expected
    changed = msgspec.structs.replace(item, content="Anna lives in Faro.")
    (answer,) = other.walk.load(RecordKind.HELD, [changed])
    assert answer.status is LoadStatus.DIFFERS
    assert list(other.memory.held([ANNA])) == [item]


# -- erasure -------------------------------------------------------------------------------------


@pytest.fixture
def town(store: Store) -> Town:
    return make_town(store)


def _fill(town: Town) -> None:
    (said,) = make_messages(town.shared, 1, sender=town.zenobia_on_discord.id)
    town.store.host.add_messages(town.shared.id, [said])
    sources = (said.id,)
    hold(
        town.store,
        make_held(town.her(), "in her scope: quince"),
        make_held(town.everybody, "from her session: quince", session_id=town.own.id),
        make_held(
            town.everybody,
            "from her message: quince",
            session_id=town.shared.id,
            source_message_ids=sources,
        ),
        make_held(town.everybody, "Zenobia likes quince.", session_id=town.lone.id),
        make_held(town.everybody, "Quoted: quince.", quote="so says zenobia"),
        make_held(town.his(), "Bruno may row."),
        make_held(town.group, "The harbour may open at six.", session_id=town.lone.id),
    )


def test_a_user_is_erased_from_them(town: Town) -> None:
    _fill(town)
    store = town.store
    report = forget(store, user="zenobia")
    assert report.complete, (report.remains, report.unfinished)
    assert report.removed["held items"] == 5
    assert held(store, town.everybody, town.her()) == []
    kept = {"Bruno may row.", "The harbour may open at six."}
    assert {*held(store, town.his(), town.group)} == kept
    assert store.memory.count_held().number == 2
    log = [entry for entry in store.log.audit() if entry.after or entry.before]
    assert not any("quince" in str((entry.before, entry.after)) for entry in log)


def test_sessions_groups_and_agents_are_erased_from_them(town: Town) -> None:
    _fill(town)
    store = town.store
    forget(store, session=town.lone.id)
    assert "Zenobia likes quince." not in held(store, town.everybody)
    forget(store, group="harbour", agent="eve")
    assert held(store, town.group) == []
    assert held(store, town.his()) == ["Bruno may row."]
    forget(store, agent="eve")
    assert store.memory.count_held() == HeldCount()


def test_source_messages_of_erased_facts_are_erased_from_them(town: Town) -> None:
    (said,) = make_messages(town.lone, 1, sender=town.bruno.id)
    town.store.host.add_messages(town.lone.id, [said])
    fact = add_fact(
        town.store,
        town.his(),
        "Bruno rows at dawn.",
        session_id=town.lone.id,
        source_message_ids=(said.id,),
    )
    hold(
        town.store,
        make_held(town.everybody, "One of them rows.", source_message_ids=(said.id,)),
        make_held(town.everybody, "It may rain.", source_message_ids=(new_id(),)),
    )
    forget(town.store, facts=[fact.id])
    assert held(town.store, town.everybody) == ["It may rain."]
