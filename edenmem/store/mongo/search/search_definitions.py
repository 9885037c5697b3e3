"""Compare existing search indexes with their expected definitions.

Atlas returns definitions with added default options and in another order, so only relevant options
are compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from edenmem.models.indexes import IndexState, IndexStatus
from edenmem.store.mongo.core.collection import Document
from edenmem.store.mongo.core.collections import OWN, TEXT_FILTERS, SearchIndex

#: Atlas's default analyzer.
_DEFAULT_ANALYZER = "lucene.standard"


class Difference(msgspec.Struct, frozen=True):
    """A difference from the expected definition. ``fatal``: searches would fail or mislead."""

    text: str
    fatal: bool = True


def state_of(
    wanted: SearchIndex, found: Document | None, *, fatal_only: bool = False
) -> IndexState:
    """Return the state of an index described by ``$listSearchIndexes``.

    ``fatal_only`` leaves out differences that do not affect queries.
    """
    state = IndexState(
        name=wanted.name,
        kind="vector" if wanted.type == "vectorSearch" else "text",
        collection=wanted.collection,
        status="missing",
        wanted=wanted.definition,
    )
    if found is None:
        return state
    differences = tuple(
        one.text for one in differences_of(wanted, found) if one.fatal or not fatal_only
    )
    return msgspec.structs.replace(
        state,
        status=_status(found, differences=bool(differences)),
        queryable=found.get("queryable") is True,
        found=found.get("latestDefinition"),
        differences=differences,
        note=str(found.get("message") or ""),
    )


def _status(found: Document, *, differences: bool) -> IndexStatus:
    """Return the status of an index; only ``queryable`` decides whether it answers."""
    status = str(found.get("status") or "").upper()
    if status in ("FAILED", "DELETING", "DOES_NOT_EXIST"):
        return "failed"
    if differences:
        return "different"
    if found.get("queryable") is not True or status in ("PENDING", "BUILDING"):
        return "building"
    return "stale" if status == "STALE" else "ready"


def differences_of(wanted: SearchIndex, found: Document) -> list[Difference]:
    """Return the differences of an index's latest definition from the expected one."""
    if str(found.get("type") or "search") != wanted.type:
        return [Difference(f"type: is {found.get('type')}, expected {wanted.type}")]
    definition = found.get("latestDefinition") or {}
    if wanted.type == "vectorSearch":
        return list(_vector_differences(wanted.definition, definition))
    return list(_text_differences(wanted.definition, definition))


def _vector_differences(
    wanted: Mapping[str, Any], found: Mapping[str, Any]
) -> Iterator[Difference]:
    vector = wanted["fields"][0]
    there = vector_field(found, vector["path"])
    if there is None:
        yield Difference(f"{vector['path']}: missing vector field")
    else:
        for option in ("numDimensions", "similarity"):
            if there.get(option) != vector[option]:
                yield Difference(
                    f"{vector['path']}.{option}: is {there.get(option)}, expected {vector[option]}"
                )
    filters = {field["path"] for field in found.get("fields", ()) if field.get("type") == "filter"}
    for field in wanted["fields"][1:]:
        if field["path"] not in filters:
            yield Difference(f"{field['path']}: missing filter field")


def vector_field(definition: Mapping[str, Any], path: str) -> Mapping[str, Any] | None:
    """Return the vector field at ``path`` of a vector index."""
    for field in definition.get("fields", ()):
        if field.get("type") == "vector" and field.get("path") == path:
            return dict(field)
    return None


def _text_differences(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[Difference]:
    for path, mapping in wanted["mappings"]["fields"].items():
        there = _types_of(found, path)
        for place, one in enumerate(_to_list(mapping)):
            if one["type"] not in there:
                # The platform's IDs are ObjectIds; only old documents have them as text.
                fatal = place == 0
                yield Difference(f"{path}: not indexed as {one['type']}", fatal=fatal)
            elif one["type"] == "string":
                yield from _analyzer_differences(path, one, there["string"], found)


def _analyzer_differences(
    path: str, wanted: Mapping[str, Any], field: Mapping[str, Any], index: Mapping[str, Any]
) -> Iterator[Difference]:
    analyzer = field.get("analyzer") or index.get("analyzer") or _DEFAULT_ANALYZER
    of_queries = field.get("searchAnalyzer") or index.get("searchAnalyzer") or analyzer
    for option, is_there in (("analyzer", analyzer), ("searchAnalyzer", of_queries)):
        if is_there != wanted[option]:
            yield Difference(
                f"{path}.{option}: is {is_there}, expected {wanted[option]}", fatal=False
            )


#: The types that a dynamic mapping of Atlas indexes; strings only as words.
_DYNAMIC = frozenset({"string", "objectId", "date", "number", "boolean"})

#: The searches that filter fields allow.
_SERVED = (
    ("facts of agents", {"agent_id", "scope"}),
    ("of users", {"agent_id", "scope", "user_id"}),
    ("of groups", {"agent_id", "scope", "group_id"}),
    ("of shards", {"agent_id", "scope", "shard"}),
    ("by session", {"session_id"}),
    ("by time", {"formed_at"}),
)


def filter_paths(found: Document) -> frozenset[str]:
    """Return the fields that an index can filter by, of those that edenmem uses."""
    definition = found.get("latestDefinition") or {}
    if found.get("type") == "vectorSearch":
        fields = definition.get("fields", ())
        return frozenset(field["path"] for field in fields if field.get("type") == "filter")
    return frozenset(
        path
        for path, mapping in TEXT_FILTERS.items()
        if _to_list(mapping)[0]["type"] in _types_of(definition, path)
    )


def describe_service(found: Document) -> str:
    """Describe which searches an index serves, by its filter fields."""
    paths = filter_paths(found)
    serves = [words for words, needed in _SERVED if needed <= paths]
    lacks = [words for words, needed in _SERVED if not needed <= paths]
    if not serves:
        return "not usable by edenmem"
    served = f"serves {', '.join(serves)}"
    if found.get("type") == "vectorSearch" and OWN.model not in paths:
        served += ", where all vectors are of one model"
    return f"{served}; not {', '.join(lacks)}" if lacks else served


def _types_of(definition: Mapping[str, Any], path: str) -> dict[str, Mapping[str, Any]]:
    """Map types to mappings, for one path of a text index."""
    mappings = definition.get("mappings") or {}
    there = {
        str(one.get("type")): one for one in _to_list((mappings.get("fields") or {}).get(path))
    }
    if not there and mappings.get("dynamic"):
        return {name: {} for name in _DYNAMIC}
    return there


def _to_list(mapping: Any) -> list[Mapping[str, Any]]:
    if mapping is None:
        return []
    return list(mapping) if isinstance(mapping, list) else [mapping]
