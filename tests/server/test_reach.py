"""Every route, as every kind of caller. A route that is not in `ROUTES` fails here."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from fastapi.routing import APIRoute
from starlette.types import Receive, Send
from starlette.types import Scope as ASGIScope

from edenmem.server.limits import PUBLIC
from edenmem.store.sqlite import SqliteStore
from tests.server import town as names
from tests.server.town import GROUPS, LENAS, MIRA, NOTHING, TOMASS, Town

pytestmark = pytest.mark.slow


class Route(NamedTuple):
    """A request that is in order, and how it is answered to others.

    ``tomas``: the status for another user's token, which may write. ``writers``: a token that only
    reads is refused. ``unknown``: what of the
    request is replaced so that it names nothing.
    """

    method: str
    path: str
    values: dict[str, str] = {}  # noqa: RUF012 - never changed
    params: dict[str, Any] = {}  # noqa: RUF012
    json: dict[str, Any] | None = None
    version: int | None = None
    status: int = 200
    lena: int | None = None
    tomas: int = 404
    unknown: dict[str, str] = {}  # noqa: RUF012
    writers: bool = False

    def replaced(self, **names: str) -> Route:
        values = {key: names.get(key, value) for key, value in self.values.items()}
        params = {key: names.get(key, value) for key, value in self.params.items()}
        json = self.json and {key: names.get(key, value) for key, value in self.json.items()}
        return self._replace(values=values, params=params, json=json)

    async def ask(self, client: httpx.AsyncClient) -> httpx.Response:
        headers = {} if self.version is None else {"If-Match": f'"{self.version}"'}
        return await client.request(
            self.method,
            self.path.format(**self.values),
            params=self.params,
            json=self.json,
            headers=headers,
        )


_A = "/api/agents/{agent_id}"
_MIRA = {"agent_id": "mira"}
ROUTES = [
    Route("GET", f"{_A}/memory", _MIRA, {"user": "lena"}, unknown={"user": "nobody"}),
    Route(
        "POST", f"{_A}/memory", _MIRA, {"user": "lena"}, {"content": "New."}, 1,
        unknown={"user": "nobody"},
    ),
    Route(
        "PATCH", f"{_A}/user-memory-enabled", _MIRA, json={"enabled": False}, lena=403, tomas=403,
        unknown={"agent_id": "nobody"},
    ),
    Route(
        "DELETE", f"{_A}/memory/{{directive_id}}", {**_MIRA, "directive_id": names.DIRECTIVE},
        status=204, unknown={"directive_id": NOTHING},
    ),
    Route("GET", f"{_A}/collective-memory", _MIRA, tomas=200, unknown={"agent_id": "nobody"}),
    Route(
        "POST", f"{_A}/collective-memory", _MIRA, json={"name": "harbour"}, status=201, lena=403,
        tomas=403, unknown={"agent_id": "nobody"},
    ),
    Route(
        "PATCH", f"{_A}/collective-memory/{{shard_id}}", {**_MIRA, "shard_id": "route"},
        json={"is_active": False}, lena=403, tomas=403, unknown={"agent_id": "nobody"},
    ),
    Route(
        "DELETE", f"{_A}/collective-memory/{{shard_id}}/memory/{{memory_id}}",
        {**_MIRA, "shard_id": names.SHARD, "memory_id": names.SHARD_FACT}, status=204, lena=403,
        tomas=403, unknown={"agent_id": "nobody"},
    ),
    Route(
        "PATCH", "/api/memory-sessions/{memory_id}", {"memory_id": names.DIRECTIVE},
        json={"content": "New."}, version=1, unknown={"memory_id": NOTHING},
    ),
    Route(
        "GET", "/api/search", params={"agent": "mira", "user": "lena", "q": LENAS},
        unknown={"user": "nobody"},
    ),
    Route("GET", "/api/facts", params={"agent": "mira", "user": "lena"}, unknown={"user": "x"}),
    Route(
        "POST", "/api/facts", json={"agent": "mira", "user": "lena", "content": "Lena swims."},
        status=201, unknown={"user": "nobody"},
    ),
    Route(
        "GET", "/api/facts/{fact_id}", {"fact_id": names.LENAS_FACT}, unknown={"fact_id": NOTHING}
    ),
    Route(
        "PATCH", "/api/facts/{fact_id}", {"fact_id": names.LENAS_FACT}, json={"content": "New."},
        version=1, unknown={"fact_id": NOTHING},
    ),
    Route(
        "DELETE", "/api/facts/{fact_id}", {"fact_id": names.LENAS_FACT}, status=204,
        unknown={"fact_id": NOTHING},
    ),
    Route(
        "GET", "/api/context", params={"agent": "mira", "session": names.VISIT},
        unknown={"session": NOTHING},
    ),
    Route(
        "GET", "/api/sessions/{session_id}/memory", {"session_id": names.VISIT},
        {"agent": "mira"}, unknown={"session_id": NOTHING},
    ),
    Route(
        "POST", "/api/sessions/{session_id}/messages", {"session_id": "visit"},
        json={"agent": "mira", "user": "lena", "messages": [{"role": "user", "content": "Hi."}]},
        unknown={"user": "nobody"},
    ),
    Route(
        "POST", "/api/remember", json={"agent": "mira", "user": "lena", "text": "Lena swims."},
        unknown={"user": "nobody"},
    ),
    Route(
        "POST", "/api/forget", json={"fact": names.LENAS_FACT}, unknown={"fact": NOTHING},
    ),
    Route("POST", "/api/undo", json={"entry": names.ENTRY}, unknown={"entry": NOTHING}),
    Route(
        "GET", "/api/review", params={"agent": "mira", "user": "lena"}, unknown={"user": "nobody"},
        writers=True,
    ),
    Route(
        "GET", "/api/review/{item_id}", {"item_id": names.HELD}, unknown={"item_id": NOTHING},
        writers=True,
    ),
    Route(
        "POST", "/api/review/{item_id}/accept", {"item_id": names.HELD}, json={},
        unknown={"item_id": NOTHING},
    ),
    Route(
        "POST", "/api/review/{item_id}/reject", {"item_id": names.HELD}, json={},
        unknown={"item_id": NOTHING},
    ),
    Route("GET", "/api/agents", tomas=200),
    Route("GET", "/api/users", params={"agent": "mira"}, tomas=200, unknown={"agent": "nobody"}),
    Route(
        "GET", "/api/sessions", params={"agent": "mira", "user": "lena"},
        unknown={"user": "nobody"},
    ),
    Route("GET", "/api/told", params={"agent": "mira", "user": "lena"}, unknown={"user": "x"}),
    Route("GET", "/api/told/{reply_id}", {"reply_id": names.REPLY}, unknown={"reply_id": NOTHING}),
    Route("GET", "/api/log", params={"agent": "mira", "user": "lena"}, unknown={"user": "nobody"}),
    # The numbers of the process, which every caller may read.
    Route("GET", "/metrics", tomas=200, unknown={}),
]  # fmt: skip


@pytest.fixture(scope="module")
def shared_town(filled: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    """A town for requests that change nothing."""
    path = tmp_path_factory.mktemp("shared") / "town.db"
    shutil.copy(filled, path)
    store = SqliteStore(path)
    yield Town(store)
    store.database.close()


def _name(route: Route) -> str:
    return f"{route.method} {route.path}"


def _api_routes(town: Town) -> list[APIRoute]:
    """The routes of the application that need a caller."""
    found: list[APIRoute] = []
    pending = list(town.app.routes)
    while pending:
        route = pending.pop()
        pending.extend(getattr(getattr(route, "original_router", route), "routes", None) or ())
        if isinstance(route, APIRoute) and route.path not in PUBLIC:
            found.append(route)
    return found


def test_every_route_has_its_line_here(town: Town) -> None:
    there = {
        f"{method} {path}"
        for path, operations in town.app.openapi()["paths"].items()
        for method in map(str.upper, operations)
        if path not in PUBLIC and not path.startswith("/v1/")
    }
    assert there == {_name(route) for route in ROUTES}
    assert {route.path for route in _api_routes(town)} >= {route.path for route in ROUTES}


def _spoken(response: httpx.Response) -> dict[str, Any]:
    """A problem, as far as it may say something."""
    assert response.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = response.json()
    assert problem["status"] == response.status_code
    return problem


async def test_without_a_valid_token_no_route_answers_others(shared_town: Town) -> None:
    before = len(list(shared_town.store.log.audit()))
    for route in _api_routes(shared_town):
        values = dict.fromkeys(route.param_convertors, MIRA)
        for method in route.methods:
            for who, peer, headers in (
                ("", "10.1.2.3", {}),
                ("expired", "127.0.0.1", {}),
                ("revoked", "127.0.0.1", {}),
                ("", "127.0.0.1", {"X-Forwarded-For": "127.0.0.1"}),
                ("", "127.0.0.1", {"Authorization": f"Bearer edm_{NOTHING}_{'0' * 64}"}),
                ("", "127.0.0.1", {"X-Edenmem-Token": "edm_nonsense"}),
            ):
                async with shared_town.client(who, peer=peer, headers=headers) as client:
                    answer = await client.request(
                        method, route.path_format.format(**values), json={"content": "x"}
                    )
                assert answer.status_code == 401, f"{method} {route.path} {who} {headers}"
                assert answer.headers["www-authenticate"].startswith("Bearer")
    assert len(list(shared_town.store.log.audit())) == before


async def test_strangers_are_refused_before_their_body_is_read(town: Town) -> None:
    async def body() -> AsyncIterator[bytes]:
        raise AssertionError("the body was read")
        yield b""

    for path in ("/api/facts", "/v1/chat/completions", "/nothing", "//health", "/health/"):
        async with town.client() as client:
            assert (await client.post(path, content=body())).status_code == 401, path
    for path in PUBLIC:
        async with town.client() as client:
            assert (await client.get(path)).status_code == 200


@pytest.mark.parametrize("route", ROUTES, ids=_name)
async def test_the_agents_own_token_and_the_users_reach_it(town: Town, route: Route) -> None:
    async with town.client("lena") as client:
        assert (await route.ask(client)).status_code == (route.lena or route.status)
    if route.method == "GET" or route.lena:  # else it is changed already
        async with town.client("mira") as client:
            assert (await route.ask(client)).status_code == route.status


async def test_a_token_of_another_agent_gets_what_an_unknown_thing_gets(shared_town: Town) -> None:
    before = len(list(shared_town.store.log.audit()))
    async with shared_town.client("otto") as client:
        for route in ROUTES:
            answer = await route.ask(client)
            if route.path in ("/metrics", "/api/agents"):
                continue
            assert answer.status_code == 404, route
            nothing = {"agent_id": "nobody", "agent": "nobody", **route.unknown}
            unknown = await route.replaced(**nothing).ask(client)
            assert _spoken(answer) == _spoken(unknown), route
    assert len(list(shared_town.store.log.audit())) == before


async def test_a_token_of_another_user_reads_and_changes_nothing(shared_town: Town) -> None:
    before = len(list(shared_town.store.log.audit()))
    async with shared_town.client("tomas") as client:
        for route in ROUTES:
            answer = await route.ask(client)
            assert answer.status_code == route.tomas, route
            assert LENAS not in answer.text
            assert GROUPS not in answer.text
            if route.tomas == 404:
                unknown = await route.replaced(**route.unknown).ask(client)
                assert _spoken(answer) == _spoken(unknown), route
    assert len(list(shared_town.store.log.audit())) == before


@pytest.mark.parametrize("who", ["mira-reader", "lena-reader"])
async def test_a_token_that_only_reads_changes_nothing(shared_town: Town, who: str) -> None:
    before = len(list(shared_town.store.log.audit()))
    async with shared_town.client(who) as client:
        for route in ROUTES:
            answer = await route.ask(client)
            may_read = route.method == "GET" and not route.writers
            assert answer.status_code == (route.status if may_read else 403), route
    assert len(list(shared_town.store.log.audit())) == before


@pytest.fixture
def asked(shared_town: Town, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements that the store is asked, without their values."""
    statements: list[str] = []
    connections = shared_town.store.connections  # type: ignore[attr-defined]
    reading = connections.reading

    @contextmanager
    def watched() -> Iterator[sqlite3.Connection]:
        with reading() as connection:
            connection.set_trace_callback(
                lambda each: statements.append(re.sub(r"'[^']*'", "?", each))
            )
            yield connection
            connection.set_trace_callback(None)

    monkeypatch.setattr(connections, "reading", watched)
    return statements


