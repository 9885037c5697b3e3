"""With ``embedding.provider = auto``, the store chooses the embedding model (FAILURES 111)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from edenmem.embed import model_files
from edenmem.engine.embeddings.choice import (
    describe_destination,
    explain,
    first_destination,
    open_embedder_for,
    settle,
)
from edenmem.engine.service import MemoryService
from edenmem.errors import StoreError
from edenmem.models.embeddings import VectorSwitch
from edenmem.models.ids import new_id
from edenmem.models.scope import Scope
from edenmem.settings.schema import EmbeddingSettings, LLMSettings, Settings, StoreSettings
from edenmem.store.protocol.store import Store
from edenmem.store.sqlite import SqliteStore
from tests.support.builders import NOW, make_agent, some
from tests.support.memory import add_fact
from tests.support.vectors import begin, enter, random_unit

LOCAL = "all-MiniLM-L6-v2-int8"
REMOTE = "text-embedding-3-small"
SCOPE = Scope.agent(new_id())
#: An address that refuses connections, and a key, as from the variables of a shell.
SHELL: dict[str, Any] = {
    "api_key": "k",
    "base_url": "http://127.0.0.1:1/v1",
    "inherited": frozenset({"api_key", "base_url"}),
}


def settings(**embedding: Any) -> Settings:
    return Settings(embedding=EmbeddingSettings(**SHELL | embedding))


def store_vector(store: Store, model: str) -> None:
    add_fact(store, SCOPE, f"text {new_id()}", embedding=random_unit(1, 384), embedding_model=model)


@pytest.mark.parametrize(
    ("stored", "kind"),
    [
        (None, "local"),
        (LOCAL, "local"),
        ("multilingual-e5-small-int4", "local"),
        (REMOTE, "openai"),
        ("another", "openai"),
    ],
)
def test_the_stored_vectors_choose(store: Store, stored: str | None, kind: str) -> None:
    add_fact(store, SCOPE, "without a vector")
    if stored:
        store_vector(store, stored)
    assert settle(settings(), store).embedding.provider == kind
    reason = explain(settings(), store)
    assert (stored or "no vectors") in reason
    assert ("endpoint" in reason) == (kind == "openai")
    is_sent = describe_destination(settings(), store) != "on this machine"
    assert is_sent == (kind == "openai")
    assert bool(first_destination(settings(), store)) == (stored is None)


@pytest.mark.parametrize(
    "chosen",
    [
        {"provider": "openai"},
        {"provider": "none"},
        {"inherited": frozenset()},
        {"inherited": frozenset({"api_key"})},
        {"inherited": frozenset({"base_url"})},
        {"model": "text-embedding-3-large"},
    ],
)
def test_settings_win_over_stored_vectors(store: Store, chosen: dict[str, Any]) -> None:
    store_vector(store, LOCAL)
    given = settings(**chosen)
    assert settle(given, store) is given


def test_without_a_local_model_the_endpoint_is_used(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edenmem.onnx.has_runtime", lambda: False)
    store_vector(store, LOCAL)
    assert settle(settings(), store) == settings()
    assert "of the endpoint" in explain(settings(), store)


@pytest.mark.parametrize(("phase", "kind"), [("filling", "local"), ("switched", "openai")])
def test_during_a_switch_the_active_model_is_used(store: Store, phase: Any, kind: str) -> None:
    store_vector(store, LOCAL)
    switch = VectorSwitch(model=REMOTE, dimensions=1536, previous=LOCAL, begun_at=NOW)
    begin(store, switch)
    if phase != "filling":
        enter(store, phase)
    assert settle(settings(), store).embedding.provider == kind


def test_the_models_of_the_platform_win(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store_vector(store, LOCAL)
    monkeypatch.setattr(type(store.switches), "platform_model", lambda self, model: REMOTE)
    assert settle(settings(), store).embedding.provider == "openai"
    # Without a key, no vectors: the platform could not search the local model's.
    assert settle(Settings(), store).embedding.provider == "none"
    told = f"the platform searches vectors of {REMOTE}, and no key is set: set OPENAI_API_KEY"
    assert describe_destination(Settings(), store) == f"none: {told}"
    assert first_destination(Settings(), store) == ""


@pytest.mark.parametrize(
    ("embedding", "words"),
    [
        (
            {"base_url": "https://u:secret@host.example:8443/v1?k=1"},
            "sent to https://host.example:8443/v1",
        ),
        ({"provider": "openai", "api_key": "k"}, "sent to https://api.openai.com/v1"),
        ({"provider": "local", "api_key": "k"}, "on this machine"),
        ({"provider": "none"}, "none: embedding.provider is none"),
        ({"local_path": "/no/such"}, "unknown: embedding.local_path is not a folder: '/no/such'"),
    ],
)
def test_the_destination_of_texts_is_shown_without_secrets(
    store: Store, embedding: dict[str, str], words: str
) -> None:
    given = Settings(embedding=EmbeddingSettings(**embedding))
    assert describe_destination(given, store) == words


@pytest.mark.slow
async def test_the_library_reads_the_store_on_first_use(sqlite_store: SqliteStore) -> None:
    """Creating a service must not connect, and a query must not reach the endpoint."""
    location = sqlite_store.database.info().location
    given = msgspec.structs.replace(
        settings(),
        store=StoreSettings(uri=f"sqlite:///{location}"),
        llm=LLMSettings(**SHELL),
    )
    async with MemoryService.from_settings(given) as service:
        sqlite_store.host.add_agent(make_agent("mira", id=SCOPE.agent_id))
        store_vector(sqlite_store, LOCAL)
        report = await service.search("text", agent_id=SCOPE.agent_id)
        assert report.hits


async def test_an_unused_model_is_not_opened(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: object) -> str:
        raise StoreError("unreachable")

    monkeypatch.setattr(type(store.vectors), "first_vector_model", fail)
    unused = some(open_embedder_for(settings(), store))
    await unused.close()
    with pytest.raises(StoreError, match="unreachable"):
        _ = unused.model
    assert explain(settings(), store) == "the model is unknown: unreachable"


@pytest.mark.parametrize(
    ("embedding", "words"),
    [
        ({"api_key": "k"}, "endpoint: the settings name it"),
        ({}, f"{LOCAL}: no key or address is set"),
        ({"local_model": "multilingual-e5-small"}, "the settings name it"),
        ({"local_path": "/no/such"}, "the model is unknown"),
    ],
)
def test_choices_without_a_store_are_explained(
    store: Store, embedding: dict[str, str], words: str
) -> None:
    assert words in explain(Settings(embedding=EmbeddingSettings(**embedding)), store)


def test_no_model_is_explained(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_files, "find_bundled_model", lambda: None)
    assert "uses no model" in explain(Settings(), store)
    assert describe_destination(Settings(), store).startswith("none: no key or address is set")
    assert first_destination(Settings(), store) == ""
