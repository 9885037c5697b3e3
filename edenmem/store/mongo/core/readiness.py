"""What must be so before anything is written: the server, the schema and the unique indexes."""

from __future__ import annotations

from collections.abc import Iterable

from edenmem.errors import ConflictError, FactKeyConflict, StoreError, WriteRefused
from edenmem.store.common import migrations
from edenmem.store.mongo.core.collections import FACT_KEY, Index
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.core.errors import translate_errors
from edenmem.store.mongo.core.filters import Filter
from edenmem.store.mongo.core.unique_keys import REPLACE, FactKeys, fact_keys, has_keys, narrow_key

STANDALONE = "is a standalone server: it can be read, not written"
_STEPS = (
    "writing needs a replica set (one node suffices): start mongod with '--replSet rs0' (with "
    "authentication on, also '--keyFile FILE'), then run 'rs.initiate()' in mongosh with a host "
    "name that clients can resolve; see 'A replica set' in edenmem/docs/mongodb.md"
)

#: The step that finishes what was written without transactions.
_TRANSACTIONS = 12


class Readiness:
    """Demands what writing needs. Once it is there, it is believed and not looked for again."""

    def __init__(self, db: Connection) -> None:
        self._db = db
        self._has_transactions = False
        self._has_schema = False
        self._standing: set[str] = set()  # unique indexes that were seen to stand

    def demand(self) -> None:
        """Demand all without which nothing is written; before a model is paid, too."""
        self.require_transactions()
        self.require_schema()

    def require_transactions(self) -> None:
        """Demand that the store may be written to, and that the server has transactions.

        Raises:
            WriteRefused: the store is open for reading only.
            StoreError: it is a standalone server, or one that lacks transactions.
        """
        if self._db.settings.read_only:
            raise WriteRefused(f"MongoDB at {self._db.location} is open for reading only")
        if self._has_transactions:
            return
        if is_standalone(self._db):
            raise StoreError(f"MongoDB at {self._db.location} {STANDALONE}", hint=_STEPS)
        self._has_transactions = True

    def require_schema(self) -> None:
        """Demand that the database is of a schema that this edenmem writes; the answer is kept.

        Raises:
            StoreError: a newer edenmem migrated it, or changes of an older one are pending in it.
        """
        if self._has_schema:
            return
        numbers = read_schema_numbers(self._db)
        name = f"the database {self._db.full_name}"
        if numbers and max(numbers) > migrations.newest():
            raise StoreError(
                f"{name} was migrated by a newer edenmem: schema {max(numbers)}, and this one "
                f"knows {migrations.newest()}",
                hint="install a newer edenmem",
            )
        if numbers and _TRANSACTIONS not in numbers:
            raise StoreError(
                f"{name} is of an older schema: {max(numbers)}",
                hint="stop every older edenmem, then run 'edenmem migrate up'",
            )
        self._has_schema = True

    def forget_schema(self) -> None:
        """Look at the schema again, whose steps are about to be taken back."""
        self._has_schema = False

    # -- unique indexes ----------------------------------------------------------------------

    def require_keys(self, keys: Iterable[Index]) -> None:
        """Demand that these unique indexes stand; each is looked for once.

        Raises:
            StoreError: one does not. Two workers would both have a claim, and a scope one fact
                twice, and nobody would be told.
            FactKeyConflict: a narrow index stands in place of that of facts.
        """
        for key in keys:
            if key is FACT_KEY:
                self.require_fact_key()
                continue
            if key.name in self._standing:
                continue
            if not has_keys(self._db.collection(key.collection).indexes(), key):
                raise StoreError(
                    f"the database {self._db.full_name} is not prepared: "
                    f"{key.collection} has no unique index {key.name}",
                    hint="run 'edenmem init'",
                )
            self._standing.add(key.name)

    def require_fact_key(self) -> None:
        """Demand that facts can be added and revised; the answer is kept once they can.

        Raises:
            FactKeyConflict: a narrow index would refuse facts that must be stored, or a restart
                of the platform would delete them in the midst of a replacement.
            StoreError: no unique index protects facts from duplicates.
        """
        if FACT_KEY.name in self._standing:
            return
        keys = read_fact_keys(self._db)
        if keys.narrow:
            raise FactKeyConflict(
                f"facts cannot be added or changed in {self._db.full_name}: {narrow_key(keys)}",
                hint=f"replace it with '{REPLACE}'",
            )
        if keys.half_replaced:
            raise FactKeyConflict(
                f"facts cannot be added or changed in {self._db.full_name}: "
                f"the unique index {FACT_KEY.name} on {FACT_KEY.collection} is being replaced, "
                "or the replacement was interrupted",
                hint=f"complete it with '{REPLACE}'",
            )
        if not keys.protects:
            raise StoreError(
                f"the database {self._db.full_name} is not prepared: "
                f"{FACT_KEY.collection} has no unique index {FACT_KEY.name}",
                hint=f"run '{REPLACE}'" if keys.obsolete else "run 'edenmem init'",
            )
        self._standing.add(FACT_KEY.name)

    def explain_refusal(self, name: str) -> ConflictError | None:
        """The error for a fact that the index ``name`` refused although its scope does not have
        the fact; None if the index is one of ours, so that a twin was there for a moment."""
        keys = read_fact_keys(self._db)
        if name not in keys.refuses:
            return None
        self._standing.discard(FACT_KEY.name)
        narrow = name in keys.narrow
        return ConflictError(
            f"the unique index {name} on {FACT_KEY.collection} refused a fact that its scope "
            "does not have",
            hint=f"replace the index with '{REPLACE}', then run the command again"
            if narrow
            else f"{name} was not created by edenmem; drop it in the database, then run the "
            "command again",
        )


def require_writable(db: Connection) -> None:
    """Demand that the store is not open for reading only."""
    if db.settings.read_only:
        raise WriteRefused(f"{db.location} is open for reading only")


def is_standalone(db: Connection) -> bool:
    """Whether the server is no part of a replica set, and so has no transactions."""
    with translate_errors(db.location):
        try:
            hello = db.client.admin.command("hello")
        except NotImplementedError:  # a mock of a server
            hello = {}
    return not hello.get("setName") and hello.get("msg") != "isdbgrid"


def documents_of(prefix: str) -> Filter:
    """A filter for the ids of the ledger with this prefix, which the index on ids serves."""
    return {"_id": {"$gte": f"{prefix}/", "$lt": f"{prefix}0"}}


def read_schema_numbers(db: Connection) -> set[int]:
    """The numbers of the schema steps that the database has had."""
    return {int(each["number"]) for each in db.ledger.find(documents_of("schema"))}


def read_fact_keys(db: Connection) -> FactKeys:
    """The unique indexes of facts as they are."""
    return fact_keys(db.facts.indexes())
