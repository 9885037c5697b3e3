"""A chat through the proxy is remembered in the next one, formed by the same upstream."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import openai
import pytest

from edenmem.engine.reports import FormationReport
from edenmem.engine.service import MemoryService
from edenmem.models.host import Agent, User
from edenmem.models.ids import new_id, utc_now
from edenmem.models.scope import Scope
from edenmem.models.search import FactFilter
from edenmem.settings.schema import FormationSettings, LLMSettings, Settings, StoreSettings
from tests.server.door import make_settings, serving
from tests.server.upstream import FakeUpstream

pytestmark = pytest.mark.slow

#: What the model finds in the first four messages.
_ANSWERS: dict[str, dict[str, Any]] = {
    "FactsAnswer": {
        "facts": [
            {
                "sources": [1],
                "quote": "I keep bees on the roof of the library.",
                "content": "Anna keeps bees on the roof of the library.",
                "scope": "user",
                "shard": None,
                "private": False,
            }
        ]
    },
    "ReflectionsAnswer": {
        "agent": [],
        "shards": [],
        "group": [],
        "user": [
            {
                "sources": [3],
                "content": "Anna wants short answers about her bees.",
                "private": False,
            }
        ],
        "session": [],
    },
    "DedupAnswer": {"decisions": []},
}


@pytest.fixture(params=["sqlite", "mongodb"])
def settings(request: pytest.FixtureRequest, tmp_path: Path, upstream: FakeUpstream) -> Settings:
    made = make_settings(tmp_path, upstream)
    made = msgspec.structs.replace(
        made,
        llm=LLMSettings(
            base_url=upstream.url,
            api_key="key",
            fast_model="forming",
            slow_model="forming",
            premium_model="forming",
            retries=0,
        ),
        formation=FormationSettings(message_interval=4),
    )
    if request.param == "mongodb":
        uri = request.getfixturevalue("secantus_uri")
        made = msgspec.structs.replace(
            made, store=StoreSettings(uri=uri, database=f"test_{new_id()}")
        )
    return made


@pytest.fixture
def service(settings: Settings) -> Iterator[MemoryService]:
    service = MemoryService.from_settings(settings)
    service.setup.make()
    yield service
    service.close_store()


def test_a_chat_is_remembered_in_the_next(
    service: MemoryService,
    settings: Settings,
    upstream: FakeUpstream,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    switches = {"user_memory_enabled": True, "agent_memory_enabled": True}
    anna = User(id=new_id(), username="anna", created_at=utc_now())
    mira = Agent(id=new_id(), username="mira", owner=anna.id, created_at=utc_now(), **switches)
    for account in (anna, mira):
        assert service.accounts.add(account)
    formed, form = threading.Event(), MemoryService.maybe_form_memories

    async def form_and_tell(*args: Any, **options: Any) -> list[FormationReport]:
        reports = await form(*args, **options)
        if any(report.outcome == "applied" for report in reports):
            formed.set()
        return reports

    monkeypatch.setattr(MemoryService, "maybe_form_memories", form_and_tell)
    upstream.reset()
    upstream.forms = _ANSWERS
    with serving(service, settings, agent=mira) as url:
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="key", max_retries=0)
        said: list[Any] = []
        for text in ("I keep bees on the roof of the library.", "Answer shortly, please."):
            said.append({"role": "user", "content": text})
            answer = client.chat.completions.create(model="plain", messages=said, user="anna")
            said.append({"role": "assistant", "content": answer.choices[0].message.content})
        assert formed.wait(30)
        (asked,) = (s for s in upstream.seen if "FactsAnswer" in s.body.decode())
        assert "[1]" in str(asked.messages)
        assert "roof of the library" in str(asked.messages)
        hello: list[Any] = [{"role": "user", "content": "Hello again."}]
        client.chat.completions.create(model="plain", messages=hello, user="anna")
        first = upstream.last.messages[0]
        client.chat.completions.create(model="plain", messages=hello, user="boris")
        others = upstream.last.messages
        client.close()
    assert "bees on the roof" in first["content"]
    assert "short answers" in first["content"]
    assert "bees" not in str(others)
    (fact,) = service.store.memory.facts(FactFilter(scopes=(Scope.user(mira.id, anna.id),)))
    assert len(fact.source_message_ids) == 1
