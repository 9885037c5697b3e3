"""What search and a store say to each other."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from edenmem.models.scope import Scope

#: Scores by meaning that agree in so many decimals are equal, and ordered by id. Added up as
#: doubles and rounded, a score is the same on every processor and in whatever company.
SCORE_DECIMALS = 6


class FactFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which facts a reader may see and wants: part of the query on every store.

    ``scopes`` lists them one by one; none means nothing, never everything. ``since`` (inclusive)
    and ``until`` (exclusive) go by ``formed_at``.
    """

    scopes: tuple[Scope, ...]
    since: datetime | None = None
    until: datetime | None = None
    session_id: str | None = None


class Candidate(msgspec.Struct, frozen=True):
    """A fact that a list found, with that list's own score.

    Semantic: (1 + cosine) / 2. Text: BM25 as Lucene counts it, higher is better.
    """

    fact_id: str
    score: float


class SearchAbility(msgspec.Struct, frozen=True, kw_only=True):
    """How a store searches: with its own indexes, with Atlas, or by an exact scan.

    ``notice`` is what the person should be told, once; ``text_floor`` whether Lucene's score
    floor means anything here.
    """

    kind: Literal["embedded", "atlas", "scan"]
    notice: str = ""
    text_floor: bool = False
