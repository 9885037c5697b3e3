"""Running a sentence model: tokens, inference, pooling. Blocks; belongs in a thread."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from edenmem.embed.model_files import ModelFiles
from edenmem.embed.vectors import unit_vectors
from edenmem.errors import ProviderMisconfigured

Numbers = npt.NDArray[Any]


class OnnxRunner:
    """A loaded model.

    Raises:
        ProviderMisconfigured: its files are not what they should be.
    """

    def __init__(self, files: ModelFiles, *, threads: int) -> None:
        self._files = files
        self._tokenizer = _tokenizer(files)
        self._session = _session(files, threads)
        self._inputs = {item.name for item in self._session.get_inputs()}
        outputs = self._session.get_outputs()
        # Some exports pool by themselves and say so.
        pooled = [item for item in outputs if item.name == "sentence_embedding"]
        self._output = (pooled or outputs)[0]

    @property
    def dimensions(self) -> int:
        """Numbers in a vector."""
        last = self._output.shape[-1]
        return last if isinstance(last, int) else len(self.run(["a"])[0][0]) // 4

    def run(self, texts: list[str]) -> tuple[tuple[bytes, ...], int]:
        """A unit vector for each text, and the number of tokens read."""
        encoded = self._tokenizer.encode_batch(texts)
        ids = np.array([item.ids for item in encoded], dtype=np.int64)
        mask = np.array([item.attention_mask for item in encoded], dtype=np.int64)
        feed = {
            "input_ids": ids,
            "attention_mask": mask,
            "token_type_ids": np.zeros_like(ids),
        }
        (output,) = self._session.run(
            [self._output.name], {name: feed[name] for name in self._inputs}
        )
        vectors = unit_vectors(
            self._pooled(output, mask), source=self._files.name, dimensions=self._files.dimensions
        )
        return vectors, int(mask.sum())

    def _pooled(self, output: Numbers, mask: Numbers) -> Numbers:
        if output.ndim == 2:
            return output
        if self._files.pooling == "cls":
            pooled: Numbers = output[:, 0]
            return pooled
        weights = mask[..., np.newaxis]
        mean: Numbers = (output * weights).sum(axis=1) / weights.sum(axis=1)
        return mean


def _tokenizer(files: ModelFiles) -> Any:
    from tokenizers import Tokenizer

    content = files.read_tokenizer()
    try:
        tokenizer = Tokenizer.from_buffer(content)
    except Exception as error:  # the library raises no narrower kind
        raise ProviderMisconfigured(
            f"the tokenizer of {files.name} cannot be loaded: {error}"
        ) from error
    # The file pads every text to the same length; we pad to the longest of a batch.
    padding = tokenizer.padding or {}
    tokenizer.enable_padding(
        pad_id=padding.get("pad_id", 0), pad_token=padding.get("pad_token", "[PAD]")
    )
    tokenizer.enable_truncation(files.max_tokens)
    return tokenizer


def _session(files: ModelFiles, threads: int) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Waiting threads sleep: this is a guest in an agent's process.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    content = files.read_model()
    try:
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the library raises no narrower kind
        raise ProviderMisconfigured(
            f"the model of {files.name} cannot be loaded: {error}"
        ) from error
    unknown = {item.name for item in session.get_inputs()} - {
        "input_ids",
        "attention_mask",
        "token_type_ids",
    }
    if unknown:
        raise ProviderMisconfigured(
            f"the model of {files.name} wants inputs that no sentence model has:"
            f" {', '.join(sorted(unknown))}"
        )
    return session
