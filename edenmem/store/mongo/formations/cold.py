"""Find the quiet sessions that a cold run must check.

The platform writes messages without notice, and rewrites whole sessions. So notes about sessions
are in a separate collection: ``activity`` (the time of the newest message), ``seen`` (the number of
messages and the ID of the newest) and ``settled`` (the rules under which nothing was to be done;
null: to be checked). A note expires

- with messages that the platform wrote: IDs contain their time of creation, so each run reads the
  IDs created since the last run (and an hour before, for messages written late), and compares
  ``seen``;
- with messages through `Host.add_messages`, whose IDs may contain any time;
- with an unfinished formation, which a manual retry also creates;
- after a week: each run checks a share of all sessions, proportional to the time since the last
  run, and so notices all other changes (an added agent, a restored backup).

The first run checks all sessions. A lost note costs one check, nothing else.
"""

# ruff: noqa: D102 - the protocol documents these methods.

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from heapq import merge
from itertools import chain, islice
from typing import Any

from bson import ObjectId
from pymongo import UpdateOne

from edenmem.models.formation import UNFINISHED
from edenmem.models.ids import as_utc, utc_now
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core.collection import Document
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.core.filters import (
    EPOCH,
    NOT_DELETED,
    Filter,
    at_or_after,
    id_parts,
    object_id,
)
from edenmem.store.mongo.host.host_codec import SESSION_FIELDS, session_from
from edenmem.store.protocol.formations import QuietSession
from edenmem.store.protocol.store import batched

#: Maximum delay between creating an ID and writing its message, and skew of clocks.
_LATE = timedelta(hours=1)

#: The time in which all sessions are checked once.
_ROUND = timedelta(days=7)
_PAGE = 100
_SWEEP = 500
_MESSAGES = 5000
_LOWEST = ObjectId("0" * 24)

#: The ID of the document with the progress of the sweeps.
_PROGRESS = "progress"


