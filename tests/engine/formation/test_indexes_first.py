"""Indexes that facts need are looked at before a model is paid."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from edenmem.engine.cold.runner import run_cold
from edenmem.engine.service import MemoryService
from edenmem.errors import EdenmemError, FactKeyConflict, SearchIndexUnusable
from edenmem.models.formation import FormationStatus
from edenmem.models.indexes import IndexWish
from edenmem.store.mongo.core.collections import FACT_KEY, VECTOR_INDEX
from tests.engine.conftest import make_cast
from tests.engine.formation.conftest import World, facts, reflections
from tests.support.builders import FixedClock
from tests.support.embedder import FakeEmbedder
from tests.support.llm import FakeLLM
from tests.support.runtime import make_runtime

if TYPE_CHECKING:
    from edenmem.store.mongo import MongoStore
    from tests.support.atlas_server import AtlasServer


@pytest.fixture
def forming(open_store: Callable[[str], MongoStore]) -> World:
    """A world on the stand-in for Atlas, with something to form."""
    store = open_store("atlas")
    world = World(
        cast=make_cast(store),
        llm=FakeLLM(),
        embedder=FakeEmbedder(dimensions=32),
        clock=FixedClock(),
    )
    world.llm.script("facts", facts("Anna Duarte lives in Lisbon."))
    world.llm.script("reflections", reflections())
    world.say("I live in Lisbon.", "It is warm.", "Very.", "And old.")
    return world


def without_vectors(store: MongoStore, atlas: AtlasServer) -> None:
    store.indexes.drop_index(VECTOR_INDEX)


def building(store: MongoStore, atlas: AtlasServer) -> None:
    without_vectors(store, atlas)
    atlas.build_steps = 1000
    store.indexes.create_index(VECTOR_INDEX, IndexWish(dimensions=32, analyzer="lucene.english"))


def narrow(store: MongoStore, atlas: AtlasServer) -> None:
    raw = store.connection.database.memory2_facts
    raw.drop_index(FACT_KEY.name)
    raw.create_index([("hash", 1), ("agent_id", 1)], name=FACT_KEY.name, unique=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spoil", "error", "stopped", "command"),
    [
        (without_vectors, SearchIndexUnusable, "database", "edenmem index create"),
        (building, SearchIndexUnusable, "database", "edenmem index list --check --wait"),
        (narrow, FactKeyConflict, "conflict", "edenmem index create --replace"),
    ],
)
async def test_no_model_is_asked_and_no_try_is_counted(
    forming: World,
    atlas: AtlasServer,
    spoil: Callable[[MongoStore, AtlasServer], None],
    error: type[EdenmemError],
    stopped: str,
    command: str,
) -> None:
    """Known failures 54 and 62: each cold run asked the models again while an index was missing,
    and facts that the narrow index refused were dropped."""
    world = forming
    store: MongoStore = world.store  # type: ignore[assignment]
    spoil(store, atlas)
    with pytest.raises(error) as caught:
        await world.form()
    assert command in (caught.value.hint or "")
    [formation] = world.formations()
    assert (formation.status, formation.attempts) == (FormationStatus.RELEASED, 0)
    assert caught.value.message == formation.error

    world.clock.advance(days=1)
    report = await run_cold(
        make_runtime(store, llm=world.llm, embedder=world.embedder, clock=world.clock),
        MemoryService.from_runtime,
    )
    assert (report.stopped_early, report.failed) == (stopped, ())
    assert command in (report.hint or "")
    assert world.llm.requests == []

    atlas.reset()
    if spoil is without_vectors:
        store.indexes.create_index(
            VECTOR_INDEX, IndexWish(dimensions=32, analyzer="lucene.english")
        )
    if spoil is narrow:
        store.indexes.replace_index(FACT_KEY.name)
    else:
        while not all(
            s.queryable for s in store.indexes.list_indexes(IndexWish(analyzer="lucene.english"))
        ):
            pass
    assert (await world.form_one()).outcome == "applied"
