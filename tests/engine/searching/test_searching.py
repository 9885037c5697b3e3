"""The searcher, over a real store."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from edenmem.engine.reports import SearchReport
from edenmem.engine.search.searcher import Searcher
from edenmem.errors import EmbeddingModelMismatch, ProviderTimeout, StoreError, UsageError
from edenmem.models.ids import new_id
from edenmem.models.memory import Fact
from edenmem.models.scope import Scope
from edenmem.models.search import SearchAbility
from edenmem.settings.installation import install_hint
from edenmem.settings.schema import SearchSettings, Settings
from edenmem.store.protocol.store import Store
from tests.support.builders import NOW, FixedClock, ago, make_fact, some
from tests.support.embedder import FakeEmbedder
from tests.support.memory import add_facts
from tests.support.runtime import make_runtime

AGENT = new_id()
ANNA, BEN = new_id(), new_id()
SCOPE = Scope.user(AGENT, ANNA)
LOW_FLOOR = Settings(search=SearchSettings(semantic_floor=0.5))

TEXTS = (
    "Anna lives in Lisbon near the river.",
    "Anna has a grey cat called Miso.",
    "Anna works as a marine biologist.",
    "Anna plays the cello in a quartet.",
)


@pytest.fixture
def store(sqlite_store: Store) -> Store:
    return sqlite_store


@pytest.fixture
def searcher(store: Store, embedder: FakeEmbedder, clock: FixedClock) -> Searcher:
    return Searcher(make_runtime(store, LOW_FLOOR, embedder=embedder, clock=clock))


def add(
    store: Store,
    embedder: FakeEmbedder | None,
    texts: Sequence[str],
    *,
    scope: Scope = SCOPE,
    **fields: Any,
) -> list[Fact]:
    facts = []
    for text in texts:
        vector = embedder.vector(text) if embedder else None
        model = embedder.model if embedder else None
        facts.append(make_fact(scope, text, embedding=vector, embedding_model=model, **fields))
    add_facts(store, *facts)
    return facts


def contents(report: SearchReport) -> list[str]:
    return [hit.fact.content for hit in report.hits]


class TestFinding:
    @pytest.mark.parametrize("recipe", ["convex", "rrf", "semantic", "text"])
    async def test_every_recipe_finds_the_fact(
        self, searcher: Searcher, store: Store, embedder: FakeEmbedder, recipe: str
    ) -> None:
        add(store, embedder, TEXTS)
        report = await searcher.search(["grey cat called Miso"], [SCOPE], recipe=recipe)
        assert report.recipe == recipe
        assert contents(report)[0] == TEXTS[1]
        assert all(0.0 <= hit.score <= 1.0 for hit in report.hits)
        assert "total" in report.timings_ms
        assert set(embedder.roles) <= {"query"}

    async def test_vectors_may_be_given_instead_of_being_made(
        self, store: Store, embedder: FakeEmbedder
    ) -> None:
        add(store, embedder, TEXTS)
        searcher = Searcher(make_runtime(store, LOW_FLOOR))
        vector = embedder.vector("grey cat called Miso")
        report = await searcher.search(["cat"], [SCOPE], recipe="semantic", vectors=[vector])
        assert contents(report)[0] == TEXTS[1]
        assert not embedder.calls

    async def test_several_queries_are_embedded_in_one_call_and_joined(
        self, searcher: Searcher, store: Store, embedder: FakeEmbedder
    ) -> None:
        add(store, embedder, TEXTS)
        report = await searcher.search(
            ["grey cat Miso", "plays the cello"], [SCOPE], top_k=1, explain=True
        )
        assert embedder.calls == [("grey cat Miso", "plays the cello")]
        assert set(contents(report)) == {TEXTS[1], TEXTS[3]}
        assert {hit.explain["query"]["best"] for hit in report.hits} == {1, 2}

    async def test_a_fact_that_several_queries_find_comes_once(
        self, searcher: Searcher, store: Store, embedder: FakeEmbedder
    ) -> None:
        add(store, embedder, TEXTS)
        report = await searcher.search(["grey cat", "cat Miso", "Miso"], [SCOPE])
        assert len(contents(report)) == len(set(contents(report)))

    async def test_times_and_session_narrow_the_search(
        self, searcher: Searcher, store: Store, embedder: FakeEmbedder
    ) -> None:
        session = new_id()
        add(store, embedder, TEXTS[:1], formed_at=ago(days=30))
        add(store, embedder, TEXTS[1:2], session_id=session)
        everything = await searcher.search(["Anna"], [SCOPE])
        recent = await searcher.search(["Anna"], [SCOPE], since=ago(days=1))
        older = await searcher.search(["Anna"], [SCOPE], until=ago(days=1))
        there = await searcher.search(["Anna"], [SCOPE], session_id=session)
        assert len(everything.hits) == 2
        assert contents(recent) == [TEXTS[1]]
        assert contents(older) == [TEXTS[0]]
        assert contents(there) == [TEXTS[1]]

    async def test_recency_prefers_what_was_corrected_lately(
        self, searcher: Searcher, store: Store, embedder: FakeEmbedder
    ) -> None:
        """Known failure 38: an old fact corrected today is a recent one."""
        add(store, embedder, ["Anna likes tea, green"], formed_at=ago(days=300), updated_at=NOW)
        add(store, embedder, ["Anna likes tea, black"], formed_at=ago(days=200))
        report = await searcher.search(["Anna likes tea"], [SCOPE], recency=True, explain=True)
        assert contents(report)[0] == "Anna likes tea, green"
        assert report.hits[0].explain["recency"]["age_days"] == 0.0
        assert "recency" in report.timings_ms

    async def test_mmr_leaves_out_what_says_the_same(
        self, store: Store, embedder: FakeEmbedder
    ) -> None:
        settings = Settings(search=SearchSettings(semantic_floor=0.5, mmr_lambda=0.3))
        searcher = Searcher(make_runtime(store, settings, embedder=embedder))
        same = ["Anna drinks green tea daily.", "Anna drinks green tea daily!"]
        add(store, embedder, [*same, "Anna drinks wine at parties on Sundays."])
        report = await searcher.search(
            ["Anna drinks green tea"], [SCOPE], top_k=2, mmr=True, explain=True
        )
        assert "Anna drinks wine at parties on Sundays." in contents(report)
        assert [item.stage for item in report.dropped] == ["mmr"]
        assert all(hit.fact.embedding is None for hit in report.hits)

    @pytest.mark.parametrize("mmr", [False, True])
    async def test_vectors_come_along_if_asked_for(
        self, searcher: Searcher, store: Store, embedder: FakeEmbedder, mmr: bool
    ) -> None:
        add(store, embedder, TEXTS[:1])
        report = await searcher.search(["Lisbon"], [SCOPE], mmr=mmr, with_vectors=True)
        assert report.hits[0].fact.embedding == embedder.vector(TEXTS[0])


class TestExplaining:
    async def test_every_stage_and_every_drop_is_reported(
        self, store: Store, embedder: FakeEmbedder
    ) -> None:
        facts = add(store, embedder, TEXTS)
        settings = Settings(search=SearchSettings(semantic_floor=0.7))
        searcher = Searcher(make_runtime(store, settings, embedder=embedder))
        report = await searcher.search(
            ["Anna has a grey cat called Miso."], [SCOPE], top_k=1, explain=True
        )
        hit = report.hits[0]
        assert hit.explain.keys() >= {"semantic", "text", "fusion"}
        assert hit.explain["semantic"]["threshold"] == 0.7
        assert hit.explain["semantic"]["score"] == pytest.approx(1.0, abs=1e-3)
        dropped = {item.fact_id for item in report.dropped}
        assert dropped == {fact.id for fact in facts} - {hit.fact.id}
        assert all(item.why for item in report.dropped)
        assert report.timings_ms.keys() >= {"embed", "lists", "fusion", "load", "total"}

    async def test_a_fact_that_is_gone_before_it_is_loaded_is_dropped(
        self, store: Store, embedder: FakeEmbedder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        facts = add(store, embedder, TEXTS[:1])
        monkeypatch.setattr(store.memory, "facts_by_ids", lambda *_, **__: {})
        report = await Searcher(make_runtime(store, LOW_FLOOR, embedder=embedder)).search(
            ["Lisbon"], [SCOPE], explain=True
        )
        assert not report.hits
        assert [(item.fact_id, item.stage) for item in report.dropped] == [(facts[0].id, "load")]


class TestCounting:
    async def test_what_was_returned_is_counted(
        self, searcher: Searcher, store: Store, embedder: FakeEmbedder
    ) -> None:
        cat, river = add(store, embedder, [TEXTS[1], TEXTS[0]])
        await searcher.search(["grey cat called Miso"], [SCOPE], top_k=1)
        counted, other = store.memory.fact(cat.id), store.memory.fact(river.id)
        assert counted is not None
        assert other is not None
        assert (counted.access_count, counted.last_accessed_at) == (1, NOW)
        assert other.access_count == 0

    async def test_an_operators_look_is_not_counted(
        self, searcher: Searcher, store: Store, embedder: FakeEmbedder
    ) -> None:
        (fact,) = add(store, embedder, TEXTS[:1])
        assert (await searcher.search(["Lisbon"], [SCOPE], track=False)).hits
        after = some(store.memory.fact(fact.id))
        assert after.access_count == 0

    async def test_a_store_that_cannot_count_still_answers_and_says_so(
        self,
        searcher: Searcher,
        store: Store,
        embedder: FakeEmbedder,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        add(store, embedder, TEXTS)
        caplog.set_level("DEBUG", "edenmem.search")

        def refuse(*_: object) -> None:
            raise StoreError("the file is read-only")

        monkeypatch.setattr(store.search, "track_access", refuse)
        report = await searcher.search(["Lisbon"], [SCOPE])
        assert report.hits
        assert "accesses were not counted: the store could not be written" in report.notices
        assert "the file is read-only" in caplog.text


class TestWithoutEmbedder:
    async def test_the_default_recipe_becomes_text_and_says_so(
        self, store: Store, embedder: FakeEmbedder
    ) -> None:
        add(store, None, TEXTS)
        report = await Searcher(make_runtime(store)).search(["cat"], [SCOPE])
        assert report.recipe == "text"
        assert contents(report) == [TEXTS[1]]
        assert any(install_hint("local") in notice for notice in report.notices)

    @pytest.mark.parametrize("recipe", ["convex", "rrf", "semantic"])
    async def test_a_recipe_asked_for_by_name_is_an_error(self, store: Store, recipe: str) -> None:
        searcher = Searcher(make_runtime(store))
        with pytest.raises(UsageError, match=recipe) as caught:
            await searcher.search(["cat"], [SCOPE], recipe=recipe)
        assert "OPENAI_API_KEY" in (caught.value.hint or "")

    async def test_text_alone_needs_none(self, store: Store) -> None:
        add(store, None, TEXTS)
        searcher = Searcher(make_runtime(store))
        report = await searcher.search(["cat"], [SCOPE], recipe="text")
        assert contents(report) == [TEXTS[1]]
        assert not report.notices

    async def test_facts_without_any_vector_are_named_as_the_cause(
        self, searcher: Searcher, store: Store
    ) -> None:
        add(store, None, TEXTS)
        report = await searcher.search(["cat"], [SCOPE], recipe="semantic")
        assert not report.hits
        assert any("embed backfill" in notice for notice in report.notices)


class TestKnownFailures:
    async def test_known_failure_29_an_outage_of_the_embedder_is_an_error(
        self, searcher: Searcher, store: Store, embedder: FakeEmbedder
    ) -> None:
        """Known failure 29: an outage looks like "no memories"."""
        add(store, embedder, TEXTS)
        embedder.failures.append(ProviderTimeout("no answer in 60 s"))
        with pytest.raises(ProviderTimeout):
            await searcher.search(["cat"], [SCOPE])

    @pytest.mark.parametrize("method", ["search.candidates", "memory.facts_by_ids"])
    async def test_known_failure_29_an_outage_of_the_store_is_an_error(
        self,
        searcher: Searcher,
        store: Store,
        embedder: FakeEmbedder,
        monkeypatch: pytest.MonkeyPatch,
        method: str,
    ) -> None:
        """Known failure 29: errors become empty lists."""
        add(store, embedder, TEXTS)

        def fail(*_: object, **__: object) -> None:
            raise StoreError("the server went away")

        part, name = method.split(".")
        monkeypatch.setattr(getattr(store, part), name, fail)
        with pytest.raises(StoreError, match="went away"):
            await searcher.search(["cat"], [SCOPE])

    async def test_known_failure_28_vectors_of_another_model_are_an_error(
        self, store: Store, embedder: FakeEmbedder
    ) -> None:
        """Known failure 28: a changed model gives nonsense."""
        add(store, embedder, TEXTS)
        searcher = Searcher(make_runtime(store, LOW_FLOOR, embedder=FakeEmbedder(model="another")))
        with pytest.raises(EmbeddingModelMismatch) as caught:
            await searcher.search(["cat"], [SCOPE])
        assert (caught.value.stored, caught.value.current) == (embedder.model, "another")

    async def test_known_failure_31_others_facts_take_no_place_in_the_top(
        self, searcher: Searcher, store: Store, embedder: FakeEmbedder
    ) -> None:
        """Known failure 31: the tenant's filter is applied after the top k were taken."""
        stranger = Scope.user(AGENT, BEN)
        crowd = [f"The grey cat called Miso, sighting {number}." for number in range(150)]
        add(store, embedder, crowd, scope=stranger)
        (mine,) = add(store, embedder, ["A cat sleeps here."])
        for recipe in ("convex", "rrf", "semantic", "text"):
            report = await searcher.search(
                ["grey cat called Miso"], [SCOPE], recipe=recipe, top_k=1
            )
            assert [hit.fact.id for hit in report.hits] == [mine.id], recipe

    async def test_known_failure_4_no_scope_finds_nothing(
        self, searcher: Searcher, store: Store, embedder: FakeEmbedder
    ) -> None:
        """Known failure 4: a missing id is never a wider filter."""
        add(store, embedder, TEXTS)
        report = await searcher.search(["cat"], [])
        assert not report.hits
        assert report.notices

    async def test_known_failure_25_all_that_one_list_has_comes_back(
        self, store: Store, embedder: FakeEmbedder
    ) -> None:
        """Known failure 25: a floor on RRF cuts single-source hits after the 7th."""
        add(store, None, [f"Miso the cat, note {number}." for number in range(15)])
        searcher = Searcher(make_runtime(store, embedder=embedder))
        report = await searcher.search(["Miso"], [SCOPE], recipe="rrf", top_k=15)
        assert len(report.hits) == 15


