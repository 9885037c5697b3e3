"""Define the collections, their ordinary indexes and their search indexes.

One of these indexes serves every query of the store; indexes are defined nowhere else.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from edenmem.settings.schema import StoreSettings

FACTS = "memory2_facts"
REFLECTIONS = "memory2_reflections"
CONSOLIDATED = "memory2_consolidated"
#: Facts and reflections in doubt, which wait for review.
HELD = "memory2_held"
POLICIES = "memory2_policies"
HISTORY = "memory2_history"
AUDIT = "memory2_audit"
#: Seals of the log: IDs and hashes.
SEALS = "memory2_seals"
FORMATIONS = "memory2_formations"
USAGE = "memory2_usage"
MIGRATIONS = "memory2_migrations"
#: The cold run's notes about sessions: IDs and times, no memory.
COLD = "memory2_cold"

#: Forgettings: hashes, times and counts.
FORGETTINGS = "memory2_forgettings"

#: Forgotten messages, which searches for source words skip: IDs.
FORGOTTEN_MESSAGES = "memory2_forgotten_messages"

#: Replies, and the lists of what they were given: IDs and versions, no texts.
TOLD = "memory2_told"
TOLD_LISTS = "memory2_told_lists"

#: Access tokens: names, digests and the IDs that they are limited to.
TOKENS = "memory2_tokens"
#: Daily usage: hashes and counts.
DAILY_USE = "memory2_daily_use"

VECTOR_INDEX = "memory2_facts_vector"
TEXT_INDEX = "memory2_facts_text"

#: The state of a switch to another embedding model: one document, no memory.
SWITCH = "memory2_switch"


class VectorSlot(msgspec.Struct, frozen=True):
    """A slot for vectors: the field, the field of the model's name, and the search index."""

    field: str
    model: str
    index: str


OWN = VectorSlot("embedding", "embedding_model", VECTOR_INDEX)
#: The second vector of a fact, during a switch to another model.
STAGED = VectorSlot("embedding_next", "embedding_next_model", "memory2_facts_vector_next")
#: The hash of the text from which the second vector was made.
STAGED_HASH = "embedding_next_hash"

#: The filter fields of the platform's search indexes: enough for facts of an agent and its users.
PLATFORM_FILTERS = ("agent_id", "user_id", "scope")

#: The filter fields of the vector index.
VECTOR_FILTERS = (
    "agent_id",
    "user_id",
    "group_id",
    "shard",
    "scope",
    "session_id",
    "formed_at",
    "said_at",
    "expires_at",
    "tags",
    "key",
    "embedding_model",
)

Keys = tuple[tuple[str, int], ...]


class Index(msgspec.Struct, frozen=True):
    """An ordinary index.

    ``partial`` is a partialFilterExpression. ``background`` is an option of the platform's own
    indexes, which must match for the platform to accept them.
    """

    collection: str
    name: str
    keys: Keys
    unique: bool = False
    partial: dict[str, Any] | None = None
    background: bool = False

    def options(self) -> dict[str, Any]:
        """Return the options of ``create_index``."""
        options: dict[str, Any] = {"name": self.name}
        if self.unique:
            options["unique"] = True
        if self.partial is not None:
            options["partialFilterExpression"] = self.partial
        if self.background:
            options["background"] = True
        return options


class SearchIndex(msgspec.Struct, frozen=True):
    """An Atlas search index: ``type`` is "vectorSearch" or "search"."""

    collection: str
    name: str
    type: str
    definition: dict[str, Any]


def _asc(*fields: str) -> Keys:
    return tuple((field, 1) for field in fields)


_OWNER = _asc("agent_id", "scope", "user_id", "group_id", "shard")

#: The unique key of facts: one fact per text in a scope. It has the name of the platform's narrow
#: key on purpose: each process of the platform tries to create that key, and deletes facts with the
#: same sentence about two users if it can. An index with this name and other fields makes the
#: attempt fail before anything is deleted.
FACT_KEY = Index(FACTS, "fact_dedup_idx", (*_OWNER, ("hash", 1)), unique=True)

#: Prevents duplicates while an older index is replaced by `FACT_KEY`. MongoDB refuses a second
#: index on the same fields in the same order; the leading fields are those by which the collection
#: may be sharded.
TEMPORARY_FACT_KEY = Index(
    FACTS, "edenmem_fact_key_temporary", (*_OWNER[:-1], ("hash", 1), _OWNER[-1]), unique=True
)

#: The fields of the platform's key; its name may differ.
NARROW_FACT_KEYS: Sequence[frozenset[str]] = (frozenset({"hash", "agent_id"}), frozenset({"hash"}))

#: One consolidated document per scope. It is compatible with the platform's unique index on
#: (agent_id, user_id, session_id, scope): documents of groups and shards have an ID derived from
#: their scope in ``session_id`` (see `filters.build_consolidated_key`), so that they never collide
#: there.
CONSOLIDATED_KEY = Index(
    CONSOLIDATED,
    "edenmem_scope_key",
    _asc("scope", "agent_id", "user_id", "group_id", "shard", "session_id"),
    unique=True,
)

