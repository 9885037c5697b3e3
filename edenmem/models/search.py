"""Data exchanged between search and stores."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

import msgspec

from edenmem.models.memory import Fact
from edenmem.models.scope import Scope

#: Decimals of semantic scores. Sums of doubles, rounded, are the
#: same on every processor and in any batch.
SCORE_DECIMALS = 6


#: The lists of a search: by meaning, by words, by the words of the source messages.
ListName = Literal["semantic", "text", "source"]


class FactFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A filter of facts, part of the query on every store.

    ``scopes`` are exact; an empty tuple matches nothing. ``since`` (inclusive) and ``until``
    (exclusive) apply to ``said_at``, without it to ``formed_at``. ``live_at`` leaves out facts that
    have expired at that time. ``tags`` matches facts with all of them. ``unconfirmed`` matches only
    facts in doubt, ``expired_at`` only those that have expired at that time, and ``recent_before``
    only those whose ``recent_at`` is before that time; all three for lists, since search indexes
    may lack these fields.
    """

    scopes: tuple[Scope, ...]
    since: datetime | None = None
    until: datetime | None = None
    session_id: str | None = None
    live_at: datetime | None = None
    tags: tuple[str, ...] = ()
    key: str | None = None
    unconfirmed: bool = False
    expired_at: datetime | None = None
    recent_before: datetime | None = None


class Candidate(msgspec.Struct, frozen=True, gc=False):
    """A fact found by a list, with the score of this list.

    Semantic: (1 + cosine) / 2. Text: the sum of the weights of the query's words
    that the fact has; BM25 on Atlas.
    """

    fact_id: str
    score: float


class Question(msgspec.Struct, frozen=True):
    """A query, with its vector if facts are compared by meaning."""

    text: str
    vector: bytes = b""


class ListScores(msgspec.Struct, frozen=True):
    """The scores of one list for one question.

    ``found`` are the facts of the list, best first, of equal scores the newest: those that were
    stored last, or the highest IDs on MongoDB. ``completed`` are the
    scores of facts that only other lists found; a fact without a vector has no semantic score, a
    fact without a word of the query no text score. ``whole`` is the text score of a fact with
    every word of the query; 0 if the store does not know it. Then ``coverage`` is the share of the
    query's words that each fact has.
    """

    found: Mapping[str, float]
    completed: Mapping[str, float] = msgspec.field(default_factory=dict)
    whole: float = 0.0
    coverage: Mapping[str, float] = msgspec.field(default_factory=dict)


#: The lists of one question.
Lists = Mapping[ListName, ListScores]


class Candidates(msgspec.Struct, frozen=True, kw_only=True):
    """The candidates of some questions, in their order.

    ``unconfirmed`` are the facts in doubt among them. ``without_vector`` is the number of facts in
    the searched scopes, without regard to time and session, without a vector of the model; 0 if no
    question has a vector. ``facts`` are those that the store had to read, without their vectors.
    ``notices`` name what the store could not answer in full.
    """

    lists: tuple[Lists, ...]
    unconfirmed: frozenset[str] = frozenset()
    without_vector: int = 0
    facts: Mapping[str, Fact] = msgspec.field(default_factory=dict)
    notices: tuple[str, ...] = ()


class SearchAbility(msgspec.Struct, frozen=True, kw_only=True):
    """The search method of a store: embedded indexes, Atlas, or an exact scan.

    ``notice`` is for the user, once. ``text_floor``: Lucene's score floor applies here.
    ``source_words``: the words of source messages can be searched.
    """

    kind: Literal["embedded", "atlas", "scan"]
    notice: str = ""
    text_floor: bool = False
    source_words: bool = False
