"""Selection of quiet sessions for the cold run.

Every message, agent and formation is written through this file, so triggers (see their migration)
remove the note "nothing to do" in the transaction of each relevant change. The notes are exact and
need no sweep.
"""

# ruff: noqa: D102 - the protocol documents these methods.

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from datetime import datetime
from heapq import merge

from edenmem.store.protocol.formations import QuietSession
from edenmem.store.protocol.store import batched
from edenmem.store.sqlite.core.codec import EVER, to_ms
from edenmem.store.sqlite.core.part import Part
from edenmem.store.sqlite.host.rows import session_of

#: Sessions in one batch; each takes a few queries.
_PAGE = 100

#: (quiet since, ID)
_Place = tuple[int, str]


class ColdSessions(Part):
    """See `edenmem.store.protocol.formations.ColdSessions`."""

    def quiet_sessions(self, *, before: datetime, rules: str | None) -> Iterator[QuietSession]:
        # One index walk for sessions that were never settled, and one for each rules name; there
        # are few names, and sessions settled by the current rules are skipped.
        notes: list[str | None] = [None, *(name for name in self._rules() if name != rules)]
        walks = [self._walk(note, to_ms(before)) for note in notes]
        for page in batched(merge(*walks), _PAGE):
            with self._db.reading() as connection:
                found = [_quiet_session(connection, session_id) for _, session_id in page]
            yield from (quiet for quiet in found if quiet is not None)

    def _rules(self) -> Iterator[str]:
        """Return the names of rules in the notes, by one lookup each."""
        name: str | None = ""
        least = "SELECT min(settled) FROM sessions WHERE settled > ?"
        while (name := self._fetch_one(least, (name,))[0]) is not None:
            yield name

    def _walk(self, note: str | None, before: int) -> Iterator[_Place]:
        return self._pages(
            "SELECT quiet_since, id FROM sessions WHERE (quiet_since, id) > (?, ?)"
            " AND settled IS ? AND quiet_since < ? ORDER BY quiet_since, id LIMIT ?",
            (note, before),
            (EVER, ""),
            lambda row: row,
        )

    def settle(self, session_id: str, *, seen: str, rules: str) -> bool:
        noted = "UPDATE sessions SET settled = ? WHERE id = ? AND activity = ?"
        return self._write(noted, (rules, session_id, int(seen))) == 1


def _quiet_session(connection: sqlite3.Connection, session_id: str) -> QuietSession | None:
    """Return the session with its count of occasions, unless deleted or incognito."""
    session = session_of(connection, session_id)
    if session is None or session.incognito:
        return None
    (activity,) = connection.execute(
        "SELECT activity FROM sessions WHERE id = ?", (session_id,)
    ).fetchone()
    return QuietSession(session=session, seen=str(activity))
