"""Vectors of texts that an edit stores: edits block, and the embedding model is awaited."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from edenmem.engine.embeddings.status import misfit_notice
from edenmem.engine.runtime.concurrency import in_thread
from edenmem.engine.runtime.runtime import Runtime
from edenmem.errors import ProviderError, UsageError

WITHOUT_VECTOR = (
    "--set embedding.provider=none stores it now, "
    "and 'edenmem embed backfill' adds its vector later"
)
NO_VECTOR = (
    "stored without a vector, so it is found by its words only; "
    "'edenmem embed backfill' adds one when there is an embedding model"
)

T = TypeVar("T")


class VectorWanted(Exception):
    """A text has to be embedded before the edit can be made; nothing was written."""

    def __init__(self, text: str) -> None:
        super().__init__("a text has no vector yet")
        self.text = text


class TextVector(NamedTuple):
    """The vector of a text and its model; without one, why."""

    embedding: bytes | None = None
    model: str | None = None
    notices: tuple[str, ...] = ()


class TextVectors:
    """The vectors of the texts of one edit, as far as they were made."""

    def __init__(self, runtime: Runtime, made: Mapping[str, bytes] | None = None) -> None:
        self._runtime = runtime
        self._made = made or {}
        self._is_late = False

    def close(self) -> None:
        """Note that something was written: an edit that wants a vector is made again, and twice
        is once too often."""
        self._is_late = True

    def of(self, text: str) -> TextVector:
        """Return the text's vector. Blocks.

        Raises:
            VectorWanted: it has to be made first.
            UsageError: it had to be made before something was written.
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
                    "an edit that wrote something wants a vector",
                    hint="make each edit with a call of its own",
                )
            raise VectorWanted(text)
        return TextVector(self._made[text], embedder.model)


async def with_vectors(runtime: Runtime, edit: Callable[[TextVectors], T]) -> T:
    """Run an edit, which blocks, in a thread. If it wants a vector, it is run again with it.

    Raises:
        ProviderError: the vector could not be made; nothing was written.
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
