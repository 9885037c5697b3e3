"""A server of ours in front of a strict upstream."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import msgspec

from edenmem.engine.service import MemoryService
from edenmem.models.host import Agent, Message, User
from edenmem.server import process
from edenmem.server.app import create_app
from edenmem.settings.schema import (
    EmbeddingSettings,
    ServerSettings,
    Settings,
    StoreSettings,
)
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
        body = {"model": "plain", "messages": turns(*texts), **fields}
        with httpx.Client(trust_env=False) as client:
            return client.post(
                f"{self.url}/chat/completions", json=body, headers=headers, timeout=30
            )

    def said(self, response: httpx.Response | str) -> list[tuple[str, str]]:
        """The messages of the session of an answer."""
        return [(m.role, m.content) for m in self.messages(response)]

    def messages(self, response: httpx.Response | str) -> list[Message]:
        session = response if isinstance(response, str) else response.headers["x-edenmem-session"]
        return list(self.store.host.messages(session))


def turns(*texts: str) -> list[dict[str, Any]]:
    """Messages of user and assistant in turn."""
    return [
        {"role": "assistant" if place % 2 else "user", "content": text}
        for place, text in enumerate(texts)
    ]


def make_settings(folder: Path, upstream: FakeUpstream, **server: Any) -> Settings:
    """The settings of a server on a file, with words alone to search by."""
    return Settings(
        store=StoreSettings(uri=f"sqlite:///{folder / 'memory.db'}"),
        embedding=EmbeddingSettings(provider="none"),
        server=ServerSettings(upstream_url=upstream.url, **server),
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
