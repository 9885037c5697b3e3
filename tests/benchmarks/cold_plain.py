"""The baseline of the cold run: a program that reads each session and writes the same rows.

One after the other, with the three commits that a claim, its outcome and the outcome's effect need
if nothing is to be lost. No model, no prompts, no checks, no audit, no history.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from edenmem.models.ids import derived_id
from tests.benchmarks import cold_world, plain

_TABLES = """
CREATE TABLE messages (session INTEGER NOT NULL, place INTEGER NOT NULL, content TEXT NOT NULL,
    PRIMARY KEY (session, place)) WITHOUT ROWID;
CREATE TABLE sessions (no INTEGER PRIMARY KEY, done TEXT, context TEXT);
CREATE TABLE claims (session INTEGER PRIMARY KEY, messages TEXT, outcome TEXT)
"""


class SqliteRows:
    """With sqlite3, in a file of its own."""

    def __init__(self, file: Path) -> None:
        self._db = plain.connect(file) if file.exists() else _created(file)

    def make(self, count: int) -> None:
        """Write ``count`` sessions with their messages."""
        self._db.execute("BEGIN IMMEDIATE")
        for number in range(count):
            rows = [(number, place, m.content) for place, m in enumerate(_messages(number))]
            self._db.executemany("INSERT INTO messages VALUES (?, ?, ?)", rows)
            self._db.execute("INSERT INTO sessions (no) VALUES (?)", (number,))
        self._db.execute("COMMIT")

    def form(self, number: int) -> None:
        """What the cold run does with a session, as far as it is rows."""
        read = self._db.execute(
            "SELECT place, content FROM messages WHERE session = ? ORDER BY place", (number,)
        ).fetchall()
        places = json.dumps([place for place, _ in read])
        self._db.execute("INSERT INTO claims VALUES (?, ?, NULL)", (number, places))
        facts, learned, context = _outcome(number)
        rows = [
            (fact_id, scope, content, number, cold_world.vector(content))
            for fact_id, scope, content in facts
        ]
        outcome = json.dumps([facts, learned])
        self._db.execute("UPDATE claims SET outcome = ? WHERE session = ?", (outcome, number))
        self._db.execute("BEGIN IMMEDIATE")
        plain.insert(self._db, rows)
        self._db.executemany(
            "INSERT INTO reflections (scope, content, formed_at) VALUES (?, ?, 0)", learned
        )
        self._db.execute("UPDATE claims SET outcome = NULL WHERE session = ?", (number,))
        self._db.execute(
            "UPDATE sessions SET done = ?, context = ? WHERE no = ?",
            (str(read[-1][0]), context, number),
        )
        self._db.execute("COMMIT")

    def facts(self) -> int:
        """How many there are."""
        (count,) = self._db.execute("SELECT count(*) FROM facts").fetchone()
        return int(count)

    def close(self) -> None:
        """Close the file."""
        self._db.close()


class MongoRows:
    """With pymongo, in a database of its own; what goes together is written in bulk."""

    def __init__(self, uri: str) -> None:
        from pymongo import MongoClient

        self._client: MongoClient[Any] = MongoClient(uri)
        self._db = self._client["plain"]

    def make(self, count: int) -> None:
        """Write ``count`` sessions with their messages."""
        self._db.messages.create_index([("session", 1), ("place", 1)])
        self._db.facts.create_index([("scope", 1), ("formed_at", -1)])
        self._db.reflections.create_index([("scope", 1), ("formed_at", -1)])
        for number in range(count):
            documents = [
                {"session": number, "place": place, "content": message.content}
                for place, message in enumerate(_messages(number))
            ]
            self._db.messages.insert_many(documents)
            self._db.sessions.insert_one({"_id": number})

    def form(self, number: int) -> None:
        """What the cold run does with a session, as far as it is documents."""
        read = list(self._db.messages.find({"session": number}, sort=[("place", 1)]))
        places = [message["place"] for message in read]
        self._db.claims.insert_one({"_id": number, "messages": places})
        facts, learned, context = _outcome(number)
        self._db.claims.update_one({"_id": number}, {"$set": {"outcome": [facts, learned]}})
        self._db.facts.insert_many(
            {
                "_id": fact_id,
                "scope": scope,
                "content": content,
                "formed_at": number,
                "embedding": cold_world.vector(content),
            }
            for fact_id, scope, content in facts
        )
        self._db.reflections.insert_many(
            {"scope": scope, "content": content, "formed_at": 0} for scope, content in learned
        )
        done = {"done": places[-1], "context": context}
        self._db.sessions.update_one({"_id": number}, {"$set": done})
        self._db.claims.update_one({"_id": number}, {"$unset": {"outcome": 1}})

    def facts(self) -> int:
        """How many there are."""
        return self._db.facts.count_documents({})

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def form_all(rows: SqliteRows | MongoRows, count: int, done: Callable[[int], None]) -> None:
    """Form every session, and tell how many are done after each."""
    for number in range(count):
        rows.form(number)
        done(number + 1)


def _created(file: Path) -> sqlite3.Connection:
    connection = plain.create(file)
    for statement in _TABLES.split(";\n"):
        connection.execute(statement)
    return connection


def _messages(number: int) -> list[Any]:
    return list(cold_world.messages(number))


def _outcome(number: int) -> tuple[list[tuple[str, str, str]], list[tuple[str, str]], str]:
    """Facts (id, scope, content), reflections (scope, content), and a context to keep."""
    session = cold_world.session(number)
    scopes = (session.agents[0], f"{session.agents[0]}/{session.users[0]}")
    facts = [
        (derived_id("plain", content), scopes[place % 2], content)
        for place, content in enumerate(cold_world.facts(number))
    ]
    learned = list(zip(scopes, cold_world.reflections(number), strict=True))
    context = "\n".join(content for _, _, content in facts) * 5
    return facts, learned, context
