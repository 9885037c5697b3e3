"""Local cross-encoders: pairs, inference, scores."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Literal

from edenmem.errors import ConfigError
from edenmem.onnx import (
    ModelFolder,
    Worker,
    has_runtime,
    inputs_of,
    open_session,
    open_tokenizer,
)
from edenmem.rerank.protocol import readable, relevances
from edenmem.settings.installation import install_hint
from edenmem.text import one_line

#: Output of a graph: raw logits, or probabilities.
ScoreKind = Literal["logits", "probabilities"]

#: Usual token limit of cross-encoders; some tokenizers have a limit of 10^30.
_MOST_TOKENS = 512
#: Models whose positions start after the padding position.
_OFFSET_MODELS = frozenset({"roberta", "xlm-roberta", "camembert"})
_OFFSET = 2


class PairRunner:
    """A loaded cross-encoder with one score for a pair, or two (of "no" and "yes").

    Raises:
        ConfigError: the files cannot be read or loaded, or are of another kind of model.
    """

    def __init__(
        self, folder: ModelFolder, *, name: str, kind: ScoreKind, threads: int | None
    ) -> None:
        self._name = name
        self._logits = kind == "logits"
        content = folder.read(folder.tokenizer)
        self._tokenizer = open_tokenizer(content, name=name, max_tokens=None, failure=ConfigError)
        self._tokenizer.enable_truncation(_max_tokens(folder, self._tokenizer))
        model = folder.model
        if not model.is_file():
            folder.read(model)  # raises the error
        # By path: large models have their weights in a separate file.
        self._session = open_session(str(model), name=name, threads=threads, failure=ConfigError)
        outputs = self._session.get_outputs()
        named = [item for item in outputs if item.name == "logits"]
        self._output = (named or outputs)[0]
        self._check(self._output.shape)

    def run(self, query: str, documents: list[str]) -> tuple[float, ...]:
        """Return the relevance of each document, from 0 to 1.

        Raises:
            ConfigError: the model rejects the output of its tokenizer.
            ProviderAnswerInvalid: the output of the model is not a score.
        """
        import numpy as np

        encoded = self._tokenizer.encode_batch([(query, document) for document in documents])
        feed = inputs_of(self._session, encoded)
        try:
            (output,) = self._session.run([self._output.name], feed)
        except Exception as error:  # the library raises no narrower kind
            raise ConfigError(
                f"the model of {self._name} cannot read a pair: {one_line(str(error), 200)}",
                hint="model.onnx and tokenizer.json must be of the same model",
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
        """Refuse a shape that no cross-encoder has; unknown dimensions are not integers."""
        last = shape[-1] if len(shape) > 1 else 1
        if len(shape) > 2 or not (last in (1, 2) or not isinstance(last, int)):
            raise ConfigError(
                f"the model of {self._name} is not a cross-encoder: expected one or two scores for"
                f" each pair, got {' × '.join(map(str, shape)) or 'a single number'}",
                hint="search.rerank_path needs a model for sequence classification",
            )


def _max_tokens(folder: ModelFolder, tokenizer: Any) -> int:
    """Return the token limit of a pair: the lowest in the configuration files."""
    limits = [_MOST_TOKENS]
    limits.append(folder.config("tokenizer_config.json").get("model_max_length") or _MOST_TOKENS)
    config = folder.config("config.json")
    positions = config.get("max_position_embeddings")
    if isinstance(positions, int):
        limits.append(positions - _OFFSET * (config.get("model_type") in _OFFSET_MODELS))
    if tokenizer.truncation:
        limits.append(tokenizer.truncation["max_length"])
    return int(min(limit for limit in limits if isinstance(limit, int | float) and limit > 0))


class LocalReranker:
    """An `edenmem.rerank.protocol.Reranker`.

    The folder is checked and the model loaded on first use, in its own thread. ``name`` defaults to
    the name of the folder. ``kind`` is the kind of the graph's output.
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
        self._worker = Worker("rerank")

    @property
    def model(self) -> str:
        """Return the given name, or the name of the folder."""
        return self._name

    async def score(self, query: str, documents: Sequence[str]) -> tuple[float, ...]:
        """See the protocol. Pairs beyond the model's token limit are truncated."""
        asked = readable(query)
        texts = [readable(document) for document in documents]
        return tuple(await self._worker.map(lambda batch: self._runner.run(asked, batch), texts))

    async def close(self) -> None:
        """Wait for the current inference and stop the thread."""
        await self._worker.close(wait=True)

    @cached_property
    def _runner(self) -> PairRunner:
        if not has_runtime():
            raise ConfigError(
                "search.rerank_path needs the runtime of local models, which is not installed",
                hint=install_hint("local"),
            )
        self._folder.check()
        return PairRunner(self._folder, name=self._name, kind=self._kind, threads=self._threads)
