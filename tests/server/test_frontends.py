"""What front ends send: their own prompts, windows of a conversation, and who is speaking."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.door import Door, turns
from tests.support.builders import some

pytestmark = pytest.mark.slow

_TRANSCRIPT = "USER: I keep bees in Porto.\nASSISTANT: How many hives?"
_HISTORY = f"<chat_history>\n{_TRANSCRIPT}\n</chat_history>"
#: The only message of a request, or instructions and message, shortened where they list rules.
PROMPTS: dict[str, tuple[str, ...]] = {
    # Open WebUI, backend/open_webui/config.py at 2586f1f
    "title": (
        "### Task:\nGenerate a concise, 3-5 word title with an emoji summarizing the chat"
        f" history.\n### Guidelines:\n- …\n### Chat History:\n{_HISTORY}",
    ),
    "tags": (
        "### Task:\nGenerate 1-3 broad tags categorizing the main themes of the chat history,"
        f" along with 1-3 more specific subtopic tags.\n\n### Chat History:\n{_HISTORY}",
    ),
    "follow-ups": (
        "### Task:\nSuggest 3-5 relevant follow-up questions or prompts that the user might"
        f" naturally ask next in this conversation as a **user**\n### Chat History:\n{_HISTORY}",
    ),
    "emoji": (
        "Your task is to reflect the speaker's likely facial expression through a fitting emoji."
        " …\n\nMessage: ```I keep bees in Porto.```",
    ),
    # LibreChat, danny-avila/agents, src/utils/title.ts at d8751a6
    "completion title": (
        "Provide a concise, 5-word-or-less title for the conversation, using title case"
        " conventions. Only return the title itself.\n\nConversation:\nUser: I keep bees.\nAI: Oh?",
    ),
    "structured title": (
        "Analyze this conversation and provide:\n1. The detected language of the conversation\n"
        "2. A concise title in the detected language (5 words or less, no punctuation or"
        " quotation)\n\nUser: I keep bees.\nAI: Oh?",
    ),
    # LobeChat, packages/prompts/src/chains at 2430838 and 50af0e9
    "summaryTitle": (
        "You are a professional conversation summarizer. Generate a concise title that captures"
        " the essence of the conversation.",
        "user: I keep bees.\nassistant: Oh?",
    ),
    "summaryHistory": (
        "You're an assistant who's good at extracting key takeaways from conversations and"
        " summarizing them.",
        f"{_HISTORY}\n\nPlease summarize the above conversation and retain key information.",
    ),
    "a setting": ("Name this talk, please: I keep bees.",),
}


@pytest.fixture(scope="module")
def server_settings() -> dict[str, Any]:
    return {
        "utility_prompts": ("name this*:",),
        "user_headers": ("openwebui", "X-Who"),
        "session_headers": ("openwebui",),
    }


def _session(door: Door, *texts: str, **fields: Any) -> str:
    answer = door.chat(*texts, **fields)
    assert answer.status_code == 200, answer.text
    session: str = answer.headers["x-edenmem-session"]
    return session


@pytest.mark.parametrize("name", PROMPTS)
def test_a_prompt_of_a_front_end_is_passed_on_and_not_remembered(door: Door, name: str) -> None:
    before = len(list(door.store.host.sessions()))
    *instructions, text = PROMPTS[name]
    messages = [{"role": "system", "content": each} for each in instructions]
    messages.append({"role": "user", "content": text})
    answer = door.chat(messages=messages, user="anna", memory_top_k=5)
    assert answer.status_code == 200
    assert door.upstream.last.messages == messages
    assert "a prompt of a front end" in answer.headers["x-edenmem-left-out"]
    assert len(list(door.store.host.sessions())) == before


@pytest.mark.parametrize(
    "text",
    [
        # Open WebUI's prompt for documents has the question of a person
        "### Task:\nRespond to the user query using the provided context.\n<context></context>\nX",
        "Provide a concise title for my book about bees.",
        "Our task list: ### Task: buy hives. <chat_history>",
        "User stories are hard. Assistant: is that a role?",
    ],
)
def test_what_a_person_asks_is_remembered(door: Door, text: str) -> None:
    assert door.said(_session(door, text, user="anna"))[0] == ("user", text)


def test_a_client_may_refuse_to_be_stored(door: Door) -> None:
    refused = door.chat("Off the record.", user="anna", headers={"X-Edenmem-Store": "no"})
    assert refused.status_code == 200
    assert not door.having_heard("Off the record.")
    assert door.chat("On it.", user="anna", headers={"X-Edenmem-Store": "x"}).status_code == 400


def _talk(door: Door, words: str, turns: int, window: int, **who: Any) -> list[str]:
    """Have a conversation through a sliding window; return the session of each turn."""
    said: list[str] = []
    sessions = []
    for number in range(turns):
        said.append(f"{words} {number}: tell me more about the hives on the roof.")
        answer = door.chat(*said[-window:], **who)
        sessions.append(answer.headers["x-edenmem-session"])
        said.append(answer.json()["choices"][0]["message"]["content"])
    assert [text for _, text in door.said(sessions[-1])] == said or len(set(sessions)) > 1
    return sessions


@pytest.mark.parametrize("window", [5, 7])
def test_a_window_continues_the_conversation_of_a_known_user(door: Door, window: int) -> None:
    assert len(set(_talk(door, f"Window {window}", 12, window, user="anna"))) == 1


def test_a_window_of_an_unknown_person_or_of_two_sessions_begins_a_new_one(door: Door) -> None:
    for number, who in enumerate(({}, {"user": "stranger"})):
        assert len(set(_talk(door, f"Unknown {number}", 6, 5, **who))) > 1
    for name in ("one", "two"):
        for place in (1, 3, 5):
            texts = [f"{name}."] * 1 + ["Yes." * 20, "No." * 20, "Go on." * 10, "Well." * 10, "x"]
            _session(door, *texts[:place], user="boris")
    window = ["No." * 20, "Go on." * 10, "Well." * 10, "x", "And?"]
    messages = turns("", *window)[1:]
    both = {each.id for text in ("one.", "two.") for each in door.having_heard(text)}
    assert _session(door, messages=messages, user="boris") not in both


@pytest.mark.parametrize("header", ["X-OpenWebUI-User-Id", "x-who"])
def test_a_front_end_names_user_and_session(door: Door, header: str) -> None:
    headers = {header: "anna", "X-OpenWebUI-Chat-Id": f"talk of {header}"}
    first = _session(door, "I keep bees.", headers=headers)
    assert _session(door, "And goats.", headers=headers) == first
    session = some(door.store.host.session(first))
    assert session.users == (door.anna.id,)
    assert session.name == f"talk of {header}"
    _, token = door.service.tokens.create(header, agents=[door.agent.id], user_id=door.boris.id)
    own = _session(door, "Mine.", headers={**headers, "Authorization": f"Bearer {token}"})
    found = some(door.store.host.session(own))
    assert (found.users, found.name) == ((door.boris.id,), None)


@pytest.mark.parametrize(
    "fields",
    [
        {"headers": {"X-Who": "{{LIBRECHAT_USER_ID}}"}},
        {"headers": {"X-OpenWebUI-Chat-Id": "{{CHAT_ID}}"}},
        {"user": "{{USER}}"},
        {"memory_id": "{{CHAT}}"},
    ],
)
def test_a_template_that_is_not_filled_in_is_refused(door: Door, fields: dict[str, Any]) -> None:
    refused = door.chat("Hello.", **fields)
    assert refused.status_code == 400
    assert "did not fill in a template" in refused.json()["error"]["message"]
    assert not door.upstream.seen


@pytest.mark.parametrize(
    "fields", [{"user": "anna"}, {"safety_identifier": "anna"}, {"metadata": {"user_id": "anna"}}]
)
def test_the_fields_of_a_request_name_the_user(door: Door, fields: dict[str, Any]) -> None:
    session = some(door.store.host.session(_session(door, f"Said as {fields}.", **fields)))
    assert session.users == (door.anna.id,)
