"""Local embedding models, without a key or network."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from edenmem.embed.model_files import ModelFiles
from edenmem.embed.protocol import Embedding, Role
from edenmem.errors import ProviderMisconfigured
from edenmem.models.formation import CallUsage
from edenmem.onnx import Worker, inputs_of, open_session, open_tokenizer

if TYPE_CHECKING:
    from edenmem.embed.e5 import E5Files, E5Runner
    from edenmem.onnx import Numbers


class LocalEmbedder:
    """An `edenmem.embed.protocol.Embedder`.

    The model is loaded on first use, in its own thread, so that neither loading nor inference
    blocks the event loop; numpy is imported then, too. ``threads`` is the number per inference;
    None is one per processor, at most four. ``cache`` is a folder for what loads faster the next
    time.
    """

    def __init__(
        self,
        files: ModelFiles | E5Files,
        *,
        threads: int | None = None,
        cache: Path | None = None,
    ) -> None:
        self._files = files
        self._threads = threads
        self._cache = cache
        self._worker = Worker("embed")

    @property
    def model(self) -> str:
        """Return the name of the model."""
        return self._files.name

    @property
    def dimensions(self) -> int:
        """Return the length of a vector. Loads the model if its configuration does not say."""
        if known := self._files.dimensions:
            return known
        # Only the model's own thread loads it, so it is loaded once.
        return self._worker.run(lambda: len(self._runner.run(["a"], role="passage")[0][0]) // 4)

    async def embed(self, texts: Sequence[str], *, role: Role = "passage") -> Embedding:
        """See the protocol. Texts beyond the model's token limit are truncated."""
        from edenmem.embed.vectors import embeddable

        wanted, tokens = embeddable(texts), 0

        def run(batch: list[str]) -> tuple[bytes, ...]:
            nonlocal tokens
            vectors, count = self._runner.run(batch, role=role)
            tokens += count
            return vectors

        vectors = await self._worker.map(run, wanted)
        usage = (CallUsage(task="embed", model=self.model, input_tokens=tokens, cost=0.0),)
        return Embedding(vectors=tuple(vectors), usage=usage if wanted else ())

    async def close(self) -> None:
        """Wait for the current inference and stop the thread."""
        await self._worker.close(wait="_runner" in vars(self))

    @cached_property
    def _runner(self) -> OnnxRunner | E5Runner:
        if not isinstance(self._files, ModelFiles):
            from edenmem.embed.e5 import E5Runner

            return E5Runner(self._files, threads=self._threads)
        return OnnxRunner(self._files, threads=self._threads, cache=self._cache)


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
        import numpy as np

        from edenmem.embed.vectors import unit_vectors

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
        weights = mask[..., None]
        mean: Numbers = (output * weights).sum(axis=1) / weights.sum(axis=1)
        return mean
