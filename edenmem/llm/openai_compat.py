"""A language model behind an OpenAI-compatible endpoint."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from edenmem.endpoint.budget import Budget
from edenmem.endpoint.client import Endpoint
from edenmem.endpoint.failures import RequestRejected, SettingNames
from edenmem.errors import ConfigError, ProviderAnswerInvalid, ProviderError
from edenmem.llm.protocol import AnswerT, LLMAnswer, LLMRequest
from edenmem.llm.structured import (
    InvalidAnswer,
    answer_schema,
    parse_answer,
    schema_instruction,
    schema_name,
)
from edenmem.models.formation import CallUsage
from edenmem.text import clean, one_line

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletion

    from edenmem.settings.schema import LLMSettings

Message = dict[str, str]

_CHARACTERS_PER_TOKEN = 4
_EXPECTED_OUTPUT_TOKENS = 500
_QUOTED_CHARACTERS = 4_000


class OpenAILLM:
    """An `edenmem.llm.protocol.LLM`.

    An answer that does not validate is asked for once more with the reason. An endpoint that
    rejects a JSON schema is asked for plain JSON, with the schema in the prompt, from then on.
    ``budget`` is shared with whatever else the run pays for; None: one of its own.
    """

    is_scripted = False

    def __init__(
        self,
        settings: LLMSettings,
        *,
        budget: Budget | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._settings = settings
        self._endpoint = Endpoint(
            names=SettingNames.of_section(
                "llm", shorter="lower formation.max_characters or formation.max_messages"
            ),
            base_url=settings.base_url,
            api_key=settings.api_key,
            timeout=settings.timeout_seconds,
            retries=settings.retries,
            sleep=sleep,
            uniform=uniform,
        )
        self._slots = asyncio.Semaphore(settings.concurrency)
        self.budget = budget or Budget(max_tokens=settings.max_tokens, max_cost=settings.max_cost)
        self._takes_schema = True

    @property
    def description(self) -> str:
        """The endpoint's host."""
        return self._endpoint.host

    async def ask(self, request: LLMRequest[AnswerT]) -> LLMAnswer[AnswerT]:
        """See the protocol. A `ProviderError` carries the ``usage`` of the calls it took."""
        if self.budget.limits_cost and request.model not in self._settings.prices:
            raise ConfigError(
                f"llm.max_cost limits the run, and llm.prices has no price of {request.model!r}",
                hint=f'add "{request.model}" = [INPUT, OUTPUT], in dollars for a million tokens',
            )
        usage: list[CallUsage] = []
        messages = [
            {"role": "system", "content": clean(request.system)},
            {"role": "user", "content": clean(request.user)},
        ]
        try:
            text = await self._text(request, messages, usage)
            try:
                value = parse_answer(text, request.answer)
            except InvalidAnswer as problem:
                text = await self._text(
                    request, messages + _correction(text, problem, request), usage
                )
                value = parse_answer(text, request.answer)
        except InvalidAnswer as problem:
            invalid = ProviderAnswerInvalid(
                f"{request.model} answered {_about(request)} twice with something else than asked:"
                f" {one_line(str(problem), 300)}"
            )
            invalid.usage = tuple(usage)
            raise invalid from None
        except ProviderError as error:
            error.usage = tuple(usage)
            raise
        return LLMAnswer(value=value, usage=tuple(usage))

    async def close(self) -> None:
        """Let go of connections."""
        await self._endpoint.close()

    async def _text(
        self, request: LLMRequest[Any], messages: list[Message], usage: list[CallUsage]
    ) -> str:
        """What the model said, its cost added to ``usage`` and to the budget."""
        expected = sum(len(m["content"]) for m in messages) // _CHARACTERS_PER_TOKEN
        estimate = self._usage(request, expected, _EXPECTED_OUTPUT_TOKENS)
        async with self._slots:
            with self.budget.call(
                tokens=expected + _EXPECTED_OUTPUT_TOKENS, cost=estimate.cost or 0.0
            ) as charge:
                completion = await self._complete(request, messages)
                spent = self._read_usage(request, completion)
                # Some endpoints count no tokens; the limit must hold all the same.
                counted = spent or estimate
                charge.tokens = counted.input_tokens + counted.output_tokens
                charge.cost = counted.cost or 0.0
        usage.append(spent or self._usage(request, 0, 0))
        return _content(completion, request, self._endpoint.host)

    async def _complete(self, request: LLMRequest[Any], messages: list[Message]) -> ChatCompletion:
        if not self._takes_schema:
            return await self._send(request, *_plain(request, messages))
        try:
            return await self._send(request, messages, _with_schema(request))
        except RequestRejected as rejected:
            try:
                completion = await self._send(request, *_plain(request, messages))
            except RequestRejected:
                raise rejected from None  # so it was not the schema
            self._takes_schema = False
            return completion

    async def _send(
        self, request: LLMRequest[Any], messages: list[Message], response_format: Mapping[str, Any]
    ) -> ChatCompletion:
        body: dict[str, Any] = {
            "model": request.model,
            "messages": messages,
            "response_format": response_format,
        }
        return await self._endpoint.call(
            lambda client: client.chat.completions.create(**body),
            model=request.model,
            model_setting=self._setting_of(request.model),
        )

    def _setting_of(self, model: str) -> str:
        tiers = ("fast_model", "slow_model", "premium_model")
        named = [f"llm.{tier}" for tier in tiers if getattr(self._settings, tier) == model]
        return ", ".join(named) or "the scope's policy, which names this model"

    def _read_usage(self, request: LLMRequest[Any], completion: ChatCompletion) -> CallUsage | None:
        reported = getattr(completion, "usage", None)
        input_tokens = getattr(reported, "prompt_tokens", None)
        output_tokens = getattr(reported, "completion_tokens", None)
        if not isinstance(input_tokens, int) or not isinstance(output_tokens, int):
            return None
        return self._usage(request, input_tokens, output_tokens)

    def _usage(self, request: LLMRequest[Any], input_tokens: int, output_tokens: int) -> CallUsage:
        price = self._settings.prices.get(request.model)
        return CallUsage(
            task=request.task,
            model=request.model,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            cost=None
            if price is None
            else (input_tokens * price[0] + output_tokens * price[1]) / 1_000_000,
        )


