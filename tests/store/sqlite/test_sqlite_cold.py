"""Notes about quiet sessions in a file: exact, by triggers, and walked along an index."""

from __future__ import annotations

import pytest

from edenmem.store.sqlite import SqliteStore
from tests.store.sqlite.test_sqlite_plans import full_scans
from tests.support.builders import NOW, ago, make_agent, make_messages, make_session

EVE, ADAM = make_agent("eve"), make_agent("adam")
RULES = "rules-1"


@pytest.fixture(autouse=True)
def eve(opened: SqliteStore) -> None:
    """A known agent."""
    opened.host.add_agent(EVE)


def quiet(store: SqliteStore) -> list[str]:
    return [each.session.id for each in store.cold.quiet_sessions(before=NOW, rules=RULES)]


def settled(store: SqliteStore, *agents: object) -> str:
    """A session with a note."""
    session = make_session([agent.id for agent in agents], last_activity=None)  # type: ignore[attr-defined]
    store.host.put_session(session)
    store.host.add_messages(session.id, make_messages(session, 3, start=ago(days=2)))
    for each in list(store.cold.quiet_sessions(before=NOW, rules=RULES)):
        assert store.cold.settle(each.session.id, seen=each.seen, rules=RULES)
    assert quiet(store) == []
    return session.id


def test_an_agent_that_joins_takes_the_note_back(opened: SqliteStore) -> None:
    session_id = settled(opened, EVE)
    opened.host.put_session(make_session([EVE], id=session_id))  # nobody new
    assert quiet(opened) == []
    opened.host.put_session(make_session([EVE, ADAM], id=session_id))
    assert quiet(opened) == [session_id]


def test_an_agent_that_comes_to_be_known_takes_the_note_back(opened: SqliteStore) -> None:
    session_id = settled(opened, ADAM)
    opened.host.add_agent(ADAM)
    assert quiet(opened) == [session_id]


def test_every_query_uses_an_index(opened: SqliteStore) -> None:
    statements: set[str] = set()
    with opened.connections.reading() as connection:
        connection.set_trace_callback(statements.add)
    session_id = settled(opened, EVE)
    list(opened.cold.quiet_sessions(before=NOW, rules="rules-2"))
    list(opened.cold.quiet_sessions(before=NOW, rules=None))
    with opened.connections.reading() as connection:
        connection.set_trace_callback(None)
        walks = [one for one in statements if "quiet_since" in one]
        assert session_id
        assert walks
        for one in sorted(statements):
            assert list(full_scans(connection, one)) == []
        for one in walks:
            plan = " ".join(row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {one}"))
            assert "sessions_quiet (settled=? AND (quiet_since,id)>(?,?)" in plan
            assert "TEMP B-TREE" not in plan
