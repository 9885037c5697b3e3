"""Define for each kind of record its collection, filters and decoder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from edenmem.models.backup import (
    Record,
    RecordKind,
    Selection,
    StoredAgent,
    StoredSession,
)
from edenmem.models.forgetting import Traces, whole_accounts
from edenmem.models.host import Message
from edenmem.models.memory import Consolidation, Fact, Held, Policy, Reflection
from edenmem.models.scope import Scope, ScopeKind
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core.collection import Collection, Document
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.core.filters import (
    Filter,
    build_consolidated_filters,
    build_consolidated_key,
    fact_fields,
    group_filters,
    id_parts,
    object_ids,
    owner_fields,
    policy_id,
)
from edenmem.store.mongo.formations.formations import formation_from
from edenmem.store.mongo.formations.usage import usage_from
from edenmem.store.mongo.host import host_codec
from edenmem.store.mongo.memory.history import history_from, stored_entry_from, stored_version
from edenmem.store.protocol.store import batched

_OwnedT = TypeVar("_OwnedT", Fact, Reflection, Held, Consolidation, Policy)

#: Scope keys per ``$in``.
_KEYS = 500


class Source(NamedTuple):
    """A kind of record in the database.

    Attributes:
        collection: Returns the collection.
        narrow: Returns the filters of a selection; a document may match several.
        anchors: A filter with one of these fields is served by an index.
        decode: Decodes a document. Returns None if it is not a record, such as a policy document
            that only keeps a revision. Raises one of `codec.UNREADABLE`.
        key: Returns the fields by which queries find the document of a record.
    """

    collection: Callable[[Connection], Collection]
    narrow: Callable[[Selection], list[Filter]]
    anchors: frozenset[str]
    decode: Callable[[Document], Record | None]
    key: Callable[[Any], Filter] | None = None


# -- narrowing -----------------------------------------------------------------------------------


def one_of(values: Sequence[Any]) -> Any:
    """Return the condition for a field to have one of these values."""
    return values[0] if len(values) == 1 else {"$in": list(values)}


def key_filters(scopes: Iterable[Scope]) -> list[Filter]:
    """Return filters for documents stored by the key of their scope."""
    keys = [scope.key for scope in scopes]
    return [{"scope_key": {"$in": part}} for part in batched(keys, _KEYS)]


def _among(field: str, ids: Iterable[str]) -> list[Filter]:
    """Return filters for documents with one of these IDs in a field."""
    return [{field: {"$in": part}} for part in id_parts(ids)]


def _agents(wanted: Selection) -> list[Filter]:
    ids: Filter = {"_id": {"$in": object_ids(wanted.agent_ids)}} if wanted.agent_ids else {}
    return [{"type": "agent", **ids}]


def _users(wanted: Selection) -> list[Filter]:
    ids = wanted.account_ids
    return [{"type": "user", **({} if ids is None else {"_id": {"$in": object_ids(ids)}})}]


def _sessions(wanted: Selection) -> list[Filter]:
    members = object_ids(wanted.member_ids)
    return [{**_of_agents(wanted, "agents"), **({"users": {"$in": members}} if members else {})}]


def _of_agents(wanted: Selection, field: str = "agent_id") -> Filter:
    return {field: one_of(object_ids(wanted.agent_ids))} if wanted.agent_ids else {}


def _of_scopes(wanted: Selection) -> Filter:
    users: Filter = {}
    if wanted.user_ids is not None:
        users["user_id"] = {"$in": object_ids(wanted.user_ids)}
    return {**_of_agents(wanted), **_of_kinds(wanted), **users}


def _of_kinds(wanted: Selection) -> Filter:
    """Return the filter on kinds of scope, if not all of them are selected."""
    is_narrow = wanted.kinds or wanted.user_ids is not None
    return {"scope": one_of(_kinds(wanted))} if is_narrow else {}


def _kinds(wanted: Selection) -> list[str]:
    """Return the selected kinds of scope; with users, only user scopes remain."""
    kinds = set(wanted.kinds or ScopeKind)
    return sorted(kinds if wanted.user_ids is None else kinds & {ScopeKind.USER})


def _of_history(wanted: Selection) -> Filter:
    """Return the filter for history and audit entries, which name a scope's owner in one field."""
    owners: Filter = {}
    if wanted.user_ids is not None:
        owners["owner"] = {"$in": list(wanted.user_ids)}
    return {**_of_agents(wanted), **_of_kinds(wanted), **owners}


def _with_traces(
    of_traces: Callable[[Traces], list[Filter]], others: Callable[[Selection], Filter] = _of_scopes
) -> Callable[[Selection], list[Filter]]:
    """Combine the filters of traces, if given, with the others."""

    def narrow(wanted: Selection) -> list[Filter]:
        other = others(wanted)
        if wanted.traces is None:
            return [other]
        filters = of_traces(wanted.traces)
        return [{"$and": [each, other]} for each in filters] if other else filters

    return narrow


def _of_memory(
    fields_of: Callable[[Scope], Filter] = owner_fields,
    ids: Callable[[Traces], Sequence[str]] = lambda traces: (),
) -> Callable[[Selection], list[Filter]]:
    """Narrow memory; of traces, to their scopes, to memory from their sources, and to these IDs."""
    return _with_traces(
        lambda traces: [
            *group_filters(traces.scopes, fields_of),
            *_among("session_id", traces.sources),
            *_among("_id", ids(traces)),
        ]
    )


