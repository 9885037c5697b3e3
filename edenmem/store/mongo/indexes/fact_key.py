"""Build ordinary indexes, and replace the platform's unique one."""

from __future__ import annotations

from pymongo.errors import DuplicateKeyError

from edenmem.errors import ConflictError, StoreError
from edenmem.store.mongo.core.collection import Collection
from edenmem.store.mongo.core.collections import FACT_KEY, TEMPORARY_FACT_KEY, Index
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.core.migrations import lease_schema
from edenmem.store.mongo.core.readiness import read_fact_keys, require_writable
from edenmem.store.mongo.core.unique_keys import REPLACE, obstacle

#: Maximum number of attempts if the platform recreates its index.
_ROUNDS = 5


def replace_index(db: Connection, name: str) -> None:
    """Replace other indexes; see `Indexes.replace_index` and `IndexState.replaces`."""
    require_writable(db)
    if name != FACT_KEY.name:
        raise ConflictError(
            f"index cannot be replaced: {name}", hint="'edenmem index create --update' rebuilds it"
        )
    with lease_schema(db):
        for _ in range(_ROUNDS):
            try:
                _replace_fact_key(db)
            except ConflictError:
                continue  # the platform recreated its index
            return
    raise ConflictError(
        f"gave up on replacing {name}: another process recreated its index {_ROUNDS} times",
        hint=f"run '{REPLACE}' again while no process of the platform is starting",
    )


def _replace_fact_key(db: Connection) -> None:
    """Replace other indexes with `FACT_KEY`.

    A unique index protects facts throughout, and each step is idempotent.
    """
    keys = read_fact_keys(db)
    if not keys.final:
        require_shard_key(db, FACT_KEY)
        if not keys.temporary:
            build(db, TEMPORARY_FACT_KEY)
    for name in keys.obsolete:
        db.facts.drop_index(name)
    build(db, FACT_KEY)
    left = read_fact_keys(db)
    if left.obsolete or not left.final:
        raise ConflictError("an index was recreated")
    if left.temporary:
        db.facts.drop_index(TEMPORARY_FACT_KEY.name)


def build(db: Connection, index: Index, name: str = "") -> None:
    """Create an index, under its own name or another.

    Raises:
        StoreError: stored documents violate it, and are named; or the server does not support it.
    """
    collection = db.collection(index.collection)
    try:
        collection.create_index(index.keys, **{**index.options(), "name": name or index.name})
    except DuplicateKeyError as error:
        raise StoreError(
            obstacle(collection, index),
            hint="remove or change the duplicates, then try again; no index was dropped",
        ) from error


def require_shard_key(db: Connection, index: Index) -> None:
    """Raise if the collection's sharding does not permit a unique index."""
    if problem := shard_problem(db, index):
        raise StoreError(problem, hint="reshard the collection, or use an unsharded one")


def shard_problem(db: Connection, index: Index) -> str:
    """Return why the collection's sharding prevents a unique index; "" if it does not."""
    if not index.unique:
        return ""
    namespace = f"{db.database.name}.{index.collection}"
    try:
        found = Collection(
            db.client["config"]["collections"], db.location, read_only=True
        ).find_one({"_id": namespace})
    except StoreError:
        return ""  # the user may not read this; the server will refuse the index itself
    shard_key = tuple((found or {}).get("key", {}).items())
    if (found or {}).get("dropped") or shard_key == index.keys[: len(shard_key)]:
        return ""
    fields = ", ".join(f"{field}: {order}" for field, order in shard_key)
    return (
        f"unsupported: {namespace} is sharded by {{{fields}}}, but its unique index "
        f"{index.name} must begin with the shard key; its fields are "
        + ", ".join(field for field, _ in index.keys)
    )
