"""Storage of vectors: float32 bytes, and a code of one bit per dimension.

The code is the signs. On real sentence embeddings neither centring nor a random rotation improved
the first pass, so there is nothing to train or to store.
"""

from __future__ import annotations

import math
import sqlite3
import sys
from array import array
from collections.abc import Iterable

from edenmem.errors import InputError
from edenmem.store.sqlite.core.part import json_array

#: The byte with a float32's sign → binary digit: "1" for positive.
_DIGIT = bytes(ord("0") if byte & 0x80 else ord("1") for byte in range(256))


def check_vector(vector: bytes) -> None:
    """Validate the bytes of a vector.

    Raises:
        InputError: the bytes are empty or not float32 numbers, all zeros, or not finite.
    """
    if not vector or len(vector) % 4:
        raise InputError(f"vector is not a list of float32 numbers: {len(vector)} bytes")
    numbers = array("f", vector)
    if sys.byteorder == "big":
        numbers.byteswap()
    if not any(numbers):
        raise InputError("vector is all zeros")
    if not math.isfinite(sum(numbers)):  # a sum of finite float32 numbers cannot overflow
        raise InputError("vector has numbers that are not finite")


def code_of(vector: bytes) -> bytes:
    """Return one bit per dimension, the first dimension in the highest bit; 1 for positive."""
    digits = vector[3::4].translate(_DIGIT)
    size = -(-len(digits) // 8)
    return int(digits.ljust(size * 8, b"0"), 2).to_bytes(size, "big")


def model_of(connection: sqlite3.Connection, name: str, dimensions: int) -> int | None:
    """Return the number of a model with these dimensions, if one was ever stored."""
    row = connection.execute(
        "SELECT model_id FROM embedding_models WHERE name = ? AND dimensions = ?",
        (name, dimensions),
    ).fetchone()
    return row[0] if row else None


def model_number(connection: sqlite3.Connection, name: str | None, vector: bytes) -> int:
    """Return the number of a vector's model; create one for a new model.

    Vectors with one model name but two lengths are of two models: an endpoint reused the name.
    Vectors without a model name are stored under "", which is never searched.

    Raises:
        InputError: the vector is invalid.
    """
    check_vector(vector)
    dimensions = len(vector) // 4 if name else 0
    known = model_of(connection, name or "", dimensions)
    if known is not None:
        return known
    made = connection.execute(
        "INSERT INTO embedding_models (name, dimensions) VALUES (?, ?)", (name or "", dimensions)
    )
    assert made.lastrowid is not None
    return made.lastrowid


def read_vectors(
    connection: sqlite3.Connection, model_id: int, facts: Iterable[int]
) -> list[tuple[int, bytes]]:
    """Return the facts that have a vector, with the staged vector of the model or their own."""
    return connection.execute(
        "SELECT value, coalesce(b.vector, v.vector) FROM json_each(?)"
        " LEFT JOIN staged_vectors b ON b.fact_no = value AND b.model_id = ?"
        " LEFT JOIN vectors v ON v.fact_no = value"
        " WHERE b.fact_no IS NOT NULL OR v.fact_no IS NOT NULL",
        (json_array(facts), model_id),
    ).fetchall()


def put_vector(
    connection: sqlite3.Connection, fact_no: int, scope_id: int, model_id: int, vector: bytes
) -> None:
    """Store the vector of a fact without one."""
    connection.execute("INSERT INTO vectors VALUES (?, ?)", (fact_no, vector))
    _put_code(connection, fact_no, scope_id, model_id, vector)


def _put_code(
    connection: sqlite3.Connection, fact_no: int, scope_id: int, model_id: int, vector: bytes
) -> None:
    # Searches append codes that were added at the end to those that they know. No trigger does
    # this: FTS5 would write out the words that it collected before each statement with a trigger.
    connection.execute(
        "UPDATE scopes SET codes_revision = codes_revision + 1 WHERE scope_id = ?1 AND ?3 <"
        " (SELECT max(fact_no) FROM vector_codes WHERE scope_id = ?1 AND model_id = ?2)",
        (scope_id, model_id, fact_no),
    )
    connection.execute(
        "INSERT INTO vector_codes VALUES (?, ?, ?, ?)",
        (scope_id, model_id, fact_no, code_of(vector)),
    )


def drop_vector(
    connection: sqlite3.Connection, fact_no: int, scope_id: int, model_id: int | None
) -> None:
    """Delete the vector of a fact, if it has one."""
    if model_id is not None:
        connection.execute("DELETE FROM vectors WHERE fact_no = ?", (fact_no,))
        _drop_code(connection, fact_no, scope_id, model_id)


def put_staged(
    connection: sqlite3.Connection, fact_no: int, scope_id: int, model_id: int, vector: bytes
) -> None:
    """Store a second vector of a fact, of another model."""
    drop_staged(connection, fact_no, scope_id)
    connection.execute("INSERT INTO staged_vectors VALUES (?, ?, ?)", (fact_no, model_id, vector))
    _put_code(connection, fact_no, scope_id, model_id, vector)


def drop_staged(connection: sqlite3.Connection, fact_no: int, scope_id: int) -> None:
    """Delete the second vector of a fact, if it has one."""
    row = connection.execute(
        "DELETE FROM staged_vectors WHERE fact_no = ? RETURNING model_id", (fact_no,)
    ).fetchone()
    if row is not None:
        _drop_code(connection, fact_no, scope_id, row[0])


def _drop_code(connection: sqlite3.Connection, fact_no: int, scope_id: int, model_id: int) -> None:
    connection.execute(
        "DELETE FROM vector_codes WHERE scope_id = ? AND model_id = ? AND fact_no = ?",
        (scope_id, model_id, fact_no),
    )
