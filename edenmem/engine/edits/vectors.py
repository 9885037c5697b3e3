"""Vectors for the texts of edits, which block, from the asynchronous embedding model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from edenmem.engine.embeddings.status import misfit_notice
from edenmem.engine.runtime.concurrency import in_thread
from edenmem.engine.runtime.runtime import Runtime
from edenmem.errors import ProviderError, UsageError

WITHOUT_VECTOR = (
    "store the fact without a vector with --set embedding.provider=none, "
    "and run 'edenmem embed backfill' later"
)
NO_VECTOR = (
    "stored without a vector, so only text search finds the fact; "
    "run 'edenmem embed backfill' when an embedding model is configured"
)

T = TypeVar("T")


class VectorWanted(Exception):
    """The edit needs the vector of a text; nothing was written."""

    def __init__(self, text: str) -> None:
        super().__init__("a text has no vector")
        self.text = text


class TextVector(NamedTuple):
    """The vector of a text and its model, or a notice why there is none."""

    embedding: bytes | None = None
    model: str | None = None
    notices: tuple[str, ...] = ()


class TextVectors:
    """The vectors computed for one edit."""

    def __init__(self, runtime: Runtime, made: Mapping[str, bytes] | None = None) -> None:
        self._runtime = runtime
        self._made = made or {}
        self._is_late = False

    def close(self) -> None:
        """Forbid new vectors after a write: a vector reruns the edit, which would write twice."""
        self._is_late = True

    def of(self, text: str) -> TextVector:
        """Return the vector of a text. Blocks.

        Raises:
            VectorWanted: the vector is not computed yet.
            UsageError: the edit has already written something.
        """
        embedder = self._runtime.embedder
        if embedder is None:
            return TextVector(notices=(NO_VECTOR,))
        notice = misfit_notice(self._runtime.store, self._runtime.settings, embedder.model)
        if notice:
            return TextVector(notices=(notice,))
        if text not in self._made:
            if self._is_late:
                raise UsageError(
                    "the edit needs a vector after a write",
                    hint="use a separate call for each edit",
                )
            raise VectorWanted(text)
        return TextVector(self._made[text], embedder.model)


async def with_vectors(runtime: Runtime, edit: Callable[[TextVectors], T]) -> T:
    """Run a blocking edit in a thread, and rerun it with each vector that it needs.

    Raises:
        ProviderError: embedding failed; nothing was written.
    """
    made: dict[str, bytes] = {}
    while True:
        try:
            return await in_thread(edit, TextVectors(runtime, made))
        except VectorWanted as wanted:
            try:
                embedding = await runtime.demand_embedder().embed([wanted.text], role="passage")
            except ProviderError as error:
                error.add_hint(WITHOUT_VECTOR)
                raise
            made[wanted.text] = embedding.vectors[0]