@pytest.mark.parametrize("who", ["otto", "tomas"])
async def test_the_same_is_looked_up_for_what_is_unknown_and_what_is_out_of_reach(
    shared_town: Town, asked: list[str], who: str
) -> None:
    """So that the time of an answer does not tell them apart."""
    nothing = {"agent_id": "nobody", "agent": "nobody"} if who == "otto" else {}
    async with shared_town.client(who) as client:
        for route in ROUTES:
            if who == "tomas" and route.tomas != 404:
                continue  # a route that answers, or says what the token may not do
            lookups = []
            for each in (route, route.replaced(**{**nothing, **route.unknown})):
                asked.clear()
                await each.ask(client)
                lookups.append(tuple(asked))
            assert lookups[0] == lookups[1] != (), route


async def test_the_same_is_looked_up_for_a_user_of_others_and_for_nobody(
    shared_town: Town, asked: list[str]
) -> None:
    for there, nobody in (("lena", "nobody"), (names.LENA, NOTHING)):
        lookups = []
        async with shared_town.client("otto") as client:
            for user in (there, nobody):
                asked.clear()
                answer = await client.get("/api/agents/otto/memory", params={"user": user})
                assert answer.status_code == 404
                lookups.append(tuple(asked))
        assert lookups[0] == lookups[1] != ()


