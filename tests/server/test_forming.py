"""The dialogue of the quick start: what is said in one chat is known in the next."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import openai
import pytest

from edenmem.engine.reports import FormationReport
from edenmem.engine.service import MemoryService
from edenmem.models.host import Agent, User
from edenmem.models.ids import new_id, utc_now
from edenmem.models.scope import Scope
from edenmem.models.search import FactFilter
from edenmem.settings.schema import LLMSettings, Settings, StoreSettings
from tests.server.door import make_settings, serving
from tests.server.upstream import FakeUpstream
from tests.support import readme

pytestmark = pytest.mark.slow

#: What the model finds in the first chat.
_ANSWERS: dict[str, dict[str, Any]] = {
    "FactsAnswer": {
        "facts": [
            {
                "sources": [1],
                "quote": "I keep bees on a roof in Porto.",
                "content": "Anna keeps bees on a roof in Porto.",
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
        "user": [{"sources": [1], "content": "Anna enjoys her bees.", "private": False}],
        "session": [],
    },
    "DedupAnswer": {"decisions": []},
    "VerifyAnswer": {"items": []},
}


@pytest.fixture
def settings(
    request: pytest.FixtureRequest, kind: str, tmp_path: Path, upstream: FakeUpstream
) -> Settings:
    made = make_settings(tmp_path, upstream, user="anna", form_after=0.1)
    models = dict.fromkeys(("fast_model", "slow_model", "premium_model"), "forming")
    llm = LLMSettings(base_url=upstream.url, api_key="key", retries=0, **models)  # type: ignore[arg-type]
    made = msgspec.structs.replace(made, llm=llm)
    if kind == "mongodb":
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


@pytest.mark.parametrize(
    ("page", "kind"), [("README.md", "sqlite"), ("edenmem/docs/serve.md", "mongodb")]
)
def test_the_quick_start_is_remembered(
    page: str,
    service: MemoryService,
    settings: Settings,
    upstream: FakeUpstream,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    switches = {"user_memory_enabled": True, "agent_memory_enabled": True}
    anna = User(id=new_id(), username="anna", created_at=utc_now())
    mira = Agent(id=new_id(), username="mira", owner=anna.id, created_at=utc_now(), **switches)
    for account in (anna, mira):
        assert service.accounts.add(account)
    formed, form = threading.Event(), MemoryService.form_memories

    async def form_and_tell(*args: Any, **options: Any) -> list[FormationReport]:
        reports = await form(*args, **options)
        if any(report.outcome == "applied" for report in reports):
            formed.set()
        return reports

    def wait(prompt: str) -> str:
        assert formed.wait(60)
        return ""

    monkeypatch.setattr(MemoryService, "form_memories", form_and_tell)
    monkeypatch.setattr("builtins.input", wait)
    upstream.reset()
    upstream.forms = _ANSWERS
    (program,) = readme.blocks("python", readme.ROOT / page)
    with serving(service, settings, agent=mira) as url:
        ours = program.replace("http://127.0.0.1:8377", url).replace('"unused"', '"key"')
        assert ours.count(url) == 1
        exec(compile(ours, page, "exec"), {})
        asked = upstream.last.messages
        session = service.store.host.sessions(user_id=anna.id)
        formed_from = httpx.get(f"{url}/api/sessions/{list(session)[-1].id}/memory").json()
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="key", max_retries=0)
        with pytest.raises(openai.PermissionDeniedError, match="is for the user 'anna'"):
            client.chat.completions.create(model="plain", messages=asked[-1:], user="boris")  # type: ignore[arg-type]
        client.close()
    assert "answer to" in capsys.readouterr().out
    assert "Anna keeps bees on a roof in Porto." in str(asked)
    assert "Anna enjoys her bees" in asked[0]["content"]
    (fact,) = service.store.memory.facts(FactFilter(scopes=(Scope.user(mira.id, anna.id),)))
    assert len(fact.source_message_ids) == 1
    assert [each["id"] for each in formed_from["facts"]] == [fact.id]
    assert len(formed_from["reflections"]) == len(formed_from["formations"]) == 1
    assert formed_from["waiting"] == 0
