"""The rows of memory, and all rows derived from those of a fact: vector, code, full text.

All changes of facts go through this module, so derived rows never lag.
"""

# ruff: noqa: S608 - statements are built from constants only; values are bound.

from __future__ import annotations

import sqlite3

import msgspec

from edenmem.errors import ConflictError
from edenmem.models.memory import Consolidation, Fact, FactFields, Held, Policy, Reflection
from edenmem.store.sqlite.core import codec, scopes, source_words
from edenmem.store.sqlite.core.codec import HELD_ITEMS, POLICIES, REFLECTIONS, TEXTS
from edenmem.store.sqlite.core.words import add_text, remove_text
from edenmem.store.sqlite.memory import vectors
from edenmem.text import word_count

#: The fields that a change of the text writes, and those that other changes write.
_TEXT_FIELDS = (
    "content",
    "hash",
    "updated_at",
    "said_at",
    "edited_at",
    "source_message_ids",
    "related_users",
    "quote",
    "unconfirmed",
    "version",
    "previous_content",
    *FactFields.__struct_fields__,
)
_OTHER_FIELDS = (
    "updated_at",
    "said_at",
    "edited_at",
    "source_message_ids",
    "related_users",
    "version",
    "previous_content",
    "private",
    "quote",
    "unconfirmed",
    *FactFields.__struct_fields__,
)
_text_values = codec.FACTS.encoder(*_TEXT_FIELDS)
_other_values = codec.FACTS.encoder(*_OTHER_FIELDS, "id")
_STORED = codec.select_more(codec.FACT_WITH_VECTOR, "f.fact_no", "f.scope_id", "f.model_id")
_INSERT = codec.FACTS.insert("scope_id", "model_id")
_REWRITE = f"UPDATE facts SET {codec.FACTS.assign(*_TEXT_FIELDS)}, model_id = ? WHERE fact_no = ?"
_UPDATE = f"UPDATE facts SET {codec.FACTS.assign(*_OTHER_FIELDS)} WHERE id = ?"


class StoredFact(msgspec.Struct, frozen=True):
    """A complete fact, with its row numbers."""

    fact: Fact
    number: int
    scope_id: int
    model_id: int | None


def find_fact(connection: sqlite3.Connection, fact_id: str) -> StoredFact | None:
    """Return the fact with this ID, in any scope."""
    row = connection.execute(f"{_STORED} WHERE f.id = ?", (fact_id,)).fetchone()
    return StoredFact(codec.fact_from(row), *row[-3:]) if row else None


def locate_fact(connection: sqlite3.Connection, fact: Fact) -> StoredFact:
    """Return the row numbers of a fact that was read in this transaction."""
    row = connection.execute(
        "SELECT fact_no, scope_id, model_id FROM facts WHERE id = ?", (fact.id,)
    ).fetchone()
    return StoredFact(fact, *row)


def fact_with_hash(connection: sqlite3.Connection, scope_id: int, digest: str) -> str | None:
    """Return the ID of the scope's fact with this content hash."""
    row = connection.execute(
        "SELECT id FROM facts WHERE scope_id = ? AND hash = ?", (scope_id, digest)
    ).fetchone()
    return row[0] if row else None


def fact_with_key(
    connection: sqlite3.Connection, scope_id: int | None, key: str | None
) -> str | None:
    """Return the ID of the scope's fact with this key."""
    row = connection.execute(
        "SELECT id FROM facts WHERE scope_id = ? AND key = ?", (scope_id, key)
    ).fetchone()
    return row[0] if row else None


def insert_fact(connection: sqlite3.Connection, fact: Fact, scope_id: int) -> None:
    """Insert a fact with an unused ID and hash."""
    model_id = None
    if fact.embedding is not None:
        model_id = vectors.model_number(connection, fact.embedding_model, fact.embedding)
    made = connection.execute(_INSERT, (*codec.FACTS.values(fact), scope_id, model_id))
    assert made.lastrowid is not None
    if model_id is not None and fact.embedding is not None:
        vectors.put_vector(connection, made.lastrowid, scope_id, model_id, fact.embedding)
    add_text(connection, made.lastrowid, scope_id, fact.content)
    if fact.source_message_ids:
        source_words.put_words(connection, made.lastrowid, scope_id, fact.source_message_ids)


def rewrite_fact(connection: sqlite3.Connection, old: StoredFact, new: Fact) -> None:
    """Replace the text of a fact, and its vector by that of ``new`` or none."""
    model_id = None
    if new.embedding is not None:
        model_id = vectors.model_number(connection, new.embedding_model, new.embedding)
    vectors.drop_staged(connection, old.number, old.scope_id)
    vectors.drop_vector(connection, old.number, old.scope_id, old.model_id)
    connection.execute(_REWRITE, (*_text_values(new), model_id, old.number))
    if model_id is not None and new.embedding is not None:
        vectors.put_vector(connection, old.number, old.scope_id, model_id, new.embedding)
    remove_text(connection, old.number, old.scope_id, old.fact.content)
    add_text(connection, old.number, old.scope_id, new.content)
    source_words.put_words(connection, old.number, old.scope_id, new.source_message_ids)