def _with_schema(request: LLMRequest[Any]) -> Mapping[str, Any]:
    return {
        "type": "json_schema",
        "json_schema": {
            "name": schema_name(request.answer),
            "schema": answer_schema(request.answer),
            "strict": True,
        },
    }


def _plain(
    request: LLMRequest[Any], messages: list[Message]
) -> tuple[list[Message], Mapping[str, Any]]:
    system, *others = messages
    told = f"{system['content']}\n\n{schema_instruction(request.answer)}"
    return [{"role": "system", "content": told}, *others], {"type": "json_object"}


def _correction(text: str, problem: InvalidAnswer, request: LLMRequest[Any]) -> list[Message]:
    # Some endpoints take no empty message, so an empty answer is not quoted back.
    quoted = (
        [{"role": "assistant", "content": clean(text[:_QUOTED_CHARACTERS])}] if text.strip() else []
    )
    said = f"That is not a valid answer: {problem}\n\n{schema_instruction(request.answer)}"
    return [*quoted, {"role": "user", "content": said}]


def _content(completion: ChatCompletion, request: LLMRequest[Any], host: str) -> str:
    """The text of the answer; it is empty if there is none.

    Raises:
        ProviderAnswerInvalid: the model refused, was filtered or was cut; the same again would
            end the same way.
    """
    # The client library passes on whatever came, so nothing about its shape is certain.
    choices = getattr(completion, "choices", None)
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = getattr(choice, "message", None)
    if message is None:
        raise ProviderAnswerInvalid(
            f"{host} answered {_about(request)} with something that is no chat completion",
            hint="check llm.base_url; it often ends in /v1",
        )
    reason = getattr(choice, "finish_reason", None)
    if refusal := getattr(message, "refusal", None):
        raise ProviderAnswerInvalid(
            f"{request.model} refused {_about(request)}: {one_line(str(refusal), 300)}"
        )
    if reason == "content_filter":
        raise ProviderAnswerInvalid(
            f"the content filter of {host} stopped the answer to {_about(request)}"
        )
    if reason == "length":
        raise ProviderAnswerInvalid(
            f"the answer of {request.model} to {_about(request)} was cut: it is too long",
            hint="take a model with a longer output, or lower formation.max_messages",
        )
    content = getattr(message, "content", None)
    return content if isinstance(content, str) else ""


def _about(request: LLMRequest[Any]) -> str:
    return f"task {request.task!r} of {one_line(request.key, 100)}"