# -- leaks beside the routes' own answers --------------------------------------------------------


async def test_no_list_shows_a_users_token_what_others_have(town: Town) -> None:
    """Known failures 3 and 5: by sessions, messages, memory ids, searches, the log."""
    everything = [
        ("/api/facts", {"limit": "200"}),
        ("/api/log", {"limit": "200"}),
        ("/api/search", {"q": [LENAS, TOMASS, GROUPS]}),
        ("/api/search", {"q": "walk", "within": ["facts", "reflections", "texts"]}),
        ("/api/agents/mira/memory", {}),
        ("/api/agents/mira/collective-memory", {}),
    ]
    for who, own, others in (("lena", LENAS, TOMASS), ("tomas", TOMASS, LENAS)):
        seen = ""
        async with town.client(who) as client:
            for path, params in everything:
                answer = await client.get(path, params=params)
                assert answer.status_code == 200, f"{path} {answer.text}"
                found = answer.json()
                if path == "/api/search":
                    del found["queries"]
                seen += json.dumps(found)
        assert own in seen
        hidden = {
            others,
            GROUPS,
            *((names.MEETING, names.TOMAS) if who == "lena" else (names.LENA,)),
        }
        for word in (*hidden, "8" * 24):
            assert word not in seen, f"{who} sees {word}"


