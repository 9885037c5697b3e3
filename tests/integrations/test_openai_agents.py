"""The session of the OpenAI Agents SDK, compared with the SDK's own, and in a run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from agents import Agent, Runner, Session, SQLiteSession, function_tool, set_tracing_disabled
from agents.items import ModelResponse
from agents.models.interface import Model
from agents.usage import Usage
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage
from openai.types.responses.response_output_text import ResponseOutputText

from edenmem import SyncMemoryService, UsageError
from edenmem.integrations.openai_agents import EdenmemSession

pytestmark = pytest.mark.slow

ITEMS: list[Any] = [
    {"role": "user", "content": "When does my workshop open?"},
    {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"at": "door"}'},
    {"type": "function_call", "call_id": "c2", "name": "look", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "On 3 March."},
    {"type": "function_call_output", "call_id": "c2", "output": "Nothing."},
    {"role": "assistant", "content": "On 3 March."},
    {"role": "system", "content": "Be brief."},
]


async def tell(session: Session) -> list[Any]:
    """Return what a session answers after the same calls."""
    answers: list[Any] = [await session.get_items(), await session.pop_item()]
    await session.add_items(ITEMS[:5])
    await session.add_items(ITEMS[5:])
    answers += [await session.get_items(), await session.get_items(2), await session.get_items(0)]
    answers += [await session.pop_item(), await session.pop_item()]
    await session.add_items([{"role": "user", "content": "Thanks."}])
    answers += [await session.get_items(), await session.get_items(2)]
    await session.clear_session()
    answers += [await session.get_items(), await session.pop_item()]
    await session.add_items([{"role": "user", "content": "Hello again."}])
    return [*answers, await session.get_items()]


def test_it_answers_as_the_session_of_the_sdk(service: SyncMemoryService) -> None:
    session = EdenmemSession(service.service, "chat-42", agent="mira", user="lena")
    assert isinstance(session, Session)
    own = SQLiteSession("chat-42")
    assert service.run(tell(session)) == asyncio.run(tell(own))
    own.close()
    other = EdenmemSession(service.service, "chat-43", agent="mira", user="lena")
    assert service.run(other.get_items()) == []


class Scripted(Model):
    """Calls a tool for the first request, and answers the next ones."""

    def __init__(self) -> None:
        self.inputs: list[Any] = []

    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> Any:
        self.inputs.append(input)
        output: Any = ResponseFunctionToolCall(
            id="fc", call_id="c1", name="look", arguments="{}", type="function_call"
        )
        if len(self.inputs) > 1:
            text = ResponseOutputText(text="On 3 March.", type="output_text", annotations=[])
            output = ResponseOutputMessage(
                id="m", content=[text], role="assistant", status="completed", type="message"
            )
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


def test_a_run_reads_and_keeps_its_history(service: SyncMemoryService) -> None:
    set_tracing_disabled(True)
    model = Scripted()
    look = function_tool(lambda: "A sign.", name_override="look", description_override="Look.")
    agent = Agent(name="Mira", model=model, tools=[look])

    async def run() -> None:
        for question in ("When?", "Sure?"):
            session = EdenmemSession(service.service, "chat", agent="mira", user="lena")
            await Runner.run(agent, question, session=session)

    service.run(run())
    said = [
        each.content
        for each in service.service.host.messages(
            service.ensure_session("chat", agents=["mira"]).id
        )
    ]
    assert said == ["When?", "", "A sign.", "On 3 March.", "Sure?", "On 3 March."]
    assert [each.get("role", each.get("type")) for each in model.inputs[2]] == [
        *("user", "function_call", "function_call_output", "assistant", "user"),
    ]


def test_messages_of_the_platform_are_not_taken_back(service: SyncMemoryService) -> None:
    from tests.support.builders import make_session

    store = service.service.store
    session = make_session([next(store.host.agents())], [])
    store.host.put_session(session)
    with pytest.raises(UsageError, match="belongs to the platform"):
        service.retract_messages(session.id, ["0" * 24])
