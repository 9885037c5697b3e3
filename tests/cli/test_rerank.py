"""Stages of a search from the command line: as options, as recipes, and in ``eval``."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.support.cross_encoder import cross_encoder, relevance
from tests.support.fake_openai import KEY, failing
from tests.support.fake_rerank import MODEL, FakeRerank

SEARCH = ("search", "lanterns", "--agent", "mira", "--user", "lena", "--no-track")
FACT = "Lena folds ninety whale lanterns."


RERANK = ("--recipe", "text+rerank")


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a cross-encoder."""
    pytest.importorskip("onnxruntime")
    return cross_encoder(tmp_path_factory.mktemp("models") / "tiny")


def test_a_folder_with_a_cross_encoder(shared_cli: Cli, model: Path) -> None:
    shutil.copytree(model, shared_cli.cwd / "tiny")
    (shared_cli.cwd / "edenmem.toml").write_text('search.rerank_path = "tiny"\n')
    (hit,) = shared_cli.json(*SEARCH, *RERANK, "--explain")
    assert hit["content"] == FACT
    assert hit["score"] == pytest.approx(relevance(1), abs=1e-6)
    assert hit["explain"]["rerank"]["model"] == "tiny"
    assert hit["explain"]["rerank"]["rank_before"] == 1
    shown = shared_cli(*SEARCH, *RERANK, "--explain").ok().out
    assert re.search(r"^rerank +1  0\.269 .*model tiny, rank_before 1", shown, re.MULTILINE)
    last = " ".join(shown[shown.index("recipe text+rerank, ") :].split())
    assert ", rerank " in last, "the time of the stage"


def test_without_a_reranker_it_names_what_to_set(shared_cli: Cli) -> None:
    shared_cli(*SEARCH, *RERANK).fails(
        2, "none is configured", "search.rerank_path", "search.rerank_url and search.rerank_model"
    )


@pytest.mark.parametrize("name", ["magic", "convex+magic", "+mmr"])
def test_an_unknown_recipe_is_a_usage_error(shared_cli: Cli, name: str) -> None:
    shared_cli(*SEARCH, "--recipe", name).fails(2, f"unknown search recipe: {name!r}", "+rerank")


def endpoint(server: FakeRerank) -> dict[str, str]:
    return {
        "EDENMEM_SEARCH_RERANK_URL": server.url,
        "EDENMEM_SEARCH_RERANK_MODEL": MODEL,
        "EDENMEM_SEARCH_RERANK_API_KEY": KEY,
        "EDENMEM_SEARCH_RERANK_RETRIES": "0",
    }


def test_an_endpoint_and_what_it_fails_with(shared_cli: Cli) -> None:
    with FakeRerank() as server:
        result = shared_cli(*SEARCH, *RERANK, "--format", "json", env=endpoint(server)).ok()
        assert result.data[0]["score"] == 1.0
        assert server.requests[0]["documents"] == [FACT]

        server.script += [failing(503, f"overloaded, Bearer {KEY}")]
        down = shared_cli(*SEARCH, *RERANK, env=endpoint(server))
    assert down.code == 5
    assert down.out == ""
    assert "answered 503" in down.err
    assert "without +rerank" in down.err
    assert KEY not in down.err


def test_the_users_key_does_not_go_where_a_folder_says(shared_cli: Cli, tmp_path: Path) -> None:
    """A database in a foreign folder may come with an edenmem.toml of its own."""
    config = tmp_path / "config"
    (config / "edenmem").mkdir(parents=True)
    own = config / "edenmem" / "edenmem.toml"
    own.write_text(f'[search]\nrerank_api_key = "{KEY}"\n')
    own.chmod(0o600)
    with FakeRerank() as server:
        (shared_cli.cwd / "edenmem.toml").write_text(
            f'[search]\nrerank_url = "{server.url}"\nrerank_model = "{MODEL}"\n'
        )
        result = shared_cli(*SEARCH, *RERANK, env={"XDG_CONFIG_HOME": str(config)})
    assert result.code == 5
    assert "search.rerank_api_key" in result.err
    assert "is not sent to" in result.err
    assert KEY not in result.err


def test_why_not_names_the_stage(shared_cli: Cli, model: Path) -> None:
    options = ("--set", f"search.rerank_path={model}", "--set", "search.rerank_floor=0.9")
    result = shared_cli(*SEARCH, *options, *RERANK, "--why-not", "f" * 23 + "1").ok()
    assert "dropped at rerank" in result.out
    assert "relevance 0.269 is below 0.9" in result.out
    assert "search.rerank_floor" in result.out
    assert re.search(r"^rerank +0\.269 ", result.out, re.MULTILINE)
    found = shared_cli.json(*SEARCH, *options[:2], *RERANK, "--why-not", "f" * 23 + "1")
    assert found[0]["stage"] == "found"
    assert found[0]["recipe"] == "text+rerank"


def test_eval_measures_recipes_with_stages(shared_cli: Cli, model: Path, tmp_path: Path) -> None:
    queries = tmp_path / "queries.jsonl"
    queries.write_text(
        json.dumps({"query": "lanterns", "agent": "mira", "user": "lena", "relevant": [FACT]})
    )
    names = ("text", "text+recency", "text+rerank+mmr")
    recipes = [word for name in names for word in ("--recipe", name)]
    rerank = ("--set", f"search.rerank_path={model}")
    scores = shared_cli.json("eval", str(queries), *recipes, *rerank)
    assert [score["recipe"] for score in scores] == list(names)
    assert {score["mrr"] for score in scores} == {1.0}
    shared_cli("eval", str(queries), *recipes).fails(2, "search.rerank_path")
