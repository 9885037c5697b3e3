"""The processes of the benchmark of the proxy: ``upstream`` or ``server FILE URL SIZE``.

Each prints its base URL and runs until its standard input is closed.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from edenmem.embed.protocol import Embedding
from edenmem.engine.service import MemoryService
from edenmem.server import process
from edenmem.server.app import create_app
from edenmem.settings.schema import ServerSettings, Settings
from edenmem.store.sqlite import SqliteStore
from tests.benchmarks import data
from tests.server.upstream import FakeUpstream

if TYPE_CHECKING:
    from edenmem.embed.protocol import Role


class KnownVectors:
    """An embedder that takes no time: it knows the vectors of the questions that are asked."""

    model = data.MODEL
    dimensions = data.DIMENSIONS

    def __init__(self, size: int, count: int) -> None:
        self._vectors = {each.text: each.vector for each in data.questions(count, size)}
        self._other = next(iter(self._vectors.values()))

    async def embed(self, texts: Sequence[str], *, role: Role) -> Embedding:
        """Return the vectors."""
        return Embedding(vectors=[self._vectors.get(text, self._other) for text in texts])

    async def close(self) -> None:
        """Do nothing."""


def main(kind: str, *given: str) -> None:
    """Run until standard input is closed."""
    if kind == "upstream":
        with FakeUpstream() as upstream:
            print(upstream.url, flush=True)
            threading.Thread(target=_forget, args=(upstream,), daemon=True).start()
            sys.stdin.read()
        return
    path, url, size, count = given
    asyncio.run(_serve(path, url, int(size), int(count)))


def _forget(upstream: FakeUpstream) -> None:
    """Keep no requests: the memory that is measured is the server's, not this machine's."""
    while not threading.Event().wait(1):
        upstream.seen.clear()


async def _serve(path: str, url: str, size: int, count: int) -> None:
    limits = ServerSettings(upstream_url=url, max_requests=1000, max_wait_seconds=60)
    settings = Settings(server=limits)
    store = SqliteStore(path)
    embedder = KnownVectors(size, count)
    service = MemoryService(store, settings, embedder=embedder, actor=data.ACTOR)
    agent = msgspec.structs.replace(
        data.agent(0), user_memory_enabled=True, agent_memory_enabled=True
    )
    listener = process.open_socket("127.0.0.1", 0)
    app = create_app(service, settings, agent=agent, is_local=True)

    def stop() -> None:
        sys.stdin.read()
        signal.raise_signal(signal.SIGTERM)

    threading.Thread(target=stop, daemon=True).start()
    await process.serve(
        app,
        listener,
        shutdown_seconds=5,
        ready=lambda: print(f"{process.url_of(listener)}/v1", flush=True),
    )
    await service.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
