"""Backfills embed every fact despite failures."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from edenmem.embed.protocol import Embedding, Role
from edenmem.engine.embeddings.backfill import Backfiller, batch_by_agent
from edenmem.engine.embeddings.status import BACKFILL, vector_advice
from edenmem.engine.search.searcher import Searcher
from edenmem.errors import BudgetExceeded, ProviderAuthError, ProviderTimeout
from edenmem.models.formation import CallUsage
from edenmem.models.memory import Fact
from edenmem.models.scope import Scope
from edenmem.models.statistics import sum_by_model
from edenmem.settings.schema import EmbeddingSettings, SearchSettings, Settings
from edenmem.store.protocol.store import Store
from tests.support.builders import make_fact, revision, some
from tests.support.embedder import FakeEmbedder
from tests.support.memory import add_fact, add_facts, applied
from tests.support.runtime import make_runtime

SETTINGS = Settings(search=SearchSettings(semantic_floor=0.5))
MIRA, OTTO = Scope.agent("a" * 24), Scope.agent("b" * 24)


@pytest.fixture
def store(sqlite_store: Store) -> Store:
    return sqlite_store


@pytest.fixture
def backfiller(store: Store, embedder: FakeEmbedder) -> Backfiller:
    return Backfiller(make_runtime(store, SETTINGS, embedder=embedder))


def fill(store: Store, scope: Scope, count: int, **fields: object) -> list[Fact]:
    facts = [make_fact(scope, f"number {n} of {scope.agent_id[0]}", **fields) for n in range(count)]
    add_facts(store, *facts)
    return facts


def old(embedder: FakeEmbedder) -> dict[str, object]:
    other = FakeEmbedder(model="old", dimensions=16)
    return {"embedding": other.vector("x"), "embedding_model": "old"}


async def test_every_fact_gets_a_vector_of_its_text(
    store: Store, embedder: FakeEmbedder, backfiller: Backfiller
) -> None:
    facts = fill(store, MIRA, 250) + fill(store, OTTO, 30, **old(embedder))
    seen: list[int] = []
    report = await backfiller.run(progress=seen.append)
    assert (report.embedded, report.changed, report.failed) == (280, 0, [])
    assert max(map(len, embedder.calls)) == 100
    assert set(embedder.roles) == {"passage"}
    assert max(seen) == 280
    for fact in facts:
        stored = some(store.memory.fact(fact.id, with_vector=True))
        assert stored.embedding == embedder.vector(fact.content)
        assert stored.embedding_model == embedder.model
        assert stored.version == 1
    again = await backfiller.run()
    assert (again.embedded, again.usage) == (0, ())


async def test_usage_is_recorded_per_agent(
    store: Store, embedder: FakeEmbedder, backfiller: Backfiller
) -> None:
    fill(store, MIRA, 120)
    fill(store, OTTO, 30)
    report = await backfiller.run()
    (mira,), (otto,) = (
        sum_by_model(store.usage.usage_by_day(agent_id=scope.agent_id)) for scope in (MIRA, OTTO)
    )
    assert (mira.calls, otto.calls) == (2, 1)
    assert mira.input_tokens + otto.input_tokens == report.tokens > 0


async def test_agent_and_limit_restrict_the_run(store: Store, backfiller: Backfiller) -> None:
    fill(store, MIRA, 20)
    fill(store, OTTO, 20)
    report = await backfiller.run(agent_id=OTTO.agent_id, limit=7)
    assert report.embedded == 7
    status = backfiller.status()
    assert [(state.agent_id, state.missing) for state in status.agents] == [
        (MIRA.agent_id, 20),
        (OTTO.agent_id, 13),
    ]
    assert (status.total.current, status.total.stale) == (7, 33)


async def test_a_failed_batch_does_not_stop_the_others(
    store: Store, embedder: FakeEmbedder, backfiller: Backfiller
) -> None:
    fill(store, MIRA, 250)
    failure = ProviderTimeout("too slow", hint="wait")
    failure.usage = (CallUsage(task="embed", model=embedder.model, input_tokens=5),)
    embedder.failures = [failure]
    report = await backfiller.run(concurrency=1)
    assert report.embedded == 150
    (batch,) = report.failed
    assert (len(batch.fact_ids), batch.reason, batch.hint) == (100, "too slow", "wait")
    (total,) = sum_by_model(store.usage.usage_by_day(agent_id=MIRA.agent_id))
    assert total.input_tokens == report.tokens
    assert total.calls == 3  # failed calls cost too
    assert (await backfiller.run()).embedded == 100


@pytest.mark.parametrize(
    ("error", "times", "most"),
    [(ProviderAuthError("no"), 1, 3), (BudgetExceeded("no"), 1, 3), (ProviderTimeout("no"), 12, 8)],
    ids=["auth", "budget", "down"],
)
async def test_an_error_of_every_batch_ends_the_run(
    store: Store,
    embedder: FakeEmbedder,
    backfiller: Backfiller,
    error: Exception,
    times: int,
    most: int,
) -> None:
    fill(store, MIRA, 1200)
    embedder.failures = [error] * times
    report = await backfiller.run(concurrency=min(times, 2))
    assert report.stopped_early == "no"
    assert len(embedder.calls) <= most


async def test_an_edited_text_gets_no_vector_of_the_old_one(store: Store) -> None:
    (fact,) = fill(store, MIRA, 1)

    class Slow(FakeEmbedder):
        async def embed(self, texts: Sequence[str], *, role: Role = "passage") -> Embedding:
            change = revision(fact, "new", scope=MIRA)
            if not self.calls:
                applied(store, change)
            return await super().embed(texts, role=role)

    embedder = Slow()
    backfiller = Backfiller(make_runtime(store, SETTINGS, embedder=embedder))
    report = await backfiller.run()
    assert (report.embedded, report.changed) == (0, 1)
    assert (await backfiller.run()).embedded == 1
    stored = some(store.memory.fact(fact.id, with_vector=True))
    assert stored.embedding == embedder.vector("new")


async def test_an_interrupted_run_resumes(store: Store) -> None:
    fill(store, MIRA, 300)

    class Stuck(FakeEmbedder):
        async def embed(self, texts: Sequence[str], *, role: Role = "passage") -> Embedding:
            if len(self.calls) == 2:
                stuck.set()
                await asyncio.Event().wait()
            return await super().embed(texts, role=role)

    stuck = asyncio.Event()
    embedder = Stuck()
    backfiller = Backfiller(make_runtime(store, SETTINGS, embedder=embedder))
    running = asyncio.create_task(backfiller.run(concurrency=1))
    await stuck.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert backfiller.status().total.current == 200
    rest = FakeEmbedder()
    report = await Backfiller(make_runtime(store, SETTINGS, embedder=rest)).run()
    assert (report.embedded, len(rest.texts)) == (100, 100)


async def test_the_plan_matches_the_run(store: Store, embedder: FakeEmbedder) -> None:
    fill(store, MIRA, 9, **old(embedder))
    add_fact(store, OTTO, "x" * 4500)
    settings = msgspec.structs.replace(
        SETTINGS, embedding=EmbeddingSettings(model=embedder.model, prices={embedder.model: 2.0})
    )
    backfiller = Backfiller(make_runtime(store, settings, embedder=embedder))
    plan = backfiller.plan()
    assert (plan.facts, plan.replaced) == (10, 9)
    assert plan.status.total.others == {"old": 9}
    assert 1000 < plan.tokens < 1100
    assert plan.cost == pytest.approx(plan.tokens * 2e-6)
    assert backfiller.plan(agent_id=OTTO.agent_id).tokens == 1000
    assert backfiller.plan(limit=3).facts == 3
    assert not embedder.calls


async def test_search_works_with_mixed_models(
    store: Store, embedder: FakeEmbedder, backfiller: Backfiller
) -> None:
    add_fact(store, MIRA, "Miso is a grey cat.", **old(embedder))
    add_fact(store, MIRA, "The cello is old.", **old(embedder))
    await backfiller.run(limit=1)
    searcher = Searcher(make_runtime(store, SETTINGS, embedder=embedder))
    report = await searcher.search(["Miso is a grey cat."], [MIRA], recipe="semantic")
    assert [hit.fact.content for hit in report.hits] == ["Miso is a grey cat."]
    assert any("found by words alone: 1" in notice for notice in report.notices)
    await backfiller.run()
    report = await searcher.search(["Miso is a grey cat."], [MIRA])
    assert report.notices == ()


def test_batches_have_one_agent_and_bounded_waiting() -> None:
    facts = [make_fact(Scope.agent(f"{n % 7:024x}"), f"{n}") for n in range(100)]
    batches = list(batch_by_agent(facts, 10, held=20))
    assert sorted(f.id for batch in batches for f in batch) == sorted(f.id for f in facts)
    assert all(len({fact.agent_id for fact in batch}) == 1 for batch in batches)
    assert all(0 < len(batch) <= 10 for batch in batches)


@pytest.mark.parametrize(
    ("settings", "others", "advice"),
    [
        ({}, ["mini", "text-embedding-3-small"], "mini, text-embedding-3-small, but no API key is"),
        ({}, ["text-embedding-3-small"], "set OPENAI_API_KEY, or let 'edenmem embed backfill'"),
        ({}, ["mini"], "set embedding.model = 'mini' and its API key"),
        ({}, [], BACKFILL),
        ({"api_key": "k"}, ["mini"], BACKFILL),
        ({"provider": "local"}, ["mini"], BACKFILL),
    ],
)
def test_a_missing_key_is_reported_before_a_backfill(
    store: Store, settings: dict[str, Any], others: list[str], advice: str
) -> None:
    """Without a key the local model was used silently, and only a backfill was advised."""
    chosen = Settings(embedding=EmbeddingSettings(**settings))
    assert advice in vector_advice(store, chosen, "all-MiniLM", others)
