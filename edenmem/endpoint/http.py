"""The HTTP client of endpoints, which does not trust the server.

Answers have a size limit after decompression: a gzip stream of a megabyte can expand to a gigabyte.
Redirects are not followed, because requests carry keys and conversations. Only headers that the
client uses are kept.
"""

from __future__ import annotations

from typing import Any

from openai import DefaultAsyncHttpxClient

from edenmem.endpoint.failures import BodyRefused, RedirectRefused


class GuardedClient(DefaultAsyncHttpxClient):
    """An HTTP client with a limit of ``max_bytes`` for an uncompressed body."""

    def __init__(self, *, max_bytes: int) -> None:
        super().__init__(headers={"Accept-Encoding": "gzip"}, follow_redirects=False)
        self._max_bytes = max_bytes

    async def send(self, request: Any, **options: Any) -> Any:
        """Send a request, and read the whole answer.

        Raises:
            RedirectRefused: the answer is a redirect.
            BodyRefused: the body is too large or cannot be decompressed.
        """
        response = await super().send(request, **{**options, "stream": True})
        content = bytearray()
        try:
            if response.has_redirect_location:
                raise RedirectRefused(response.headers["Location"])
            async for chunk in response.aiter_bytes():
                content += chunk
                if len(content) > self._max_bytes:
                    raise BodyRefused(f"the answer has more than {self._max_bytes:,} bytes")
        except Exception as error:
            if type(error).__name__ != "DecodingError":  # of the client's own HTTP library
                raise
            raise BodyRefused(f"the answer cannot be decompressed: {error}") from error
        finally:
            await response.aclose()
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
            request=request,
        )
