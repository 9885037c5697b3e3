"""Describe log entries, and the origin of facts and texts, for any screen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.json import encode

from edenmem.engine.history.reader import FactWhy, Source, TextWhy
from edenmem.models.changes import AuditEntry, HistoryEntry
from edenmem.models.formation import Decision, FormationStatus
from edenmem.models.memory import Fact, Reflection, describe_doubt
from edenmem.text import ago, iso, many, one_line

#: Identity, location and bookkeeping of a document; not shown in diffs.
_SILENT = frozenset(
    {
        *("id", "hash", "version", "updated_at", "formed_at", "createdAt", "embedding_model"),
        *("said_at", "edited_at", "emptied", "receipt"),
        *("access_count", "last_accessed_at", "previous_content", "source_message_ids"),
        *("formation_id", "scope", "agent_id", "user_id", "group_id", "shard", "session_id"),
        *("consolidated_into", "absorbed_at", "absorbed_ids", "last_consolidated_at"),
        *("unpropagated_versions", "fixed", "propagated_from", "owner", "eden_user_id"),
    }
)
_TEXTS = ("content", "consolidated_content")


class Section(NamedTuple):
    """A title with paragraphs, each with the prefix of its first line."""

    title: str
    paragraphs: tuple[tuple[str, str], ...]


# -- the log -------------------------------------------------------------------------------------


#: First word of an undoing action → that of the undone one, if it differs.
_UNDONE = {"add": "remove", "remove": "add", "revert": "write"}

#: First word of an action → the command.
_COMMANDS = {"revise": "edit", "remove": "delete"}


def action_words(entry: AuditEntry) -> str:
    """Return the action of an entry: "edit fact"; of an undo, what was undone."""
    words = entry.action.replace("_", " ").replace("consolidation", "text")
    first, _, rest = words.partition(" ")
    if entry.undoes:
        first = _UNDONE.get(first, first)
    shown = "create" if words == "add token" else _COMMANDS.get(first, first)
    return f"{'undo ' if entry.undoes else ''}{shown} {rest}".rstrip()


def summarize_entry(entry: AuditEntry) -> str:
    """Summarize an entry in one line: the text, or the changed fields."""
    before, after = entry.before or {}, entry.after or {}
    for name in _TEXTS:
        old, new = before.get(name), after.get(name)
        if new or old:
            return str(new if new is not None and new != "" else old)
    changed = [
        f"{name}: {_value(name, after.get(name))}"
        for name in after
        if name not in _SILENT and after.get(name) != before.get(name) and after.get(name)
    ]
    return ", ".join(changed) or str((after or before).get("username") or "")


def document_lines(document: Mapping[str, Any] | None) -> list[str]:
    """Return the text and the set fields of a document, as lines for a diff."""
    lines: list[str] = []
    for name, value in (document or {}).items():
        if name in _TEXTS:
            lines.extend(str(value).splitlines())
        elif name == "word_limit" and "consolidated_content" in (document or {}):
            continue
        elif name not in _SILENT and value not in (None, False, "", [], ()):
            label = "pending" if name == "unabsorbed_ids" else name.replace("_", " ")
            lines.append(f"{label}: {one_line(_value(name, value))}")
    return lines


def _value(name: str, value: Any) -> str:
    if name == "unabsorbed_ids":
        return str(len(value or ()))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):  # counts
        return ", ".join(f"{kind} {number}" for kind, number in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return str(value)


# -- facts and reflections -----------------------------------------------------------------------


def memory_fields(item: Fact | Reflection) -> list[tuple[str, object]]:
    """Return the labeled fields of a fact or reflection, besides its ID, scope and text."""
    common: list[tuple[str, object]] = [
        ("said", item.said_at),
        ("formed", item.formed_at),
        ("updated", item.updated_at),
        ("version", item.version),
        ("private", item.private),
    ]
    sources = [("session", item.session_id), ("messages", item.source_message_ids)]
    if isinstance(item, Reflection):
        return [
            *common,
            *sources,
            ("state", "absorbed" if item.absorbed else "pending"),
            ("absorbed", item.absorbed_at),
            ("derived from", item.propagated_from),
        ]
    return [
        *common,
        ("quote", item.quote or None),
        ("unconfirmed", item.unconfirmed or None),
        ("key", item.key),
        ("tags", item.tags),
        ("metadata", [f"{name}={text}" for name, text in item.metadata.items()]),
        ("expires", item.expires_at),
        ("value", encode(item.value).decode() if item.value is not None else None),
        *sources,
        ("retrieved", many(item.access_count, "time") if item.access_count else None),
        ("last retrieved", item.last_accessed_at),
        ("vector model", item.embedding_model or "none yet"),
        ("before", item.previous_content),
    ]


def describe_rejection(decision: Decision) -> str:
    """Describe a rejected item with rule and reason; the text of a secret is not kept."""
    rule = f" by {decision.rule}" if decision.rule else ""
    return f"rejected{rule}: {decision.content or 'a text'} ({decision.explanation})"


def fact_fields(why: FactWhy, scope_label: str) -> list[tuple[str, object]]:
    """Return the labeled fields of a fact; ``scope_label`` is the label of its scope."""
    fact, doubt = why.fact, describe_doubt(why.fact.unconfirmed)
    return [
        ("fact", fact.id),
        ("content", fact.content),
        ("quote", f"“{fact.quote}”" if fact.quote else ""),
        ("state", "; ".join(filter(None, ("removed" if why.removed else "", doubt)))),
        ("where", scope_label),
        ("version", fact.version),
        ("session", _session(why.source)),
        ("from", "a text given to 'edenmem remember'" if why.is_note else ""),
        ("said", f"{iso(fact.said_at)} ({ago(fact.said_at)})" if fact.said_at else ""),
        ("formed", f"{iso(fact.formed_at)} ({ago(fact.formed_at)})"),
        ("formation", _formation(why)),
        ("models", ", ".join(dict.fromkeys(call.model for call in why.models))),
    ]


def senders_of(why: FactWhy) -> list[str]:
    """Return the authors of the source messages of a fact."""
    sources = (why.source, *why.other_sources)
    return [message.sender for each in sources for message in each.messages if message.sender]


def fact_sections(why: FactWhy, names: Mapping[str, str]) -> Iterator[Section]:
    """Describe the sources, decisions and changes of a fact.

    Args:
        why: The origin of the fact.
        names: Names of the accounts of `senders_of`, by ID.
    """
    yield from source_sections("source messages", why.source, names)
    for source in why.other_sources:
        title = f"source messages in session {_session(source)}"
        yield from source_sections(title, source, names)
    if why.decisions:
        yield _section("decisions", map(_describe_decision, why.decisions))
    if why.rejected:
        yield _section("rejected in the same formation", map(describe_rejection, why.rejected))
    if why.replaced:
        yield _section("earlier texts", why.replaced)
    if why.changes:
        lines = (
            f"{ago(entry.at)}, {entry.actor.name}: {action_words(entry)} ({entry.id})"
            + (f": {entry.reason}" if entry.reason else "")
            for entry in why.changes
        )
        yield _section("changes", lines)


def source_sections(title: str, source: Source, names: Mapping[str, str]) -> Iterator[Section]:
    """Quote the source messages of a memory, if any."""
    lines = []
    for message in source.messages:
        who = message.name or names.get(message.sender or "", "") or message.role
        when = iso(message.created_at).replace("T", " ").removesuffix("Z")
        lines.append(f"{one_line(f'{when} {who}:')} {message.content}")
    if missing := len(source.missing_message_ids):
        lines.append("1 deleted message" if missing == 1 else f"{missing} deleted messages")
    if lines:
        yield _section(title, lines)


def _section(title: str, lines: Iterable[str]) -> Section:
    return Section(title, tuple(("  ", line) for line in lines))


def _describe_decision(decision: Decision) -> str:
    about = f" {decision.target_id}" if decision.target_id else ""
    doubt = describe_doubt(decision.unconfirmed)
    notes = "; ".join(filter(None, (decision.explanation, doubt)))
    reason = f": {notes}" if notes else ""
    return f"{decision.action}{about}{reason}"


def _formation(why: FactWhy) -> str | None:
    formation = why.formation
    if formation is not None and formation.status is FormationStatus.SUPERSEDED:
        at = f"{iso(formation.updated_at)} ({ago(formation.updated_at)})"
        return f"{formation.id}, superseded {at}: its messages were formed again"
    return why.fact.formation_id


def _session(source: Source) -> str:
    if source.session is None:
        return f"{source.session_id} (deleted)" if source.session_id else ""
    label = source.session.label
    return label if label == source.session.id else f"{label} ({source.session.id})"


# -- texts ---------------------------------------------------------------------------------------


def text_sections(found: Sequence[TextWhy]) -> Iterator[Section]:
    """Describe the origin of each version of a text."""
    for why in found:
        paragraphs: list[tuple[str, str]] = []
        if why.change is not None and why.change.reason:
            paragraphs.append(("  ", why.change.reason))
        if why.taken_back_by:
            paragraphs.append(("  ", f"undone by {why.taken_back_by}"))
        for part in why.ingredients:
            if part.reflection is None:
                paragraphs.append(("  - ", f"{part.reflection_id}, removed since"))
                continue
            paragraphs.append(("  - ", part.reflection.content))
            paragraphs.append(("    ", _origin(part.source, part.reflection)))
        yield Section(version_title(why.version), tuple(paragraphs))


def version_title(version: HistoryEntry) -> str:
    """Describe a version: number, action, age and author."""
    what = version.action if version.content else "undone: no text"
    parts = [f"version {version.version}", what, ago(version.at)]
    return ", ".join([*parts, f"by {version.actor}"] if version.actor else parts)


def _origin(source: Source, reflection: Reflection) -> str:
    parts = [reflection.id]
    if source.session_id:
        parts.append(f"session {_session(source)}")
    if source.messages:
        count = len(source.messages)
        parts.append(many(count, "message"))
    if reflection.propagated_from:
        parts.append(f"propagated from {', '.join(reflection.propagated_from)}")
    return ", ".join(parts)
