"""An embedding model on this machine: an ONNX graph and its tokenizer, no key and no network."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property

from edenmem.embed.model_files import ModelFiles
from edenmem.embed.onnx_runner import OnnxRunner
from edenmem.embed.protocol import Embedding
from edenmem.embed.vectors import embeddable
from edenmem.models.formation import CallUsage

_BATCH = 32


class LocalEmbedder:
    """An `edenmem.embed.protocol.Embedder`.

    The model is loaded at the first use, in the thread that runs it, so that neither loading nor
    inference holds up the event loop. ``threads`` is for one inference; None is one for each
    processor, four at most.
    """

    def __init__(self, files: ModelFiles, *, threads: int | None = None) -> None:
        self._files = files
        self._threads = threads
        # One worker: two inferences at once would only fight over the same processors.
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="edenmem-embed")

    @property
    def model(self) -> str:
        """The name of the model."""
        return self._files.name

    @property
    def dimensions(self) -> int:
        """Numbers in a vector. Loads a model whose configuration does not say it."""
        known = self._files.dimensions
        # The model is loaded by its own thread alone, so that it is loaded once.
        return known or self._worker.submit(lambda: self._runner.dimensions).result()

    async def embed(self, texts: Sequence[str]) -> Embedding:
        """See the protocol. Texts beyond the model's limit of tokens count by their beginning."""
        wanted = embeddable(texts)
        # Neighbours of like length, so that little is computed for padding.
        order = sorted(range(len(wanted)), key=lambda index: len(wanted[index]))
        vectors = [b""] * len(wanted)
        tokens = 0
        loop = asyncio.get_running_loop()
        for start in range(0, len(order), _BATCH):
            batch = order[start : start + _BATCH]
            made, count = await loop.run_in_executor(
                self._worker, self._run, [wanted[index] for index in batch]
            )
            tokens += count
            for index, vector in zip(batch, made, strict=True):
                vectors[index] = vector
        usage = (CallUsage(task="embed", model=self.model, input_tokens=tokens, cost=0.0),)
        return Embedding(vectors=tuple(vectors), usage=usage if wanted else ())

    async def close(self) -> None:
        """Wait for the inference under way, and let go of the thread."""
        await asyncio.to_thread(self._worker.shutdown, cancel_futures=True)

    def _run(self, texts: list[str]) -> tuple[tuple[bytes, ...], int]:
        return self._runner.run(texts)

    @cached_property
    def _runner(self) -> OnnxRunner:
        return OnnxRunner(self._files, threads=self._threads)
