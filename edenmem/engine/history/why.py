"""Where a memory comes from: what was said, what was made of it and by whom, and what was decided.

Everything here is read, nothing is asked of a model. What is not there any more (a session that was
deleted, a reflection that was removed) is left out and can be seen to be missing by its id.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from edenmem.errors import NotFoundError
from edenmem.models.changes import AuditEntry, HistoryEntry
from edenmem.models.formation import CallUsage, Decision, Formation
from edenmem.models.host import Message, Session
from edenmem.models.memory import Fact, Reflection
from edenmem.models.scope import Scope
from edenmem.store.protocol.store import Store

#: Entries of one thing that are looked through.
_ENTRIES = 1000


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """What was said: the session, and those of its messages that a memory names."""

    session_id: str | None
    session: Session | None
    messages: tuple[Message, ...]
    missing_message_ids: tuple[str, ...] = ()


class LaterFormation(msgspec.Struct, frozen=True, kw_only=True):
    """A formation that met a fact which was there already, and what it decided about it."""

    formation: Formation
    decisions: tuple[Decision, ...]


class FactWhy(msgspec.Struct, frozen=True, kw_only=True):
    """Why there is, or was, a fact.

    ``decisions`` are those of its formation about it: by which ids they name, or its words;
    ``rejected`` are what the same formation did not keep.
    ``other_sources`` are what was said in other sessions than the fact's own, ``later_formations``
    those that revised it or met it again, oldest first. ``is_note``: it came from a text that was
    given to ``edenmem remember``.
    ``models`` are the calls of its formation. ``changes`` are the audit entries, oldest first,
    with their reasons; ``replaced`` what it said before, oldest first.
    """

    fact: Fact
    removed: bool
    source: Source
    formation: Formation | None
    decisions: tuple[Decision, ...]
    models: tuple[CallUsage, ...]
    changes: tuple[AuditEntry, ...]
    versions: tuple[HistoryEntry, ...]
    replaced: tuple[str, ...]
    rejected: tuple[Decision, ...] = ()
    other_sources: tuple[Source, ...] = ()
    later_formations: tuple[LaterFormation, ...] = ()
    is_note: bool = False


class Ingredient(msgspec.Struct, frozen=True, kw_only=True):
    """A reflection that went into a text; None if it was removed since."""

    reflection_id: str
    reflection: Reflection | None
    source: Source


class TextWhy(msgspec.Struct, frozen=True, kw_only=True):
    """What went into one version of a scope's text, and who or which model wrote it.

    ``taken_back_by`` is the entry by which this version was undone, if it was.
    """

    scope: Scope
    version: HistoryEntry
    change: AuditEntry | None
    ingredients: tuple[Ingredient, ...]
    taken_back_by: str | None = None


def fact_why(store: Store, fact_id: str) -> FactWhy:
    """Where a fact comes from, also one that was removed.

    Raises:
        NotFoundError: there never was such a fact.
    """
    versions = store.history.versions("fact", fact_id)
    entries = list(store.log.audit(target_id=fact_id, limit=_ENTRIES))[::-1]
    current = store.memory.fact(fact_id)
    fact = current or _last_known(versions, entries)
    if fact is None:
        raise NotFoundError(f"there is no fact {fact_id}, and none was removed")
    formation = store.formations.formation(fact.formation_id) if fact.formation_id else None
    said = {entry.content for entry in versions} | {fact.content}
    made = formation.decisions if formation else ()
    decisions = tuple(
        decision for decision in made if decision.target_id == fact_id or decision.content in said
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
        versions=tuple(versions),
        replaced=tuple(dict.fromkeys(replaced)),
        rejected=tuple(each for each in made if each.action == "REJECTED"),
        other_sources=tuple(others),
        later_formations=_later_formations(store, fact, [source, *others]),
        is_note=bool(entries) and is_note(entries[0]),
    )


def is_note(entry: AuditEntry) -> bool:
    """Whether the change came of a text that was given to ``edenmem remember``."""
    return entry.action == "add_fact" and entry.actor.command.split()[1:2] == ["remember"]


def _sources_of(store: Store, fact: Fact) -> list[Source]:
    """What was said in the fact's own session, then in each other one that revised it. What is
    not there any more counts for its own: nothing tells where it was said."""
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


def _later_formations(
    store: Store, fact: Fact, sources: Sequence[Source]
) -> tuple[LaterFormation, ...]:
    """The formations of the sources' sessions, but for the fact's own, that decided about it."""
    found: list[LaterFormation] = []
    for session_id in dict.fromkeys(each.session_id for each in sources if each.session_id):
        for formation in store.formations.list_formations(
            session_id=session_id, agent_id=fact.agent_id
        ):
            about = tuple(each for each in formation.decisions if each.target_id == fact.id)
            if about and formation.id != fact.formation_id:
                found.append(LaterFormation(formation=formation, decisions=about))
    return tuple(sorted(found, key=lambda each: each.formation.created_at))


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
    """What went into each version of a scope's text, or into one, newest first.

    Raises:
        NotFoundError: the scope has no text, or not that version.
    """
    from edenmem.memory.inverse import undo_id

    history = store.history.versions("consolidation", "", scope=scope)
    if not history:
        raise NotFoundError("the scope has no text yet")
    chosen = [each for each in history if version in (None, each.version)]
    if not chosen:
        there = ", ".join(str(each.version) for each in history)
        raise NotFoundError(f"there is no version {version}", hint=f"there are {there}")
    ids = [each.change_id for each in chosen if each.change_id]
    entries = store.log.audit_entries([*ids, *map(undo_id, ids)])
    found = store.memory.reflections_by_ids([r for each in chosen for r in each.absorbed_ids])
    return [
        TextWhy(
            scope=scope,
            version=each,
            change=entries.get(each.change_id or ""),
            ingredients=tuple(_ingredient(store, r, found.get(r)) for r in each.absorbed_ids),
            taken_back_by=undo.id if (undo := entries.get(undo_id(each.change_id or ""))) else None,
        )
        for each in reversed(chosen)
    ]


def _ingredient(store: Store, reflection_id: str, found: Reflection | None) -> Ingredient:
    session_id = found.session_id if found else None
    ids = found.source_message_ids if found else ()
    source = source_of(store, session_id, ids)
    return Ingredient(reflection_id=reflection_id, reflection=found, source=source)


def source_of(store: Store, session_id: str | None, message_ids: Sequence[str]) -> Source:
    """The session and messages that a memory was formed from."""
    session = store.host.session(session_id) if session_id else None
    messages = tuple(store.host.messages(session_id, ids=message_ids)) if session_id else ()
    there = {message.id for message in messages}
    return Source(
        session_id=session_id,
        session=session,
        messages=messages,
        missing_message_ids=tuple(each for each in message_ids if each not in there),
    )
