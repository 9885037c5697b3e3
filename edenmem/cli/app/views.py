"""Shared views: lists of memory, and reports of changes."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from edenmem.cli.app.invocation import Invocation
from edenmem.cli.app.told import key_of, note_told
from edenmem.cli.terminal.tables import Column, format_amount, format_cell, format_cost
from edenmem.engine.history.descriptions import describe_doubt as describe_doubt
from edenmem.engine.history.descriptions import describe_rejection
from edenmem.engine.reports import EditReport, ScopeStatus
from edenmem.models.changes import (
    AddFact,
    AddReflection,
    Change,
    ChangeStatus,
    HistoryEntry,
    HoldItem,
    RemoveFact,
    ReviseFact,
)
from edenmem.models.formation import HELD, CallUsage, Decision, UsageTotal
from edenmem.models.host import Session
from edenmem.models.ids import derived_id
from edenmem.models.memory import Consolidation, Fact, FactFields, HeldCount, Reflection
from edenmem.models.scope import Scope
from edenmem.text import ago, iso, many

if TYPE_CHECKING:
    from edenmem.engine.formation.sharing import InForce

T = TypeVar("T")


def note_quoting(run: Invocation, username: str) -> None:
    """Print how to write a new username in commands if a shell would read it differently."""
    if (quoted := shlex.quote(username)) != username:
        run.out.note(f"in commands, write the name as {quoted}")


def place_fields(run: Invocation, scope: Scope) -> list[tuple[str, object]]:
    """Return the fields of a scope: its agent, and its label within the agent."""
    labels = run.service.scopes.labels([scope])
    return [("agent", labels[scope.agent_id]), ("scope", labels.within_agent(scope))]


def agent_name(run: Invocation, agent_id: str) -> str:
    """Return the username of an agent, or the ID of a removed one."""
    return run.service.scopes.labels([agent_id])[agent_id]


def scope_name(run: Invocation, scope: Scope) -> str:
    """Return the label of a scope with its agent; see `Labels`."""
    return run.service.scopes.labels([scope]).full(scope)


def origin(session: Session) -> str:
    """Return "chat" for a session of 'edenmem serve', else "imported".

    A chat has no title, and the ID of an import is derived from its name.
    """
    is_named = session.name is not None and session.id == derived_id("session", session.name)
    return "imported" if is_named or session.title else "chat"


#: The columns of a list of facts.
FACTS: list[Column[Fact]] = [
    Column("id", lambda fact: fact.id, "id"),
    Column("scope", lambda fact: fact.home, names="scope"),
    Column("when", lambda fact: fact.recent_at, "time"),
    Column("private", lambda fact: fact.private or None),
    Column("unconfirmed", lambda fact: fact.unconfirmed or None),
    Column("tags", lambda fact: ", ".join(fact.tags) or None),
    Column("expires", lambda fact: fact.expires_at, "time"),
    Column("content", lambda fact: fact.content, "text"),
]


def describe_held(count: HeldCount) -> str:
    """Describe how many items wait for review, and since when; empty without any."""
    since = f", the oldest held {ago(count.oldest)}" if count.oldest else ""
    return f"{many(count.number, 'item')}{since}" if count.number else ""


#: The columns of a list of reflections.
REFLECTIONS: list[Column[Reflection]] = [
    Column("id", lambda r: r.id, "id"),
    Column("scope", lambda r: r.home, names="scope"),
    Column("state", lambda r: "absorbed" if r.absorbed else "pending"),
    Column("when", lambda r: r.dated_at, "time"),
    Column("content", lambda r: r.content, "text"),
]


def state(status: ScopeStatus) -> str:
    """Return the state of a scope."""
    return "paused" if not status.active else "due" if status.due else ""


#: The columns of a list of scopes: sizes and limits.
SCOPES: list[Column[ScopeStatus]] = [
    Column("agent", lambda s: s.scope.agent_id, names="account"),
    Column("kind", lambda s: s.scope.kind),
    Column("owner", lambda s: s.scope, "text", "owner"),
    Column("facts", lambda s: s.facts, "number"),
    Column("pending", lambda s: f"{s.pending}/{s.consolidate_at}", "number"),
    Column("text", lambda s: f"v{s.version}" if s.version else "", "number"),
    Column("words", lambda s: f"{s.words}/{s.word_limit}" if s.version else "", "number"),
    Column("state", state),
]


#: The columns of a list of consolidated texts.
TEXTS: list[Column[Consolidation]] = [
    Column("agent", lambda t: t.agent_id, names="account"),
    Column("scope", lambda t: t.home, names="scope"),
    Column("version", lambda t: t.version, "number"),
    Column("pending", lambda t: len(t.unabsorbed_ids), "number"),
    Column("when", lambda t: t.updated_at or t.last_consolidated_at, "time"),
    Column("text", lambda t: t.consolidated_content, "text"),
]


HISTORY: list[Column[HistoryEntry]] = [
    Column("version", lambda entry: entry.version, "number"),
    Column("when", lambda entry: entry.at, "time"),
    Column("how", lambda entry: entry.action),
    Column("who", lambda entry: entry.actor),
    Column("fields", lambda entry: _describe_fields(entry.fields)),
    Column("content", lambda entry: entry.content, "text"),
]


def _describe_fields(fields: FactFields) -> str | None:
    """Describe the fields of a version of a fact; a value is only named."""
    named = [f"key {fields.key}"] if fields.key is not None else []
    named += [f"tag {tag}" for tag in fields.tags]
    named += [f"{name}={text}" for name, text in fields.metadata.items()]
    named += [f"expires {iso(fields.expires_at)}"] if fields.expires_at else []
    named += ["value"] if fields.value is not None else []
    return ", ".join(named) or None


def print_edit(
    run: Invocation,
    report: EditReport,
    *,
    verbs: tuple[str, str] | None = None,
    target: str | None = None,
) -> None:
    """Print the report of a change; see `edit_line` for ``verbs`` and ``target``."""
    print_edits(run, [report], verbs=verbs, target=target)


def print_edits(
    run: Invocation,
    reports: Sequence[EditReport],
    *,
    verbs: tuple[str, str] | None = None,
    target: str | None = None,
) -> None:
    """Print the reports of several changes as one result."""
    for report in reports:
        for notice in report.notices:
            run.out.note(notice)

    def show() -> None:
        for report in reports:
            run.out.line(edit_line(report, verbs=verbs, target=target))

    run.out.report(reports, show, data=edit_data)
    note_told(run, map(_told_key, reports))
    note_undo(run, reports)


def _told_key(report: EditReport) -> str:
    """Return the key of what a report changes in the notes of replies, or ""."""
    before, scope = report.before, None
    if before is None or before == report.after:
        return ""
    if report.target_type == "consolidation":
        scope = msgspec.convert(before, Consolidation).home
    return key_of(report.target_type, report.target_id, scope)


def note_undo(run: Invocation, reports: Sequence[EditReport]) -> None:
    """Print how to undo the changes that were made."""
    done = [
        report.result.change_id
        for report in reports
        if report.result and report.result.status is ChangeStatus.APPLIED and not report.dry_run
    ]
    if len(done) == 1:
        run.out.note(f"to undo: edenmem undo {done[0]}")
    elif done:
        run.out.note(f"to undo: edenmem undo --run {run.actor.run_id}")


def edit_data(report: EditReport) -> dict[str, Any]:
    """Return the report of a change as data."""
    if report.dry_run:
        status = "dry_run"
    else:
        status = report.result.status.value if report.result else "unchanged"
    return {
        "id": report.target_id,
        "action": report.action,
        "target_type": report.target_type,
        "status": status,
        "before": report.before,
        "after": report.after,
    }


#: Action of a report → verb for a dry run, verb in the past.
_VERBS = {
    "add_fact": ("add", "added"),
    "revise_fact": ("change", "changed"),
    "remove_fact": ("delete", "deleted"),
    "set_privacy": ("mark", "marked"),
    "add_reflection": ("add", "added"),
    "hold_item": ("hold", "held"),
    "remove_held": ("delete", "deleted"),
    "accept": ("accept", "accepted"),
    "reject": ("reject", "rejected"),
    "revise_reflection": ("change", "changed"),
    "remove_reflection": ("delete", "deleted"),
    "write_consolidation": ("write", "wrote"),
    "write_policy": ("set", "set"),
    "set_agent_toggles": ("set", "set"),
}


def edit_line(
    report: EditReport,
    *,
    verbs: tuple[str, str] | None = None,
    target: str | None = None,
) -> str:
    """Return the report of a change as one line.

    ``verbs`` (for a dry run, in the past) and ``target`` replace the wording of the report.
    """
    after = report.after or {}
    target = format_cell(target or f"{report.target_type} {report.target_id}")
    would, done = verbs or _VERBS.get(report.action, (report.action, report.action))
    if report.target_type == "consolidation":
        target = f"version {after.get('version')} of the text"
    elif report.action == "set_privacy":
        target += " private" if after.get("private") else " no longer private"
    elif report.action == "set_agent_toggles":
        target += f": {toggles(after)}"
    if report.result is not None and report.result.status is ChangeStatus.DUPLICATE:
        return f"{'would keep' if report.dry_run else 'kept'} {target}"
    if report.action == "none":
        return f"{target}: no change"
    return f"would {would} {target}" if report.dry_run else f"{done} {target}"


def toggles(agent: Mapping[str, Any]) -> str:
    """Describe the switches of an agent."""
    return ", ".join(
        f"{kind} memory {'on' if agent.get(f'{kind}_memory_enabled') else 'off'}"
        for kind in ("user", "agent")
    )


def change_line(change: Change) -> str:
    """Describe a planned change."""
    match change:
        case AddFact(fact=fact):
            return f"add {fact.scope} fact: {fact.content}"
        case ReviseFact(content=content):
            return f"change fact {change.fact_id}: {content}"
        case RemoveFact(fact_id=fact_id):
            return f"delete fact {fact_id}"
        case AddReflection(reflection=reflection):
            return f"add {reflection.scope} reflection: {reflection.content}"
        case HoldItem(held=held):
            return f"hold {held.scope} {held.kind} for review: {held.content}"
        case _:
            return str(type(change).__struct_config__.tag).replace("_", " ")


def print_judgments(run: Invocation, decisions: Sequence[Decision]) -> None:
    """Print rejected, doubtful and changed items with their full reasons."""
    for decision in decisions:
        if decision.action == "REJECTED":
            run.out.paragraph("  ", describe_rejection(decision), indent=4)
        elif decision.action == HELD:
            text = f"held for review: {decision.content} ({decision.unconfirmed})"
            run.out.paragraph("  ", text, indent=4)
        elif decision.unconfirmed:
            doubt = describe_doubt(decision.unconfirmed)
            run.out.paragraph("  ", f"{decision.content} ({doubt})", indent=4)


#: Kinds of records whose names are no countable nouns.
_NOUNS = {
    "audit": ("log entry", "log entries"),
    "held": ("held item", "held items"),
    "history": ("version", "versions"),
    "policy": ("policy", "policies"),
    "policies": ("policy", "policies"),
    "usage": ("usage record", "usage records"),
}


def count_noun(kind: str, count: int) -> str:
    """Return a count of records with its noun: "1 fact", "2 log entries"."""
    one = kind.removesuffix("s")
    return many(count, *_NOUNS.get(kind, (one, f"{one}s")))


def usage_line(used: Sequence[CallUsage]) -> str:
    """Summarize calls of models: number, tokens and cost."""
    calls = many(len(used), "call")
    about = "~" if any(u.estimated for u in used) else ""
    line = (
        f"{calls}, {about}{sum(u.input_tokens for u in used):,} tokens in, "
        f"{about}{sum(u.output_tokens for u in used):,} out"
    )
    cost = sum(u.cost for u in used if u.cost is not None)
    unpriced = ", ".join(sorted({u.model for u in used if u.cost is None}))
    parts = [line, *([f"{about}{format_cost(cost)}"] if cost else [])]
    return ", ".join([*parts, *([f"cost unknown (no price for {unpriced})"] if unpriced else [])])


def describe_former(former: InForce) -> str:
    """Describe who forms the platform's sessions, and why."""
    return f"{former.former} ({former.why})"


def token_count(total: UsageTotal, tokens: int) -> str:
    """Format a number of tokens, with "~" for an estimate."""
    return f"{'~' if total.estimated else ''}{tokens:,}"


def dollars(total: UsageTotal) -> str:
    """Format the cost of calls, with "+" if some prices are unknown."""
    if total.unpriced == total.calls:
        return "unknown"
    return f"{format_amount(total.cost)}{'+' if total.unpriced else ''}"
