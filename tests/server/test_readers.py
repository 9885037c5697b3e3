"""FAILURES 113: which sentences of which scope each kind of caller reads, on every route.

Memory has a word of its own in each scope. Every route of both applications is called as every
kind of caller, with all names and IDs that a caller could try. A route or tool that is not listed
here fails.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from starlette.applications import Starlette

from edenmem.engine.service import MemoryService
from edenmem.mcp.http import create_app as create_mcp_app
from edenmem.models.changes import AddFact, AddReflection, HoldItem, RemoveFact, WritePolicy
from edenmem.models.ids import derived_id, utc_now
from edenmem.models.scope import Scope
from edenmem.models.told import Reply, Shown, make_note, pack
from edenmem.settings.schema import ServerSettings, Settings
from edenmem.store.sqlite import SqliteStore
from tests.server.town import (
    LENA,
    LENA_ON_DISCORD,
    MIRA,
    OTTO,
    TOMAS,
    Town,
    opened_copy,
    write_store,
)
from tests.server.upstream import FakeUpstream
from tests.support.builders import (
    change_set,
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
from tests.support.exhaustive import EXHAUSTIVE, sample, spared

pytestmark = pytest.mark.slow

ALONE, BOTH, HIS, OTTOS = (derived_id("session", name) for name in ("alone", "both", "his", "otto"))
#: A scope, and the word in all its memory.
WORDS = {
    Scope.agent(MIRA): "acorn",
    Scope.shard(MIRA, "route"): "basalt",
    Scope.group(MIRA, "board"): "cinnabar",
    Scope.user(MIRA, LENA): "damson",
    Scope.user(MIRA, LENA_ON_DISCORD): "elderberry",
    Scope.user(MIRA, TOMAS): "fuchsia",
    Scope.session(MIRA, ALONE): "granite",
    Scope.session(MIRA, BOTH): "hornbeam",
    Scope.session(MIRA, HIS): "iridium",
    Scope.agent(OTTO): "juniper",
    Scope.shard(OTTO, "route"): "kapok",
    Scope.user(OTTO, LENA): "larkspur",
    Scope.session(OTTO, OTTOS): "mistletoe",
}
#: A session, and the word in its messages.
SAID = {ALONE: "nutmeg", BOTH: "obsidian", HIS: "peridot", OTTOS: "quartz"}
#: The notes of replies to users, which name the memory of all scopes.
TOLD = {"c5" * 12: LENA, "c6" * 12: TOMAS, "c7" * 12: None}
EVERY_WORD = frozenset((*WORDS.values(), *SAID.values()))

_OF_MIRA = frozenset(word for scope, word in WORDS.items() if scope.agent_id == MIRA)
_SHARED = frozenset({"acorn", "basalt"})
_LENAS = _SHARED | {"damson", "elderberry"}
#: What each caller may read.
READS: Mapping[str, frozenset[str]] = {
    "": frozenset(),
    "expired": frozenset(),
    "revoked": frozenset(),
    "mira": _OF_MIRA | {SAID[ALONE], SAID[BOTH], SAID[HIS]},
    "mira-reader": _OF_MIRA | {SAID[ALONE], SAID[BOTH], SAID[HIS]},
    "lena": _LENAS,
    "lena-reader": _LENAS,
    "tomas": _SHARED | {"fuchsia"},
    "otto": frozenset({"juniper", "kapok", "larkspur", "mistletoe", "quartz"}),
}


def _id(scope: Scope, what: str) -> str:
    return derived_id(what, scope.key)


def fill(store: SqliteStore) -> None:
    """Put the word of each scope into a fact, a removed fact, a reflection and a text."""
    now = utc_now()
    switches = {"user_memory_enabled": True, "agent_memory_enabled": True}
    store.host.add_agent(make_agent("mira", id=MIRA, **switches))
    store.host.add_agent(make_agent("otto", id=OTTO, **switches))
    store.host.add_user(make_user("lena", id=LENA))
    store.host.add_user(make_user("lena#1", id=LENA_ON_DISCORD, eden_user_id=LENA))
    store.host.add_user(make_user("tomas", id=TOMAS))
    messages = {}
    for session in (
        make_session([MIRA], [LENA], id=ALONE),
        make_session([MIRA], [LENA, TOMAS], id=BOTH, group_id="board"),
        make_session([MIRA], [TOMAS], id=HIS),
        make_session([OTTO], [LENA], id=OTTOS),
    ):
        store.host.put_session(session)
        word, sender = SAID[session.id], session.users[-1]
        texts = [f"Do you remember the walk with {word}?"]
        messages[session.id] = make_messages(session, texts, start=now, sender=sender)
        store.host.add_messages(session.id, messages[session.id])
    sources = {LENA: ALONE, TOMAS: HIS, "": BOTH}
    changes: list[Any] = []
    for scope, word in WORDS.items():
        if scope.kind == "shard":
            policy = make_policy(scope, id=_id(scope, "policy"), memory_instructions=f"See {word}.")
            changes.append(WritePolicy(policy=policy, expected_version=0, at=now))
        talk = sources.get(scope.user_id or "", ALONE) if scope.agent_id == MIRA else OTTOS
        if scope.kind != "session":
            for what in ("fact", "removed"):
                fact = make_fact(
                    scope, f"The {what} walk goes past the {word}.", id=_id(scope, what),
                    formed_at=now, session_id=talk, related_users=(TOMAS,),
                    source_message_ids=tuple(each.id for each in messages[talk]),
                )  # fmt: skip
                changes.append(AddFact(fact=fact))
            changes.append(
                RemoveFact(scope=scope, fact_id=_id(scope, "removed"), expected_version=1, at=now)
            )
        changes += [
            HoldItem(held=make_held(scope, f"Held: {word}.", id=_id(scope, "held"), held_at=now)),
            AddReflection(
                reflection=make_reflection(
                    scope, f"A walk with {word}.", formed_at=now, id=_id(scope, "reflection")
                ),
                word_limit=300,
            ),
            writing(scope, f"The walk: {word}.", at=now),
        ]  # fmt: skip
    results = store.changes.apply(change_set(*changes, at=now))
    assert all(result.ok for result in results)
    items = [
        *(Shown("text", "", 1, scope) for scope in WORDS),
        *(Shown("reflection", _id(scope, "reflection"), 1, scope) for scope in WORDS),
        *(
            Shown("fact", _id(scope, "fact"), 1, scope)
            for scope in WORDS
            if scope.kind != "session"
        ),
    ]
    for reply_id, user in TOLD.items():
        reply = Reply(
            id=reply_id, at=now, kind="chat", agent_id=MIRA, session_id=ALONE, user_id=user
        )
        note = some(make_note(reply, pack(items)))
        store.told.add([note])


_USERS = [None, "lena", "tomas", LENA, LENA_ON_DISCORD, TOMAS]
_AGENTS = ["mira", "otto"]
_SESSIONS = [ALONE, BOTH, HIS, OTTOS]
_MEMORIES = [_id(scope, what) for scope in WORDS for what in ("fact", "removed", "reflection")]
_HELD = [_id(scope, what) for scope in WORDS for what in ("held", "fact")]
_KINDS = ["agent", "shard", "group", "user"]
_A = "/api/agents/{agent_id}"


def _each(**values: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Yield all combinations of these values, without those that are None."""
    for combination in product(*values.values()):
        given = zip(values, combination, strict=True)
        yield {name: value for name, value in given if value is not None}


