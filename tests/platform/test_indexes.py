"""The unique index on facts, which both sides make, and what each does if it finds the other's."""

from __future__ import annotations

from threading import Barrier, Thread

import pytest

from edenmem.errors import ExitCode
from edenmem.store.mongo.core.collections import GIVEN_KEY
from tests.platform.conftest import World, sentences

pytestmark = pytest.mark.slow


SENTENCE = "Likes green tea."


def add(world: World, user: str, content: str = SENTENCE) -> int:
    """Add a fact about a user; the exit code."""
    owner = ("--agent", "mira", "--scope", "user", "--user", user)
    return world.eden("fact", "add", *owner, "--content", content).code


def unique_keys(world: World) -> dict[str, list[str]]:
    """The unique indexes on facts, apart from those on ids and on the keys of other systems."""
    indexes = world.database.memory2_facts.index_information()
    return {
        name: [field for field, _ in index["key"]]
        for name, index in indexes.items()
        if index.get("unique") and name != GIVEN_KEY.name
    }


def test_the_double_deletes_what_its_own_index_does_not_allow(world: World) -> None:
    """Without an index of its name, a start of the platform removes the second user's fact."""
    for user in (world.anna, world.bea):
        world.database.memory2_facts.insert_one(
            {"content": SENTENCE, "hash": "0", "agent_id": world.mira, "user_id": user}
        )
    world.platform().demand_no_errors()
    assert world.facts() == [SENTENCE]
    assert unique_keys(world) == {"fact_dedup_idx": ["hash", "agent_id"]}


@pytest.mark.parametrize("first", ["edenmem", "platform"])
def test_a_restart_of_the_platform_deletes_nothing(world: World, first: str) -> None:
    """Known failure 54: the same sentence about two users, then a new process."""
    if first == "platform":
        world.platform().demand_no_errors()
    world.eden("init", "--yes").ok()
    if first == "platform":
        world.exchange()
    assert [add(world, user) for user in ("anna", "bea")] == [0, 0]
    for _ in range(2):
        [error] = world.platform().errors  # the platform only logs that the index differs
        assert getattr(error, "code", None) == 86
    assert world.facts() == [SENTENCE, SENTENCE]
    assert list(unique_keys(world)) == ["fact_dedup_idx"]
    names = set(world.database.memory2_facts.index_information())
    assert {"fact_scope_idx", "fact_user_idx"} <= names
    assert world.eden("doctor").code == 0


def test_beside_the_narrow_index_only_adding_is_refused(world: World) -> None:
    """Known failure 54: nothing is dropped in silence, and no model is paid for what cannot be
    stored; all else works, and after the exchange so does adding."""
    world.platform().demand_no_errors()
    formed = world.put_session(sentences("Anna", 1, 2, 3, 4))
    assert world.platform().form(formed)
    waiting = world.put_session(sentences("Anna", 2) * 4, sender=world.bea)
    world.eden("init", "--yes").ok()
    kept = world.facts()

    assert add(world, "bea", "Anna keeps hive number 1.") == ExitCode.CONFLICT
    assert add(world, "bea", "Quite another fact.") == ExitCode.CONFLICT
    refused = world.eden("form", str(waiting))
    assert refused.code != 0
    assert world.read == []
    assert "index create --replace" in refused.out + refused.err
    assert world.facts() == kept
    assert world.eden.json("fact", "list", "--agent", "mira", "--user", "anna")
    assert world.eden.json("search", "hive", "--agent", "mira", "--user", "anna")
    world.eden("context", str(formed)).ok()
    [fact] = world.eden.json("fact", "list", "--agent", "mira", "--user", "anna", "--limit", "1")
    world.eden("delete", fact["id"], "--yes").ok()
    kept.remove(fact["content"])
    for command in ("doctor", "index list", "index list --check"):
        result = world.eden(*command.split())
        assert "fact_dedup_idx" in result.out + result.err, command

    world.exchange()
    world.eden("form", str(waiting), "--set", "formation.doubtful=mark").ok()
    assert add(world, "bea", "Quite another fact.") == 0
    world.platform()
    assert world.facts(user_id=world.anna) == kept
    assert world.facts(user_id=world.bea) == ["Anna keeps hive number 2.", "Quite another fact."]


def test_the_platform_may_start_all_the_time_while_the_index_is_exchanged(world: World) -> None:
    """Whoever is quicker: every fact is there, and in the end the index is the wide one."""
    world.platform().demand_no_errors()
    session = world.put_session(sentences("Anna", *range(8)))
    assert world.platform().form(session)
    world.eden("init", "--yes").ok()
    ready = Barrier(4)

    def start_again_and_again() -> None:
        ready.wait()
        for _ in range(4):
            world.platform()

    others = [Thread(target=start_again_and_again) for _ in range(3)]
    for other in others:
        other.start()
    ready.wait()
    first = world.eden("index", "create", "--replace", "--yes")
    for other in others:
        other.join()
    assert first.code in (0, ExitCode.CONFLICT)
    world.exchange()
    [error] = world.platform().errors
    assert getattr(error, "code", None) == 86
    assert world.facts() == sorted(sentences("Anna", *range(8)))
    assert list(unique_keys(world)) == ["fact_dedup_idx"]


def test_two_accounts_of_the_platform_may_share_a_name(world: World) -> None:
    """Known failure 61."""
    world.eden("init", "--yes").ok()
    world.database.users3.insert_one({"type": "user", "username": "anna"})
    world.eden("init", "--yes").ok()
    assert world.database.users3.count_documents({"username": "anna"}) == 2
