"""Which session a chat is of, and what of it is stored."""

from __future__ import annotations

import pytest

from tests.server.door import Door, turns
from tests.support.builders import some

pytestmark = pytest.mark.slow


def test_a_conversation_without_an_id_is_one_session(door: Door) -> None:
    first = door.chat("I keep bees.", user="anna")
    answer = first.json()["choices"][0]["message"]["content"]
    second = door.chat("I keep bees.", answer, "And goats.", user="anna")
    assert second.status_code == 200
    assert first.headers["x-edenmem-session"] == second.headers["x-edenmem-session"]
    assert door.said(second) == [
        ("user", "I keep bees."),
        ("assistant", "answer to: I keep bees."),
        ("user", "And goats."),
        ("assistant", "answer to: And goats."),
    ]
    session = some(door.store.host.session(second.headers["x-edenmem-session"]))
    assert (session.users, session.agents) == ((door.anna.id,), (door.agent.id,))
    assert (session.status, session.imported) == ("finished", True)
    assert [m.sender for m in door.messages(second)][:2] == [door.anna.id, door.agent.id]


def test_the_same_words_of_another_user_or_agent_are_another_session(door: Door) -> None:
    sessions = {
        door.chat("Good morning.", user="anna").headers["x-edenmem-session"],
        door.chat("Good morning.", user="boris").headers["x-edenmem-session"],
        door.chat("Good morning.", user="unknown").headers["x-edenmem-session"],
        door.chat("Good morning.").headers["x-edenmem-session"],
        door.chat("Good morning.", user="anna", headers={"X-Edenmem-Agent": "otto"}).headers[
            "x-edenmem-session"
        ],
    }
    assert len(sessions) == 5


def test_an_answer_that_is_asked_for_again_replaces_the_last_one(door: Door) -> None:
    door.chat("Tell me a story.", user="anna")
    again = door.chat("Tell me a story.", user="anna", model="choices", stream=True)
    assert door.said(again) == [("user", "Tell me a story."), ("assistant", "first ö")]


@pytest.mark.parametrize("memory_id", [None, "nothing"])
def test_a_chat_without_a_message_stores_nothing(door: Door, memory_id: str | None) -> None:
    """Nor does its answer replace the last one of the session."""
    before = len(list(door.store.host.sessions()))
    for messages in ([], [{"role": "system", "content": "Greet the user."}]):
        none = door.chat(messages=messages, user="anna", memory_id=memory_id)
        assert "x-edenmem-session" not in none.headers
    assert len(list(door.store.host.sessions())) == before
    if memory_id:
        said = door.said(door.chat("I keep bees.", user="anna", memory_id=memory_id))
        again = door.chat(messages=messages, user="anna", memory_id=memory_id)
        assert again.status_code == 200
        assert door.said(again) == said


def test_a_history_that_diverges_begins_a_session_with_its_parent(door: Door) -> None:
    one = door.chat("Hello there.", user="anna")
    two = door.chat("Hello there.", "a", "Red.", user="anna")
    three = door.chat("Hello there.", "a", "Blue.", user="anna")
    four = door.chat("Hello there.", "a", "Blue.", "b", "Dark blue.", user="anna")
    parent, branch = two.headers["x-edenmem-session"], three.headers["x-edenmem-session"]
    assert one.headers["x-edenmem-session"] == parent != branch
    assert four.headers["x-edenmem-session"] == branch
    session = some(door.store.host.session(branch))
    assert session.parent == parent
    assert [text for _, text in door.said(two)][-2:] == ["Red.", "answer to: Red."]
    assert [text for role, text in door.said(four) if role == "user"] == ["Blue.", "Dark blue."]


def test_many_conversations_with_the_same_beginning(door: Door) -> None:
    """Each goes on where it was, however many begin alike."""
    seen = []
    for number in range(6):
        opening = door.chat("Hi.", user="boris")
        session = opening.headers["x-edenmem-session"]
        later = door.chat("Hi.", "x", f"I am number {number}.", user="boris")
        assert later.headers["x-edenmem-session"] == session
        seen.append(session)
    assert len(set(seen)) == 6
    for number in range(6):
        known = door.chat("Hi.", "x", f"I am number {number}.", "y", "Go on.", user="boris")
        assert known.headers["x-edenmem-session"] == seen[number]
    everything = [text for session in seen for role, text in door.said(session) if role == "user"]
    assert sorted(everything) == sorted(
        ["Hi."] * 6 + ["Go on."] * 6 + [f"I am number {n}." for n in range(6)]
    )


