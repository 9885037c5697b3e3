"""A local embedding model as an ONNX graph. Loads numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from edenmem.embed.model_files import ModelFiles
from edenmem.embed.protocol import Role
from edenmem.embed.vectors import unit_vectors
from edenmem.errors import ProviderMisconfigured
from edenmem.onnx.runtime import Numbers, inputs_of, open_session, open_tokenizer


class OnnxRunner:
    """A loaded ONNX graph and its tokenizer.

    ``cache`` is the folder for the optimized graph of a model with a known hash; None: none.

    Raises:
        ProviderMisconfigured: a file is invalid or has an unknown hash.
    """

    def __init__(self, files: ModelFiles, *, threads: int | None, cache: Path | None) -> None:
        self._files = files
        failure = ProviderMisconfigured
        self._tokenizer = open_tokenizer(
            files.read_tokenizer(), name=files.name, max_tokens=files.max_tokens, failure=failure
        )
        self._session = open_session(
            files.read_model,
            name=files.name,
            threads=threads,
            failure=failure,
            saved=cache / f"{files.name}-{files.digest[:16]}" if cache and files.digest else None,
        )
        outputs = self._session.get_outputs()
        # Some exports include pooling, with this output name.
        pooled = [item for item in outputs if item.name == "sentence_embedding"]
        self._output = (pooled or outputs)[0]

    def run(self, texts: list[str], *, role: Role) -> tuple[tuple[bytes, ...], int]:
        """Return a unit vector for each text, and the number of tokens read; ignores the role."""
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
