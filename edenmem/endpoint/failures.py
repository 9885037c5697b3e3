"""What the client library raises, as the errors of `edenmem.errors`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from edenmem.endpoint.waiting import retry_after
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
_SHORTEST_SECRET = 4  # "x", the key of many a local server, would be masked in every word


#: How endpoints say that a request is longer than the model's context. The tests name the sources.
_TOO_LONG = re.compile(
    r"context.{0,3}(?:length|size|window|limit)|string_above_max_length|request_too_large"
    r"|(?:prompt|inputs?|request|text|content|messages?) (?:is |are )?too (?:long|large|many)"
    r"|too (?:long|large) for|too many (?:input )?tokens|too large to process"
    r"|(?:maximum|max) (?:\w+ ){0,3}(?:length|tokens)|range of input length|model token limit"
    r"|(?:input|prompt)s?`? (?:length|tokens?|token count)\b.*\b(?:exceeds?|must)"
    r"|(?:max|exceed)\w*(?: \S+){0,6} tokens|reduce the length",
    re.IGNORECASE,
)
#: How they say that they do not take what a text is about, whatever the form of the request.
_NOT_ALLOWED = re.compile(
    r"content.{0,3}(?:filter|policy|management)|data_inspection|safety|moderation", re.IGNORECASE
)
#: How they say that a part of the length is what is kept for the answer.
_OF_OUTPUT = re.compile(
    r"in the completion|max_(?:completion_|new_|output_)?tokens\b", re.IGNORECASE
)
#: How they say that a model never writes that much, whatever it is asked.
_IS_OUTPUT_LIMIT = re.compile(
    r"max_(?:completion_)?tokens\b[^.]{0,60}\.? *"
    r"(?:this model supports at most|must be less than or equal to|the valid range of)"
    r"|maximum value for `?max_",
    re.IGNORECASE,
)
#: Statuses whose message may be about the length: some local servers say it as a failure of theirs.
_MAY_BE_TOO_LONG = frozenset({400, 422, 500})


class SettingNames(NamedTuple):
    """What messages call the settings of an endpoint.

    ``other_key`` is a variable that an empty ``api_key`` is taken from; ``ending`` is what such
    addresses often end in; ``shorter`` says how to send less.
    """

    base_url: str
    api_key: str
    timeout: str
    other_key: str = ""
    ending: str = "/v1"
    shorter: str = ""

    @classmethod
    def of_section(cls, section: str, shorter: str) -> SettingNames:
        """Those of an endpoint of OpenAI's form, in a table of its own."""
        return cls(
            base_url=f"{section}.base_url",
            api_key=f"{section}.api_key",
            timeout=f"{section}.timeout_seconds",
            other_key="OPENAI_API_KEY",
            shorter=shorter,
        )


class RedirectRefused(EdenmemError):
    """The server sent the request on to ``target``, which is another server."""

    def __init__(self, target: str) -> None:
        super().__init__(f"redirected to {target}")
        self.target = target


class BodyRefused(EdenmemError):
    """The body is too long, or packed in a way that was not offered."""


class RequestRejected(ProviderMisconfigured):
    """400 or 422: the endpoint does not take requests of this form. ``detail`` is all that it
    said, for a program to read and not to be shown."""

    def __init__(self, message: str, *, hint: str, detail: str) -> None:
        super().__init__(message, hint=hint)
        self.detail = detail


class OutputOverflow(ContextOverflow):
    """With the tokens that are kept for the answer the request is longer than the context."""


class Failure(NamedTuple):
    """An error, whether another try may work, the seconds that the endpoint asked to wait, and
    whether it may have done, and billed, the work all the same."""

    error: ProviderError
    passing: bool = False
    retry_after: float | None = None
    paid: bool = False


class Translator:
    """Makes a `Failure` of an exception, in words that name this endpoint and no secret."""

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
        return failure

    def _translate(self, error: Exception, *, model: str, model_setting: str) -> Failure | None:
        import openai

        # Some versions of the client pass on what its transport raised, others wrap it.
        match error.__cause__ if isinstance(error, openai.APIConnectionError) else error:
            case RedirectRefused() as redirect:
                target = self._safe(redirect.target)
                return Failure(
                    ProviderMisconfigured(
                        f"{self._host} redirects to another server: {target}",
                        hint=f"if that is right, set {self._names.base_url} to it: neither a key"
                        " nor a conversation is sent elsewhere",
                    )
                )
            case BodyRefused() as refused:
                return Failure(
                    ProviderAnswerInvalid(
                        f"{self._host} gave no answer that can be read: {refused.message}",
                        hint=f"check {self._names.base_url}",
                    ),
                    paid=True,
                )
        match error:
            case TimeoutError() | openai.APITimeoutError():
                return Failure(
                    ProviderTimeout(
                        f"{self._host} did not answer within {self._timeout:g} s",
                        hint=f"{self._names.timeout} sets the limit",
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
                        f"{self._host} could not be reached, or broke off: {why}",
                        hint=f"check {self._names.base_url} and the network",
                    ),
                    passing=True,
                    paid=not _was_never_sent(error.__cause__),
                )
            # Deep nesting, numbers of thousands of digits and invalid UTF-8 are no JSON either.
            case ValueError() | RecursionError() | openai.APIResponseValidationError():
                return Failure(
                    ProviderAnswerInvalid(
                        f"{self._host} answered with something that is not JSON",
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
                    f"the request is longer than what {model!r} takes: {said}",
                    hint=f"{self._names.shorter}, or give the model a larger context (Ollama:"
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
        if error.status_code == 429:  # one request above the limit of a minute never passes
            return "request too large" in said.lower()
        return error.status_code in _MAY_BE_TOO_LONG and bool(_TOO_LONG.search(said))

    def _safe(self, text: str) -> str:
        """``text`` from outside, fit for one line of a terminal, without keys and passwords."""
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
    """Whether the connection failed before the request was on its way."""
    names = {kind.__name__ for kind in type(cause).__mro__}
    return not names.isdisjoint({"ConnectError", "ConnectTimeout", "UnsupportedProtocol"})
