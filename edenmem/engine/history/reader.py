"""Read versions, the log and the origin of memories: messages, formations, decisions, changes.

Read-only, without model calls; all functions block. Deleted objects (a session, a reflection) are
reported by ID.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from edenmem.engine.scopes.references import load_labels, unknown_version
from edenmem.errors import NotFoundError
from edenmem.models.changes import AuditEntry, HistoryEntry
from edenmem.models.formation import CallUsage, Decision, Formation
from edenmem.models.host import Message, Session
from edenmem.models.memory import Fact, Reflection
from edenmem.models.scope import Scope
from edenmem.store.protocol.store import Store

#: Maximum number of log entries to read per target.
_ENTRIES = 1000


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """The session and messages that a memory came from."""

    session_id: str | None
    session: Session | None
    messages: tuple[Message, ...]
    missing_message_ids: tuple[str, ...] = ()


class FactWhy(msgspec.Struct, frozen=True, kw_only=True):
    """The origin of a current or removed fact.

    ``decisions`` are decisions of its formation about this fact, ``rejected`` the items that this
    formation rejected. ``other_sources`` are messages of other sessions. ``is_note`` marks facts
    from ``edenmem remember``. ``models`` are the calls of its formation, ``changes`` the audit
    entries, oldest first, and ``replaced`` earlier texts, oldest first.
    """

    fact: Fact
    removed: bool
    source: Source
    formation: Formation | None
    decisions: tuple[Decision, ...]
    models: tuple[CallUsage, ...]
    changes: tuple[AuditEntry, ...]
    replaced: tuple[str, ...]
    rejected: tuple[Decision, ...] = ()
    other_sources: tuple[Source, ...] = ()
    is_note: bool = False


class Ingredient(msgspec.Struct, frozen=True, kw_only=True):
    """A reflection absorbed by a text; None if removed since."""

    reflection_id: str
    reflection: Reflection | None
    source: Source


class TextWhy(msgspec.Struct, frozen=True, kw_only=True):
    """The origin of one version of a scope's text.

    ``taken_back_by`` is the ID of the entry that undid this version, if any.
    """

    scope: Scope
    version: HistoryEntry
    change: AuditEntry | None
    ingredients: tuple[Ingredient, ...]
    taken_back_by: str | None = None


def fact_why(store: Store, fact_id: str) -> FactWhy:
    """Return the origin of a current or removed fact.

    Raises:
        NotFoundError: the fact never existed.
    """
    versions = store.history.versions("fact", fact_id)
    entries = list(store.log.audit(target_id=fact_id, limit=_ENTRIES))[::-1]
    current = store.memory.fact(fact_id)
    fact = current or _last_known(versions, entries)
    if fact is None:
        raise NotFoundError(f"fact not found, current or removed: {fact_id}")
    formation = store.formations.formation(fact.formation_id) if fact.formation_id else None
    contents = {entry.content for entry in versions} | {fact.content}
    made = formation.decisions if formation else ()
    decisions = tuple(
        decision
        for decision in made
        if decision.target_id == fact_id or decision.content in contents
    )
    tombstones = [entry for entry in versions if entry.action == "delete"]
    replaced = [v.content for v in versions if v not in tombstones and v.content != fact.content]
    source, *others = _sources_of(store, fact)
    return FactWhy(
        fact=fact,
        removed=current is None,
        source=source,
        formation=formation,
        decisions=decisions,
        models=formation.usage if formation else (),
        changes=tuple(entries),
        replaced=tuple(dict.fromkeys(replaced)),
        rejected=tuple(each for each in made if each.action == "REJECTED"),
        other_sources=tuple(others),
        is_note=bool(entries) and is_note(entries[0]),
    )


def is_note(entry: AuditEntry) -> bool:
    """Check whether ``edenmem remember`` made the change."""
    return entry.action == "add_fact" and entry.actor.command.split()[1:2] == ["remember"]


def _sources_of(store: Store, fact: Fact) -> list[Source]:
    """Return the source of the fact's session, then of other sessions.

    Deleted messages count as missing from the fact's session, since their session is unknown.
    """
    own = source_of(store, fact.session_id, fact.source_message_ids)
    elsewhere: dict[str, list[Message]] = {}
    for message in store.host.messages_by_ids(own.missing_message_ids):
        elsewhere.setdefault(message.session_id, []).append(message)
    found = {message.id for messages in elsewhere.values() for message in messages}
    missing = tuple(each for each in own.missing_message_ids if each not in found)
    others = (
        Source(
            session_id=session_id,
            session=store.host.session(session_id),
            messages=tuple(messages),
        )
        for session_id, messages in elsewhere.items()
    )
    return [msgspec.structs.replace(own, missing_message_ids=missing), *others]


def _last_known(versions: Sequence[HistoryEntry], entries: Sequence[AuditEntry]) -> Fact | None:
    for version in reversed(versions):
        if version.snapshot is not None:
            return msgspec.structs.replace(version.snapshot, embedding=None)
    for entry in reversed(entries):
        document = entry.after or entry.before
        if document is not None:
            return msgspec.convert(document, Fact)
    return None


def text_why(store: Store, scope: Scope, version: int | None = None) -> list[TextWhy]:
    """Return the origin of each version of a scope's text, or of one, newest first.

    Raises:
        NotFoundError: the scope has no text, or not this version.
    """
    from edenmem.memory.inverse import undo_id

    history = store.history.versions("consolidation", "", scope=scope)
    if not history:
        raise NotFoundError("the scope has no text yet")
    chosen = [each for each in history if version in (None, each.version)]
    if not chosen:
        raise unknown_version("text", version or 0, (each.version for each in history))
    ids = [each.change_id for each in chosen if each.change_id]
    entries = store.log.audit_entries([*ids, *map(undo_id, ids)])
    found = store.memory.reflections_by_ids([r for each in chosen for r in each.absorbed_ids])
    return [
        TextWhy(
            scope=scope,
            version=each,
            change=entries.get(each.change_id or ""),
            ingredients=tuple(
                Ingredient(
                    reflection_id=id,
                    reflection=(one := found.get(id)),
                    source=source_of(
                        store,
                        one.session_id if one else None,
                        one.source_message_ids if one else (),
                    ),
                )
                for id in each.absorbed_ids
            ),
            taken_back_by=undo.id if (undo := entries.get(undo_id(each.change_id or ""))) else None,
        )
        for each in reversed(chosen)
    ]


def source_of(store: Store, session_id: str | None, message_ids: Sequence[str]) -> Source:
    """Return the session and messages that a memory came from."""
    session = store.host.session(session_id) if session_id else None
    messages = tuple(store.host.messages(session_id, ids=message_ids)) if session_id else ()
    found = {message.id for message in messages}
    return Source(
        session_id=session_id,
        session=session,
        messages=messages,
        missing_message_ids=tuple(each for each in message_ids if each not in found),
    )


def existing_entry(store: Store, entry_id: str) -> AuditEntry:
    """Return the log entry with this ID.

    Raises:
        NotFoundError: the entry does not exist.
    """
    entry = store.log.audit_entry(entry_id)
    if entry is None:
        raise NotFoundError(f"log entry not found: {entry_id}", hint="list entries: edenmem log")
    return entry


class TextChange(NamedTuple):
    """Two versions of a text."""

    old_version: int
    new_version: int
    before: str
    after: str


class HistoryReader:
    """Read earlier states of memory, and their changes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.entries = store.log.audit
        self.entry = partial(existing_entry, store)
        self.fact_versions = partial(store.history.versions, "fact")
        self.fact_why = partial(fact_why, store)
        self.text_why = partial(text_why, store)
        self.source_of = partial(source_of, store)

    def text_versions(self, scope: Scope) -> list[HistoryEntry]:
        """Return all versions of a scope's text, oldest first.

        Raises:
            NotFoundError: the scope has no text yet.
        """
        versions = self._store.history.versions("consolidation", "", scope=scope)
        if not versions:
            label = load_labels(self._store, [scope]).full(scope)
            raise NotFoundError(f"{label} has no text yet")
        return versions

    def compare_texts(
        self, scope: Scope, *, old: int | None = None, new: int | None = None
    ) -> TextChange:
        """Return two versions of a scope's text (default: the latest two).

        Raises:
            NotFoundError: the scope has no text yet, or not this version.
        """
        contents = {entry.version: entry.content for entry in self.text_versions(scope)} | {0: ""}
        after = max(contents) if new is None else new
        before = max(v for v in contents if v < after) if old is None and after > 0 else old or 0
        for version in (before, after):
            if version not in contents:
                raise unknown_version("text", version, contents.keys() - {0})
        return TextChange(before, after, contents[before], contents[after])

    def undone_by(self, entry: AuditEntry) -> str | None:
        """Return the ID of the entry that undid this one."""
        from edenmem.memory.inverse import undo_id

        undone = self._store.log.audit_entry(undo_id(entry.id))
        return undone.id if undone else None