#: The key that a person or another system gave to a fact, unique in its scope.
GIVEN_KEY = Index(
    FACTS, "edenmem_fact_key", (*_OWNER, ("key", 1)), unique=True, partial={"key": {"$gt": ""}}
)

MEMORY_INDEXES: tuple[Index, ...] = (
    FACT_KEY,
    GIVEN_KEY,
    Index(FACTS, "edenmem_fact_expiry", _asc("expires_at")),
    # The platform's own, with its options. Its error at `FACT_KEY` prevents it from creating them.
    Index(FACTS, "fact_scope_idx", _asc("agent_id", "scope"), background=True),
    Index(FACTS, "fact_user_idx", _asc("agent_id", "user_id"), background=True),
    # Most recent: facts with said_at by recent_at, others by updated_at, then by formed_at.
    Index(
        FACTS,
        "edenmem_fact_recent",
        (*_OWNER, ("recent_at", -1), ("updated_at", -1), ("formed_at", -1), ("_id", 1)),
    ),
    # By time: those with said_at, then the others by formed_at.
    Index(FACTS, "edenmem_fact_dated", (*_OWNER, ("said_at", -1), ("formed_at", -1))),
    Index(FACTS, "edenmem_fact_vector", _asc("embedding_model", "embedding.0")),
    # A backfill reads the facts of each agent and model by ID.
    Index(FACTS, "edenmem_fact_model", _asc("embedding_model", "agent_id", "_id")),
    Index(
        REFLECTIONS,
        "edenmem_reflection_recent",
        (*_OWNER, ("absorbed", 1), ("formed_at", -1), ("_id", 1)),
    ),
    Index(
        REFLECTIONS,
        "edenmem_reflection_session",
        (*_OWNER, ("session_id", 1), ("absorbed", 1), ("formed_at", -1), ("_id", 1)),
    ),
    # Memory from a session, or derived from a reflection, in any scope.
    Index(FACTS, "edenmem_fact_source", _asc("session_id")),
    Index(REFLECTIONS, "edenmem_reflection_source", _asc("session_id")),
    Index(REFLECTIONS, "edenmem_reflection_parents", _asc("propagated_from")),
    # Users named by v1.
    Index(FACTS, "edenmem_fact_related", _asc("related_users")),
    Index(REFLECTIONS, "edenmem_reflection_related", _asc("related_users")),
    Index(HELD, "edenmem_held_scope", (*_OWNER, ("held_at", -1), ("_id", 1))),
    Index(HELD, "edenmem_held_source", _asc("session_id")),
    CONSOLIDATED_KEY,
    Index(CONSOLIDATED, "edenmem_unpropagated", _asc("unpropagated_versions")),
    Index(POLICIES, "edenmem_policy_agent", _asc("agent_id", "scope", "shard")),
    Index(HISTORY, "edenmem_history_target", _asc("target_type", "target_id", "version")),
    Index(HISTORY, "edenmem_history_scope", _asc("scope_key", "target_type", "at", "version")),
    Index(AUDIT, "edenmem_audit_time", (("at", -1), ("_id", -1))),
    Index(AUDIT, "edenmem_audit_agent", (("agent_id", 1), ("at", -1), ("_id", -1))),
    Index(AUDIT, "edenmem_audit_target", (("target_id", 1), ("at", -1), ("_id", -1))),
    Index(AUDIT, "edenmem_audit_run", (("actor.run_id", 1), ("at", -1), ("_id", -1))),
    Index(AUDIT, "edenmem_audit_actor", (("actor.name", 1), ("at", -1), ("_id", -1))),
    Index(AUDIT, "edenmem_audit_home", (("scope_key", 1), ("at", -1), ("_id", -1))),
    Index(AUDIT, "edenmem_audit_scope", _asc("scope_key", "action", "at")),
    Index(FORMATIONS, "edenmem_formation_seq", _asc("session_id", "agent_id", "seq"), unique=True),
    # A multikey unique index holds between documents: no message is in two formations.
    Index(
        FORMATIONS,
        "edenmem_formation_messages",
        _asc("session_id", "agent_id", "message_ids"),
        unique=True,
    ),
    Index(
        FORMATIONS,
        "edenmem_formation_unfinished",
        _asc("session_id", "agent_id"),
        unique=True,
        partial={"unfinished": True},
    ),
    Index(FORMATIONS, "edenmem_formation_latest", (("created_at", -1), ("_id", -1))),
    Index(
        FORMATIONS, "edenmem_formation_agent", (("agent_id", 1), ("created_at", -1), ("_id", -1))
    ),
    Index(FORMATIONS, "edenmem_formation_status", (("status", 1), ("created_at", -1), ("_id", -1))),
    Index(FORGETTINGS, "edenmem_forgetting_blocks", _asc("blocks")),
    Index(FORGETTINGS, "edenmem_forgetting_closed", _asc("closed_at")),
    Index(TOLD, "edenmem_told_time", (("at", -1), ("_id", -1))),
    Index(TOLD, "edenmem_told_session", (("session_id", 1), ("at", -1), ("_id", -1))),
    Index(TOLD, "edenmem_told_user", (("user_id", 1), ("at", -1), ("_id", -1))),
    Index(TOLD, "edenmem_told_agent", (("agent_id", 1), ("at", -1), ("_id", -1))),
    Index(TOLD, "edenmem_told_context", (("context", 1), ("at", -1), ("_id", -1))),
    Index(TOLD, "edenmem_told_found", (("found", 1), ("at", -1), ("_id", -1))),
    Index(TOLD_LISTS, "edenmem_told_keys", _asc("keys")),
    Index(TOLD_LISTS, "edenmem_told_day", _asc("last_day")),
    Index(COLD, "edenmem_cold_activity", _asc("settled", "activity", "_id")),
    Index(USAGE, "edenmem_usage_time", (("at", -1),)),
    Index(USAGE, "edenmem_usage_agent", (("agent_id", 1), ("at", -1))),
)


