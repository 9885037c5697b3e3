"""The endpoint that chats are forwarded to."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Iterable
from urllib.parse import urlsplit

import httpx
from starlette.exceptions import HTTPException

from edenmem.errors import ConfigError
from edenmem.settings.schema import Settings

_log = logging.getLogger(__name__)

_OPENAI = "https://api.openai.com/v1"
#: Address of Ollama: the default without any configuration.
OLLAMA = "http://localhost:11434/v1"

#: Headers of a connection.
_HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
#: Headers of a request that are not forwarded.
_OURS = frozenset(
    {
        "accept-encoding",
        "authorization",
        "content-encoding",
        "content-length",
        "cookie",
        "expect",
        "forwarded",
        "host",
        "origin",
        "referer",
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-proto",
        "x-real-ip",
    }
)
#: Headers of an answer that are not forwarded.
_NOT_RETURNED = frozenset({"content-length", "date", "server", "set-cookie", "alt-svc"})


#: The last status that HTTP defines the meaning of; a server cannot pass others on.
_LAST_STATUS = 599


class UpstreamFailed(HTTPException):
    """The upstream gave no answer to pass on."""

    def __init__(self, detail: str, *, status: int = 502) -> None:
        super().__init__(status, detail)


class StreamBroken(Exception):
    """The upstream disconnected during an answer; the client's connection ends, too."""


class Upstream:
    """A client of the upstream.

    Args:
        settings: ``server.upstream_*``, or ``llm.base_url`` with its key.

    Raises:
        ConfigError: the URL is invalid.
    """

    def __init__(self, settings: Settings) -> None:
        server, llm = settings.server, settings.llm
        self._key = server.upstream_api_key
        if server.upstream_url:
            url = server.upstream_url
        elif llm.base_url or llm.api_key:
            url, self._key = llm.base_url or _OPENAI, self._key or llm.api_key
        else:
            url = OLLAMA
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(
                f"invalid upstream URL: {url!r}",
                hint="use --upstream URL, or set server.upstream_url",
            )
        self.url = url.rstrip("/")
        self._base = httpx.URL(self.url).raw_path.rstrip(b"/")
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=200)
        timeout = httpx.Timeout(server.upstream_timeout_seconds, connect=10.0)
        self._client = httpx.AsyncClient(
            limits=limits, timeout=timeout, follow_redirects=False, trust_env=False
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def send(
        self,
        method: str,
        path: str,
        headers: Iterable[tuple[str, str]],
        content: bytes = b"",
        *,
        pass_token: bool,
    ) -> httpx.Response:
        """Send a request, and return the answer once its headers have arrived.

        Args:
            method: Method of the request.
            path: Path below the upstream's URL.
            headers: Headers of the client's request.
            content: The body.
            pass_token: Whether to forward the client's bearer token if no key is set.

        Raises:
            UpstreamFailed: no answer, a redirect, an unknown status, or an invalid path.
        """
        url = httpx.URL(self.url + path)
        if url.raw_path != self._base + path.encode():  # e.g. after ".."
            raise UpstreamFailed("invalid path", status=404)
        request = httpx.Request(
            method,
            url,
            headers=[  # as bytes: httpx accepts only ASCII in text
                (name.encode("latin-1"), value.encode("latin-1", "replace"))
                for name, value in self._request_headers(list(headers), pass_token=pass_token)
            ],
            content=content,
        )
        try:
            response = await self._client.send(request, stream=True)
        except httpx.TimeoutException as error:
            _log_failure(request, type(error).__name__)
            raise UpstreamFailed("the upstream did not answer in time", status=504) from error
        except httpx.HTTPError as error:
            _log_failure(request, type(error).__name__)
            is_unreachable = isinstance(error, httpx.ConnectError)
            what = "is unreachable" if is_unreachable else "closed the connection"
            raise UpstreamFailed(f"the upstream {what}") from error
        if response.status_code > _LAST_STATUS:
            _log_failure(request, f"status {response.status_code}")
            await response.aclose()
            raise UpstreamFailed("the upstream answered with an unknown status")
        if response.is_redirect:
            _log_failure(request, "redirect")
            await response.aclose()
            raise UpstreamFailed("the upstream redirects; redirects are not followed")
        return response

    def _request_headers(
        self, given: list[tuple[str, str]], *, pass_token: bool
    ) -> list[tuple[str, str]]:
        named = {
            each.strip().lower()
            for name, value in given
            if name.lower() == "connection"
            for each in value.split(",")
        }
        kept = [
            (name, value)
            for name, value in given
            if (lower := name.lower()) not in _HOP_BY_HOP | _OURS | named
            and not lower.startswith("x-edenmem-")
        ]
        if self._key:
            kept.append(("authorization", f"Bearer {self._key}"))
        elif pass_token:
            kept += [each for each in given if each[0].lower() == "authorization"]
        return [*kept, ("accept-encoding", "identity")]


def _log_failure(request: httpx.Request, cause: str) -> None:
    """Log the reason of a failure, without the content of the request."""
    _log.warning(
        "upstream %s failed: %s (use --upstream to change it)",
        request.url.netloc.decode("ascii", "replace"),
        cause,
    )


def response_headers(response: httpx.Response) -> list[tuple[str, str]]:
    """Return the headers of an answer for the client."""
    dropped = _HOP_BY_HOP | _NOT_RETURNED
    return [
        (name.decode("latin-1"), value.decode("latin-1"))
        for name, value in response.headers.raw
        if name.decode("latin-1").lower() not in dropped
        and not name.lower().startswith(b"x-edenmem-")
    ]


async def chunks(response: httpx.Response) -> AsyncGenerator[bytes]:
    """Yield the bytes of an answer as they arrive.

    Raises:
        StreamBroken: the upstream disconnected.
    """
    try:
        async for chunk in response.aiter_raw():
            yield chunk
    except httpx.TimeoutException as error:
        _log_failure(response.request, type(error).__name__)
        raise StreamBroken("the upstream timed out") from error
    except httpx.HTTPError as error:
        _log_failure(response.request, type(error).__name__)
        raise StreamBroken("the upstream disconnected") from error
    finally:
        await response.aclose()
