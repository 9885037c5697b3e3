"""Determine what the platform has formed of a session, from its cursor.

The platform keeps one cursor per session, ``memory_context.last_memory_message_id``. It forms the
messages after it for one agent (the one that answered, or the first), and does not record which. So
everything before the cursor counts as formed for all agents of the session.

Edenmem's formations move the same cursor, for the first agent only. A cursor set by edenmem says
nothing about the platform, since formations record their messages. A cursor set by the platform
covers the messages after edenmem's previous cursor. Each formation records the cursor that it
replaced, so that no message is lost, and none is formed twice when the platform writes back an
older copy of the session.

Pure functions on data that both stores read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from edenmem.models.formation import CursorMove, FormationStatus
from edenmem.models.ids import is_id

#: Formations in these states, from before moves were recorded, have moved the cursor.
_APPLIED = frozenset({FormationStatus.APPLIED, FormationStatus.SUPERSEDED})


class Place(NamedTuple):
    """The position of a message in its session."""

    at: datetime
    id: str


class Past(msgspec.Struct, frozen=True, kw_only=True):
    """The relevant fields of a formation."""

    agent_id: str
    status: FormationStatus
    end: Place | None
    moves: tuple[CursorMove, ...] | None


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """Messages that the platform formed: after ``after``, up to ``upto``.

    ``by_id``: the cursor's message is deleted, so ``upto`` is the time in its ID, in whole seconds.
    """

    after: Place | None
    upto: Place
    by_id: bool = False

    def covers(self, place: Place) -> bool:
        """Return whether the platform formed the message at this position."""
        if self.after is not None and place <= self.after:
            return False
        if self.by_id:
            place = Place(place.at.replace(microsecond=0), place.id)
        return place <= self.upto


def place_by_id(id: str) -> Place:
    """Return the position of a deleted message, by the time in its ID."""
    return Place(datetime.fromtimestamp(int(id[:8], 16), UTC), id)


def ids_to_place(cursor: str | None, pasts: Sequence[Past]) -> set[str]:
    """Return the messages whose positions `platform_spans` needs and no formation records."""
    moves = [move for past in pasts for move in past.moves or ()]
    ids = {cursor, *(move.replaced for move in moves), *(move.to for move in moves)}
    known = {past.end.id for past in pasts if past.end is not None}
    return {id for id in ids if id is not None and is_id(id)} - known


def platform_spans(
    cursor: str | None,
    first_agent: str | None,
    pasts: Sequence[Past],
    places: Mapping[str, Place],
) -> tuple[Span, ...]:
    """Return the spans of a session that the platform formed.

    Args:
        cursor: The session's current cursor.
        first_agent: The session's first agent.
        pasts: The formations of all agents of the session.
        places: The positions of existing messages from `ids_to_place`.
    """
    moves = [move for past in pasts for move in _moves(past, first_agent)]
    ours = {move.to for move in moves}
    known = {past.end.id: past.end for past in pasts if past.end is not None} | dict(places)
    ends = sorted(known.get(id) or place_by_id(id) for id in ours)
    theirs = {cursor, *(move.replaced for move in moves)} - ours
    spans = []
    for id in sorted(id for id in theirs if id is not None and is_id(id)):
        upto = known.get(id)
        by_id = upto is None
        upto = upto or place_by_id(id)
        after = max((end for end in ends if end < upto), default=None)
        spans.append(Span(after=after, upto=upto, by_id=by_id))
    return tuple(spans)


def _moves(past: Past, first_agent: str | None) -> Iterator[CursorMove]:
    if past.moves is not None:
        yield from past.moves
    elif past.status in _APPLIED and past.agent_id == first_agent and past.end is not None:
        yield CursorMove(to=past.end.id)
