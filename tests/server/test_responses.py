"""The Responses API: memory, tools and streams; and all other paths below ``/v1``, unchanged."""

from __future__ import annotations

import json
from typing import Any

import httpx
import openai
import pytest

from edenmem.models.scope import Scope
from edenmem.server.proxy.answers import ResponseReader
from tests.server.door import Door
from tests.support.memory import add_fact, consolidate

pytestmark = pytest.mark.slow

TOOL: Any = {
    "type": "function",
    "name": "weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
_FACT, _TEXT = "Anna keeps bees on a roof in Porto.", "Anna is a beekeeper."


@pytest.fixture
def client(door: Door) -> Any:
    scope = Scope.user(door.agent.id, door.anna.id)
    if not door.store.memory.consolidations([scope]):
        add_fact(door.store, scope, content=_FACT)
        consolidate(door.store, scope, _TEXT, expected_version=0)
    with openai.OpenAI(base_url=door.url, api_key="key", max_retries=0) as client:
        yield client


def _session(door: Door, text: str) -> list[tuple[str, str]]:
    """What was said in the only session with this message."""
    (session,) = door.having_heard(text)
    return door.said(session.id)


@pytest.mark.parametrize("form", ["text", "message", "parts"])
def test_memory_goes_into_a_request_of_any_form(door: Door, client: Any, form: str) -> None:
    asked = f"Where are my bees, asked as {form}?"
    given: Any = {
        "text": asked,
        "message": [{"role": "user", "content": asked}],
        "parts": [{"role": "user", "content": [{"type": "input_text", "text": asked}]}],
    }[form]
    answer = client.responses.create(
        model="plain", input=given, user="anna", instructions="Be brief."
    )
    assert answer.output_text.startswith("answer to: ")
    seen = door.upstream.last.json
    assert seen["instructions"].startswith("Be brief.\n\n")
    assert _TEXT in seen["instructions"]
    assert _FACT in json.dumps(seen["input"])
    assert asked in json.dumps(seen["input"])
    assert isinstance(seen["input"], type(given))
    assert [role for role, _ in _session(door, asked)] == ["user", "assistant"]
    assert answer.to_dict()["memory_hits"]


def test_a_chain_of_responses_is_one_session(door: Door, client: Any) -> None:
    """Also if a request of it is sent again, and streamed."""
    first = client.responses.create(model="plain", input="Chain one.", user="anna")
    for _ in range(2):
        follow = {"previous_response_id": first.id, "user": "anna", "model": "plain"}
        events = list(client.responses.create(input="Chain two.", stream=True, **follow))
    assert [event.type for event in events][-1] == "response.completed"
    last = client.responses.create(
        model="plain", input="yes", previous_response_id=events[-1].response.id, user="anna"
    )
    assert last.usage.total_tokens == 5
    said = _session(door, "Chain one.")
    users = [text for role, text in said if role == "user"]
    assert users == ["Chain one.", "Chain two.", "yes"]
    assert said[1][1].endswith("Chain one.")
    other = client.responses.create(
        model="plain", input="Not his.", previous_response_id=first.id, user="boris"
    )
    assert other.output_text
    assert _session(door, "Not his.")[0] == ("user", "Not his.")


def test_a_history_without_ids_is_one_session(door: Door, client: Any) -> None:
    asked: Any = [{"role": "user", "content": "Use the tool."}]
    with client.responses.stream(model="tools", input=asked, tools=[TOOL], user="boris") as stream:
        call = stream.get_final_response().output[0]
    assert call.arguments == '{"city": "Łódź"}'
    asked += [
        {
            "type": "function_call",
            "call_id": call.call_id,
            "name": call.name,
            "arguments": call.arguments,
        },
        {"type": "function_call_output", "call_id": "call_1", "output": "rain"},
    ]
    done = client.responses.create(model="tools", input=asked, tools=[TOOL], user="boris")
    assert done.output_text == "answer to: rain"
    (session,) = door.having_heard("Use the tool.")
    messages = door.messages(session.id)
    assert [m.role for m in messages] == ["user", "assistant", "tool", "assistant"]
    (used,) = messages[1].tool_calls
    assert (used.tool, used.args, used.id) == ("weather", {"city": "Łódź"}, "call_1")


def test_a_conversation_of_the_upstream_is_one_session(door: Door, client: Any) -> None:
    for text in ("Talk one.", "Talk two."):
        client.responses.create(model="plain", input=text, conversation="conv_1", user="anna")
    said = [text for role, text in _session(door, "Talk one.") if role == "user"]
    assert said == ["Talk one.", "Talk two."]


def test_an_answer_that_breaks_off_is_marked(door: Door, client: Any) -> None:
    list(client.responses.create(model="cut", input="Break off.", user="anna", stream=True))
    assert "[answer cut off: the upstream stopped early]" in _session(door, "Break off.")[1][1]


@pytest.mark.parametrize(
    ("events", "content"),
    [
        (["response.output_text.delta"], "half\n\n[answer cut off: the upstream stopped early]"),
        (
            ["response.refusal.delta", "response.failed"],
            "half\n\n[answer cut off: the upstream reported an error]",
        ),
        (["response.output_text.delta", "response.incomplete"], "whole"),
        (["error"], ""),
    ],
)
def test_events_make_an_answer(events: list[str], content: str) -> None:
    reader = ResponseReader()
    message = {"role": "assistant", "content": [{"type": "output_text", "text": "whole"}]}
    for kind in events:
        event = {"type": kind, "delta": "half"}
        if kind in ("response.failed", "response.incomplete"):
            event["response"] = {"id": "r", "output": [message]}  # type: ignore[assignment]
        reader.feed(f"event: {kind}\ndata: {json.dumps(event)}\n\n".encode())
    reader.end()
    assert reader.answer().content == content


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/embeddings", b'{"model": "plain", "input": "I keep bees."}'),
        ("POST", "/completions", b'{"model": "plain", "prompt": "I keep"}'),
        ("POST", "/audio/transcriptions", b"\xff\x00 not JSON"),
        ("GET", "/responses/resp_1?include=x&a=%2F", b""),
        ("DELETE", "/files/file-1", b""),
    ],
)
def test_other_paths_are_passed_on(door: Door, method: str, path: str, body: bytes) -> None:
    before = len(list(door.store.host.sessions()))
    with httpx.Client(trust_env=False) as client:
        answer = client.request(method, f"{door.url}{path}", content=body)
    assert answer.json() == {"path": f"/v1{path}", "body": body.decode("latin-1")}
    assert len(list(door.store.host.sessions())) == before
