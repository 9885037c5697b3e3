"""Where the traces of a subject are in the file, and how many."""

# ruff: noqa: D102 - the protocol documents these methods.
# ruff: noqa: S608 - what is put into statements here are our own constants; values are bound.

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

from edenmem.models.forgetting import Passage, Traces, whole_accounts
from edenmem.models.host import Session
from edenmem.models.memory import Reflection
from edenmem.models.scope import Scope
from edenmem.store.protocol.store import batched
from edenmem.store.sqlite.core import codec, scopes
from edenmem.store.sqlite.core.part import BATCH, Part, json_array
from edenmem.store.sqlite.host.host import Host

AMONG = "IN (SELECT value FROM json_each(?))"

#: What a formation that has nothing left to give looks like.
SETTLED = "status = 'applied' AND decisions = '[]' AND error IS NULL AND changes IS NULL"

#: Audit entries of accounts, which are of no scope, and say what these are called.
OF_ACCOUNTS = f"target_id {AMONG} AND target_type = 'user'"
#: Audit entries that have contents.
FULL = "(before IS NOT NULL OR after IS NOT NULL OR reason <> '')"

#: Messages of the accounts in a formation, also in one that is superseded.
SAID_IN = (
    "EXISTS (SELECT 1 FROM messages m WHERE m.id IN (SELECT fm.message_id FROM formation_messages"
    " fm WHERE fm.formation_id = formations.id UNION ALL SELECT value FROM"
    f" json_each(coalesce(formations.superseded_message_ids, '[]'))) AND m.sender {AMONG})"
)


def numbers(connection: sqlite3.Connection, traces: Traces) -> list[int]:
    """The numbers of the scopes that go as a whole, as far as anything was ever in them."""
    return list(scopes.numbers_of(connection, traces.scopes).values())


def of_agent(traces: Traces) -> tuple[str, list[Any]]:
    """The condition that narrows formations to one agent, and its value."""
    return ("", []) if traces.agent_id is None else (" AND agent_id = ?", [traces.agent_id])


