"""Running a sentence model: tokens, inference, pooling. Blocks; belongs in a thread."""

from __future__ import annotations

import numpy as np

from edenmem.embed.model_files import ModelFiles
from edenmem.embed.vectors import unit_vectors
from edenmem.errors import ProviderMisconfigured
from edenmem.onnx.runtime import Numbers, inputs_of, open_session, open_tokenizer


class OnnxRunner:
    """A loaded model.

    Raises:
        ProviderMisconfigured: its files are not what they should be.
    """

    def __init__(self, files: ModelFiles, *, threads: int | None) -> None:
        self._files = files
        failure = ProviderMisconfigured
        self._tokenizer = open_tokenizer(
            files.read_tokenizer(), name=files.name, max_tokens=files.max_tokens, failure=failure
        )
        self._session = open_session(
            files.read_model(), name=files.name, threads=threads, failure=failure
        )
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
        mask = np.array([item.attention_mask for item in encoded], dtype=np.int64)
        (output,) = self._session.run([self._output.name], inputs_of(self._session, encoded))
        vectors = unit_vectors(
            self._pool(output, mask), source=self._files.name, dimensions=self._files.dimensions
        )
        return vectors, int(mask.sum())

    def _pool(self, output: Numbers, mask: Numbers) -> Numbers:
        if output.ndim == 2:
            return output
        if self._files.pooling == "cls":
            pooled: Numbers = output[:, 0]
            return pooled
        weights = mask[..., np.newaxis]
        mean: Numbers = (output * weights).sum(axis=1) / weights.sum(axis=1)
        return mean
