"""The fakes of the tests behave as documented."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path
from typing import Literal

import pytest
from pydantic import BaseModel

from edenmem.errors import ProviderAnswerInvalid, ProviderTimeout
from edenmem.llm.protocol import LLMRequest
from tests.support.embedder import FakeEmbedder
from tests.support.llm import ADVERSARIAL, HANG, HOSTILE, NONSENSE, FakeLLM
from tests.support.network import NetworkForbidden
from tests.support.vectors import cosine


class Item(BaseModel):
    number: int | None
    kind: Literal["add", "none"]
    text: str


class Answer(BaseModel):
    items: list[Item]


def ask_for(task: str, *, user: str = "What?") -> LLMRequest[Answer]:
    return LLMRequest(
        task=task, key="s/a/1", model="m", system="You list.", user=user, answer=Answer
    )


# -- network and environment ---------------------------------------------------------------------


def test_the_network_is_out_of_reach() -> None:
    with socket.socket() as out, pytest.raises(NetworkForbidden):
        out.connect(("192.0.2.1", 80))
    with pytest.raises(NetworkForbidden):
        socket.getaddrinfo("example.org", 443)
    with pytest.raises(socket.gaierror):
        socket.getaddrinfo("database.invalid", 27017)


def test_the_loopback_interface_is_in_reach() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname()[:2]).close()


def test_settings_of_the_user_are_ignored(tmp_path: Path) -> None:
    assert not [name for name in os.environ if name.startswith(("EDENMEM_", "OPENAI_"))]
    homes = {Path.home(), Path(os.environ["XDG_CONFIG_HOME"]), Path(os.environ["XDG_DATA_HOME"])}
    assert all(home.is_relative_to(tmp_path.parents[0]) for home in homes)


# -- the language model --------------------------------------------------------------------------


async def test_answers_are_used_in_order_and_validated() -> None:
    llm = FakeLLM({"facts": [{"items": []}, '{"items": [{"number": 1}]}', NONSENSE]})
    answer = await llm.ask(ask_for("facts"))
    assert answer.value == Answer(items=[])
    assert answer.usage[0].task == "facts"
    assert answer.usage[0].input_tokens > 0
    for _ in range(2):
        with pytest.raises(ProviderAnswerInvalid):
            await llm.ask(ask_for("facts"))
    assert llm.tasks == ["facts"] * 3
    with pytest.raises(AssertionError, match="no answer is scripted"):
        await llm.ask(ask_for("facts"))


async def test_errors_functions_and_hanging() -> None:
    llm = FakeLLM({"a": ProviderTimeout("late"), "b": lambda request: {"items": []}, "c": HANG})
    with pytest.raises(ProviderTimeout):
        await llm.ask(ask_for("a"))
    assert (await llm.ask(ask_for("b"))).value.items == []
    hanging = asyncio.ensure_future(llm.ask(ask_for("c")))
    await asyncio.sleep(0.01)
    assert not hanging.done()
    hanging.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hanging


async def test_adversarial_answers_are_valid() -> None:
    items = (await FakeLLM({"facts": ADVERSARIAL}).ask(ask_for("facts"))).value.items
    assert len(items) == 3
    assert items[0].number == 999_999
    assert items[0].text == HOSTILE


async def test_bad_requests_are_refused() -> None:
    llm = FakeLLM({"facts": {"items": []}})
    for user in ("", " \n", "a\x00b"):
        with pytest.raises(AssertionError):
            await llm.ask(ask_for("facts", user=user))
    await llm.close()
    with pytest.raises(AssertionError, match="close"):
        await llm.ask(ask_for("facts"))


# -- the embedder --------------------------------------------------------------------------------


async def test_similar_texts_have_similar_vectors() -> None:
    fake = FakeEmbedder()
    texts = ["Anna lives in Lisbon", "anna LIVES in Lisbon!", "Anna lives in Porto", "Bees hum"]
    vectors = (await fake.embed(texts)).vectors
    assert cosine(vectors[0], vectors[1]) == pytest.approx(1)
    assert 0.5 < cosine(vectors[0], vectors[2]) < 0.95
    assert abs(cosine(vectors[0], vectors[3])) < 0.4
    assert vectors == (await FakeEmbedder().embed(texts)).vectors
    assert vectors != (await FakeEmbedder(model="other").embed(texts)).vectors
    assert fake.calls == [tuple(texts)]


@pytest.mark.parametrize("texts", ["abc", [], [""], [" \n"], [b"a"], ["a"] * 3, ["\ud800"]])
async def test_bad_texts_are_refused(texts: list[str]) -> None:
    with pytest.raises((AssertionError, UnicodeEncodeError)):
        await FakeEmbedder(most_texts=2).embed(texts)


async def test_an_embedder_fails_as_scripted_and_after_close() -> None:
    fake = FakeEmbedder()
    fake.failures = [ProviderTimeout("late")]
    with pytest.raises(ProviderTimeout):
        await fake.embed(["a"])
    await fake.embed(["a"])
    await fake.close()
    with pytest.raises(AssertionError, match="close"):
        await fake.embed(["a"])
