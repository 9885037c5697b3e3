"""List agents and scopes, and summarize their contents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import msgspec

from edenmem.errors import ScopeError
from edenmem.models.ids import as_utc
from edenmem.models.memory import ScopeSummary
from edenmem.models.scope import Scope, ScopeKind
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core.collection import Collection, Document
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.core.filters import Filter, object_id, object_ids
from edenmem.text import word_count


def agents_with_memory(db: Connection) -> list[str]:
    """Return the IDs of the agents with a fact, reflection, text or policy."""
    ids: set[str] = set()
    for collection in (db.facts, db.reflections, db.policies):
        ids.update(str(value) for value in collection.distinct("agent_id") if value)
    for kind in ScopeKind:
        values = db.consolidated.distinct("agent_id", {"scope": kind.value})
        ids.update(str(value) for value in values if value)
    return sorted(ids)


def summarize_scopes(
    db: Connection, agent_id: str, kinds: Sequence[ScopeKind], user_ids: Sequence[str] | None
) -> dict[Scope, ScopeSummary]:
    """Summarize an agent's scopes of these kinds, optionally only those of these accounts."""
    found: dict[Scope, ScopeSummary] = {}
    for kind in kinds:
        match: Filter = {"agent_id": object_id(agent_id), "scope": kind.value}
        if user_ids is not None:
            match["user_id"] = {"$in": object_ids(user_ids)}
        for row in _count_owners(db.facts, match, kind):
            if kind is ScopeKind.SESSION:
                row["session_id"] = row.get("group_id")  # see `fact_fields`
            _add(found, row, facts=row["count"])
        for row in _count_owners(db.reflections, match, kind):
            _add(found, row)
        for document in db.consolidated.find(match):
            text = codec.consolidation_from(document)
            _add(
                found,
                document,
                pending=len(text.unabsorbed_ids),
                version=text.version,
                words=word_count(text.consolidated_content),
                text_limit=text.word_limit,
                last_consolidated_at=text.last_consolidated_at,
                at=text.updated_at,
            )
        for document in db.policies.find(match):
            policy = codec.policy_from(document)
            if policy is not None:
                _add(
                    found,
                    document,
                    active=policy.active,
                    consolidate_at=policy.consolidate_at,
                    word_limit=policy.word_limit,
                    at=policy.updated_at,
                )
    return found


def _count_owners(collection: Collection, match: Filter, kind: ScopeKind) -> Iterator[Document]:
    """Yield a row per owner, with the scope's fields, a count and the latest time."""
    names = ["user_id", "group_id", "shard"]
    if kind is ScopeKind.SESSION:
        names.append("session_id")
    owner = {name: f"${name}" for name in names}
    pipeline = [
        {"$match": match},
        {
            "$group": {
                "_id": owner,
                "count": {"$sum": 1},
                "formed": {"$max": "$formed_at"},
                "updated": {"$max": "$updated_at"},
            }
        },
    ]
    for row in collection.aggregate(pipeline):
        times = [as_utc(t) for t in (row["formed"], row["updated"]) if isinstance(t, datetime)]
        latest = max(times, default=None)
        scope = {"agent_id": match["agent_id"], "scope": kind.value}
        yield {"_id": None, **scope, **row["_id"], "count": row["count"], "at": latest}


def _add(
    found: dict[Scope, ScopeSummary],
    fields: Document,
    *,
    at: datetime | None = None,
    **values: Any,
) -> None:
    scope = scope_of(fields)
    if scope is None:
        return
    summary = found.get(scope) or ScopeSummary(scope=scope)
    times = [time for time in (summary.updated_at, at or fields.get("at")) if time is not None]
    found[scope] = msgspec.structs.replace(summary, updated_at=max(times, default=None), **values)


def scope_of(fields: Document) -> Scope | None:
    """Return the scope of a document; None if it lacks the owner that its kind needs."""
    try:
        return Scope.from_fields(
            ScopeKind(fields["scope"]),
            str(fields["agent_id"]),
            user_id=codec.text_id(fields.get("user_id")),
            session_id=codec.text_id(fields.get("session_id")),
            group_id=codec.text_id(fields.get("group_id")),
            shard=codec.text_id(fields.get("shard")),
        )
    except ScopeError:
        return None
