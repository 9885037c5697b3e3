"""What is added up by the server, of documents that may hold anything."""

from __future__ import annotations

from typing import Any

from edenmem.models.formation import COUNT_END


def tokens_or_zero(field: str) -> dict[str, Any]:
    """The expression for a whole number that counts something, 0 for what is none."""
    is_whole = {"$in": [{"$type": field}, ["int", "long"]]}
    return {"$cond": [is_whole, count_or_zero(field), 0]}


def count_or_zero(field: str) -> dict[str, Any]:
    """The expression for a number that counts something, 0 for what is none.

    One value that is no number, or infinite, would make the whole sum so.

    Args:
        field: Its path, with the ``$``.
    """
    within = {"$and": [{"$gt": [field, 0]}, {"$lt": [field, COUNT_END]}]}
    return {"$cond": [within, field, 0]}
