"""The real client library against a strict server on loopback."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel, ConfigDict

import edenmem
from edenmem.embed.openai_compat import OpenAIEmbedder
from edenmem.engine.runtime import answers
from edenmem.errors import (
    BudgetExceeded,
    ConfigError,
    ContextOverflow,
    EdenmemWarning,
    ProviderAnswerInvalid,
    ProviderAuthError,
    ProviderError,
    ProviderMisconfigured,
    ProviderRateLimited,
    ProviderTimeout,
)
from edenmem.llm.openai_compat import OUTPUT_TOKENS, OpenAILLM
from edenmem.llm.protocol import LLMRequest
from edenmem.settings.schema import EmbeddingSettings, LLMSettings
from tests.support.fake_openai import KEY, REASONING_MODEL, FakeOpenAI, Reply, completion, failing
from tests.support.waiting import no_waits

pytestmark = pytest.mark.slow

PROMPTS = Path(edenmem.__file__).parent / "prompts"


class Capital(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    city: str
    people: int | None


GOOD = '{"city": "Lisbon", "people": 567131}'
LISBON = Capital(city="Lisbon", people=567131)


def request(model: str = "fast-1", answer: type[BaseModel] = Capital) -> LLMRequest[Any]:
    return LLMRequest(
        task="facts",
        key="night-shift/ada/1",
        model=model,
        system="You know capitals.",
        user="Portugal?",
        answer=answer,
    )


@pytest.fixture
def server() -> Iterator[FakeOpenAI]:
    with FakeOpenAI(lambda body: GOOD) as fake:
        yield fake


@pytest.fixture(autouse=True)
def waits() -> Iterator[list[float]]:
    """How long requests would have waited."""
    with no_waits() as waited:
        yield waited


@asynccontextmanager
async def connected(server: FakeOpenAI, **settings: Any) -> AsyncIterator[OpenAILLM]:
    known: dict[str, Any] = {
        "base_url": server.url,
        "api_key": KEY,
        "fast_model": "fast-1",
        "slow_model": "slow-1",
        "premium_model": "premium-1",
    }
    llm = OpenAILLM(LLMSettings(**(known | settings)))
    try:
        yield llm
    finally:
        await llm.close()


async def fails(
    server: FakeOpenAI,
    error: type[ProviderError],
    words: str | None = None,
    *,
    model: str = "fast-1",
    **settings: Any,
) -> ProviderError:
    """Ask, and return the error in which it ends."""
    async with connected(server, **settings) as llm:
        with pytest.raises(error, match=words) as caught:
            await llm.ask(request(model))
    return caught.value


async def test_asks_by_schema_and_counts_the_tokens(server: FakeOpenAI) -> None:
    async with connected(server, prices={"fast-1": (0.25, 2.0)}) as llm:
        answer = await llm.ask(request())
        assert answer.value == LISBON
        (usage,) = answer.usage
        assert (usage.task, usage.model) == ("facts", "fast-1")
        assert (usage.input_tokens, usage.output_tokens) == (100, 20)
        assert usage.cost == pytest.approx((100 * 0.25 + 20 * 2.0) / 1e6)
        assert llm.budget.tokens == 120
        assert not llm.is_scripted
        assert llm.description == server.url.split("/")[2]
    assert server.requests[0]["response_format"]["json_schema"]["name"] == "Capital"
    assert [m["role"] for m in server.requests[0]["messages"]] == ["system", "user"]


async def test_the_price_of_an_unpriced_model_is_unknown_not_zero(server: FakeOpenAI) -> None:
    async with connected(server) as llm:
        assert (await llm.ask(request())).usage[0].cost is None


async def test_the_schema_of_every_answer_of_the_engine_is_taken() -> None:
    found = [m for m in vars(answers).values() if isinstance(m, type) and issubclass(m, BaseModel)]
    with FakeOpenAI(lambda body: "nothing") as server:
        async with connected(server) as llm:
            for model in found:
                if model.model_fields:  # else a base class
                    with pytest.raises(ProviderAnswerInvalid, match="two invalid answers"):
                        await llm.ask(request(answer=model))
    assert all(r["response_format"]["type"] == "json_schema" for r in server.requests)


async def test_text_that_no_wire_carries_is_cleaned_first(server: FakeOpenAI) -> None:
    async with connected(server) as llm:
        await llm.ask(msgspec.structs.replace(request(), user="a\x00b \ud83d c"))
    assert server.requests[0]["messages"][1]["content"] == "ab  c"


# -- answers that do not validate ----------------------------------------------------------------


async def test_an_invalid_answer_is_asked_for_once_more_with_the_reason(server: FakeOpenAI) -> None:
    server.script.append(completion('{"city": 7, "people": null}'))
    async with connected(server) as llm:
        answer = await llm.ask(request())
    assert answer.value == LISBON
    assert len(answer.usage) == 2, "the failed call was paid for too"
    *_, quoted, correction = server.requests[1]["messages"]
    assert quoted == {"role": "assistant", "content": '{"city": 7, "people": null}'}
    assert "city: Input should be a valid string" in correction["content"]


@pytest.mark.parametrize("content", ["", None, "I would say Lisbon.", '{"city": "Lis', "[]", "{}"])
async def test_two_invalid_answers_are_a_failure(server: FakeOpenAI, content: str | None) -> None:
    """Known failure 29: nonsense is an error and never an empty result."""
    server.script += [completion(content), completion(content)]
    caught = await fails(server, ProviderAnswerInvalid, r"'facts' of night-shift/ada/1")
    assert len(server.requests) == 2
    assert [call.input_tokens for call in caught.usage] == [100, 100]
    assert caught.retryable


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (completion(None, refusal="I can't help with that."), "refused .* I can't help"),
        (completion("", finish_reason="content_filter"), "content filter"),
    ],
)
async def test_a_refused_answer_is_not_asked_for_again(
    server: FakeOpenAI, reply: Reply, words: str
) -> None:
    server.script.append(reply)
    caught = await fails(server, ProviderAnswerInvalid, words)
    assert len(server.requests) == 1
    assert len(caught.usage) == 1


async def test_an_endpoint_without_schemas_is_asked_for_plain_json_from_then_on(
    server: FakeOpenAI,
) -> None:
    server.takes_schema = False
    async with connected(server) as llm:
        assert (await llm.ask(request())).value == LISBON
        assert (await llm.ask(request())).value == LISBON
    kinds = [body["response_format"]["type"] for body in server.requests]
    assert kinds == ["json_schema", "json_object", "json_object"]
    assert '"city"' in server.requests[1]["messages"][0]["content"], "the schema is in the prompt"


async def test_a_rejection_that_is_not_about_schemas_is_said_as_it_came(server: FakeOpenAI) -> None:
    async with connected(server) as llm:
        server.script.append(failing(400, "too many tokens", "context_length_exceeded"))
        with pytest.raises(ProviderError, match="too many tokens"):
            await llm.ask(request())
        server.script += [failing(400, "first"), failing(400, "second")]
        with pytest.raises(ProviderError, match="first"):
            await llm.ask(request())
        await llm.ask(request())
    assert server.requests[-1]["response_format"]["type"] == "json_schema", "not given up"


# -- what a model takes --------------------------------------------------------------------------


async def test_a_call_is_bounded_and_its_temperature_is_0(server: FakeOpenAI) -> None:
    async with connected(server) as llm:
        await llm.ask(request())
    (sent,) = server.requests
    assert sent["temperature"] == 0
    assert sent["max_tokens"] == OUTPUT_TOKENS["facts"]


async def test_settings_say_temperature_and_limit(server: FakeOpenAI) -> None:
    server.script.append(completion('{"city', finish_reason="length", usage=(100, 77)))
    caught = await fails(
        server, ProviderAnswerInvalid, "too long", temperature=0.5, max_output_tokens=77
    )
    (sent,) = server.requests
    assert (sent["temperature"], sent["max_tokens"]) == (0.5, 77)
    assert "llm.max_output_tokens" in (caught.hint or "")


def test_every_prompt_has_a_limit_of_its_own() -> None:
    tasks = {path.name.removesuffix(".md.j2") for path in PROMPTS.glob("*.md.j2")}
    assert tasks
    assert {task for task in tasks if not task.startswith("_")} <= OUTPUT_TOKENS.keys()


def parameters(body: dict[str, Any]) -> dict[str, Any]:
    limit = OUTPUT_TOKENS["facts"]
    sent = {name: body.get(name) for name in ("max_tokens", "max_completion_tokens", "temperature")}
    return {
        name: True if value == limit else value for name, value in sent.items() if value is not None
    }


async def test_what_a_reasoning_model_refuses_is_replaced_from_then_on(server: FakeOpenAI) -> None:
    async with connected(server) as llm:
        for _ in range(2):
            assert (await llm.ask(request(REASONING_MODEL))).value == LISBON
        await llm.ask(request())
    assert [parameters(body) for body in server.requests] == [
        {"max_tokens": True, "temperature": 0},
        {"max_completion_tokens": True, "temperature": 0},
        {"max_completion_tokens": True},
        {"max_completion_tokens": True},
        {"max_tokens": True, "temperature": 0},  # another model is another matter
    ]


async def test_what_an_endpoint_does_not_know_is_left_out(server: FakeOpenAI) -> None:
    server.refuses = frozenset({"temperature", "max_tokens", "max_completion_tokens"})
    server.takes_schema = server.takes_json = False
    async with connected(server) as llm:
        assert (await llm.ask(request())).value == LISBON
        tries = len(server.requests)
        assert (await llm.ask(request())).value == LISBON
    assert set(server.requests[-1]) == {"model", "messages"}
    assert tries == 6
    assert len(server.requests) == tries + 1


#: In whose words a model says how much it writes at most, and what comes of it.
MOST = [
    "max_tokens is too large: 16000. This model supports at most 8192 completion tokens, whereas"
    " you provided 16000.",  # OpenAI
    "`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens` is less"
    " than the `context_window` for this model",  # Groq
    "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]",  # DeepSeek
]


@pytest.mark.parametrize("message", MOST)
async def test_a_model_that_writes_less_is_asked_for_less(server: FakeOpenAI, message: str) -> None:
    server.script.append(failing(400, message, "invalid_value", "max_tokens"))
    async with connected(server) as llm:
        await llm.ask(request())
        await llm.ask(request())
    assert [body["max_tokens"] for body in server.requests] == [16_000, 8192, 8192]


#: With the answer's limit the request is too long, without it perhaps not.
OF_OUTPUT = [
    "'max_tokens' or 'max_completion_tokens' is too large: 16000. This model's maximum context"
    " length is 16384 tokens and your request has 5000 input tokens (16000 > 16384 - 5000).",
    "This model's maximum context length is 16384 tokens. However, you requested 20946 tokens"
    " (4946 in the messages, 16000 in the completion). Please reduce the length.",
    "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 16384",
]


@pytest.mark.parametrize("message", OF_OUTPUT)
async def test_an_answer_gets_what_the_context_leaves(server: FakeOpenAI, message: str) -> None:
    server.refuses = frozenset({"max_tokens", "max_completion_tokens"})  # takes none as well
    server.script.append(failing(400, message))
    async with connected(server) as llm:
        await llm.ask(request())
        server.refuses = frozenset()
        await llm.ask(request())
    assert ["max_tokens" in body for body in server.requests] == [True, False, True]


@pytest.mark.parametrize("message", OF_OUTPUT)
async def test_what_is_too_long_without_an_answer_is_too_long(
    server: FakeOpenAI, message: str
) -> None:
    server.script += [failing(400, message)] * 2
    await fails(server, ContextOverflow)
    assert len(server.requests) == 2


async def test_a_cut_answer_is_asked_for_once_more_with_twice_the_room(server: FakeOpenAI) -> None:
    cut = completion('{"city', finish_reason="length", usage=(100, 16_000))
    server.script.append(cut)
    async with connected(server) as llm:
        answer = await llm.ask(request())
        assert answer.value == LISBON
        assert [call.output_tokens for call in answer.usage] == [16_000, 20]
        server.script += [cut, cut]
        with pytest.raises(ProviderAnswerInvalid, match="too long") as caught:
            await llm.ask(request())
    assert [body["max_tokens"] for body in server.requests] == [16_000, 32_000, 16_000, 32_000]
    assert len(caught.value.usage) == 2


async def test_what_its_context_cut_no_limit_of_ours_lengthens(server: FakeOpenAI) -> None:
    server.script.append(completion('{"city', finish_reason="length", usage=(100, 900)))
    await fails(server, ProviderAnswerInvalid, "too long")
    assert len(server.requests) == 1


# -- what is counted -----------------------------------------------------------------------------

NO_COUNTS: list[Any] = [
    None,
    True,
    False,
    -1,
    1.5,
    1e300,
    2**53,
    10**30,
    "100",
    [],
    {},
    float("nan"),
]


@pytest.mark.parametrize("field", ["prompt_tokens", "completion_tokens"])
async def test_only_counts_are_counted(server: FakeOpenAI, field: str) -> None:
    for count in NO_COUNTS:
        reply = completion(GOOD)
        reply.body["usage"][field] = count
        server.script.append(reply)
    async with connected(server, prices={"fast-1": (1.0, 1.0)}) as llm:
        for number, count in enumerate(NO_COUNTS, 1):
            (call,) = (await llm.ask(request())).usage
            assert call.estimated, count
            assert (call.input_tokens, call.output_tokens) == (6, 9), count
            assert call.cost == pytest.approx(15e-6)
            assert llm.budget.tokens == 15 * number


async def test_counts_are_not_estimates(server: FakeOpenAI) -> None:
    server.script.append(completion(GOOD, usage=(2**53 - 1, 0)))
    async with connected(server) as llm:
        (call,) = (await llm.ask(request())).usage
    assert (call.input_tokens, call.output_tokens, call.estimated) == (2**53 - 1, 0, False)


async def test_each_try_that_came_to_nothing_counts_against_the_budget(server: FakeOpenAI) -> None:
    """Known failure 71: calls that time out were free, so that a budget did not bound them."""
    server.script += [Reply(cut=True, body=b"{}" * 50)] * 9
    async with connected(server, retries=8, max_tokens=1200) as llm:
        with pytest.raises(BudgetExceeded) as caught:
            await llm.ask(request())
        assert llm.budget.tokens == 3 * 506
    assert len(server.requests) == 3
    assert [call.estimated for call in caught.value.usage] == [True] * 3


async def test_a_time_out_counts_by_estimate(server: FakeOpenAI) -> None:
    server.script.append(Reply(hang=True))
    async with connected(server, retries=0, timeout_seconds=0.2) as llm:
        with pytest.raises(ProviderTimeout) as caught:
            await llm.ask(request())
        assert llm.budget.tokens == 506
    (call,) = caught.value.usage
    assert (call.input_tokens, call.output_tokens, call.estimated) == (6, 500, True)


async def test_a_request_with_a_limit_of_its_own_is_tried_once_and_counted(
    server: FakeOpenAI, waits: list[float]
) -> None:
    async with connected(server) as llm:
        server.script.append(failing(503))
        with pytest.raises(ProviderError, match="503"):
            await llm.ask(msgspec.structs.replace(request(), timeout=60.0))
        server.script.append(Reply(hang=True))
        with pytest.raises(ProviderTimeout, match=r"within 0\.2 s") as caught:
            await llm.ask(msgspec.structs.replace(request(), timeout=0.2))
    assert waits == []
    assert [call.estimated for call in caught.value.usage] == [True]


@pytest.mark.parametrize("status", [400, 401, 404, 413, 429, 500, 503])
async def test_what_was_refused_costs_nothing(server: FakeOpenAI, status: int) -> None:
    server.script += [failing(status)] * 3
    async with connected(server, retries=0) as llm:
        with pytest.raises(ProviderError):
            await llm.ask(request())
        assert llm.budget.tokens == 0


async def test_a_prompt_that_was_cut_in_silence_is_told_once(server: FakeOpenAI) -> None:
    """Ollama cuts a prompt to num_ctx, and answers 200 (its issues 4967 and 8099)."""
    long = msgspec.structs.replace(request(), user="All that was said. " * 2000)
    server.script += [completion(GOOD, usage=(2048, 20))] * 2
    async with connected(server) as llm:
        with pytest.warns(EdenmemWarning, match="num_ctx") as told:
            await asyncio.gather(llm.ask(long), llm.ask(long))
    assert len(told) == 1


@pytest.mark.parametrize("count", [6000, 12_000, 200, None])
async def test_a_prompt_that_was_read_is_not_called_cut(
    server: FakeOpenAI, count: int | None
) -> None:
    long = msgspec.structs.replace(request(), user="All that was said. " * 2000)
    server.script.append(completion(GOOD, usage=None if count is None else (count, 20)))
    async with connected(server) as llm:
        await llm.ask(long)  # a warning would be an error here


# -- failures of the endpoint --------------------------------------------------------------------


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_key_is_final_and_never_shown(
    server: FakeOpenAI, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server.script.append(failing(status, f"Incorrect API key provided: {KEY} (Bearer {KEY})"))
    async with connected(server) as llm:
        with pytest.raises(ProviderAuthError, match=str(status)) as caught:
            await llm.ask(request())
        assert KEY not in repr(llm)
    assert len(server.requests) == 1
    assert KEY not in f"{caught.value} {caught.value.hint} {caught.value!r}"
    assert caught.value.__suppress_context__
    assert "llm.api_key" in (caught.value.hint or "")
    assert KEY not in caplog.text


async def test_a_key_that_is_not_ours_but_is_echoed_is_masked(server: FakeOpenAI) -> None:
    server.script.append(failing(403, "project sk-proj-aaaaaaaabbbbbbbb may not"))
    caught = await fails(server, ProviderAuthError)
    assert "aaaaaaaa" not in str(caught)


async def test_a_message_from_outside_is_one_harmless_line(server: FakeOpenAI) -> None:
    server.script.append(failing(400, "\x1b]0;owned\x07 [red]\n" + "x" * 5000, "invalid_api_key"))
    caught = await fails(server, ProviderError)
    assert "\x1b" not in str(caught)
    assert "\n" not in str(caught)
    assert len(str(caught)) < 500


async def test_an_unknown_model_names_the_setting(server: FakeOpenAI) -> None:
    async with connected(server, slow_model="slow-9") as llm:
        with pytest.raises(ProviderError, match="slow-9") as caught:
            await llm.ask(request("slow-9"))
        assert "llm.slow_model" in (caught.value.hint or "")
        with pytest.raises(ProviderError, match="odd") as caught:
            await llm.ask(request("odd"))
        assert "policy" in (caught.value.hint or "")
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    "reply",
    [
        failing(404, "The model does not exist", "model_not_found"),
        failing(400, "The model does not exist", "model_not_found"),
        failing(404, "page not found"),
        failing(400, "Unknown parameter: 'response_format'"),
        failing(422, "field required"),
    ],
    ids=lambda reply: reply.body["error"]["message"],
)
async def test_a_wrong_model_or_address_is_the_settings_fault(
    server: FakeOpenAI, reply: Reply
) -> None:
    server.script += [reply] * 3  # again without a schema, and without a form, if it may be that
    caught = await fails(server, ProviderMisconfigured)
    assert "llm.fast_model" in (caught.hint or "")


#: What endpoints answer to a request longer than the context, by where the words are from.
TOO_LONG = {
    "openai": "Please reduce the length",
    # OpenAI's chat endpoint until gpt-4, DeepSeek, OpenRouter; vLLM issue 19464
    "openai-length": "This model's maximum context length is 8192 tokens, you sent 9000.",
    # gpt-5 and its kin
    "openai-configured": (
        "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in"
        " 428548 tokens. Please reduce the length of the messages."
    ),
    "openai-responses": "Your input exceeds the context window of this model.",
    "openai-minute": (
        "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 48000."
    ),
    # ggml-org/llama.cpp tools/server/server-context.cpp, ERROR_TYPE_EXCEED_CONTEXT_SIZE
    "llama.cpp": (
        "request (9412 tokens) exceeds the available context size (8192 tokens), try increasing it"
    ),
    "llama.cpp-before": "the request exceeds the available context size, try increasing it",
    "llama.cpp-batch": (
        "input (1200 tokens) is too large to process. increase the physical batch size"
    ),
    # ollama/ollama server/routes.go (embeddings) and llm/server.go
    "ollama-embed": "the input length exceeds the context length",
    "ollama-chat": "prompt too long; exceeded max context length by 4096 tokens",
    "ollama-now": "the prompt is longer than the context length currently available to the model",
    # vllm-project/vllm entrypoints/openai/serving_engine.py
    "vllm": (
        "This model's maximum context length is 6048 tokens. However, your request has 6616 "
        "input tokens. Please reduce the length of the input messages."
    ),
    # Google's compatible endpoint; issue texts of aider and litellm
    "gemini": (
        "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575)."
    ),
    # litellm's and OpenHands' lists of exceptions
    "anthropic": "prompt is too long: 210000 tokens > 200000 maximum",
    "mistral": (
        "Prompt contains 40000 tokens, too large for model with 32768 maximum context length"
    ),
    "sglang": "The input (300 tokens) is longer than the model's context length (256 tokens).",
    "dashscope": "Range of input length should be [1, 30720]",
    "kimi": "Your request exceeded model token limit: 262144 (requested: 300000)",
    "xai": "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    "lm-studio": (
        "The number of tokens to keep from the initial prompt is greater than the context length"
    ),
    "proxy": "Request entity too large",
}
#: The status and code of such an answer, where they are not 400 and none.
TOO_LONG_STATUS = {
    "openai": (400, "context_length_exceeded"),
    "openai-configured": (400, "context_length_exceeded"),
    "openai-minute": (429, "rate_limit_exceeded"),
    "llama.cpp-batch": (500, ""),
    "ollama-now": (500, ""),
    "proxy": (413, ""),
}


async def test_a_request_longer_than_the_context_is_said_to_be(server: FakeOpenAI) -> None:
    for whose, said in TOO_LONG.items():
        status, code = TOO_LONG_STATUS.get(whose, (400, ""))
        server.script.append(failing(status, said, code))
    async with connected(server) as llm:
        for number, whose in enumerate(TOO_LONG, 1):
            with pytest.raises(ContextOverflow, match="exceeds the context of 'fast-1'") as caught:
                await llm.ask(request())
            assert not caught.value.retryable
            assert len(server.requests) == number, f"{whose}: another form would be too long too"
            assert "formation.max_characters" in (caught.value.hint or "")


async def test_overflow_in_the_forms_of_other_bodies(server: FakeOpenAI) -> None:
    """Gemini's list, Ollama's string, and llama.cpp's type without a code."""
    gemini = {"error": {"code": 400, "message": TOO_LONG["gemini"]}}
    llama = {"code": 400, "message": "too much", "type": "exceed_context_size_error"}
    server.script += [
        Reply(400, [gemini]),
        Reply(400, {"error": "the input length exceeds the context length"}),
        Reply(400, {"error": llama}),
        Reply(413, b"<html>413 Request Entity Too Large</html>"),
    ]
    async with connected(server) as llm:
        for _ in range(4):
            with pytest.raises(ContextOverflow):
                await llm.ask(request())


