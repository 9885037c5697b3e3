"""Search indexes of the fake Atlas server: definitions, building, and visible documents.

An index is PENDING, then BUILDING, then READY, with one step per read of its state. A changed
index answers with its old definition until then. Writes become visible after ``lag`` reads or
searches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bson import ObjectId

from tests.support.atlas_errors import Refused, known_fields, text, whole_number
from tests.support.atlas_text import ANALYZERS

Document = dict[str, Any]
SIMILARITIES = ("cosine", "euclidean", "dotProduct")
FIELD_OPTIONS: dict[str, tuple[str, ...]] = {
    "string": ("analyzer", "searchAnalyzer", "indexOptions", "store", "norms", "ignoreAbove"),
    "token": ("normalizer",),
    "objectId": (),
    "date": (),
    "boolean": (),
    "number": ("representation", "indexIntegers", "indexDoubles"),
}


class Index:
    """One search index of one collection."""

    def __init__(self, name: str, type: str, definition: Any) -> None:
        self.id = str(ObjectId())
        self.name = name
        self.type = type
        self.latest = checked(type, definition)
        self.version = 0
        self.served: Document | None = None
        self.steps = 0
        self.documents: list[Document] = []
        self._coming: list[tuple[int, list[Document]]] = []
        self._seen: list[Document] = []

    def change(self, definition: Any) -> None:
        """Start to build another definition."""
        self.latest = checked(self.type, definition)
        self.version += 1
        self.steps = 0

    def step(self, needed: int, read: Callable[[], list[Document]]) -> None:
        """Advance the build by one step, or show pending writes."""
        self.steps += 1
        if self.steps > needed and self.served is not self.latest:
            self.served = self.latest
            self.documents = self._seen = read()
            self._coming = []

    def catch_up_at_once(self, documents: list[Document]) -> None:
        """Serve these documents, whatever is still on its way."""
        self.documents = self._seen = documents
        self._coming.clear()

    def catch_up(self, now: int, lag: int, read: Callable[[], list[Document]]) -> None:
        """Record writes, and show those that are due."""
        if self.served is None:
            return
        current = read()
        if current != self._seen:
            self._seen = current
            self._coming.append((now + lag, current))
        while self._coming and self._coming[0][0] <= now:
            self.documents = self._coming.pop(0)[1]

    @property
    def status(self) -> str:
        """Return the status in Atlas's words."""
        if self.served is self.latest:
            return "READY"
        return "PENDING" if self.steps <= 1 else "BUILDING"

    def described(self) -> Document:
        """Return the answer of ``$listSearchIndexes``."""
        return {
            "id": self.id,
            "name": self.name,
            "type": self.type,
            "status": self.status,
            "queryable": self.served is not None,
            "latestDefinitionVersion": {"version": self.version},
            "latestDefinition": with_defaults(self.type, self.latest),
            "statusDetail": [{"hostname": "stand-in", "status": self.status}],
        }


def checked(type: str, definition: Any) -> Document:
    """Validate a definition, and return it."""
    if type == "vectorSearch":
        given = known_fields(
            "definition", definition, required=["fields"], optional=["numPartitions"]
        )
        if not isinstance(given["fields"], list):
            raise Refused('"fields" must be an array')
        for field in given["fields"]:
            _check_vector_field(field)
        paths = [field["path"] for field in given["fields"]]
        if len(set(paths)) < len(paths):
            raise Refused('"fields" has a path twice')
        if not vector_fields(given):
            raise Refused('"fields" must have a field of type "vector"')
    elif type == "search":
        given = known_fields(
            "definition",
            definition,
            required=["mappings"],
            optional=["analyzer", "searchAnalyzer", "numPartitions"],
        )
        mappings = known_fields("mappings", given["mappings"], optional=["dynamic", "fields"])
        if mappings.get("dynamic") is not False:
            raise Refused("the fake server supports only static mappings")
        for path, types in mappings.get("fields", {}).items():
            for one in types if isinstance(types, list) else [types]:
                _check_mapping(path, one)
    else:
        raise Refused(f'"type" must be "search" or "vectorSearch", is {type!r}')
    return dict(given)


def _check_vector_field(field: Any) -> None:
    kind = field.get("type") if isinstance(field, Mapping) else None
    if kind == "filter":
        known_fields("fields", field, required=["type", "path"])
    elif kind == "vector":
        known_fields(
            "fields",
            field,
            required=["type", "path", "numDimensions", "similarity"],
            optional=["quantization"],
        )
        whole_number("numDimensions", field["numDimensions"], 1, 8192)
        if field["similarity"] not in SIMILARITIES:
            raise Refused(f'"similarity" must be one of {SIMILARITIES}')
    else:
        raise Refused(f'"fields" has a field of unknown type {kind!r}')
    text("path", field["path"])


def _check_mapping(path: str, mapping: Any) -> None:
    kind = mapping.get("type") if isinstance(mapping, Mapping) else None
    if kind not in FIELD_OPTIONS:
        raise Refused(f'"mappings.fields.{path}" has the unknown type {kind!r}')
    given = known_fields(path, mapping, required=["type"], optional=FIELD_OPTIONS[kind])
    for option in ("analyzer", "searchAnalyzer"):
        if option in given and given[option] not in ANALYZERS:
            raise Refused(f'"{option}" {given[option]!r} is not known')


def with_defaults(type: str, definition: Document) -> Document:
    """Return a definition as listed: with default options, and in a different order."""
    if type == "vectorSearch":
        fields = [
            {**field, "quantization": field.get("quantization", "none")}
            if field["type"] == "vector"
            else dict(field)
            for field in reversed(definition["fields"])
        ]
        return {"numPartitions": 1, **definition, "fields": fields}
    mapped = {
        path: [types] if isinstance(types, Mapping) else types
        for path, types in sorted(definition["mappings"].get("fields", {}).items())
    }
    return {**definition, "mappings": {"dynamic": False, "fields": mapped}}


def vector_fields(definition: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the vector fields of a vector index by path."""
    return {field["path"]: field for field in definition["fields"] if field["type"] == "vector"}


def filter_paths(definition: Mapping[str, Any]) -> frozenset[str]:
    """Return the filter paths of a vector index."""
    return frozenset(field["path"] for field in definition["fields"] if field["type"] == "filter")


def mapped_types(definition: Mapping[str, Any], path: str) -> dict[str, Mapping[str, Any]]:
    """Return the mappings of one path of a text index by type."""
    types = definition["mappings"].get("fields", {}).get(path, [])
    return {one["type"]: one for one in (types if isinstance(types, list) else [types])}
