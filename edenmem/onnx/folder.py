"""A folder with a transformer model in its usual layout."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

from edenmem.errors import ConfigError


class ModelFolder:
    """A model folder; files are read on demand.

    It has ``model.onnx`` (or a single ``.onnx``), also in the subfolder ``onnx``,
    ``tokenizer.json``, and optional configuration files. ``setting`` is the name of its setting,
    for errors.
    """

    def __init__(self, path: Path, *, setting: str) -> None:
        self.path = path
        self._setting = setting

    @property
    def name(self) -> str:
        """Return the name of the folder."""
        return self.path.resolve().name

    def check(self) -> None:
        """Raise ConfigError if the folder does not exist."""
        if not self.path.is_dir():
            raise ConfigError(f"{self._setting} is not a folder: {str(self.path)!r}")

    @property
    def model(self) -> Path:
        """Return the path of the graph.

        Raises:
            ConfigError: the folder has several graphs, and none is named ``model.onnx``.
        """
        for folder in (self.path, self.path / "onnx"):
            plain = folder / "model.onnx"
            found = [plain] if plain.exists() else sorted(folder.glob("*.onnx"))
            if len(found) > 1:
                raise ConfigError(
                    f"{folder} has {len(found)} models: {', '.join(one.name for one in found)}",
                    hint="rename the right one to model.onnx",
                )
            if found:
                return found[0]
        return self.path / "model.onnx"

    @property
    def tokenizer(self) -> Path:
        """Return the path of the tokenizer."""
        return self.path / "tokenizer.json"

    def read(self, path: Path) -> bytes:
        """Read a file of the folder.

        Raises:
            ConfigError: the file cannot be read.
        """
        try:
            return path.read_bytes()
        except OSError as error:
            raise ConfigError(
                f"cannot read {path}: {error.strerror}",
                hint=f"{self._setting} needs a folder with model.onnx and tokenizer.json",
            ) from error

    def config(self, name: str) -> dict[str, Any]:
        """Read a JSON file of the folder; empty if missing.

        Raises:
            ConfigError: the file cannot be read, or is not JSON.
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
    """Return whether the runtime of local models is installed, without importing it."""
    return all(importlib.util.find_spec(name) for name in ("onnxruntime", "tokenizers"))
