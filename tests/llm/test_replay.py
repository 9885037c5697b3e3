"""Scripted answers, and the recording of real ones in the same form."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from edenmem.errors import InputError, ProviderAnswerInvalid, ReplayMiss
from edenmem.llm.protocol import LLMAnswer, LLMRequest
from edenmem.llm.replay import RecordingLLM, ReplayLLM
from edenmem.models.formation import CallUsage


class Text(BaseModel):
    text: str


def request(task: str = "consolidate", key: str = "user/ada/bo/0") -> LLMRequest[Text]:
    return LLMRequest(task=task, key=key, model="slow-1", system="s", user="u", answer=Text)


def line(key: str = "user/ada/bo/0", text: str = "Bo sails.", **more: Any) -> str:
    return json.dumps({"task": "consolidate", "key": key, "answer": {"text": text}, **more})


class Oracle:
    """A model that says what it is told to say."""

    description = "an oracle"
    is_scripted = False

    def __init__(self, *texts: str) -> None:
        self.texts = list(texts)
        self.closed = False

    async def ask(self, request: LLMRequest[Any]) -> LLMAnswer[Any]:
        usage = CallUsage(task=request.task, model=request.model, input_tokens=3, cost=0.5)
        return LLMAnswer(value=request.answer(text=self.texts.pop(0)), usage=(usage,))

    async def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize(
    "content",
    [
        line() + "\n",
        f"\n{line('x')}\n\n{line()}",
        line(model="gpt", usage=[{"input_tokens": 3}]),
        line("x", "line\u2028separator") + "\n" + line(),
    ],
)
async def test_answers_by_task_and_key(tmp_path: Path, content: str) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text(content, "utf-8")
    llm = ReplayLLM(path)
    for _ in range(2):
        answer = await llm.ask(request())
        assert answer.value == Text(text="Bo sails.")
        assert answer.usage == (), "no call was made"
    assert llm.is_scripted
    assert llm.description == f"Using scripted answers from {path}; no language model is called"


async def test_a_request_without_an_answer_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text(line("user/ada/bo/1"))
    with pytest.raises(ReplayMiss, match="task 'consolidate' of 'user/ada/bo/0'") as caught:
        await ReplayLLM(path).ask(request())
    assert caught.value.hint == "it has: user/ada/bo/1"
    with pytest.raises(ReplayMiss) as caught:
        await ReplayLLM(path).ask(request(task="facts"))
    assert "no task 'facts'" in (caught.value.hint or "")


async def test_an_answer_of_another_shape_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text('{"task": "consolidate", "key": "user/ada/bo/0", "answer": {"txt": "x"}}')
    with pytest.raises(ProviderAnswerInvalid, match="text: Field required"):
        await ReplayLLM(path).ask(request())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (line() + "\n{", "jsonl:2: the line is not valid JSON"),
        ("[1", "not valid JSON"),
        ("[]", "jsonl:1: the line must be a JSON object"),
        (line(kee="x"), "jsonl:1: kee is not a known field"),
        ('{"task": "facts", "answer": {}}', "jsonl:1: key is missing"),
    ],
)
async def test_a_wrong_file_is_named_with_its_line(
    tmp_path: Path, content: str, words: str
) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text(content)
    with pytest.raises(InputError, match=words) as caught:
        await ReplayLLM(path).ask(request())
    assert str(path) in str(caught.value)


async def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        await ReplayLLM(tmp_path / "none").ask(request())
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not UTF-8"):
        await ReplayLLM(binary).ask(request())


async def test_what_was_recorded_can_be_replayed(tmp_path: Path) -> None:
    path = tmp_path / "kept.jsonl"
    oracle = Oracle("Bo sails. Ünïcode \u2028 too", "Cy sings.")
    llm = RecordingLLM(oracle, path)
    first = await llm.ask(request())
    await llm.ask(request(key="user/ada/cy/0"))
    await llm.close()
    assert oracle.closed
    assert first.usage[0].cost == 0.5
    assert not llm.is_scripted
    assert llm.description == f"an oracle, recorded in {path}"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600, "answers tell of people"

    replay = ReplayLLM(path)
    assert (await replay.ask(request())).value == first.value
    assert (await replay.ask(request(key="user/ada/cy/0"))).value.text == "Cy sings."
    kept = json.loads(path.read_text("utf-8").split("\n")[0])
    assert kept["model"] == "slow-1"
    assert kept["usage"][0]["input_tokens"] == 3


async def test_a_request_that_is_tried_again_keeps_the_later_answer(tmp_path: Path) -> None:
    path = tmp_path / "kept.jsonl"
    llm = RecordingLLM(Oracle("first", "other", "second"), path)
    await llm.ask(request())
    await llm.ask(request(key="other"))
    await llm.ask(request())
    assert (await ReplayLLM(path).ask(request())).value.text == "second"
    assert (await ReplayLLM(path).ask(request(key="other"))).value.text == "other"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["kept.jsonl"]  # noqa: PTH208


async def test_a_recording_is_private_and_no_link(tmp_path: Path) -> None:
    """FAILURES 116."""
    path, other = tmp_path / "kept.jsonl", tmp_path / "other"
    path.write_text("")
    path.chmod(0o644)
    await RecordingLLM(Oracle("new"), path).ask(request())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.unlink()
    path.symlink_to(other)
    with pytest.raises(InputError, match="cannot record"):
        await RecordingLLM(Oracle("new"), path).ask(request())
    assert not other.exists()


@pytest.mark.parametrize("before", [line("x"), line("x") + "\n"])
async def test_recording_adds_to_a_file_that_is_there(tmp_path: Path, before: str) -> None:
    path = tmp_path / "kept.jsonl"
    path.write_text(before)
    await RecordingLLM(Oracle("new"), path).ask(request())
    assert (await ReplayLLM(path).ask(request())).value.text == "new"
    assert (await ReplayLLM(path).ask(request(key="x"))).value.text == "Bo sails."


async def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot record into"):
        await RecordingLLM(Oracle("x"), tmp_path / "no" / "folder").ask(request())


def _record(path: Path, worker: int) -> None:
    async def run() -> None:
        llm = RecordingLLM(Oracle(*map(str, range(20))), path)
        for number in range(20):
            await llm.ask(request(key=f"{worker if number % 2 else 'all'}/{number}"))

    asyncio.run(run())


@pytest.mark.slow
def test_several_processes_record_into_one_file(tmp_path: Path) -> None:
    path = tmp_path / "kept.jsonl"
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_record, args=(path, worker)) for worker in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0]
    lines = [json.loads(text) for text in path.read_text().splitlines()]
    assert (len(lines), len({entry["key"] for entry in lines})) == (40, 30)
