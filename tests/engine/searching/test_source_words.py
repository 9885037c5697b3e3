"""Recipes with ``+source``: the score has a part by the source messages, which are never shown."""

from __future__ import annotations

import msgspec
import pytest

from edenmem.engine.search.searcher import Searcher
from edenmem.engine.search.why_not import MissExplainer
from edenmem.errors import StoreError, UsageError
from edenmem.models.indexes import IndexWish
from edenmem.models.memory import Fact
from edenmem.settings.schema import SearchSettings, Settings
from edenmem.store.sqlite import SqliteStore
from tests.support.builders import make_fact, make_message
from tests.support.forgetting import Town, make_town
from tests.support.memory import add_facts
from tests.support.runtime import make_runtime

WORDS = ("gearbox", "regatta", "marmalade", "winch", "lantern", "anchor", "barometer", "compass")


@pytest.fixture
def town(sqlite_store: SqliteStore) -> Town:
    return make_town(sqlite_store)


@pytest.fixture
def facts(town: Town) -> list[Fact]:
    """One fact for each word, which only its source message has."""
    said = [
        make_message(town.shared, f"It is about the {word}.", sender=town.bruno.id)
        for word in WORDS
    ]
    town.store.host.add_messages(town.shared.id, said)
    made = [
        make_fact(town.his(), f"Fact number {n}.", source_message_ids=(message.id,))
        for n, message in enumerate(said)
    ]
    add_facts(town.store, *made)
    return made


def index(town: Town) -> None:
    town.store.indexes.create_index("facts_source", IndexWish(analyzer="lucene.english"))


async def test_what_the_message_said_finds_the_fact_and_is_not_shown(
    town: Town, facts: list[Fact]
) -> None:
    index(town)
    searcher = Searcher(make_runtime(town.store))
    report = await searcher.search(
        ["the gearbox"], [town.his()], recipe="text+source", track=False, explain=True
    )
    assert [hit.fact.id for hit in report.hits] == [facts[0].id]
    (hit,) = report.hits
    assert hit.explain["source"]["rank"] == 1
    assert hit.explain["fusion"]["parts"]["source"] == pytest.approx(hit.score)
    assert hit.explain["fusion"]["parts"]["text"] == 0
    assert hit.explain["fusion"]["source_weight"] == 0.5
    assert b"gearbox" not in msgspec.json.encode(report.hits)
    both = await searcher.search(["number 3 winch"], [town.his()], recipe="text+source")
    assert both.hits[0].fact.id == facts[3].id
    plain = await searcher.search(["the gearbox"], [town.his()], recipe="text", track=False)
    assert plain.hits == ()
    others = await searcher.search(["gearbox"], [town.her()], recipe="text+source")
    assert others.hits == ()
    place = await MissExplainer(make_runtime(town.store)).why_not(
        facts[1].id, "regatta", [town.his()], recipe="text+source"
    )
    assert [(one.name, one.rank) for one in place.lists] == [("text", None), ("source", 1)]


async def test_without_the_index_the_command_is_named(town: Town, facts: list[Fact]) -> None:
    """It never falls back in silence."""
    searcher = Searcher(
        make_runtime(town.store, Settings(search=SearchSettings(recipe="convex+source")))
    )
    with pytest.raises(StoreError, match=r"'text\+source' needs an index") as refused:
        await searcher.search(["gearbox"], [town.his()])
    assert "index create facts_source" in (refused.value.hint or "")
    with pytest.raises(UsageError, match="takes no stage"):
        await searcher.search(["gearbox"], [town.his()], recipe="rrf+source")
