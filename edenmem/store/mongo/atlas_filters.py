"""`FactFilter` in the two languages of Atlas: MQL for vectors, operators for text.

One filter for all scopes of a query. Unused owner fields, which ordinary filters name as null, are
left out: a kind, an agent and the one owner make a scope, and the platform's own documents lack
the fields, which no search index matches with null. The facts themselves are then read by the
whole filter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edenmem.models.search import FactFilter
from edenmem.store.mongo.collections import OWN, VectorSlot
from edenmem.store.mongo.filters import Filter, fact_filters

_BOUNDS = {"$gt": "gt", "$gte": "gte", "$lt": "lt", "$lte": "lte"}


def _named(filter: FactFilter) -> list[Filter]:
    return [
        {field: value for field, value in owner.items() if value is not None}
        for owner in fact_filters(filter)
    ]


def vector_filter(filter: FactFilter, model: str, slot: VectorSlot = OWN) -> Filter:
    """The pre-filter of ``$vectorSearch``: vectors of ``model`` in one of the scopes."""
    of_model: Filter = {slot.model: model}
    owners = _named(filter)
    if len(owners) == 1:
        return {**owners[0], **of_model}
    return {"$and": [of_model, {"$or": owners}]}


def text_filter(filter: FactFilter) -> list[Filter]:
    """The clauses under ``compound.filter`` of ``$search``."""
    owners = [[_clause(path, value) for path, value in one.items()] for one in _named(filter)]
    if len(owners) == 1:
        return owners[0]
    any_of = [{"compound": {"filter": clauses}} for clauses in owners]
    return [{"compound": {"should": any_of, "minimumShouldMatch": 1}}]


def _clause(path: str, value: Any) -> Filter:
    if not isinstance(value, Mapping):
        return {"equals": {"path": path, "value": value}}
    if "$in" in value:
        return {"in": {"path": path, "value": list(value["$in"])}}
    return {"range": {"path": path, **{_BOUNDS[sign]: bound for sign, bound in value.items()}}}