def _memories(values: Mapping[str, Iterable[Any]], **request: Any) -> list[dict[str, Any]]:
    return [{"values": each, **request} for each in _each(**values)]


_NEW = {"json": {"content": "New."}, "headers": {"If-Match": "*"}}
_FACTS = {"fact_id": _MEMORIES}
_HELLO = {"messages": [{"role": "user", "content": "Hello again."}]}
#: All requests of each route: values of the path, and options of the client.
REQUESTS: dict[tuple[str, str], list[dict[str, Any]]] = {
    ("GET", "/api/search"): [
        {"params": {"q": "walk remember", "top_k": 100, "within": within, **each}}
        for within in (["facts"], ["facts", "reflections", "texts"])
        for each in (
            *_each(agent=_AGENTS, user=_USERS, group=[None, "board"], scope=[None, *_KINDS]),
            *_each(agent=_AGENTS, user=_USERS, session=_SESSIONS, explain=[True]),
        )
    ],
    ("GET", "/api/facts"): [
        {"params": each}
        for each in _each(
            agent=_AGENTS, user=_USERS, group=[None, "board"], scope=[None, *_KINDS], limit=[200]
        )
    ],
    ("GET", "/api/facts/{fact_id}"): _memories(_FACTS),
    ("GET", "/api/context"): [
        {"params": each}
        for each in _each(
            agent=_AGENTS, session=_SESSIONS, user=[None, "lena", "tomas"],
            message=[None, "Do you remember the walk?"], recall=[None, "off", "always"],
        )
    ],
    ("GET", "/api/sessions/{session_id}/memory"): [
        {"values": {"session_id": session}, "params": each}
        for session in _SESSIONS
        for each in _each(agent=_AGENTS, user=[None, "lena", "tomas"])
    ],
    ("GET", "/api/told"): [
        {"params": each} for each in _each(agent=_AGENTS, user=_USERS, limit=[200])
    ],
    ("GET", "/api/review"): [
        {"params": each} for each in _each(agent=_AGENTS, user=_USERS, limit=[200])
    ],
    ("GET", "/api/review/{item_id}"): _memories({"item_id": _HELD}),
    ("GET", "/api/told/{reply_id}"): _memories({"reply_id": list(TOLD)}),
    ("GET", "/api/log"): [
        {"params": each} for each in _each(agent=_AGENTS, user=_USERS, limit=[200])
    ],
    ("GET", f"{_A}/memory"): [
        {"values": {"agent_id": agent}, "params": {"user": user} if user else {}}
        for agent in _AGENTS for user in _USERS
    ],
    ("GET", f"{_A}/collective-memory"): _memories({"agent_id": _AGENTS}),
    ("GET", "/metrics"): [{}],
    ("GET", "/health"): [{}],
    ("GET", "/ready"): [{}],
    ("GET", "/docs"): [{}],
    ("GET", "/openapi.json"): [{}],
    **{
        (method, "/v1/{path:path}"): [{"values": {"path": "models"}}]
        for method in ("DELETE", "GET", "PATCH", "POST", "PUT")
    },
    ("POST", "/v1/responses"): [
        {
            "headers": {f"X-Edenmem-{name}": value for name, value in named.items()},
            "json": {"model": "plain", "input": "Do you remember the walk?"},
        }
        for named in _each(Agent=_AGENTS, User=[None, "lena", "tomas"], Session=[None, *_SESSIONS])
    ],
    ("POST", "/v1/chat/completions"): [
        {
            "headers": {f"X-Edenmem-{name}": value for name, value in named.items()},
            "json": {
                "model": "plain", "memory_top_k": 20, "memory_id": memory_id,
                "messages": [{"role": "user", "content": "Do you remember the walk?"}],
            },
        }
        for named in _each(Agent=_AGENTS, User=[None, "lena", "tomas"], Session=[None, *_SESSIONS])
        for memory_id in (["x", *_SESSIONS] if "Session" not in named else ["x"])
    ],
    ("GET", "/api/agents"): [{}],
    ("GET", "/api/users"): [{"params": each} for each in _each(agent=_AGENTS)],
    ("GET", "/api/sessions"): [{"params": each} for each in _each(agent=_AGENTS, user=_USERS)],
    # Requests that change memory, after all that read it.
    ("POST", "/api/sessions/{session_id}/messages"): [
        {"values": {"session_id": session}, "json": {**_HELLO, **each}}
        for session in ["x", *_SESSIONS]
        for each in _each(agent=_AGENTS, user=[None, "lena", "tomas"])
    ],
    ("POST", "/api/remember"): [
        {"json": {"text": "The walk goes past the elms.", **each}}
        for each in _each(agent=_AGENTS, user=_USERS)
    ],
    ("POST", "/api/review/{item_id}/accept"): _memories({"item_id": _HELD[::2]}, json={}),
    ("POST", "/api/review/{item_id}/reject"): _memories({"item_id": _HELD}, json={}),
    ("POST", "/api/undo"): [{"json": {"entry": each}} for each in _MEMORIES[:3]],
    ("POST", "/api/forget"): [{"json": {"fact": each}} for each in _MEMORIES],
    ("PATCH", "/api/memory-sessions/{memory_id}"): _memories({"memory_id": _MEMORIES}, **_NEW),
    ("PATCH", "/api/facts/{fact_id}"): _memories(_FACTS, **_NEW),
    ("POST", "/api/facts"): [
        {"json": {"content": "The walk goes past the oaks.", **each}}
        for each in _each(agent=_AGENTS, user=_USERS, group=[None, "board"])
    ],
    ("POST", f"{_A}/memory"): [
        {"values": {"agent_id": agent}, "params": {"user": user} if user else {}, **_NEW}
        for agent in _AGENTS for user in _USERS
    ],
    ("POST", f"{_A}/collective-memory"): _memories({"agent_id": _AGENTS}, json={"name": "route"}),
    ("PATCH", f"{_A}/collective-memory/{{shard_id}}"): _memories(
        {"agent_id": _AGENTS, "shard_id": ["route"]}, json={"is_active": True}
    ),
    ("PATCH", f"{_A}/user-memory-enabled"): _memories(
        {"agent_id": _AGENTS}, json={"enabled": True}
    ),
    ("DELETE", "/api/facts/{fact_id}"): _memories(_FACTS),
    ("DELETE", f"{_A}/memory/{{directive_id}}"): _memories(
        {"agent_id": _AGENTS, "directive_id": _MEMORIES}
    ),
    ("DELETE", f"{_A}/collective-memory/{{shard_id}}/memory/{{memory_id}}"): _memories(
        {"agent_id": _AGENTS, "shard_id": ["route"], "memory_id": _MEMORIES}
    ),
}  # fmt: skip


