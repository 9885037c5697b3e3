"""What waits for review is seen by nobody but reviewers, in random histories and on every door.

The model is a word for each item and where it is; nothing of the engine is used for it.
"""

from __future__ import annotations

import io
import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from edenmem.engine.exchange.exporter import ExportRequest
from edenmem.engine.exchange.systems import System
from edenmem.engine.service import MemoryService
from edenmem.mcp import results
from edenmem.models.backup import RecordKind
from edenmem.models.changes import HoldItem
from edenmem.models.host import Agent, User
from edenmem.server.app import create_app
from edenmem.settings.schema import Settings
from edenmem.store.protocol.store import Store
from tests.engine.conftest import make_cast
from tests.support.builders import FixedClock, make_held
from tests.support.embedder import FakeEmbedder
from tests.support.memory import applied
from tests.support.runtime import make_runtime

pytestmark = pytest.mark.slow

_WORD = re.compile(r"\bword\d+z\b")
#: Steps of a history, and histories.
_STEPS, _HISTORIES = 12, 2


@dataclass
class Model:
    """Where the word of each item is: "held", "memory" or "gone".

    ``ever`` are the words that were memory once: the log may show them. ``ids`` are the items that
    wait and the memory of each word, ``last`` is what a decision changed, with its entry.
    """

    state: dict[str, str] = field(default_factory=dict)
    ever: set[str] = field(default_factory=set)
    ids: dict[str, str] = field(default_factory=dict)
    last: tuple[str, str, str, dict[str, str]] | None = None

    def words(self, state: str) -> set[str]:
        return {word for word, found in self.state.items() if found == state}


class History:
    """A random history of one store."""

    def __init__(self, store: Store, seed: int) -> None:
        self.random, self.model, self.store = random.Random(seed), Model(), store
        self.cast = make_cast(store)
        clock = FixedClock()
        runtime = make_runtime(store, embedder=FakeEmbedder(), clock=clock)
        self.clock, self.service = clock, MemoryService.from_runtime(runtime)

    async def step(self) -> None:
        self.clock.advance(minutes=1)
        steps = [self._hold, self._hold, self._accept, self._correct, self._reject, self._undo]
        await self.random.choice(steps)()

    def _new(self, state: str) -> str:
        word = f"word{len(self.model.state)}z"
        self.model.state[word] = state
        return word

    async def _hold(self) -> None:
        cast, kind = self.cast, self.random.choice(["fact", "reflection"])
        scopes = [cast.anna_scope, cast.discord_scope, cast.agent_scope]
        scope = self.random.choice(
            [*scopes, cast.session_scope] if kind == "reflection" else scopes
        )
        word = self._new("held")
        item = make_held(
            scope,
            f"Lantern {word}.",
            kind=kind,
            quote=f"quoted {word}",
            reasons=f"doubt {word}",
            session_id=cast.session.id,
            held_at=self.clock.now,
        )
        applied(self.store, HoldItem(held=item), at=self.clock.now)
        self.model.ids[word] = item.id

    def _waiting(self) -> Iterator[str]:
        words = sorted(self.model.words("held"))
        if words:
            yield self.random.choice(words)

    async def _accept(self) -> None:
        for word in self._waiting():
            before = dict(self.model.state)
            report = await self.service.accept_item(self.model.ids[word], anyway=True)
            assert report.result is not None
            self.model.last = (word, word, report.result.change_id, before)
            self.model.state[word] = "memory"
            self.model.ever.add(word)

    async def _correct(self) -> None:
        for word in self._waiting():
            before, new = dict(self.model.state), self._new("memory")
            report = await self.service.accept_item(
                self.model.ids[word], content=f"Lantern {new}.", anyway=True
            )
            assert report.result is not None
            # The quote has the old word, and is shown with the fact.
            self.model.state[word] = "gone"
            self.model.ever |= {word, new}
            self.model.last = (word, new, report.result.change_id, {**before, new: "gone"})

    async def _reject(self) -> None:
        for word in self._waiting():
            before = dict(self.model.state)
            report = await self.service.reject_item(self.model.ids[word])
            assert report.result is not None
            self.model.state[word] = "gone"
            self.model.last = (word, word, report.result.change_id, before)

    async def _undo(self) -> None:
        if self.model.last is None:
            return
        *_, entry, before = self.model.last
        self.service.undo.entry(entry, force=False, reason="")
        self.model.state |= {word: before[word] for word in (*self.model.last[:2],)}
        self.model.last = None