async def test_a_text_that_is_not_allowed_is_the_texts_fault(server: FakeOpenAI) -> None:
    server.script.append(failing(400, "Your prompt was filtered", "content_filter"))
    caught = await fails(server, ProviderError)
    assert type(caught) is ProviderError
    assert not caught.retryable
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "reply",
    [
        failing(429, "Rate limit reached: too many tokens per minute", "rate_limit_exceeded"),
        failing(401, "maximum context length", "invalid_api_key"),
        failing(404, "no model of that context length", "model_not_found"),
        failing(503, "the server is too busy for context windows"),
        failing(400, "Unknown parameter: 'response_format'"),
        failing(400, "Invalid schema for response_format: too many properties"),
    ],
    ids=lambda reply: str(reply.status),
)
async def test_what_is_no_overflow_is_not_taken_for_one(server: FakeOpenAI, reply: Reply) -> None:
    server.script += [reply] * 2
    caught = await fails(server, ProviderError, retries=0)
    assert not isinstance(caught, ContextOverflow)


async def test_passing_failures_are_retried_with_growing_jitter(
    server: FakeOpenAI, waits: list[float]
) -> None:
    server.script += [failing(500), failing(503), Reply(body=b"{", cut=True), failing(429)]
    async with connected(server, retries=4) as llm:
        assert (await llm.ask(request())).value == LISBON
    assert waits == [0.5, 1.0, 2.0, 4.0]


