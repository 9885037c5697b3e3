"""Vectors of the platform's model, and an edenmem that is configured with another one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from edenmem.errors import ExitCode
from tests.platform.conftest import World, sentences

pytestmark = pytest.mark.slow


#: edenmem with a model that is not the platform's.
OTHER = ("--set", "embedding.model=mini")
FORCED = ("--set", "store.other_model_beside_platform=true")
OF_MIRA = ("--agent", "mira", "--scope", "agent")
PLATFORMS = "text-embedding-3-small"


@pytest.fixture
def formed(world: World) -> World:
    """A world with facts of the platform about Anna and everybody."""
    world.eden("init", "--yes").ok()
    lines = [*sentences("Anna", 1, 2), *sentences("Everybody", 1, 2)]
    assert world.platform().form(world.put_session(lines))
    assert models(world) == {PLATFORMS}
    return world


def models(world: World) -> set[Any]:
    """The models of all facts' vectors, None for a fact without one."""
    return {each.get("embedding_model") for each in world.database.memory2_facts.find()}


def test_no_backfill_replaces_the_platforms_vectors(formed: World) -> None:
    """`embed backfill --yes` turned all of them into vectors that the platform cannot search."""
    eden, collection = formed.eden, formed.database.memory2_facts
    eden(
        "--set", "embedding.provider=none", "fact", "add", *OF_MIRA, "--content", "Tea is hot."
    ).ok()
    before = list(collection.find())
    backfill = ("embed", "backfill")
    limited = (*backfill, "--agent", "mira", "--limit", "1")
    for way in (backfill, (*backfill, "--dry-run"), ("embed", "use", "mini"), limited):
        refused = eden(*OTHER, *way, "--yes")
        assert refused.code == ExitCode.CONFLICT
        assert f"embedding.model = '{PLATFORMS}'" in refused.err
        assert "other_model_beside_platform" in refused.err
    assert list(collection.find()) == before
    status = eden(*OTHER, "embed", "status").ok()
    assert "set embedding.model" in status.err
    assert "backfill" not in status.err

    eden("embed", "backfill", "--yes").ok()  # by the platform's own model
    assert models(formed) == {PLATFORMS}
    eden(*OTHER, *FORCED, "embed", "backfill", "--yes").ok()
    assert models(formed) == {"mini"}
    eden("embed", "backfill", "--yes").ok()  # and back
    assert models(formed) == {PLATFORMS}


def test_a_switch_that_was_forced_is_not_ended_unforced(formed: World) -> None:
    eden = formed.eden
    eden(*FORCED, "embed", "use", "mini", "--yes").ok()
    refused = eden(*OTHER, "embed", "use", "--drop-old", "--yes")
    assert refused.code == ExitCode.CONFLICT
    assert models(formed) == {PLATFORMS}
    eden("embed", "use", "--back", "--yes").ok()


def test_facts_by_hand_get_no_vector_of_another_model(formed: World) -> None:
    """A vector that the platform's index cannot serve was stored without a word."""
    eden = formed.eden
    added = eden(*OTHER, "fact", "add", *OF_MIRA, "--content", "Tea is hot.").ok()
    [first] = eden.json("fact", "list", "--agent", "mira", "--user", "anna", "--limit", "1")
    edited = eden(*OTHER, "fact", "edit", first["id"], "--content", "Anna dives.", "--yes").ok()
    file = formed.process.cwd / "facts.jsonl"
    line: dict[str, Any] = {
        "type": "fact",
        "agent": "mira",
        "scope": "agent",
        "content": "The sea is warm.",
    }
    file.write_text(json.dumps({**line, "embedding": [0.6, 0.8], "embedding_model": "mini"}))
    imported = eden("import", str(file), "--yes").ok()
    for done in (added, edited, imported):
        assert "without a vector" in done.err
    assert models(formed) == {PLATFORMS, None}
    for command in (("init", "--dry-run"), ("init", "--yes")):
        assert f"embedding.model = '{PLATFORMS}'" in eden(*OTHER, *command).ok().err
        assert "embedding.model" not in eden(*command).ok().err
    seen = eden(*OTHER, "doctor", "--check", "vectors", "--format", "json")
    [check] = json.loads(seen.out)
    assert f"embedding.model = '{PLATFORMS}'" in check["remedy"]


def test_nothing_is_formed_nor_paid_with_another_model(formed: World) -> None:
    session = str(formed.put_session(sentences("Bea", *range(4)), sender=formed.bea))
    refused = formed.eden(*OTHER, "form", session)
    assert refused.code == ExitCode.UNAVAILABLE
    assert "set embedding.model" in refused.err
    cold = formed.eden(*OTHER, "cold", "run")
    assert cold.code == ExitCode.UNAVAILABLE
    assert "set embedding.model" in cold.err
    ours = {"trigger": {"$ne": "platform"}}
    [formation] = formed.database.memory2_formations.find(ours)
    assert (formation["status"], formation["attempts"]) == ("released", 0)
    assert formed.read == []
    formed.eden("form", session).ok()
    assert models(formed) == {PLATFORMS}
