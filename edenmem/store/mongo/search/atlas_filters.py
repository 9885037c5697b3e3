"""`FactFilter` in the two languages of Atlas: MQL for vectors, operators for text.

One filter for all scopes of a query. Unused owner fields, which ordinary filters name as null, are
left out: a kind, an agent and the one owner make a scope, and the platform's own documents lack
the fields, which no search index matches with null. The facts themselves are then read by the
whole filter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edenmem.models.search import FactFilter
from edenmem.store.mongo.core.collections import OWN, VectorSlot
from edenmem.store.mongo.core.filters import Filter, fact_filters

_BOUNDS = {"$gt": "gt", "$gte": "gte", "$lt": "lt", "$lte": "lte"}


def _named(filter: FactFilter) -> list[Filter]:
    return [
        {field: value for field, value in owner.items() if value is not None}
        for owner in fact_filters(filter)
    ]


def vector_filter(filter: FactFilter, model: str | None, slot: VectorSlot = OWN) -> Filter:
    """The pre-filter of ``$vectorSearch``: vectors of ``model`` in one of the scopes. None: of
    any model."""
    of_model: Filter = {} if model is None else {slot.model: model}
    owners = _named(filter)
    if len(owners) == 1:
        return {**owners[0], **of_model}
    return {"$and": [of_model, {"$or": owners}]} if of_model else {"$or": owners}


def vector_paths(filter: Filter) -> tuple[str, ...]:
    """The fields that a pre-filter needs in the index."""
    paths: dict[str, None] = {}
    for path, value in filter.items():
        if path in ("$and", "$or"):
            paths |= dict.fromkeys(each for part in value for each in vector_paths(part))
        else:
            paths[path] = None
    return tuple(paths)


def text_paths(clauses: Sequence[Filter]) -> tuple[str, ...]:
    """The fields that clauses under ``compound.filter`` need in the index."""
    paths: dict[str, None] = {}
    for clause in clauses:
        for operator, inside in clause.items():
            if operator == "compound":
                parts = [*inside.get("filter", ()), *inside.get("should", ())]
                paths |= dict.fromkeys(text_paths(parts))
            else:
                paths[inside["path"]] = None
    return tuple(paths)


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