async def test_retry_after_is_honored_up_to_a_minute(
    server: FakeOpenAI, waits: list[float]
) -> None:
    server.script += [failing(429, retry_after="3"), failing(503, retry_after="86400")]
    async with connected(server) as llm:
        await llm.ask(request())
    assert waits == [3.5, 60.5]


@pytest.mark.parametrize(
    ("reply", "error", "words"),
    [
        (failing(429, "slow down"), ProviderRateLimited, "429: slow down"),
        (failing(500, "oops"), ProviderError, "500: oops"),
        (Reply(hang=True), ProviderTimeout, r"did not answer within 0\.2 s"),
        (Reply(body=b"{}" * 50, cut=True), ProviderTimeout, "the connection to"),
        (Reply(body=b"<html>hello"), ProviderAnswerInvalid, "invalid JSON"),
    ],
)
async def test_after_the_last_retry_it_is_an_error(
    server: FakeOpenAI, reply: Reply, error: type[ProviderError], words: str, waits: list[float]
) -> None:
    server.script += [reply] * 3
    patience = 0.2 if reply.hang else 60.0
    caught = await fails(server, error, words, retries=2, timeout_seconds=patience)
    # Of a request that is given up so soon the server may never hear.
    assert len(server.requests) == 3 or reply.hang
    assert len(waits) == 2
    assert caught.retryable


