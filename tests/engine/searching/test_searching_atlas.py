"""The searcher and deduplication's road on the stand-in for Atlas: the same code, other lists."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.monitoring import CommandListener

from edenmem.engine.search.searcher import Searcher
from edenmem.errors import StoreError
from edenmem.models.ids import new_id
from edenmem.models.memory import Fact
from edenmem.models.scope import Scope
from edenmem.models.search import FactFilter
from edenmem.settings.schema import SearchSettings, Settings
from edenmem.store.mongo import MongoStore
from edenmem.store.mongo.core.collections import TEXT_INDEX
from tests.support.atlas_server import AtlasServer
from tests.support.builders import FixedClock, make_agent, make_fact, make_user
from tests.support.embedder import FakeEmbedder
from tests.support.memory import add_facts
from tests.support.runtime import make_runtime
from tests.support.stores import atlas_store

pytestmark = pytest.mark.slow

SCOPE = Scope.user(new_id(), new_id())
OTHER = Scope.user(SCOPE.agent_id, new_id())
TEXTS = (
    "Anna lives in Lisbon near the river.",
    "Anna has a grey cat called Miso.",
    "Anna works as a marine biologist.",
)


@pytest.fixture
def store(atlas: AtlasServer, embedder: FakeEmbedder) -> Iterator[MongoStore]:
    with atlas_store(atlas, dimensions=embedder.dimensions) as store:
        atlas.commands.clear()
        yield store


@pytest.fixture
def searcher(store: MongoStore, embedder: FakeEmbedder, clock: FixedClock) -> Searcher:
    settings = Settings(search=SearchSettings(semantic_floor=0.5, text_floor=0.01))
    return Searcher(make_runtime(store, settings, embedder=embedder, clock=clock))


async def add(store: MongoStore, embedder: FakeEmbedder, scope: Scope = SCOPE) -> list[Fact]:
    made = await embedder.embed(TEXTS)
    facts = [
        make_fact(scope, text, embedding=vector, embedding_model=embedder.model)
        for text, vector in zip(TEXTS, made.vectors, strict=True)
    ]
    add_facts(store, *facts)
    return facts


async def test_both_lists_are_asked_and_fused(
    store: MongoStore, searcher: Searcher, embedder: FakeEmbedder, atlas: AtlasServer
) -> None:
    facts = await add(store, embedder)
    await add(store, embedder, OTHER)
    report = await searcher.search(["a grey cat"], [SCOPE], explain=True)
    assert report.hits[0].fact.id == facts[1].id
    assert {hit.fact.home for hit in report.hits} == {SCOPE}
    assert {"semantic", "text"} <= report.hits[0].explain.keys()
    stages = {next(iter(stage)) for stage in atlas.searches()}
    assert stages == {"$vectorSearch", "$search"}
    assert report.notices == ()


async def test_lucenes_floor_applies_here_alone(
    store: MongoStore, embedder: FakeEmbedder, clock: FixedClock
) -> None:
    """Known failure 26: a threshold was compared with scores of another scale."""
    await add(store, embedder)
    high = Settings(search=SearchSettings(text_floor=50))
    searcher = Searcher(make_runtime(store, high, embedder=embedder, clock=clock))
    report = await searcher.search(["cat"], [SCOPE], recipe="text", explain=True)
    assert report.hits == ()
    assert {cut.stage for cut in report.dropped} == {"text"}


async def test_what_was_just_written_is_said_to_come_later(
    store: MongoStore, searcher: Searcher, embedder: FakeEmbedder, atlas: AtlasServer
) -> None:
    """Known failure 32: a new document was not yet searchable, and nobody said so."""
    atlas.lag = 1000
    await add(store, embedder)
    report = await searcher.search(["a grey cat"], [SCOPE])
    assert report.hits == ()
    (notice,) = report.notices
    assert "short delay" in notice


async def test_one_list_that_fails_is_an_error_and_no_half_an_answer(
    store: MongoStore, searcher: Searcher, embedder: FakeEmbedder
) -> None:
    """Known failures 24 and 29."""
    await add(store, embedder)
    store.indexes.drop_index(TEXT_INDEX)
    with pytest.raises(StoreError, match=f"does not exist: {TEXT_INDEX}"):
        await searcher.search(["a grey cat"], [SCOPE])


class _Trips(CommandListener):
    """Keeps the names of the commands that are sent."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def started(self, event: Any) -> None:
        self.names.append(event.command_name)

    def succeeded(self, event: Any) -> None:
        """Nothing to see."""

    def failed(self, event: Any) -> None:
        """Nothing to see."""


async def test_a_search_is_both_lists_side_by_side_and_one_read(
    store: MongoStore, embedder: FakeEmbedder, clock: FixedClock
) -> None:
    """In a process that has searched before; also where one list finds what the other does not,
    with facts of several scopes and several queries."""
    facts = await add(store, embedder)
    await add(store, embedder, Scope.agent(SCOPE.agent_id))
    scopes = [SCOPE, Scope.agent(SCOPE.agent_id)]
    trips = _Trips()
    client: MongoClient[Any] = MongoClient(
        store.connection.uri, tz_aware=True, event_listeners=[trips]
    )
    other = MongoStore(store.connection.uri, store.connection.settings, client=client)
    with closing(other.database), client:
        settings = Settings(search=SearchSettings(semantic_floor=0.0, text_floor=0.01))
        searcher = Searcher(make_runtime(other, settings, embedder=embedder, clock=clock))
        await searcher.search(["a biologist"], scopes, track=False)
        trips.names.clear()
        report = await searcher.search(["a grey cat"], scopes, track=False, explain=True)
        assert report.hits[0].fact.content == facts[1].content
        assert any("completed" in hit.explain["text"] for hit in report.hits)
        assert trips.names[:2] == ["aggregate", "aggregate"]
        assert len(trips.names) == 3
        trips.names.clear()
        await searcher.search(["river", "marine biology"], scopes, track=False)
        assert trips.names[:4] == ["aggregate"] * 4
        assert len(trips.names) == 5


async def test_names_of_those_who_are_searched_are_left_out(
    store: MongoStore, embedder: FakeEmbedder, atlas: AtlasServer
) -> None:
    """Known failure 88: on Atlas a word weighs what it weighs in the whole index."""
    store.host.add_agent(make_agent(id=SCOPE.agent_id, username="guide", name="Harbour Guide"))
    store.host.add_user(make_user(id=SCOPE.owner, username="Anna"))
    await add(store, embedder)
    asked = {
        "Where does Anna live?": "Where does live?",
        "anna's cat, harbour guide!": "cat,",
        "the harbour of anna": "the harbour of",
        "Who is Anna?": "Who is Anna?",
    }
    for query, expected in asked.items():
        atlas.commands.clear()
        store.search.text_candidates(FactFilter(scopes=(SCOPE,)), [query], limit=5)
        (stage,) = (stage["$search"] for stage in atlas.searches())
        assert stage["compound"]["must"][0]["text"]["query"] == expected
