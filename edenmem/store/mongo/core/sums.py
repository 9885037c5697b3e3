"""Aggregation expressions for sums over documents with damaged values."""

from __future__ import annotations

from typing import Any

from edenmem.models.formation import COUNT_END


def tokens_or_zero(field: str) -> dict[str, Any]:
    """Return the expression for a whole number of tokens, 0 for other values."""
    is_whole = {"$in": [{"$type": field}, ["int", "long"]]}
    return {"$cond": [is_whole, count_or_zero(field), 0]}


def count_or_zero(field: str) -> dict[str, Any]:
    """Return the expression for a count or cost, 0 for other values.

    A single NaN or infinity would spoil the whole sum.

    Args:
        field: The path of the field, with the ``$``.
    """
    within = {"$and": [{"$gt": [field, 0]}, {"$lt": [field, COUNT_END]}]}
    return {"$cond": [within, field, 0]}
