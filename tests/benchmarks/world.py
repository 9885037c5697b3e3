"""The databases that the benchmarks read: the same data in edenmem's file and in the baselines'."""

from __future__ import annotations

import shutil
import sqlite3
import sys
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from edenmem.models.changes import AddFact, AddReflection, Change, ChangeSet
from edenmem.models.host import Session, User
from edenmem.models.ids import derived_id
from edenmem.models.memory import Fact, Reflection
from edenmem.models.scope import Scope, ScopeKind
from edenmem.store.protocol.store import batched
from edenmem.store.sqlite import SqliteStore
from tests.benchmarks import data, lancedb_table, plain
from tests.benchmarks.vocabulary import sentence
from tests.support.builders import writing

#: Facts in one transaction of a bulk import.
BATCH = 1000
#: Facts after which a build reports its progress.
_TOLD = 100_000
_REFLECTIONS = 6
_WORDS = {ScopeKind.AGENT: 1000, ScopeKind.USER: 250, ScopeKind.SESSION: 150}


class World:
    """``size`` facts of ten agents, with texts, reflections and sessions; built at first use.

    A build that was interrupted, or was of a smaller size, is continued from the files.

    Args:
        folder: A folder for the files: empty, or of an earlier build.
        size: Facts.
        with_vectors: Also vectors.
    """

    def __init__(self, folder: Path, size: int, *, with_vectors: bool = True) -> None:
        self.folder = folder
        self.size = size
        self._with_vectors = with_vectors

    @property
    def uri(self) -> str:
        """The URI of edenmem's file."""
        return f"sqlite:///{self.edenmem}"

    @property
    def edenmem(self) -> Path:
        """edenmem's file."""
        return self._files[0]

    @property
    def plain(self) -> Path:
        """The plain script's file."""
        return self._files[1]

    @cached_property
    def lance(self) -> Path | None:
        """LanceDB's folder, None if it is not installed."""
        if not lancedb_table.is_installed():
            return None
        folder, built = self.folder / "lance", self.folder / f"lance-{self.size}"
        if built.exists():
            return folder
        shutil.rmtree(folder, ignore_errors=True)
        table = lancedb_table.Writer(folder, data.DIMENSIONS)
        for batch in batched(data.facts(self.size), BATCH):
            table.add([plain_row(fact) for fact in batch])
        table.finish()
        built.touch()
        return folder

    @cached_property
    def _files(self) -> tuple[Path, Path]:
        self.folder.mkdir(parents=True, exist_ok=True)
        eden, other = self.folder / "eden.db", self.folder / "plain.db"
        store = SqliteStore(eden)
        store.database.initialize()
        hand = plain.connect(other) if other.exists() else plain.create(other)
        self._add_people(store)
        (texts,) = hand.execute("SELECT count(*) FROM texts").fetchone()
        if not texts:  # edenmem's file answers a repetition without a second copy
            self._add_texts(store, hand)
        ours = store.database.info().counts["facts"]
        (theirs,) = hand.execute("SELECT count(*) FROM facts").fetchone()
        if max(ours, theirs) > self.size:
            raise ValueError(f"{self.folder} already has more than {self.size:,} facts")
        start = min(ours, theirs)
        missing = data.facts(self.size - start, start=start, with_vectors=self._with_vectors)
        for number, batch in enumerate(batched(missing, BATCH)):
            first = start + number * BATCH
            store.changes.apply(adding(batch[max(0, ours - first) :]))
            rows = [plain_row(fact) for fact in batch[max(0, theirs - first) :]]
            plain.add(hand, rows)
            if not (first + BATCH) % _TOLD:
                sys.stderr.write(f"{first + BATCH:,} facts stored\n")
        store.database.close()
        hand.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        hand.close()
        return eden, other

    def _add_people(self, store: SqliteStore) -> None:
        for number in range(data.AGENTS):
            store.host.add_agent(data.agent(number))
        for number in range(data.USERS):
            store.host.add_user(User(id=data.user_id(number), username=f"user{number}"))
        for agent in range(data.AGENTS):
            for user in range(data.USERS):
                store.host.put_session(
                    Session(
                        id=data.session_id(agent, user),
                        agents=(data.agent_id(agent),),
                        users=(data.user_id(user),),
                        owner=data.user_id(user),
                        last_activity=data.NOW,
                        created_at=data.NOW,
                    )
                )

    def _add_texts(self, store: SqliteStore, hand: sqlite3.Connection) -> None:
        changes: list[Change] = []
        hand.execute("BEGIN")
        for number, scope in enumerate(all_scopes()):
            text = _text(number, _WORDS[scope.kind])
            waiting = [_reflection(scope, number, place) for place in range(_REFLECTIONS)]
            changes.append(writing(scope, text, word_limit=1200, at=data.NOW))
            changes += [AddReflection(reflection=one, word_limit=1200) for one in waiting]
            hand.execute("INSERT INTO texts VALUES (?, ?)", (scope.key, text))
            hand.executemany(
                "INSERT INTO reflections (scope, content, formed_at) VALUES (?, ?, ?)",
                [(scope.key, one.content, place) for place, one in enumerate(waiting)],
            )
        store.changes.apply(change_set(changes))
        hand.execute("COMMIT")


def all_scopes() -> list[Scope]:
    """Every scope that has a text."""
    scopes = []
    for agent in map(data.agent_id, range(data.AGENTS)):
        scopes.append(Scope.agent(agent))
        for user in range(data.USERS):
            scopes.append(Scope.user(agent, data.user_id(user)))
    for number in range(data.AGENTS):
        for user in range(data.USERS):
            scopes.append(Scope.session(data.agent_id(number), data.session_id(number, user)))
    return scopes


def _text(number: int, words: int) -> str:
    found: list[str] = []
    line = 0
    while len(found) < words:
        found += sentence(10_000_000 + 1000 * number + line).split()
        line += 1
    return " ".join(found[:words])


def _reflection(scope: Scope, number: int, place: int) -> Reflection:
    return Reflection(
        id=derived_id("reflection", scope.key, str(place)),
        scope=scope.kind,
        agent_id=scope.agent_id,
        user_id=scope.user_id,
        session_id=scope.session_id or data.session_id(0, 0),
        content=sentence(20_000_000 + 1000 * number + place),
        formed_at=data.NOW,
    )


def change_set(changes: Sequence[Change]) -> ChangeSet:
    """The changes as one set of the benchmark's."""
    return ChangeSet(actor=data.ACTOR, at=data.NOW, changes=tuple(changes))


def adding(facts: Sequence[Fact]) -> ChangeSet:
    """The change that adds these facts."""
    return change_set([AddFact(fact=fact) for fact in facts])


def plain_row(fact: Fact) -> plain.Row:
    """A fact as the baselines have it."""
    at = int(fact.formed_at.timestamp() * 1000)
    return fact.id, fact.home.key, fact.content, at, fact.embedding
