"""Text of rows and details, with styles and never as markup.

Stored text is untrusted and made printable first.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from textual.content import Content

from edenmem.engine.history.descriptions import (
    Section,
    action_words,
    document_lines,
    summarize_entry,
    version_title,
)
from edenmem.engine.history.undo import UndoStep
from edenmem.engine.reports import ContextReport, MemoryHit, ScopeStatus, SearchHit
from edenmem.models.changes import AuditEntry, HistoryEntry
from edenmem.models.memory import UNCONFIRMED, Consolidation, Fact, Reflection, ReviewItem
from edenmem.models.scope import ScopeKind
from edenmem.text import ago, cut_line, display_width, iso, many, one_line, printable

#: Maximum characters of a text.
_MOST = 20_000
#: Maximum characters of a row.
_ROW = 400

_DIM, _BOLD = "dim", "bold"
#: Part of a context → color.
_PART_STYLES = {
    "AgentMemory": "$text-primary",
    "MemoryShard": "$text-secondary",
    "GroupMemory": "$text-accent",
    "UserMemory": "$text-success",
    "SessionMemory": "$text-warning",
    "Facts": "$text-primary",
    "RetrievedMemories": "$text-error",
}
_ELEMENT = re.compile(r" {2,4}<(/?)(\w+)[^<>]*>\Z")
_DIFF_STYLES = {"+": "$text-success", "-": "$text-error", "…": _DIM}


class TextVersion(NamedTuple):
    """A version of a text, with the previous text."""

    version: HistoryEntry
    before: str


def shown(text: str) -> str:
    """Return a text made printable, and cut if it is very long."""
    if len(text) <= _MOST:
        return printable(text)
    return f"{printable(text[:_MOST])}… ({len(text) - _MOST:,} more characters)"


def line(text: str) -> str:
    """Return a text made printable on one line."""
    return one_line(text[: 4 * _ROW], _ROW)


def _row(at: datetime | None, text: str, mark: str = "") -> Content:
    when = ago(at) if at is not None else ""
    marked = f"{mark} " if mark else ""
    return Content.assemble((f"{when:>8} ", _DIM), (marked, _BOLD), line(text))


def fields(pairs: Iterable[tuple[str, object]]) -> Content:
    """Lay out names and values, without empty ones."""
    rows = [(name, shown(str(value))) for name, value in pairs if value not in (None, "")]
    width = max((len(name) for name, _ in rows), default=0)
    lines = (Content.assemble((f"{name:<{width}} ", _DIM), value) for name, value in rows)
    return Content("\n").join(lines)


def _about(text: str, pairs: Iterable[tuple[str, object]]) -> Content:
    """Lay out a text with its fields below."""
    return Content.assemble(shown(text), "\n\n", fields(pairs))


# -- scopes --------------------------------------------------------------------------------------


def cut_middle(text: str, width: int) -> str:
    """Return a line cut with "…" in its middle, so that names with one beginning differ."""
    if display_width(text) <= width:
        return text
    tail = text[-(width // 2) :]
    while display_width(tail) > width // 2:
        tail = tail[1:]
    return cut_line(text, width - display_width(tail)) + tail


def scope_row(label: str, status: ScopeStatus, width: int) -> Content:
    """Return the row of a scope, with both ends of a long name."""
    state = "paused" if not status.active else "due" if status.due else ""
    style = _BOLD if status.scope.kind is ScopeKind.AGENT else ""
    numbers = f" {status.facts:,}" if status.scope.kind is not ScopeKind.SESSION else ""
    mark = f" {state}" if state else ""
    room = max(width - len(numbers) - len(mark), 8)
    indent = "" if status.scope.kind is ScopeKind.AGENT or ": " in label else " "
    name = cut_middle(line(label), room - len(indent))
    return Content.assemble((indent + name, style), (numbers, _DIM), (mark, "$text-warning"))


def sizes(status: ScopeStatus) -> str:
    """Return the sizes of a scope on one line."""
    parts = [] if status.scope.kind is ScopeKind.SESSION else [many(status.facts, "fact")]
    parts.append(f"{status.pending}/{status.consolidate_at} pending")
    if status.version:
        parts.append(f"text v{status.version}, {status.words}/{status.word_limit} words")
    return " · ".join(parts)


# -- items ---------------------------------------------------------------------------------------


def fact_row(fact: Fact) -> Content:
    """Return the row of a fact."""
    marks = (("private", fact.private), (UNCONFIRMED, fact.unconfirmed))
    return _row(fact.recent_at, fact.content, " ".join(mark for mark, holds in marks if holds))


def reflection_row(reflection: Reflection) -> Content:
    """Return the row of a reflection; pending ones are marked."""
    marks = (("pending", not reflection.absorbed), (UNCONFIRMED, reflection.unconfirmed))
    marked = " ".join(mark for mark, holds in marks if holds)
    return _row(reflection.dated_at, reflection.content, marked)


def review_row(item: ReviewItem, label: str) -> Content:
    """Return the row of an item that waits for review."""
    return _row(item.held_at, item.content, f"{line(label)}, {item.state}")


def version_row(version: HistoryEntry) -> Content:
    """Return the row of a version of a text."""
    return Content(line(version_title(version)))


def entry_row(entry: AuditEntry) -> Content:
    """Return the row of a log entry."""
    text = f"{action_words(entry)} · {entry.actor.name}: {summarize_entry(entry)[: 2 * _ROW]}"
    return _row(entry.at, text)


def hit_row(hit: SearchHit | MemoryHit, label: str) -> Content:
    """Return the row of a search result."""
    found = hit.fact if isinstance(hit, SearchHit) else hit
    mark = f" ({UNCONFIRMED})" if found.unconfirmed else ""
    kind = "" if isinstance(hit, SearchHit) else f"{hit.kind} "
    about = f"{hit.score:.3f} {kind}{line(label)} "
    return Content.assemble((about, _DIM), line(f"{found.content}{mark}"))


def _time(moment: datetime | None) -> str:
    return f"{iso(moment)} ({ago(moment)})" if moment is not None else ""


def _fact_detail(fact: Fact) -> Content:
    return _about(
        fact.content,
        [
            ("fact", fact.id),
            ("said", _time(fact.said_at)),
            ("formed", _time(fact.formed_at)),
            ("corrected", _time(fact.updated_at)),
            ("version", fact.version),
            ("private", "yes" if fact.private else ""),
            ("quote", f"“{fact.quote}”" if fact.quote else ""),
            (UNCONFIRMED, fact.unconfirmed),
            ("key", fact.key or ""),
            ("tags", ", ".join(fact.tags)),
            ("metadata", ", ".join(f"{name}={text}" for name, text in fact.metadata.items())),
            ("expires", _time(fact.expires_at)),
            ("accessed", many(fact.access_count, "time") if fact.access_count else ""),
        ],
    )


def _reflection_detail(reflection: Reflection) -> Content:
    state = _time(reflection.absorbed_at) or "yes" if reflection.absorbed else "no, pending"
    return _about(
        reflection.content,
        [
            ("reflection", reflection.id),
            ("said", _time(reflection.said_at)),
            ("formed", _time(reflection.formed_at)),
            ("in the text", state),
            ("version", reflection.version),
            ("private", "yes" if reflection.private else ""),
            (UNCONFIRMED, reflection.unconfirmed),
        ],
    )


def _review_detail(item: ReviewItem) -> Content:
    return _about(
        item.content,
        [
            (item.kind, item.id),
            (item.state, _time(item.held_at)),
            ("said", _time(item.said_at)),
            ("private", "yes" if item.private else ""),
            ("quote", f"“{item.quote}”" if item.quote else ""),
            ("doubt", item.reasons),
        ],
    )


def _version_detail(item: TextVersion) -> Content:
    heading = Content.styled(line(version_title(item.version)), _BOLD)
    return Content("\n\n").join([heading, diff(item.before, item.version.content)])


def _entry_detail(entry: AuditEntry) -> Content:
    about = fields(
        [
            ("what", f"{action_words(entry)} {entry.target_id}"),
            ("who", f"{entry.actor.name} on {entry.actor.host}"),
            ("when", _time(entry.at)),
            ("command", entry.actor.command),
            ("why", entry.reason),
            ("undoes", entry.undoes),
            ("entry", entry.id),
        ]
    )
    return Content("\n\n").join([change(entry.before, entry.after), about])


def _hit_detail(hit: SearchHit | MemoryHit) -> Content:
    if isinstance(hit, MemoryHit):
        found = [(hit.kind, hit.id), ("score", f"{hit.score:.3f} by words"), ("when", hit.at)]
        return _about(hit.content, [(name, figures(value)) for name, value in found])
    stages = [(stage, _stage(said)) for stage, said in hit.explain.items()]
    fact = hit.fact
    quote = f"“{fact.quote}”" if fact.quote else ""
    about = [("quote", quote), (UNCONFIRMED, fact.unconfirmed), ("fact", fact.id)]
    return _about(fact.content, [*stages, *about])


def _stage(said: object) -> str:
    """Format the figures of a stage, without that a hit passed."""
    if isinstance(said, Mapping):
        said = {name: value for name, value in said.items() if (name, value) != ("passed", True)}
    return figures(said)


def detail(item: object) -> Content:
    """Return the details of an item."""
    match item:
        case Fact():
            return _fact_detail(item)
        case Reflection():
            return _reflection_detail(item)
        case ReviewItem():
            return _review_detail(item)
        case TextVersion():
            return _version_detail(item)
        case AuditEntry():
            return _entry_detail(item)
        case SearchHit() | MemoryHit():
            return _hit_detail(item)
        case _:
            return Content("")


def text_detail(text: Consolidation | None) -> Content:
    """Return the details of a consolidated text."""
    if text is None or not text.version:
        return Content.styled("No text yet. Consolidation writes one from reflections.", _DIM)
    about = [
        ("version", text.version),
        ("written", _time(text.updated_at or text.last_consolidated_at)),
    ]
    return _about(text.consolidated_content, about)


def figures(said: object) -> str:
    """Format figures on one line."""
    match said:
        case Mapping():
            parts = ((name, figures(value)) for name, value in said.items() if value is not None)
            return ", ".join(f"{name} {value}" for name, value in parts)
        case bool():
            return "yes" if said else "no"
        case float():
            return f"{said:.3f}"
        case datetime():
            return _time(said)
        case list() | tuple():
            return " ".join(figures(value) for value in said)
        case _:
            return "" if said is None else str(said)


# -- changes -------------------------------------------------------------------------------------


def diff(before: str, after: str) -> Content:
    """Return a unified diff of two texts."""
    compared = difflib.unified_diff(
        before[:_MOST].splitlines(), after[:_MOST].splitlines(), lineterm="", n=2
    )
    lines = [each for each in compared if not each.startswith(("---", "+++"))][1:]
    shown_lines = ("…" if each.startswith("@@") else printable(each) for each in lines)
    styled = (Content.styled(each, _DIFF_STYLES.get(each[:1], "")) for each in shown_lines)
    return Content("\n").join(styled)


def change(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> Content:
    """Return the diff of a change."""
    return diff(*("\n".join(document_lines(each)) for each in (before, after)))


def undo_plan(step: UndoStep) -> Content:
    """Describe the plan of an undo, or why it is refused."""
    entry = step.of or step.entry
    parts = [
        Content.styled(line(f"{action_words(entry)}, {ago(entry.at)}, {entry.actor.name}"), _BOLD)
    ]
    if step.why:
        parts.append(Content(shown(step.why)))
    for later in step.in_the_way:
        text = f"changed later: {action_words(later)}, {ago(later.at)}, {later.actor.name}"
        parts.append(Content.styled(line(text), "$text-warning"))
    parts.append(change(step.before, step.after))
    return Content("\n").join(part for part in parts if part.plain)


def sections(found: Iterable[Section], about: Content | None = None) -> Content:
    """Lay out titles with their paragraphs."""
    parts = [about] if about is not None else []
    for section in found:
        lines = [Content.styled(line(section.title), _BOLD)]
        lines += (Content(f"{lead}{shown(text)}") for lead, text in section.paragraphs)
        parts.append(Content("\n").join(lines))
    return Content("\n\n").join(parts)


# -- contexts ------------------------------------------------------------------------------------


def context(report: ContextReport) -> Content:
    """Lay out a context, colored by part, after the tokens of each part."""
    total = sum(part.tokens for part in report.parts)
    name_width = max((len(line(part.name)) for part in report.parts), default=0)
    sums = [
        Content.assemble(
            (f"■ {line(part.name):<{name_width}}", _PART_STYLES.get(part.name.split()[0], "")),
            f" {part.tokens:>6,} tokens  {part.words:>6,} words",
        )
        for part in report.parts
    ]
    source = "from the cache" if report.cached else "built now"
    recall = "" if report.recall == "off" else f", recall: {report.explanation}"
    total_line = Content.styled(f"{total:,} tokens, estimated; {source}{recall}", _DIM)
    return Content("\n").join([*sums, total_line, Content(""), *_context_lines(report.xml)])


def _context_lines(xml: str) -> Iterator[Content]:
    """Yield the lines of a context in the color of their innermost part.

    Stored text is escaped, so an element on its own line belongs to the context.
    """
    inside: list[str] = []
    for each in xml.split("\n"):
        found = _ELEMENT.match(each)
        is_part = found is not None and found[2] in _PART_STYLES
        if found and is_part and not found[1]:
            inside.append(found[2])
        style = _PART_STYLES[inside[-1]] if inside else ""
        yield Content.styled(shown(each), style)
        if found and is_part and found[1] and inside:
            inside.pop()


def dropped_summary(stages: Sequence[str]) -> str:
    """Count the candidates dropped at each stage."""
    if not stages:
        return ""
    at = ", ".join(f"{stages.count(stage)} at {stage}" for stage in dict.fromkeys(stages))
    return f"{many(len(stages), 'candidate')} dropped: {at}"
