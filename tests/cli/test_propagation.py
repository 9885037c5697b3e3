"""Propagation from the command line, and what models cost in ``status``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from edenmem.models.formation import CallUsage, UsageEntry
from edenmem.models.ids import new_id, utc_now
from edenmem.store.sqlite import SqliteStore
from tests.cli.conftest import MIRA, Cli

LENA = ("--agent", "mira", "--user", "lena")
GENERAL = "The walk of lanterns is on 12 June 2026."


def scripted(cli: Cli, *items: dict[str, Any]) -> dict[str, str]:
    """The environment of a run with these answers to what may move up."""
    answers = [
        {"task": "consolidate", "key": "user/mira/lena/2", "answer": {"text": "Lena is here."}},
        {"task": "propagate", "key": "user/mira/lena/3/agent", "answer": {"items": list(items)}},
    ]
    file = cli.cwd / "answers.jsonl"
    file.write_text("".join(json.dumps(answer) + "\n" for answer in answers))
    return {"EDENMEM_LLM_PROVIDER": "replay", "EDENMEM_LLM_REPLAY": str(file)}


def above(cli: Cli) -> list[str]:
    rows = cli.json("reflection", "list", "--agent", "mira", "--scope", "agent")
    return [row["content"] for row in rows]


def test_what_is_general_moves_up_once_the_policy_says_so(cli: Cli) -> None:
    assert "propagates" in cli("scope", "policy", *LENA).ok().out
    cli("scope", "policy", *LENA, "--propagate").ok()
    [policy] = cli.json("scope", "policy", *LENA)
    assert policy["propagate"] is True
    env = scripted(
        cli,
        {"reflection": 1, "content": GENERAL},
        {"reflection": 7, "content": "Invented."},
    )
    done = cli("consolidate", *LENA, "--force", env=env).ok()
    assert "propagated 1 reflection" in done.err
    assert "not propagated: unknown reflection number" in done.err
    assert GENERAL in above(cli)
    assert "propagated" not in cli("consolidate", *LENA, env=env).ok().err
    assert above(cli).count(GENERAL) == 1


def test_what_fails_is_told_and_done_by_the_next_run(cli: Cli) -> None:
    cli("scope", "policy", *LENA, "--propagate").ok()
    env = scripted(cli, {"reflection": 1, "content": GENERAL})
    answers = Path(env["EDENMEM_LLM_REPLAY"])
    whole = answers.read_text()
    answers.write_text(whole.splitlines(keepends=True)[0])
    assert "propagation will be retried" in cli("consolidate", *LENA, "--force", env=env).ok().err
    assert GENERAL not in above(cli)
    answers.write_text(whole)
    [report] = cli("consolidate", "--format", "json", env=env).ok().data
    assert (report["outcome"], report["propagated"]) == ("nothing_pending", 1)
    assert GENERAL in above(cli)


def test_stats_show_what_each_model_cost(cli: Cli) -> None:
    assert "US dollars" not in cli("stats").ok().out
    store = SqliteStore(cli.cwd / "memory.db")
    calls = (
        CallUsage(task="consolidate", model="small", input_tokens=1200, output_tokens=30, cost=0.5),
        CallUsage(task="embed", model="unpriced", input_tokens=40),
    )
    store.usage.add_usage(
        UsageEntry(id=new_id(), at=utc_now(), agent_id=MIRA, work="consolidation", calls=calls)
    )
    store.database.close()
    shown = cli("stats").ok().out
    for word in ("small", "0.5000+", "1,240", "US dollars"):
        assert word in shown
    assert "small" not in cli("stats", "--agent", "otto").ok().out
