"""Loading tokenizers and graphs. Blocks; belongs in a thread."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from edenmem.errors import EdenmemError

Numbers = npt.NDArray[Any]

_MOST_THREADS = 4
#: What transformers call the tokens that fill up a batch.
_PADDING_TOKENS = ("[PAD]", "<pad>")


def open_tokenizer(
    content: bytes, *, name: str, max_tokens: int | None, failure: type[EdenmemError]
) -> Any:
    """The tokenizer of the model ``name``; it pads to the longest of a batch, not more.

    ``max_tokens`` is where texts are cut; None leaves it as the file has it. Raises ``failure``
    if it cannot be loaded.
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
    """The graph of the model ``name``, from its content, or from a path if its weights may be in a
    file beside it. ``threads`` is for one inference; None is one for each processor, four at most.

    Raises ``failure`` if it cannot be loaded, or is not for text.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or min(_MOST_THREADS, os.cpu_count() or 1)
    options.inter_op_num_threads = 1
    # Waiting threads sleep: this is a guest in an agent's process.
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
        raise failure(
            f"the model of {name} wants inputs that no text has: {', '.join(sorted(unknown))}"
        )
    return session


def inputs_of(session: Any, encoded: Sequence[Any]) -> dict[str, Numbers]:
    """What the graph wants of a batch that its tokenizer made."""
    feed = {
        "input_ids": [item.ids for item in encoded],
        "attention_mask": [item.attention_mask for item in encoded],
        "token_type_ids": [item.type_ids for item in encoded],
    }
    wanted = [item.name for item in session.get_inputs()]
    return {name: np.array(feed[name], dtype=np.int64) for name in wanted}
