"""What is missing of an input, counted by file and kind while it is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from edenmem.models.v1 import V1Damage
from edenmem.models.v1 import V1DamageKind as Kind
from edenmem.text import one_line

#: Places that are named; all are counted.
_NAMED = 10

#: Characters of a problem that are shown.
_LONGEST = 120

_COUNTED = {
    Kind.UNREADABLE: ("cannot be read", "cannot be read"),
    Kind.INVALID_UTF8: (
        "holds bytes that are not UTF-8; they were replaced by U+FFFD",
        "hold bytes that are not UTF-8; they were replaced by U+FFFD",
    ),
    Kind.WRONG_TYPE: (
        "has an owner, a text or a kind of a wrong type",
        "have an owner, a text or a kind of a wrong type",
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
    """Counts damaged documents; memory does not grow with their number."""

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
        *,
        problem: str = "",
    ) -> None:
        """Count one damaged document of a file or collection; of several the first ``problem`` is
        named."""
        tally = self._tallies.setdefault((where, kind), _Tally(collection, problem=problem))
        tally.documents += 1
        tally.bytes += size
        if len(tally.places) < _NAMED:
            tally.places.append(place)

    def add(self, damage: V1Damage) -> None:
        """Add what is said of a whole file or collection."""
        self._found.append(damage)

    def damage(self) -> tuple[V1Damage, ...]:
        """Everything found, by file or collection."""
        counted = [_summarise(where, kind, found) for (where, kind), found in self._tallies.items()]
        return tuple(sorted([*self._found, *counted], key=lambda each: (each.where, each.kind)))


def _summarise(where: str, kind: Kind, tally: _Tally) -> V1Damage:
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


def ends_early(
    where: str, collection: str, place: str, problem: str, *, missing: int = 0
) -> V1Damage:
    """A file that stops in the middle; ``missing`` bytes of its last document (0: unknown)."""
    how = f"{missing:,} bytes of the last document are missing" if missing else problem
    return V1Damage(
        kind=Kind.ENDS_EARLY,
        where=where,
        collection=collection,
        bytes=missing or None,
        places=(place,),
        detail=f"{where} ends early at {place}: {how}; the number of documents that followed is "
        "unknown",
    )


def breaks_off(where: str, collection: str, place: str, problem: str) -> V1Damage:
    """A file that cannot be read to its end."""
    return V1Damage(
        kind=Kind.UNREADABLE,
        where=where,
        collection=collection,
        places=(place,),
        detail=f"{where} cannot be read from {place} on: {problem}; the number of documents that "
        "follow is unknown",
    )


def empty(where: str, collection: str) -> V1Damage:
    """A file of no bytes."""
    return V1Damage(
        kind=Kind.EMPTY,
        where=where,
        collection=collection,
        detail=f"{where} is empty; the number of its documents is unknown",
    )


def no_data(where: str, collection: str) -> V1Damage:
    """The metadata of a collection without its documents."""
    return V1Damage(
        kind=Kind.NO_DATA,
        where=where,
        collection=collection,
        detail=f"{where} describes {collection}, but its documents are not there",
    )


def repeated_ids(collection: str, documents: int, ids: Sequence[str]) -> V1Damage:
    """Documents with the ``_id`` of another one of their collection, the first of which counts."""
    more = documents - len(ids)
    what = "1 document has" if documents == 1 else f"{documents:,} documents have"
    named = ", ".join(ids) + (f" and {more:,} more" if more else "")
    return V1Damage(
        kind=Kind.DUPLICATE_ID,
        where=collection,
        collection=collection,
        documents=documents,
        places=tuple(ids),
        detail=f"{collection}: {what} the _id of another one: {named}",
    )


def no_collection(collection: str, references: int, referrers: str) -> V1Damage:
    """A collection that others refer to."""
    them = "1 document of it" if references == 1 else f"{references:,} documents of it"
    return V1Damage(
        kind=Kind.NO_COLLECTION,
        where=collection,
        collection=collection,
        documents=references,
        detail=f"the collection {collection} is missing; {referrers} refer to {them}",
    )
