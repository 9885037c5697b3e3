"""Determine which messages of a session were read, by edenmem or by the platform.

The platform keeps one cursor per session, ``memory_context.last_memory_message_id``. It moves the
cursor before it asks a model, and reads at most its last messages; so the cursor proves nothing.
What the platform read is proven by the ``source_message_ids`` of its facts and reflections, of each
agent. Since these may be deleted, the IDs are copied to a formation with the trigger "platform"
(its ``superseded_message_ids``) when first seen. What edenmem read is in its formations.

Pure functions on data that both stores read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from edenmem.models.formation import UNFINISHED, Reach, Trigger
from edenmem.models.ids import time_of


class Place(NamedTuple):
    """The position of a message in its session."""

    at: datetime
    id: str


class Readers(msgspec.Struct, frozen=True):
    """The read messages of a session, for one agent.

    ``taken`` are those in formations of edenmem, ``freed`` those to be formed again. ``proof`` are
    the sources of memory that edenmem did not form, ``noted`` their copies, and ``platform_proof``
    the sources of memory that the platform certainly wrote.
    """

    taken: set[str] = msgspec.field(default_factory=set)
    freed: set[str] = msgspec.field(default_factory=set)
    proof: set[str] = msgspec.field(default_factory=set)
    noted: set[str] = msgspec.field(default_factory=set)
    platform_proof: set[str] = msgspec.field(default_factory=set)

    def add(self, trigger: str, ids: Iterable[str], superseded: Iterable[str]) -> None:
        """Add a formation of the agent."""
        if trigger == Trigger.PLATFORM:
            self.noted.update(superseded)
        else:
            self.taken.update(ids)
            self.freed.update(superseded)

    @property
    def platform(self) -> set[str]:
        """Return the messages that only the platform has read."""
        return (self.proof | self.noted) - self.freed - self.taken

    @property
    def twice(self) -> set[str]:
        """Return the messages that both have read."""
        return self.platform_proof & self.taken

    @property
    def new_proof(self) -> set[str]:
        """Return the proof that is not copied yet."""
        return self.proof - self.noted

    @property
    def unnoted(self) -> set[str]:
        """Return the proof to copy. For a formation of edenmem, it stays new until that ends."""
        return self.new_proof - self.taken


class Waiting(NamedTuple):
    """Messages to form, oldest first, and how many of them the platform's cursor has passed.

    ``by_platform`` counts messages that only the platform has read.
    """

    ids: list[str]
    passed: int
    by_platform: int


def is_free_again(status: str, reach: Reach) -> bool:
    """Return whether the messages of a formation are to be formed again."""
    return reach.own and status not in UNFINISHED


def select_waiting(
    places: Sequence[Place],
    readers: Readers,
    cursor: str | None,
    reach: Reach,
    find_blocked: Callable[[Iterable[str]], set[str]],
) -> Waiting:
    """Select the messages to form.

    Args:
        places: All messages of the session, in order.
        readers: The read messages.
        cursor: The platform's cursor.
        reach: The messages to include.
        find_blocked: Returns those that must never be formed again.
    """
    theirs = readers.platform
    free = [place for place in places if place.id not in readers.taken]
    waiting = [place for place in free if reach.platform or place.id not in theirs]
    blocked = find_blocked(place.id for place in waiting)
    waiting = [place for place in waiting if place.id not in blocked]
    return Waiting(
        [place.id for place in waiting],
        count_passed(waiting, cursor, places),
        sum(place.id in theirs for place in free),
    )


def count_passed(waiting: Sequence[Place], cursor: str | None, places: Sequence[Place]) -> int:
    """Count the messages up to the platform's cursor.

    A deleted message is placed by the time in its ID, in whole seconds.
    """
    if cursor is None:
        return 0
    end = next((place for place in reversed(places) if place.id == cursor), None)
    if end is not None:
        return sum(place <= end for place in waiting)
    end = place_by_id(cursor)
    return sum(Place(at.replace(microsecond=0), id) <= end for at, id in waiting)


def place_by_id(id: str) -> Place:
    """Return the position of a deleted message, by the time in its ID."""
    return Place(time_of(id), id)
