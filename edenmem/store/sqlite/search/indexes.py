"""The indexes of the file: full text, vector codes, and ordinary ones.

All are written in the transaction of their data, so none lags. This module checks them, rebuilds
them in a damaged file, and creates the optional index of source messages.
"""

# ruff: noqa: D102 - the protocol documents these methods.
# ruff: noqa: S608 - statements are built from constants only; values are bound.

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterator

import msgspec

from edenmem.errors import ConflictError, NotFoundError, StoreError
from edenmem.models.indexes import IndexKind, IndexState, IndexWish, SearchTrial
from edenmem.models.integrity import Finding
from edenmem.store.sqlite.core import schema as expected
from edenmem.store.sqlite.core import source_words
from edenmem.store.sqlite.core.part import Part
from edenmem.store.sqlite.core.words import rebuild_text_index
from edenmem.store.sqlite.memory.vectors import code_of
from edenmem.text import many

TEXT, CODES, SOURCE = "facts_text", "vector_codes", source_words.INDEX

#: Mismatches between facts and index, which must never exist.
_STRAY = {
    TEXT: (
        "SELECT (SELECT count(*) FROM facts WHERE fact_no NOT IN"
        " (SELECT id FROM facts_text_docsize)),"
        " (SELECT count(*) FROM facts_text_docsize WHERE id NOT IN (SELECT fact_no FROM facts))"
    ),
    SOURCE: (
        f"SELECT (SELECT count(*) FROM facts f WHERE f.fact_no NOT IN"
        f" (SELECT id FROM {SOURCE}_docsize) AND {source_words.INDEXABLE}),"
        f" (SELECT count(*) FROM {SOURCE}_docsize WHERE id NOT IN"
        f" (SELECT fact_no FROM facts f WHERE {source_words.INDEXABLE}))"
    ),
    CODES: (
        "SELECT (SELECT count(*) FROM facts f WHERE f.model_id IS NOT NULL AND NOT EXISTS"
        " (SELECT 1 FROM vector_codes c WHERE c.scope_id = f.scope_id"
        " AND c.model_id = f.model_id AND c.fact_no = f.fact_no))"
        " + (SELECT count(*) FROM staged_vectors b JOIN facts f USING (fact_no) WHERE NOT EXISTS"
        " (SELECT 1 FROM vector_codes c WHERE c.scope_id = f.scope_id"
        " AND c.model_id = b.model_id AND c.fact_no = f.fact_no)),"
        " (SELECT count(*) FROM vector_codes c WHERE NOT EXISTS"
        " (SELECT 1 FROM facts f LEFT JOIN staged_vectors b USING (fact_no)"
        " WHERE f.fact_no = c.fact_no AND f.scope_id = c.scope_id"
        " AND c.model_id IN (f.model_id, b.model_id)))"
    ),
}

_COUNTED: dict[str, str] = {
    TEXT: "SELECT count(*) FROM facts_text_docsize",
    SOURCE: f"SELECT count(*) FROM {SOURCE}_docsize",
    CODES: "SELECT count(*) FROM vector_codes",
}


#: The optional index of source messages.
_OPTIONAL = IndexState(
    name=SOURCE,
    kind="text",
    collection="facts",
    status="unwanted",
    wanted={"type": "FTS5"},
    note="only for recipes with '+source'",
)
_INCOMPLETE = msgspec.structs.replace(
    _OPTIONAL, status="missing", note=f"incomplete; 'edenmem index create {SOURCE}' completes it"
)


