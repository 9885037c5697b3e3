"""Recall for a message: when and where it searches, and what it reports on failure."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from edenmem.engine.context.builder import ContextBuilder
from edenmem.engine.context.recall import QUERY_CHARACTERS, Recaller
from edenmem.engine.search.searcher import Searcher
from edenmem.errors import ProviderTimeout
from edenmem.llm.openai_compat import OpenAILLM
from edenmem.llm.protocol import LLM
from edenmem.models.statistics import sum_by_model
from edenmem.settings.schema import ContextSettings, LLMSettings, Settings
from tests.support.builders import FixedClock, ago, make_message
from tests.support.embedder import FakeEmbedder
from tests.support.fake_openai import KEY, FakeOpenAI, Reply, completion
from tests.support.llm import ADVERSARIAL, HANG, NONSENSE, FakeLLM
from tests.support.memory import add_fact, consolidate
from tests.support.runtime import make_runtime

if TYPE_CHECKING:
    from edenmem.engine.reports import ContextReport
    from tests.engine.conftest import Cast

OLD = ago(days=30)


async def recall(
    cast: Cast,
    message: str | None,
    mode: Any,
    *,
    llm: LLM | None = None,
    embedder: FakeEmbedder | None = None,
    seconds: float = 60.0,
    **options: Any,
) -> ContextReport:
    settings = Settings(
        context=ContextSettings(recall_top_k=2, recall_messages=4, recall_timeout_seconds=seconds)
    )
    clock = FixedClock()
    searcher = Searcher(make_runtime(cast.store, settings, embedder=embedder, clock=clock))
    recaller = Recaller(make_runtime(cast.store, settings, llm=llm, clock=clock), searcher=searcher)
    contexts = ContextBuilder(make_runtime(cast.store, settings, clock=clock), recaller=recaller)
    return await contexts.build(cast.session, cast.eve, message=message, recall=mode, **options)


@pytest.fixture(autouse=True)
def facts(cast: Cast) -> None:
    add_fact(cast.store, cast.anna_scope, "Anna's sister is called Berta.", formed_at=OLD)
    add_fact(cast.store, cast.bruno_scope, "Bruno's sister is called Clara.", formed_at=OLD)
    add_fact(cast.store, cast.agent_scope, "The gate is painted teal.", formed_at=OLD)


async def test_off_searches_nothing(cast: Cast) -> None:
    report = await recall(cast, "Do you remember my sister?", "off")
    assert (report.recall, report.queries) == ("off", ())
    assert "Retrieved" not in report.xml


async def test_always_searches_exactly_the_readable_scopes(cast: Cast) -> None:
    report = await recall(cast, "sister", "always")
    assert "<RetrievedMemories>\n- [user] Anna's sister is called Berta. (30d ago)" in report.xml
    assert "Clara" not in report.xml
    assert report.queries == ("sister",)
    assert report.parts[-1].name == "RetrievedMemories"
    cast.session = cast.add_session(cast.anna, cast.bruno)
    report = await recall(cast, "sister", "always")
    assert "RetrievedMemories" not in report.xml


async def test_heuristic_uses_the_signs(cast: Cast) -> None:
    report = await recall(cast, "Do you remember my sister?", "heuristic")
    assert "Berta" in report.xml
    assert report.recall.startswith('heuristic: phrase "do you remember"; 1 found')
    report = await recall(cast, "Nice weather, sister", "heuristic")
    assert "Berta" not in report.xml
    assert report.recall == "heuristic: the message does not seem to need memories"


async def test_recalled_facts_are_not_cached_and_accesses_are_counted(cast: Cast) -> None:
    assert "Berta" in (await recall(cast, "sister", "always")).xml
    report = await recall(cast, "sister", "off")
    assert report.cached
    assert "Berta" not in report.xml
    (fact,) = [f for f in _facts(cast) if "Berta" in f.content]
    assert fact.access_count == 1


async def test_facts_in_the_context_are_not_repeated(cast: Cast) -> None:
    add_fact(cast.store, cast.anna_scope, "Anna's brother is called Dino.", formed_at=ago(days=1))
    report = await recall(cast, "brother", "always")
    assert report.xml.count("Dino") == 1
    assert "RetrievedMemories" not in report.xml
    assert "1 found" in report.recall
    assert "1 already in the context" in report.recall


async def test_without_a_message_the_newest_user_message_is_used(cast: Cast) -> None:
    report = await recall(cast, None, "always")
    assert report.recall == "always: no message to recall memories for"
    cast.store.host.add_messages(
        cast.session.id,
        [
            make_message(cast.session, "gate?", sender=cast.anna.id, created_at=ago(minutes=3)),
            make_message(cast.session, "sister?", sender=cast.anna.id, created_at=ago(minutes=2)),
            make_message(cast.session, "hm", role="assistant", created_at=ago(minutes=1)),
        ],
    )
    assert (await recall(cast, None, "always")).queries == ("sister?",)


async def test_a_long_or_multi_line_message_becomes_a_short_query(cast: Cast) -> None:
    report = await recall(cast, "sister\n" * 10_000, "always")
    (query,) = report.queries
    assert "\n" not in query
    assert len(query) <= QUERY_CHARACTERS
    assert "Berta" in report.xml


# -- by a model ----------------------------------------------------------------------------------


async def test_a_model_writes_the_queries(cast: Cast, llm: FakeLLM) -> None:
    cast.store.host.add_messages(
        cast.session.id,
        [make_message(cast.session, "About family.", sender=cast.anna.id, created_at=ago(days=1))],
    )
    llm.script("recall", {"queries": ["Berta sister", " ", "gate", "gate", "teal", "five"]})
    report = await recall(cast, "Who is she?", "llm", llm=llm)
    assert report.queries == ("Berta sister", "gate", "teal")
    assert "Berta" in report.xml
    assert "painted teal" in report.xml
    assert [usage.task for usage in report.usage] == ["recall"]
    (request,) = llm.requests
    assert request.key == "monday-chat/eve/Who is she?"
    assert request.model == Settings().llm.fast_model
    assert "About family." in request.user
    assert request.user.count("Who is she?") == 1
    assert "anna" in request.user


async def test_a_stored_message_is_shown_once(cast: Cast, llm: FakeLLM) -> None:
    llm.script("recall", {"queries": []})
    cast.store.host.add_messages(
        cast.session.id, [make_message(cast.session, "Who is she?", sender=cast.anna.id)]
    )
    report = await recall(cast, "Who is she?", "llm", llm=llm)
    assert llm.requests[0].user.count("Who is she?") == 1
    assert (report.recall, report.queries) == ("llm: no search needed", ())
    assert report.usage


@pytest.mark.parametrize("script", [NONSENSE, ProviderTimeout])
async def test_a_failing_model_does_not_block_the_context(
    cast: Cast, llm: FakeLLM, script: Any
) -> None:
    consolidate(cast.store, cast.anna_scope, "Anna is brief.", expected_version=0)
    llm.script("recall", script)
    report = await recall(cast, "Who is she?", "llm", llm=llm)
    assert "Anna is brief." in report.xml
    assert report.recall == "llm: failed before the search"
    assert report.explanation == f"llm: failed before the search: {report.failure}"


async def test_known_failure_70_a_model_that_hangs_holds_up_no_reply(
    cast: Cast, llm: FakeLLM
) -> None:
    consolidate(cast.store, cast.anna_scope, "Anna is brief.", expected_version=0)
    llm.script("recall", HANG)
    report = await recall(cast, "Who is she?", "llm", llm=llm, seconds=0.05)
    assert "Anna is brief." in report.xml
    assert report.recall == "llm; timed out after 0.05 s"
    assert "left out" not in report.xml
    (asked,) = llm.requests
    assert asked.timeout == pytest.approx(0.045), "an endpoint tries once, and is counted"


async def test_a_hanging_search_does_not_block_the_reply(
    cast: Cast, embedder: FakeEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(texts: Any, *, role: Any) -> Any:
        await asyncio.Event().wait()

    consolidate(cast.store, cast.anna_scope, "Anna is brief.", expected_version=0)
    monkeypatch.setattr(embedder, "embed", hang)
    report = await recall(cast, "sister", "always", embedder=embedder, seconds=0.05)
    assert "Anna is brief." in report.xml
    assert "RetrievedMemories" not in report.xml
    assert report.recall.endswith("; timed out after 0.05 s")
    assert report.queries == ("sister",)


@pytest.mark.slow
async def test_usage_of_a_late_model_is_recorded(cast: Cast) -> None:
    """End to end: an endpoint that never answers, and its estimated usage in the log."""
    with FakeOpenAI() as server:
        server.script += [completion('{"queries": []}'), Reply(hang=True)]
        endpoint = OpenAILLM(LLMSettings(base_url=server.url, api_key=KEY))
        await recall(cast, "Who is she?", "llm", llm=endpoint)  # the client is loaded once
        report = await recall(cast, "Who is she?", "llm", llm=endpoint, seconds=2)
        await endpoint.close()
    assert "did not answer" in report.failure
    assert [call.estimated for call in report.usage] == [True]
    (total,) = sum_by_model(cast.store.usage.usage_by_day())
    assert (total.calls, total.estimated) == (2, 1)
    assert total.input_tokens > 100


async def test_without_a_model_the_report_has_the_error(cast: Cast) -> None:
    report = await recall(cast, "Who is she?", "llm")
    assert "no language model is configured" in report.failure


async def test_hostile_queries_are_only_words(cast: Cast, llm: FakeLLM) -> None:
    llm.script("recall", ADVERSARIAL)
    report = await recall(cast, "Who is she?", "llm", llm=llm)
    assert len(report.queries) == 1
    assert "Clara" not in report.xml


async def test_known_failure_29_a_failed_search_is_said_and_the_context_served(
    cast: Cast, embedder: FakeEmbedder
) -> None:
    """Known failure 29: an outage looks like "no memories": errors become empty lists."""
    consolidate(cast.store, cast.anna_scope, "Anna is brief.", expected_version=0)
    embedder.failures.append(ProviderTimeout("the endpoint is silent"))
    report = await recall(cast, "sister", "always", embedder=embedder)
    assert "Anna is brief." in report.xml
    assert report.recall.endswith("; search failed")
    assert report.failure == "the endpoint is silent"
    assert report.queries == ("sister",)


async def test_without_an_embedder_text_search_is_used_with_a_notice(cast: Cast) -> None:
    report = await recall(cast, "sister", "always")
    assert "no embedding model" in report.recall


def _facts(cast: Cast) -> list[Any]:
    from tests.support.memory import facts_of

    return facts_of(cast.store, cast.anna_scope)