@pytest.mark.parametrize(
    ("path", "params"),
    [
        ("/api/context", {"session": names.MEETING}),
        ("/api/search", {"q": "x", "session": names.MEETING}),
        ("/api/search", {"q": "x", "group": "board"}),
        ("/api/facts", {"group": "board"}),
        (f"/api/facts/{names.GROUP_FACT}", {}),
        (f"/api/facts/{names.TOMAS_FACT}", {}),
        ("/api/facts", {"user": names.TOMAS}),
        ("/api/log", {"user": "tomas"}),
        ("/api/context", {"session": names.VISIT, "user": "tomas"}),
    ],
)
async def test_a_users_token_does_not_learn_whether_it_is_there(
    shared_town: Town, path: str, params: dict[str, str]
) -> None:
    gone = {"user": "nobody", "group": "none", "session": NOTHING}
    other = {key: gone[key] if value != names.VISIT and key in gone else value
             for key, value in params.items()}  # fmt: skip
    async with shared_town.client("lena") as client:
        answer = await client.get(path, params=params)
        unknown = await client.get(path if params else f"/api/facts/{NOTHING}", params=other)
    assert answer.status_code == 404
    assert _spoken(answer) == _spoken(unknown)


async def test_a_token_of_all_users_knows_only_those_of_its_agent(town: Town) -> None:
    async with town.client("otto") as client:
        for user in ("lena", names.LENA, "nobody", NOTHING, "le"):
            answer = await client.get("/api/agents/otto/memory", params={"user": user})
            assert (answer.status_code, _spoken(answer)["detail"]) == (404, "user not found")
    async with town.client("mira") as client:
        for user in ("lena", names.LENA):
            assert (
                await client.get("/api/agents/mira/memory", params={"user": user})
            ).status_code == 200
        nobody = await client.get("/api/agents/mira/memory", params={"user": "nobody"})
        assert nobody.status_code == 404
        none = await client.get("/api/agents/mira/memory")
        assert (none.status_code, "user is required" in none.text) == (400, True)


