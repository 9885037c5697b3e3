"""Running a cross-encoder: pairs, inference, a score for each. Blocks; belongs in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, Literal

from edenmem.errors import ConfigError
from edenmem.onnx.folder import ModelFolder, has_runtime
from edenmem.rerank.scores import readable, relevances
from edenmem.text import one_line

#: What a graph gives: raw logits, or what is a probability already.
ScoreKind = Literal["logits", "probabilities"]

#: Cross-encoders are trained on so many; some tokenizers name a limit of 10^30 instead of theirs.
_MOST_TOKENS = 512
#: Positions of these models begin after that of their padding.
_OFFSET_MODELS = frozenset({"roberta", "xlm-roberta", "camembert"})
_OFFSET = 2


class PairRunner:
    """A loaded cross-encoder with one score for a pair, or two (of "no" and "yes").

    Raises:
        ConfigError: its files cannot be read or loaded, or are of another kind of model.
    """

    def __init__(
        self, folder: ModelFolder, *, name: str, kind: ScoreKind, threads: int | None
    ) -> None:
        # Imported here: numpy and the runtime are needed by nobody who does not rerank.
        from edenmem.onnx.runtime import open_session, open_tokenizer

        self._name = name
        self._logits = kind == "logits"
        content = folder.read(folder.tokenizer)
        self._tokenizer = open_tokenizer(content, name=name, max_tokens=None, failure=ConfigError)
        self._tokenizer.enable_truncation(_max_tokens(folder, self._tokenizer))
        model = folder.model
        if not model.is_file():
            folder.read(model)  # says what is missing
        # By its path: large models keep their weights in a file beside the graph.
        self._session = open_session(str(model), name=name, threads=threads, failure=ConfigError)
        outputs = self._session.get_outputs()
        named = [item for item in outputs if item.name == "logits"]
        self._output = (named or outputs)[0]
        self._check(self._output.shape)

    def run(self, query: str, documents: list[str]) -> tuple[float, ...]:
        """The relevance of each document, from 0 to 1.

        Raises:
            ConfigError: the model does not take what its tokenizer makes.
            ProviderAnswerInvalid: it gave something that is no score.
        """
        import numpy as np

        from edenmem.onnx.runtime import inputs_of

        encoded = self._tokenizer.encode_batch([(query, document) for document in documents])
        feed = inputs_of(self._session, encoded)
        try:
            (output,) = self._session.run([self._output.name], feed)
        except Exception as error:  # the library raises no narrower kind
            raise ConfigError(
                f"the model of {self._name} cannot read a pair: {one_line(str(error), 200)}",
                hint="are its model.onnx and its tokenizer.json of the same model?",
            ) from error
        self._check(output.shape)
        rows = np.asarray(output, dtype=np.float64).reshape(len(documents), -1)
        if rows.shape[1] == 1:
            numbers = rows[:, 0]
        elif self._logits:
            # softmax of two logits is the logistic function of their difference
            numbers = rows[:, 1] - rows[:, 0]
        else:
            numbers = rows[:, 1]
        return relevances(numbers.tolist(), logits=self._logits, source=self._name)

    def _check(self, shape: Any) -> None:
        """Refuse what no cross-encoder gives; a dimension that is not known is no number."""
        last = shape[-1] if len(shape) > 1 else 1
        if len(shape) > 2 or not (last in (1, 2) or not isinstance(last, int)):
            raise ConfigError(
                f"the model of {self._name} is no cross-encoder: one gives a score for each pair"
                f" (or two), this one gives {_format_shape(shape)}",
                hint="search.rerank_path names a folder with a model for sequence classification",
            )


def _format_shape(shape: Any) -> str:
    return " × ".join(str(size) for size in shape) or "a single number"


def _max_tokens(folder: ModelFolder, tokenizer: Any) -> int:
    """Where pairs are cut: the least of what the files beside the model say."""
    limits = [_MOST_TOKENS]
    limits.append(folder.config("tokenizer_config.json").get("model_max_length") or _MOST_TOKENS)
    config = folder.config("config.json")
    positions = config.get("max_position_embeddings")
    if isinstance(positions, int):
        limits.append(positions - _OFFSET * (config.get("model_type") in _OFFSET_MODELS))
    if tokenizer.truncation:
        limits.append(tokenizer.truncation["max_length"])
    return int(min(limit for limit in limits if isinstance(limit, int | float) and limit > 0))


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
