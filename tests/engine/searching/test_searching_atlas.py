"""The searcher and deduplication's road on the stand-in for Atlas: the same code, other lists."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from edenmem.engine.search.searcher import Searcher
from edenmem.errors import StoreError
from edenmem.models.changes import AddFact
from edenmem.models.ids import new_id
from edenmem.models.memory import Fact
from edenmem.models.scope import Scope
from edenmem.settings.schema import SearchSettings, Settings
from edenmem.store.mongo import MongoStore
from edenmem.store.mongo.core.collections import TEXT_INDEX
from tests.support.atlas_server import AtlasServer
from tests.support.builders import FixedClock, change_set, make_fact
from tests.support.embedder import FakeEmbedder
from tests.support.runtime import make_runtime
from tests.support.stores import atlas_store

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
    store.changes.apply(change_set(*(AddFact(fact=fact) for fact in facts)))
    return facts


async def test_both_lists_are_asked_and_fused(
    store: MongoStore, searcher: Searcher, embedder: FakeEmbedder, atlas: AtlasServer
) -> None:
    facts = await add(store, embedder)
    await add(store, embedder, OTHER)
    report = await searcher.search(["a grey cat"], [SCOPE])
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
    report = await searcher.search(["cat"], [SCOPE], recipe="text")
    assert report.hits == ()
    assert {cut.stage for cut in report.dropped} == {"text"}


@pytest.mark.slow
async def test_what_was_just_written_is_said_to_come_later(
    store: MongoStore, searcher: Searcher, embedder: FakeEmbedder, atlas: AtlasServer
) -> None:
    """Known failure 32: a new document was not yet searchable, and nobody said so."""
    atlas.lag = 1000
    await add(store, embedder)
    report = await searcher.search(["a grey cat"], [SCOPE])
    assert report.hits == ()
    (notice,) = report.notices
    assert "a little later" in notice


@pytest.mark.slow
async def test_one_list_that_fails_is_an_error_and_no_half_an_answer(
    store: MongoStore, searcher: Searcher, embedder: FakeEmbedder
) -> None:
    """Known failures 24 and 29."""
    await add(store, embedder)
    store.indexes.drop_index(TEXT_INDEX)
    with pytest.raises(StoreError, match=f"{TEXT_INDEX}.* does not exist"):
        await searcher.search(["a grey cat"], [SCOPE])
