"""``edenmem mcp --http``: the official client, and who is let in."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from edenmem.engine.agent_memory import AgentMemory
from edenmem.engine.service import MemoryService
from edenmem.errors import StoreError
from edenmem.mcp.http import attach_to_server, create_app
from edenmem.models.scope import Scope
from edenmem.server.app import create_app as create_server
from edenmem.settings.schema import ServerSettings, Settings
from edenmem.store.protocol.store import Store
from edenmem.store.sqlite import SqliteStore
from tests.support.builders import make_agent, make_fact, make_user
from tests.support.memory import add_facts

pytestmark = pytest.mark.slow

MIRA, OTTO = make_agent("mira"), make_agent("otto")
LENA, TOMAS = make_user("lena"), make_user("tomas")
SHARED = make_fact(Scope.agent(MIRA.id), "The walk starts at 17:30.")
HERS = make_fact(Scope.user(MIRA.id, LENA.id), "Lena's order is OP-7731.")
HIS = make_fact(Scope.user(MIRA.id, TOMAS.id), "Tomas pays with card 9931.")
BASE = "http://127.0.0.1:8378"

Open = Callable[..., AbstractAsyncContextManager[httpx2.AsyncClient]]


@pytest.fixture
def service(sqlite_store: Store) -> MemoryService:
    for agent in (MIRA, OTTO):
        sqlite_store.host.add_agent(agent)
    for user in (LENA, TOMAS):
        sqlite_store.host.add_user(user)
    add_facts(sqlite_store, SHARED, HERS, HIS)
    return MemoryService(sqlite_store, Settings())


@pytest.fixture
def connect(service: MemoryService) -> Open:
    """A function that opens an HTTP client of a server."""

    @asynccontextmanager
    async def open_one(
        *,
        user_id: str | None = None,
        write: bool = True,
        is_local: bool = True,
        address: str = "127.0.0.1",
        require_token: bool = False,
        **headers: str,
    ) -> AsyncIterator[httpx2.AsyncClient]:
        app = create_app(
            service,
            Settings(server=ServerSettings(require_token=require_token)),
            agent_id=MIRA.id,
            user_id=user_id,
            write=write,
            is_local=is_local,
        )
        transport = httpx2.ASGITransport(app=app, client=(address, 5000))
        async with (
            app.router.lifespan_context(app),
            httpx2.AsyncClient(transport=transport, headers=headers) as client,
        ):
            yield client

    return open_one


async def listed(http: httpx2.AsyncClient) -> tuple[set[str], int]:
    """The facts that a client is shown, and how many tools it is offered."""
    async with Client(streamable_http_client(f"{BASE}/mcp", http_client=http)) as client:
        tools = (await client.list_tools()).tools
        found = await client.call_tool("list_facts", {})
        assert found.structured_content is not None
        return {fact["content"] for fact in found.structured_content["facts"]}, len(tools)


async def test_this_machine_is_served_without_a_token(connect: Open) -> None:
    async with connect(user_id=LENA.id) as http:
        assert await listed(http) == ({SHARED.content, HERS.content}, 7)
    async with connect(write=False) as http:
        assert await listed(http) == ({SHARED.content}, 4)


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"is_local": False}, 401),
        ({"address": "203.0.113.7"}, 401),
        ({"x-forwarded-for": "203.0.113.7"}, 401),
        ({"authorization": "Bearer edm_nonsense"}, 401),
        ({"host": "evil.example"}, 403),
        ({"origin": "https://evil.example"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"require_token": True}, 401),
    ],
)
async def test_others_are_refused_as_the_protocol_asks(
    connect: Open, options: dict[str, str | bool], status: int
) -> None:
    async with connect(**options) as http:
        answer = await http.post(f"{BASE}/mcp", json={"jsonrpc": "2.0", "method": "ping"})
        assert answer.status_code == status
        assert answer.headers["www-authenticate"].startswith('Bearer realm="edenmem", error=')


async def test_the_server_of_chats_has_the_tools_too(service: MemoryService) -> None:
    """Agent and user are the token's; without a token, the server's."""
    settings = Settings(server=ServerSettings(user="lena"))
    app = create_server(service, settings, agent=MIRA, is_local=True)
    attach_to_server(app)
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    his = token(service, "his", user_id=TOMAS.id)
    both = token(service, "both", agents=[MIRA.id, OTTO.id])
    ottos = token(service, "ottos", agents=[OTTO.id], can_write=True)
    transport = httpx2.ASGITransport(app=app, client=("127.0.0.1", 5000))
    async with app.router.lifespan_context(app), httpx2.AsyncClient(transport=transport) as http:
        for given, expected in (
            ("", ({SHARED.content, HERS.content}, 7)),
            (his, ({SHARED.content, HIS.content}, 4)),
            (both, ({SHARED.content}, 4)),
            (ottos, (set(), 7)),
        ):
            http.headers["authorization"] = given
            assert await listed(http) == expected
        for name, value in (("host", "evil.example"), ("origin", "https://evil.example")):
            headers = {"authorization": "", name: value}
            answer = await http.post(f"{BASE}/mcp", json=ping, headers=headers)
            assert answer.status_code == 403
        http.headers["authorization"] = "Bearer edm_nonsense"
        assert (await http.post(f"{BASE}/mcp", json=ping)).status_code == 401
        assert (await http.get(f"{BASE}/health")).status_code == 200


async def test_there_is_nothing_to_listen_to(connect: Open) -> None:
    async with connect() as http:
        assert (await http.get(f"{BASE}/mcp")).status_code == 405


async def test_a_request_that_is_too_large_is_refused(connect: Open) -> None:
    async with connect() as http:
        answer = await http.post(
            f"{BASE}/mcp",
            content=b'{"a": "' + b"x" * 400_000 + b'"}',
            headers={"content-type": "application/json", "accept": "application/json"},
        )
        assert answer.status_code == 413


async def test_failures_of_the_store_say_nothing_of_files(
    connect: Open, service: MemoryService, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise StoreError("cannot open /srv/secret/memory.db")

    monkeypatch.setattr(AgentMemory, "facts", fail)
    async with connect(user_id=LENA.id) as http:
        async with Client(streamable_http_client(f"{BASE}/mcp", http_client=http)) as client:
            found = await client.call_tool("list_facts", {})
        assert found.is_error
        assert "the store is unavailable" in str(found.content)
        assert "secret" not in str(found.content)
        monkeypatch.setattr(MemoryService, "memory_for", fail)
        answer = await http.post(f"{BASE}/mcp", json={"jsonrpc": "2.0", "method": "ping"})
        assert (answer.status_code, "secret" in answer.text) == (503, False)


def token(service: MemoryService, name: str, **options: Any) -> str:
    """The header of a new token."""
    _, secret = service.tokens.create(name, **{"agents": [MIRA.id], **options})
    return f"Bearer {secret}"


async def test_a_token_reaches_its_user_and_no_other(connect: Open, service: MemoryService) -> None:
    hers = token(service, "hers", user_id=LENA.id)
    his = token(service, "his", user_id=TOMAS.id, can_write=True)
    everybody = token(service, "everybody")
    for given, contents, tools in (
        (hers, {SHARED.content, HERS.content}, 4),
        (his, {SHARED.content, HIS.content}, 7),
        (everybody, {SHARED.content}, 4),
    ):
        async with connect(is_local=False, authorization=given) as http:
            assert await listed(http) == (contents, tools)
    async with connect(is_local=False, user_id=LENA.id, authorization=everybody) as http:
        assert await listed(http) == ({SHARED.content, HERS.content}, 4)


async def test_a_token_of_others_opens_nothing(connect: Open, service: MemoryService) -> None:
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    revoked = token(service, "revoked")
    service.tokens.revoke("revoked")
    for given, status in (
        (token(service, "other-agent", agents=[OTTO.id]), 403),
        (token(service, "other-user", user_id=TOMAS.id), 403),
        (revoked, 401),
    ):
        async with connect(is_local=False, user_id=LENA.id, authorization=given) as http:
            answer = await http.post(f"{BASE}/mcp", json=ping)
            assert answer.status_code == status
            assert "Bearer" in answer.headers["www-authenticate"]


async def test_a_deleted_users_token_opens_nothing(connect: Open, service: MemoryService) -> None:
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    gone = token(service, "gone", user_id="0" * 24)
    async with connect(is_local=False, authorization=gone) as http:
        assert (await http.post(f"{BASE}/mcp", json=ping)).status_code == 403


async def test_changes_bear_the_name_of_the_token(
    connect: Open, service: MemoryService, sqlite_store: Store
) -> None:
    given = token(service, "phone", user_id=LENA.id, can_write=True)
    async with connect(is_local=False, authorization=given) as http:
        address = streamable_http_client(f"{BASE}/mcp", http_client=http)
        async with Client(address) as client:
            shared = await client.call_tool("forget_fact", {"fact_id": SHARED.id})
            assert shared.is_error
            gone = await client.call_tool("forget_fact", {"fact_id": HERS.id})
            assert not gone.is_error
            his = await client.call_tool("explain_fact", {"fact_id": HIS.id})
            assert his.is_error
    (entry,) = (e for e in sqlite_store.log.audit(target_id=HERS.id) if e.action == "remove_fact")
    assert entry.actor.name == "phone"


async def test_the_process_serves_and_stops(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "memory.db")
    store.database.initialize()
    store.host.add_agent(MIRA)
    add_facts(store, SHARED)
    store.database.close()
    arguments = ["--uri", f"sqlite:///{tmp_path}/memory.db", "--http", "--port", "0"]
    with subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-W", "error", "-m", "edenmem", "mcp", "--agent", "mira", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "EDENMEM_EMBEDDING_PROVIDER": "none"},
    ) as process:
        assert process.stderr is not None
        found = re.match(r"listening on (\S+)", process.stderr.readline())
        assert found
        async with Client(found[1]) as client:
            result = await client.call_tool("list_facts", {})
            assert SHARED.content in str(result.structured_content)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert (process.stdout and process.stdout.read()) == ""
