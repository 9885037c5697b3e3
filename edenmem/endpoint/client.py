"""The client of an endpoint: address, key, time limit and retries."""

from __future__ import annotations

import asyncio
from asyncio import sleep
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from edenmem.endpoint.budget import Charge
from edenmem.endpoint.failures import SettingNames, Translator, backoff
from edenmem.errors import ConfigError
from edenmem.observation import observed
from edenmem.settings.paths import redact_uri

if TYPE_CHECKING:
    from openai import AsyncOpenAI

#: For most languages and tokenizers; slightly less for JSON and for scripts without spaces.
_BYTES_PER_TOKEN = 4


def estimate_tokens(text: str) -> int:
    """Estimate the number of tokens in a text."""
    return len(text.encode("utf-8", "replace")) // _BYTES_PER_TOKEN


OPENAI_URL = "https://api.openai.com/v1"
#: Answers of models and rerankers have a few hundred kilobytes at most.
ANSWER_BYTES = 16 * 1024 * 1024
#: Local endpoints need no key, but the client does.
_NO_KEY = "none"


class Endpoint:
    """An OpenAI-compatible endpoint; the first `post` imports the client and connects.

    Args:
        names: Names of the settings, for messages.
        base_url: Address (default: OpenAI).
        api_key: Key.
        timeout: Time limit of each attempt in seconds.
        retries: Maximum number of retries.
        max_bytes: Maximum size of an uncompressed answer.
    """

    def __init__(
        self,
        *,
        names: SettingNames,
        base_url: str,
        api_key: str,
        timeout: float,
        retries: int,
        max_bytes: int = ANSWER_BYTES,
    ) -> None:
        self.names = names
        self._base_url = base_url or OPENAI_URL
        self._api_key = _usable_key(api_key, names)
        self.host = _host(self._base_url, names)
        self._timeout = timeout
        self._retries = retries
        self._max_bytes = max_bytes
        self._translate = Translator(
            names=names, host=self.host, timeout=timeout, secret=self._api_key
        )
        self._client: AsyncOpenAI | None = None

    @observed(
        "provider",
        before=lambda given: {"model": given["model"]},
        after=lambda answer: _tokens(answer),
    )
    async def post(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        model: str,
        model_setting: str,
        charge: Charge,
        once: bool = False,
    ) -> object:
        """Send a request, with retries, and return the JSON of the answer, not validated.

        Args:
            path: Path below the base URL.
            body: Body of the request.
            model: Name of the model, for messages.
            model_setting: Name of the setting of the model, for hints.
            charge: Counts failed and cancelled attempts that may have been billed.
            once: Do not retry.

        Raises:
            ProviderError: a subclass.
        """
        client = self._connect()
        retries = 0 if once else self._retries
        for tried in range(retries + 1):
            try:
                async with asyncio.timeout(self._timeout):
                    answer: object = await client.post(path, cast_to=object, body=body)
                    return answer
            except asyncio.CancelledError:
                charge.lose()
                raise
            except Exception as error:
                failure = self._translate(error, model=model, model_setting=model_setting)
                if failure is None:
                    raise  # a defect of edenmem
                if failure.paid:
                    charge.lose()
                if not failure.passing or tried == retries:
                    # The cause may quote the key.
                    raise failure.error from None
                wait = backoff(tried, failure.retry_after)
            charge.check()
            await sleep(wait)
        raise AssertionError("unreachable: the last try returns or raises")

    async def close(self) -> None:
        """Close connections."""
        if self._client is not None:
            client, self._client = self._client, None
            await client.close()

    def _connect(self) -> AsyncOpenAI:
        if self._client is None:
            from openai import AsyncOpenAI

            from edenmem.endpoint.http import GuardedClient

            self._client = AsyncOpenAI(
                base_url=self._base_url,
                api_key=self._api_key or _NO_KEY,
                timeout=self._timeout,
                max_retries=0,
                http_client=GuardedClient(max_bytes=self._max_bytes),
            )
        return self._client


def field(value: object, *path: str) -> Any:
    """Return the value at a path of an answer, or None; lists stand for their first item."""
    for name in path:
        if isinstance(value, list):
            value = value[0] if value else None
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _tokens(answer: object) -> dict[str, int]:
    """Return the token counts of an answer, for the log."""
    counts = {
        "input_tokens": field(answer, "usage", "prompt_tokens"),
        "output_tokens": field(answer, "usage", "completion_tokens"),
    }
    return {name: count for name, count in counts.items() if isinstance(count, int)}


def _usable_key(key: str, names: SettingNames) -> str:
    key = key.strip()
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigError(f"{names.api_key} has an invalid character")
    return key


def _host(url: str, names: SettingNames) -> str:
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        parts, port = urlsplit(""), ""
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConfigError(
            f"invalid {names.base_url}: {redact_uri(url)!r}",
            hint=names.with_origin(f"use the form https://host{names.ending}"),
        )
    return parts.hostname + port
