"""Clients as people use them, unchanged but for their base URL."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import openai
import pytest

from edenmem.engine.service import MemoryService
from edenmem.models.host import Agent, User
from edenmem.models.ids import new_id, utc_now
from edenmem.store.protocol.store import Store
from tests.server.door import Door, make_settings, serving, turns
from tests.server.upstream import FakeUpstream

pytestmark = pytest.mark.slow

TOOL: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


@pytest.fixture
def client(door: Door) -> Any:
    with openai.OpenAI(base_url=door.url, api_key="key", max_retries=0) as client:
        yield client


def sessions_of(door: Door, text: str) -> list[list[tuple[str, str]]]:
    """What was said in the sessions in which somebody said this."""
    found = [door.said(session.id) for session in door.store.host.sessions()]
    return [said for said in found if ("user", text) in said]


def test_the_openai_sdk(door: Door, client: Any) -> None:
    asked: Any = turns("The SDK speaks.")
    whole = client.chat.completions.create(
        model="plain", messages=asked, user="anna", extra_body={"memory_id": "sdk"}
    )
    assert whole.choices[0].message.content == "answer to: The SDK speaks."
    assert whole.usage.total_tokens == 5
    asked += turns("", whole.choices[0].message.content)[1:] + turns("And streams.")
    stream = client.chat.completions.create(
        model="plain",
        messages=asked,
        user="anna",
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"memory_id": "sdk"},
    )
    events = list(stream)
    text = "".join(e.choices[0].delta.content or "" for e in events if e.choices)
    assert text == "answer to: And streams."
    assert events[-1].usage.total_tokens == 5
    assert [role for role, _ in sessions_of(door, "And streams.")[0]] == ["user", "assistant"] * 2
    assert [model.id for model in client.models.list()] == ["plain"]


def test_the_openai_sdk_with_tools_and_pictures(door: Door, client: Any) -> None:
    asked: Any = turns("Use a tool.")
    with client.chat.completions.stream(model="tools", messages=asked, tools=[TOOL]) as stream:
        message = stream.get_final_completion().choices[0].message
    assert message.tool_calls[0].function.arguments == '{"city": "Łódź"}'
    asked += [
        message.model_dump(exclude_none=True, exclude={"parsed"}),
        {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
    ]
    for call in asked[1]["tool_calls"]:
        call["function"].pop("parsed_arguments", None)
    done = client.chat.completions.create(model="tools", messages=asked, tools=[TOOL])
    assert done.choices[0].message.content == "answer to: rain"
    (said,) = sessions_of(door, "Use a tool.")
    assert [role for role, _ in said] == ["user", "assistant", "tool", "assistant"]
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0K"}}
    content: Any = [{"type": "text", "text": "Look."}, picture]
    client.chat.completions.create(model="plain", messages=[{"role": "user", "content": content}])
    assert picture in door.upstream.last.messages[-1]["content"]


async def test_the_asynchronous_sdk_and_its_errors(door: Door) -> None:
    async with openai.AsyncOpenAI(base_url=door.url, api_key="key", max_retries=0) as client:
        one, two = await asyncio.gather(
            *(
                client.chat.completions.create(
                    model="plain", messages=turns(f"Async {number}."), user="boris"
                )
                for number in range(2)
            )
        )
        assert [a.choices[0].message.content for a in (one, two)] == [
            "answer to: Async 0.",
            "answer to: Async 1.",
        ]
        with pytest.raises(openai.RateLimitError) as limited:
            await client.chat.completions.create(model="limited", messages=turns("Fast."))
        assert limited.value.response.headers["retry-after"] == "7"
        with pytest.raises(openai.BadRequestError, match="Unrecognized"):
            await client.chat.completions.create(
                model="plain", messages=turns("Odd."), extra_body={"odd": 1}
            )
        with pytest.raises(openai.InternalServerError):
            await client.chat.completions.create(model="reset", messages=turns("Reset."))


@pytest.mark.parametrize("use_responses_api", [False, True])
def test_langchain(door: Door, use_responses_api: bool) -> None:
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(
        model="plain",
        base_url=door.url,
        api_key="key",
        max_retries=0,
        use_responses_api=use_responses_api,
        extra_body={"user": "anna"},
    )
    history: Any = [("user", f"LangChain speaks {use_responses_api}.")]
    answer = model.invoke(history)
    again = f"LangChain again {use_responses_api}."
    history += [("assistant", answer.text), ("user", again)]
    assert "".join(part.text for part in model.stream(history)) == f"answer to: {again}"
    (said,) = sessions_of(door, again)
    assert [role for role, _ in said] == ["user", "assistant"] * 2


async def test_pydantic_ai(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """As its documentation says: the model "openai:", and the address in the environment."""
    pydantic_ai = pytest.importorskip("pydantic_ai")
    monkeypatch.setenv("OPENAI_BASE_URL", door.url)
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    agent = pydantic_ai.Agent("openai:plain")
    first = await agent.run("Pydantic speaks.")
    async with agent.run_stream("Pydantic again.", message_history=first.all_messages()) as again:
        assert await again.get_output() == "answer to: Pydantic again."
    (said,) = sessions_of(door, "Pydantic again.")
    assert [role for role, _ in said] == ["user", "assistant"] * 2


@pytest.mark.filterwarnings("default")  # its own, of its own models
@pytest.mark.parametrize("model", ["openai/plain", "openai/responses/plain"])
def test_litellm(door: Door, monkeypatch: pytest.MonkeyPatch, model: str) -> None:
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # tests have no network
    litellm = pytest.importorskip("litellm")
    asked = turns(f"LiteLLM speaks to {model}.")
    answer = litellm.completion(model=model, messages=asked, api_base=door.url, api_key="key")
    assert answer.choices[0].message.content.startswith("answer to: ")
    (said,) = sessions_of(door, asked[0]["content"])
    assert [role for role, _ in said] == ["user", "assistant"]


def test_the_llm_command(door: Door, tmp_path: Path) -> None:
    (tmp_path / "extra-openai-models.yaml").write_text(
        f"- model_id: mine\n  model_name: plain\n  api_base: {door.url}\n  api_key_name: mine\n"
    )
    environment = {**os.environ, "LLM_USER_PATH": str(tmp_path), "LLM_LOAD_PLUGINS": ""}
    for text, more in (("The command speaks.", []), ("The command again.", ["-c"])):
        done = subprocess.run(
            [sys.executable, "-m", "llm", "-m", "mine", "--key", "key", *more, text],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout) == (0, f"answer to: {text}\n"), done.stderr
    (said,) = sessions_of(door, "The command again.")
    assert [role for role, _ in said] == ["user", "assistant"] * 2


@pytest.mark.skipif(not shutil.which("curl"), reason="there is no curl")
def test_curl(door: Door) -> None:
    body = '{"model": "plain", "stream": true, "messages": [{"role": "user", "content": "curl"}]}'
    command = ["curl", "-sSN", "-H", "Content-Type: application/json", "-d", body]
    done = subprocess.run(
        [*command, f"{door.url}/chat/completions"], capture_output=True, check=True
    )
    assert done.stdout == door.upstream.sent["stream"]


def test_two_servers_on_one_store_keep_each_message_once(door: Door) -> None:
    with serving(door.service, door.settings, agent=door.agent) as url:
        ask_both(door, replace(door, url=f"{url}/v1"))


def test_two_servers_on_one_mongodb_keep_each_message_once(
    open_store: Callable[[str], Store], upstream: FakeUpstream, tmp_path: Path
) -> None:
    settings = make_settings(tmp_path, upstream)
    service = MemoryService(open_store("secantus"), settings)
    boris = User(id=new_id(), username="boris", created_at=utc_now())
    mira = Agent(id=new_id(), username="mira", owner=boris.id, created_at=utc_now())
    for account in (boris, mira):
        assert service.accounts.add(account)
    with (
        serving(service, settings, agent=mira) as one,
        serving(service, settings, agent=mira) as other,
    ):
        first, second = (
            Door(f"{url}/v1", upstream, service, settings, mira, mira, boris, boris)
            for url in (one, other)
        )
        ask_both(first, second)


def ask_both(first: Door, second: Door) -> None:
    """Ask both the same at once, as a client does that gave up waiting for one."""
    said = ["Twice."]
    for text in ("And again.", "And once more."):
        with ThreadPoolExecutor(6) as pool:
            asked = [
                pool.submit(at.chat, *said, user="boris")
                for at in (first, second)
                for _ in range(3)
            ]
            answers = [each.result() for each in asked]
        assert len({answer.headers["x-edenmem-session"] for answer in answers}) == 1
        said += [answers[0].json()["choices"][0]["message"]["content"], text]
    (session,) = {answer.headers["x-edenmem-session"] for answer in answers}
    assert [text for _, text in first.said(session)] == said[:-1]