def host_indexes(settings: StoreSettings) -> tuple[Index, ...]:
    """Return the indexes for reading the platform's collections."""
    sessions, messages = settings.sessions_collection, settings.messages_collection
    activity: Keys = (("memory_context.last_activity", -1), ("updatedAt", -1), ("_id", 1))
    return (
        # Not unique: two accounts may share a name.
        Index(settings.users_collection, "edenmem_username", _asc("type", "username")),
        Index(settings.users_collection, "edenmem_person", _asc("eden_user_id")),
        Index(sessions, "edenmem_session_activity", activity),
        Index(sessions, "edenmem_session_agents", (("agents", 1), *activity)),
        Index(sessions, "edenmem_session_users", (("users", 1), *activity)),
        Index(sessions, "edenmem_session_group", (("group_id", 1), *activity)),
        Index(sessions, "edenmem_session_name", _asc("name")),
        Index(sessions, "edenmem_session_title", _asc("title")),
        Index(messages, "edenmem_message_order", _asc("session", "createdAt", "_id")),
        Index(messages, "edenmem_message_senders", _asc("session", "role", "trigger", "sender")),
        Index(messages, "edenmem_message_sender", _asc("sender", "session")),
    )


def ordinary_indexes(settings: StoreSettings) -> dict[str, Index]:
    """Map the names of all ordinary indexes to their definitions."""
    return {index.name: index for index in (*MEMORY_INDEXES, *host_indexes(settings))}


#: IDs are ObjectIds on the platform; old documents may have them as text.
_ID = [{"type": "objectId"}, {"type": "token"}]

#: The filter fields of the text index, with their types.
TEXT_FILTERS: Mapping[str, Any] = {
    "agent_id": _ID,
    "user_id": _ID,
    "session_id": _ID,
    "group_id": {"type": "token"},
    "shard": {"type": "token"},
    "scope": {"type": "token"},
    "formed_at": {"type": "date"},
    "said_at": {"type": "date"},
    "expires_at": {"type": "date"},
    "tags": {"type": "token"},
    "key": {"type": "token"},
}

#: Filter fields that an index may lack; it then finds more, which is left out afterwards.
OPTIONAL_FILTERS = ("expires_at", "tags", "key")


def vector_index(
    *,
    dimensions: int,
    collection: str = FACTS,
    slot: VectorSlot = OWN,
    name: str = "",
    filters: Collection[str] = VECTOR_FILTERS,
) -> SearchIndex:
    """Return the vector index over facts, for both stored forms of vectors.

    Args:
        dimensions: The length of the embedder's vectors.
        collection: The collection of facts, or one like it.
        slot: The slot of the vectors.
        name: Overrides the name of the slot's index.
        filters: The filter fields.
    """
    fields: list[dict[str, Any]] = [
        {
            "type": "vector",
            "path": slot.field,
            "numDimensions": dimensions,
            "similarity": "cosine",  # (1 + cosine) / 2 is the scale of all thresholds
        }
    ]
    paths = (slot.model if path == OWN.model else path for path in filters)
    fields.extend({"type": "filter", "path": path} for path in paths)
    return SearchIndex(collection, name or slot.index, "vectorSearch", {"fields": fields})


def text_index(
    *,
    analyzer: str = "lucene.english",
    collection: str = FACTS,
    name: str = TEXT_INDEX,
    filters: Collection[str] = tuple(TEXT_FILTERS),
) -> SearchIndex:
    """Return the text index over facts.

    Args:
        analyzer: Lucene's analyzer for facts and queries.
        collection: The collection of facts, or one like it.
        name: Overrides the default name.
        filters: The filter fields.
    """
    content = {"type": "string", "analyzer": analyzer, "searchAnalyzer": analyzer}
    fields = {"content": content, **{path: TEXT_FILTERS[path] for path in filters}}
    mappings = {"dynamic": False, "fields": fields}
    return SearchIndex(collection, name, "search", {"mappings": mappings})
