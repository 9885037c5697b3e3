"""Translation of the client library's exceptions to `edenmem.errors`, and waiting for a retry."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from random import uniform
from typing import TYPE_CHECKING, NamedTuple

from edenmem.errors import (
    ContextOverflow,
    EdenmemError,
    ProviderAnswerInvalid,
    ProviderAuthError,
    ProviderError,
    ProviderMisconfigured,
    ProviderRateLimited,
    ProviderTimeout,
)
from edenmem.settings.paths import MASK, redact_uri
from edenmem.text import one_line

if TYPE_CHECKING:
    from openai import APIStatusError

_KEYLIKE = re.compile(r"\b(?:sk|pk|gsk|AIza)[-_A-Za-z0-9*.]{6,}|(?<=Bearer )\S+", re.IGNORECASE)
_SHOWN_CHARACTERS = 300
_READ_CHARACTERS = 10_000
_SHORTEST_SECRET = 4  # shorter keys, such as "x" for a local server, occur in words


#: Messages about requests that exceed the model's context. The tests name the sources.
_TOO_LONG = re.compile(
    r"context.{0,3}(?:length|size|window|limit)|string_above_max_length|request_too_large"
    r"|(?:prompt|inputs?|request|text|content|messages?) (?:is |are )?too (?:long|large|many)"
    r"|too (?:long|large) for|too many (?:input )?tokens|too large to process"
    r"|(?:maximum|max) (?:\w+ ){0,3}(?:length|tokens)|range of input length|model token limit"
    r"|(?:input|prompt)s?`? (?:length|tokens?|token count)\b.*\b(?:exceeds?|must)"
    r"|(?:max|exceed)\w*(?: \S+){0,6} tokens|reduce the length",
    re.IGNORECASE,
)
#: Messages about forbidden content.
_NOT_ALLOWED = re.compile(
    r"content.{0,3}(?:filter|policy|management)|data_inspection|safety|moderation", re.IGNORECASE
)
#: Messages that count the output limit as a part of the length.
_OF_OUTPUT = re.compile(
    r"in the completion|max_(?:completion_|new_|output_)?tokens\b", re.IGNORECASE
)
#: Messages about an output limit above the maximum of the model.
_IS_OUTPUT_LIMIT = re.compile(
    r"max_(?:completion_)?tokens\b[^.]{0,60}\.? *"
    r"(?:this model supports at most|must be less than or equal to|the valid range of)"
    r"|maximum value for `?max_",
    re.IGNORECASE,
)
#: Statuses with messages about the length; some local servers use 500.
_MAY_BE_TOO_LONG = frozenset({400, 422, 500})


class SettingNames(NamedTuple):
    """The names of an endpoint's settings, for messages.

    ``other_key`` is the environment variable for an empty ``api_key``, ``ending`` the usual end of
    such addresses, ``shorter`` a hint for shorter requests, and ``address_variable`` the variable
    that set the address, if one did.
    """

    base_url: str
    api_key: str
    timeout: str
    other_key: str = ""
    ending: str = "/v1"
    shorter: str = ""
    address_variable: str = ""

    @classmethod
    def of_section(
        cls, section: str, shorter: str, *, inherited: Collection[str] = ()
    ) -> SettingNames:
        """Return the names for an OpenAI-compatible endpoint with its own section.

        ``inherited`` names the settings of the section with values of OpenAI's variables.
        """
        return cls(
            base_url=f"{section}.base_url",
            api_key=f"{section}.api_key",
            timeout=f"{section}.timeout_seconds",
            other_key="OPENAI_API_KEY",
            shorter=shorter,
            address_variable="OPENAI_BASE_URL" if "base_url" in inherited else "",
        )

    def with_origin(self, hint: str | None) -> str | None:
        """Add the variable that set the address to a hint."""
        if not self.address_variable:
            return hint
        origin = f"the address is from {self.address_variable}"
        return f"{hint}; {origin}" if hint else origin


class RedirectRefused(EdenmemError):
    """The server redirected to ``target``."""

    def __init__(self, target: str) -> None:
        super().__init__(f"redirected to {target}")
        self.target = target


class BodyRefused(EdenmemError):
    """The body is too large, or has an unsupported encoding."""


class RequestRejected(ProviderMisconfigured):
    """The endpoint rejected the form of a request (400 or 422).

    ``detail`` is its complete message, for programs and not for display.
    """

    def __init__(self, message: str, *, hint: str, detail: str) -> None:
        super().__init__(message, hint=hint)
        self.detail = detail


class OutputOverflow(ContextOverflow):
    """The request and its output limit together exceed the model's context."""


