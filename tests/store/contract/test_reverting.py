"""Changes that undo others: nothing is lost, versions only grow, and history is unchanged."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec
import pytest
from bson import ObjectId

from edenmem.models.changes import (
    AddAgent,
    AddReflection,
    AddUser,
    ChangeStatus,
    RemoveAgent,
    RemoveReflection,
    RemoveUser,
    RepairBuffer,
    RestoreReflection,
    RevertConsolidation,
    SetPrivacy,
    WritePolicy,
)
from edenmem.models.ids import new_id
from edenmem.models.memory import Consolidation, Reflection
from edenmem.models.scope import Scope
from edenmem.store.mongo import MongoStore
from edenmem.store.protocol.store import Store
from edenmem.store.sqlite import SqliteStore
from tests.support.builders import (
    NOW,
    make_agent,
    make_policy,
    make_reflection,
    make_session,
    make_user,
    some,
)
from tests.support.memory import add_fact, add_reflection, applied, apply_one, consolidate

AGENT = new_id()
SCOPE = Scope.user(AGENT, new_id())
GROUP = Scope.group(AGENT, "reading circle")


def hour(number: float) -> datetime:
    return NOW + timedelta(hours=number)


def pending(store: Store, scope: Scope = SCOPE) -> list[str]:
    """The pending reflections; buffer and flags must agree."""
    waiting = [each.id for each in store.memory.pending(scope)]
    text = store.memory.consolidations([scope]).get(scope)
    assert waiting == list(text.unabsorbed_ids if text else ())
    flagged = {each.id for each in store.memory.reflections([scope], absorbed=False)}
    assert flagged == set(waiting)
    (summary,) = store.memory.scopes(agent_id=scope.agent_id, kinds=[scope.kind])
    assert summary.pending == len(waiting)
    return waiting


def text_of(store: Store, scope: Scope = SCOPE) -> Consolidation:
    return store.memory.consolidations([scope])[scope]


def revert(
    store: Store,
    content: str,
    *,
    version: int,
    released: Sequence[Reflection] = (),
    scope: Scope = SCOPE,
    at: datetime = NOW + timedelta(hours=9),
    reverted: tuple[int, ...] = (),
) -> ChangeStatus:
    change = RevertConsolidation(
        scope=scope,
        expected_version=version,
        content=content,
        word_limit=300,
        at=at,
        released_ids=tuple(each.id for each in released),
        reverted_versions=reverted,
    )
    return apply_one(store, change, at=at).status


def thoughts(store: Store, count: int, scope: Scope = SCOPE) -> list[Reflection]:
    return [
        add_reflection(store, scope, f"thought {n}", formed_at=NOW + timedelta(minutes=n))
        for n in range(count)
    ]


# -- consolidations ------------------------------------------------------------------------------


def test_the_past_buffer_is_unchanged(store: Store) -> None:
    a, b = thoughts(store, 2)
    consolidate(store, SCOPE, "One.", expected_version=0, absorbed_ids=[a.id], at=hour(2))
    assert revert(store, "", version=1, released=[a], at=hour(4)) is ChangeStatus.APPLIED
    consolidate(store, SCOPE, "Two.", expected_version=2, absorbed_ids=[a.id, b.id], at=hour(6))
    assert revert(store, "", version=3, released=[a, b], at=hour(8)) is ChangeStatus.APPLIED
    removal = RemoveReflection(scope=SCOPE, reflection_id=b.id, expected_version=1, at=hour(10))
    applied(store, removal, at=hour(10))
    back = msgspec.structs.replace(b, version=2)
    applied(store, RestoreReflection(reflection=back, word_limit=300), at=hour(12))
    both = [a.id, b.id]
    expected = {1: both, 3: [b.id], 5: both, 7: [], 9: both, 11: [a.id], 13: both}
    for moment, waiting in expected.items():
        assert [each.id for each in store.history.pending_at(SCOPE, hour(moment))] == waiting, (
            moment
        )


# -- buffers -------------------------------------------------------------------------------------


def test_a_buffer_in_order_is_left_alone(store: Store) -> None:
    thoughts(store, 2)
    for scope in (SCOPE, GROUP):
        change = RepairBuffer(scope=scope, at=hour(1))
        assert apply_one(store, change).status is ChangeStatus.ALREADY
        assert store.log.audit_entry(change.id) is None


def _disturb(store: Store, scope: Scope, waiting: Sequence[Reflection]) -> None:
    """Simulate a manual clean-up: the last pending reflection is missing from the buffer or the
    count."""
    if isinstance(store, SqliteStore):
        with sqlite3.connect(store.database.info().location) as raw:
            raw.execute("UPDATE scopes SET pending = pending - 1")
        raw.close()
        return
    assert isinstance(store, MongoStore)
    collection = store.connection.database["memory2_consolidated"]
    ids = [ObjectId(new_id()), *(ObjectId(each.id) for each in waiting[-2::-1])]
    collection.update_one({"agent_id": ObjectId(scope.agent_id)}, {"$set": {"unabsorbed_ids": ids}})


@pytest.mark.parametrize("scope", [SCOPE, GROUP], ids=["user", "group"])
def test_a_repaired_buffer_holds_the_pending_reflections(store: Store, scope: Scope) -> None:
    """Known failure 17: a reflection was in no buffer for ever."""
    waiting = thoughts(store, 3, scope)
    consolidate(store, scope, "One.", expected_version=0, absorbed_ids=[waiting.pop(0).id])
    _disturb(store, scope, waiting)
    before = store.memory.revisions([scope])[scope]
    change = RepairBuffer(scope=scope, at=hour(1), reason="it disagreed with the flags")
    assert apply_one(store, change).status is ChangeStatus.APPLIED
    assert pending(store, scope) == [each.id for each in waiting]
    assert store.memory.revisions([scope])[scope] > before
    assert text_of(store, scope).version == 1
    entry = some(store.log.audit_entry(change.id))
    assert (entry.target_id, entry.reason) == (text_of(store, scope).id, change.reason)
    assert entry.before != entry.after
    assert apply_one(store, change).status is ChangeStatus.ALREADY


# -- accounts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["fact", "reflection", "text", "policy", "session"])
def test_any_trace_keeps_an_account(store: Store, what: str) -> None:
    agent, user = make_agent("eve", created_at=NOW), make_user("anna", created_at=NOW)
    applied(store, AddAgent(agent=agent), AddUser(user=user))
    home = Scope.user(agent.id, user.id)
    if what == "fact":
        add_fact(store, home)
    elif what == "reflection":
        applied(store, AddReflection(reflection=make_reflection(home), word_limit=9))
    elif what == "text":
        consolidate(store, home, "One.", expected_version=0)
    elif what == "policy":
        applied(store, WritePolicy(policy=make_policy(home), expected_version=0, at=NOW))
    else:
        store.host.put_session(make_session([agent], [user]))
    for removal in (RemoveAgent(agent_id=agent.id), RemoveUser(user_id=user.id)):
        assert apply_one(store, removal).status is ChangeStatus.CONFLICT


# -- the record ----------------------------------------------------------------------------------


def test_an_undo_references_its_entry(store: Store) -> None:
    fact = add_fact(store, SCOPE)
    first = SetPrivacy(scope=SCOPE, target_type="fact", target_id=fact.id, private=True, at=NOW)
    applied(store, first)
    back = msgspec.structs.replace(first, id=new_id(), private=False, undoes=first.id)
    applied(store, back)
    entries = store.log.audit_entries([first.id, back.id, new_id()])
    assert {key: entry.undoes for key, entry in entries.items()} == {
        first.id: None,
        back.id: first.id,
    }
