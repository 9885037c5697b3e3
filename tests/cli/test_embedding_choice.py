"""OPENAI_* in the shell does not change the embedding model of a store with local vectors."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Cli

pytestmark = pytest.mark.slow

LOCAL = "all-MiniLM-L6-v2-int8"
#: The embedding settings of a new user; `Cli` turns embeddings off.
AUTO = {"EDENMEM_EMBEDDING_PROVIDER": ""}
#: For `edenmem serve` or another program; nothing answers at this address.
SHELL = {**AUTO, "OPENAI_API_KEY": "unused", "OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}


@pytest.fixture
def embedded(cli: Cli) -> Cli:
    cli("embed", "backfill", "--yes", env=AUTO).ok()
    return cli


def origin(cli: Cli, key: str) -> str:
    (row,) = cli("config", "show", key, "--json", env=SHELL).ok().rows
    return str(row["origin"])


def test_commands_use_the_model_of_the_stored_vectors(embedded: Cli) -> None:
    cli = embedded
    assert cli("search", "tea", "--agent", "mira", "--json", env=SHELL).ok().out
    cli("fact", "add", "Mira walks to the lake.", "--agent", "mira", env=SHELL).ok()
    (status,) = cli("embed", "status", "--json", env=SHELL).ok().rows
    assert (status["model"], status["stale"]) == (LOCAL, 0)
    cli("context", "--agent", "mira", env=SHELL)
    assert LOCAL in origin(cli, "embedding.provider")
    assert f"by the model {LOCAL}" in origin(cli, "search.semantic_floor")
    checkup = cli("doctor", "--check", "providers", "--check", "vectors", "--json", env=SHELL)
    assert LOCAL in checkup.out
    printed = cli("doctor", "--check", "providers", env=SHELL, columns=120).ok().out
    assert "\N{EN DASH} providers  " in " ".join(printed.split("\n"))
    assert f"{LOCAL}, 127.0.0.1:1 not called; --online calls them" in printed
    assert "text-embedding" not in checkup.out


def test_the_endpoint_is_used_if_the_settings_name_it(embedded: Cli) -> None:
    chosen = {**SHELL, "EDENMEM_EMBEDDING_PROVIDER": "openai", "EDENMEM_EMBEDDING_RETRIES": "0"}
    embedded("search", "tea", "--agent", "mira", env=chosen).fails(5, "127.0.0.1:1")


def test_texts_stay_on_this_machine_unless_an_endpoint_is_named(cli: Cli, empty_cli: Cli) -> None:
    """FAILURES 111."""
    assert f"uses the local model {LOCAL}" in origin(cli, "embedding.provider")
    assert "the store has no vectors" in origin(empty_cli, "embedding.provider")
    here, there = "embeddings: on this machine", "embeddings: sent to http://127.0.0.1:1/v1"
    add = ("fact", "add", "Mira walks to the lake.", "--agent", "mira")
    named = {**SHELL, "EDENMEM_EMBEDDING_BASE_URL": "http://127.0.0.1:1/v1"}
    named["EDENMEM_EMBEDDING_RETRIES"] = "0"
    assert there in cli("init", "--yes", env=named).ok().out
    cli(*add, env=named).fails(5, there)
    assert here in cli("init", "--yes", env=SHELL).ok().out
    assert here.replace(": ", "  ") in " ".join(cli("status", env=SHELL).ok().out.split(" "))
    assert here in cli(*add, env=SHELL).ok().err
    assert here not in cli(*add[:2], "Mira sails.", *add[3:], env=SHELL).ok().err  # the first only
    assert json.loads(empty_cli("config", "show", "store.uri", "--json").ok().out)
