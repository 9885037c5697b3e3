"""Tokenizers and graphs. Blocks; run in a thread."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt

from edenmem.errors import EdenmemError

Numbers = npt.NDArray[Any]

_log = logging.getLogger("edenmem.onnx")

_MOST_THREADS = 4
#: The name of a saved graph.
_GRAPH = "model.onnx"
#: Saves the weights of a graph in a file of their own.
_SEPARATE_WEIGHTS = {
    "session.optimized_model_external_initializers_file_name": "weights.bin",
    "session.optimized_model_external_initializers_min_size_in_bytes": "1024",
}
#: Usual names of the padding token.
_PADDING_TOKENS = ("[PAD]", "<pad>")


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
    wanted = [item.name for item in session.get_inputs()]
    return {name: np.array(feed[name], dtype=np.int64) for name in wanted}