class Indexes(Part):
    """See `edenmem.store.protocol.database.Indexes`."""

    def list_indexes(self, wish: IndexWish) -> list[IndexState]:
        with self._db.reading() as connection:
            ordinary = connection.execute(
                'SELECT m.tbl_name, m.name, l."unique" FROM sqlite_schema m'
                " JOIN pragma_index_list(m.tbl_name) l ON l.name = m.name"
                " WHERE m.type = 'index' AND m.sql IS NOT NULL ORDER BY m.tbl_name, m.name"
            ).fetchall()
            states = [
                IndexState(
                    name=name,
                    kind="ordinary",
                    collection=table,
                    status="ready",
                    queryable=True,
                    unique=bool(unique),
                )
                for table, name, unique in ordinary
            ]
            states += _missing({state.name for state in states})
            states += [
                _search_state(connection, CODES, "vector", "one bit per dimension"),
                _search_state(connection, TEXT, "text", "FTS5"),
            ]
            if not source_words.has_index(connection):
                return [*states, _OPTIONAL]
            if not source_words.is_complete(connection):
                return [*states, _INCOMPLETE]
            return [*states, _search_state(connection, SOURCE, "text", "FTS5 of the sources")]

    def create_index(self, name: str, wish: IndexWish) -> None:
        if name == SOURCE:
            self._fill_source_words()
            return
        part = expected.schema().parts.get(name)
        if part is None or part.type != "index":
            self._check(name)  # all others are created with the file
            return
        with self._db.writing() as connection:
            there = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (name,))
            if there.fetchone() is None:
                connection.execute(part.sql)

    def update_index(self, name: str, wish: IndexWish) -> None:
        self._check(name)
        if name == SOURCE:
            self._fill_source_words()
            return
        with self._db.writing() as connection:
            if name == TEXT:
                rebuild_text_index(connection)
            elif name == CODES:
                _rebuild_codes(connection)
            else:
                quoted = name.replace('"', '""')
                connection.execute(f'REINDEX "{quoted}"')
            # Caches of other processes depend on the revisions of the scopes.
            connection.execute("UPDATE scopes SET revision = revision + 1")

    def _fill_source_words(self) -> None:
        """Index all facts in short transactions, from where an interrupted run stopped."""
        with self._db.writing() as connection:
            source_words.create_index(connection)
        last: int | None = 0
        while last is not None:
            with self._db.writing() as connection:
                last = source_words.index_batch(connection, last)
            source_words.yield_to_writers()
        source_words.merge_index(self._db)
        self._write("UPDATE scopes SET revision = revision + 1")

    def drop_index(self, name: str, *, dry_run: bool = False) -> None:
        self._check(name)
        if name == SOURCE:
            with self._db.writing() as connection:
                if not dry_run:
                    source_words.drop_index(connection)
            return
        raise ConflictError(
            f"{name} is part of the file and cannot be dropped",
            hint=f"'edenmem index create --update {name} --rebuild' rebuilds it",
        )

    def replace_index(self, name: str) -> None:
        raise ConflictError(f"{name} is part of the file and cannot be replaced")

    def platform_conflicts(self) -> Iterator[Finding]:
        return iter(())  # the platform uses no files

    def try_search(
        self,
        analyzer: str,
        wait: Callable[[Callable[[], bool]], bool],
        progress: Callable[[str], None],
    ) -> SearchTrial:
        raise StoreError(
            "SQLite needs no search commands",
            hint="for a trial of an Atlas cluster, set --uri or EDENMEM_URI",
        )

    def _check(self, name: str) -> None:
        known = (
            "SELECT 1 FROM sqlite_schema WHERE name = ?"
            " AND (name IN (?, ?, ?) OR (type = 'index' AND sql IS NOT NULL))"
        )
        if self._fetch_one(known, (name, TEXT, CODES, SOURCE)) is None:
            raise NotFoundError(
                f"index does not exist: {name}", hint="'edenmem index list' lists them"
            )


def _missing(there: Collection[str]) -> list[IndexState]:
    """Return the indexes of a new file that this file lacks."""
    return [
        IndexState(
            name=part.name,
            kind="ordinary",
            collection=part.table,
            status="missing",
            unique=part.is_unique,
        )
        for part in expected.schema().parts.values()
        if part.type == "index" and part.name not in there
    ]


def _search_state(
    connection: sqlite3.Connection, name: str, kind: IndexKind, what: str
) -> IndexState:
    (entries,) = connection.execute(_COUNTED[name]).fetchone()
    missing, left = connection.execute(_STRAY[name]).fetchone()
    differences = [
        many(count, noun, nouns)
        for count, noun, nouns in (
            (missing, "fact missing", "facts missing"),
            (left, "entry of a deleted fact", "entries of deleted facts"),
        )
        if count
    ]
    return IndexState(
        name=name,
        kind=kind,
        collection="facts",
        status="different" if differences else "ready",
        queryable=True,
        differences=tuple(differences),
        note=f"{what}, {many(entries, 'fact')}",
    )


def _rebuild_codes(connection: sqlite3.Connection) -> None:
    connection.execute("DELETE FROM vector_codes")
    rows = connection.execute(
        "SELECT f.scope_id, f.model_id, f.fact_no, v.vector FROM facts f"
        " JOIN vectors v USING (fact_no) WHERE f.model_id IS NOT NULL"
        " UNION ALL SELECT f.scope_id, b.model_id, b.fact_no, b.vector FROM facts f"
        " JOIN staged_vectors b USING (fact_no)"
    )
    connection.executemany(
        "INSERT INTO vector_codes (scope_id, model_id, fact_no, code) VALUES (?, ?, ?, ?)",
        ((scope, model, number, code_of(vector)) for scope, model, number, vector in rows),
    )
