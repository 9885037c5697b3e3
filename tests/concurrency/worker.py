"""One of several processes that form, consolidate and edit the same memory at the same time."""

from __future__ import annotations

import asyncio
import json
import random
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from edenmem.engine.runtime.concurrency import in_thread
from edenmem.engine.service import MemoryService
from edenmem.errors import ConflictError, NotFoundError, UsageError
from edenmem.models.changes import Actor
from edenmem.models.ids import derived_id, utc_now
from edenmem.models.scope import Scope
from edenmem.models.search import FactFilter
from edenmem.settings.schema import Settings, StoreSettings
from tests.faults.days import Address
from tests.support.builders import make_agent, make_message, make_session, make_user
from tests.support.editing import AwaitedEditor
from tests.support.embedder import FakeEmbedder
from tests.support.llm import FakeLLM
from tests.support.runtime import ANYTHING_GOES, make_runtime

if TYPE_CHECKING:
    from edenmem.llm.protocol import LLMRequest
    from edenmem.store.protocol.store import Store

ANNA = make_user("anna", id=derived_id("anna"))
BRUNO = make_user("bruno", id=derived_id("bruno"))
EVE = make_agent("eve", id=derived_id("eve"))
SESSIONS = [
    make_session([EVE], [user], id=derived_id("session", str(place)), name=f"chat-{place}")
    for place, user in enumerate((ANNA, ANNA, BRUNO))
]
FACT_SCOPES = (Scope.user(EVE.id, ANNA.id), Scope.user(EVE.id, BRUNO.id), Scope.agent(EVE.id))
SCOPES = (*FACT_SCOPES, *(Scope.session(EVE.id, session.id) for session in SESSIONS))

_TOPICS = ("cello", "garden", "harbour", "kitchen")


class Account(TypedDict):
    """What a worker was told was done. Edits are target, version and text."""

    fact_edits: list[tuple[str, int, str]]
    text_edits: list[tuple[str, int, str]]
    deleted: list[str]
    thoughts: list[str]
    formed: int
    refused: int


def open_store(address: Address) -> Store:
    """The store that all workers share. They wait for each other as long as it takes."""
    if address.database:
        from edenmem.store.mongo import MongoStore

        return MongoStore(address.location, StoreSettings(database=address.database))
    from edenmem.store.sqlite import SqliteStore

    return SqliteStore(Path(address.location), busy_timeout=60.0)


def prepare(store: Store) -> None:
    """Put in who takes part, and the beginnings of the conversations."""
    store.database.initialize()
    assert store.host.add_user(ANNA)
    assert store.host.add_user(BRUNO)
    assert store.host.add_agent(EVE)
    for session in SESSIONS:
        assert store.host.put_session(session)
        store.host.add_messages(session.id, [make_message(session, created_at=utc_now())])


