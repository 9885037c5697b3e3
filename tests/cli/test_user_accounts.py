"""A user with two accounts, at the command line."""

from __future__ import annotations

import pytest

from edenmem.models.scope import Scope
from edenmem.store.sqlite import SqliteStore
from tests.cli.conftest import LENA, MIRA, Cli
from tests.support.builders import make_user
from tests.support.memory import add_fact, add_reflection, consolidate

MIRA_AND = ("--agent", "mira")


@pytest.fixture
def discord(cli: Cli) -> str:
    """The id of Lena's second account, which has memory of its own."""
    store = SqliteStore(cli.file)
    account = make_user("lena-discord", eden_user_id=LENA)
    assert store.host.add_user(account)
    scope = Scope.user(MIRA, account.id)
    add_fact(store, scope, "Lena keeps three herons.")
    add_reflection(store, scope, "Lena is patient.")
    consolidate(store, scope, "Has herons.", expected_version=0)
    store.database.close()
    return account.id


@pytest.mark.slow
def test_any_account_names_the_user_and_account_narrows(discord: str, cli: Cli) -> None:
    def facts(*options: str) -> set[str]:
        rows = cli.json("fact", "list", *MIRA_AND, "-s", "user", *options, "--limit", "0")
        return {row["content"] for row in rows}

    both = facts("--user", "lena")
    assert both == facts("--user", "lena-discord") == facts("--user", discord[:20])
    own = facts("--user", "lena", "--account", "lena-discord")
    assert own == facts("--account", discord) == {"Lena keeps three herons."}
    assert both == own | facts("--user", "lena-discord", "--account", LENA)
    for command in (
        ("search", "herons", *MIRA_AND),
        ("reflection", "list", *MIRA_AND),
        ("scope", "list", *MIRA_AND, "-s", "user"),
        ("consolidation", "list", *MIRA_AND),
    ):
        rows = cli.json(*command, "--user", "lena", "--account", "lena-discord")
        assert rows, command
        owners = [row.get("user_id") or row["scope"]["owner"] for row in rows]
        assert set(owners) == {discord}, command
    exported = cli("export", "-", "--user", "lena", "--account", "lena-discord", "--type", "fact")
    assert "herons" in exported.ok().out
    cli("fact", "list", *MIRA_AND, "--user", "lena", "--account", "tomas").fails(
        2, "tomas is not an account of lena"
    )
    (shown,) = cli.json("show", "lena-discord")
    assert shown["id"] == discord
    names = [account["username"] for account in shown["accounts"]]
    assert names == ["lena", "lena-discord"]
    assert "lena, lena-discord" in cli("show", "lena").ok().out


def test_a_merge_shows_asks_moves_and_is_taken_back(discord: str, cli: Cli) -> None:
    (planned,) = cli.json("user", "merge", "lena-discord", "lena", "--dry-run")
    assert (planned["facts"], planned["reflections"], planned["text"]) == (1, 1, "pending")
    cli("user", "merge", "lena-discord", "lena").fails(2, "--yes")
    done = cli("user", "merge", "lena-discord", "lena", "--yes").ok()
    assert cli.json("fact", "list", *MIRA_AND, "--account", discord, "-s", "user") == []
    moved = cli.json("fact", "list", *MIRA_AND, "--account", LENA, "-s", "user")
    assert "Lena keeps three herons." in {row["content"] for row in moved}
    assert "no memory to move" in cli("user", "merge", discord, "lena", "--yes").ok().err
    run_id = done.err.split("undo --run ")[1][:24]
    cli("undo", "--run", run_id, "--yes").ok()
    (back,) = cli.json("user", "merge", "lena-discord", "lena", "--dry-run")
    assert back == planned
    assert "not linked" in cli("user", "merge", "tomas", "lena", "--dry-run").ok().err
    assert cli("user", "merge", "lena", "lena", "--yes").code == 2
