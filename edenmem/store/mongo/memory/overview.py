"""Which scopes there are, and how many facts each embedding model has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import msgspec

from edenmem.errors import ScopeError
from edenmem.models.ids import as_utc
from edenmem.models.memory import ScopeSummary
from edenmem.models.scope import Scope, ScopeKind
from edenmem.store.mongo.core import codec, vectors
from edenmem.store.mongo.core.collection import Collection, Document
from edenmem.store.mongo.core.filters import (
    Filter,
    fact_fields,
    group_filters,
    object_id,
    object_ids,
)
from edenmem.store.mongo.memory.memory import MemoryPart
from edenmem.text import word_count


class OverviewPart(MemoryPart):
    """Counts, agent by agent."""

    def scopes(
        self,
        *,
        agent_id: str | None = None,
        kinds: Sequence[ScopeKind] = (),
        user_ids: Sequence[str] | None = None,
        min_pending: int = 0,
    ) -> Iterator[ScopeSummary]:
        """See `edenmem.store.protocol.store.Store.scopes`."""
        wanted = tuple(kinds) or tuple(ScopeKind)
        if user_ids is not None:
            wanted = tuple(kind for kind in wanted if kind is ScopeKind.USER)
        agents = self._agents_with_memory() if agent_id is None else [agent_id]
        for agent in agents:
            found = self._scopes_of(agent, wanted, user_ids)
            for scope in sorted(found):
                if found[scope].pending >= min_pending:
                    yield found[scope]

    def _agents_with_memory(self) -> list[str]:
        ids: set[str] = set()
        for collection in (self._facts, self._reflections, self._policies):
            ids.update(str(value) for value in collection.distinct("agent_id") if value)
        for kind in ScopeKind:
            values = self._consolidated.distinct("agent_id", {"scope": kind.value})
            ids.update(str(value) for value in values if value)
        return sorted(ids)

    def _scopes_of(
        self, agent_id: str, kinds: Sequence[ScopeKind], user_ids: Sequence[str] | None
    ) -> dict[Scope, ScopeSummary]:
        found: dict[Scope, ScopeSummary] = {}
        for kind in kinds:
            match: Filter = {"agent_id": object_id(agent_id), "scope": kind.value}
            if user_ids is not None:
                match["user_id"] = {"$in": object_ids(user_ids)}
            for row in self._count_owners(self._facts, match, kind):
                if kind is ScopeKind.SESSION:
                    row["session_id"] = row["group_id"]  # see `fact_fields`
                _add(found, row, facts=row["count"])
            for row in self._count_owners(self._reflections, match, kind):
                _add(found, row)
            for document in self._consolidated.find(match):
                text = codec.consolidation_from(document)
                _add(
                    found,
                    document,
                    pending=len(text.unabsorbed_ids),
                    version=text.version,
                    words=word_count(text.consolidated_content),
                    at=text.updated_at,
                )
            for document in self._policies.find(match):
                policy = codec.policy_from(document)
                if policy is not None:
                    _add(found, document, active=policy.active, at=policy.updated_at)
        return found

    def _count_owners(
        self, collection: Collection, match: Filter, kind: ScopeKind
    ) -> Iterator[Document]:
        """A row for each owner, with the fields of the scope, a count and the latest time."""
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

    def vector_models(self, scopes: Sequence[Scope] | None = None) -> dict[str, int]:
        """See `edenmem.store.protocol.store.Store.vector_models`."""
        counts: dict[str, int] = {}
        for owner in [{}] if scopes is None else group_filters(scopes, fact_fields):
            for model in {*self._facts.distinct("embedding_model", owner), None}:
                of_model = {**owner, "embedding_model": model}
                total = self._facts.count(of_model)
                bare = self._without_vector(of_model)
                if isinstance(model, str) and total > bare:
                    counts[model] = counts.get(model, 0) + total - bare
                elif not isinstance(model, str):
                    bare = total
                if bare:
                    counts[""] = counts.get("", 0) + bare
        return counts

    def _without_vector(self, filter: Filter) -> int:
        """How many have no vector, or zeros where an embedding had failed.

        A binary vector has no element 0 for the index either, so its type is looked at.
        """
        missing = {**filter, "embedding.0": None, "embedding": {"$not": {"$type": "binData"}}}
        suspects = self._facts.find({**filter, "embedding.0": 0}, {"embedding": 1})
        zeros = sum(vectors.decode(document.get("embedding")) is None for document in suspects)
        return self._facts.count(missing) + zeros


def _add(
    found: dict[Scope, ScopeSummary],
    fields: Document,
    *,
    at: datetime | None = None,
    **numbers: Any,
) -> None:
    scope = scope_of(fields)
    if scope is None:
        return
    summary = found.get(scope) or ScopeSummary(scope=scope)
    times = [time for time in (summary.updated_at, at or fields.get("at")) if time is not None]
    found[scope] = msgspec.structs.replace(summary, updated_at=max(times, default=None), **numbers)


def scope_of(fields: Document) -> Scope | None:
    """None for a document without the owner that its kind needs: it belongs to nobody."""
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
