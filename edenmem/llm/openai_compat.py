"""A language model behind an OpenAI-compatible endpoint.

Endpoints differ: some know the output limit only by its old name, others by its new one;
reasoning models reject a temperature; not all support a JSON schema. After a rejection, a
parameter is replaced or omitted in all later requests to the model (see `Dialect`).
"""

from __future__ import annotations

import asyncio
import re
import warnings
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from edenmem.endpoint.budget import Budget, Charge
from edenmem.endpoint.client import Endpoint, estimate_tokens, field
from edenmem.endpoint.failures import OutputOverflow, RequestRejected, SettingNames
from edenmem.errors import (
    ConfigError,
    EdenmemWarning,
    ProviderAnswerInvalid,
    ProviderError,
    ProviderTimeout,
)
from edenmem.llm.protocol import AnswerT, LLMAnswer, LLMRequest
from edenmem.llm.structured import (
    InvalidAnswer,
    answer_schema,
    parse_answer,
    schema_instruction,
    schema_name,
)
from edenmem.models.formation import CallUsage, is_count
from edenmem.text import clean, one_line

if TYPE_CHECKING:
    from edenmem.settings.schema import LLMSettings

#: Output limit in tokens by task (see `edenmem.llm.protocol`). It stops a model that repeats
#: itself, and leaves room for the reasoning before an answer.
OUTPUT_TOKENS = {
    "facts": 16_000,
    "dedup": 16_000,
    "reflections": 16_000,
    "single": 24_000,
    "verify": 16_000,
    "consolidate": 12_000,
    "shorten": 8_000,
    "recall": 2_000,
    "propagate": 8_000,
    "forget": 12_000,
    "doctor": 2_000,
}
DEFAULT_OUTPUT_TOKENS = 16_000

