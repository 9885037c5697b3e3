"""Building ordinary indexes, and replacing older unique ones by those of edenmem."""

from __future__ import annotations

from pymongo.errors import DuplicateKeyError

from edenmem.errors import ConflictError, StoreError
from edenmem.store.mongo.core import collections as names
from edenmem.store.mongo.core.collection import Collection
from edenmem.store.mongo.core.collections import FACT_KEY, TEMPORARY_FACT_KEY, Index
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.core.migrations import lease_schema
from edenmem.store.mongo.core.readiness import read_fact_keys, require_writable
from edenmem.store.mongo.core.unique_keys import REPLACE, obstacle

#: How often a replacement starts again because the platform recreated its index meanwhile.
_ROUNDS = 5


def replace_index(db: Connection, name: str) -> None:
    """Replace the older indexes that `IndexState.replaces` names; see `Indexes.replace_index`."""
    require_writable(db)
    username = names.username_index(db.settings)
    if name not in (FACT_KEY.name, username.name):
        raise ConflictError(
            f"the index {name} is not replaced", hint="'edenmem index update' changes others"
        )
    with lease_schema(db):
        for _ in range(_ROUNDS):
            try:
                if name == username.name:
                    _replace_username(db, username)
                else:
                    _replace_fact_key(db)
            except ConflictError:
                continue  # the platform recreated its index in between
            return
    raise ConflictError(
        f"gave up on replacing {name}: another process recreated an older index {_ROUNDS} times",
        hint=f"run '{REPLACE}' again when no process of the platform is starting",
    )


def _replace_username(db: Connection, index: Index) -> None:
    """Replace the former unique index on usernames by one that is not unique."""
    if db.users.indexes().get(index.name, {}).get("unique"):
        db.users.drop_index(index.name)
    db.users.create_index(index.keys, **index.options())


def _replace_fact_key(db: Connection) -> None:
    """Replace older indexes by `FACT_KEY`. At every moment a unique index protects facts as
    the older ones did, and each step may be taken again."""
    keys = read_fact_keys(db)
    if not keys.final:
        demand_shard_key(db, FACT_KEY)
        if not keys.temporary:
            build(db, TEMPORARY_FACT_KEY)
    for name in keys.obsolete:
        db.facts.drop_index(name)
    build(db, FACT_KEY)
    left = read_fact_keys(db)
    if left.obsolete or not left.final:
        raise ConflictError("an older index is there again")
    if left.temporary:
        db.facts.drop_index(TEMPORARY_FACT_KEY.name)


def build(db: Connection, index: Index, name: str = "") -> None:
    """Create an index, under its own name or another.

    Raises:
        StoreError: stored documents break it, and are named; or it cannot be on this server.
    """
    collection = db.collection(index.collection)
    try:
        collection.create_index(index.keys, **{**index.options(), "name": name or index.name})
    except DuplicateKeyError as error:
        raise StoreError(
            obstacle(collection, index),
            hint="remove or change the duplicates, then try again; no index was dropped",
        ) from error


def demand_shard_key(db: Connection, index: Index) -> None:
    """Demand that a unique index can be on a collection as it is sharded."""
    if problem := shard_problem(db, index):
        raise StoreError(problem, hint="reshard the collection, or use one that is not sharded")


def shard_problem(db: Connection, index: Index) -> str:
    """Why a unique index cannot be created on a collection as it is sharded; "" if it can."""
    if not index.unique:
        return ""
    namespace = f"{db.database.name}.{index.collection}"
    try:
        found = Collection(
            db.client["config"]["collections"], db.location, read_only=True
        ).find_one({"_id": namespace})
    except StoreError:
        return ""  # not every user may read this; the server refuses the index itself then
    shard_key = tuple((found or {}).get("key", {}).items())
    if (found or {}).get("dropped") or shard_key == index.keys[: len(shard_key)]:
        return ""
    fields = ", ".join(f"{field}: {order}" for field, order in shard_key)
    return (
        f"unsupported: {namespace} is sharded by {{{fields}}}, and its unique index "
        f"{index.name} must begin with the shard key; its fields are "
        + ", ".join(field for field, _ in index.keys)
    )