async def test_an_empty_account_is_not_retried(server: FakeOpenAI) -> None:
    server.script.append(failing(429, "You exceeded your current quota", "insufficient_quota"))
    caught = await fails(server, ProviderRateLimited, "quota")
    assert len(server.requests) == 1
    assert "credit" in (caught.hint or "")


@pytest.mark.parametrize(
    "reply",
    [
        Reply(body={"hello": "world"}),
        Reply(body=[1, 2]),
        Reply(body=b"<html>welcome</html>", headers={"Content-Type": "text/html"}),
        Reply(body={"id": "1", "object": "chat.completion", "choices": []}),
    ],
)
async def test_an_address_that_is_no_chat_endpoint_is_said(
    server: FakeOpenAI, reply: Reply
) -> None:
    server.script.append(reply)
    caught = await fails(server, ProviderAnswerInvalid, "invalid chat completion")
    assert "llm.base_url" in (caught.hint or "")


async def test_nobody_there(unused_port: int, waits: list[float]) -> None:
    settings = LLMSettings(base_url=f"http://127.0.0.1:{unused_port}/v1", retries=1)
    llm = OpenAILLM(settings)
    with pytest.raises(ProviderTimeout, match="the connection to"):
        await llm.ask(request())
    await llm.close()
    assert len(waits) == 1


