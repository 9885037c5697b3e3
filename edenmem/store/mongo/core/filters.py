"""Build filters from scopes, and only here; the bounds and expressions of queries.

Every filter names the agent, the kind and each owner field, unused ones as null, so it is never
wider than its scopes. Scopes of one agent and kind share a filter, so a reader's whole view takes a
few queries, each bounded on an index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from bson import ObjectId

from edenmem.models.formation import COUNT_END
from edenmem.models.ids import as_utc, derived_id, is_id
from edenmem.models.scope import OWNER_FIELD, Scope, ScopeKind
from edenmem.models.search import FactFilter

Filter = dict[str, Any]

#: The owner fields of facts and reflections, whose ``session_id`` is their source.
_OWNER_FIELDS = ("user_id", "group_id", "shard")

#: Maximum number of values in one ``$in``.
IN_LIMIT = 1000

#: Every document of a collection, by the index on IDs.
EVERYTHING: Filter = {"_id": {"$exists": True}}

#: Before every stored time. A range from here excludes documents without the field.
EPOCH = datetime(1, 1, 2, tzinfo=UTC)

#: The platform marks deleted accounts and sessions.
NOT_DELETED: Filter = {"deleted": {"$ne": True}}


def object_id(text: str) -> ObjectId | str:
    """Return the stored form of an ID; an invalid one stays text and matches nothing."""
    return ObjectId(text) if is_id(text) else text


def object_ids(texts: Iterable[str]) -> list[ObjectId | str]:
    """Return the stored form of several IDs."""
    return [object_id(text) for text in texts]


def optional_id(text: str | None) -> ObjectId | str | None:
    """Return the stored form of an optional ID."""
    return None if text is None else object_id(text)


def after(field: str, last: Any) -> Filter:
    """Return a filter for IDs after ``last``.

    Text IDs sort before all others, and a comparison with text only matches text.
    """
    later: Filter = {field: {"$gt": last}}
    return later if isinstance(last, ObjectId) else {"$or": [later, {field: {"$type": "objectId"}}]}


def id_parts(texts: Iterable[str]) -> Iterator[list[ObjectId | str]]:
    """Yield distinct stored IDs in lists short enough for one ``$in``."""
    ids = object_ids(dict.fromkeys(texts))
    for start in range(0, len(ids), IN_LIMIT):
        yield ids[start : start + IN_LIMIT]


def encode_owner(scope: Scope) -> Any:
    """Return the value of the owner's field: an ObjectId for users and sessions, else text."""
    if scope.kind in (ScopeKind.USER, ScopeKind.SESSION):
        return object_id(scope.owner)
    return scope.owner


def owner_fields(scope: Scope) -> Filter:
    """Return all scope fields of a document; also usable as a filter."""
    fields: Filter = {"agent_id": object_id(scope.agent_id), "scope": scope.kind.value}
    fields.update(dict.fromkeys(_OWNER_FIELDS))
    owner = OWNER_FIELD[scope.kind]
    if owner is not None:
        fields[owner] = encode_owner(scope)
    return fields


def fact_fields(scope: Scope) -> Filter:
    """Return `owner_fields` for facts.

    A fact's ``session_id`` is its source, not a part of the unique key. So facts in a session's own
    scope (which the engine never creates) name their owner in ``group_id``.
    """
    fields = owner_fields(scope)
    if scope.kind is ScopeKind.SESSION:
        del fields["session_id"]
        fields["group_id"] = scope.owner
    return fields


def group_filters(
    scopes: Iterable[Scope], fields_of: Callable[[Scope], Filter] = owner_fields
) -> list[Filter]:
    """Return one filter per agent and kind for these scopes, in a fixed order."""
    groups: dict[tuple[ScopeKind, str], dict[Scope, None]] = {}
    for scope in scopes:
        groups.setdefault((scope.kind, scope.agent_id), {})[scope] = None
    return [
        filter
        for members in groups.values()
        for start in range(0, len(members), IN_LIMIT)
        for filter in [_group_filter(list(members)[start : start + IN_LIMIT], fields_of)]
    ]


def _group_filter(members: Sequence[Scope], fields_of: Callable[[Scope], Filter]) -> Filter:
    """Return the fields that all members share, with a list of values for the other one."""
    first, *others = (fields_of(scope) for scope in members)
    if not others:
        return first
    (owner,) = (name for name in first if first[name] != others[0][name])
    return {**first, owner: {"$in": [first[owner], *(fields[owner] for fields in others)]}}