class TestGivenVectors:
    async def test_the_model_of_the_facts_is_taken_without_counting_them(
        self, store: Store, embedder: FakeEmbedder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        add(store, embedder, TEXTS)

        def refuse(*_: object) -> dict[str, int]:
            raise AssertionError("every fact was counted")

        monkeypatch.setattr(store.vectors, "vector_counts", refuse)
        report = await Searcher(make_runtime(store, LOW_FLOOR)).search(
            ["Miso"], [SCOPE], vectors=[embedder.vector("Anna has a grey cat called Miso.")]
        )
        assert contents(report)[0] == "Anna has a grey cat called Miso."


class TestBadRequests:
    @pytest.mark.parametrize(
        ("queries", "options"),
        [
            ([], {}),
            (["  "], {}),
            (["a", ""], {}),
            (["a", "b", "c", "d"], {}),
            (["\x00\x01"], {}),
            (["a"], {"top_k": 0}),
            (["a"], {"top_k": 101}),
            (["a"], {"recipe": "magic"}),
            (["a"], {"rerank": True}),
            (["a"], {"vectors": []}),
            (["a"], {"vectors": [b"\x00" * 8]}),
        ],
    )
    async def test_is_a_usage_error(
        self, searcher: Searcher, queries: list[str], options: dict[str, Any]
    ) -> None:
        with pytest.raises(UsageError):
            await searcher.search(queries, [SCOPE], **options)


class TestTogether:
    async def test_an_embedded_store_is_searched_in_one_thread_beside_the_loop(
        self, store: Store, embedder: FakeEmbedder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        add(store, embedder, TEXTS)
        threads = set()
        for part, name in ((store.search, "candidates"), (store.memory, "facts_by_ids")):
            original = getattr(part, name)

            def note(*args: Any, _original: Any = original, **kwargs: Any) -> Any:
                threads.add(threading.get_ident())
                return _original(*args, **kwargs)

            monkeypatch.setattr(part, name, note)
        ability = SearchAbility(kind="embedded")
        monkeypatch.setattr(store.search, "search_ability", lambda: ability)
        searcher = Searcher(make_runtime(store, LOW_FLOOR, embedder=embedder))
        assert (await searcher.search(["cat"], [SCOPE])).hits
        assert len(threads - {threading.get_ident()}) == len(threads) == 1

    async def test_searches_may_run_at_once(
        self, searcher: Searcher, store: Store, embedder: FakeEmbedder
    ) -> None:
        add(store, embedder, TEXTS)
        reports = await asyncio.gather(
            *(searcher.search([query], [SCOPE], top_k=1) for query in ("cello", "Lisbon", "cat"))
        )
        assert [contents(report) for report in reports] == [[TEXTS[3]], [TEXTS[0]], [TEXTS[1]]]

    async def test_the_text_floor_is_the_stores_word(
        self, store: Store, embedder: FakeEmbedder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        add(store, embedder, TEXTS[:1])
        searcher = Searcher(make_runtime(store))
        assert (await searcher.search(["Lisbon"], [SCOPE], recipe="text")).hits
        atlas = SearchAbility(kind="atlas", text_floor=True, notice="indexes are building")
        monkeypatch.setattr(store.search, "search_ability", lambda: atlas)
        searcher = Searcher(make_runtime(store))
        report = await searcher.search(["Lisbon"], [SCOPE], recipe="text", explain=True)
        assert not report.hits
        assert report.notices == ("indexes are building",)
        assert "1.5" in report.dropped[0].why


class TestNothingRelevant:
    """Known failure 122: nonsense finds a fact with a score of 0.6."""

    @pytest.mark.parametrize("recipe", ["convex", "text"])
    async def test_is_said_if_no_fact_reaches_the_minimum(
        self, store: Store, embedder: FakeEmbedder, recipe: str
    ) -> None:
        add(store, embedder, TEXTS)
        search = SearchSettings(semantic_floor=0.0, min_score=0.5, text_min_score=0.5)
        searcher = Searcher(make_runtime(store, Settings(search=search), embedder=embedder))
        report = await searcher.search(["the bicycle of Anna"], [SCOPE], recipe=recipe)
        assert (report.hits, report.nothing_relevant) == ((), True)
        report = await searcher.search([TEXTS[1]], [SCOPE], recipe=recipe)
        assert contents(report) == [TEXTS[1]]
        assert not report.nothing_relevant

    async def test_is_not_said_if_there_are_no_facts(self, searcher: Searcher) -> None:
        report = await searcher.search(["the bicycle of Anna"], [SCOPE])
        assert (report.hits, report.nothing_relevant) == ((), False)

    async def test_of_several_queries_one_may_find_nothing(
        self, store: Store, embedder: FakeEmbedder
    ) -> None:
        add(store, embedder, TEXTS)
        settings = Settings(search=SearchSettings(semantic_floor=0.0, min_score=0.5))
        searcher = Searcher(make_runtime(store, settings, embedder=embedder))
        report = await searcher.search(["zeppelin", TEXTS[1]], [SCOPE])
        assert contents(report) == [TEXTS[1]]
        assert not report.nothing_relevant


@pytest.mark.parametrize("explain", [False, True])
async def test_reports_can_be_encoded(store: Store, embedder: FakeEmbedder, explain: bool) -> None:
    add(store, embedder, TEXTS)
    searcher = Searcher(make_runtime(store, LOW_FLOOR, embedder=embedder))
    report = await searcher.search(["cat"], [SCOPE], top_k=1, explain=explain)
    data = msgspec.json.decode(msgspec.json.encode(report))
    assert bool(data["hits"][0]["explain"]) == explain
    assert "total" in data["timings_ms"]
    assert len(data["dropped"]) == (len(TEXTS) - 1 if explain else 0)
    assert all(each["explain"]["fusion"]["rank"] > 0 for each in data["dropped"])
