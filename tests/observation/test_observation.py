"""Logs and spans of the engine: what was done, never what was said."""

from __future__ import annotations

import json
import logging
import subprocess
import sys

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic import BaseModel

from edenmem.engine.runtime.concurrency import demand_loop, run
from edenmem.engine.service import MemoryService
from edenmem.errors import ProviderError, ProviderTimeout
from edenmem.llm.openai_compat import OpenAILLM
from edenmem.llm.protocol import LLMRequest
from edenmem.observation import observed
from edenmem.server.app import create_app
from edenmem.settings.schema import LLMSettings, Settings
from edenmem.store.protocol.store import Store
from tests.support.embedder import FakeEmbedder
from tests.support.fake_openai import KEY, FakeOpenAI, completion, failing
from tests.support.llm import FakeLLM
from tests.support.runtime import ANYTHING_GOES

#: What people say and models write here; none of it belongs into a log.
SECRET = "zanzibar"
TURN = [
    {"role": "user", "content": f"My boat is called {SECRET}.", "id": "1"},
    {"role": "assistant", "content": f"A fine name, {SECRET}!", "id": "2"},
]
FACT = {"content": f"Lena's boat is {SECRET}.", "scope": "user", "sources": [1], "private": False}


@pytest.fixture
def service(sqlite_store: Store, llm: FakeLLM) -> MemoryService:
    llm.script("facts", {"facts": [FACT]})
    llm.script("reflections", {"agent": [], "user": [], "session": []})
    return MemoryService(
        sqlite_store, Settings(formation=ANYTHING_GOES), llm=llm, embedder=FakeEmbedder()
    )


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    from opentelemetry import trace

    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    return exporter


async def work(service: MemoryService) -> None:
    """A formation that goes well, a search, and a search that fails."""
    await service.ensure_session("talk", agents=["mira"], users=["lena"])
    await service.add_messages("talk", TURN)
    await service.form_memories("talk")
    await service.search(f"the {SECRET}", agent_id="mira", user_id="lena")
    embedder = service._runtime.embedder
    assert isinstance(embedder, FakeEmbedder)
    embedder.failures.append(ProviderTimeout(f"about {SECRET}: no answer"))
    with pytest.raises(ProviderTimeout):
        await service.search(f"another {SECRET}", agent_id="mira")


async def test_what_was_done_is_logged_and_nothing_that_was_said(
    service: MemoryService, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="edenmem")
    await work(service)
    told = [(r.name, r.levelname, r.getMessage()) for r in caplog.records]
    (formation,) = (text for name, _, text in told if name == "edenmem.formation")
    assert "outcome=applied messages=2 facts_added=1" in formation
    searches = [(level, text) for name, level, text in told if name == "edenmem.search"]
    assert [level for level, _ in searches] == ["DEBUG", "INFO", "DEBUG"]
    assert "hits=1" in searches[0][1]
    assert "error=ProviderTimeout" in searches[1][1]
    above = [text for _, level, text in told if level != "DEBUG"]
    assert len(above) >= 2
    assert not [text for text in above if SECRET in text.casefold()]


async def test_spans_are_made_of_formation_and_search(
    service: MemoryService, spans: InMemorySpanExporter
) -> None:
    await work(service)
    made: dict[str, list[ReadableSpan]] = {}
    for span in spans.get_finished_spans():
        made.setdefault(span.name, []).append(span)
        assert SECRET not in span.to_json().casefold()
    assert made.keys() == {"edenmem.formation", "edenmem.search"}
    formation = made["edenmem.formation"][0].attributes or {}
    assert (formation["edenmem.outcome"], formation["edenmem.facts_added"]) == ("applied", 1)
    good, bad = made["edenmem.search"]
    assert dict(good.attributes or {})["edenmem.hits"] == 1
    assert good.status.is_unset
    assert dict(bad.attributes or {})["edenmem.error"] == "ProviderTimeout"
    assert not bad.status.is_ok


async def test_a_question_in_a_url_is_in_no_span(
    service: MemoryService, spans: InMemorySpanExporter
) -> None:
    await work(service)
    spans.clear()
    app = create_app(service, Settings(), is_local=True)
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://localhost"
    ) as client:
        answer = await client.get("/api/search", params={"q": SECRET, "agent": "mira"})
    assert answer.status_code == 200
    (search,) = spans.get_finished_spans()
    assert SECRET not in search.to_json().casefold()


async def test_calls_of_a_provider_are_spans_with_their_tokens(spans: InMemorySpanExporter) -> None:
    class Answer(BaseModel):
        answer: str

    request = LLMRequest(
        task="facts", key="talk", model="fast-1", system="Say it.", user=SECRET, answer=Answer
    )
    with FakeOpenAI() as server:
        server.script += [completion('{"answer": "yes"}'), failing(401, f"no {SECRET}")]
        settings = LLMSettings(base_url=server.url, api_key=KEY, fast_model="fast-1")
        endpoint = OpenAILLM(settings)
        try:
            await endpoint.ask(request)
            with pytest.raises(ProviderError):
                await endpoint.ask(request)
        finally:
            await endpoint.close()
    first, second = (dict(span.attributes or {}) for span in spans.get_finished_spans())
    assert first["edenmem.model"] == "fast-1"
    assert (first["edenmem.input_tokens"], first["edenmem.output_tokens"]) == (100, 20)
    assert second["edenmem.error"] == "ProviderAuthError"
    assert SECRET not in str(second)


_SILENT = """
import logging, sys
import edenmem.observation
logging.getLogger("edenmem.search").warning("nobody asked")
assert "opentelemetry" not in sys.modules
"""


def test_a_library_is_silent_and_loads_no_tracing() -> None:
    done = subprocess.run([sys.executable, "-c", _SILENT], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_details_become_fields_of_json_lines(capsys: pytest.CaptureFixture[str]) -> None:
    from edenmem.cli.app.logs import start_logging, stop_logging

    start_logging(0, is_json=True)
    try:
        logger = logging.getLogger("edenmem.formation")
        logger.info("done %s", "x=1\n2", extra={"details": {"facts_added": 2}})
        logger.debug("unseen")
        try:
            raise ValueError("broken")
        except ValueError:
            logger.exception("failed")
    finally:
        stop_logging()
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["level"] for line in lines] == ["info", "error"]
    assert (lines[0]["message"], lines[0]["facts_added"]) == ("done x=1\n2", 2)
    assert lines[0]["logger"] == "edenmem.formation"
    assert "ValueError: broken" in lines[1]["traceback"]


def test_a_span_that_is_open_when_the_loop_starts_is_closed(
    spans: InMemorySpanExporter, caplog: pytest.LogCaptureFixture
) -> None:
    @observed("test")
    async def half() -> None:
        await demand_loop()

    run(half())
    assert [span.name for span in spans.get_finished_spans()] == ["edenmem.test"]
    assert caplog.records == []