async def test_a_users_token_means_all_accounts_of_the_person(town: Town) -> None:
    async with town.client("lena") as client:
        facts = (await client.get("/api/facts", params={"scope": "user"})).json()["items"]
        assert {fact["user_id"] for fact in facts} == {names.LENA, names.LENA_ON_DISCORD}
        other = await client.get("/api/agents/mira/memory", params={"user": "lena#1"})
        assert (other.status_code, other.json()["user_id"]) == (200, names.LENA_ON_DISCORD)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Authorization": "Basic eDp5"}, 200),
        ({"Authorization": "Bearer sk-upstream"}, 401),  # a key of the upstream is for /v1
        ({"Authorization": "Bearer "}, 401),
        ({"Host": "memory.example"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "[::1]memory.example"}, 403),
        ({"Host": "localhost:80:80"}, 403),
        ({"Origin": "http://[::1].evil.example"}, 403),
        ({"Origin": "http://localhost:80.evil.example"}, 403),
        ({"Origin": "http://127.0.0.1:80@evil.example"}, 403),
        ({"Host": "[::1]:8377", "Origin": "http://localhost:3000"}, 200),
        ({"X-Real-IP": "127.0.0.1"}, 401),
        ({"Forwarded": "for=127.0.0.1"}, 401),
        ({"Via": "1.1 proxy"}, 401),
        ({"X-Forwarded-Proto": "https"}, 401),
        ({"CF-Connecting-IP": "127.0.0.1"}, 401),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
    ],
)
async def test_this_machine_needs_no_token_unless_another_speaks_through_it(
    shared_town: Town, headers: dict[str, str], status: int
) -> None:
    async with shared_town.client(peer="127.0.0.1", headers=headers) as client:
        assert (await client.get("/api/facts", params={"agent": "mira"})).status_code == status
    async with shared_town.client("mira", headers=headers) as client:
        own = {**headers, "Authorization": f"Bearer {shared_town.tokens['mira']}"}
        assert (await client.get("/api/facts", headers=own)).status_code == 200


async def test_http_1_0_is_not_of_this_machine(shared_town: Town) -> None:
    async def old(scope: ASGIScope, receive: Receive, send: Send) -> None:
        await shared_town.app({**scope, "http_version": "1.0"}, receive, send)

    transport = httpx.ASGITransport(old, client=("127.0.0.1", 5))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        assert (await client.get("/api/facts")).status_code == 401


async def test_a_machine_of_many_may_ask_for_tokens_too(town_store: SqliteStore) -> None:
    town = Town(town_store, require_token=True)
    async with town.client(peer="127.0.0.1") as client:
        assert (await client.get("/api/facts")).status_code == 401
    async with town.client("lena", peer="127.0.0.1") as client:
        assert (await client.get("/api/facts")).status_code == 200


async def test_a_token_may_leave_authorization_to_the_upstream(town: Town) -> None:
    headers = {"Authorization": "Bearer sk-upstream", "X-Edenmem-Token": town.tokens["lena"]}
    async with town.client(headers=headers) as client:
        assert (await client.get("/api/facts")).status_code == 200