def routes_of(app: Starlette) -> set[tuple[str, str]]:
    """Return method and path of each route of an application, also of included ones."""
    found, pending = set(), list(app.routes)
    while pending:
        route = pending.pop()
        inner = getattr(getattr(route, "original_router", route), "routes", None)
        pending.extend(inner or ())
        if inner is None:
            methods = getattr(route, "methods", None) or {"*"}
            found |= {(method, route.path) for method in methods - {"HEAD"}}  # type: ignore[attr-defined]
    return found


def _words(text: str) -> frozenset[str]:
    return frozenset(word for word in EVERY_WORD if word in text)


@pytest.fixture(scope="module")
def filled_scopes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_store(tmp_path_factory.mktemp("readers") / "memory.db", fill)


@pytest.fixture
def store(filled_scopes: Path, tmp_path: Path) -> Iterator[SqliteStore]:
    with opened_copy(filled_scopes, tmp_path) as store:
        yield store


def test_every_route_and_the_words_of_all_scopes_are_known(store: SqliteStore) -> None:
    assert routes_of(Town(store).app) == set(REQUESTS)
    assert routes_of(_mcp_app(MemoryService(store, Settings()), None)) == {("POST", "/mcp")}
    assert len(EVERY_WORD) == len(WORDS) + len(SAID)