def at_or_after(moment: datetime) -> Filter:
    """Return a range of stored times from ``moment``.

    Stored times are whole milliseconds, so no inclusive bound is needed; not every server handles
    one correctly on an index with fields after the time.
    """
    return {"$gt": as_utc(moment) - timedelta(milliseconds=1)}


def within_times(since: datetime | None, before: datetime | None) -> Filter:
    """Return a range of stored times: ``since`` ≤ time < ``before``; empty without bounds."""
    first = at_or_after(since) if since is not None else {}
    last = {"$lt": before} if before is not None else {}
    return {**first, **last}


def dated(times: Filter) -> list[Filter]:
    """Return the filters that together match documents dated within a range of times.

    The platform's documents lack ``said_at``, and are dated by ``formed_at``.
    """
    return [{"said_at": times}, {"said_at": None, "formed_at": times}]


def unexpired(at: datetime) -> Filter:
    """Return a filter of documents that have not expired; those of the platform never do."""
    return {"$nor": [{"expires_at": {"$lte": at}}]}


def fact_filters(filter: FactFilter) -> list[Filter]:
    """Return the filters that together match ``filter``; empty without scopes."""
    extra: Filter = {}
    if filter.session_id is not None:
        extra["session_id"] = object_id(filter.session_id)
    if filter.unconfirmed:
        extra["unconfirmed"] = {"$gt": ""}
    if filter.key is not None:
        extra["key"] = filter.key
    if filter.tags:
        extra["$and"] = [{"tags": tag} for tag in filter.tags]
    if filter.expired_at is not None:
        extra["expires_at"] = {"$lte": filter.expired_at}
    if filter.live_at is not None:
        extra |= unexpired(filter.live_at)
    times = within_times(filter.since, filter.until)
    ranges: list[Filter] = dated(times) if times else [{}]
    return [
        {**owner, **extra, **range}
        for owner in group_filters(filter.scopes, fact_fields)
        for range in ranges
    ]


def build_consolidated_key(scope: Scope) -> Filter:
    """Return the unique key of the scope's consolidated document.

    On live databases the platform keeps (agent_id, user_id, session_id, scope) unique. Groups and
    shards would all be (agent, null, null, kind) there, so they have an ID derived from the scope
    in ``session_id``, which no session has; the platform does not read these kinds.
    """
    key = {**owner_fields(scope), "session_id": None}
    if scope.kind is ScopeKind.SESSION:
        key["session_id"] = object_id(scope.owner)
    elif scope.kind in (ScopeKind.GROUP, ScopeKind.SHARD):
        key["session_id"] = ObjectId(derived_id("consolidated", scope.key))
    return key


def build_consolidated_filters(scopes: Iterable[Scope]) -> list[Filter]:
    """Return filters for the consolidated documents of scopes, by agent and kind.

    Each filter ends in one list of values, in the order of the unique index; the agents' own scopes
    share one.
    """
    wanted = list(dict.fromkeys(scopes))
    agents = [scope for scope in wanted if scope.kind is ScopeKind.AGENT]
    filters: list[Filter] = []
    for start in range(0, len(agents), IN_LIMIT):
        ids = object_ids(scope.agent_id for scope in agents[start : start + IN_LIMIT])
        filters.append({"scope": "agent", "agent_id": ids[0] if len(ids) == 1 else {"$in": ids}})
    filters.extend(group_filters(scope for scope in wanted if scope.kind is not ScopeKind.AGENT))
    return filters


def policy_id(scope: Scope) -> ObjectId:
    """Return the ``_id`` of the scope's policy document."""
    return ObjectId(derived_id("policy", scope.key))


def tokens_or_zero(field: str) -> dict[str, Any]:
    """Return the expression for a whole number of tokens, 0 for other values."""
    is_whole = {"$in": [{"$type": field}, ["int", "long"]]}
    return {"$cond": [is_whole, count_or_zero(field), 0]}


def count_or_zero(field: str) -> dict[str, Any]:
    """Return the expression for a count or cost, 0 for other values.

    A single NaN or infinity would spoil the whole sum.

    Args:
        field: The path of the field, with the ``$``.
    """
    within = {"$and": [{"$gt": [field, 0]}, {"$lt": [field, COUNT_END]}]}
    return {"$cond": [within, field, 0]}
