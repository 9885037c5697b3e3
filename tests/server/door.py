"""A server of ours in front of a strict upstream."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec

from edenmem.engine.service import MemoryService
from edenmem.models.host import Agent, Message, Session, User
from edenmem.server import process
from edenmem.server.app import create_app
from edenmem.settings.schema import EmbeddingSettings, ServerSettings, Settings, StoreSettings
from edenmem.store.protocol.store import Store
from tests.server.upstream import FakeUpstream


@dataclass
class Door:
    """A running server, and what stands behind it."""

    url: str
    upstream: FakeUpstream
    service: MemoryService
    settings: Settings
    agent: Agent
    other: Agent
    anna: User
    boris: User

    @property
    def store(self) -> Store:
        return self.service.store

    def chat(self, *texts: str, **fields: Any) -> httpx.Response:
        """Send a conversation, in turns of user and assistant; "memory_*" fields go with it."""
        headers = fields.pop("headers", {})
        with httpx.Client(trust_env=False) as client:
            return client.post(
                f"{self.url}/chat/completions",
                json=_body(texts, fields),
                headers=headers,
                timeout=60,
            )

    @contextmanager
    def asking(self, *texts: str, **fields: Any) -> Iterator[None]:
        """Send a conversation, and hang up at the end of the block."""
        url, body = urlsplit(self.url), json.dumps(_body(texts, fields)).encode()
        with socket.create_connection((url.hostname, url.port or 0)) as client:
            head = f"POST {url.path}/chat/completions HTTP/1.1\r\nHost: {url.netloc}\r\n"
            client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            yield

    def said(self, response: httpx.Response | str) -> list[tuple[str, str]]:
        """The messages of the session of an answer."""
        return [(m.role, m.content) for m in self.messages(response)]

    def having_heard(self, text: str) -> list[Session]:
        """The sessions that contain this message of a user."""
        sessions = self.store.host.sessions()
        return [session for session in sessions if ("user", text) in self.said(session.id)]

    def messages(self, response: httpx.Response | str) -> list[Message]:
        session = response if isinstance(response, str) else response.headers["x-edenmem-session"]
        return list(self.store.host.messages(session))


def _body(texts: tuple[str, ...], fields: dict[str, Any]) -> dict[str, Any]:
    return {"model": "plain", "messages": turns(*texts), **fields}


def turns(*texts: str) -> list[dict[str, Any]]:
    """Messages of user and assistant in turn."""
    return [
        {"role": "assistant" if place % 2 else "user", "content": text}
        for place, text in enumerate(texts)
    ]


def make_settings(folder: Path, upstream: FakeUpstream, **server: Any) -> Settings:
    """The settings of a server on a file, with words alone to search by.

    Its time limits are long, because a machine may be slow.
    """
    patient = dict.fromkeys(
        (
            "upstream_timeout_seconds",
            "context_timeout_seconds",
            "search_timeout_seconds",
            "store_timeout_seconds",
        ),
        60.0,
    )
    return Settings(
        store=StoreSettings(uri=f"sqlite:///{folder / 'memory.db'}"),
        embedding=EmbeddingSettings(provider="none"),
        server=ServerSettings(upstream_url=upstream.url, **(patient | server)),
    )


class serving:
    """A server in a thread."""

    def __init__(
        self,
        service: MemoryService,
        settings: Settings,
        *,
        shutdown_seconds: int = 5,
        **options: Any,
    ) -> None:
        self._service = service
        self._seconds = shutdown_seconds
        self._app = create_app(service, settings, is_local=True, **options)
        self._listener = process.open_socket("127.0.0.1", 0)
        self._ready = threading.Event()

    def __enter__(self) -> str:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._ready.wait(20)
        return process.url_of(self._listener)

    def _run(self) -> None:
        async def main() -> None:
            self._server = process.make_server(
                self._app, shutdown_seconds=self._seconds, ready=self._ready.set
            )
            await self._server.serve(sockets=[self._listener])
            await self._service.close_models()

        asyncio.run(main())

    def __exit__(self, *error: object) -> None:
        self._server.should_exit = True
        self._thread.join(20)
        assert not self._thread.is_alive()
        self._listener.close()


def with_server(settings: Settings, **server: Any) -> Settings:
    """The settings with other settings of the server."""
    changed = msgspec.structs.replace(settings.server, **server)
    return msgspec.structs.replace(settings, server=changed)
