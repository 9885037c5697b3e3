"""Whether the indexes stand without which nothing keeps two workers apart."""

from __future__ import annotations

from collections.abc import Iterable

from edenmem.errors import StoreError
from edenmem.models.changes import (
    AddFact,
    AddReflection,
    Change,
    RepairBuffer,
    RestoreReflection,
    RevertConsolidation,
    ReviseFact,
    WriteConsolidation,
)
from edenmem.store.mongo.core.collections import (
    CONSOLIDATED_KEY,
    FACT_KEY,
    FORMATIONS,
    MEMORY_INDEXES,
    Index,
)
from edenmem.store.mongo.indexes.fact_key import FactKeyPart, has_keys

#: The keys that make a claim one worker's alone.
CLAIM_KEYS = tuple(i for i in MEMORY_INDEXES if i.collection == FORMATIONS and i.unique)


def keys_for(changes: Iterable[Change]) -> tuple[Index, ...]:
    """The unique keys that the changes rely on. What is only removed relies on none, so that
    duplicates which keep a key from being made can be removed."""
    needed: dict[str, Index] = {}
    for change in changes:
        match change:
            case AddFact() | ReviseFact():
                needed[FACT_KEY.name] = FACT_KEY
            case (
                AddReflection()
                | RestoreReflection()
                | WriteConsolidation()
                | RevertConsolidation()
                | RepairBuffer()
            ):
                needed[CONSOLIDATED_KEY.name] = CONSOLIDATED_KEY
            case _:
                continue
    return tuple(needed.values())


class PreparedPart(FactKeyPart):
    """Refuses to write where a database was not prepared."""

    def _demand_keys(self, keys: Iterable[Index]) -> None:
        """That these unique indexes stand; each is looked for once.

        Raises:
            StoreError: one does not. Two workers would both have a claim, and a scope one fact
                twice, and nobody would be told.
            FactKeyConflict: a narrow index stands in place of that of facts.
        """
        for key in keys:
            if key is FACT_KEY:
                self._demand_fact_key()
                continue
            if key.name in self._standing:
                continue
            if not has_keys(self._collection(key.collection).indexes(), key):
                raise StoreError(
                    f"the database {self._database.name} at {self.location} is not prepared: "
                    f"{key.collection} has no unique index {key.name}",
                    hint="run 'edenmem init'",
                )
            self._standing.add(key.name)
