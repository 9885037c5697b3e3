"""Local ONNX models, for embedding and reranking: folders, tokenizers and graphs.

Reading files, loading and computing block; they run in the thread of a `Worker`.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from edenmem.errors import ConfigError, EdenmemError

if TYPE_CHECKING:
    import numpy.typing as npt

    Numbers = npt.NDArray[Any]

T = TypeVar("T")

_log = logging.getLogger("edenmem.onnx")

_MOST_THREADS = 4
#: Texts in one batch.
_BATCH = 32
#: The name of a saved graph.
_GRAPH = "model.onnx"
#: Saves the weights of a graph in a file of their own.
_SEPARATE_WEIGHTS = {
    "session.optimized_model_external_initializers_file_name": "weights.bin",
    "session.optimized_model_external_initializers_min_size_in_bytes": "1024",
}
#: Usual names of the padding token.
_PADDING_TOKENS = ("[PAD]", "<pad>")


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


class Worker:
    """The thread of one model, in batches of texts of similar length, which need little padding.

    Parallel inferences would compete for the same processors.
    """

    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"edenmem-{name}")

    def run(self, work: Callable[[], T]) -> T:
        """Return the result of work in the thread; blocks."""
        return self._thread.submit(work).result()

    async def map(self, work: Callable[[list[str]], Sequence[T]], texts: Sequence[str]) -> list[T]:
        """Return the results for the texts of work on batches."""
        import asyncio

        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        results: dict[int, T] = {}
        loop = asyncio.get_running_loop()
        for start in range(0, len(order), _BATCH):
            batch = order[start : start + _BATCH]
            made = await loop.run_in_executor(self._thread, work, [texts[index] for index in batch])
            results.update(zip(batch, made, strict=True))
        return [results[index] for index in range(len(texts))]

    async def close(self, *, wait: bool) -> None:
        """Stop the thread, after the current inference if there may be one."""
        if wait:
            import asyncio

            await asyncio.to_thread(self._thread.shutdown, cancel_futures=True)
        else:
            self._thread.shutdown(wait=False, cancel_futures=True)


def open_tokenizer(
    content: bytes, *, name: str, max_tokens: int | None, failure: type[EdenmemError]
) -> Any:
    """Load the tokenizer of the model ``name``; it pads to the longest text of a batch.

    ``max_tokens`` is where texts are truncated; None is the limit in the file. Raises ``failure``
    if the tokenizer cannot be loaded.
    """
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_buffer(content)
    except Exception as error:  # the library raises no narrower kind
        raise failure(f"the tokenizer of {name} cannot be loaded: {error}") from error
    padding = tokenizer.padding or _padding(tokenizer)
    tokenizer.enable_padding(
        pad_id=padding.get("pad_id", 0), pad_token=padding.get("pad_token", _PADDING_TOKENS[0])
    )
    if max_tokens is not None:
        tokenizer.enable_truncation(max_tokens)
    return tokenizer


def _padding(tokenizer: Any) -> dict[str, Any]:
    for token in _PADDING_TOKENS:
        number = tokenizer.token_to_id(token)
        if number is not None:
            return {"pad_id": number, "pad_token": token}
    return {}


def open_session(
    model: Callable[[], bytes] | str,
    *,
    name: str,
    threads: int | None,
    failure: type[EdenmemError],
    saved: Path | None = None,
) -> Any:
    """Load the graph of the model ``name``.

    Args:
        model: Returns the content of the graph; or its path, with separate weights.
        name: The name of the model, for errors.
        threads: The number per inference; None is one per processor, at most four.
        failure: Raised if the graph cannot be loaded, or is not for text.
        saved: The folder of the optimized graph, saved on first use. Its weights are mapped, not
            read, so a new process loads it in a fraction of the time.
    """
    onnxruntime = _import_onnxruntime()
    session = None if saved is None else _open_saved(onnxruntime, model, threads, saved)
    if session is None:
        content = model() if callable(model) else model
        try:
            session = _session(onnxruntime, content, _options(onnxruntime, threads))
        except Exception as error:  # the library raises no narrower kind
            raise failure(f"the model of {name} cannot be loaded: {error}") from error
    unknown = {item.name for item in session.get_inputs()} - {
        "input_ids",
        "attention_mask",
        "token_type_ids",
    }
    if unknown:
        raise failure(f"the model of {name} has unknown inputs: {', '.join(sorted(unknown))}")
    return session


def _options(onnxruntime: Any, threads: int | None) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or min(_MOST_THREADS, os.cpu_count() or 1)
    options.inter_op_num_threads = 1
    # No spinning: the model runs in the agent's process.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    return options


def _session(onnxruntime: Any, graph: bytes | str, options: Any) -> Any:
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def _open_saved(
    onnxruntime: Any, model: Callable[[], bytes] | str, threads: int | None, saved: Path
) -> Any | None:
    """Load the optimized graph of this version of the library; save it first if necessary.

    Returns None if it can be neither loaded nor saved.
    """
    import shutil
    from tempfile import TemporaryDirectory

    folder = saved.with_name(f"{saved.name}-{onnxruntime.__version__}")
    levels = onnxruntime.GraphOptimizationLevel
    if not folder.exists():
        content = model() if callable(model) else model
        options = _options(onnxruntime, threads)
        options.graph_optimization_level = levels.ORT_ENABLE_EXTENDED  # fits any processor
        for key, value in _SEPARATE_WEIGHTS.items():
            options.add_session_config_entry(key, value)
        try:
            folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with TemporaryDirectory(dir=folder.parent) as scratch:
                made = Path(scratch, folder.name)
                made.mkdir(mode=0o700)
                options.optimized_model_filepath = str(made / _GRAPH)
                _session(onnxruntime, content, options)
                made.rename(folder)
        except Exception as error:  # noqa: BLE001 - the library raises no narrower kind
            _log.debug("the graph cannot be saved in %s: %s", folder, error)
            return None
    options = _options(onnxruntime, threads)
    options.graph_optimization_level = levels.ORT_DISABLE_ALL
    options.add_session_config_entry("session.disable_prepacking", "1")  # it copies the weights
    try:
        return _session(onnxruntime, str(folder / _GRAPH), options)
    except Exception as error:  # noqa: BLE001 - as above
        _log.debug("the graph in %s is damaged, and saved again the next time: %s", folder, error)
        shutil.rmtree(folder, ignore_errors=True)
        return None


def _import_onnxruntime() -> Any:
    """Import onnxruntime with its telemetry off: it reports to its maker by default since 1.32."""
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # read once, when the library is loaded
    import onnxruntime

    return onnxruntime


def inputs_of(session: Any, encoded: Sequence[Any]) -> dict[str, Numbers]:
    """Return the inputs of the graph for a tokenized batch."""
    feed = {
        "input_ids": [item.ids for item in encoded],
        "attention_mask": [item.attention_mask for item in encoded],
        "token_type_ids": [item.type_ids for item in encoded],
    }
    import numpy as np

    wanted = [item.name for item in session.get_inputs()]
    return {name: np.array(feed[name], dtype=np.int64) for name in wanted}
