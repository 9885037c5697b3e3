"""Which quiet sessions the cold run has to look at.

Every message, agent and formation is written through this file, so triggers (see the migration
that made them) take the note "nothing to do" back in the transaction of whatever may change that,
and a note is exact: it needs no sweep, and can hide nothing.
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

#: Sessions that are read at a time; each is looked at with a few queries of its own.
_PAGE = 100

#: (quiet since, id)
_Place = tuple[int, str]


class ColdSessions(Part):
    """See `edenmem.store.protocol.formations.ColdSessions`."""

    def quiet_sessions(self, *, before: datetime, rules: str | None) -> Iterator[QuietSession]:
        # One walk of the index for those that were never settled, and one for each name of rules
        # by which some were; there are few names, and those settled by the current are skipped.
        notes: list[str | None] = [None, *(name for name in self._rules() if name != rules)]
        walks = [self._walk(note, to_ms(before)) for note in notes]
        for page in batched(merge(*walks), _PAGE):
            with self._db.reading() as connection:
                found = [_quiet_session(connection, session_id) for _, session_id in page]
            yield from (quiet for quiet in found if quiet is not None)

    def _rules(self) -> Iterator[str]:
        """The names of rules in the notes, each found by a look-up of its own."""
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
                "UPDATE sessions SET settled = ? WHERE id = ? AND stirred = ?",
                (rules, session_id, int(seen)),
            )
            return noted.rowcount == 1


def _quiet_session(connection: sqlite3.Connection, session_id: str) -> QuietSession | None:
    """The session with its count of occasions, unless it is deleted or incognito."""
    session = session_of(connection, session_id)
    if session is None or session.incognito:
        return None
    (stirred,) = connection.execute(
        "SELECT stirred FROM sessions WHERE id = ?", (session_id,)
    ).fetchone()
    return QuietSession(session=session, seen=str(stirred))
