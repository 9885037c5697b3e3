"""Facts, reflections, consolidated texts, and policies of scopes.

Field names match the stored documents. Vectors are little-endian float32 bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec

from edenmem.models.scope import OWNER_FIELD, Scope, ScopeKind


def content_hash(content: str, key: str | None = None) -> str:
    """Return the MD5 hex digest that identifies equal facts (as on the platform; not a secret).

    With a key, it covers key and text, so that items of another system may have equal texts.
    """
    import hashlib  # loads OpenSSL, which most commands do without

    text = content if key is None else f"{key}\0{content}"
    raw = text.encode("utf-8", "surrogatepass")
    return hashlib.md5(raw, usedforsecurity=False).hexdigest()


#: The mark of facts and reflections that their sources do not fully show.
UNCONFIRMED = "unconfirmed"


def describe_doubt(unconfirmed: str) -> str:
    """Return the label of a fact with what is in doubt about it, or ""."""
    return f"{UNCONFIRMED}: {unconfirmed}" if unconfirmed else ""


class _OwnedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The scope fields of a record."""

    id: str
    scope: ScopeKind
    agent_id: str
    user_id: str | None = None
    group_id: str | None = None
    shard: str | None = None
    session_id: str | None = None

    @property
    def home(self) -> Scope:
        """Return the scope of the record."""
        field = OWNER_FIELD[self.scope]
        return Scope(self.scope, self.agent_id, getattr(self, field) or "" if field else "")


class FactTimes(msgspec.Struct, frozen=True):
    """When the newest source message of a fact was sent, and a later edit by a person."""

    said_at: datetime | None = None
    edited_at: datetime | None = None


def join_times(said: Iterable[datetime | None], recent: Iterable[datetime]) -> FactTimes:
    """Return the times of a fact from several facts or messages: the newest ones."""
    said_at = max(filter(None, said), default=None)
    newest = max(recent)
    later = said_at is not None and newest > said_at
    return FactTimes(said_at, newest if later else None)


