"""``$vectorSearch`` and ``$search`` of the fake Atlas server.

Unknown options are errors, even if Atlas accepts them: edenmem does not use them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from bson.binary import Binary, BinaryVectorDtype

from tests.support.atlas_errors import Refused, known_fields, text, whole_number
from tests.support.atlas_filters import clause, mql
from tests.support.atlas_indexes import Index, filter_paths, mapped_types, vector_fields
from tests.support.atlas_text import Texts, analyzed

Document = dict[str, Any]
Found = list[tuple[Document, float]]

MOST_CANDIDATES = 10_000
_CLAUSES = ("must", "should", "filter", "mustNot")


# -- vectors -------------------------------------------------------------------------------------


def check_vector_search(spec: Any) -> Mapping[str, Any]:
    """What can be checked without an index."""
    given = known_fields(
        "$vectorSearch",
        spec,
        required=["index", "path", "queryVector", "limit"],
        optional=["exact", "filter", "numCandidates"],
    )
    text("index", given["index"])
    limit = whole_number("limit", given["limit"], 1, MOST_CANDIDATES)
    exact = given.get("exact", False)
    if not isinstance(exact, bool):
        raise Refused('"exact" must be a boolean')
    if exact and "numCandidates" in given:
        raise Refused('"numCandidates" must be omitted if "exact" is true')
    if not exact:
        if "numCandidates" not in given:
            raise Refused('"numCandidates" is required if "exact" is false')
        whole_number("numCandidates", given["numCandidates"], limit, MOST_CANDIDATES)
    return given


def vector_search(index: Index, spec: Mapping[str, Any]) -> Found:
    """Return the nearest indexed documents, best first."""
    assert index.served is not None
    if index.type != "vectorSearch":
        raise Refused(f"{index.name} is no vector index")
    fields = vector_fields(index.served)
    if spec["path"] not in fields:
        raise Refused(f'Path "{spec["path"]}" needs to be indexed as vector')
    field = fields[spec["path"]]
    query = numbers_of(spec["queryVector"])
    if query is None:
        raise Refused('"queryVector" must be an array of numbers or a vector')
    if len(query) != field["numDimensions"]:
        raise Refused(
            f"vector field is indexed with {field['numDimensions']} dimensions but queried with "
            f"{len(query)}"
        )
    if field["similarity"] == "cosine" and not any(query):
        raise Refused("Cosine similarity cannot be calculated against a zero vector.")
    admits = mql(spec.get("filter", {}), filter_paths(index.served))
    found: Found = []
    for document in index.documents:
        vector = numbers_of(document.get(spec["path"]))
        if vector is None or len(vector) != len(query) or not any(vector) or not admits(document):
            continue
        found.append((document, _similarity(field["similarity"], query, vector)))
    return _best(found)[: spec["limit"]]


def numbers_of(value: Any) -> Sequence[float] | None:
    """Return the numbers of a vector in either form."""
    if isinstance(value, Binary) and value.subtype == 9:
        vector = value.as_vector()
        return list(map(float, vector.data)) if vector.dtype is BinaryVectorDtype.FLOAT32 else None
    if isinstance(value, list) and value and all(type(one) in (int, float) for one in value):
        return value
    return None


def _similarity(kind: str, one: Sequence[float], other: Sequence[float]) -> float:
    if kind == "euclidean":
        return 1 / (1 + math.dist(one, other) ** 2)
    product = math.sumprod(one, other) if hasattr(math, "sumprod") else _product(one, other)
    if kind == "cosine":
        product /= math.hypot(*one) * math.hypot(*other)
    return (1 + product) / 2


def _product(one: Sequence[float], other: Sequence[float]) -> float:
    return math.fsum(a * b for a, b in zip(one, other, strict=True))


def _best(found: Found) -> Found:
    """Sort best first, and equal scores in an unusual order: Atlas does not define one."""
    return sorted(found, key=lambda hit: (hit[1], hit[0]["_id"]), reverse=True)


# -- text ----------------------------------------------------------------------------------------


def check_search(spec: Any) -> Mapping[str, Any]:
    """What can be checked without an index."""
    given = known_fields("$search", spec, required=["index", "compound"])
    text("index", given["index"])
    return given


def text_search(index: Index, spec: Mapping[str, Any]) -> Found:
    """Return the matching documents, best first."""
    assert index.served is not None
    if index.type != "search":
        raise Refused(f"{index.name} is not a text index")
    scores = _operator({"compound": spec["compound"]}, index)
    return _best([(one, scores[one["_id"]]) for one in index.documents if one["_id"] in scores])


def _operator(given: Any, index: Index) -> dict[Any, float]:
    """Return the scores of the documents that an operator matches, by ``_id``."""
    if not isinstance(given, Mapping) or len(given) != 1:
        raise Refused("an operator must be a document with one field")
    ((name, spec),) = given.items()
    if name == "compound":
        return _compound(spec, index)
    if name == "text":
        return _text(spec, index)
    assert index.served is not None
    admits = clause(name, spec, index.served)
    if admits is None:
        raise Refused(f'"{name}" is no operator that is known')
    return {document["_id"]: 1.0 for document in index.documents if admits(document)}


def _compound(given: Any, index: Index) -> dict[Any, float]:
    spec = known_fields("compound", given, optional=[*_CLAUSES, "minimumShouldMatch"])
    parts: dict[str, list[dict[Any, float]]] = {}
    for name in _CLAUSES:
        clauses = spec.get(name, [])
        if name in spec and not clauses:
            raise Refused(f'"compound.{name}" cannot be empty')
        clauses = clauses if isinstance(clauses, list) else [clauses]
        parts[name] = [_operator(one, index) for one in clauses]
    if not any(parts.values()):
        raise Refused('"compound" must have a clause')
    least = whole_number(
        "minimumShouldMatch", spec.get("minimumShouldMatch", 0), 0, len(parts["should"])
    )
    if not parts["must"] and not parts["filter"]:
        least = max(least, 1)
    scores: dict[Any, float] = {}
    for document in index.documents:
        key = document["_id"]
        kept = all(key in one for one in (*parts["must"], *parts["filter"]))
        kept = kept and not any(key in one for one in parts["mustNot"])
        if kept and sum(key in one for one in parts["should"]) >= least:
            counted = (*parts["must"], *parts["should"])
            scores[key] = sum(one.get(key, 0.0) for one in counted)
    return scores


def _text(given: Any, index: Index) -> dict[Any, float]:
    spec = known_fields("text", given, required=["query", "path"], optional=["fuzzy"])
    query, path = text("query", spec["query"]), text("path", spec["path"])
    fuzzy = known_fields(
        "fuzzy", spec.get("fuzzy", {}), optional=["maxEdits", "prefixLength", "maxExpansions"]
    )
    edits = whole_number("maxEdits", fuzzy.get("maxEdits", 2), 1, 2) if "fuzzy" in spec else 0
    if edits > 1:
        raise Refused("the fake server supports only one edit")
    assert index.served is not None
    types = mapped_types(index.served, path)
    if "string" not in types:
        raise Refused(f'Path "{path}" needs to be indexed as string')
    analyzer = types["string"].get("analyzer", "lucene.standard")
    asked = types["string"].get("searchAnalyzer", analyzer)
    terms = analyzed(query, asked)
    if len(terms) > 1024:
        raise Refused("maxClauseCount is set to 1024")
    texts = Texts(
        {
            document["_id"]: analyzed(document[path], analyzer)
            for document in index.documents
            if isinstance(document.get(path), str)
        }
    )
    return {key: score for key, score in texts.scores(terms, max_edits=edits).items() if score > 0}