def test_a_client_that_brings_its_history_is_stored_whole_and_once(door: Door) -> None:
    first = door.chat("One.", "first", "Two.", "second", "Three.", user="anna")
    assert [text for _, text in door.said(first)] == [
        *("One.", "first", "Two.", "second", "Three."),
        "answer to: Three.",
    ]
    again = door.chat("One.", "first", "Two.", "second", "Three.", "third", "Four.", user="anna")
    assert [text for _, text in door.said(again)][-3:] == [
        *("answer to: Three.", "Four."),
        "answer to: Four.",
    ]
    times = [message.created_at for message in door.messages(again)]
    assert times == sorted(set(times))


@pytest.mark.parametrize("style", ["whole", "window", "newest"])
def test_a_session_with_an_id_takes_each_message_once(door: Door, style: str) -> None:
    said: list[str] = []
    key = f"talk-{style}"
    for text in ("Alpha.", "yes", "yes", "Beta.", "yes"):
        said += [text]
        cut = {"whole": said, "window": said[-5:], "newest": said[-1:]}[style]
        answer = door.chat(*cut, user="anna", memory_id=key)
        assert answer.status_code == 200, answer.text
        said += [f"answer to: {text}"]
    assert [text for _, text in door.said(answer)] == said
    assert "memory_id" not in door.upstream.last.json


def test_an_edited_history_of_a_session_with_an_id_adds_what_is_new(door: Door) -> None:
    door.chat("I live in Porto.", "a", "I like tea.", user="anna", memory_id="edit")
    for _ in range(2):
        edited = door.chat(
            "I live in Lisbon.", "a", "I like tea.", "b", "And cake.", user="anna", memory_id="edit"
        )
    said = [text for role, text in door.said(edited) if role == "user"]
    assert sorted(said) == ["And cake.", "I like tea.", "I live in Lisbon.", "I live in Porto."]


def test_headers_win_over_fields(door: Door) -> None:
    plain = door.chat("Which?", user="boris", memory_id="one")
    headers = {
        "X-Edenmem-User": "anna",
        "X-Edenmem-Session": "two",
        "X-Edenmem-Agent": door.other.id,
    }
    named = door.chat("Which?", user="boris", memory_id="one", headers=headers)
    session = some(door.store.host.session(named.headers["x-edenmem-session"]))
    assert plain.headers["x-edenmem-session"] != session.id
    assert (session.users, session.agents) == ((door.anna.id,), (door.other.id,))
    assert session.name == "two"


def test_a_host_calls_users_what_it_likes(door: Door) -> None:
    mapped = door.chat("Mapped.", user="host-anna")
    unknown = door.chat("Mapped.", user="stranger")
    assert "x-edenmem-left-out" not in mapped.headers
    assert unknown.headers["x-edenmem-left-out"].startswith("user: unknown")
    found = some(door.store.host.session(mapped.headers["x-edenmem-session"]))
    assert found.users == (door.anna.id,)
    assert {user.username for user in door.store.host.users()} == {"anna", "boris"}


@pytest.mark.parametrize("name", ["mir", "MIRA", "nobody"])
def test_an_agent_is_named_exactly(door: Door, name: str) -> None:
    refused = door.chat("Hello.", headers={"X-Edenmem-Agent": name})
    assert refused.status_code == 404
    assert refused.json()["error"]["type"] == "not_found_error"
    assert not door.upstream.seen


def test_tools_pictures_and_instructions(door: Door) -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    other = {"type": "image_url", "image_url": {"url": "data:image/png;base64,BBBB"}}
    text = {"type": "text", "text": "What is this?"}
    seen = []
    for part in (picture, other):
        messages = [
            {"role": "developer", "content": "secret instructions"},
            {"role": "user", "content": [text, part]},
        ]
        seen.append(door.chat(messages=messages, user="boris"))
    assert len({answer.headers["x-edenmem-session"] for answer in seen}) == 2
    (role, content), _ = door.said(seen[0])
    assert role == "user"
    assert content.startswith("What is this?\n[image ")
    assert "secret" not in str(door.said(seen[0]))


def test_a_tool_is_called_and_answers(door: Door) -> None:
    asked = turns("How is the weather?")
    first = door.chat(messages=asked, user="boris", model="tools")
    message = first.json()["choices"][0]["message"]
    answer = {"role": "tool", "tool_call_id": "call_1", "content": "rain"}
    second = door.chat(messages=[*asked, message, answer], user="boris", model="tools")
    assert [role for role, _ in door.said(second)] == ["user", "assistant", "tool", "assistant"]
    (call,) = door.messages(second)[1].tool_calls
    assert (call.tool, call.args, call.id) == ("weather", {"city": "Łódź"}, "call_1")
