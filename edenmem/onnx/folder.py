"""A folder with a model in it, as libraries of transformers leave them."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

from edenmem.errors import ConfigError


class ModelFolder:
    """``model.onnx`` (or the only ``.onnx`` there is), here or in the folder ``onnx``;
    ``tokenizer.json``; and configurations that may be there.

    ``setting`` is the one that named it, for messages. Nothing is read before it is asked for.
    """

    def __init__(self, path: Path, *, setting: str) -> None:
        self.path = path
        self._setting = setting

    @property
    def name(self) -> str:
        """The folder's own name."""
        return self.path.resolve().name

    def check(self) -> None:
        """Raise ConfigError if there is no such folder."""
        if not self.path.is_dir():
            raise ConfigError(f"{self._setting} {str(self.path)!r} is not a folder")

    @property
    def model(self) -> Path:
        """Where the graph is.

        Raises:
            ConfigError: there are several, and none is called ``model.onnx``.
        """
        for folder in (self.path, self.path / "onnx"):
            plain = folder / "model.onnx"
            found = [plain] if plain.exists() else sorted(folder.glob("*.onnx"))
            if len(found) > 1:
                raise ConfigError(
                    f"{folder} has {len(found)} models: {', '.join(one.name for one in found)}",
                    hint="name the one that is meant model.onnx",
                )
            if found:
                return found[0]
        return self.path / "model.onnx"

    @property
    def tokenizer(self) -> Path:
        """Where the tokenizer is."""
        return self.path / "tokenizer.json"

    def read(self, path: Path) -> bytes:
        """The content of one of its files.

        Raises:
            ConfigError: it cannot be read.
        """
        try:
            return path.read_bytes()
        except OSError as error:
            raise ConfigError(
                f"cannot read {path}: {error.strerror}",
                hint=f"{self._setting} names a folder with model.onnx and tokenizer.json",
            ) from error

    def config(self, name: str) -> dict[str, Any]:
        """A JSON file beside the model; empty if there is none.

        Raises:
            ConfigError: it cannot be read, or is not JSON.
        """
        path = self.path / name
        if not path.exists():
            return {}
        try:
            config = json.loads(self.read(path))
        except ValueError as error:
            raise ConfigError(f"{path} is not valid JSON: {error}") from error
        return config if isinstance(config, dict) else {}


def has_runtime() -> bool:
    """Whether what runs a local model is installed (looked for, not imported)."""
    return all(importlib.util.find_spec(name) for name in ("onnxruntime", "tokenizers"))
