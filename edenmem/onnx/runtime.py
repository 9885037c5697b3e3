"""Tokenizers and graphs. Blocks; run in a thread."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from edenmem.errors import EdenmemError

Numbers = npt.NDArray[Any]

_MOST_THREADS = 4
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
    model: bytes | str, *, name: str, threads: int | None, failure: type[EdenmemError]
) -> Any:
    """Load the graph of the model ``name`` from its content, or a path with separate weights.

    ``threads`` is the number per inference; None is one per processor, at most four. Raises
    ``failure`` if the graph cannot be loaded, or is not for text.
    """
    onnxruntime = _import_onnxruntime()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or min(_MOST_THREADS, os.cpu_count() or 1)
    options.inter_op_num_threads = 1
    # No spinning: the model runs in the agent's process.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
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
