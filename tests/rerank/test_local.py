"""A cross-encoder on this machine: a real graph, a real tokenizer, scores worked out by hand."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from edenmem.errors import ConfigError, ProviderAnswerInvalid
from edenmem.onnx import ModelFolder
from edenmem.rerank.local import LocalReranker
from edenmem.settings.installation import install_hint
from tests.support.builders import some
from tests.support.cross_encoder import Output, cross_encoder, relevance

pytest.importorskip("onnxruntime")

QUERY = "What is the name of the grey cat"
DOCUMENTS = ["Ben prefers tea.", "Anna has a grey cat called Miso.", "A cat!"]
SHARED = [0, 2, 1]

Open = Callable[..., LocalReranker]


@pytest.fixture
async def reranker(tmp_path: Path) -> AsyncIterator[Open]:
    """A function from a folder to a reranker that is closed afterwards."""
    opened: list[LocalReranker] = []

    def open_one(folder: Path, **options: Any) -> LocalReranker:
        named = ModelFolder(folder, setting="search.rerank_path")
        opened.append(LocalReranker(named, threads=1, **options))
        return opened[-1]

    yield open_one
    for one in opened:
        await one.close()


def by_hand() -> list[Any]:
    return [pytest.approx(relevance(shared), abs=1e-6) for shared in SHARED]


@pytest.mark.parametrize("output", ["one", "flat", "two"])
async def test_scores_are_those_worked_out_by_hand(
    tmp_path: Path, reranker: Open, output: Output
) -> None:
    local = reranker(cross_encoder(tmp_path / "tiny", output=output))
    assert list(await local.score(QUERY, DOCUMENTS)) == by_hand()


async def test_a_graph_that_wants_no_types_gets_none(tmp_path: Path, reranker: Open) -> None:
    local = reranker(cross_encoder(tmp_path / "tiny", types=False))
    scores = await local.score("grey cat", DOCUMENTS)
    assert list(scores) == by_hand()


async def test_probabilities_are_taken_as_they_are(tmp_path: Path, reranker: Open) -> None:
    folder = cross_encoder(tmp_path / "tiny", output="probability")
    local = reranker(folder, kind="probabilities")
    assert list(await local.score(QUERY, DOCUMENTS)) == by_hand()
    logits = reranker(cross_encoder(tmp_path / "other"), kind="probabilities")
    with pytest.raises(ProviderAnswerInvalid, match="outside 0 to 1") as caught:
        await logits.score(QUERY, DOCUMENTS)
    assert "rerank_scores" in (caught.value.hint or "")


async def test_many_of_different_lengths_come_back_in_order(tmp_path: Path, reranker: Open) -> None:
    local = reranker(cross_encoder(tmp_path / "tiny"))
    shared = [number % 4 for number in range(100)]
    documents = ["cat " * number + "lanterns " * (number * 7 % 30 + 1) for number in shared]
    scores = await local.score("cat", documents)
    assert list(scores) == [pytest.approx(relevance(number), abs=1e-6) for number in shared]
    assert await local.score("cat", []) == ()


@pytest.mark.parametrize(
    ("files", "shared"),
    [
        ({}, 4),
        ({"config.json": '{"max_position_embeddings": 6}'}, 2),
        ({"config.json": '{"max_position_embeddings": 8, "model_type": "xlm-roberta"}'}, 2),
        ({"tokenizer_config.json": '{"model_max_length": 7}'}, 3),
        ({"tokenizer_config.json": '{"model_max_length": 1000000000000000019884624838656}'}, 4),
    ],
)
async def test_pairs_are_cut_at_the_models_limit(
    tmp_path: Path, reranker: Open, files: dict[str, str], shared: int
) -> None:
    """[CLS] cat [SEP] cat cat … [SEP] in so many tokens."""
    folder = cross_encoder(tmp_path / "tiny")
    for name, content in files.items():
        (folder / name).write_text(content)
    (score,) = await reranker(folder).score("cat", ["cat cat cat cat"])
    assert score == pytest.approx(relevance(shared), abs=1e-6)


async def test_no_text_is_too_long_or_too_strange(tmp_path: Path, reranker: Open) -> None:
    local = reranker(cross_encoder(tmp_path / "tiny"))
    strange = ["", "\x00", "\ud83d", "cat " * 200_000, "\U0001f469\u200d\U0001f467 cat"]
    scores = await local.score("cat \udc00", strange)
    assert all(0.0 <= score <= 1.0 for score in scores)
    assert scores[0] == pytest.approx(relevance(0), abs=1e-6)
    assert scores[4] == pytest.approx(relevance(1), abs=1e-6)


async def test_its_name_is_the_folders_or_the_one_given(tmp_path: Path, reranker: Open) -> None:
    folder = cross_encoder(tmp_path / "ms-marco-tiny")
    assert reranker(folder).model == "ms-marco-tiny"
    assert reranker(folder, name="mine").model == "mine"


@pytest.mark.parametrize(
    "place", ["onnx/model.onnx", "model_quantized.onnx", "onnx/model_int8.onnx"]
)
async def test_the_only_model_of_a_folder_is_found(
    tmp_path: Path, reranker: Open, place: str
) -> None:
    folder = cross_encoder(tmp_path / "tiny")
    (folder / place).parent.mkdir(exist_ok=True)
    (folder / "model.onnx").rename(folder / place)
    assert list(await reranker(folder).score(QUERY, DOCUMENTS)) == by_hand()


async def test_several_models_without_a_name_are_a_question(tmp_path: Path, reranker: Open) -> None:
    folder = cross_encoder(tmp_path / "tiny")
    (folder / "model.onnx").rename(folder / "a.onnx")
    (folder / "b.onnx").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"2 models: a\.onnx, b\.onnx"):
        await reranker(folder).score(QUERY, DOCUMENTS)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("model.onnx", b"not a model", "the model of tiny cannot be loaded"),
        ("tokenizer.json", b"{}", "the tokenizer of tiny cannot be loaded"),
        ("config.json", b"{", "config.json is not valid JSON"),
        ("model.onnx", None, "cannot read .*model.onnx"),
        ("tokenizer.json", None, "cannot read .*tokenizer.json"),
    ],
)
async def test_a_broken_folder_is_said(
    tmp_path: Path, reranker: Open, name: str, content: bytes | None, words: str
) -> None:
    folder = cross_encoder(tmp_path / "tiny")
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content)
    with pytest.raises(ConfigError, match=words):
        await reranker(folder).score(QUERY, DOCUMENTS)


async def test_no_folder(tmp_path: Path, reranker: Open) -> None:
    local = reranker(tmp_path / "none")
    assert local.model == "none", "nobody looks before it is used"
    with pytest.raises(ConfigError, match=r"search\.rerank_path is not a folder: '.*none'"):
        await local.score(QUERY, DOCUMENTS)


@pytest.mark.parametrize(("output", "shape"), [("three", "b × 3"), ("tokens", "b × n × n")])
async def test_a_model_of_another_kind_is_refused(
    tmp_path: Path, reranker: Open, output: Output, shape: str
) -> None:
    local = reranker(cross_encoder(tmp_path / "tiny", output=output))
    with pytest.raises(ConfigError, match="is not a cross-encoder") as caught:
        await local.score(QUERY, DOCUMENTS)
    assert shape in str(caught.value)


@pytest.mark.slow
async def test_the_sentence_model_of_the_wheel_is_not_a_cross_encoder(
    tmp_path: Path, reranker: Open
) -> None:
    from edenmem.embed.model_files import find_bundled_model

    files = some(find_bundled_model())
    (tmp_path / "model.onnx").symlink_to(files._model)
    (tmp_path / "tokenizer.json").symlink_to(files._tokenizer)
    with pytest.raises(ConfigError, match="is not a cross-encoder"):
        await reranker(tmp_path).score(QUERY, DOCUMENTS)


async def test_a_tokenizer_of_another_model_is_said(tmp_path: Path, reranker: Open) -> None:
    local = reranker(cross_encoder(tmp_path / "tiny", output="small"))
    with pytest.raises(ConfigError, match="the model of tiny cannot read a pair") as caught:
        await local.score(QUERY, DOCUMENTS)
    assert "of the same model" in (caught.value.hint or "")


async def test_a_score_that_is_not_a_number_is_an_error(tmp_path: Path, reranker: Open) -> None:
    local = reranker(cross_encoder(tmp_path / "tiny", output="nan"))
    with pytest.raises(ProviderAnswerInvalid, match="not a finite number"):
        await local.score(QUERY, DOCUMENTS)


async def test_the_model_is_loaded_once_and_never_in_the_event_loops_thread(
    tmp_path: Path, reranker: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []
    read = ModelFolder.read

    def watched(self: ModelFolder, path: Path) -> bytes:
        threads.append(threading.current_thread())
        return read(self, path)

    monkeypatch.setattr(ModelFolder, "read", watched)
    local = reranker(cross_encoder(tmp_path / "tiny"))
    scored = await asyncio.gather(*(local.score(QUERY, DOCUMENTS) for _ in range(3)))
    assert [list(scores) for scores in scored] == [by_hand()] * 3
    assert len(threads) == 1
    assert threads[0] is not threading.current_thread()


@pytest.mark.slow
def test_nothing_heavy_is_imported_to_look(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from edenmem.engine.factory import open_reranker\n"
        "from edenmem.settings.schema import SearchSettings, Settings\n"
        "reranker = open_reranker(Settings(search=SearchSettings(rerank_path='/x/tiny')))\n"
        "assert reranker.model == 'tiny'\n"
        "print({'numpy', 'onnxruntime', 'tokenizers', 'openai'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


async def test_without_the_extra_it_says_what_to_install(
    tmp_path: Path, reranker: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edenmem.rerank.local.has_runtime", lambda: False)
    with pytest.raises(ConfigError, match="not installed") as caught:
        await reranker(cross_encoder(tmp_path / "tiny")).score(QUERY, DOCUMENTS)
    assert install_hint("local") in (caught.value.hint or "")