class Failure(NamedTuple):
    """A failed attempt.

    Attributes:
        error: The error.
        passing: Whether a retry may succeed.
        retry_after: Seconds to wait, as requested by the endpoint.
        paid: Whether the attempt may have been billed.
    """

    error: ProviderError
    passing: bool = False
    retry_after: float | None = None
    paid: bool = False


class Translator:
    """Translate exceptions to a `Failure` with messages about this endpoint, without secrets."""

    def __init__(self, *, names: SettingNames, host: str, timeout: float, secret: str) -> None:
        self._names = names
        self._host = host
        self._timeout = timeout
        self._secret = secret

    def __call__(self, error: Exception, *, model: str, model_setting: str) -> Failure | None:
        """Return the failure, or None if the error is not an endpoint's."""
        failure = self._translate(error, model=model, model_setting=model_setting)
        if failure is not None:
            status = getattr(error, "status_code", None)
            failure.error.summary = (
                f"{self._host} answered {status}" if status else f"{self._host} failed"
            )
            failure.error.hint = self._names.with_origin(failure.error.hint)
        return failure

    def _translate(self, error: Exception, *, model: str, model_setting: str) -> Failure | None:
        import openai

        # Some versions of the client wrap the exceptions of its transport.
        match error.__cause__ if isinstance(error, openai.APIConnectionError) else error:
            case RedirectRefused() as redirect:
                target = self._safe(redirect.target)
                return Failure(
                    ProviderMisconfigured(
                        f"{self._host} redirects: {target}",
                        hint=f"if this is correct, set {self._names.base_url} to it: keys and"
                        " conversations do not follow redirects",
                    )
                )
            case BodyRefused() as refused:
                return Failure(
                    ProviderAnswerInvalid(
                        f"{self._host} sent an invalid answer: {refused.message}",
                        hint=f"check {self._names.base_url}",
                    ),
                    paid=True,
                )
        match error:
            case TimeoutError() | openai.APITimeoutError():
                return Failure(
                    ProviderTimeout(
                        f"{self._host} did not answer within {self._timeout:g} s",
                        hint=f"raise {self._names.timeout}",
                    ),
                    passing=True,
                    paid=True,
                )
            case openai.APIStatusError():
                return self._status(error, model, model_setting)
            case openai.APIConnectionError():
                why = self._safe(str(error.__cause__ or error))
                return Failure(
                    ProviderTimeout(
                        f"the connection to {self._host} failed: {why}",
                        hint=f"check {self._names.base_url} and the network",
                    ),
                    passing=True,
                    paid=not _was_never_sent(error.__cause__),
                )
            # Includes deep nesting, huge numbers and invalid UTF-8.
            case ValueError() | RecursionError() | openai.APIResponseValidationError():
                return Failure(
                    ProviderAnswerInvalid(
                        f"{self._host} sent invalid JSON",
                        hint=f"check {self._names.base_url}; it often ends in {self._names.ending}",
                    ),
                    passing=True,
                    paid=True,
                )
            case openai.OpenAIError():
                return Failure(ProviderError(f"{self._host}: {self._safe(str(error))}"))
        return None

    def _status(self, error: APIStatusError, model: str, model_setting: str) -> Failure:
        status = error.status_code
        code = str(error.code or "")
        said = f"{self._host} answered {status}: {self._safe(_message(error))}"
        if status in {401, 403} or code == "invalid_api_key":
            other = self._names.other_key
            otherwise = f", or {other} if it is empty" if other else ""
            return Failure(ProviderAuthError(said, hint=f"check {self._names.api_key}{otherwise}"))
        if status == 404 or code == "model_not_found":
            return Failure(
                ProviderMisconfigured(
                    f"{said} (model {model!r})",
                    hint=f"check {model_setting}, and {self._names.base_url}, which often ends"
                    f" in {self._names.ending}",
                )
            )
        if self._is_overflow(error, code):
            kind = OutputOverflow if _OF_OUTPUT.search(_message(error)) else ContextOverflow
            return Failure(
                kind(
                    f"the request exceeds the context of {model!r}: {said}",
                    hint=f"{self._names.shorter}, or enlarge the model's context (Ollama:"
                    " num_ctx; llama.cpp: --ctx-size; vLLM: --max-model-len)",
                )
            )
        if status == 429:
            empty = code == "insufficient_quota"
            limited = ProviderRateLimited(
                said,
                hint="the account has no credit left" if empty else "try again later",
            )
            return Failure(
                limited, passing=not empty, retry_after=retry_after(error.response.headers)
            )
        if status in {400, 422}:
            if _NOT_ALLOWED.search(f"{code} {_message(error)}"):
                return Failure(ProviderError(said))
            return Failure(
                RequestRejected(
                    said,
                    hint=f"check {model_setting} and {self._names.base_url}",
                    detail=f"{error.param or ''} {code} {_message(error)}"[:_READ_CHARACTERS],
                )
            )
        failed = ProviderError(said)
        failed.retryable = status in {408, 409} or status >= 500
        return Failure(
            failed, passing=failed.retryable, retry_after=retry_after(error.response.headers)
        )

    @staticmethod
    def _is_overflow(error: APIStatusError, code: str) -> bool:
        if error.status_code == 413:
            return True
        said = f"{code} {error.type or ''} {_message(error)}"[:_READ_CHARACTERS]
        if _IS_OUTPUT_LIMIT.search(said):
            return False
        if error.status_code == 429:  # a request above the limit per minute never passes
            return "request too large" in said.lower()
        return error.status_code in _MAY_BE_TOO_LONG and bool(_TOO_LONG.search(said))

    def _safe(self, text: str) -> str:
        """Return an external text as one line for a terminal, without keys and passwords."""
        if len(self._secret) >= _SHORTEST_SECRET:
            text = text.replace(self._secret, MASK)
        text = text[: 10 * _SHOWN_CHARACTERS]
        return one_line(_KEYLIKE.sub(MASK, redact_uri(text)), _SHOWN_CHARACTERS)


