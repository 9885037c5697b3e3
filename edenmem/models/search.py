"""Data exchanged between search and stores."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

import msgspec

from edenmem.models.memory import Fact
from edenmem.models.scope import Scope

#: Decimals of semantic scores; equal scores are sorted by ID. Sums of doubles, rounded, are the
#: same on every processor and in any batch.
SCORE_DECIMALS = 6


#: The lists of a search: by meaning, by words, by the words of the source messages.
ListName = Literal["semantic", "text", "source"]


class FactFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A filter of facts, part of the query on every store.

    ``scopes`` are exact; an empty tuple matches nothing. ``since`` (inclusive) and ``until``
    (exclusive) apply to ``said_at``, without it to ``formed_at``. ``unconfirmed`` matches facts in
    doubt only; for lists, since search indexes may lack this field.
    """

    scopes: tuple[Scope, ...]
    since: datetime | None = None
    until: datetime | None = None
    session_id: str | None = None
    unconfirmed: bool = False


class Candidate(msgspec.Struct, frozen=True, gc=False):
    """A fact found by a list, with the score of this list.

    Semantic: (1 + cosine) / 2. Text: BM25 as in Lucene, higher is better.
    """

    fact_id: str
    score: float


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """Facts that a list of one query lacks and another list found.

    ``semantic`` need a score by meaning (of ``vector``), ``text`` by words (of ``query``),
    ``source`` by the words of their source messages; None: those are not searched.
    """

    query: str
    vector: bytes
    semantic: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    source: tuple[str, ...] | None = None


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """Missing scores by fact, for each query in order.

    A fact without a vector has no semantic score, a fact without a word of the query no text score.
    ``source`` are the scores by the words of source messages. ``reach`` and ``source_reach`` are
    the scores of a fact with every word of the query, for each query; 0 if the store does not know
    them. ``facts`` are the facts that the store had to read, without their vectors.
    """

    semantic: tuple[Mapping[str, float], ...]
    text: tuple[Mapping[str, float], ...]
    source: tuple[Mapping[str, float], ...] = ()
    reach: tuple[float, ...] = ()
    source_reach: tuple[float, ...] = ()
    facts: Mapping[str, Fact] = msgspec.field(default_factory=dict)

    def of(self, number: int) -> dict[ListName, Mapping[str, float]]:
        """Return the scores of one query, by list."""
        return {
            "semantic": self.semantic[number],
            "text": self.text[number],
            "source": self.source[number] if self.source else {},
        }

    def reach_of(self, number: int) -> dict[ListName, float]:
        """Return the reach of one query, by list of words."""
        return {
            "text": self.reach[number] if self.reach else 0.0,
            "source": self.source_reach[number] if self.source_reach else 0.0,
        }


class SearchAbility(msgspec.Struct, frozen=True, kw_only=True):
    """The search method of a store: embedded indexes, Atlas, or an exact scan.

    ``notice`` is for the user, once. ``text_floor``: Lucene's score floor applies here.
    ``source_words``: the words of source messages can be searched.
    """

    kind: Literal["embedded", "atlas", "scan"]
    notice: str = ""
    text_floor: bool = False
    source_words: bool = False