class Tracing(Host, Part):
    """See `edenmem.store.protocol.erasure.Erasing`."""

    def find_agent_ids(self) -> list[str]:
        with self._db.reading() as connection:
            rows = connection.execute(
                "SELECT id FROM agents UNION SELECT agent_id FROM scopes"
            ).fetchall()
        return [agent_id for (agent_id,) in rows]

    def scopes_of(self, agent_id: str) -> list[Scope]:
        with self._db.reading() as connection:
            rows = connection.execute(
                "SELECT kind, agent_id, owner FROM scopes WHERE agent_id = ?", (agent_id,)
            ).fetchall()
        return sorted(codec.scope_of(*row) for row in rows)

    def sessions_of(
        self, *, accounts: Sequence[str] = (), agent_id: str | None = None, group_id: str = ""
    ) -> Iterator[Session]:
        member = (
            "s.id IN (SELECT x.session_id FROM session_members x"
            f" WHERE x.role = '{{}}' AND x.member_id {AMONG})"
        )
        if accounts:
            wrote = (
                "EXISTS (SELECT 1 FROM messages m WHERE m.session_id = s.id AND m.role = 'user'"
                f" AND m.trigger = 0 AND m.sender {AMONG})"
            )
            ids = json_array(accounts)
            return self._sessions(f"({member.format('user')} OR {wrote})", [ids, ids])
        if agent_id is not None:
            return self._sessions(member.format("agent"), [json_array([agent_id])])
        return self._sessions("s.group_id = ?", [group_id]) if group_id else iter(())

    def names_shown(self, accounts: Sequence[str], session_ids: Sequence[str]) -> list[str]:
        with self._db.reading() as connection:
            rows = connection.execute(
                f"SELECT DISTINCT m.name FROM messages m WHERE m.session_id {AMONG}"
                f" AND m.role = 'user' AND m.trigger = 0 AND m.sender {AMONG}"
                " AND m.name IS NOT NULL ORDER BY m.name",
                (json_array(session_ids), json_array(accounts)),
            ).fetchall()
        return [name for (name,) in rows]

    def find_message_ids(
        self, accounts: Sequence[str], session_ids: Sequence[str]
    ) -> Iterator[str]:
        for session_id in session_ids:
            with self._db.reading() as connection:
                rows = connection.execute(
                    f"SELECT m.id FROM messages m WHERE m.session_id = ? AND m.sender {AMONG}",
                    (session_id, json_array(accounts)),
                ).fetchall()
            yield from (id for (id,) in rows)

    def authors(self, message_ids: Sequence[str]) -> dict[str, str]:
        found: dict[str, str] = {}
        for part in batched(message_ids, BATCH):
            with self._db.reading() as connection:
                rows = connection.execute(
                    "SELECT m.id,"
                    " iif(m.role = 'user' AND m.trigger = 0, coalesce(m.sender, ''), '')"
                    f" FROM messages m WHERE m.id {AMONG}",
                    (json_array(part),),
                ).fetchall()
            found.update(rows)
        return found

    def count_conversations(self, traces: Traces) -> dict[str, int]:
        own, shared = json_array(traces.own), json_array(traces.shared)
        with self._db.reading() as connection:
            counts = {
                kind: connection.execute(f"SELECT count(*) FROM {source}", values).fetchone()[0]
                for kind, source, values in (
                    ("sessions", f"sessions WHERE id {AMONG}", (own,)),
                    ("messages", f"messages WHERE session_id {AMONG}", (own,)),
                    (
                        "messages in shared sessions",
                        f"messages WHERE session_id {AMONG} AND sender {AMONG}",
                        (shared, json_array(traces.accounts)),
                    ),
                )
            }
        return {kind: number for kind, number in counts.items() if number}

    def find_derived(self, reflection_ids: Sequence[str]) -> list[Reflection]:
        with self._db.reading() as connection:
            rows = connection.execute(
                f"{codec.REFLECTION} WHERE r.propagated_from IS NOT NULL AND EXISTS (SELECT 1"
                f" FROM json_each(r.propagated_from) AS parent WHERE parent.value {AMONG})",
                (json_array(reflection_ids),),
            ).fetchall()
        return [codec.reflection_from(row) for row in rows]

    def trace_reflections(self, traces: Traces) -> Iterator[Reflection]:
        for row in self._trace(codec.REFLECTION, "r", "reflection_no", traces):
            yield codec.reflection_from(row)

    def trace_texts(self, traces: Traces) -> Iterator[Passage]:
        for row in self._trace(codec.FACT, "f", "fact_no", traces):
            fact = codec.fact_from(row)
            yield _passage("fact", fact.id, fact.content, fact.home)
        for reflection in self.trace_reflections(traces):
            yield _passage("reflection", reflection.id, reflection.content, reflection.home)
        with self._db.reading() as connection:
            texts = connection.execute(
                f"{codec.CONSOLIDATION} WHERE c.scope_id {AMONG} AND c.content <> ''",
                (json_array(numbers(connection, traces)),),
            ).fetchall()
        for row in texts:
            text = codec.consolidation_from(row, ())
            yield _passage("consolidation", text.id, text.consolidated_content, text.home)

    def _trace(self, select: str, table: str, key: str, traces: Traces) -> Iterator[codec.Row]:
        """Rows in these scopes, then those elsewhere that come from these sessions."""
        with self._db.reading() as connection:
            whole = json_array(numbers(connection, traces))
        conditions = (
            (f"{table}.scope_id {AMONG}", (whole,)),
            (
                f"{table}.session_id {AMONG} AND NOT {table}.scope_id {AMONG}",
                (json_array(traces.sources), whole),
            ),
        )
        columns = select.replace(" FROM ", f", {table}.{key} FROM ", 1)
        for condition, values in conditions:
            last = 0
            while True:
                with self._db.reading() as connection:
                    rows = connection.execute(
                        f"{columns} WHERE {condition} AND {table}.{key} > ?"
                        f" ORDER BY {table}.{key} LIMIT ?",
                        (*values, last, BATCH),
                    ).fetchall()
                yield from rows
                if len(rows) < BATCH:
                    break
                last = rows[-1][-1]

    # -- counting ----------------------------------------------------------------------------

    def count_traces(self, traces: Traces) -> dict[str, int]:
        with self._db.reading() as connection:
            whole, sources = json_array(numbers(connection, traces)), json_array(traces.sources)

            def count(statement: str, *values: Any) -> int:
                found: int = connection.execute(
                    f"SELECT count(*) FROM {statement}", values
                ).fetchone()[0]
                return found

            counts = {
                table: count(f"{table} WHERE scope_id {AMONG}", whole)
                + count(
                    f"{table} WHERE session_id {AMONG} AND NOT scope_id {AMONG}", sources, whole
                )
                for table in ("facts", "reflections")
            }
            # A text that was never written is a buffer; it goes too, and is nothing to tell of.
            counts["texts"] = count(f"consolidations WHERE scope_id {AMONG} AND version > 0", whole)
            counts["policies"] = count(f"policies WHERE scope_id {AMONG}", whole)
            counts["versions in history"] = count(f"history WHERE scope_id {AMONG}", whole)
            counts["audit entries (emptied)"] = count(
                f"audit WHERE scope_id {AMONG} AND {FULL}", whole
            ) + count(f"audit WHERE {OF_ACCOUNTS} AND {FULL}", json_array(whole_accounts(traces)))
            counts["formations (emptied)"] = self._count_formations(connection, traces)
            counts["cached contexts"] = count(
                f"cached_contexts WHERE agent_id {AMONG}", json_array(traces.agents)
            )
        return {kind: number for kind, number in counts.items() if number}

    def _count_formations(self, connection: sqlite3.Connection, traces: Traces) -> int:
        narrowed, value = of_agent(traces)
        found: int = connection.execute(
            f"SELECT count(*) FROM formations WHERE NOT ({SETTLED}){narrowed}"
            f" AND (session_id {AMONG} OR (session_id {AMONG} AND {SAID_IN}))",
            (
                *value,
                json_array(traces.own),
                json_array(traces.shared),
                json_array(traces.accounts),
            ),
        ).fetchone()[0]
        return found


def _passage(place: str, id: str, text: str, scope: Any) -> Passage:
    return Passage(place=place, id=id, target_type=place, target_id=id, text=text, scope=scope)
