"""Switching to another embedding model from the command line."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.cli.conftest import Cli
from tests.cli.test_embed import FACTS
from tests.support.fake_openai import KEY, FakeOpenAI, Reply

pytestmark = pytest.mark.slow


OLD, NEW = "mini", "text-embedding-3-small"
WALK = "The walk starts at 17:30."
ASK = ("search", WALK, "--agent", "mira", "--recipe", "semantic", "--format", "json")


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeOpenAI]:
    monkeypatch.setenv("EDENMEM_EMBEDDING_API_KEY", KEY)
    with FakeOpenAI() as fake:
        yield fake


def embedding(endpoint: FakeOpenAI, model: str) -> tuple[str, ...]:
    """Options for the endpoint as the embedding model."""
    values = {"provider": "openai", "base_url": endpoint.url, "model": model, "retries": 0}
    return tuple(
        word for key, value in values.items() for word in ("--set", f"embedding.{key}={value}")
    )


def found(cli: Cli, *options: str) -> list[str]:
    return [hit["content"] for hit in cli(*ASK, *options).ok().data]


def test_one_command_fills_and_switches(cli: Cli, endpoint: FakeOpenAI) -> None:
    """Known failure 66: re-embedding after a change of model was asked for, and not found."""
    old, new = embedding(endpoint, OLD), embedding(endpoint, NEW)
    cli("embed", "backfill", *old).ok()
    before = found(cli, *old)
    assert before[0] == WALK
    dry = cli("embed", "use", NEW, "--dry-run", *old).ok()
    assert f"would embed  {FACTS} facts, keeping old vectors" in dry.out
    refused = cli("embed", "use", NEW, *old)
    assert (refused.code, "--yes" in refused.err) == (2, True)

    done = cli("embed", "use", NEW, "--yes", *old).ok()
    assert f"{FACTS} facts to embed with {NEW}, about" in done.err
    assert f"vectors of {OLD} are kept and still searched" in done.out
    assert f"'edenmem config set embedding.model {NEW}'" in done.err.replace("\n", " ")
    assert found(cli, *old) == before
    assert found(cli, *new)[0] == WALK
    cli("fact", "add", "--agent", "mira", "--content", "The hall is cold.", *old).ok()
    again = cli("embed", "use", NEW, "--yes", *old).ok()
    assert f"1 fact to embed with {NEW}" in again.err
    assert "until the switch" not in again.err

    (status,) = cli("embed", "status", "--format", "json", *new).ok().rows
    assert (status["switch"]["phase"], status["switch"]["in_force"]) == ("switched", NEW)
    assert (status["stale"], status["switch"]["vectors"]["current"]) == (0, FACTS + 1)
    shown = cli.on_terminal(
        "embed",
        "use",
        "--drop-old",
        *new,
        answers=[(f"Drop the vectors of {OLD} permanently?", "y")],
    )
    assert re.search(rf"facts settled\S*\s+{FACTS + 1}", shown.out)
    assert found(cli, *new)[0] == WALK
    late = cli(*ASK, *old)
    assert late.code == 5
    assert f"'{NEW}'" in late.err
    assert f"'{OLD}'" in late.err
    assert cli("embed", "use", "--back", "--yes", *new).code == 3


def test_a_switch_is_reverted_and_abandoned(cli: Cli, endpoint: FakeOpenAI) -> None:
    old = embedding(endpoint, OLD)
    cli("embed", "backfill", *old).ok()
    (report,) = cli("embed", "use", NEW, "--yes", "--format", "json", *old).ok().rows
    assert (report["in_force"], report["filled"]["embedded"]) == (NEW, FACTS)
    back = cli("embed", "use", "--back", "--yes", *old).ok()
    assert f"model  {OLD}" in back.out
    assert cli("embed", "use", "--drop-old", "--yes", *old).code == 4
    gone = cli("embed", "use", "--abandon", "--yes", *old).ok()
    assert f"vectors removed  {FACTS}" in gone.out


def test_killed_it_goes_on_where_it_was(cli: Cli, endpoint: FakeOpenAI) -> None:
    old = embedding(endpoint, OLD)
    cli("embed", "backfill", *old).ok()
    endpoint.script.append(Reply(hang=True))
    key, address = KEY, endpoint.url  # another endpoint may want another key
    (cli.cwd / "edenmem.toml").write_text(
        f'[profiles.next.embedding]\nprovider = "openai"\nmodel = "{NEW}"\n'
        f'base_url = "{address}"\napi_key = "{key}"\n'
    )
    (cli.cwd / "edenmem.toml").chmod(0o600)
    command = ["embed", "use", "--to-profile", "next", "--yes", *old]
    unset = {"EDENMEM_EMBEDDING_PROVIDER": ""}  # which would be stronger than a profile
    process = subprocess.Popen(
        [sys.executable, "-m", "edenmem", *command],
        env=cli.environment(80, unset),
        cwd=cli.cwd,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    assert endpoint.hanging.wait(60)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert found(cli, *old)[0] == WALK
    status = cli("embed", "status", *old).ok()
    assert f"being prepared; {OLD} is in use" in status.out
    done = cli(*command, env=unset).ok()
    assert "use profile 'next' from now on" in done.err
    assert found(cli, *embedding(endpoint, NEW))[0] == WALK


def test_what_does_not_go_together_is_refused(cli: Cli, endpoint: FakeOpenAI) -> None:
    old = embedding(endpoint, OLD)
    for wrong, said in (
        ((NEW, "--back"), "exclude each other"),
        (("--back", "--abandon"), "exclude each other"),
        (("--to", "nonsense"), "NAME=VALUE"),
        (("--to", "modle=x"), "embedding.modle"),
        (("--to", "api_key=x"), "--to-profile"),
        (("--yes",), "no fact has a vector of another model"),
    ):
        refused = cli("embed", "use", *wrong, *old)
        assert (refused.code, said in refused.err.replace("\n", " ")) == (2, True), refused.err
    assert cli("embed", "use", "--abandon", "--yes", *old).code == 3


def test_from_the_english_local_model_to_the_multilingual_one(cli: Cli) -> None:
    """With both real models; nothing is asked of any endpoint."""
    local = ("--set", "embedding.provider=local")
    cli("embed", "backfill", *local).ok()
    to = ("embed", "use", "--to", "local_model=multilingual-e5-small")
    done = cli(*to, "--yes", *local).ok()
    assert "config set embedding.local_model multilingual-e5-small" in done.err
    assert "config set embedding.provider local'" in done.err
    e5 = (*local, "--set", "embedding.local_model=multilingual-e5-small")
    (status,) = cli("embed", "status", "--format", "json", *e5).ok().rows
    assert (status["model"], status["dimensions"]) == ("multilingual-e5-small-int4", 384)
    assert (status["stale"], status["total"]["current"]) == (0, FACTS)
    assert found(cli, *e5)[0] == WALK
    assert found(cli, *local)[0] == WALK, "readers of the old model are served"
    assert "multilingual" in cli("embed", "use", "--drop-old", "--yes", *e5).ok().out