def _found(text: str) -> set[str]:
    return set(_WORD.findall(text))


async def _doors(history: History, folder: Path) -> dict[str, set[str]]:
    """The words that each door shows."""
    cast, service, eve = history.cast, history.service, history.cast.eve
    memory = await service.memory_for("eve", user="anna", session=cast.session.id)
    everything: dict[str, Any] = {"top_k": 100, "track": False}
    search = await service.search(
        "Lantern",
        agent_id=eve.id,
        user_id=cast.anna.id,
        session_id=None,
        within=("facts", "reflections", "texts"),
        **everything,
    )
    context = await service.assemble_context(
        cast.session.id, message="Lantern?", recall="always", force_refresh=True
    )
    scopes = [*cast.anna_scopes, cast.agent_scope, cast.session_scope]
    shown = [*service.memory.reflections(scopes), *await memory.facts(limit=1000)]
    tools = [
        results.fact_search(await memory.search("Lantern", top_k=100), debug=True),
        results.memory_context(await memory.context(message="Lantern?", recall="always")),
        results.FactList(
            facts=[results.fact_item(fact) for fact in await memory.facts(limit=1000)], more=False
        ),
    ]
    file = io.BytesIO()
    live = (RecordKind.FACT, RecordKind.REFLECTION, RecordKind.CONSOLIDATION)
    exchange = service.exchange
    exchange.write(file, ExportRequest(types=live))
    for system in System:
        exchange.write_for(file, system, ExportRequest(agent_ids=(eve.id,)))
    exchange.write_folder(folder, ExportRequest(agent_ids=(eve.id,)), force=True)
    return {
        "lists": _found(str([each.content for each in shown])),
        "search": _found(str([search.hits, search.passages])),
        "context": _found(context.xml),
        "mcp": _found(msgspec.json.encode(tools).decode()),
        "export": _found(file.getvalue().decode()),
        "folder": _found(_read(folder)),
        **await _rest(history, eve, cast.anna),
    }


def _read(folder: Path) -> str:
    return "".join(path.read_text("utf-8") for path in folder.rglob("*.md"))


async def _rest(history: History, eve: Agent, anna: User) -> dict[str, set[str]]:
    """What a token shows that only reads."""
    service, session = history.service, history.cast.session.id
    _, token = service.tokens.create(
        f"reader-{len(list(service.tokens.list_all()))}", agents=[eve.id]
    )
    app = create_app(service, Settings(), is_local=True)
    paths: dict[str, dict[str, Any]] = {
        "/api/facts": {"limit": 200},
        "/api/search": {"q": "Lantern", "within": ["facts", "reflections", "texts"]},
        "/api/context": {"session": session, "message": "Lantern?", "recall": "always"},
        "/api/agents/eve/memory": {},
        f"/api/sessions/{session}/memory": {},
        "/api/log": {"limit": 200},
    }
    seen: dict[str, set[str]] = {}
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app, client=("10.1.2.3", 5)),
        base_url="http://127.0.0.1",
        headers={"Authorization": f"Bearer {token}"},
    ) as client:
        for path, params in paths.items():
            answer = await client.get(path, params={"user": anna.id, **params})
            assert answer.status_code == 200, (path, answer.text)
            found = answer.json()
            if path == "/api/log":  # the reasons of decisions have no words
                found = [(each["before"], each["after"]) for each in found["items"]]
            seen[path] = _found(json.dumps(found))
        assert (await client.get("/api/review")).status_code == 403
    return seen


@pytest.mark.parametrize(
    ("kind", "histories"),
    [("sqlite", _HISTORIES), ("secantus", 1)],
)
async def test_what_is_held_is_seen_on_no_door(
    open_store: Callable[[str], Store], tmp_path: Path, kind: str, histories: int
) -> None:
    for seed in range(histories):
        history = History(open_store(kind), seed)
        for place in range(_STEPS):
            await history.step()
            model = history.model
            waiting = await history.service.review_items(history.cast.eve.id)
            assert {word for each in waiting for word in _found(each.content)} == model.words(
                "held"
            )
            if place % 4 != 3:
                continue
            doors = await _doors(history, tmp_path / f"{kind}{seed}")
            for door, seen in doors.items():
                allowed = model.ever if door == "/api/log" else set()
                assert not (seen & model.words("held")) - allowed, (door, seed, place)
            assert doors["lists"] == model.words("memory"), (seed, place)
            assert doors["export"] >= model.words("memory")
