"""Filters of the fake Atlas server: ``$vectorSearch`` (a part of MQL) and ``$search``."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from bson import ObjectId

from tests.support.atlas_errors import Refused, known_fields, text
from tests.support.atlas_indexes import mapped_types

Document = dict[str, Any]
Test = Callable[[Document], bool]

#: Python types by type of indexed values. ``bool`` is checked before ``int``.
_VALUES: dict[str, tuple[type, ...]] = {
    "objectId": (ObjectId,),
    "token": (str,),
    "date": (datetime,),
    "boolean": (bool,),
    "number": (int, float),
}
_COMPARED = {"gt": operator.gt, "gte": operator.ge, "lt": operator.lt, "lte": operator.le}


def _values(document: Document, path: str) -> list[Any]:
    value = document.get(path)
    return value if isinstance(value, list) else [value]


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    for kind, types in _VALUES.items():
        if isinstance(value, types):
            return kind
    raise Refused(f"a filter cannot have the value {value!r} of type {type(value).__name__}")


def _any_is(path: str, wanted: list[Any]) -> Test:
    pairs = [(_kind(value), value) for value in wanted]
    return lambda document: any(
        value is not None and (_kind(value), value) in pairs for value in _values(document, path)
    )


def _any_compares(path: str, sign: str, bound: Any) -> Test:
    kind, compare = _kind(bound), _COMPARED[sign]
    return lambda document: any(
        value is not None and _kind(value) == kind and compare(value, bound)
        for value in _values(document, path)
    )


# -- $vectorSearch -------------------------------------------------------------------------------


def mql(filter: Any, paths: frozenset[str]) -> Test:
    """Compile a filter of ``$vectorSearch`` to a predicate."""
    if not isinstance(filter, Mapping):
        raise Refused('"filter" must be a document')
    tests: list[Test] = []
    for key, value in filter.items():
        if key in ("$and", "$or", "$nor"):
            if not isinstance(value, list) or not value:
                raise Refused(f'"{key}" must be an array that is not empty')
            tests.append(_joined(key, [mql(part, paths) for part in value]))
        elif key.startswith("$"):
            raise Refused(f'"filter" has the unknown operator {key}')
        elif key not in paths:
            raise Refused(f'Path "{key}" needs to be indexed as filter')
        else:
            tests += _conditions(key, value)
    return lambda document: all(test(document) for test in tests)


def _joined(key: str, tests: list[Test]) -> Test:
    if key == "$and":
        return lambda document: all(test(document) for test in tests)
    if key == "$or":
        return lambda document: any(test(document) for test in tests)
    return lambda document: not any(test(document) for test in tests)


def _conditions(path: str, condition: Any) -> list[Test]:
    if not isinstance(condition, Mapping):
        return [_any_is(path, [condition])]
    if not condition:
        raise Refused(f'"{path}" has an empty condition')
    tests: list[Test] = []
    for sign, value in condition.items():
        match sign:
            case "$eq":
                tests.append(_any_is(path, [value]))
            case "$in" if isinstance(value, list) and value:
                tests.append(_any_is(path, value))
            case "$gt" | "$gte" | "$lt" | "$lte":
                tests.append(_any_compares(path, sign[1:], value))
            case _:
                raise Refused(f'"{path}" has the unknown or malformed operator {sign}')
    return tests


# -- $search -------------------------------------------------------------------------------------


def clause(name: str, given: Any, definition: Mapping[str, Any]) -> Test | None:
    """Compile an operator without a score to a predicate; None for other operators."""
    match name:
        case "equals":
            spec = known_fields("equals", given, required=["path", "value"], optional=["score"])
            path = _typed(spec["path"], [spec["value"]], definition)
            return _any_is(path, [spec["value"]])
        case "in":
            spec = known_fields("in", given, required=["path", "value"], optional=["score"])
            values = spec["value"] if isinstance(spec["value"], list) else [spec["value"]]
            if not values:
                raise Refused('"in.value" cannot be empty')
            return _any_is(_typed(spec["path"], values, definition), values)
        case "range":
            spec = known_fields(
                "range", given, required=["path"], optional=["gt", "gte", "lt", "lte", "score"]
            )
            bounds = {sign: spec[sign] for sign in _COMPARED if sign in spec}
            if not bounds or {"gt", "gte"} <= bounds.keys() or {"lt", "lte"} <= bounds.keys():
                raise Refused('"range" needs one lower or upper bound, or one of each')
            path = _typed(spec["path"], list(bounds.values()), definition)
            tests = [_any_compares(path, sign, bound) for sign, bound in bounds.items()]
            return lambda document: all(test(document) for test in tests)
        case _:
            return None


def _typed(given: Any, values: list[Any], definition: Mapping[str, Any]) -> str:
    """Return the path if its index has the types of all values."""
    path = text("path", given)
    types = mapped_types(definition, path)
    for value in values:
        kind = _kind(value)
        if kind not in types:
            raise Refused(f'Path "{path}" needs to be indexed as {kind}, is {sorted(types)}')
    return path