#: How many requests of one route each caller makes.
_DRAWN = 32
#: Callers, of whom those that only read are spared: they reach what their writing namesakes reach.
_CALLERS = [spared(who) if who.endswith("-reader") else who for who in READS]


def _some(requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return all requests, or some of many: drawn, since a fixed step skips whole values."""
    if EXHAUSTIVE or len(requests) <= _DRAWN:
        return requests
    drawn = sorted(Random(len(requests)).sample(range(len(requests)), _DRAWN))
    return [requests[number] for number in drawn]


@pytest.mark.parametrize("who", _CALLERS)
async def test_each_caller_reads_only_the_scopes_within_reach(
    store: SqliteStore, upstream: FakeUpstream, who: str
) -> None:
    upstream.reset()
    town = Town(store, upstream_url=upstream.url)
    seen: frozenset[str] = frozenset()
    allowed = READS[who]
    async with town.app.router.lifespan_context(town.app), town.client(who) as client:
        for (method, path), requests in REQUESTS.items():
            for request in _some(requests) if allowed else requests[:1]:
                options = dict(request)
                url = path.replace(":path", "").format(**options.pop("values", {}))
                answer = await client.request(method, url, **options)
                passed = upstream.last.body.decode() if upstream.seen else ""
                upstream.reset()
                found = _words(answer.text) | _words(passed)
                assert found <= allowed, f"{method} {url} {options}: {sorted(found - allowed)}"
                seen |= found
    assert len(allowed - seen) <= (0 if EXHAUSTIVE else 1)  # the drawn ones may miss a word


# -- the tools -----------------------------------------------------------------------------------


def _mcp_app(service: MemoryService, user_id: str | None) -> Starlette:
    return create_mcp_app(
        service, Settings(server=ServerSettings()), agent_id=MIRA, user_id=user_id, write=True,
        is_local=True,
    )  # fmt: skip


#: The arguments of each tool.
TOOLS: dict[str, Callable[[], list[dict[str, Any]]]] = {
    "search_facts": lambda: [{"query": "walk remember", "top_k": 50, "debug": True}],
    "get_memory_context": lambda: [{}, {"message": "Do you remember the walk?"}],
    "list_facts": lambda: [{"limit": 100}, {"containing": "walk"}],
    "explain_fact": lambda: [{"fact_id": each} for each in _MEMORIES],
    "remember": lambda: [{"text": "Lena swims."}],
    "edit_fact": lambda: [
        {"fact_id": each, "version": 1, "content": "N."} for each in sample(_MEMORIES, 2)
    ],
    "forget_fact": lambda: [{"fact_id": each} for each in sample(_MEMORIES, 2)],
}
#: What each caller of the tools of Mira may read, also messages of the user's own private chats; by
#: the user of the server. Callers that read nothing are refused.
_LENAS_TOOLS = _LENAS | {SAID[ALONE]}
TOOLS_READ: Mapping[str | None, Mapping[str, frozenset[str]]] = {
    None: {
        "mira": _SHARED,
        "mira-reader": _SHARED,
        "lena": _LENAS_TOOLS,
        "lena-reader": _LENAS_TOOLS,
        "tomas": _SHARED | {"fuchsia", SAID[HIS]},
    },
    LENA: {
        # A token of all users may see whole conversations of the user.
        "mira": _LENAS_TOOLS | {SAID[BOTH]},
        "mira-reader": _LENAS_TOOLS | {SAID[BOTH]},
        "lena": _LENAS_TOOLS,
        "lena-reader": _LENAS_TOOLS,
    },
}


@asynccontextmanager
async def _tools(app: Starlette, who: str, town: Town) -> AsyncIterator[httpx2.AsyncClient]:
    headers = {"Authorization": f"Bearer {town.tokens[who]}"} if who else {}
    transport = httpx2.ASGITransport(app=app, client=("10.1.2.3", 5))
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=transport, headers=headers) as client,
    ):
        yield client


@pytest.mark.parametrize("who", _CALLERS)
@pytest.mark.parametrize("of", TOOLS_READ, ids=["any user", "lena"])
async def test_each_caller_of_the_tools_reads_only_the_scopes_within_reach(
    store: SqliteStore, who: str, of: str | None
) -> None:
    town = Town(store)
    allowed = TOOLS_READ[of].get(who, frozenset())
    url, seen = "http://127.0.0.1:8378/mcp", ""
    async with _tools(_mcp_app(town.service, of), who, town) as http:
        if not allowed:
            ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
            answer = await http.post(url, json=ping)
            assert answer.status_code in (401, 403)
            assert not _words(answer.text)
            return
        async with Client(streamable_http_client(url, http_client=http)) as client:
            offered = {tool.name for tool in (await client.list_tools()).tools}
            assert offered <= TOOLS.keys()
            for name, calls in TOOLS.items():
                for arguments in calls() if name in offered else ():
                    result = await client.call_tool(name, arguments)
                    seen += json.dumps([each.model_dump() for each in result.content], default=str)
                    seen += json.dumps(result.structured_content, default=str)
                    assert _words(seen) <= allowed, f"{name} {arguments}"
    assert _words(seen) == allowed
