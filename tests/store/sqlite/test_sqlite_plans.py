"""No query that a store of a million facts would feel reads a whole table."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator

from edenmem.store.sqlite import SqliteStore
from tests.support.everything import use_everything

#: Tables that grow without bound. Walking one along an index is a scan too, unless a limit and
#: the order make it stop: `_IN_ORDER` names the indexes that are walked so.
_LARGE = (
    r"f|r|h|a|v|m|s|o|x|u|c|usage_entries|facts|reflections|history|audit|messages|sessions|formations"
    r"|formation_messages|vectors|vector_codes|scopes|session_members|consolidations|policies"
)
_IN_ORDER = {
    "consolidations_unpropagated",  # partial: nearly always empty
    "sessions_activity",
    "formations_time",
    "audit_time",
    "sqlite_autoindex_scopes_1",
    "sqlite_autoindex_agents_1",
}
_SCAN = re.compile(rf"SCAN ({_LARGE})\b(?: USING (?:COVERING )?INDEX (\w+))?")


def test_every_query_uses_an_index(sqlite_store: SqliteStore) -> None:
    statements: set[str] = set()
    with sqlite_store.connections.reading() as connection:
        connection.set_trace_callback(statements.add)
    use_everything(sqlite_store, daily=True)
    with sqlite_store.connections.reading() as connection:
        connection.set_trace_callback(None)
        assert len(statements) > 60
        scans = [found for one in sorted(statements) for found in full_scans(connection, one)]
    assert scans == []


def full_scans(connection: sqlite3.Connection, statement: str) -> Iterator[tuple[str, str]]:
    if not re.match(r"SELECT|UPDATE|DELETE|INSERT OR", statement):
        return
    if re.match(r"SELECT count\(\*\) FROM \w+$", statement):  # `info` counts: it is asked to
        return
    for *_, detail in connection.execute(f"EXPLAIN QUERY PLAN {statement}"):
        found = _SCAN.match(detail)
        if found and found[2] not in _IN_ORDER:
            yield detail, statement