def update_fact(connection: sqlite3.Connection, old: Fact, new: Fact) -> None:
    """Update the other fields of a fact; text and vector stay."""
    connection.execute(_UPDATE, _other_values(new))
    if new.source_message_ids != old.source_message_ids:
        stored = locate_fact(connection, new)
        source_words.put_words(connection, stored.number, stored.scope_id, new.source_message_ids)


def delete_fact(connection: sqlite3.Connection, old: StoredFact) -> None:
    """Delete a fact with all derived rows."""
    vectors.drop_staged(connection, old.number, old.scope_id)
    vectors.drop_vector(connection, old.number, old.scope_id, old.model_id)
    remove_text(connection, old.number, old.scope_id, old.fact.content)
    source_words.drop_words(connection, old.number)
    connection.execute("DELETE FROM facts WHERE fact_no = ?", (old.number,))


def put_own(
    connection: sqlite3.Connection, old: StoredFact, model: str, vector: bytes, at: int
) -> None:
    """Replace the own vector of a fact.

    A staged vector stays, unless it is of the same model.
    """
    model_id = vectors.model_number(connection, model, vector)
    staged = connection.execute(
        "SELECT model_id FROM staged_vectors WHERE fact_no = ?", (old.number,)
    ).fetchone()
    if staged == (model_id,):
        vectors.drop_staged(connection, old.number, old.scope_id)
    vectors.drop_vector(connection, old.number, old.scope_id, old.model_id)
    vectors.put_vector(connection, old.number, old.scope_id, model_id, vector)
    connection.execute("UPDATE facts SET model_id = ? WHERE fact_no = ?", (model_id, old.number))
    scopes.touch(connection, old.scope_id, at)


def put_staged(
    connection: sqlite3.Connection, old: StoredFact, model: str, vector: bytes, at: int
) -> None:
    """Replace the staged vector of a fact, which is stored in addition to its own.

    A vector of the fact's own model replaces its own vector.
    """
    model_id = vectors.model_number(connection, model, vector)
    if old.model_id == model_id:
        put_own(connection, old, model, vector, at)
        return
    vectors.put_staged(connection, old.number, old.scope_id, model_id, vector)
    scopes.touch(connection, old.scope_id, at)


# -- reflections, held items, texts and policies ---------------------------------------------------

_INSERT_REFLECTION = REFLECTIONS.insert("scope_id")
_CHANGED = (
    "content",
    "version",
    "updated_at",
    "absorbed",
    "absorbed_at",
    "consolidated_into",
    "private",
    "unconfirmed",
)
_UPDATE_REFLECTION = f"UPDATE reflections SET {REFLECTIONS.assign(*_CHANGED)} WHERE id = ?"
_changed_values = REFLECTIONS.encoder(*_CHANGED, "id")
_INSERT_HELD = HELD_ITEMS.insert("scope_id")
_PUT_TEXT = TEXTS.insert("words", "scope_id", replace="scope_id", keep=("id",))
_PUT_POLICY = POLICIES.insert("scope_id", replace="scope_id")


def insert_reflection(connection: sqlite3.Connection, new: Reflection, scope_id: int) -> None:
    """Insert a reflection with an unused ID."""
    connection.execute(_INSERT_REFLECTION, (*REFLECTIONS.values(new), scope_id))


def update_reflection(connection: sqlite3.Connection, new: Reflection) -> None:
    """Update the mutable fields of a reflection."""
    connection.execute(_UPDATE_REFLECTION, _changed_values(new))


def insert_held(connection: sqlite3.Connection, new: Held, scope_id: int) -> None:
    """Insert a held item with an unused ID."""
    connection.execute(_INSERT_HELD, (*HELD_ITEMS.values(new), scope_id))


def put_text(connection: sqlite3.Connection, new: Consolidation, scope_id: int) -> None:
    """Insert or replace the text of a scope; its failed drafts are dropped."""
    words = word_count(new.consolidated_content)
    connection.execute(f"{_PUT_TEXT}, failed_drafts = NULL", (*TEXTS.values(new), words, scope_id))


def put_policy(connection: sqlite3.Connection, policy: Policy, scope_id: int) -> None:
    """Insert or replace the policy of a scope.

    Raises:
        ConflictError: the policy of another scope has this ID.
    """
    taken = connection.execute(
        "SELECT 1 FROM policies WHERE id = ? AND scope_id <> ?", (policy.id, scope_id)
    ).fetchone()
    if taken is not None:
        raise ConflictError(f"the policy of another scope has this ID: {policy.id}")
    connection.execute(_PUT_POLICY, (*POLICIES.values(policy), scope_id))
