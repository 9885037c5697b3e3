"""A user with two accounts, at the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from edenmem.models.scope import Scope
from edenmem.store.sqlite import SqliteStore
from tests.cli.conftest import LENA, MIRA, Cli, Inside
from tests.support.builders import make_user
from tests.support.memory import add_fact, add_reflection, consolidate

MIRA_AND = ("--agent", "mira")


@pytest.fixture
def here(cli: Cli, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Inside:
    """Commands on a copy of the prepared store, in this process."""
    return Inside(cli, monkeypatch, capsys)


@pytest.fixture
def discord(cli: Cli) -> str:
    """The id of Lena's second account, which has memory of its own."""
    store = SqliteStore(Path(cli.uri.removeprefix("sqlite:///")))
    account = make_user("lena-discord", eden_user_id=LENA)
    assert store.host.add_user(account)
    scope = Scope.user(MIRA, account.id)
    add_fact(store, scope, "Lena keeps three herons.")
    add_reflection(store, scope, "Lena is patient.")
    consolidate(store, scope, "Has herons.", expected_version=0)
    store.database.close()
    return account.id


@pytest.mark.slow
def test_any_account_names_the_user_and_account_narrows(discord: str, here: Inside) -> None:
    def facts(*options: str) -> set[str]:
        rows = here.json("fact", "list", *MIRA_AND, "-s", "user", *options, "--limit", "0")
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
        rows = here.json(*command, "--user", "lena", "--account", "lena-discord")
        assert rows, command
        owners = [row.get("user_id") or row["scope"]["owner"] for row in rows]
        assert set(owners) == {discord}, command
    exported = here("export", "-", "--user", "lena", "--account", "lena-discord", "--type", "fact")
    assert "herons" in exported.ok().out
    wrong = here("fact", "list", *MIRA_AND, "--user", "lena", "--account", "tomas")
    assert (wrong.code, "tomas is not an account of lena" in wrong.err) == (2, True)
    (shown,) = here.json("show", "lena-discord")
    assert shown["id"] == discord
    names = [account["username"] for account in shown["accounts"]]
    assert names == ["lena", "lena-discord"]
    assert "lena, lena-discord" in here("show", "lena").ok().out


def test_a_merge_shows_asks_moves_and_is_taken_back(discord: str, here: Inside) -> None:
    (planned,) = here.json("user", "merge", "lena-discord", "lena", "--dry-run")
    assert (planned["facts"], planned["reflections"], planned["text"]) == (1, 1, "pending")
    refused = here("user", "merge", "lena-discord", "lena")
    assert (refused.code, "--yes" in refused.err) == (2, True)
    done = here("user", "merge", "lena-discord", "lena", "--yes").ok()
    assert here.json("fact", "list", *MIRA_AND, "--account", discord, "-s", "user") == []
    moved = here.json("fact", "list", *MIRA_AND, "--account", LENA, "-s", "user")
    assert "Lena keeps three herons." in {row["content"] for row in moved}
    assert "no memory to move" in here("user", "merge", discord, "lena", "--yes").ok().err
    run_id = done.err.split("undo --run ")[1][:24]
    here("undo", "--run", run_id, "--yes").ok()
    (back,) = here.json("user", "merge", "lena-discord", "lena", "--dry-run")
    assert back == planned
    unlinked = here("user", "merge", "tomas", "lena", "--dry-run").ok()
    assert "not linked" in unlinked.err
    assert here("user", "merge", "lena", "lena", "--yes").code == 2