class Worker:
    """A service and an editor on the shared store, with a will of their own."""

    def __init__(self, store: Store, number: int) -> None:
        self._store = store
        self._number = number
        self._chance = random.Random(number)
        self._made = count()
        actor = Actor(name=f"worker-{number}", host="test-host", command="test")
        embedder = FakeEmbedder()
        self.service = MemoryService(
            store,
            Settings(formation=ANYTHING_GOES),
            llm=self._llm(),
            embedder=embedder,
            actor=actor,
        )
        self._editor = AwaitedEditor(make_runtime(store, embedder=embedder, actor=actor))
        self.account: Account = {
            "fact_edits": [],
            "text_edits": [],
            "deleted": [],
            "thoughts": [],
            "formed": 0,
            "refused": 0,
        }

    def _text(self, kind: str) -> str:
        """A text that nobody else writes, of a topic that others write of too."""
        topic = self._chance.choice(_TOPICS)
        return f"The {topic} by the sea is {kind} {self._number} {next(self._made)}."

    def _llm(self) -> FakeLLM:
        def thoughts(number: int) -> list[dict[str, Any]]:
            return [{"content": self._text("thought"), "private": False} for _ in range(number)]

        def fact(scope: str) -> dict[str, Any]:
            return {"content": self._text("fact"), "scope": scope, "shard": None, "private": False}

        return FakeLLM(
            {
                "facts": lambda _: {"facts": [fact("user"), fact("user"), fact("agent")]},
                "reflections": lambda _: {
                    "agent": thoughts(1),
                    "shards": [],
                    "group": [],
                    "user": thoughts(2),
                    "session": thoughts(2),
                },
                "dedup": self._decide,
                "consolidate": lambda _: {
                    "text": f"The {self._chance.choice(_TOPICS)} by the sea is here."
                },
            }
        )

    def _decide(self, request: LLMRequest[Any]) -> dict[str, Any]:
        """Each new fact takes the place of its first neighbor, in one way or the other."""
        decisions: dict[str, dict[str, Any]] = {}
        new = ""
        for line in request.user.splitlines():
            if line.startswith("N") and line.partition(":")[0][1:].isdecimal():
                new = line.partition(":")[0]
            elif line.startswith("  E") and new not in decisions:
                action = self._chance.choice(("UPDATE", "DELETE", "NONE"))
                decisions[new] = {
                    "fact": new,
                    "reason": "because",
                    "action": action,
                    "target": line.split()[0],
                    "content": self._text("merged") if action == "UPDATE" else None,
                }
        return {"decisions": list(decisions.values())}

    async def work(self, operations: int) -> None:
        """So many operations, in an order that chance decides."""
        kinds = (
            (self._talk, 4),
            (self._form, 4),
            (self._edit_fact, 5),
            (self._delete_fact, 1),
            (self._consolidate, 2),
            (self._edit_text, 2),
            (self._think, 2),
        )
        doing = self._chance.choices(*zip(*kinds, strict=True), k=operations)
        for operation in doing:
            try:
                await operation()
            except (ConflictError, NotFoundError, UsageError):
                self.account["refused"] += 1  # told so: somebody else was first

    async def _talk(self) -> None:
        session = self._chance.choice(SESSIONS)
        messages = [
            make_message(session, self._text("word"), created_at=utc_now(), sender=ANNA.id)
            for _ in range(3)
        ]
        await in_thread(self._store.host.add_messages, session.id, messages)

    async def _form(self) -> None:
        reports = await self.service.form_memories(self._chance.choice(SESSIONS).id)
        for report in reports:
            assert report.outcome in ("applied", "resumed", "taken", "not_due"), report
            self.account["formed"] += report.outcome in ("applied", "resumed")

    async def _consolidate(self) -> None:
        report = await self.service.consolidate(self._chance.choice(SCOPES), force=True)
        assert report.outcome != "failed" or "first" in (report.error or ""), report

    async def _edit_fact(self) -> None:
        fact = await self._any_fact()
        if fact is not None:
            report = await self._editor.edit(
                fact.id, self._text("edit"), expected_version=fact.version
            )
            assert report.after is not None
            self.account["fact_edits"].append(
                (fact.id, report.after["version"], report.after["content"])
            )

    async def _delete_fact(self) -> None:
        fact = await self._any_fact()
        if fact is not None:
            await self._editor.delete(fact.id, expected_version=fact.version)
            self.account["deleted"].append(fact.id)

    async def _any_fact(self) -> Any:
        scope = self._chance.choice(FACT_SCOPES)
        facts = await in_thread(lambda: list(self._store.memory.facts(FactFilter(scopes=(scope,)))))
        return self._chance.choice(facts) if facts else None

    async def _edit_text(self) -> None:
        scope = self._chance.choice(FACT_SCOPES)
        text = (await in_thread(self._store.memory.consolidations, [scope])).get(scope)
        version = text.version if text else 0
        report = await self._editor.edit_consolidation(
            scope, self._text("edited text"), expected_version=version
        )
        assert report.after is not None
        self.account["text_edits"].append(
            (scope.key, version + 1, report.after["consolidated_content"])
        )

    async def _think(self) -> None:
        report = await self._editor.add_reflection(
            self._chance.choice(FACT_SCOPES), self._text("thought")
        )
        self.account["thoughts"].append(report.target_id)


def main(address: Address, number: int, operations: int, result: str) -> None:
    """Work in a process of its own; the account goes into the file ``result``."""
    store = open_store(address)
    worker = Worker(store, number)
    asyncio.run(worker.work(operations))
    store.database.close()
    Path(result).write_text(json.dumps(worker.account))
