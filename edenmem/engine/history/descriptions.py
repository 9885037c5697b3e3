"""What happened to memory, in words: an entry of the log, and where a fact or a text comes from.

Every screen shows these; how they are laid out is its own affair.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, get_args

from edenmem.engine.history.why import FactWhy, Source, TextWhy
from edenmem.models.changes import AuditEntry, Change, HistoryEntry
from edenmem.models.formation import Decision, FormationStatus
from edenmem.models.host import Message
from edenmem.models.memory import Reflection
from edenmem.text import ago, iso, one_line

#: What is said beside a weak fact.
WEAK = "weak: not all of it could be confirmed"

#: What a document is by, and where; a diff of it says nothing to a person.
_SILENT = frozenset(
    {
        *("id", "hash", "version", "updated_at", "formed_at", "createdAt", "embedding_model"),
        *("access_count", "last_accessed_at", "previous_content", "source_message_ids"),
        *("formation_id", "scope", "agent_id", "user_id", "group_id", "shard", "session_id"),
        *("consolidated_into", "absorbed_at", "absorbed_ids", "last_consolidated_at"),
        *("unpropagated_versions", "propagated_from", "owner", "eden_user_id"),
    }
)
_TEXTS = ("content", "consolidated_content")


class Section(NamedTuple):
    """A title, and below it paragraphs, each with what stands before its first line."""

    title: str
    paragraphs: tuple[tuple[str, str], ...]


# -- the log -------------------------------------------------------------------------------------


#: Kinds of change in the log: those of change sets, of tokens, and of forgetting.
ACTIONS = (
    *(str(change.__struct_config__.tag) for change in get_args(Change)),
    "add_token",
    "remove_token",
    "forget",
)


def action_words(entry: AuditEntry) -> str:
    """What was done: "revise fact"."""
    words = entry.action.replace("_", " ").replace("consolidation", "text")
    return f"undo: {words}" if entry.undoes else words


def summarise_entry(entry: AuditEntry) -> str:
    """What an entry is about, in one line: the text, or what was set."""
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
    """A document as lines to compare: its text, and what is set of the rest."""
    lines: list[str] = []
    for name, value in (document or {}).items():
        if name in _TEXTS:
            lines.extend(str(value).splitlines())
        elif name == "word_limit" and "consolidated_content" in (document or {}):
            continue
        elif name not in _SILENT and value not in (None, False, "", [], ()):
            label = "waiting" if name == "unabsorbed_ids" else name.replace("_", " ")
            lines.append(f"{label}: {one_line(_value(name, value))}")
    return lines


def _value(name: str, value: Any) -> str:
    if name == "unabsorbed_ids":
        return str(len(value or ()))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


# -- facts ---------------------------------------------------------------------------------------


def describe_rejection(decision: Decision) -> str:
    """What was rejected, by which rule, and why."""
    rule = f" by {decision.rule}" if decision.rule else ""
    return f"rejected{rule}: {decision.content} ({decision.reason})"


def fact_fields(why: FactWhy, place: str) -> list[tuple[str, object]]:
    """Name what is known of a fact; ``place`` is what its scope is called."""
    fact = why.fact
    return [
        ("fact", fact.id),
        ("says", fact.content),
        ("state", _state(why)),
        ("where", place),
        ("version", fact.version),
        ("session", _session(why.source)),
        ("from", "a text given to 'edenmem remember'" if why.is_note else ""),
        ("formed", f"{iso(fact.formed_at)} ({ago(fact.formed_at)})"),
        ("formation", _formation(why)),
        ("models", ", ".join(dict.fromkeys(call.model for call in why.models))),
    ]


def senders_of(why: FactWhy) -> list[str]:
    """List the accounts that said what a fact was made of."""
    sources = (why.source, *why.other_sources)
    return [message.sender for each in sources for message in each.messages if message.sender]


def fact_sections(why: FactWhy, names: Mapping[str, str]) -> Iterator[Section]:
    """Describe what was said, what was decided and why, and what became of the fact.

    Args:
        why: Where the fact comes from.
        names: The names of the accounts in `senders_of`, by ID.
    """
    yield from source_sections("what was said", why.source, names)
    for source in why.other_sources:
        title = f"what was said in session {_session(source)}"
        yield from source_sections(title, source, names)
    if why.decisions:
        yield _decisions("what was decided", why.decisions)
    for later in why.later_formations:
        title = f"what formation {later.formation.id} decided later"
        yield _decisions(title, later.decisions)
    if why.rejected:
        yield _section("what was rejected beside it", map(describe_rejection, why.rejected))
    if why.replaced:
        yield _section("it said before", why.replaced)
    if why.changes:
        yield _section("what happened to it", map(_describe_entry, why.changes))


def source_sections(title: str, source: Source, names: Mapping[str, str]) -> Iterator[Section]:
    """Quote the messages that a memory was formed from, if there were any."""
    lines = [f"{_speaker(message, names)} {message.content}" for message in source.messages]
    if missing := len(source.missing_message_ids):
        lines.append("1 message is gone" if missing == 1 else f"{missing} messages are gone")
    if lines:
        yield _section(title, lines)


def _section(title: str, lines: Iterable[str]) -> Section:
    return Section(title, tuple(("  ", line) for line in lines))


def _decisions(title: str, decisions: Sequence[Decision]) -> Section:
    return _section(title, map(_describe_decision, decisions))


def _describe_decision(decision: Decision) -> str:
    about = f" {decision.target_id}" if decision.target_id else ""
    told = "; ".join(filter(None, (decision.reason, WEAK if decision.weak else "")))
    reason = f": {told}" if told else ""
    return f"{decision.action}{about}{reason}"


def _describe_entry(entry: AuditEntry) -> str:
    told = f"{ago(entry.at)}, {entry.actor.name}: {action_words(entry)} ({entry.id})"
    return f"{told}: {entry.reason}" if entry.reason else told


def _state(why: FactWhy) -> str:
    return "; ".join(
        said for said, holds in (("removed", why.removed), (WEAK, why.fact.weak)) if holds
    )


def _formation(why: FactWhy) -> str | None:
    formation = why.formation
    if formation is not None and formation.status is FormationStatus.SUPERSEDED:
        at = f"{iso(formation.updated_at)} ({ago(formation.updated_at)})"
        return f"{formation.id}, superseded {at}: its messages were taken to be formed again"
    return why.fact.formation_id


def _speaker(message: Message, names: Mapping[str, str]) -> str:
    who = message.name or names.get(message.sender or "", "") or message.role
    when = iso(message.created_at).replace("T", " ").removesuffix("Z")
    return one_line(f"{when} {who}:")


def _session(source: Source) -> str:
    if source.session is None:
        return f"{source.session_id}, not there any more" if source.session_id else ""
    label = source.session.label
    return label if label == source.session.id else f"{label} ({source.session.id})"


# -- texts ---------------------------------------------------------------------------------------


def text_sections(found: Sequence[TextWhy]) -> Iterator[Section]:
    """Describe what went into each version of a text."""
    for why in found:
        paragraphs: list[tuple[str, str]] = []
        if why.change is not None and why.change.reason:
            paragraphs.append(("  ", why.change.reason))
        if why.taken_back_by:
            paragraphs.append(("  ", f"taken back by {why.taken_back_by}"))
        for part in why.ingredients:
            if part.reflection is None:
                paragraphs.append(("  - ", f"{part.reflection_id}, removed since"))
                continue
            paragraphs.append(("  - ", part.reflection.content))
            paragraphs.append(("    ", _origin(part.source, part.reflection)))
        yield Section(version_title(why.version), tuple(paragraphs))


def version_title(version: HistoryEntry) -> str:
    """Name a version, how it came to be, when, and who made it."""
    what = version.action if version.content else "taken back: no text"
    parts = [f"version {version.version}", what, ago(version.at)]
    return ", ".join([*parts, f"by {version.actor}"] if version.actor else parts)


def _origin(source: Source, reflection: Reflection) -> str:
    parts = [reflection.id]
    if source.session_id:
        parts.append(f"session {_session(source)}")
    if source.messages:
        count = len(source.messages)
        parts.append("1 message" if count == 1 else f"{count} messages")
    if reflection.propagated_from:
        parts.append(f"propagated from {', '.join(reflection.propagated_from)}")
    return ", ".join(parts)
