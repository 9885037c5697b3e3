"""An embedder without a model: texts with shared words are similar."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from edenmem.embed.protocol import Embedding, Role
from edenmem.models.formation import CallUsage
from tests.support.vectors import unit

_WORD = re.compile(r"\w+")


class FakeEmbedder:
    """Sum one fixed random direction per word, scaled to length 1.

    Equal texts have cosine 1, texts that share half of their words about 0.5, others about 0.
    ``calls`` are the texts of each call, ``roles`` their roles.
    ``failures`` are raised in order, one a call, before anything is
    answered. Rejects what a real endpoint rejects, and blank texts.
    """

    def __init__(
        self, *, model: str = "fake-embedder", dimensions: int = 128, most_texts: int = 2048
    ) -> None:
        self.calls: list[tuple[str, ...]] = []
        self.roles: list[Role] = []
        self.failures: list[BaseException] = []
        self.closed = False
        self._model = model
        self._dimensions = dimensions
        self._most_texts = most_texts

    @property
    def model(self) -> str:
        """Return the name stored with each vector."""
        return self._model

    @property
    def dimensions(self) -> int:
        """Return the length of vectors."""
        return self._dimensions

    @property
    def texts(self) -> list[str]:
        """Return the texts of all calls, in order."""
        return [text for call in self.calls for text in call]

    async def embed(self, texts: Sequence[str], *, role: Role = "passage") -> Embedding:
        """Return one vector per text."""
        assert not self.closed, "used after close()"
        assert not isinstance(texts, str), "one text where a list of texts belongs"
        assert texts, "a call without texts"
        assert len(texts) <= self._most_texts, f"{len(texts)} texts in one call"
        for text in texts:
            assert isinstance(text, str), f"{type(text).__name__} where a text belongs"
            assert text.strip(), "a blank text has no meaning to embed"
            text.encode("utf-8")
        self.calls.append(tuple(texts))
        self.roles.append(role)
        if self.failures:
            raise self.failures.pop(0)
        tokens = sum(len(text) // 4 + 1 for text in texts)
        return Embedding(
            vectors=tuple(self.vector(text) for text in texts),
            usage=(CallUsage(task="embed", model=self._model, input_tokens=tokens),),
        )

    async def close(self) -> None:
        """Reject all further calls."""
        self.closed = True

    def vector(self, text: str) -> bytes:
        """Return the vector of one text, without recording a call."""
        words = _WORD.findall(text.casefold()) or [text]
        directions = [_direction(self._model, self._dimensions, word) for word in words]
        return unit(*np.sum(directions, axis=0))


@cache
def _direction(model: str, dimensions: int, word: str) -> np.ndarray[tuple[int], Any]:
    digest = hashlib.blake2b(f"{model}\0{word}".encode(), digest_size=8).digest()
    generator = np.random.default_rng(int.from_bytes(digest, "big"))
    direction = generator.standard_normal(dimensions)
    return direction / np.linalg.norm(direction)