class MongoColdSessions:
    """Implements `edenmem.store.protocol.formations.ColdSessions`.

    Only its own notes are written; the platform's documents are only read.
    """

    def __init__(self, db: Connection) -> None:
        self._db = db

    def quiet_sessions(self, *, before: datetime, rules: str | None) -> Iterator[QuietSession]:
        if rules is None:
            yield from self._all_quiet(before)
            return
        self._notice()
        names = {None, *self._db.cold.distinct("settled")} - {rules}
        walks = [self._walk(name, before) for name in names]
        for page in batched(merge(*walks, key=_age), _PAGE):
            yield from self._look_up(page, before, rules)

    def settle(self, session_id: str, *, seen: str, rules: str) -> bool:
        key = {"_id": object_id(session_id), "seen": seen}
        return self._db.cold.update_one(key, {"$set": {"settled": rules}}) > 0

    # -- reading the notes -------------------------------------------------------------------

    def _walk(self, settled: str | None, before: datetime) -> Iterator[Document]:
        """Yield notes settled under these rules, oldest activity first.

        Pages have no cursor in between.
        """
        rules: Filter = {"settled": settled}
        left: list[Filter] = [{**rules, "activity": {"$gt": EPOCH, "$lt": before}}]
        while True:
            order = (("activity", 1), ("_id", 1))
            found = (self._db.cold.find(filter, sort=order, limit=_PAGE) for filter in left)
            page = list(islice(chain.from_iterable(found), _PAGE))
            yield from page
            if len(page) < _PAGE:
                return
            at, key = page[-1]["activity"], page[-1]["_id"]
            left = [
                {**rules, "activity": at, "_id": {"$gt": key}},  # an import may give one time
                {**rules, "activity": {"$gt": at, "$lt": before}},
            ]

    def _look_up(
        self, notes: Sequence[Document], before: datetime, rules: str
    ) -> Iterator[QuietSession]:
        """Yield the sessions of these notes; deleted and incognito ones are settled."""
        keys = [note["_id"] for note in notes]
        found = {
            document["_id"]: document
            for document in self._db.sessions.find({"_id": {"$in": keys}}, SESSION_FIELDS)
            if document.get("deleted") is not True
        }
        sessions = {key: session_from(document) for key, document in found.items()}
        sessions = {key: session for key, session in sessions.items() if not session.incognito}
        idle = [key for key in keys if key not in sessions]
        if idle:
            self._db.cold.update_many({"_id": {"$in": idle}}, {"$set": {"settled": rules}})
        states = dict(zip(sessions, self._states(list(sessions)), strict=True))
        changed = [
            UpdateOne({"_id": note["_id"]}, {"$set": _build_note(*states[note["_id"]])})
            for note in notes
            if note["_id"] in states and note.get("seen") != states[note["_id"]][0]
        ]
        self._db.cold.bulk(changed)
        for key in keys:
            if key in sessions:
                seen, activity = states[key]
                if activity is not None and activity < before:
                    yield QuietSession(session=sessions[key], seen=seen)

    def _all_quiet(self, before: datetime) -> Iterator[QuietSession]:
        """Yield every quiet session, from the platform's documents alone."""
        activity = "memory_context.last_activity"
        recorded = self._db.sessions.find(
            {activity: at_or_after(EPOCH), **NOT_DELETED}, SESSION_FIELDS, sort=[(activity, 1)]
        )
        silent = self._db.sessions.find(
            {activity: None, **NOT_DELETED}, SESSION_FIELDS, sort=[("updatedAt", 1)]
        )
        both = merge(
            map(session_from, recorded),
            map(session_from, silent),
            key=lambda session: session.last_activity or EPOCH,
        )
        for page in batched((session for session in both if not session.incognito), _PAGE):
            states = self._states([object_id(session.id) for session in page])
            for session, (seen, newest) in zip(page, states, strict=True):
                if newest is not None and newest < before:
                    yield QuietSession(session=session, seen=seen)

    # -- keeping the notes current -----------------------------------------------------------

    def _notice(self) -> None:
        """Reset the notes of sessions that may have changed."""
        progress = self._db.cold.find_one({"_id": _PROGRESS}) or {}
        now = utc_now()
        noticed = codec.moment(progress.get("noticed"))
        if noticed is not None:
            since, until = map(ObjectId.from_datetime, (noticed - _LATE, now + _LATE))
            made = {"$gt": since, "$lt": until}
            recent = self._db.messages.find({"_id": made}, {"session": 1}, sort=(("_id", 1),))
            for batch in batched(recent, _MESSAGES):
                held = [message.get("session") for message in batch]
                lists = (each if isinstance(each, list) else [each] for each in held)  # one if old
                sessions = {key for keys in lists for key in keys if key}
                for page in batched(sessions, _SWEEP):
                    self._refresh(page, always=False)
        unfinished = self._db.formations.find(
            {"status": {"$in": [status.value for status in UNFINISHED]}}, {"session_id": 1}
        )
        for page in batched(unfinished, _SWEEP):
            self._refresh(list({document["session_id"] for document in page}), always=True)
        self._sweep(progress, now)
        self._note_progress({"$max": {"noticed": now}})

    def _sweep(self, progress: Document, now: datetime) -> None:
        """Check the next share of all sessions; all of them until a first sweep is complete."""
        swept_at = codec.moment(progress.get("swept_at"))
        share: float = float("inf")
        if swept_at is not None:
            share = self._db.sessions.estimate_count() * ((now - swept_at) / _ROUND) // 1
        last = progress.get("sweeping") or _LOWEST
        while share > 0:
            limit = int(min(share, _SWEEP))
            later = {"_id": {"$gt": last}}
            found = self._db.sessions.find(later, {"_id": 1}, sort=(("_id", 1),), limit=limit)
            page = [document["_id"] for document in found]
            self._refresh(page, always=True)
            share -= limit
            if len(page) < limit:
                last, share = _LOWEST, 0
            else:
                last = page[-1]
            at = {"swept_at": now} if share <= 0 else {}
            self._note_progress({"$set": {"sweeping": last, **at}})

    def _note_progress(self, change: Filter) -> None:
        self._db.cold.update_one({"_id": _PROGRESS}, change, upsert=True)

    def _refresh(self, keys: Sequence[Any], *, always: bool) -> None:
        """Reset the notes of these sessions; without ``always`` only of changed ones."""
        known = {
            note["_id"]: note.get("seen")
            for part in id_parts(str(key) for key in keys)
            for note in self._db.cold.find({"_id": {"$in": part}}, {"seen": 1})
        }
        changes = [
            UpdateOne({"_id": key}, {"$set": _build_note(seen, at)}, upsert=True)
            for key, (seen, at) in zip(keys, self._states(keys), strict=True)
            if at is not None and (always or known.get(key) != seen)
        ]
        self._db.cold.bulk(changes)

    def _states(self, keys: Sequence[Any]) -> list[tuple[str, datetime | None]]:
        """Return for each session its message count with the newest ID, and the newest time.

        The newest is read after the count: a message in between gives a state that never existed,
        which only costs one more check.
        """

        def state(key: Any) -> tuple[str, datetime | None]:
            count = self._db.messages.count({"session": key})
            backwards = (("createdAt", -1), ("_id", -1))
            newest = self._db.messages.find_one({"session": key}, {"createdAt": 1}, sort=backwards)
            if newest is None:
                return "0", None
            at = codec.moment(newest.get("createdAt")) or newest["_id"].generation_time
            return f"{count}:{newest['_id']}", as_utc(at)

        return self._db.run_all([lambda key=key: state(key) for key in keys])  # type: ignore[misc]


def _build_note(seen: str, activity: datetime | None) -> Document:
    # One write for all fields: if another run settles the note after this run has read the session,
    # it must not stay settled with the new state.
    return {"seen": seen, "activity": activity, "settled": None}


def _age(note: Document) -> tuple[datetime, str]:
    return codec.require_moment(note, "activity"), str(note["_id"])