_LIMIT_NAMES = ("max_completion_tokens", "max_tokens")
_ABOUT_FORMAT = re.compile(r"response.?format|json|schema|grammar|structured|guided", re.IGNORECASE)
_MOST = re.compile(
    r"(?:at most|less than or equal to|<=|range of `?max_tokens`? is \[\d+,)\s*`?(\d[\d,]*)",
    re.IGNORECASE,
)


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters that one model supports.

    Attributes:
        limit: Name of the output limit; "" if the model rejected both names.
        refused: Rejected names of the output limit.
        most_output: Largest output limit that the model supports (0: unknown).
        temperature: Whether the model supports a temperature.
        format: Form of structured output.
    """

    limit: str = "max_tokens"
    refused: tuple[str, ...] = ()
    most_output: int = 0
    temperature: bool = True
    format: Literal["json_schema", "json_object", "text"] = "json_schema"

    def output_limit(self, wanted: int) -> int:
        """Return the output limit to send (0: none)."""
        if not self.limit:
            return 0
        return min(wanted, self.most_output) if self.most_output else wanted

    def parameters(self, *, output: int, temperature: float) -> dict[str, Any]:
        """Return the parameters to send; ``output`` 0 means no output limit."""
        sent: dict[str, Any] = {}
        if limit := self.output_limit(output):
            sent[self.limit] = limit
        if self.temperature:
            sent["temperature"] = temperature
        return sent


def first_dialect(host: str) -> Dialect:
    """Return the dialect of a model that has not rejected anything yet.

    OpenAI needs the new name of the output limit. All other endpoints know the old name, and some
    ignore the new one silently.
    """
    is_openai = host.endswith(("openai.com", "openai.azure.com"))
    return Dialect(limit="max_completion_tokens" if is_openai else "max_tokens")


def next_dialect(dialect: Dialect, detail: str, sent: dict[str, Any]) -> Dialect | None:
    """Return the dialect to try after a rejection, or None if there is none left.

    Only parameters that were sent can be the reason: "use 'max_completion_tokens' instead" names
    the other one. A rejection without a name means the output format, the newest parameter.
    """
    if dialect.limit in sent and re.search(rf"\b{dialect.limit}\b", detail):
        most = _MOST.search(detail)
        if most and 0 < (number := int(most[1].replace(",", ""))) < sent[dialect.limit]:
            return msgspec.structs.replace(dialect, most_output=number)
        refused = (*dialect.refused, dialect.limit)
        other = next((name for name in _LIMIT_NAMES if name not in refused), "")
        return msgspec.structs.replace(dialect, limit=other, refused=refused, most_output=0)
    if "temperature" in sent and "temperature" in detail:
        return msgspec.structs.replace(dialect, temperature=False)
    if dialect.format == "json_schema":
        return msgspec.structs.replace(dialect, format="json_object")
    if dialect.format == "json_object" and _ABOUT_FORMAT.search(detail):
        return msgspec.structs.replace(dialect, format="text")
    return None


Message = dict[str, str]

_EXPECTED_OUTPUT_TOKENS = 500
_QUOTED_CHARACTERS = 4_000
#: A count below this share of our estimate means that the prompt was cut; short prompts never are.
_CUT_SHARE = 0.5
_LEAST_CUT = 1_000


class OpenAILLM:
    """An `edenmem.llm.protocol.LLM`.

    It retries once with the reason after an invalid answer, and with twice the output limit after
    an answer that was cut. It omits parameters that a model rejected (see `Dialect`);
    without support for a JSON schema, the schema is part of the prompt.

    Args:
        settings: Endpoint, models and limits.
        budget: Budget shared with other calls of the run (None: a new one).
    """

    is_scripted = False

    def __init__(
        self,
        settings: LLMSettings,
        *,
        budget: Budget | None = None,
    ) -> None:
        self._settings = settings
        self._endpoint = Endpoint(
            names=SettingNames.of_section(
                "llm",
                shorter="lower formation.max_characters or formation.max_messages",
                inherited=settings.inherited,
            ),
            base_url=settings.base_url,
            api_key=settings.api_key,
            timeout=settings.timeout_seconds,
            retries=settings.retries,
        )
        self._slots = asyncio.Semaphore(settings.concurrency)
        self.budget = budget or Budget(max_tokens=settings.max_tokens, max_cost=settings.max_cost)
        self._dialects: dict[str, Dialect] = {}
        self._has_warned = False

    @property
    def description(self) -> str:
        """Return the host of the endpoint."""
        return self._endpoint.host

    async def ask(self, request: LLMRequest[AnswerT]) -> LLMAnswer[AnswerT]:
        """Return the validated answer; a `ProviderError` has the ``usage`` of the calls."""
        if self.budget.limits_cost and request.model not in self._settings.prices:
            raise ConfigError(
                f"llm.max_cost is set, but llm.prices has no price for {request.model!r}",
                hint=f'add "{request.model}" = [INPUT, OUTPUT], in US dollars per million tokens',
            )
        usage = request.spent
        try:
            async with asyncio.timeout(request.timeout):
                value = await self._value(request, usage)
        except ProviderError as error:
            error.usage = tuple(usage)
            raise
        except TimeoutError:
            late = ProviderTimeout(
                f"{self._endpoint.host} did not answer {_about(request)} within"
                f" {request.timeout:.3g} s"
            )
            late.usage = tuple(usage)
            raise late from None
        return LLMAnswer(value=value, usage=tuple(usage))

    async def close(self) -> None:
        """Close connections."""
        await self._endpoint.close()

    async def _value(self, request: LLMRequest[AnswerT], usage: list[CallUsage]) -> AnswerT:
        messages = [
            {"role": "system", "content": clean(request.system)},
            {"role": "user", "content": clean(request.user)},
        ]
        text = await self._text(request, messages, usage)
        try:
            return parse_answer(text, request.answer)
        except InvalidAnswer as problem:
            corrected = messages + _correction(text, problem, request)
        try:
            return parse_answer(await self._text(request, corrected, usage), request.answer)
        except InvalidAnswer as problem:
            raise ProviderAnswerInvalid(
                f"{request.model} gave two invalid answers to {_about(request)}:"
                f" {one_line(str(problem), 300)}"
            ) from None

    async def _text(
        self, request: LLMRequest[Any], messages: list[Message], usage: list[CallUsage]
    ) -> str:
        """Return the text of an answer, and add its cost to ``usage`` and to the budget."""
        fixed = self._settings.max_output_tokens
        limit = fixed or OUTPUT_TOKENS.get(request.task, DEFAULT_OUTPUT_TOKENS)
        completion = await self._complete(request, messages, usage, limit)
        was_cut = field(completion, "choices", "finish_reason") == "length"
        if was_cut and not fixed and self._has_more_room(request, limit, usage[-1]):
            completion = await self._complete(request, messages, usage, 2 * limit)
        return _content(completion, request, self._endpoint)

    def _has_more_room(self, request: LLMRequest[Any], limit: int, spent: CallUsage) -> bool:
        """Return whether our output limit cut the answer and can be raised."""
        dialect = self._dialect(request.model)
        sent = dialect.output_limit(limit)
        reached = spent.estimated or spent.output_tokens >= sent
        return bool(sent) and reached and dialect.output_limit(2 * limit) > sent

    async def _complete(
        self,
        request: LLMRequest[Any],
        messages: list[Message],
        usage: list[CallUsage],
        limit: int,
    ) -> object:
        """Return one answer, within concurrency limit and budget."""
        expected = sum(estimate_tokens(message["content"]) for message in messages)
        output = min(_EXPECTED_OUTPUT_TOKENS, limit)
        estimate = self._usage(request, expected, output, estimated=True)
        async with self._slots:
            with self.budget.call(tokens=expected + output, cost=estimate.cost or 0.0) as charge:
                try:
                    completion = await self._send_understood(request, messages, limit, charge)
                finally:
                    usage += [estimate] * charge.lost
                spent = self._read_usage(request, completion, expected)
                charge.tokens = spent.input_tokens + spent.output_tokens
                charge.cost = spent.cost or 0.0
        usage.append(spent)
        if not spent.estimated:
            self._warn_if_cut(request.model, spent.input_tokens, expected)
        return completion

    async def _send_understood(
        self, request: LLMRequest[Any], messages: list[Message], limit: int, charge: Charge
    ) -> object:
        """Send a request without the parameters that the model rejects, and remember them."""
        first: RequestRejected | None = None
        dialect: Dialect | None = self._dialect(request.model)
        while dialect is not None:
            sent = dialect.parameters(output=limit, temperature=self._settings.temperature)
            try:
                try:
                    completion = await self._send(request, messages, dialect, sent, charge)
                except OutputOverflow:
                    if dialect.limit not in sent:
                        raise
                    # Without an output limit, the answer gets the rest of the context.
                    del sent[dialect.limit]
                    completion = await self._send(request, messages, dialect, sent, charge)
            except RequestRejected as rejected:
                first = first or rejected
                dialect = next_dialect(dialect, rejected.detail, sent)
                continue
            self._dialects[request.model] = dialect
            return completion
        assert first is not None
        raise first

    async def _send(
        self,
        request: LLMRequest[Any],
        messages: list[Message],
        dialect: Dialect,
        parameters: dict[str, Any],
        charge: Charge,
    ) -> object:
        body: dict[str, Any] = {
            "model": request.model,
            "messages": messages
            if dialect.format == "json_schema"
            else _with_schema(request, messages),
            **parameters,
        }
        if dialect.format == "json_schema":
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {
                    "name": schema_name(request.answer),
                    "schema": answer_schema(request.answer),
                    "strict": True,
                },
            }
        elif dialect.format == "json_object":
            body["response_format"] = {"type": "json_object"}
        tiers = ("fast_model", "slow_model", "premium_model")
        named = [f"llm.{tier}" for tier in tiers if getattr(self._settings, tier) == request.model]
        return await self._endpoint.post(
            "/chat/completions",
            body,
            model=request.model,
            model_setting=", ".join(named) or "the scope's policy, which names this model",
            charge=charge,
            once=request.timeout is not None,
        )

    def _dialect(self, model: str) -> Dialect:
        return self._dialects.get(model) or first_dialect(self._endpoint.host)

    def _read_usage(self, request: LLMRequest[Any], completion: object, expected: int) -> CallUsage:
        """Return the tokens that the endpoint counted, or an estimate."""
        read = field(completion, "usage", "prompt_tokens")
        written = field(completion, "usage", "completion_tokens")
        # The count of a prompt with text is never 0.
        if is_count(read) and is_count(written) and (read or not expected):
            return self._usage(request, read, written)
        text = field(completion, "choices", "message", "content")
        said = estimate_tokens(text) if isinstance(text, str) else 0
        return self._usage(request, expected, said, estimated=True)

    def _usage(
        self,
        request: LLMRequest[Any],
        input_tokens: int,
        output_tokens: int,
        *,
        estimated: bool = False,
    ) -> CallUsage:
        price = self._settings.prices.get(request.model)
        return CallUsage(
            task=request.task,
            model=request.model,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            cost=None
            if price is None
            else (input_tokens * price[0] + output_tokens * price[1]) / 1_000_000,
            estimated=estimated,
        )

    def _warn_if_cut(self, model: str, counted: int, expected: int) -> None:
        """Warn once if the endpoint read only a part of a prompt, as Ollama does silently."""
        if self._has_warned or not _LEAST_CUT <= counted < expected * _CUT_SHARE:
            return
        self._has_warned = True
        warnings.warn(
            f"{self._endpoint.host} counted {counted:,} tokens of a prompt of about"
            f" {expected:,}: {model!r} may have read only a part of it. Ollama cuts prompts to"
            " num_ctx without an error; raise it (OLLAMA_CONTEXT_LENGTH, or PARAMETER num_ctx in"
            " a Modelfile)",
            EdenmemWarning,
            stacklevel=2,
        )


def _with_schema(request: LLMRequest[Any], messages: list[Message]) -> list[Message]:
    system, *others = messages
    told = f"{system['content']}\n\n{schema_instruction(request.answer)}"
    return [{"role": "system", "content": told}, *others]


def _correction(text: str, problem: InvalidAnswer, request: LLMRequest[Any]) -> list[Message]:
    # Some endpoints reject empty messages, so an empty answer is not quoted.
    quoted = (
        [{"role": "assistant", "content": clean(text[:_QUOTED_CHARACTERS])}] if text.strip() else []
    )
    said = f"That is not a valid answer: {problem}\n\n{schema_instruction(request.answer)}"
    return [*quoted, {"role": "user", "content": said}]


def _content(completion: object, request: LLMRequest[Any], endpoint: Endpoint) -> str:
    """Return the text of an answer, or "" if it has none.

    Raises:
        ProviderAnswerInvalid: the model refused, or the answer was filtered or cut; a retry would
            not help.
    """
    message = field(completion, "choices", "message")
    if not isinstance(message, dict):
        # OpenRouter and others report failures of a model with status 200.
        failed = field(completion, "error") or field(completion, "choices", "error")
        why = f": {one_line(str(failed), 300)}" if failed else ""
        raise ProviderAnswerInvalid(
            f"{endpoint.host} answered {_about(request)} with an invalid chat completion{why}",
            hint=endpoint.names.with_origin("check llm.base_url; it often ends in /v1"),
        )
    reason = field(completion, "choices", "finish_reason")
    if refusal := message.get("refusal"):
        raise ProviderAnswerInvalid(
            f"{request.model} refused {_about(request)}: {one_line(str(refusal), 300)}"
        )
    if reason == "content_filter":
        raise ProviderAnswerInvalid(
            f"the content filter of {endpoint.host} stopped the answer to {_about(request)}"
        )
    if reason == "length":
        raise ProviderAnswerInvalid(
            f"the answer of {request.model} to {_about(request)} was cut off: it is too long",
            hint="raise llm.max_output_tokens or the model's context, use a model with a larger"
            " output limit, or lower formation.max_messages",
        )
    content = message.get("content")
    return content if isinstance(content, str) else ""


def _about(request: LLMRequest[Any]) -> str:
    return f"task {request.task!r} of {one_line(request.key, 100)}"
