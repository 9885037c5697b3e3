"""Every text that is stored, for whoever looks for somebody in it."""


# ruff: noqa: S608 - what is put into statements here are our own constants; values are bound.

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from edenmem.models.changes import ChangeSet
from edenmem.models.forgetting import FORGOTTEN, Passage, list_texts, origin_in
from edenmem.models.formation import Decision
from edenmem.store.common.formation_words import wording_of
from edenmem.store.sqlite.core import codec
from edenmem.store.sqlite.core.connections import Connections
from edenmem.store.sqlite.core.part import BATCH

#: Between the session and the agent of a cached context, in its passage's id.
_AND = "/"

_SCOPE = "s.kind, s.agent_id, s.owner"


def read_passages(db: Connections) -> Iterator[Passage]:
    """Every text, read in pages, without a cursor or snapshot between them."""
    for place, columns, source, key in _MEMORY:
        for row in _rows_of(db, columns, source, key):
            scope = codec.scope_of(*row[1:4])
            kind = {"previous": "fact"}.get(place, place)
            for text in row[7:]:
                if text:
                    yield Passage(
                        place=place,
                        id=row[4],
                        target_type=kind,
                        target_id=row[4],
                        text=text,
                        scope=scope,
                        session_id=row[5],
                        source_message_ids=codec.from_list(row[6]),
                    )
    yield from _history_passages(db)
    yield from _audit_passages(db)
    yield from _formation_passages(db)
    yield from _context_passages(db)


def _rows_of(db: Connections, columns: str, source: str, key: str) -> Iterator[codec.Row]:
    """Rows in the order of a key, which is their first column, a page at a time."""
    last: Any = None
    while True:
        after = "" if last is None else f" WHERE {key} > ?"
        with db.reading() as connection:
            rows = connection.execute(
                f"SELECT {key}, {columns} FROM {source}{after} ORDER BY {key} LIMIT ?",
                (BATCH,) if last is None else (last, BATCH),
            ).fetchall()
        yield from rows
        if len(rows) < BATCH:
            return
        last = rows[-1][0]


def _history_passages(db: Connections) -> Iterator[Passage]:
    columns = f"{_SCOPE}, h.id, h.target_type, h.target_id, h.content, h.snapshot"
    source = "history h JOIN scopes s USING (scope_id)"
    for row in _rows_of(db, columns, source, "h.history_no"):
        text, snapshot = row[7], None
        if row[8] is not None:
            snapshot = msgspec.json.decode(row[8])
            text = "\n".join((text, *list_texts(snapshot)))
        if text and text != FORGOTTEN:
            yield Passage(
                place="history",
                id=row[4],
                target_type=row[5],
                target_id=row[6],
                text=text,
                scope=codec.scope_of(*row[1:4]),
                session_id=origin_in(snapshot)[0],
                source_message_ids=origin_in(snapshot)[1],
            )


def _audit_passages(db: Connections) -> Iterator[Passage]:
    columns = f"{_SCOPE}, a.id, a.target_type, a.target_id, a.before, a.after, a.reason"
    source = "audit a LEFT JOIN scopes s USING (scope_id)"
    for row in _rows_of(db, columns, source, "a.audit_no"):
        documents = [msgspec.json.decode(part) if part else None for part in row[7:9]]
        text = "\n".join((*list_texts(*documents), row[9])).strip()
        if text:
            yield Passage(
                place="audit",
                id=row[4],
                target_type=row[5],
                target_id=row[6],
                text=text,
                scope=None if row[1] is None else codec.scope_of(*row[1:4]),
                session_id=origin_in(*documents)[0],
                source_message_ids=origin_in(*documents)[1],
            )


def _formation_passages(db: Connections) -> Iterator[Passage]:
    for id, decisions, error, changes in _rows_of(
        db, "f.decisions, f.error, f.changes", "formations f", "f.id"
    ):
        text = wording_of(
            msgspec.json.decode(decisions, type=tuple[Decision, ...]),
            error,
            None if changes is None else msgspec.json.decode(changes, type=ChangeSet),
        )
        if text:
            yield Passage(
                place="formation", id=id, target_type="formation", target_id=id, text=text
            )


def _context_passages(db: Connections) -> Iterator[Passage]:
    last = ("", "")
    while True:
        with db.reading() as connection:
            rows = connection.execute(
                "SELECT c.session_id, c.agent_id, c.xml FROM cached_contexts c"
                " WHERE (c.session_id, c.agent_id) > (?, ?)"
                " ORDER BY c.session_id, c.agent_id LIMIT ?",
                (*last, BATCH),
            ).fetchall()
        for session_id, agent_id, xml in rows:
            yield Passage(
                place="context",
                id=f"{session_id}{_AND}{agent_id}",
                target_type="session",
                target_id=session_id,
                text=xml,
            )
        if len(rows) < BATCH:
            return
        last = rows[-1][:2]


_OF_FACT = "f.id, f.session_id, f.source_message_ids"
_OF_NO_SESSION = "NULL, NULL"

#: Place → columns (scope first, then id, session, source messages, and texts), where from, and the
#: key to walk by.
_MEMORY = (
    (
        "fact",
        f"{_SCOPE}, {_OF_FACT}, f.content",
        "facts f JOIN scopes s USING (scope_id)",
        "f.fact_no",
    ),
    (
        "previous",
        f"{_SCOPE}, {_OF_FACT}, f.previous_content",
        "facts f JOIN scopes s USING (scope_id)",
        "f.fact_no",
    ),
    (
        "reflection",
        f"{_SCOPE}, r.id, r.session_id, r.source_message_ids, r.content",
        "reflections r JOIN scopes s USING (scope_id)",
        "r.reflection_no",
    ),
    (
        "consolidation",
        f"{_SCOPE}, c.id, {_OF_NO_SESSION}, c.content",
        "consolidations c JOIN scopes s USING (scope_id)",
        "c.scope_id",
    ),
    (
        "policy",
        f"{_SCOPE}, p.id, {_OF_NO_SESSION}, p.memory_instructions, p.consolidation_instructions",
        "policies p JOIN scopes s USING (scope_id)",
        "p.scope_id",
    ),
)
