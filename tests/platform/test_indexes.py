"""The unique index on facts, which both sides make, and what each does if it finds the other's."""

from __future__ import annotations

from tests.platform.conftest import World

SENTENCE = "Likes green tea."


def add(world: World, user: str, content: str = SENTENCE) -> int:
    """Add a fact about a user; the exit code."""
    owner = ("--agent", "mira", "--scope", "user", "--user", user)
    return world.eden("fact", "add", *owner, "--content", content).code


def unique_keys(world: World) -> dict[str, list[str]]:
    """The unique indexes on facts, apart from that on ids."""
    indexes = world.database.memory2_facts.index_information()
    return {
        name: [field for field, _ in index["key"]]
        for name, index in indexes.items()
        if index.get("unique")
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
