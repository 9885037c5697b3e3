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
from edenmem.store.sqlite.core.codec import to_ms
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
        while True:
            with self._db.reading() as connection:
                (name,) = connection.execute(
                    "SELECT min(settled) FROM sessions WHERE settled > ?", (name,)
                ).fetchone()
            if name is None:
                return
            yield name

    def _walk(self, note: str | None, before: int) -> Iterator[_Place]:
        last: _Place = (-(2**62), "")
        while True:
            with self._db.reading() as connection:
                rows = connection.execute(
                    "SELECT quiet_since, id FROM sessions WHERE settled IS ?"
                    " AND (quiet_since, id) > (?, ?) AND quiet_since < ?"
                    " ORDER BY quiet_since, id LIMIT ?",
                    (note, *last, before, _PAGE),
                ).fetchall()
            yield from rows
            if len(rows) < _PAGE:
                return
            last = rows[-1]

    def settle(self, session_id: str, *, seen: str, rules: str) -> bool:
        with self._db.writing() as connection:
            noted = connection.execute(
                "UPDATE sessions SET settled = ? WHERE id = ? AND activity = ?",
                (rules, session_id, int(seen)),
            )
            return noted.rowcount == 1


def _quiet_session(connection: sqlite3.Connection, session_id: str) -> QuietSession | None:
    """Return the session with its count of occasions, unless deleted or incognito."""
    session = session_of(connection, session_id)
    if session is None or session.incognito:
        return None
    (activity,) = connection.execute(
        "SELECT activity FROM sessions WHERE id = ?", (session_id,)
    ).fetchone()
    return QuietSession(session=session, seen=str(activity))
