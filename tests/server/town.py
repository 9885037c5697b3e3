"""A server's memory with two agents and two users, and callers of every kind."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import msgspec

from edenmem.engine.service import MemoryService
from edenmem.models.changes import AddFact, AddReflection, HoldItem, WritePolicy
from edenmem.models.ids import utc_now
from edenmem.models.scope import Scope
from edenmem.models.told import Reply, Shown, make_note, pack
from edenmem.server.app import create_app
from edenmem.settings.schema import SearchSettings, ServerSettings, Settings
from edenmem.store.protocol.store import Store
from edenmem.store.sqlite import SqliteStore
from tests.support.builders import (
    make_agent,
    make_fact,
    make_held,
    make_messages,
    make_policy,
    make_reflection,
    make_session,
    make_user,
    some,
    writing,
)
from tests.support.memory import applied
from tests.support.runtime import make_runtime

MIRA, OTTO = "a" * 24, "a1" * 12
LENA, LENA_ON_DISCORD, TOMAS = "b" * 24, "b2" * 12, "b1" * 12
LENAS_FACT, TOMAS_FACT, SHARD_FACT, GROUP_FACT = ("f" * 23 + each for each in "1234")
DIRECTIVE, SUGGESTION = "e" * 23 + "1", "e" * 23 + "2"
HELD = "e" * 23 + "3"
SHARD = "d" * 24
VISIT, MEETING = "c" * 24, "c1" * 12
#: The entry of the log of Lena's fact.
ENTRY = "ab" * 12
#: The note of a reply to Lena.
REPLY = "ac" * 12
#: An id of nothing.
NOTHING = "9" * 24

#: Words that only one of them may read.
LENAS, TOMASS, GROUPS = "lanterns", "harpoons", "parliament"


def write_store(path: Path, fill: Callable[[SqliteStore], None]) -> Path:
    """Fill a new database file, and close it."""
    store = SqliteStore(path)
    store.database.initialize()
    fill(store)
    store.database.close()
    return path


@contextmanager
def opened_copy(filled: Path, folder: Path) -> Iterator[SqliteStore]:
    """Open a copy of a filled database file."""
    store = SqliteStore(Path(shutil.copy(filled, folder)))
    yield store
    store.database.close()


def fill(store: Store) -> None:
    """Make agents, users, sessions and memory."""
    now = utc_now()
    store.host.add_agent(
        make_agent("mira", id=MIRA, user_memory_enabled=True, agent_memory_enabled=True)
    )
    store.host.add_agent(make_agent("otto", id=OTTO, user_memory_enabled=True))
    store.host.add_user(make_user("lena", id=LENA))
    store.host.add_user(make_user("lena#1", id=LENA_ON_DISCORD, eden_user_id=LENA))
    store.host.add_user(make_user("tomas", id=TOMAS))
    visit = make_session([MIRA], [LENA], id=VISIT, name="visit")
    meeting = make_session([MIRA], [TOMAS], id=MEETING, name="meeting")
    for session in (visit, meeting):
        store.host.put_session(session)
        texts = [f"About {LENAS if session is visit else TOMASS}.", "I see."]
        store.host.add_messages(
            session.id, make_messages(session, texts, start=now, sender=session.users[0])
        )
    lena, tomas = Scope.user(MIRA, LENA), Scope.user(MIRA, TOMAS)
    agent, shard, group = Scope.agent(MIRA), Scope.shard(MIRA, "route"), Scope.group(MIRA, "board")

    def fact(scope: Scope, content: str, **fields: Any) -> AddFact:
        return AddFact(fact=make_fact(scope, content, formed_at=now, **fields))

    applied(store,
            WritePolicy(policy=make_policy(shard, id=SHARD), expected_version=0, at=now),
            AddFact(
                id=ENTRY,
                fact=make_fact(
                    lena, f"Lena folds {LENAS}.", formed_at=now, id=LENAS_FACT, session_id=VISIT
                ),
            ),
            fact(Scope.user(MIRA, LENA_ON_DISCORD), "Lena paints."),
            fact(tomas, f"Tomas collects {TOMASS}.", id=TOMAS_FACT, session_id=MEETING),
            fact(
                agent, "The walk starts at 17:30.", session_id=MEETING, related_users=(TOMAS,),
                source_message_ids=("8" * 24,),
            ),
            fact(shard, "The mole is closed.", id=SHARD_FACT, session_id=MEETING),
            fact(group, f"The {GROUPS} meets on Monday.", id=GROUP_FACT),
            AddReflection(
                reflection=make_reflection(lena, f"Likes {LENAS}.", formed_at=now, id=DIRECTIVE),
                word_limit=300,
            ),
            AddReflection(
                reflection=make_reflection(shard, "Follow the quay.", formed_at=now, id=SUGGESTION),
                word_limit=300,
            ),
            HoldItem(held=make_held(lena, f"Lena may fold {LENAS}.", held_at=now, id=HELD)),
            writing(lena, f"Lena: {LENAS}.", at=now),
            writing(tomas, f"Tomas: {TOMASS}.", at=now),
            at=now,
        )  # fmt: skip

    items = [Shown("fact", id, 1, scope) for id, scope in ((LENAS_FACT, lena), (GROUP_FACT, group))]
    reply = Reply(id=REPLY, at=now, kind="chat", agent_id=MIRA, session_id=VISIT, user_id=LENA)
    note = some(make_note(reply, pack(items)))
    store.told.add([note])


class Town:
    """The application over such a memory, and tokens by the name of who has them."""

    def __init__(
        self, store: Store, *, search: SearchSettings | None = None, **server: Any
    ) -> None:
        settings = Settings(
            server=msgspec.convert(server, ServerSettings), search=search or SearchSettings()
        )
        runtime = make_runtime(store, settings)
        self.store = store
        self.service = MemoryService.from_runtime(runtime)
        self.app = create_app(self.service, settings, is_local=True)
        self.tokens: dict[str, str] = {}
        tokens = self.service.tokens
        for name, limits in {
            "mira": {"agents": [MIRA], "can_write": True},
            "mira-reader": {"agents": [MIRA]},
            "otto": {"agents": [OTTO], "can_write": True},
            "lena": {"agents": [MIRA], "user_id": LENA, "can_write": True},
            "lena-reader": {"agents": [MIRA], "user_id": LENA},
            "tomas": {"agents": [MIRA], "user_id": TOMAS, "can_write": True},
            "revoked": {"agents": [MIRA], "can_write": True},
        }.items():
            _, self.tokens[name] = tokens.create(name, **limits)  # type: ignore[arg-type]
        tokens.revoke("revoked")
        old = make_runtime(store, settings, clock=lambda: utc_now() - timedelta(days=9))
        _, self.tokens["expired"] = MemoryService.from_runtime(old).tokens.create(
            "expired", agents=[MIRA], can_write=True, expires_at=utc_now() - timedelta(days=1)
        )

    @asynccontextmanager
    async def client(
        self, who: str = "", *, peer: str = "10.1.2.3", headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[httpx.AsyncClient]:
        """A client with the token of ``who``, or without one."""
        given = dict(headers or {})
        if who:
            given["Authorization"] = f"Bearer {self.tokens[who]}"
        transport = httpx.ASGITransport(self.app, client=(peer, 5), raise_app_exceptions=False)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://127.0.0.1", headers=given
        ) as client:
            yield client
