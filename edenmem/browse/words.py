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
    memory_fields,
    summarize_entry,
    version_title,
)
from edenmem.engine.history.undo import UndoStep
from edenmem.engine.reports import ContextReport, MemoryHit, ScopeStatus, SearchHit
from edenmem.models.changes import AuditEntry, HistoryEntry
from edenmem.models.memory import UNCONFIRMED, Consolidation, Fact, Reflection, ReviewItem
from edenmem.models.scope import ScopeKind
from edenmem.text import (
    ago,
    cut_line,
    figures,
    in_full,
    many,
    one_line,
    printable,
)

#: Maximum characters of a text.
_MOST = 20_000
#: Maximum characters of a row.
_ROW = 400

_DIM, _BOLD = "dim", "bold"
#: Values of fields that are not shown.
_UNSET: tuple[object, ...] = (None, "", False, (), [])
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


def fields(pairs: Iterable[tuple[str, object]]) -> Content:
    """Lay out names and values, without empty ones."""
    rows = [(name, shown(in_full(value))) for name, value in pairs if value not in _UNSET]
    width = max((len(name) for name, _ in rows), default=0)
    lines = (Content.assemble((f"{name:<{width}} ", _DIM), value) for name, value in rows)
    return Content("\n").join(lines)


def _about(text: str, pairs: Iterable[tuple[str, object]]) -> Content:
    """Lay out a text with its fields below."""
    return Content.assemble(shown(text), "\n\n", fields(pairs))


# -- scopes --------------------------------------------------------------------------------------


def scope_row(label: str, status: ScopeStatus, width: int) -> Content:
    """Return the row of a scope."""
    state = "paused" if not status.active else "due" if status.due else ""
    style = _BOLD if status.scope.kind is ScopeKind.AGENT else ""
    numbers = f" {status.facts:,}" if status.scope.kind is not ScopeKind.SESSION else ""
    mark = f" {state}" if state else ""
    room = max(width - len(numbers) - len(mark), 8)
    indent = "" if status.scope.kind is ScopeKind.AGENT or ": " in label else " "
    name = cut_line(line(label), room - len(indent))
    return Content.assemble((indent + name, style), (numbers, _DIM), (mark, "$text-warning"))


def sizes(status: ScopeStatus) -> str:
    """Return the sizes of a scope on one line."""
    parts = [] if status.scope.kind is ScopeKind.SESSION else [many(status.facts, "fact")]
    parts.append(f"{status.pending}/{status.consolidate_at} pending")
    if status.version:
        parts.append(f"text v{status.version}, {status.words}/{status.word_limit} words")
    return " · ".join(parts)


# -- items ---------------------------------------------------------------------------------------


def row(item: object, label: str = "") -> Content:
    """Return the row of an item; ``label`` names the scope of one from any scope."""
    match item:
        case Fact():
            marks = ("private" if item.private else "", UNCONFIRMED if item.unconfirmed else "")
            return _row(item.recent_at, item.content, *marks)
        case Reflection():
            marks = ("" if item.absorbed else "pending", UNCONFIRMED if item.unconfirmed else "")
            return _row(item.dated_at, item.content, *marks)
        case ReviewItem():
            return _row(item.held_at, item.content, f"{line(label)}, {item.state}")
        case TextVersion():
            return Content(line(version_title(item.version)))
        case AuditEntry():
            says = summarize_entry(item)[: 2 * _ROW]
            return _row(item.at, f"{action_words(item)} · {item.actor.name}: {says}")
        case SearchHit() | MemoryHit():
            found = item.fact if isinstance(item, SearchHit) else item
            kind = "" if isinstance(item, SearchHit) else f"{item.kind} "
            about = f"{item.score:.3f} {kind}{line(label)} "
            mark = f" ({UNCONFIRMED})" if found.unconfirmed else ""
            return Content.assemble((about, _DIM), line(f"{found.content}{mark}"))
        case _:
            return Content("")


def _row(at: datetime | None, text: str, *marks: str) -> Content:
    when = ago(at) if at is not None else ""
    marked = "".join(f"{mark} " for mark in marks if mark)
    return Content.assemble((f"{when:>8} ", _DIM), (marked, _BOLD), line(text))


def detail(item: object) -> Content:
    """Return the details of an item."""
    match item:
        case Fact() | Reflection():
            about = [("id", item.id), *memory_fields(item)]
        case ReviewItem():
            about = [
                (item.kind, item.id),
                (item.state, item.held_at),
                ("said", item.said_at),
                ("private", item.private),
                ("quote", item.quote),
                ("doubt", item.reasons),
            ]
        case MemoryHit():
            about = [(item.kind, item.id), ("score", f"{item.score:.3f} by words")]
            about.append(("when", item.at))
        case SearchHit():
            stages = [(stage, _stage(said)) for stage, said in item.explain.items()]
            fact = item.fact
            return _about(fact.content, [*stages, ("id", fact.id), *memory_fields(fact)])
        case TextVersion():
            heading = Content.styled(line(version_title(item.version)), _BOLD)
            return Content("\n\n").join([heading, diff(item.before, item.version.content)])
        case AuditEntry():
            about = [
                ("what", f"{action_words(item)} {item.target_id}"),
                ("who", f"{item.actor.name} on {item.actor.host}"),
                ("when", item.at),
                ("command", item.actor.command),
                ("why", item.reason),
                ("undoes", item.undoes),
                ("entry", item.id),
            ]
            return Content("\n\n").join([change(item.before, item.after), fields(about)])
        case _:
            return Content("")
    return _about(item.content, about)


def _stage(said: Mapping[str, Any]) -> str:
    """Format the figures of a stage, without that a hit passed."""
    return figures({name: each for name, each in said.items() if (name, each) != ("passed", True)})


def text_detail(text: Consolidation | None) -> Content:
    """Return the details of a consolidated text."""
    if text is None or not text.version:
        return Content.styled("No text yet. Consolidation writes one from reflections.", _DIM)
    written = text.updated_at or text.last_consolidated_at
    return _about(text.consolidated_content, [("version", text.version), ("written", written)])


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
    later = (f"changed later: {_says(each)}" for each in step.in_the_way)
    parts = [
        Content.styled(line(_says(entry)), _BOLD),
        Content(shown(step.why)),
        *(Content.styled(line(each), "$text-warning") for each in later),
        change(step.before, step.after),
    ]
    return Content("\n").join(part for part in parts if part.plain)


def _says(entry: AuditEntry) -> str:
    return f"{action_words(entry)}, {ago(entry.at)}, {entry.actor.name}"


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
