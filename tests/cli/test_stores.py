"""The same commands, the same data, whatever the store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edenmem.models.ids import new_id
from tests.cli.conftest import Cli

SESSION = {
    "session": "visit",
    "agent": "mira",
    "users": ["lena"],
    "messages": [{"role": "user", "name": "lena", "content": "Hello!", "created_at": "2026-01-01"}],
}
USER = ("--agent", "mira", "--user", "lena")


@pytest.fixture(params=["sqlite", pytest.param("mongodb", marks=pytest.mark.slow)])
def fresh(request: pytest.FixtureRequest, tmp_path: Path) -> Cli:
    """edenmem on a store that is not there yet, of each kind, over a real socket."""
    if request.param == "sqlite":
        return Cli(f"sqlite:///{tmp_path}/fresh.db", tmp_path)
    return Cli(f"{request.getfixturevalue('secantus_uri').rstrip('/')}/t{new_id()}", tmp_path)


def keys(rows: list[dict[str, Any]]) -> set[str]:
    """The names of the fields of all rows."""
    return {key for row in rows for key in row}


FACT_FIELDS = {
    "id", "content", "hash", "scope", "agent_id", "user_id", "group_id", "shard", "session_id",
    "formed_at", "version", "previous_content", "updated_at", "source_message_ids",
    "access_count", "last_accessed_at", "private", "formation_id", "embedding_model",
    "related_users", "quote", "unconfirmed", "said_at", "edited_at", "key", "tags", "metadata",
    "expires_at", "value",
}  # fmt: skip


def test_a_first_day(fresh: Cli) -> None:
    fresh("init", "--yes").ok()
    fresh("user", "add", "lena").ok()
    if "mongodb" in fresh.uri:
        refused = fresh("agent", "add", "mira")
        assert (refused.code, "--owner USER" in refused.err) == (2, True)
    fresh("agent", "add", "mira", "--owner", "lena").ok()
    fresh("import", "-", input=json.dumps(SESSION)).ok()
    (added,) = fresh.json("fact", "add", *USER, "--content", "Lena folds whales.")
    fresh("fact", "edit", added["id"], "--content", "Lena folds two whales.", "--yes").ok()
    facts = fresh.json("fact", "list", *USER, "--scope", "user")
    assert [fact["content"] for fact in facts] == ["Lena folds two whales."]
    assert keys(facts) == FACT_FIELDS
    assert facts[0]["version"] == 2
    assert facts[0]["formed_at"].endswith("Z")
    assert len(fresh.json("history", added["id"])) == 2

    fresh("reflection", "add", *USER, "--content", "Short answers.").ok()
    fresh("consolidation", "edit", *USER, "--content", "Lena folds.", "--yes").ok()
    (status,) = fresh.json("scope", "list", "--agent", "mira")
    assert (status["facts"], status["pending"], status["version"]) == (1, 1, 1)
    (context,) = fresh.json("context", "visit")
    for said in ("Lena folds two whales.", "Short answers.", "Lena folds."):
        assert said in context["xml"]

    fresh("delete", added["id"], "--yes").ok()
    fresh("restore", added["id"]).ok()
    assert fresh.json("show", added["id"][:16])[0]["content"] == "Lena folds two whales."
    (overview,) = fresh.json("status")
    assert overview["store"]["initialized"]
    assert overview["agents"][0]["facts"] == 1
    assert fresh("show", "0" * 24).code == 3