@pytest.fixture
def unused_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def test_an_endpoint_without_a_key_works() -> None:
    with FakeOpenAI(lambda body: GOOD, key=None) as server:
        async with connected(server, api_key="") as llm:
            assert (await llm.ask(request())).value == LISBON


@pytest.mark.parametrize("key", ["sk-a\nb", "sk-é", "sk a"])
def test_a_key_that_no_header_can_carry_is_refused_without_showing_it(key: str) -> None:
    with pytest.raises(ConfigError, match=r"llm\.api_key") as caught:
        OpenAILLM(LLMSettings(api_key=key))
    assert key not in str(caught.value)


@pytest.mark.parametrize("url", ["localhost:11434", "ftp://x/v1", "http://", "http://[::1", "x"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"llm\.base_url"):
        OpenAILLM(LLMSettings(base_url=url))


# -- limits --------------------------------------------------------------------------------------


async def test_no_more_calls_at_once_than_allowed(server: FakeOpenAI) -> None:
    async with connected(server, concurrency=2) as llm:
        await asyncio.gather(*(llm.ask(request()) for _ in range(8)))
    assert len(server.requests) == 8
    assert server.most_at_once <= 2


async def test_the_budget_in_tokens_is_shared_and_checked_before_each_call(
    server: FakeOpenAI,
) -> None:
    async with connected(server, max_tokens=240) as llm:
        await llm.ask(request())
        await llm.ask(request())
        with pytest.raises(BudgetExceeded, match="token limit of the run reached: 240"):
            await llm.ask(request())
    assert len(server.requests) == 2


async def test_many_calls_at_once_do_not_slip_in_under_the_limit(server: FakeOpenAI) -> None:
    async with connected(server, max_tokens=600) as llm:
        results = await asyncio.gather(
            *(llm.ask(request()) for _ in range(8)), return_exceptions=True
        )
        assert llm.budget.tokens < 600
    refused = [result for result in results if isinstance(result, BudgetExceeded)]
    assert len(refused) + len(server.requests) == 8
    assert len(server.requests) <= 2


async def test_the_budget_in_money_needs_prices(server: FakeOpenAI) -> None:
    async with connected(server, max_cost=0.001, prices={"fast-1": (5.0, 25.0)}) as llm:
        await llm.ask(request())
        with pytest.raises(BudgetExceeded, match=r"cost limit of the run reached: \$0\.00"):
            await llm.ask(request())
        with pytest.raises(ConfigError, match="no price for 'slow-1'"):
            await llm.ask(request("slow-1"))
    assert len(server.requests) == 1


async def test_an_endpoint_that_counts_nothing_is_still_limited(server: FakeOpenAI) -> None:
    server.script += [completion(GOOD, usage=None)] * 2
    async with connected(server, max_tokens=30) as llm:
        await llm.ask(request())
        await llm.ask(request())
        with pytest.raises(BudgetExceeded):
            await llm.ask(request())


async def test_the_second_try_counts_and_what_was_paid_is_told(server: FakeOpenAI) -> None:
    server.script.append(completion("nonsense"))
    caught = await fails(server, BudgetExceeded, max_tokens=100)
    assert len(caught.usage) == 1


async def test_cancelling_propagates_and_frees_the_place(server: FakeOpenAI) -> None:
    """Known failure 13: a time limit cancels; what is under way ends as cancelled."""
    server.script.append(Reply(hang=True))
    async with connected(server, concurrency=1, max_tokens=10_000) as llm:
        asked = request()
        task = asyncio.create_task(llm.ask(asked))
        await asyncio.to_thread(server.hanging.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        [lost] = asked.spent
        assert (lost.estimated, lost.input_tokens + lost.output_tokens) == (True, 506)
        assert (await llm.ask(request())).value == LISBON
        assert llm.budget.tokens == 506 + 120, "the cancelled call counts by estimate"


async def test_a_mistake_of_ours_is_not_dressed_up_as_the_endpoints(server: FakeOpenAI) -> None:
    async with connected(server) as llm:
        broken = msgspec.structs.replace(request(), answer=42)
        with pytest.raises(AttributeError):
            await llm.ask(broken)


@pytest.mark.parametrize(
    "body", [failing(404), failing(500), Reply(body={"choices": []}), Reply(cut=True)]
)
@pytest.mark.parametrize("inherited", [frozenset(), frozenset({"base_url"})])
async def test_a_hint_names_the_variable_of_the_address(
    server: FakeOpenAI, body: Reply, inherited: frozenset[str]
) -> None:
    server.script += [body] * 2
    caught = await fails(server, ProviderError, retries=0, inherited=inherited)
    named = "the address is from OPENAI_BASE_URL" in (caught.hint or "")
    assert named == bool(inherited)


@pytest.mark.parametrize("section", [LLMSettings, EmbeddingSettings])
def test_an_invalid_address_names_its_variable(section: Any) -> None:
    kind = OpenAILLM if section is LLMSettings else OpenAIEmbedder
    with pytest.raises(ConfigError) as caught:
        kind(section(base_url="nowhere", inherited=frozenset({"base_url"})))
    assert "the address is from OPENAI_BASE_URL" in (caught.value.hint or "")