class FactFields(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The fields of a fact that a person or another system sets; see `Fact`."""

    key: str | None = None
    tags: tuple[str, ...] = ()
    metadata: dict[str, str] = {}
    expires_at: datetime | None = None
    value: dict[str, Any] | None = None

    def until(self, expires_at: datetime | None) -> FactFields:
        """Return the fields with another time of expiry, or none."""
        return msgspec.structs.replace(self, expires_at=expires_at)


#: The fields of most facts.
NO_FIELDS = FactFields()


class Fact(_OwnedRecord, frozen=True, kw_only=True):
    """An atomic, searchable statement. ``session_id`` is the source, if any.

    ``said_at`` is the time of the newest source message, if known. ``edited_at`` is the time of a
    later edit, kept only next to ``said_at``.

    ``version`` starts at 1 and grows with each change of ``content``. ``private`` facts are not
    propagated. ``embedding`` is loaded on request only. ``related_users`` are the users of the fact
    in v1. ``quote`` is a passage of a source message. ``unconfirmed`` says what the sources do not
    show; empty if confirmed, and a new text clears it.

    ``key`` is unique in the scope; another system finds its item by it. ``tags`` are words to
    filter by, ``metadata`` further texts by name. From ``expires_at`` on, the fact is not found
    and not shown to agents, until it is removed. ``value`` is a JSON object, kept for systems whose
    items are objects.
    """

    content: str
    hash: str
    formed_at: datetime
    said_at: datetime | None = None
    edited_at: datetime | None = None
    source_message_ids: tuple[str, ...] = ()
    version: int = 1
    previous_content: str | None = None
    updated_at: datetime | None = None
    access_count: int = 0
    last_accessed_at: datetime | None = None
    private: bool = False
    formation_id: str | None = None
    related_users: tuple[str, ...] = ()
    quote: str = ""
    unconfirmed: str = ""
    key: str | None = None
    tags: tuple[str, ...] = ()
    metadata: dict[str, str] = {}
    expires_at: datetime | None = None
    value: dict[str, Any] | None = None
    embedding_model: str | None = None
    embedding: bytes | None = None

    @property
    def recent_at(self) -> datetime:
        """Return the time that defines recent facts: of an edit, else of the source messages."""
        return self.edited_at or self.said_at or self.changed_at

    @property
    def changed_at(self) -> datetime:
        """Return the time of the last change of the text in memory."""
        return self.updated_at or self.formed_at

    @property
    def dated_at(self) -> datetime:
        """Return the time for filters and charts: when it was said, else when it was formed."""
        return self.said_at or self.formed_at

    @property
    def times(self) -> FactTimes:
        """Return when the fact was said and edited."""
        return FactTimes(self.said_at, self.edited_at)

    @property
    def fields(self) -> FactFields:
        """Return the fields that a person or another system sets."""
        return FactFields(**{name: getattr(self, name) for name in FactFields.__struct_fields__})

    def with_fields(self, fields: FactFields) -> Fact:
        """Return the fact with other fields, and the hash that its key gives."""
        changed = msgspec.structs.asdict(fields)
        digest = content_hash(self.content, fields.key)
        return msgspec.structs.replace(self, **changed, hash=digest)

    def has_expired(self, at: datetime) -> bool:
        """Return whether the fact has expired at a time."""
        return self.expires_at is not None and self.expires_at <= at

    def outlasts(self, other: Fact) -> bool:
        """Return whether the other fact expires, and before this one."""
        if other.expires_at is None:
            return False
        return self.expires_at is None or self.expires_at > other.expires_at


def join_fields(facts: Sequence[Fact]) -> FactFields:
    """Return the fields of the first fact, with the tags of all and the last time of expiry."""
    ends = [fact.expires_at for fact in facts if fact.expires_at is not None]
    return msgspec.structs.replace(
        facts[0].fields,
        tags=tuple(dict.fromkeys(tag for fact in facts for tag in fact.tags)),
        expires_at=max(ends) if len(ends) == len(facts) else None,
    )


class Reflection(_OwnedRecord, frozen=True, kw_only=True):
    """An interpretation to be consolidated. ``session_id`` is always the source.

    ``said_at`` is the time of the newest source message, if known.
    ``consolidated_into`` is the ID of the text that absorbed the reflection, ``propagated_from``
    the IDs of its parents in a narrower scope, ``related_users`` are its users in v1. ``place``
    sorts reflections of the same time, before the ID.
    """

    content: str
    formed_at: datetime
    said_at: datetime | None = None
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
    unconfirmed: str = ""

    @property
    def dated_at(self) -> datetime:
        """Return when the reflection was said, else when it was formed."""
        return self.said_at or self.formed_at

    @property
    def order(self) -> tuple[datetime, int, str]:
        """Return the sort key of buffers, oldest first."""
        return self.formed_at, self.place, self.id

    def pending_at(self, moment: datetime) -> Reflection | None:
        """Return the reflection as pending at ``moment``, or None."""
        absorbed = self.absorbed and (self.absorbed_at is None or self.absorbed_at <= moment)
        if absorbed or self.formed_at > moment:
            return None
        return msgspec.structs.replace(
            self, absorbed=False, absorbed_at=None, consolidated_into=None
        )


class FixedSentence(msgspec.Struct, frozen=True):
    """A sentence that a person wrote into a text, and that a consolidation must not change."""

    text: str
    by: str
    at: datetime


#: Failures in a row after which a model is not asked again about the same input.
MOST_FAILURES = 3


class FailedDrafts(msgspec.Struct, frozen=True):
    """Drafts in a row that were refused, all from the input with this fingerprint.

    ``reviews`` are pairs of a fixed sentence's number and the ID of a contradicting reflection.
    """

    fingerprint: str
    count: int
    reviews: tuple[tuple[int, str], ...] = ()

    @property
    def is_final(self) -> bool:
        """Return whether no model is asked again about the same input."""
        return bool(self.reviews) or self.count >= MOST_FAILURES


class Held(_OwnedRecord, frozen=True, kw_only=True):
    """A fact or reflection in doubt that waits for review. It is not memory.

    ``reasons`` says what is in doubt, if anything; the other fields are those of `Fact` and
    `Reflection`. ``session_id`` is always the source.
    """

    kind: Literal["fact", "reflection"]
    content: str
    held_at: datetime
    said_at: datetime | None = None
    quote: str = ""
    reasons: str = ""
    source_message_ids: tuple[str, ...] = ()
    private: bool = False
    formation_id: str | None = None


class ReviewItem(Held, frozen=True, kw_only=True):
    """An item to review: held, or stored as unconfirmed.

    ``version`` is that of a stored fact or reflection, 0 of a held item. ``held_at`` is when it
    was held or stored.
    """

    state: Literal["held", "unconfirmed"]
    version: int = 0

    @classmethod
    def of(cls, found: Held | Fact | Reflection) -> ReviewItem:
        """Return a held item, or a fact or reflection in doubt, as an item to review."""
        if isinstance(found, Held):
            return cls(**msgspec.structs.asdict(found), state="held")
        owner = {name: getattr(found, name) for name in _OwnedRecord.__struct_fields__}
        return cls(
            **owner,
            kind="fact" if isinstance(found, Fact) else "reflection",
            content=found.content,
            held_at=found.formed_at,
            said_at=found.said_at,
            quote=found.quote if isinstance(found, Fact) else "",
            reasons=found.unconfirmed,
            source_message_ids=found.source_message_ids,
            private=found.private,
            formation_id=found.formation_id,
            state="unconfirmed",
            version=found.version,
        )


class HeldCount(msgspec.Struct, frozen=True, kw_only=True):
    """The number of held items, and when the oldest was held."""

    number: int = 0
    oldest: datetime | None = None


class Consolidation(_OwnedRecord, frozen=True, kw_only=True):
    """The consolidated text of a scope, which is always in the prompt, and the scope's buffer.

    ``consolidated_content`` is the text without the ``VERSION: n`` line of the platform, and
    ``version`` this number (0: no text yet). ``unabsorbed_ids`` are the pending reflections in
    order, ``absorbed_ids`` those absorbed by this version. ``unpropagated_versions``, oldest first,
    still need to be propagated to the wider scope. ``fixed`` are the sentences of people, oldest
    first.
    """

    consolidated_content: str = ""
    version: int = 0
    word_limit: int = 0
    unabsorbed_ids: tuple[str, ...] = ()
    absorbed_ids: tuple[str, ...] = ()
    last_consolidated_at: datetime | None = None
    updated_at: datetime | None = None
    unpropagated_versions: tuple[int, ...] = ()
    fixed: tuple[FixedSentence, ...] = ()


class Policy(_OwnedRecord, frozen=True, kw_only=True):
    """The settings of one scope. None means the default of its kind.

    ``consolidate_at`` is a number of pending reflections, ``fact_buffer_max`` the maximum number of
    facts (the oldest are removed). ``orders`` lets a shard accept orders to the agent (see
    `edenmem.acceptance`). A paused scope (not ``active``) keeps its memory and accepts nothing new;
    a ``private`` scope is not propagated. ``review`` says what waits for review before it is
    memory. A shard exists if it has a policy.
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
    review: str | None = None
    version: int = 0
    updated_at: datetime | None = None


#: The fields of a policy with what it sets.
POLICY_FIELDS = tuple(
    name
    for name in Policy.__struct_fields__
    if name not in (*_OwnedRecord.__struct_fields__, "version", "updated_at")
)


class ScopeSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Counts and times of one scope, and the limits that its own policy sets; from the store.

    ``text_limit`` is the word limit stored with the text (0: none, or none but ours).
    """

    scope: Scope
    facts: int = 0
    pending: int = 0
    version: int = 0
    words: int = 0
    active: bool = True
    consolidate_at: int | None = None
    word_limit: int | None = None
    text_limit: int = 0
    last_consolidated_at: datetime | None = None
    updated_at: datetime | None = None
