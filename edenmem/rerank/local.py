"""A cross-encoder on this machine: an ONNX graph and its tokenizer, no key and no network."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property

from edenmem.errors import ConfigError
from edenmem.onnx.folder import ModelFolder, has_runtime
from edenmem.rerank.onnx_runner import PairRunner, ScoreKind
from edenmem.rerank.scores import readable

_BATCH = 32


class LocalReranker:
    """An `edenmem.rerank.protocol.Reranker`.

    The folder is looked at and the model loaded at the first use, in the thread that runs it.
    ``name`` is what it is called; empty: as the folder. ``kind`` says what the graph gives.
    """

    def __init__(
        self,
        folder: ModelFolder,
        *,
        name: str = "",
        kind: ScoreKind = "logits",
        threads: int | None = None,
    ) -> None:
        self._folder = folder
        self._name = name or folder.name
        self._kind: ScoreKind = kind
        self._threads = threads
        # One worker: two inferences at once would only fight over the same processors.
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="edenmem-rerank")

    @property
    def model(self) -> str:
        """The name that was given to it, or the folder's."""
        return self._name

    async def score(self, query: str, documents: Sequence[str]) -> tuple[float, ...]:
        """See the protocol. Pairs beyond the model's limit of tokens count by their beginning."""
        asked = readable(query)
        texts = [readable(document) for document in documents]
        # Neighbours of like length, so that little is computed for padding.
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        scores = [0.0] * len(texts)
        loop = asyncio.get_running_loop()
        for start in range(0, len(order), _BATCH):
            batch = order[start : start + _BATCH]
            made = await loop.run_in_executor(
                self._worker, self._run, asked, [texts[index] for index in batch]
            )
            for index, score in zip(batch, made, strict=True):
                scores[index] = score
        return tuple(scores)

    async def close(self) -> None:
        """Wait for the inference under way, and let go of the thread."""
        await asyncio.to_thread(self._worker.shutdown, cancel_futures=True)

    def _run(self, query: str, documents: list[str]) -> tuple[float, ...]:
        return self._runner.run(query, documents)

    @cached_property
    def _runner(self) -> PairRunner:
        if not has_runtime():
            raise ConfigError(
                "search.rerank_path names a local model, and what runs it is not installed",
                hint='pip install "edenmem[local]"',
            )
        self._folder.check()
        return PairRunner(self._folder, name=self._name, kind=self._kind, threads=self._threads)
