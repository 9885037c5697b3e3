"""The context of a chat, which is kept in memory until a scope in it changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from edenmem.engine.chats.memory import ChatMemory
from edenmem.engine.chats.messages import Said
from edenmem.engine.chats.sessions import ChatRequest, ChatTurn, find_turn, store_turn
from edenmem.engine.context.xml import EMPTY
from edenmem.models.changes import SetAgentToggles
from edenmem.models.host import User
from edenmem.models.scope import Scope
from edenmem.settings.schema import ContextSettings, Settings
from edenmem.store.protocol.store import Store
from tests.engine.conftest import Cast, make_cast
from tests.support.builders import NOW, FixedClock, make_message
from tests.support.forgetting import forgetter, subject_of
from tests.support.memory import add_fact, applied, consolidate, set_policy
from tests.support.runtime import make_runtime


class Chats:
    """Chats of users with the agent eve."""

    def __init__(self, store: Store, settings: Settings | None = None) -> None:
        self.cast, self.clock = make_cast(store), FixedClock()
        self.runtime = make_runtime(store, settings, clock=self.clock)
        self.memory = ChatMemory(self.runtime)

    def turn(self, key: str, user: User | None = None) -> ChatTurn:
        said = (Said(role="user", content="Hello"),)
        asked = ChatRequest(agent=self.cast.eve, user=user or self.cast.anna, key=key, said=said)
        return find_turn(self.runtime, asked)

    async def context(self, key: str, user: User | None = None) -> str:
        return (await self.memory.context(self.turn(key, user))).xml


@pytest.fixture
def chats(store: Store) -> Chats:
    return Chats(store)


async def test_a_context_is_never_stale_or_foreign(store: Store, chats: Chats) -> None:
    cast, context = chats.cast, chats.context
    changes = changes_by_others(cast)
    add_fact(store, cast.anna_scope, "Anna keeps owls.")
    add_fact(store, cast.agent_scope, "The mill is closed.")
    for key in ("one", "one", "two"):  # built, and found again by another session
        assert "owls" in await context(key, cast.anna)
        assert "owls" in await context(key, cast.anna_on_discord)
        seen = await context(key, cast.bruno)
        assert "mill" in seen
        assert "owls" not in seen
    for change, expected in changes:
        change()
        for key in ("one", "three"):
            found = await context(key, cast.anna)
            assert [word in found for word in expected] == list(expected.values()), expected


def changes_by_others(cast: Cast) -> Sequence[tuple[Callable[[], object], dict[str, bool]]]:
    """Changes by others, and which words a context has after each."""
    store, shard = cast.store, Scope.shard(cast.eve.id, "festival")
    return (
        (lambda: add_fact(store, cast.anna_scope, "Anna has a boat."), {"boat": True}),
        (
            lambda: consolidate(store, cast.anna_scope, "A sailor.", expected_version=0),
            {"sailor": True},
        ),
        (lambda: set_policy(store, shard), {"lights": False}),
        (lambda: add_fact(store, shard, "The lights are on."), {"lights": True}),
        (lambda: set_policy(store, shard, active=False, expected_version=1), {"lights": False}),
        (
            lambda: applied(
                store, SetAgentToggles(agent_id=cast.eve.id, at=NOW, user_memory_enabled=False)
            ),
            {"boat": False, "sailor": False, "mill": True},
        ),
    )


@pytest.mark.parametrize("race", [False, True])
async def test_a_forgotten_text_is_never_sent_again(
    store: Store, chats: Chats, race: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cast = chats.cast
    consolidate(store, cast.anna_scope, "Anna is a sailor.", expected_version=0)
    if race:
        add_fact(store, cast.anna_scope, "Anna keeps owls.")
        erase_facts, during = store.erasure._erase_facts, list[str]()  # type: ignore[attr-defined]

        def build_afterwards(*values: Any) -> None:
            """Build a context when the facts are gone, but not the text."""
            erase_facts(*values)
            turn = chats.turn("two")
            contexts = chats.memory._contexts
            made = contexts.build_base(turn.session, turn.view, is_new=True)
            during.append(made.xml)

        monkeypatch.setattr(store.erasure, "_erase_facts", build_afterwards)
    assert "sailor" in await chats.context("one")
    forgetting = forgetter(store)
    plan = await forgetting.plan(subject_of(store, user="anna"))
    assert (await forgetting.forget(plan)).complete
    if race:
        assert "sailor" in during[0]
        assert "owls" not in during[0]
    assert await chats.context("one") == EMPTY
    later = NOW + timedelta(seconds=1)
    for word in ("boat", "bicycle", "piano"):  # no revision is used again
        add_fact(store, cast.anna_scope, f"Anna has a {word}.", formed_at=later)
        seen = await chats.context("one")
        assert word in seen
        assert "sailor" not in seen


async def test_sessions_have_their_own_memory_in_their_context(store: Store, chats: Chats) -> None:
    turns = {key: chats.turn(key) for key in ("one", "two")}
    for turn in turns.values():
        assert (await chats.memory.context(turn)).xml == EMPTY
        store_turn(chats.runtime, turn)
    scope = Scope.session(chats.cast.eve.id, turns["one"].session.id)
    consolidate(store, scope, "They plan a trip.", expected_version=0)
    assert "trip" in await chats.context("one")
    for key in ("two", "three"):
        assert "trip" not in await chats.context(key)


async def test_another_user_in_a_session_closes_it_to_user_memory(
    store: Store, chats: Chats
) -> None:
    add_fact(store, chats.cast.anna_scope, "Anna keeps owls.")
    turn = chats.turn("one")
    store_turn(chats.runtime, turn)
    assert "owls" in (await chats.memory.context(turn)).xml
    message = make_message(turn.session.id, "Hello, I am Bruno.", sender=chats.cast.bruno.id)
    store.host.add_messages(turn.session.id, [message])
    assert "owls" not in await chats.context("one")


async def test_an_old_context_is_built_again(store: Store) -> None:
    settings = Settings(context=ContextSettings(cache_seconds=60, facts_max_age_hours=1))
    chats = Chats(store, settings)
    add_fact(store, chats.cast.anna_scope, "Anna keeps owls.")
    found = [await chats.context("one")]
    for _ in range(2):
        chats.clock.advance(seconds=59)
        found.append(await chats.context("one"))
    assert "(now)" in found[0]
    assert found[1] == found[0]
    assert "(1m ago)" in found[2]
