"""Known failure 29: whatever an endpoint answers ends as a result or as an error that says so."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pydantic import BaseModel

from edenmem.embed.openai_compat import OpenAIEmbedder
from edenmem.errors import ProviderError
from edenmem.llm.openai_compat import OpenAILLM
from edenmem.llm.protocol import LLMRequest
from edenmem.settings.schema import EmbeddingSettings, LLMSettings
from tests.support.fake_openai import KEY, FakeOpenAI, Reply, completion, embeddings
from tests.support.waiting import no_waits

pytestmark = pytest.mark.slow


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 10**30) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


@st.composite
def damaged(draw: st.DrawFn, whole: Any) -> Any:
    """``whole`` with some part of it replaced by anything or taken out."""
    if draw(st.integers(0, 3)) == 0 or not isinstance(whole, dict | list) or not whole:
        return draw(JSON)
    if isinstance(whole, list):
        place = draw(st.integers(0, len(whole) - 1))
        return [*whole[:place], draw(damaged(whole[place])), *whole[place + 1 :]]
    key = draw(st.sampled_from(sorted(whole)))
    if draw(st.booleans()):
        return {name: value for name, value in whole.items() if name != key}
    return whole | {key: draw(damaged(whole[key]))}


CHAT = damaged(completion('{"text": "x"}').body)
EMBEDDINGS = damaged(embeddings([1.0, 2.0], [2.0, 1.0]).body)
STATUSES = st.sampled_from([200, 200, 200, 200, 204, 302, 400, 404, 418, 429, 500, 599])


class Text(BaseModel):
    text: str


class Side:
    """A server and its clients, kept from example to example, since a client is dear to make."""

    def __init__(self, server: FakeOpenAI, runner: asyncio.Runner) -> None:
        self.server = server
        self.runner = runner
        self.llm = OpenAILLM(LLMSettings(base_url=server.url, api_key=KEY, retries=1))
        self.embedder = OpenAIEmbedder(
            EmbeddingSettings(base_url=server.url, api_key=KEY, model="m", retries=1, dimensions=2)
        )


@pytest.fixture(scope="module")
def side() -> Iterator[Side]:
    with FakeOpenAI() as server, asyncio.Runner() as runner, no_waits():
        side = Side(server, runner)
        yield side
        runner.run(side.llm.close())
        runner.run(side.embedder.close())


@hypothesis_settings(max_examples=200)
@given(body=CHAT | JSON, status=STATUSES)
def test_any_answer_of_a_chat_endpoint(side: Side, body: object, status: int) -> None:
    side.server.script.clear()
    side.server.script += [Reply(status, body)] * 4
    request = LLMRequest(task="t", key="k", model="fast-1", system="s", user="u", answer=Text)
    try:
        answer = side.runner.run(side.llm.ask(request))
    except ProviderError as error:
        assert str(error)  # noqa: PT017 - an error is one of two right ends
    else:
        assert status == 200
        assert answer.value.text == "x" or answer.value.text in str(body)


@hypothesis_settings(max_examples=200)
@given(body=EMBEDDINGS | JSON, status=STATUSES)
def test_any_answer_of_an_embedding_endpoint(side: Side, body: object, status: int) -> None:
    side.server.script.clear()
    side.server.script += [Reply(status, body)] * 4
    try:
        embedding = side.runner.run(side.embedder.embed(["a", "b"]))
    except ProviderError as error:
        assert str(error)  # noqa: PT017 - an error is one of two right ends
    else:
        assert status == 200
        assert [len(vector) for vector in embedding.vectors] == [8, 8]
