"""Why a fact was not found: each place where it may be lost, and what is said of it."""

from __future__ import annotations

import pytest

from edenmem.engine.search.why_not import MissExplainer
from edenmem.errors import NotFoundError
from edenmem.models.ids import new_id
from edenmem.models.memory import Fact
from edenmem.models.scope import Scope
from edenmem.settings.schema import SearchSettings, Settings
from edenmem.store.protocol.store import Store
from tests.support.builders import NOW, ago, some
from tests.support.embedder import FakeEmbedder
from tests.support.memory import add_fact
from tests.support.runtime import make_runtime

AGENT = new_id()
SCOPE, ELSEWHERE = Scope.user(AGENT, new_id()), Scope.user(AGENT, new_id())
SETTINGS = Settings(search=SearchSettings(semantic_floor=0.6, top_k=2, depth=5))
QUERY = "grey cat Miso"


@pytest.fixture
def store(sqlite_store: Store) -> Store:
    return sqlite_store


@pytest.fixture
def explainer(store: Store, embedder: FakeEmbedder) -> MissExplainer:
    return MissExplainer(make_runtime(store, SETTINGS, embedder=embedder))


def add(store: Store, embedder: FakeEmbedder, text: str, **fields: object) -> Fact:
    vector = {"embedding": embedder.vector(text), "embedding_model": embedder.model}
    scope = fields.pop("scope", SCOPE)
    assert isinstance(scope, Scope)
    return add_fact(store, scope, text, **{**vector, **fields})


async def test_a_fact_that_is_found(
    store: Store, embedder: FakeEmbedder, explainer: MissExplainer
) -> None:
    fact = add(store, embedder, "Anna has a grey cat called Miso.")
    answer = await explainer.why_not(fact.id, QUERY, [SCOPE])
    assert (answer.stage, answer.why) == ("found", "found at rank 1 of 1")
    semantic, text = answer.lists
    assert (semantic.rank, text.rank) == (1, 1)
    assert semantic.score == pytest.approx(answer.explain["semantic"]["score"], abs=1e-6)
    assert answer.fact.embedding is None
    assert len(embedder.calls) == 1
    stored = some(store.memory.fact(fact.id))
    assert stored.access_count == 0


async def test_a_fact_of_another_user(
    store: Store, embedder: FakeEmbedder, explainer: MissExplainer
) -> None:
    fact = add(store, embedder, "A grey cat called Miso.", scope=ELSEWHERE)
    answer = await explainer.why_not(fact.id, QUERY, [SCOPE])
    assert (answer.stage, answer.in_scope, answer.lists) == ("scope", False, ())
    assert ELSEWHERE.owner in answer.advice
    assert not embedder.calls


@pytest.mark.parametrize("filter", ["since", "until", "session_id"])
async def test_a_fact_outside_the_filter(
    store: Store, embedder: FakeEmbedder, explainer: MissExplainer, filter: str
) -> None:
    fact = add(store, embedder, "A grey cat called Miso.", formed_at=ago(days=9))
    values = {"since": ago(days=1), "until": ago(days=30), "session_id": new_id()}
    answer = await explainer.why_not(
        fact.id,
        QUERY,
        [SCOPE],
        **{filter: values[filter]},  # type: ignore[arg-type]
    )
    assert answer.stage == "filter"


async def test_a_fact_without_a_vector_of_the_model(
    store: Store, embedder: FakeEmbedder, explainer: MissExplainer
) -> None:
    bare = add_fact(store, SCOPE, "A feline pet.")
    other = FakeEmbedder(model="old")
    old = add(store, other, "Another feline.")
    mismatch = await explainer.why_not(bare.id, QUERY, [SCOPE])
    assert (mismatch.stage, mismatch.vector) == ("embedding", "none")
    add(store, embedder, "Anna has a grey cat called Miso.")
    for fact, said in ((bare, "none"), (old, "old, 128 dimensions")):
        answer = await explainer.why_not(fact.id, QUERY, [SCOPE])
        assert (answer.stage, answer.vector) == ("embedding", said)
        assert "no word of the query matches" in answer.why
        assert "backfill" in answer.advice


async def test_a_fact_below_the_floor(
    store: Store, embedder: FakeEmbedder, explainer: MissExplainer
) -> None:
    fact = add(store, embedder, "The tram leaves at nine.")
    answer = await explainer.why_not(fact.id, QUERY, [SCOPE])
    assert answer.stage == "semantic"
    assert "below the threshold 0.6" in answer.why
    assert "semantic_floor" in answer.advice


async def test_a_fact_beyond_top_k_and_beyond_the_depth(
    store: Store, embedder: FakeEmbedder, explainer: MissExplainer
) -> None:
    facts = [
        add(store, embedder, f"grey cat Miso {' '.join(f'w{n}{i}' for i in range(n))}")
        for n in reversed(range(12))
    ][::-1]
    third = await explainer.why_not(facts[2].id, QUERY, [SCOPE], recipe="convex")
    assert third.stage == "top_k"
    assert "--limit" in third.advice
    last = await explainer.why_not(facts[11].id, QUERY, [SCOPE])
    assert last.stage == "depth"
    assert last.lists[0].rank is not None
    assert last.lists[0].rank > 5
    assert "the first 5" in last.why


async def test_words_alone(store: Store) -> None:
    fact = add_fact(store, SCOPE, "The tram leaves at nine.", formed_at=NOW)
    answer = await MissExplainer(make_runtime(store, SETTINGS)).why_not(fact.id, QUERY, [SCOPE])
    assert (answer.stage, answer.recipe) == ("words", "text")
    assert any("no embedding model" in notice for notice in answer.notices)


async def test_a_fact_that_there_is_not(explainer: MissExplainer) -> None:
    with pytest.raises(NotFoundError):
        await explainer.why_not(new_id(), QUERY, [SCOPE])
