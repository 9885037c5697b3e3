"""What is remembered: facts, reflections, consolidated texts, and the policy of a scope.

Field names are those of the stored documents. Vectors are little-endian float32 bytes.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from edenmem.models.scope import Scope, ScopeKind


def content_hash(content: str) -> str:
    """The MD5 hex digest by which equal facts are recognised (the platform's choice; no secret)."""
    import hashlib  # loads OpenSSL, which most commands do without

    raw = content.encode("utf-8", "surrogatepass")
    return hashlib.md5(raw, usedforsecurity=False).hexdigest()


class _OwnedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The fields that say whose a memory is."""

    id: str
    scope: ScopeKind
    agent_id: str
    user_id: str | None = None
    group_id: str | None = None
    shard: str | None = None
    session_id: str | None = None

    @property
    def home(self) -> Scope:
        """The scope that this belongs to."""
        return Scope.from_fields(
            self.scope,
            self.agent_id,
            user_id=self.user_id,
            session_id=self.session_id,
            group_id=self.group_id,
            shard=self.shard,
        )


class Fact(_OwnedRecord, frozen=True, kw_only=True):
    """An atomic statement that can be searched. ``session_id`` is the source, if there is one.

    ``version`` starts at 1 and grows with each change of ``content``. ``private`` keeps it from
    being propagated. ``embedding`` is present only where it was asked for, or not yet made.
    ``related_users`` are those whom v1 named with it. ``weak``: not all of it could be
    confirmed from the conversation it comes from; a change of its text takes the mark away.
    """

    content: str
    hash: str
    formed_at: datetime
    source_message_ids: tuple[str, ...] = ()
    version: int = 1
    previous_content: str | None = None
    updated_at: datetime | None = None
    access_count: int = 0
    last_accessed_at: datetime | None = None
    private: bool = False
    formation_id: str | None = None
    related_users: tuple[str, ...] = ()
    weak: bool = False
    embedding_model: str | None = None
    embedding: bytes | None = None

    @property
    def recent_at(self) -> datetime:
        """When it was last made or corrected; what "recent" goes by."""
        return self.updated_at or self.formed_at


class Reflection(_OwnedRecord, frozen=True, kw_only=True):
    """An interpretation that waits to be consolidated. ``session_id`` is always the source.

    ``consolidated_into`` is the id of the consolidated text that absorbed it;
    ``propagated_from`` the ids of the reflections that it was derived from in a narrower scope;
    ``related_users`` those whom v1 named with it. ``place`` orders reflections formed at the same
    moment; where it is equal, the id does.
    """

    content: str
    formed_at: datetime
    source_message_ids: tuple[str, ...] = ()
    version: int = 1
    updated_at: datetime | None = None
    absorbed: bool = False
    absorbed_at: datetime | None = None
    consolidated_into: str | None = None
    private: bool = False
    formation_id: str | None = None
    propagated_from: tuple[str, ...] = ()
    related_users: tuple[str, ...] = ()
    place: int = 0

    @property
    def order(self) -> tuple[datetime, int, str]:
        """The key by which the reflections of a buffer are sorted, oldest first."""
        return self.formed_at, self.place, self.id

    def pending_at(self, moment: datetime) -> Reflection | None:
        """This as it stood in its scope's buffer at ``moment``; None if it was not in it."""
        absorbed = self.absorbed and (self.absorbed_at is None or self.absorbed_at <= moment)
        if absorbed or self.formed_at > moment:
            return None
        return msgspec.structs.replace(
            self, absorbed=False, absorbed_at=None, consolidated_into=None
        )


class Consolidation(_OwnedRecord, frozen=True, kw_only=True):
    """The one text of a scope that is always in the agent's prompt, and its buffer.

    ``consolidated_content`` is the text without the ``VERSION: n`` line that the platform's
    documents start with; ``version`` is that number (0: no text yet). ``unabsorbed_ids`` are the
    pending reflections in order, ``absorbed_ids`` those that went into this version.
    ``unpropagated_versions`` are those versions, oldest first, whose absorbed reflections are still
    to be looked through for the scope above.
    """

    consolidated_content: str = ""
    version: int = 0
    word_limit: int = 0
    unabsorbed_ids: tuple[str, ...] = ()
    absorbed_ids: tuple[str, ...] = ()
    last_consolidated_at: datetime | None = None
    updated_at: datetime | None = None
    unpropagated_versions: tuple[int, ...] = ()


class Policy(_OwnedRecord, frozen=True, kw_only=True):
    """The settings of one scope. None means the default of its kind.

    ``consolidate_at`` is a number of pending reflections, ``fact_buffer_max`` how many facts are
    kept (oldest out), ``orders`` whether a shard takes what is put as an order to the agent (see
    `edenmem.acceptance`). A scope that is not ``active`` keeps what it has and takes nothing new;
    nothing in a ``private`` scope is propagated. A shard exists if it has a policy.
    """

    memory_instructions: str | None = None
    consolidation_instructions: str | None = None
    consolidate_at: int | None = None
    word_limit: int | None = None
    fact_buffer_max: int | None = None
    fast_model: str | None = None
    slow_model: str | None = None
    active: bool = True
    private: bool = False
    propagate: bool | None = None
    orders: bool | None = None
    version: int = 0
    updated_at: datetime | None = None


class ScopeSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One scope at a glance, counted by the store."""

    scope: Scope
    facts: int = 0
    pending: int = 0
    version: int = 0
    words: int = 0
    active: bool = True
    updated_at: datetime | None = None
