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
    StoredVersion,
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
        anchors: Groups of fields; a filter with all fields of a group is served by an index.
        decode: Decodes a document. Returns None if it is not a record, such as a policy document
            that only keeps a revision. Raises one of `codec.UNREADABLE`.
        key: Returns the fields by which queries find the document of a record.
    """

    collection: Callable[[Connection], Collection]
    narrow: Callable[[Selection], list[Filter]]
    anchors: tuple[frozenset[str], ...]
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


def _of_kinds(wanted: Selection) -> Filter:
    """Return the filter on kinds of scope; with users, only user scopes remain."""
    kinds = set(wanted.kinds or ScopeKind)
    if wanted.user_ids is not None:
        kinds &= {ScopeKind.USER}
    elif not wanted.kinds:
        return {}
    return {"scope": one_of(sorted(kind.value for kind in kinds))}


def _of_scopes(wanted: Selection) -> Filter:
    users: Filter = {}
    if wanted.user_ids is not None:
        users["user_id"] = {"$in": object_ids(wanted.user_ids)}
    return {**_of_agents(wanted), **_of_kinds(wanted), **users}


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


def _from_sources(traces: Traces) -> list[Filter]:
    return [{"session_id": {"$in": part}} for part in id_parts(traces.sources)]


def _trace_facts(traces: Traces) -> list[Filter]:
    single = [{"_id": {"$in": part}} for part in id_parts(traces.facts)]
    return [*group_filters(traces.scopes, fact_fields), *_from_sources(traces), *single]


def _of_facts(traces: Traces) -> list[Filter]:
    """Return filters for versions and audit entries of single facts."""
    parts = id_parts(traces.facts)
    return [{"target_type": "fact", "target_id": {"$in": part}} for part in parts]


def _trace_reflections(traces: Traces) -> list[Filter]:
    return [*group_filters(traces.scopes, owner_fields), *_from_sources(traces)]


def _trace_held(traces: Traces) -> list[Filter]:
    single = [{"_id": {"$in": part}} for part in id_parts(traces.held)]
    return [*_trace_reflections(traces), *single]


def _trace_texts(traces: Traces) -> list[Filter]:
    return build_consolidated_filters(traces.scopes)


def _trace_policies(traces: Traces) -> list[Filter]:
    parts = id_parts(str(policy_id(scope)) for scope in traces.scopes)
    return [{"_id": {"$in": part}} for part in parts]


def _trace_history(traces: Traces) -> list[Filter]:
    return [*key_filters(traces.scopes), *_of_facts(traces)]


def _trace_audit(traces: Traces) -> list[Filter]:
    """Return filters for audit entries; those of accounts have no scope but contain names."""
    accounts = id_parts(whole_accounts(traces))
    named = ({"target_id": {"$in": part}} for part in accounts)
    return [*key_filters(traces.scopes), *named, *_of_facts(traces)]


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


def _read_fact(document: Document) -> Fact:
    return _owned(codec.fact_from(document, with_vector=True))


def _read_reflection(document: Document) -> Reflection:
    return _owned(codec.reflection_from(document))


def _read_held(document: Document) -> Held:
    return _owned(codec.held_from(document))


def _read_text(document: Document) -> Consolidation:
    return _owned(codec.consolidation_from(document))


def _read_policy(document: Document) -> Policy | None:
    policy = codec.policy_from(document)
    return None if policy is None else _owned(policy)


def _read_version(document: Document) -> StoredVersion:
    return stored_version(history_from(document))


_BY_TRACES = (frozenset({"$and"}),)
_BY_AGENT = (frozenset({"agent_id"}),)
_BY_ID = (frozenset({"_id"}),)
_BY_SESSION = (frozenset({"session_id"}),)
_BY_SCOPE_KEY = (frozenset({"scope_key"}), frozenset({"target_id"}))

SOURCES: dict[RecordKind, Source] = {
    RecordKind.AGENT: Source(lambda db: db.users, _agents, (frozenset({"type"}),), read_agent),
    RecordKind.USER: Source(lambda db: db.users, _users, _BY_ID, host_codec.stored_user_from),
    RecordKind.SESSION: Source(
        lambda db: db.sessions,
        _sessions,
        (frozenset({"agents"}), frozenset({"users"})),
        read_session,
    ),
    # Messages are found through their sessions.
    RecordKind.MESSAGE: Source(lambda db: db.messages, lambda wanted: [{}], (), _read_message),
    RecordKind.POLICY: Source(
        lambda db: db.policies,
        _with_traces(_trace_policies),
        (*_BY_AGENT, *_BY_ID, *_BY_TRACES),
        _read_policy,
        lambda policy: owner_fields(policy.home),
    ),
    RecordKind.CONSOLIDATION: Source(
        lambda db: db.consolidated,
        _with_traces(_trace_texts),
        (frozenset({"scope", "agent_id"}), *_BY_TRACES),
        _read_text,
        lambda text: build_consolidated_key(text.home),
    ),
    RecordKind.REFLECTION: Source(
        lambda db: db.reflections,
        _with_traces(_trace_reflections),
        (*_BY_AGENT, *_BY_SESSION, *_BY_TRACES),
        _read_reflection,
        lambda reflection: owner_fields(reflection.home),
    ),
    RecordKind.FACT: Source(
        lambda db: db.facts,
        _with_traces(_trace_facts),
        (*_BY_AGENT, *_BY_SESSION, *_BY_ID, *_BY_TRACES),
        _read_fact,
        lambda fact: fact_fields(fact.home),
    ),
    RecordKind.HELD: Source(
        lambda db: db.held,
        _with_traces(_trace_held),
        (*_BY_AGENT, *_BY_SESSION, *_BY_ID, *_BY_TRACES),
        _read_held,
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
        (*_BY_AGENT, *_BY_SCOPE_KEY, *_BY_TRACES),
        stored_entry_from,
    ),
    RecordKind.HISTORY: Source(
        lambda db: db.history,
        _with_traces(_trace_history, _of_history),
        (*_BY_SCOPE_KEY, *_BY_TRACES),
        _read_version,
    ),
}


def narrow(kind: RecordKind, wanted: Selection) -> list[Filter]:
    """Return filters for the documents of a kind in a selection."""
    return SOURCES[kind].narrow(wanted)


def is_anchored(kind: RecordKind, filters: Sequence[Filter]) -> bool:
    """Return whether an index serves the filters."""
    anchors = SOURCES[kind].anchors
    return all(any(anchor <= each.keys() for anchor in anchors) for each in filters)