def _texts(wanted: Selection) -> list[Filter]:
    """Narrow texts; of agents, by each kind of scope, with which the index begins."""
    filters = _with_traces(lambda traces: build_consolidated_filters(traces.scopes))(wanted)
    if wanted.traces is not None or not wanted.agent_ids:
        return filters
    return [{**filters[0], "scope": kind} for kind in _kinds(wanted)]


def _trace_history(traces: Traces) -> list[Filter]:
    """Return filters for versions and audit entries, also of single facts."""
    facts = [{"target_type": "fact", **each} for each in _among("target_id", traces.facts)]
    return [*key_filters(traces.scopes), *facts]


def _trace_audit(traces: Traces) -> list[Filter]:
    """Return filters for audit entries; those of accounts have no scope but contain names."""
    return [*_trace_history(traces), *_among("target_id", whole_accounts(traces))]


# -- decoding ------------------------------------------------------------------------------------


def read_agent(document: Document) -> StoredAgent:
    """Read a stored agent."""
    fields = msgspec.structs.asdict(host_codec.agent_from(document))
    return StoredAgent(**fields, deleted=document.get("deleted") is True)


def read_session(document: Document) -> StoredSession:
    """Read a stored session; its last activity is the recorded one."""
    context = host_codec.sub_document(document.get("memory_context"))
    session = msgspec.structs.replace(
        host_codec.session_from(document), last_activity=codec.moment(context.get("last_activity"))
    )
    last = codec.text_id(context.get("last_memory_message_id"))
    return StoredSession(**msgspec.structs.asdict(session), last_memory_message_id=last)


def _read_message(document: Document) -> Message:
    """Read a message as part of the first of its sessions."""
    sessions = codec.text_ids(document.get("session")) or (str(document.get("session")),)
    return host_codec.message_from(document, sessions[0])


def _owned(found: _OwnedT) -> _OwnedT:
    _ = found.home  # raises without a valid scope
    return found


def _read_policy(document: Document) -> Policy | None:
    policy = codec.policy_from(document)
    return None if policy is None else _owned(policy)


_BY_AGENT = frozenset({"agent_id"})
_BY_ID = frozenset({"_id"})
_BY_SCOPE = frozenset({"agent_id", "session_id", "_id", "$and"})
_BY_TARGET = frozenset({"scope_key", "target_id", "$and"})

SOURCES: dict[RecordKind, Source] = {
    RecordKind.AGENT: Source(lambda db: db.users, _agents, frozenset({"type"}), read_agent),
    RecordKind.USER: Source(lambda db: db.users, _users, _BY_ID, host_codec.stored_user_from),
    RecordKind.SESSION: Source(
        lambda db: db.sessions, _sessions, frozenset({"agents", "users"}), read_session
    ),
    # Messages are found through their sessions.
    RecordKind.MESSAGE: Source(lambda db: db.messages, lambda _: [{}], frozenset(), _read_message),
    RecordKind.POLICY: Source(
        lambda db: db.policies,
        _with_traces(
            lambda traces: _among("_id", (str(policy_id(each)) for each in traces.scopes))
        ),
        _BY_SCOPE,
        _read_policy,
        lambda policy: owner_fields(policy.home),
    ),
    RecordKind.CONSOLIDATION: Source(
        lambda db: db.consolidated,
        _texts,
        frozenset({"agent_id", "$and"}),
        lambda document: _owned(codec.consolidation_from(document)),
        lambda text: build_consolidated_key(text.home),
    ),
    RecordKind.REFLECTION: Source(
        lambda db: db.reflections,
        _of_memory(),
        _BY_SCOPE,
        lambda document: _owned(codec.reflection_from(document)),
        lambda reflection: owner_fields(reflection.home),
    ),
    RecordKind.FACT: Source(
        lambda db: db.facts,
        _of_memory(fact_fields, lambda traces: traces.facts),
        _BY_SCOPE,
        lambda document: _owned(codec.fact_from(document, with_vector=True)),
        lambda fact: fact_fields(fact.home),
    ),
    RecordKind.HELD: Source(
        lambda db: db.held,
        _of_memory(ids=lambda traces: traces.held),
        _BY_SCOPE,
        lambda document: _owned(codec.held_from(document)),
        lambda held: owner_fields(held.home),
    ),
    RecordKind.FORMATION: Source(
        lambda db: db.formations, lambda wanted: [_of_agents(wanted)], _BY_AGENT, formation_from
    ),
    RecordKind.USAGE: Source(
        lambda db: db.usage, lambda wanted: [_of_agents(wanted)], _BY_AGENT, usage_from
    ),
    RecordKind.AUDIT: Source(
        lambda db: db.audit,
        _with_traces(_trace_audit, _of_history),
        _BY_TARGET | _BY_AGENT,
        stored_entry_from,
    ),
    RecordKind.HISTORY: Source(
        lambda db: db.history,
        _with_traces(_trace_history, _of_history),
        _BY_TARGET,
        lambda document: stored_version(history_from(document)),
    ),
}


def narrow(kind: RecordKind, wanted: Selection) -> list[Filter]:
    """Return filters for the documents of a kind in a selection."""
    return SOURCES[kind].narrow(wanted)


def is_anchored(kind: RecordKind, filters: Sequence[Filter]) -> bool:
    """Return whether an index serves the filters."""
    return all(SOURCES[kind].anchors & each.keys() for each in filters)
