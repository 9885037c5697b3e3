"""What search and a store say to each other."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

import msgspec

from edenmem.models.memory import Fact
from edenmem.models.scope import Scope

#: Scores by meaning that agree in so many decimals are equal, and ordered by id. Added up as
#: doubles and rounded, a score is the same on every processor and in whatever company.
SCORE_DECIMALS = 6


class FactFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which facts a reader may see and wants: part of the query on every store.

    ``scopes`` lists them one by one; none means nothing, never everything. ``since`` (inclusive)
    and ``until`` (exclusive) go by ``formed_at``. ``weak``: only those that are; for lists, since a
    search index need not have that field.
    """

    scopes: tuple[Scope, ...]
    since: datetime | None = None
    until: datetime | None = None
    session_id: str | None = None
    weak: bool = False


class Candidate(msgspec.Struct, frozen=True):
    """A fact that a list found, with that list's own score.

    Semantic: (1 + cosine) / 2. Text: BM25 as Lucene counts it, higher is better.
    """

    fact_id: str
    score: float


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """What the two lists of one query lack: facts that only the other list found.

    ``semantic`` need a score by meaning (of ``vector``), ``text`` one by words (of ``query``).
    """

    query: str
    vector: bytes
    semantic: tuple[str, ...] = ()
    text: tuple[str, ...] = ()


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """The scores that lists lacked, by fact, for each query in order.

    A fact without a vector has no semantic score, one without a word of the query no text score.
    ``reach`` is the text score of a fact that has every word of the query, for each query; 0 if
    the store does not know it. ``facts`` are those that the store had to read for it, without their
    vectors.
    """

    semantic: tuple[Mapping[str, float], ...]
    text: tuple[Mapping[str, float], ...]
    reach: tuple[float, ...] = ()
    facts: Mapping[str, Fact] = msgspec.field(default_factory=dict)

    def of(self, number: int) -> dict[Literal["semantic", "text"], Mapping[str, float]]:
        """The scores of one query, by list."""
        return {"semantic": self.semantic[number], "text": self.text[number]}

    def reach_of(self, number: int) -> float:
        """The reach of one query."""
        return self.reach[number] if self.reach else 0.0


class SearchAbility(msgspec.Struct, frozen=True, kw_only=True):
    """How a store searches: with its own indexes, with Atlas, or by an exact scan.

    ``notice`` is what the person should be told, once; ``text_floor`` whether Lucene's score
    floor means anything here.
    """

    kind: Literal["embedded", "atlas", "scan"]
    notice: str = ""
    text_floor: bool = False
