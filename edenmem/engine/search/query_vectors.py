"""Cache of query vectors, since agents and people repeat their questions."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence

from edenmem.embed.protocol import Embedder, QueryShelf
from edenmem.engine.runtime.concurrency import demand_loop, in_thread
from edenmem.errors import ProviderError


class QueryVectors:
    """The vectors of the latest ``size`` queries, in memory and on the shelf, if one is given.

    A ``size`` of 0 turns both off.
    """

    def __init__(self, embedder: Embedder, size: int, shelf: QueryShelf | None = None) -> None:
        self._embedder = embedder
        self._size = size
        self._shelf = shelf if size else None
        self._known: OrderedDict[tuple[str, str], bytes] = OrderedDict()

    async def of(self, texts: Sequence[str]) -> tuple[bytes, ...]:
        """Return a vector for each text, in order, with one model call for all unknown texts.

        Raises:
            ProviderError: the texts could not be embedded.
        """
        model = self._embedder.model
        vectors = {text: self._known[model, text] for text in texts if (model, text) in self._known}
        unknown = [text for text in dict.fromkeys(texts) if text not in vectors]
        if unknown and self._shelf is not None:
            vectors |= await in_thread(self._shelf.get, model, unknown)
            unknown = [text for text in unknown if text not in vectors]
        if unknown:
            await demand_loop()
            try:
                made = (await self._embedder.embed(unknown, role="query")).vectors
            except ProviderError as error:
                error.add_hint("--recipe text searches by words alone")
                raise
            fresh = dict(zip(unknown, made, strict=True))
            vectors |= fresh
            if self._shelf is not None:
                await in_thread(self._shelf.put, model, fresh)
        self._keep(model, {text: vectors[text] for text in texts})
        return tuple(vectors[text] for text in texts)

    def _keep(self, model: str, vectors: Mapping[str, bytes]) -> None:
        for text, vector in vectors.items():
            self._known[model, text] = vector
            self._known.move_to_end((model, text))
        while len(self._known) > self._size:
            self._known.popitem(last=False)
