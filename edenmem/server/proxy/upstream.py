"""The endpoint that chats are forwarded to. What passes is changed as little as can be."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable
from urllib.parse import urlsplit

import httpx
from starlette.exceptions import HTTPException

from edenmem.errors import ConfigError
from edenmem.settings.schema import Settings

_log = logging.getLogger(__name__)

_OPENAI = "https://api.openai.com/v1"
#: Where Ollama listens; taken where nothing at all is configured.
OLLAMA = "http://localhost:11434/v1"

#: Headers of one connection, and what we set ourselves.
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
#: Headers of a request that are for this server alone.
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
#: Headers of an answer that are of the upstream's connection or site.
_NOT_RETURNED = frozenset({"content-length", "date", "server", "set-cookie", "alt-svc"})


class UpstreamFailed(HTTPException):
    """The upstream gave no answer that could be passed on."""

    def __init__(self, detail: str, *, status: int = 502) -> None:
        super().__init__(status, detail)


class StreamBroken(Exception):
    """The upstream broke off in the middle of an answer; the client's connection ends as well."""


class Upstream:
    """A client of the upstream.

    Args:
        settings: ``server.upstream_*``, or else ``llm.base_url`` and its key.

    Raises:
        ConfigError: the address is none.
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
                hint="give --upstream URL, or set server.upstream_url",
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
        """Send a request; return the answer as soon as its headers are there.

        Args:
            method: Of the request.
            path: Below the upstream's URL.
            headers: Those of the client's request.
            content: The body.
            pass_token: Whether the client's bearer token may be passed on, if no key is set.

        Raises:
            UpstreamFailed: there is no answer, or one from which nothing may be taken; or the
                path leads elsewhere.
        """
        url = httpx.URL(self.url + path)
        if url.raw_path != self._base + path.encode():  # as after the steps of a ".."
            raise UpstreamFailed("invalid path", status=404)
        request = httpx.Request(
            method,
            url,
            headers=self._request_headers(list(headers), pass_token=pass_token),
            content=content,
        )
        try:
            response = await self._client.send(request, stream=True)
        except httpx.TimeoutException as error:
            _log_failure(request, type(error).__name__)
            raise UpstreamFailed("the upstream did not answer in time", status=504) from error
        except httpx.HTTPError as error:
            _log_failure(request, type(error).__name__)
            what = "cannot be reached" if isinstance(error, httpx.ConnectError) else "broke off"
            raise UpstreamFailed(f"the upstream {what}") from error
        if response.is_redirect:
            _log_failure(request, "it redirects")
            await response.aclose()
            raise UpstreamFailed("the upstream redirects, and redirects are not followed")
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
    """Log why there is no answer; not what was asked."""
    _log.warning(
        "the upstream %s failed: %s; if the address is wrong, give another with --upstream",
        request.url.netloc.decode("ascii", "replace"),
        cause,
    )


def response_headers(response: httpx.Response) -> list[tuple[str, str]]:
    """Return the headers of an answer that go to the client."""
    dropped = _HOP_BY_HOP | _NOT_RETURNED
    return [
        (name.decode("latin-1"), value.decode("latin-1"))
        for name, value in response.headers.raw
        if name.decode("latin-1").lower() not in dropped
        and not name.lower().startswith(b"x-edenmem-")
    ]


async def chunks(response: httpx.Response) -> AsyncIterator[bytes]:
    """Yield the bytes of an answer as they come.

    Raises:
        StreamBroken: the upstream broke off.
    """
    try:
        async for chunk in response.aiter_raw():
            yield chunk
    except httpx.TimeoutException as error:
        _log_failure(response.request, type(error).__name__)
        raise StreamBroken("the upstream fell silent") from error
    except httpx.HTTPError as error:
        _log_failure(response.request, type(error).__name__)
        raise StreamBroken("the upstream broke off") from error
    finally:
        await response.aclose()
