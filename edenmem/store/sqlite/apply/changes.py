"""Changes to memory: judged by `edenmem.memory`, and written inside one transaction.

Under ``BEGIN IMMEDIATE`` nobody else can write between the reading and the writing. An error (a
vector that is none, a full disk) undoes the whole set.
"""

from __future__ import annotations

import sqlite3

from edenmem.memory import batches, needs, plan_all
from edenmem.models.changes import ChangeResult, ChangeSet
from edenmem.store.sqlite.apply.effects import EffectWriter
from edenmem.store.sqlite.apply.state import StateLoader
from edenmem.store.sqlite.core.codec import to_ms


def apply_changes(connection: sqlite3.Connection, changes: ChangeSet) -> list[ChangeResult]:
    """Apply a set inside the caller's transaction."""
    at = to_ms(changes.at)
    writer = EffectWriter(connection, at)
    results = []
    for batch in batches(changes.changes):
        loader = StateLoader(connection, needs(batch, automatic=changes.automatic))
        effects = plan_all(changes, loader.state(at), batch)
        writer.write(effects, loader.numbers)
        results += [effect.result for effect in effects]
    return results
