"""What the platform has formed of a session, as far as its cursor tells.

The platform keeps one cursor for each session, ``memory_context.last_memory_message_id``, forms
what comes after it for one of the agents (the one that answered, or the first), and does not note
which. So what it covers counts as formed for all agents of the session.

Formations of ours move the same cursor, for the first agent only. A cursor that we put there says
nothing about the platform: our formations say what we formed, message by message. One that the
platform put there covers the messages between the last cursor of ours before it and itself. Each
formation notes which cursor it replaced, so that nothing is lost when ours takes its place, and
nothing is formed twice when the platform writes an older copy of the session back.

Pure functions over what both stores read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from edenmem.models.formation import CursorMove, FormationStatus
from edenmem.models.ids import is_id

#: A formation in one of these states, made before moves were noted, had moved the cursor.
_APPLIED = frozenset({FormationStatus.APPLIED, FormationStatus.SUPERSEDED})


class Place(NamedTuple):
    """Where a message stands in its session."""

    at: datetime
    id: str


class Past(msgspec.Struct, frozen=True, kw_only=True):
    """What a session's progress needs to know of one of its formations."""

    agent_id: str
    status: FormationStatus
    end: Place | None
    moves: tuple[CursorMove, ...] | None


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """Messages that the platform formed: those after ``after``, up to ``upto``. If the cursor's
    message is gone, ``upto`` is placed by the time in its id, which has whole seconds."""

    after: Place | None
    upto: Place
    by_id: bool = False

    def covers(self, place: Place) -> bool:
        """Whether the platform formed the message at this place."""
        if self.after is not None and place <= self.after:
            return False
        if self.by_id:
            place = Place(place.at.replace(microsecond=0), place.id)
        return place <= self.upto


def place_by_id(id: str) -> Place:
    """The place of a message that is gone: the time in its id."""
    return Place(datetime.fromtimestamp(int(id[:8], 16), UTC), id)


def ids_to_place(cursor: str | None, pasts: Sequence[Past]) -> set[str]:
    """The messages whose places `platform_spans` needs and no formation tells."""
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
    """What the platform formed of a session.

    Args:
        cursor: The session's cursor as it is now.
        first_agent: The session's first agent.
        pasts: The formations of all agents of the session.
        places: The places of the messages of `ids_to_place` that exist.
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
