"""A small healthy memory on each kind of store, and direct writes that damage it.

Writes bypass edenmem, like those of other programs and accidents.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from bson import ObjectId

from edenmem.models.changes import (
    AddFact,
    AddReflection,
    ReviseFact,
    WriteConsolidation,
    WritePolicy,
)
from edenmem.models.host import CachedContext
from edenmem.models.ids import is_id, new_id
from edenmem.models.scope import Scope
from edenmem.settings.schema import StoreSettings
from edenmem.store.sqlite import SqliteStore
from tests.support.builders import (
    NOW,
    ago,
    change_set,
    make_agent,
    make_fact,
    make_formation,
    make_messages,
    make_policy,
    make_reflection,
    make_session,
    make_user,
    writing,
)
from tests.support.embedder import FakeEmbedder
from tests.support.formations import Steps

if TYPE_CHECKING:
    from edenmem.store.mongo import MongoStore
    from edenmem.store.protocol.store import Store

#: The time of the check, after the end of all leases.
TODAY = NOW + timedelta(hours=1)

EMBEDDER = FakeEmbedder(dimensions=8)


@dataclass(kw_only=True)
class Ids:
    """IDs of the memory by name."""

    eve: str
    adam: str
    anna: str
    bruno: str
    chat: str  # Anna and Eve
    choir: str  # Anna, Bruno and Eve: a group
    lost: str  # Bruno and Eve, with a text of its own
    lives: str  # facts of Anna, the second with two versions
    works: str
    of_bruno: str
    of_adam: str
    of_choir: str
    of_shard: str
    first: str  # reflections of Anna: two absorbed, two that wait
    second: str
    third: str
    fourth: str
    of_lost: str
    text: str  # of Anna, in three versions
    text_of_lost: str
    policy: str
    shard_policy: str
    applied: str  # formations: of the chat, the choir and the lost session
    recorded: str
    claimed: str
    message: str  # of the chat, which `lives` is of
    both_said: tuple[str, str]  # messages of the choir, by Anna and by Bruno


def admit(store: Store) -> Ids:
    """Write the healthy memory to an empty store."""
    eve, adam = make_agent("eve", name="Eve"), make_agent("adam")
    anna, bruno = make_user("anna"), make_user("bruno")
    for agent in (eve, adam):
        store.host.add_agent(agent)
    for user in (anna, bruno):
        store.host.add_user(user)
    chat = make_session([eve], [anna], name="chat")
    choir = make_session([eve], [anna, bruno], name="choir", group_id="choir")
    lost = make_session([eve], [bruno], name="lost")
    said = {}
    for session, sender in ((chat, anna), (choir, anna), (lost, bruno)):
        store.host.put_session(session)
        said[session.id] = make_messages(session, 4, start=ago(hours=2), sender=sender.id)
    said[choir.id][2] = make_messages(choir, ["I am Bruno."], start=ago(hours=1), sender=bruno.id)[
        0
    ]
    for session_id, messages in said.items():
        store.host.add_messages(session_id, messages)
    scope, text = Scope.user(eve.id, anna.id), "consolidation"
    facts = {
        "lives": make_fact(
            scope,
            "Anna lives in Lisbon.",
            session_id=chat.id,
            source_message_ids=(said[chat.id][0].id,),
        ),
        "works": make_fact(scope, "Anna works at the harbour."),
        "of_bruno": make_fact(Scope.user(eve.id, bruno.id), "Bruno sings bass."),
        "of_adam": make_fact(Scope.agent(adam.id), "The gate opens at nine."),
        "of_choir": make_fact(Scope.group(eve.id, "choir"), "The choir meets on Mondays."),
        "of_shard": make_fact(Scope.shard(eve.id, "route"), "The mole is closed."),
    }
    reflections = {
        name: make_reflection(
            scope, f"Anna is {word}.", session_id=chat.id, formed_at=ago(minutes=at)
        )
        for name, word, at in (
            ("first", "brief", 9),
            ("second", "kind", 8),
            ("third", "patient", 7),
            ("fourth", "early", 6),
        )
    }
    of_lost = make_reflection(Scope.session(eve.id, lost.id), "They looked for the key.")
    shard_policy = make_policy(Scope.shard(eve.id, "route"))
    policy = make_policy(scope, word_limit=90)

    def embedded(name: str) -> AddFact:
        vector = EMBEDDER.vector(facts[name].content)
        fields = {"embedding": vector, "embedding_model": EMBEDDER.model}
        return AddFact(fact=_with(facts[name], **fields))

    def write(
        of: Scope, version: int, content: str, *absorbed: str, at: datetime = NOW
    ) -> WriteConsolidation:
        return writing(of, content, expected_version=version, at=at, absorbed_ids=absorbed)

    store.changes.apply(
        change_set(
            *(
                WritePolicy(policy=each, expected_version=0, at=NOW)
                for each in (policy, shard_policy)
            ),
            *map(embedded, facts),
            *(
                AddReflection(reflection=each, word_limit=300)
                for each in (*reflections.values(), of_lost)
            ),
            write(scope, 0, "Anna is brief.", reflections["first"].id),
            write(scope, 1, "Anna is brief and lives in Lisbon."),
            write(scope, 2, "Anna is brief and kind.", reflections["second"].id),
            write(Scope.session(eve.id, lost.id), 0, "The key is lost.", of_lost.id),
            ReviseFact(
                scope=scope,
                fact_id=facts["works"].id,
                expected_version=1,
                content="Anna works at the new harbour.",
                at=NOW,
                embedding=EMBEDDER.vector("Anna works at the new harbour."),
                embedding_model=EMBEDDER.model,
            ),
        )
    )
    formations = {
        name: make_formation(
            session, said[session.id], agent_id=eve.id, lease=timedelta(hours=3), worker=name
        )
        for name, session in (("applied", chat), ("recorded", choir), ("claimed", lost))
    }
    for formation in formations.values():
        assert store.formations.claim(formation)
    for name in ("applied", "recorded"):
        new = make_fact(scope, f"Anna was there when it was {name}.")
        new = _with(new, embedding=EMBEDDER.vector(new.content), embedding_model=EMBEDDER.model)
        assert Steps(store).record(
            formations[name].id,
            worker=name,
            changes=change_set(AddFact(fact=new)),
            decisions=(),
            usage=(),
            counts={"facts": 1},
            now=NOW,
        )
    Steps(store).apply(formations["applied"].id, now=NOW)
    store.contexts.cache_context(
        chat.id, eve.id, CachedContext(xml="<M/>", fingerprint="f", built_at=NOW)
    )
    texts = store.memory.consolidations([scope, Scope.session(eve.id, lost.id)])
    assert text
    return Ids(
        eve=eve.id,
        adam=adam.id,
        anna=anna.id,
        bruno=bruno.id,
        chat=chat.id,
        choir=choir.id,
        lost=lost.id,
        **{name: fact.id for name, fact in facts.items()},
        **{name: reflection.id for name, reflection in reflections.items()},
        of_lost=of_lost.id,
        text=texts[scope].id,
        text_of_lost=texts[Scope.session(eve.id, lost.id)].id,
        policy=policy.id,
        shard_policy=shard_policy.id,
        **{name: formation.id for name, formation in formations.items()},
        message=said[chat.id][0].id,
        both_said=(said[choir.id][0].id, said[choir.id][2].id),
    )


def _with(item: Any, **fields: Any) -> Any:
    import msgspec

    return msgspec.structs.replace(item, **fields)


class Ward(Protocol):
    """A store to damage and repair."""

    kind: str
    ids: Ids
    store: Store

    def fresh(self) -> None:
        """Return a store with the healthy memory."""

    def set(self, what: str, id: str, **fields: Any) -> None:
        """Write fields of a document or row."""

    def delete(self, what: str, id: str) -> None:
        """Delete a document or row."""

    def close(self) -> None:
        """Close everything."""


#: Target of damage → its table and collection.
_PLACES = {
    "agent": ("agents", "users3"),
    "user": ("users", "users3"),
    "session": ("sessions", "sessions"),
    "message": ("messages", "messages"),
    "fact": ("facts", "memory2_facts"),
    "reflection": ("reflections", "memory2_reflections"),
    "consolidation": ("consolidations", "memory2_consolidated"),
    "policy": ("policies", "memory2_policies"),
    "formation": ("formations", "memory2_formations"),
}


class SqliteWard:
    """Copies of one SQLite file."""

    kind = "sqlite"

    def __init__(self, folder: Path) -> None:
        self._template = folder / "healthy.db"
        self._copies = 0
        store = SqliteStore(self._template)
        store.database.initialize()
        self.ids = admit(store)
        store.database.close()
        self.path = self._template
        self.store = store

    def fresh(self) -> None:
        self.store.database.close()
        self._copies += 1
        self.path = self._template.with_name(f"memory-{self._copies}.db")
        shutil.copyfile(self._template, self.path)
        self.path.chmod(0o600)
        self.store = SqliteStore(self.path)

    def run(self, statement: str, *values: Any) -> None:
        """Run a statement."""
        with closing(sqlite3.connect(self.path, isolation_level=None)) as raw:
            raw.execute("PRAGMA foreign_keys = ON")
            raw.execute(statement, values)

    def set(self, what: str, id: str, **fields: Any) -> None:
        columns = ", ".join(f"{name} = ?" for name in fields)
        table = _PLACES[what][0]
        self.run(f"UPDATE {table} SET {columns} WHERE id = ?", *map(_cell, fields.values()), id)

    def delete(self, what: str, id: str) -> None:
        self.run(f"DELETE FROM {_PLACES[what][0]} WHERE id = ?", id)

    def close(self) -> None:
        self.store.database.close()


class MongoWard:
    """A MongoDB database whose documents are restored for each use."""

    kind = "mongo"

    def __init__(self, uri: str) -> None:
        from pymongo import MongoClient

        from edenmem.store.mongo import MongoStore

        settings = StoreSettings(database=f"test_{new_id()}")
        self._client: Any = MongoClient(uri, tz_aware=True)
        self.database = self._client[settings.database]
        self._dropped = False
        self.store: MongoStore = MongoStore(uri, settings, client=self._client)
        self.store.database.initialize()
        self.ids = admit(self.store)
        self._documents = {
            name: list(self.database[name].find()) for name in self.database.list_collection_names()
        }

    def fresh(self) -> None:
        self._empty()
        if self._dropped:  # created on an empty database, without conflicts
            self.store.database.initialize()
            self._empty()
            self._dropped = False
        for name, documents in self._documents.items():
            if documents:
                self.database[name].insert_many(documents)

    def _empty(self) -> None:
        for name in self.database.list_collection_names():
            self.database[name].delete_many({})

    def drop_index(self, collection: str, name: str) -> None:
        """Drop an index; `fresh` restores it."""
        self.database[collection].drop_index(name)
        self._dropped = True

    def set(self, what: str, id: str, **fields: Any) -> None:
        key = "policy_id" if what == "policy" else "_id"
        stored = {name: _value(value) for name, value in fields.items()}
        collection = self.database[_PLACES[what][1]]
        assert collection.update_one({key: ObjectId(id)}, {"$set": stored}).matched_count

    def delete(self, what: str, id: str) -> None:
        key = "policy_id" if what == "policy" else "_id"
        assert self.database[_PLACES[what][1]].delete_one({key: ObjectId(id)}).deleted_count

    def close(self) -> None:
        self._client.drop_database(self.database.name)
        self.store.database.close()
        self._client.close()


def _cell(value: Any) -> Any:
    if isinstance(value, datetime):
        return int((value - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000)
    return json.dumps(value) if isinstance(value, list) else value


def _value(value: Any) -> Any:
    if isinstance(value, list):
        return [_value(each) for each in value]
    return ObjectId(value) if isinstance(value, str) and is_id(value) else value
