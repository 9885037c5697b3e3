"""One database with a person, an agent and conversations, the platform and edenmem on it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from bson import ObjectId
from pymongo import MongoClient

from edenmem.models.ids import new_id, utc_now
from tests.cli.conftest import Cli, Result
from tests.platform.double import (
    Agent,
    Document,
    Learned,
    MemoryContext,
    Message,
    Platform,
    Session,
    User,
)
from tests.support.fake_openai import KEY, FakeOpenAI

#: What both models make a fact of, word for word; "Everybody …" is for the agent's whole scope.
_FACT = re.compile(r"[A-Z][a-z]+ (?:keeps|knows) [a-z]+ number \d+\.")
#: The same in a prompt, with the number of its message.
_SAID = re.compile(rf"^\[(\d+)\] .*?({_FACT.pattern})", re.MULTILINE)


def sentences(who: str, *numbers: int) -> list[str]:
    """Sentences that both models make facts of."""
    verb = "knows" if who == "Everybody" else "keeps"
    return [f"{who} {verb} hive number {number}." for number in numbers]


def _scope(sentence: str) -> str:
    return "agent" if sentence.startswith("Everybody") else "user"


def _id_of(moment: datetime) -> ObjectId:
    """A new id with this time in it, as an id has that was made when the message was."""
    return ObjectId(ObjectId.from_datetime(moment).binary[:4] + ObjectId().binary[4:])


def _after(start: datetime, seconds: int) -> str:
    return (start + timedelta(seconds=seconds)).isoformat()


def learn(messages: Sequence[Message]) -> Learned:
    """The platform's model."""
    found = [text for message in messages for text in _FACT.findall(message.content)]
    facts = [(_scope(text), text) for text in found]
    about = [f"They spoke of: {text}" for text in found[:1]]
    return Learned(facts, {"user": about, "session": about})


