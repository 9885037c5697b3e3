"""What is made of walked documents: records of a backup, checks of `doctor`, and texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

import msgspec

from edenmem.errors import StoreError
from edenmem.models import integrity
from edenmem.models.backup import Document, Record, RecordKind, StoredVersion, Unreadable
from edenmem.models.changes import AuditEntry
from edenmem.models.forgetting import FORGOTTEN, Passage, list_texts, origin_in
from edenmem.models.formation import Formation
from edenmem.models.memory import Consolidation, Fact, Policy, Reflection
from edenmem.models.scope import Scope
from edenmem.store.common.formation_words import wording_of

#: The status of an audit entry whose change was made.
_DONE = "done"
#: Kinds that are only tried to be read.
_TRIED = (RecordKind.HISTORY, RecordKind.AUDIT)


def records_of_backup(
    documents: Iterable[Document],
) -> Iterator[tuple[RecordKind, Record | Unreadable]]:
    """The records as a backup holds them: without buffers, and without the names of models of
    vectors that are not there. Audit entries of changes that were not made are left out."""
    for document in documents:
        record = document.record
        if record is None:
            yield document.kind, Unreadable(id=document.id, reason=document.fault)
            continue
        if isinstance(record, Fact):
            if record.embedding is None and record.embedding_model is not None:
                record = msgspec.structs.replace(record, embedding_model=None)
        elif isinstance(record, Consolidation):
            updated_at = record.updated_at if record.version else None  # a buffer has no time
            record = msgspec.structs.replace(record, unabsorbed_ids=(), updated_at=updated_at)
        elif isinstance(record, AuditEntry) and record.status != _DONE:
            continue
        yield document.kind, record


def records_of_integrity(documents: Iterable[Document]) -> Iterator[integrity.Record]:
    """The documents as `doctor` looks at them."""
    for document in documents:
        value: Any = None if document.kind in _TRIED else document.record
        yield integrity.Record(
            kind=cast(integrity.RecordKind, document.kind.value),
            id=document.id,
            agent_id=document.agent_id,
            value=value,
            fault=document.fault,
            oddities=document.oddities,
        )


def demand_readable(documents: Iterable[Document]) -> Iterator[Document]:
    """The documents, as long as they can be read.

    Raises:
        StoreError: one cannot, so that nobody knows what is in it.
    """
    for document in documents:
        if document.record is None:
            raise StoreError(
                f"the {document.kind} {document.id} cannot be read: {document.fault}",
                hint="'edenmem doctor' lists what cannot be read",
            )
        yield document


def texts_of(documents: Iterable[Document]) -> Iterator[Passage]:
    """What facts, reflections and texts say now."""
    for document in documents:
        match document.record:
            case Fact() | Reflection() as found:
                yield from _passages(document, found.home, found.content)
            case Consolidation() as text:
                yield from _passages(document, text.home, text.consolidated_content)


def passages_of(documents: Iterable[Document]) -> Iterator[Passage]:
    """Every text of the documents, without those of the host."""
    for document in documents:
        read = _READERS.get(type(document.record))
        if read is not None:
            yield from read(document, document.record)


def _passages(
    document: Document,
    scope: Scope | None,
    *texts: str | None,
    place: str = "",
    of: Fact | Reflection | None = None,
) -> Iterator[Passage]:
    for text in texts:
        if text:
            yield Passage(
                place=place or document.kind.value,
                id=document.id,
                target_type=document.kind.value,
                target_id=document.id,
                text=text,
                scope=scope,
                session_id=of.session_id if of else None,
                source_message_ids=of.source_message_ids if of else (),
            )


def _of_fact(document: Document, fact: Fact) -> Iterator[Passage]:
    home = fact.home
    yield from _passages(document, home, fact.content, of=fact)
    yield from _passages(document, home, fact.previous_content, place="previous", of=fact)


def _of_reflection(document: Document, found: Reflection) -> Iterator[Passage]:
    return _passages(document, found.home, found.content, of=found)


def _of_text(document: Document, text: Consolidation) -> Iterator[Passage]:
    return _passages(document, text.home, text.consolidated_content)


def _of_policy(document: Document, policy: Policy) -> Iterator[Passage]:
    texts = (policy.memory_instructions, policy.consolidation_instructions)
    return _passages(document, policy.home, *texts)


def _of_formation(document: Document, formation: Formation) -> Iterator[Passage]:
    text = wording_of(formation.decisions, formation.error, formation.changes)
    return _passages(document, None, text)


def _of_version(document: Document, entry: StoredVersion) -> Iterator[Passage]:
    snapshot = None if entry.snapshot is None else msgspec.structs.asdict(entry.snapshot)
    text = "\n".join((entry.content, *list_texts(snapshot)))
    if text and text != FORGOTTEN:
        yield _of_entry(document, entry, text, snapshot)


def _of_audit(document: Document, entry: AuditEntry) -> Iterator[Passage]:
    text = "\n".join((*list_texts(entry.before, entry.after), entry.reason)).strip()
    if text:
        yield _of_entry(document, entry, text, entry.before, entry.after)


def _of_entry(
    document: Document,
    entry: StoredVersion | AuditEntry,
    text: str,
    *documents: dict[str, Any] | None,
) -> Passage:
    session_id, sources = origin_in(*documents)
    return Passage(
        place=document.kind.value,
        id=document.id,
        target_type=entry.target_type,
        target_id=entry.target_id,
        text=text,
        scope=entry.scope,
        session_id=session_id,
        source_message_ids=sources,
    )


_READERS: dict[type, Callable[[Document, Any], Iterator[Passage]]] = {
    Fact: _of_fact,
    Reflection: _of_reflection,
    Consolidation: _of_text,
    Policy: _of_policy,
    Formation: _of_formation,
    StoredVersion: _of_version,
    AuditEntry: _of_audit,
}

#: The kinds that hold such texts, in the order in which they are walked.
WITH_TEXTS = (
    RecordKind.POLICY,
    RecordKind.CONSOLIDATION,
    RecordKind.REFLECTION,
    RecordKind.FACT,
    RecordKind.FORMATION,
    RecordKind.AUDIT,
    RecordKind.HISTORY,
)
