"""Walk all stored texts, and trace facts through their past, to search for a subject.

Read-only; all functions block.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from edenmem.models.backup import Document, RecordKind, Selection, StoredVersion
from edenmem.models.changes import AuditEntry, merged_into
from edenmem.models.forgetting import (
    FORGOTTEN,
    Passage,
    Traces,
    list_doubts,
    list_field_texts,
    list_texts,
    origin_in,
)
from edenmem.models.formation import Formation
from edenmem.models.memory import Consolidation, Fact, Policy, Reflection
from edenmem.models.scope import Scope
from edenmem.store.protocol.store import Store

#: Kinds with texts: memory first, then records of it.
_WITH_TEXTS = (
    RecordKind.FACT,
    RecordKind.REFLECTION,
    RecordKind.CONSOLIDATION,
    RecordKind.POLICY,
    RecordKind.HISTORY,
    RecordKind.AUDIT,
    RecordKind.FORMATION,
)


def walk_passages(store: Store) -> Iterator[Passage]:
    """Walk all stored texts, except conversations, names and personas of the host.

    An unreadable document is a passage with all its texts and IDs.
    """
    for document in store.walk.documents(_WITH_TEXTS):
        if not document.fault:
            yield from _passages(document)
        elif document.raw:
            yield _passage(document, document.raw, kind="unreadable")
    for context in store.contexts.cached_texts():
        # As other texts have it: "&amp;" would be a word between the words of a name.
        yield msgspec.structs.replace(context, text=html.unescape(context.text))


def trace_reflections(store: Store, traces: Traces) -> Iterator[Reflection]:
    """Walk the readable reflections among the traces, including absorbed ones."""
    for document in store.walk.documents((RecordKind.REFLECTION,), Selection(traces=traces)):
        if isinstance(document.record, Reflection):
            yield document.record


def _passages(document: Document) -> Iterator[Passage]:
    """Yield the texts of a readable document."""
    match record := document.record:
        case Fact():
            fields = "\n".join(list_field_texts(msgspec.structs.asdict(record.fields)))
            yield from _texts(document, record, record.content, fields)
            if record.previous_content:
                yield _passage(document, record.previous_content, record, kind="previous")
            yield from _doubts(document, record)
        case Reflection():
            yield from _texts(document, record, record.content)
            yield from _doubts(document, record)
        case Consolidation():
            content = record.consolidated_content
            unwritten = [each.text for each in record.fixed if each.text not in content]
            yield from _texts(document, record, content, *unwritten)
        case Policy():
            instructions = (record.memory_instructions, record.consolidation_instructions)
            yield from _texts(document, record, *instructions)
        case Formation():
            yield from _texts(document, None, _wording(record))
        case StoredVersion(content=content, snapshot=snapshot):
            own = msgspec.structs.asdict(record.fields)
            gone = None if snapshot is None else msgspec.structs.asdict(snapshot)
            text = "\n".join(
                (content, *list_texts(gone), *list_doubts(gone), *list_field_texts(own, gone))
            )
            if text and text != FORGOTTEN:
                yield _of_entry(document, record, text, gone)
        case AuditEntry(before=before, after=after, reason=reason):
            documents = (before, after)
            texts = [*list_texts(*documents), *list_doubts(*documents), reason]
            texts += list_field_texts(*documents)
            if text := "\n".join(texts).strip():
                yield _of_entry(document, record, text, before, after)


def _texts(
    document: Document, of: Fact | Reflection | Consolidation | Policy | None, *texts: str | None
) -> Iterator[Passage]:
    return (_passage(document, text, of) for text in texts if text)


def _doubts(document: Document, memory: Fact | Reflection) -> Iterator[Passage]:
    if text := "\n".join(list_doubts(msgspec.structs.asdict(memory))):
        yield _passage(document, text, memory, kind="doubt")


def _passage(
    document: Document,
    text: str,
    of: Fact | Reflection | Consolidation | Policy | None = None,
    *,
    kind: str = "",
) -> Passage:
    source = of if isinstance(of, Fact | Reflection) else None
    return Passage(
        kind=kind or document.kind.value,
        id=document.id,
        target_type=document.kind.value,
        target_id=document.id,
        text=text,
        scope=of.home if of else None,
        session_id=source.session_id if source else None,
        source_message_ids=source.source_message_ids if source else (),
        related_users=source.related_users if source else (),
    )


def _of_entry(
    document: Document,
    entry: StoredVersion | AuditEntry,
    text: str,
    *documents: dict[str, Any] | None,
) -> Passage:
    origin = origin_in(*documents)
    return Passage(
        kind=document.kind.value,
        id=document.id,
        target_type=entry.target_type,
        target_id=entry.target_id,
        text=text,
        scope=entry.scope,
        session_id=origin.session_id,
        source_message_ids=origin.source_message_ids,
        related_users=origin.related_users,
    )


def _wording(formation: Formation) -> str:
    """Return all texts of decisions, an error and recorded changes, one per line."""
    texts = [
        text
        for each in formation.decisions
        for text in (each.content, each.explanation, each.unconfirmed)
    ]
    for change in formation.changes.changes if formation.changes is not None else ():
        texts.append(getattr(change, "content", ""))
        texts += list_doubts(msgspec.structs.asdict(change))
        if (fields := getattr(change, "fields", None)) is not None:
            texts += list_field_texts(msgspec.to_builtins(fields))
        for name in ("fact", "or_add", "reflection", "held"):
            added = getattr(change, name, None)
            told = msgspec.to_builtins(added)
            texts += [*list_texts(told), *list_doubts(told)]
    return "\n".join(text for text in (*texts, formation.error or "") if text)


def trace_facts(store: Store, fact_ids: Iterable[str]) -> tuple[Traces, tuple[str, ...]]:
    """Return what facts and their past reveal, and the texts of all their versions.

    Read are documents, history and log, also of the facts that were merged into them. Facts without
    recorded source messages count as formed from all messages of their formation.

    Raises:
        DocumentDamaged: an entry of the log is unreadable.
    """
    texts: dict[str, None] = {}
    messages: dict[str, None] = {}
    sessions: dict[str, None] = {}
    homes: dict[Scope, None] = {}
    agents: dict[str, None] = {}
    merges: dict[Scope, dict[str, list[str]]] = {}  # each scope is read once, for all facts
    facts = dict.fromkeys(fact_ids)
    waiting = list(facts)
    while waiting:
        fact_id = waiting.pop()
        fact = store.memory.fact(fact_id)
        versions = store.history.versions("fact", fact_id)
        entries = list(store.log.audit(target_id=fact_id))
        documents = [document for entry in entries for document in (entry.before, entry.after)]
        known = (fact, *(version.snapshot for version in versions))
        documents += [msgspec.structs.asdict(each) for each in known if each is not None]
        texts |= dict.fromkeys(list_texts(*documents))
        texts |= dict.fromkeys(version.content for version in versions)
        origins = [origin_in(document) for document in documents]
        found = {id for origin in origins for id in origin.source_message_ids}
        messages |= dict.fromkeys(sorted(found) or _formed_from(store, known))
        sessions |= {origin.session_id: None for origin in origins if origin.session_id}
        scopes = [*(version.scope for version in versions), *(entry.scope for entry in entries)]
        own = {scope: None for scope in scopes if scope is not None}
        homes |= own
        for scope in own:
            if scope not in merges:
                merges[scope] = _list_merges(store, scope)
            merged = [
                id
                for id in merges[scope].get(fact_id, ())
                if id not in facts and store.memory.fact(id) is None  # else it was restored
            ]
            facts |= dict.fromkeys(merged)
            waiting += dict.fromkeys(merged)
        agents |= {entry.agent_id: None for entry in entries if entry.agent_id}
    agents |= {scope.agent_id: None for scope in homes}
    # A fact that was revised or merged has sources in further sessions.
    sources = store.host.messages_by_ids(tuple(messages))
    sessions |= dict.fromkeys(message.session_id for message in sources)
    traces = Traces(
        facts=tuple(facts),
        messages=tuple(messages),
        shared=tuple(sessions),
        agents=tuple(sorted(agents)),
    )
    return traces, tuple(text for text in texts if text.strip() and text != FORGOTTEN)


def _list_merges(store: Store, scope: Scope) -> dict[str, list[str]]:
    """Return the facts of a scope that were merged into another one, by that fact."""
    merges: dict[str, list[str]] = {}
    for entry in store.log.audit(scope=scope, actions=("remove_fact",)):
        if kept := merged_into(entry.reason):
            merges.setdefault(kept, []).append(entry.target_id)
    return merges


def _formed_from(store: Store, facts: Iterable[Fact | None]) -> tuple[str, ...]:
    for fact in facts:
        if fact is not None and fact.formation_id:
            formation = store.formations.formation(fact.formation_id)
            if formation is not None:
                return (*formation.message_ids, *formation.superseded_message_ids)
    return ()
