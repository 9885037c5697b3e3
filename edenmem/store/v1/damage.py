"""Count the damage of an input by file and kind, while it is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from edenmem.models.v1 import V1Damage
from edenmem.models.v1 import V1DamageKind as Kind
from edenmem.store.v1.streams import Damage
from edenmem.text import one_line

#: Maximum number of places to name; all are counted.
_NAMED = 10

#: Maximum number of characters of a problem to show.
_LONGEST = 120

_COUNTED = {
    Kind.UNREADABLE: ("cannot be read", "cannot be read"),
    Kind.INVALID_UTF8: (
        "contains bytes that are not UTF-8, replaced by U+FFFD",
        "contain bytes that are not UTF-8, replaced by U+FFFD",
    ),
    Kind.WRONG_TYPE: (
        "has an owner, text or kind of the wrong type",
        "have an owner, text or kind of the wrong type",
    ),
}


@dataclass
class _Tally:
    collection: str
    documents: int = 0
    bytes: int = 0
    places: list[str] = field(default_factory=list)
    problem: str = ""


class DamageTally:
    """Counts damaged documents, in constant memory."""

    def __init__(self) -> None:
        self._tallies: dict[tuple[str, Kind], _Tally] = {}
        self._found: list[V1Damage] = []

    def count(
        self,
        kind: Kind,
        where: str,
        collection: str,
        place: str,
        size: int = 0,
        problem: str = "",
    ) -> None:
        """Count a damaged document of a file or collection; the first ``problem`` is kept."""
        tally = self._tallies.setdefault((where, kind), _Tally(collection, problem=problem))
        tally.documents += 1
        tally.bytes += size
        if len(tally.places) < _NAMED:
            tally.places.append(place)

    def add(
        self,
        kind: Kind,
        where: str,
        collection: str,
        detail: str,
        places: tuple[str, ...] = (),
        *,
        bytes: int | None = None,
    ) -> None:
        """Add damage of a whole file; ``detail`` follows its name."""
        self._found.append(
            V1Damage(
                kind=kind,
                where=where,
                collection=collection,
                bytes=bytes,
                places=places,
                detail=f"{where} {detail}",
            )
        )

    def damage(self) -> tuple[V1Damage, ...]:
        """Return all damage, by file or collection."""
        counted = [_summarize(where, kind, found) for (where, kind), found in self._tallies.items()]
        return tuple(sorted([*self._found, *counted], key=lambda each: (each.where, each.kind)))


def _summarize(where: str, kind: Kind, tally: _Tally) -> V1Damage:
    one, many = _COUNTED[kind]
    more = tally.documents - len(tally.places)
    places = ", ".join(tally.places) + (f" and {more:,} more" if more else "")
    what = f"1 document {one}" if tally.documents == 1 else f"{tally.documents:,} documents {many}"
    size = f" ({tally.bytes:,} bytes)" if tally.bytes else ""
    why = f" ({one_line(tally.problem, _LONGEST)})" if tally.problem else ""
    return V1Damage(
        kind=kind,
        where=where,
        collection=tally.collection,
        documents=tally.documents,
        bytes=tally.bytes or None,
        places=tuple(tally.places),
        detail=f"{where}: {what}{size}: {places}{why}",
    )


def describe_end(damage: Damage, documents: int) -> tuple[Kind, str]:
    """Describe the damage of a file at which reading ended, after some documents."""
    how = damage.problem
    if damage.missing:
        how = f"{damage.missing:,} bytes of the last document are missing"
    verb = "ends early" if damage.is_cut else "is damaged"
    read = "1 document was read" if documents == 1 else f"{documents:,} documents were read"
    kind = Kind.ENDS_EARLY if damage.is_cut else Kind.UNREADABLE
    return kind, f"{verb} at {damage.place}: {how}; {read} before it, and nothing after it"


def repeated_ids(collection: str, documents: int, ids: Sequence[str]) -> V1Damage:
    """Return the damage of documents with a repeated ``_id``; the first one counts."""
    more = documents - len(ids)
    what = "1 document repeats" if documents == 1 else f"{documents:,} documents repeat"
    named = ", ".join(ids) + (f" and {more:,} more" if more else "")
    return V1Damage(
        kind=Kind.DUPLICATE_ID,
        where=collection,
        collection=collection,
        documents=documents,
        places=tuple(ids),
        detail=f"{collection}: {what} the _id of another: {named}",
    )


def no_collection(collection: str, references: int, referrers: str) -> V1Damage:
    """Return the damage of a missing collection that documents refer to."""
    them = "1 document of it" if references == 1 else f"{references:,} documents of it"
    return V1Damage(
        kind=Kind.NO_COLLECTION,
        where=collection,
        collection=collection,
        documents=references,
        detail=f"the collection {collection} is missing; {referrers} refer to {them}",
    )
