"""The client of an endpoint: address, key, time limit and retries."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from edenmem.endpoint.failures import SettingNames, Translator, backoff
from edenmem.errors import BudgetExceeded, ConfigError
from edenmem.observation import observed
from edenmem.settings.paths import redact_uri

if TYPE_CHECKING:
    from openai import AsyncOpenAI

#: For most languages and tokenizers; slightly less for JSON and for scripts without spaces.
_BYTES_PER_TOKEN = 4


def estimate_tokens(text: str) -> int:
    """Estimate the number of tokens in a text."""
    return len(text.encode("utf-8", "replace")) // _BYTES_PER_TOKEN


class Charge:
    """The cost of one call, set while the call is in progress.

    ``lost`` is the number of failed attempts that may have been billed: an endpoint may finish a
    request after the client has disconnected. Each counts with the estimated cost.
    """

    def __init__(self, budget: Budget, tokens: int, cost: float) -> None:
        self.tokens = 0
        self.cost = 0.0
        self.lost = 0
        self._budget = budget
        self._expected = tokens, cost

    def lose(self) -> None:
        """Count a failed attempt with its estimated cost."""
        self.lost += 1
        tokens, cost = self._expected
        self._budget.tokens += tokens
        self._budget.cost += cost

    def check(self) -> None:
        """Check that the limit allows another attempt.

        Raises:
            BudgetExceeded: the limit is reached.
        """
        self._budget.check(*self._expected)


class Budget:
    """Tokens and US dollars spent, with their limits (0 = no limit).

    Calls in progress count with their estimates, so that concurrent calls stay within the limit.
    """

    def __init__(self, *, max_tokens: int = 0, max_cost: float = 0.0) -> None:
        self._max_tokens = max_tokens
        self._max_cost = max_cost
        self._open_tokens = 0
        self._open_cost = 0.0
        self.tokens = 0
        self.cost = 0.0

    @property
    def limits_cost(self) -> bool:
        """Return whether there is a cost limit, which needs prices."""
        return self._max_cost > 0

    @contextmanager
    def call(self, *, tokens: int, cost: float) -> Iterator[Charge]:
        """Count a call with its estimated cost until it is finished.

        Raises:
            BudgetExceeded: the limit is reached.
        """
        self.check()
        charge = Charge(self, tokens, cost)
        self._open_tokens += tokens
        self._open_cost += cost
        try:
            yield charge
        finally:
            self._open_tokens -= tokens
            self._open_cost -= cost
            self.tokens += charge.tokens
            self.cost += charge.cost

    def check(self, own_tokens: int = 0, own_cost: float = 0.0) -> None:
        """Check that the limit is not reached, not counting the caller's own estimate.

        Raises:
            BudgetExceeded: the limit is reached.
        """
        open_tokens = self._open_tokens - own_tokens
        open_cost = self._open_cost - own_cost
        if self._max_tokens and self.tokens + open_tokens >= self._max_tokens:
            raise BudgetExceeded(
                f"token limit of the run reached: {self._max_tokens:,}"
                f" ({self.tokens:,} spent, about {open_tokens:,} in progress)",
                hint="raise llm.max_tokens, or continue with another run",
            )
        if self._max_cost and self.cost + open_cost >= self._max_cost:
            raise BudgetExceeded(
                f"cost limit of the run reached: ${self._max_cost:,.2f}"
                f" (${self.cost:,.4f} spent, about ${open_cost:,.4f} in progress)",
                hint="raise llm.max_cost, or continue with another run",
            )


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
        sleep: Replacement for tests.
        uniform: Replacement for tests.
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
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self.names = names
        self._base_url = base_url or OPENAI_URL
        self._api_key = _usable_key(api_key, names)
        self.host = _host(self._base_url, names)
        self._timeout = timeout
        self._retries = retries
        self._max_bytes = max_bytes
        self._sleep = sleep
        self._uniform = uniform
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
                wait = backoff(tried, failure.retry_after, self._uniform)
            charge.check()
            await self._sleep(wait)
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