class World:
    """The shared database. ``anna`` and ``bea`` are people, ``mira`` an agent with both switches.

    Attributes:
        eden: Run an edenmem command.
        read: Every sentence that edenmem's model was given to make facts of.
        meanwhile: Called once while edenmem waits for its model.
    """

    def __init__(self, database: Any, eden: Cli, cli: Cli) -> None:
        self.database = database
        self.eden = eden
        self.process = cli
        self.read: list[str] = []
        self.meanwhile: Callable[[], object] | None = None
        self.anna = self.put(User(username="anna"))
        self.bea = self.put(User(username="bea"))
        self.mira = self.put_agent("mira", user_memory_enabled=True, agent_memory_enabled=True)

    def put(self, document: Document, *unset: str) -> ObjectId:
        """Store a document as the platform writes it, apart from the fields in ``unset``."""
        document.id = document.id or ObjectId()
        document.createdAt = document.createdAt or utc_now()
        document.updatedAt = document.updatedAt or document.createdAt
        row = document.model_dump(by_alias=True)
        if isinstance(document, User):
            row["eden_user_id"] = document.eden_user_id or document.id
        for name in unset:
            del row[name]
        self.database[document.collection].insert_one(row)
        return document.id

    def put_agent(self, username: str, *unset: str, **fields: Any) -> ObjectId:
        """Store an agent that belongs to Anna."""
        return self.put(
            Agent(username=username, name=username.title(), owner=self.anna, **fields), *unset
        )

    def put_session(
        self,
        lines: Sequence[str] = (),
        *,
        sender: ObjectId | None = None,
        formed: int = 0,
        age: timedelta = timedelta(minutes=30),
        **fields: Any,
    ) -> ObjectId:
        """Store a conversation of one account; the platform has formed its first messages."""
        sender = sender or self.anna
        ended = utc_now() - age
        session = Session(
            **{"owner": sender, "users": [sender], "agents": [self.mira], **fields},
            createdAt=ended - timedelta(hours=1),
            updatedAt=ended,
        )
        key = self.put(session)
        ids = self.put_messages(key, lines, sender=sender, after=ended - timedelta(minutes=1))
        context = MemoryContext(
            last_activity=ended,
            last_memory_message_id=ids[formed - 1] if formed else None,
            messages_since_memory_formation=len(ids) - formed,
        )
        self.database.sessions.update_one(
            {"_id": key}, {"$set": {"memory_context": context.model_dump()}}
        )
        return key

    def put_messages(
        self,
        session: ObjectId,
        lines: Sequence[str],
        *,
        sender: ObjectId | None = None,
        after: datetime | None = None,
    ) -> list[ObjectId]:
        """Store messages that no counter knows of, a second apart, after the newest there is."""
        if after is None:
            newest = self.last_message(session)
            after = newest["createdAt"] if newest else utc_now() - timedelta(minutes=30)
        return [
            self.put(
                Message(
                    _id=_id_of(at),
                    session=[session],
                    role="user",
                    sender=sender or self.anna,
                    content=line,
                    createdAt=at,
                )
            )
            for place, line in enumerate(lines, 1)
            for at in [after + timedelta(seconds=place)]
        ]

    def import_session(
        self,
        name: str,
        lines: Sequence[str],
        *,
        users: Sequence[str] = ("anna",),
        tool_calls: Sequence[Any] = (),
    ) -> None:
        """Import a conversation with edenmem that went quiet half an hour ago."""
        start = utc_now() - timedelta(minutes=30, seconds=len(lines))
        messages: list[dict[str, Any]] = [
            {"role": "user", "content": line, "created_at": _after(start, place)}
            for place, line in enumerate(lines)
        ]
        if tool_calls:
            ended = _after(start, len(lines))
            calls = {"role": "assistant", "content": "", "tool_calls": list(tool_calls)}
            messages.append({**calls, "created_at": ended})
        session = {"session": name, "agent": "mira", "users": list(users), "messages": messages}
        file = self.process.cwd / f"{name}.jsonl"
        file.write_text(json.dumps(session))
        self.eden("import", str(file)).ok()

    def platform(
        self, model: Callable[[Sequence[Message]], Learned] = learn, **later: float
    ) -> Platform:
        """A new process of the platform, whose clock may be ahead: ``hours=1``."""
        return Platform(self.database, model, lambda: utc_now() + timedelta(**later))

    def cold_run_of_the_platform(self) -> list[ObjectId]:
        """What its next cold run forms, once everything has been quiet for an hour. It fails if
        the platform meets what it cannot read."""
        platform = self.platform(hours=1)
        platform.errors.clear()  # an index of its name stands already
        formed = platform.cold_run()
        platform.demand_no_errors()
        return formed

    def exchange(self) -> Result:
        """Put edenmem's unique index in the place of the platform's."""
        return self.eden("index", "create", "--replace", "--yes").ok()

    def facts(self, **query: Any) -> list[str]:
        """The facts that match, sorted."""
        return sorted(each["content"] for each in self.database.memory2_facts.find(query))

    def cursor(self, session: ObjectId) -> Any:
        """The session's last formed message, for the platform."""
        return self.context_of(session)["last_memory_message_id"]

    def context_of(self, session: ObjectId) -> Any:
        """The platform's notes about memory on a session."""
        return self.database.sessions.find_one({"_id": session})["memory_context"]

    def last_message(self, session: ObjectId) -> Any:
        """The newest message of a session."""
        order = [("createdAt", -1), ("_id", -1)]
        return self.database.messages.find_one({"session": session}, sort=order)

    def age(self, **delta: float) -> None:
        """Let time pass: all sessions were last changed that much earlier."""
        for session in self.database.sessions.find():
            context = session.get("memory_context") or {}
            times = {"updatedAt": session["updatedAt"] - timedelta(**delta)}
            if context.get("last_activity"):
                times["memory_context.last_activity"] = context["last_activity"] - timedelta(
                    **delta
                )
            self.database.sessions.update_one({"_id": session["_id"]}, {"$set": times})

    def all_is_formed(self, session: ObjectId) -> bool:
        """Whether the platform's cursor is at the newest message."""
        return bool(self.cursor(session) == self.last_message(session)["_id"])

    def answer(self, body: dict[str, Any]) -> str:
        """What edenmem's model says."""
        prompt = body["messages"][-1]["content"]
        wanted = body["response_format"]["json_schema"]["schema"]["properties"]
        found = [text for _, text in _SAID.findall(prompt)]
        empty: dict[str, Any] = {name: [] for name in wanted}
        if "facts" in wanted:
            self.read.extend(found)
            if self.meanwhile is not None:
                meanwhile, self.meanwhile = self.meanwhile, None
                meanwhile()
            facts = [
                {
                    "sources": [int(number)],
                    "quote": text,
                    "content": text,
                    "scope": _scope(text),
                    "shard": None,
                    "private": False,
                }
                for number, text in _SAID.findall(prompt)
            ]
            return json.dumps({"facts": facts})
        if "session" in wanted:
            about = [
                {"sources": [1], "content": f"The user said that {found[0]}", "private": False}
            ]
            return json.dumps({**empty, "user": about, "session": about})
        return json.dumps({"text": "[BEES]\n- They keep bees."} if "text" in wanted else empty)


@pytest.fixture
def world(
    secantus_uri: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[World]:
    """A database of its own for each test, dropped afterwards."""
    name = f"test_{new_id()}"
    cli = Cli(f"{secantus_uri.rstrip('/')}/{name}", tmp_path)
    made: list[World] = []
    with (
        FakeOpenAI(lambda body: made[0].answer(body)) as endpoint,
        MongoClient(secantus_uri, tz_aware=True) as client,
    ):
        eden = cli
        for setting, value in {
            "LLM_BASE_URL": endpoint.url,
            "LLM_API_KEY": KEY,
            "LLM_FAST_MODEL": "fast-1",
            "LLM_SLOW_MODEL": "slow-1",
            "LLM_PREMIUM_MODEL": "premium-1",
            "LLM_RETRIES": "0",
            "EMBEDDING_PROVIDER": "openai",
            "EMBEDDING_BASE_URL": endpoint.url,
            "EMBEDDING_API_KEY": KEY,
            "FORMATION_FACTS_PER_SCOPE": "100",
            "COLD_GRACE_SECONDS": "0",
        }.items():
            monkeypatch.setenv(f"EDENMEM_{setting}", value)
        made.append(World(client[name], eden, cli))
        yield made[0]
        client.drop_database(name)
