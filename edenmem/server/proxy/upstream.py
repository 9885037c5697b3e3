"""The endpoint that chats are forwarded to."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Sequence
from urllib.parse import urlsplit

import httpx
from starlette.exceptions import HTTPException

from edenmem.errors import ConfigError
from edenmem.settings.schema import Settings

_log = logging.getLogger(__name__)

_OPENAI = "https://api.openai.com/v1"
#: Address of Ollama: the default without any configuration.
OLLAMA = "http://localhost:11434/v1"

#: Name and value of a header, as they are sent.
Header = tuple[bytes, bytes]

#: Headers of a connection.
_HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
#: Headers of a request that are not forwarded.
_OURS = frozenset(
    {
        b"accept-encoding",
        b"authorization",
        b"content-encoding",
        b"content-length",
        b"cookie",
        b"expect",
        b"forwarded",
        b"host",
        b"origin",
        b"referer",
        b"x-forwarded-for",
        b"x-forwarded-host",
        b"x-forwarded-proto",
        b"x-real-ip",
    }
)
#: Headers of an answer that are not forwarded.
_NOT_RETURNED = frozenset({b"content-length", b"date", b"server", b"set-cookie", b"alt-svc"})


#: The last status that HTTP defines the meaning of; a server cannot pass others on.
_LAST_STATUS = 599


class UpstreamFailed(HTTPException):
    """The upstream gave no answer to pass on."""

    def __init__(self, detail: str, *, status: int = 502) -> None:
        super().__init__(status, detail)


class StreamBroken(Exception):
    """The upstream disconnected during an answer; the client's connection ends, too."""


def upstream_of(settings: Settings) -> tuple[str, str]:
    """Return the URL of the upstream without a slash at the end, and its key, or "".

    Raises:
        ConfigError: the URL is invalid.
    """
    server, llm = settings.server, settings.llm
    url, key = server.upstream_url, server.upstream_api_key
    if not url and (llm.base_url or llm.api_key):
        url, key = llm.base_url or _OPENAI, key or llm.api_key
    url = (url or OLLAMA).rstrip("/")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(
            f"invalid upstream URL: {url!r}",
            hint="use --upstream URL, or set server.upstream_url",
        )
    return url, key


class Upstream:
    """A client of the upstream.

    Args:
        settings: ``server.upstream_*``, or ``llm.base_url`` with its key.

    Raises:
        ConfigError: the URL is invalid.
    """

    def __init__(self, settings: Settings) -> None:
        server = settings.server
        url, self._key = upstream_of(settings)
        self.url = url
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
        headers: Sequence[Header],
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
            headers=self._request_headers(headers, pass_token=pass_token),
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

    def _request_headers(self, given: Sequence[Header], *, pass_token: bool) -> list[Header]:
        named = {
            each.strip().lower()
            for name, value in given
            if name.lower() == b"connection"
            for each in value.split(b",")
        }
        kept = [
            (name, value)
            for name, value in given
            if (lower := name.lower()) not in _HOP_BY_HOP | _OURS | named
            and not lower.startswith(b"x-edenmem-")
        ]
        if self._key:
            kept.append((b"authorization", f"Bearer {self._key}".encode("latin-1", "replace")))
        elif pass_token:
            kept += [each for each in given if each[0].lower() == b"authorization"]
        return [*kept, (b"accept-encoding", b"identity")]


def _log_failure(request: httpx.Request, cause: str) -> None:
    """Log the reason of a failure, without the content of the request."""
    _log.warning(
        "upstream %s failed: %s (use --upstream to change it)",
        request.url.netloc.decode("ascii", "replace"),
        cause,
    )


def response_headers(response: httpx.Response) -> list[Header]:
    """Return the headers of an answer for the client, with names in lower case."""
    found = [(name.lower(), value) for name, value in response.headers.raw]
    dropped = _HOP_BY_HOP | _NOT_RETURNED
    return [
        (name, value)
        for name, value in found
        if name not in dropped and not name.startswith(b"x-edenmem-")
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
