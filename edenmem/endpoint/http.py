"""The HTTP client of endpoints, which does not trust the server.

Bodies have a size limit before and after decompression: a gzip stream of a megabyte can expand to
a gigabyte. Redirects are followed on the same server only, because they carry keys and
conversations. Only headers that the client uses are kept.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urljoin, urlsplit

from openai import DefaultAsyncHttpxClient

from edenmem.endpoint.failures import BodyRefused, RedirectRefused

_MOST_REDIRECTS = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_STEP = 1024 * 1024
_GZIP_OR_ZLIB = 47  # zlib detects the format
_PORTS = {"http": 80, "https": 443}


class GuardedClient(DefaultAsyncHttpxClient):
    """An HTTP client with a limit of ``max_bytes`` for an uncompressed body."""

    def __init__(self, *, max_bytes: int) -> None:
        super().__init__(headers={"Accept-Encoding": "gzip"}, follow_redirects=False)
        self._max_bytes = max_bytes

    async def send(self, request: Any, **options: Any) -> Any:
        """Send a request, and read the whole answer.

        Raises:
            RedirectRefused: the redirect leads to another server.
            BodyRefused: the body is too large or cannot be decompressed.
        """
        options |= {"stream": True, "follow_redirects": False}
        for _ in range(_MOST_REDIRECTS):
            response = await super().send(request, **options)
            try:
                if response.status_code not in _REDIRECTS or response.next_request is None:
                    return await self._read(response)
                target = urljoin(str(request.url), response.headers["Location"])
                if not _is_same_server(str(request.url), target):
                    raise RedirectRefused(target)
                request = response.next_request
            finally:
                await response.aclose()
        raise RedirectRefused(f"{request.url} (too many redirects)")

    async def _read(self, response: Any) -> Any:
        packing = response.headers.get("Content-Encoding", "identity").strip().lower()
        if packing not in {"identity", "gzip", "x-gzip", ""}:
            raise BodyRefused(f"unsupported Content-Encoding: {packing[:40]!r}")
        content = bytearray()
        async for chunk in _unpacked(response.aiter_raw(_STEP), packing.endswith("gzip")):
            content += chunk
            if len(content) > self._max_bytes:
                raise BodyRefused(f"the answer has more than {self._max_bytes:,} bytes")
        kept = {
            name: value
            for name in ("Retry-After", "Retry-After-Ms")
            if (value := response.headers.get(name))
        }
        kind = response.headers.get("Content-Type", "").partition(";")[0].strip()
        return type(response)(
            response.status_code,
            headers={**kept, "Content-Type": kind},  # always UTF-8
            content=bytes(content),
            request=response.request,
        )


async def _unpacked(raw: AsyncIterator[bytes], packed: bool) -> AsyncIterator[bytes]:
    """Yield the uncompressed body in chunks."""
    if not packed:
        async for chunk in raw:
            yield chunk
        return
    unpacker = zlib.decompressobj(_GZIP_OR_ZLIB)
    try:
        async for chunk in raw:
            while chunk and not unpacker.eof:
                yield unpacker.decompress(chunk, _STEP)
                chunk = unpacker.unconsumed_tail
    except zlib.error as error:
        raise BodyRefused(f"the answer cannot be decompressed: {error}") from error


def _is_same_server(url: str, other: str) -> bool:
    """Return whether two URLs are on the same server, or on its TLS port."""
    try:
        here, there = urlsplit(url), urlsplit(other)
        ports = [part.port or _PORTS.get(part.scheme) for part in (here, there)]
    except ValueError:
        return False
    if here.hostname != there.hostname:
        return False
    if here.scheme == there.scheme:
        return ports[0] == ports[1]
    return (here.scheme, there.scheme) == ("http", "https")
