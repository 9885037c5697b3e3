"""A server that dies between any two steps loses nothing and doubles nothing."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from edenmem.engine.chats.messages import read_messages
from edenmem.engine.chats.sessions import (
    Answer,
    ChatRequest,
    ChatTurn,
    find_turn,
    store_answer,
    store_turn,
)
from edenmem.engine.runtime.runtime import Runtime
from edenmem.errors import NotFoundError
from edenmem.models.host import Agent, User
from edenmem.models.ids import new_id
from edenmem.settings.schema import Settings
from edenmem.store.protocol.store import Store
from tests.support.stores import SECANTUS_TOO


class Killed(BaseException):
    """The process is gone."""


class Mortal:
    """A store of which only the first writes happen; the next one is the last thing tried."""

    def __init__(self, store: Store, writes: int) -> None:
        self.left = writes
        self._store = store
        self.host = self
        self.memory = store.memory
        self.database = store.database

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store.host, name)
        if name not in ("put_session", "add_messages", "put_message"):
            return found

        def write(*given: Any, **options: Any) -> Any:
            if not self.left:
                raise Killed
            self.left -= 1
            return found(*given, **options)

        return write


def talk(role_and_text: list[str]) -> list[dict[str, str]]:
    return [
        {"role": "assistant" if place % 2 else "user", "content": text}
        for place, text in enumerate(role_and_text)
    ]


TURNS = (["One."], ["One.", "first", "Two."], ["One.", "first", "Other."], ["One."])


@pytest.fixture(params=["sqlite", SECANTUS_TOO])
def store(request: pytest.FixtureRequest, open_store: Callable[[str], Store]) -> Store:
    return open_store(request.param)


@pytest.mark.parametrize("key", [None, "named"])
def test_nothing_is_lost_or_doubled_at_any_kill(store: Store, key: str | None) -> None:
    owner = User(id=new_id(), username="owner")
    agent = Agent(id=new_id(), username="mira", owner=owner.id)
    expected: list[list[str]] = []
    for writes in (99, *range(9)):
        user = User(id=new_id(), username=f"anna{writes}")
        left = writes
        for place, texts in enumerate(TURNS):
            if place and key:
                texts = [*texts[:-1], f"{texts[-1]} {place}"]
            request = ChatRequest(
                agent=agent, user=user, key=key, said=tuple(read_messages(talk(texts)))
            )
            mortal = Mortal(store, left)
            try:
                serve(mortal, request, place)
                left = mortal.left
            except Killed:
                serve(store, request, place)  # the client sends it again
                left = 99
        said = [
            sorted((m.created_at, m.role, m.content) for m in store.host.messages(session.id))
            for session in store.host.sessions(user_id=user.id)
        ]
        texts_of = sorted([text for _, _, text in each] for each in said)
        expected = expected or texts_of
        assert texts_of == expected, f"killed after {writes} writes"
    assert len(expected) == (1 if key else 3)


class Chat:
    """What one user says to one agent."""

    def __init__(self, store: Store) -> None:
        self.user = User(id=new_id(), username="anna")
        self.agent = Agent(id=new_id(), username="mira", owner=self.user.id)
        self.runtime = Runtime(store, Settings())

    def asking(self, *texts: str, **fields: Any) -> ChatRequest:
        said = tuple(read_messages(talk(list(texts))))
        return ChatRequest(agent=self.agent, user=self.user, said=said, **fields)

    def take(self, *texts: str, reply: Answer, **fields: Any) -> ChatTurn:
        """Store a request, and its answer."""
        turn = find_turn(self.runtime, self.asking(*texts, **fields))
        store_turn(self.runtime, turn)
        answer(self.runtime, turn, reply)
        return turn


@pytest.fixture
def chat(store: Store) -> Chat:
    return Chat(store)


def serve(store: Any, request: ChatRequest, number: int) -> None:
    runtime = Runtime(store, Settings())
    turn = find_turn(runtime, request)
    store_turn(runtime, turn)
    answer(runtime, turn, Answer(content=f"answer {number}"))


def answer(runtime: Runtime, turn: ChatTurn, given: Answer) -> None:
    (agent_id,) = turn.session.agents
    store_answer(runtime, turn.session.id, agent_id, turn.asked, given)


def test_a_request_that_arrives_twice_at_once_is_stored_once(store: Store, chat: Chat) -> None:
    class Racing:
        """A store in which the twin is served between the look-ups of a request."""

        def __init__(self) -> None:
            self.host = self
            self.memory = store.memory
            self.database = store.database

        def __getattr__(self, name: str) -> Any:
            return getattr(store.host, name)

        def messages_by_ids(self, ids: Any) -> Any:
            found = store.host.messages_by_ids(ids)
            with ThreadPoolExecutor(1) as twin:  # sees no snapshot of this thread
                twin.submit(serve, store, request, 2).result()
            return found

    serve(store, chat.asking("One."), 1)
    request = chat.asking("One.", "answer 1", "Two.")
    racing: Any = Racing()
    turn = find_turn(Runtime(racing, Settings()), request)
    assert not turn.is_new
    store_turn(chat.runtime, turn)
    (session,) = store.host.sessions(user_id=chat.user.id)
    assert [m.content for m in store.host.messages(session.id)] == [
        *("One.", "answer 1", "Two.", "answer 2")
    ]


@pytest.mark.parametrize("first_is_stored", [True, False])
def test_parallel_continuations_of_a_history_store_nothing_twice(
    store: Store, chat: Chat, first_is_stored: bool
) -> None:
    """Without a key, they share its session; later one goes on there and the other in a branch."""
    if first_is_stored:
        serve(store, chat.asking("One."), 1)
    histories = [["One.", "answer 1", f"Continue {name}."] for name in ("left", "right")]
    turns = [find_turn(chat.runtime, chat.asking(*each)) for each in histories]  # before a write
    for turn in turns:
        store_turn(chat.runtime, turn)
    for history, turn in zip(histories, turns, strict=True):
        answer(chat.runtime, turn, Answer(content=f"answer to {history[-1]}"))
    for round_ in ("again", "and again"):
        for history in histories:
            history += [f"answer to {history[-1]}", f"{history[2]} {round_}"]
            chat.take(*history, reply=Answer(content=f"answer to {history[-1]}"))
    sessions = list(store.host.sessions(user_id=chat.user.id))
    said = [m.content for session in sessions for m in store.host.messages(session.id)]
    last = [f"answer to {history[-1]}" for history in histories]
    assert sorted(said) == sorted({*histories[0], *histories[1], *last})
    (whole,) = [each.id for each in sessions if each.parent is None]
    assert [each.parent for each in sessions if each.parent is not None] == [whole]


@pytest.mark.parametrize("key", [None, "named"])
def test_a_missed_request_that_was_sent_again_is_not_stored_again(
    store: Store, chat: Chat, key: str | None
) -> None:
    missed_at = chat.runtime.clock()
    serve(store, chat.asking("One.", "answer 1", "Two.", key=key), 2)  # on another server
    chat.take("One.", reply=Answer(content="answer 1"), key=key, missed_at=missed_at)
    (session,) = store.host.sessions(user_id=chat.user.id)
    assert [m.content for m in store.host.messages(session.id)] == [
        *("One.", "answer 1", "Two.", "answer 2")
    ]
    other = find_turn(chat.runtime, chat.asking("Three.", key=key, missed_at=missed_at))
    assert [message.content for message in other.messages] == ["Three."]


def test_a_word_that_was_missed_twice_is_stored_twice_with_its_times(
    store: Store, chat: Chat
) -> None:
    """By a client that sends only new messages; and before what was stored meanwhile."""
    for number, text in enumerate(["One.", "Two."]):
        serve(store, chat.asking(text, key="k"), number)
    times = [chat.runtime.clock() + timedelta(seconds=place) for place in (1, 2)]
    later = Runtime(store, Settings(), clock=lambda: times[0] + timedelta(minutes=1))
    store_turn(later, find_turn(later, chat.asking("Later.", key="k")))
    for missed_at in times:
        reply = Answer(content="good", at=missed_at)
        chat.take("yes", reply=reply, key="k", missed_at=missed_at)
    (session,) = store.host.sessions(user_id=chat.user.id)
    messages = list(store.host.messages(session.id))[4:]
    assert [m.content for m in messages] == ["yes", "good", "yes", "good", "Later."]
    assert [m.created_at for m in messages if m.content == "yes"] == [
        each.replace(microsecond=each.microsecond // 1000 * 1000) for each in times
    ]


def test_an_answer_that_is_stored_late_replaces_no_newer_one(store: Store, chat: Chat) -> None:
    first, second = (chat.runtime.clock() + timedelta(seconds=place) for place in (1, 2))
    turn = chat.take("One.", reply=Answer(content="second", at=second), key="k")
    answer(chat.runtime, turn, Answer(content="first", at=first))
    assert [m.content for m in store.host.messages(turn.session.id)] == ["One.", "second"]


def test_an_answer_to_a_message_that_was_removed_is_not_stored(store: Store, chat: Chat) -> None:
    turn = find_turn(chat.runtime, chat.asking("One.", key="k"))
    with pytest.raises(NotFoundError, match="removed meanwhile"):
        answer(chat.runtime, turn, Answer(content="an answer"))
    assert not list(store.host.messages(turn.session.id))