def _message(error: APIStatusError) -> str:
    body = error.body
    if isinstance(body, dict):
        body = body.get("message") or body.get("error") or body.get("detail") or body
    return str(body) if body else error.message


def _was_never_sent(cause: BaseException | None) -> bool:
    """Return whether the connection failed before the request was sent."""
    names = {kind.__name__ for kind in type(cause).__mro__}
    return not names.isdisjoint({"ConnectError", "ConnectTimeout", "UnsupportedProtocol"})


FIRST_SECONDS = 0.5
LONGEST_SECONDS = 30.0
LONGEST_ASKED_SECONDS = 60.0


def backoff(tried: int, retry_after: float | None) -> float:
    """Return the seconds to wait after attempt number ``tried`` (from 0) failed.

    Exponential with full jitter, so that workers that failed together retry at different times.
    At least the time that the endpoint requested, up to a minute.
    """
    jittered = uniform(0.0, min(LONGEST_SECONDS, FIRST_SECONDS * 2**tried))  # noqa: S311
    if retry_after is None:
        return jittered
    return min(retry_after, LONGEST_ASKED_SECONDS) + min(jittered, FIRST_SECONDS)


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Return the seconds in ``Retry-After`` (number or date), or None without the header."""
    milliseconds = _number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    text = headers.get("retry-after", "").strip()
    seconds = _number(text)
    if seconds is not None or not text:
        return seconds
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - (now or datetime.now(UTC))).total_seconds())


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None
