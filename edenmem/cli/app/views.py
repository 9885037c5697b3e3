"""Shared views: lists of memory, and reports of changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from edenmem.cli.app.invocation import Invocation
from edenmem.cli.terminal.tables import Column, format_amount, format_cost
from edenmem.engine.history.descriptions import Section, describe_rejection
from edenmem.engine.reports import EditReport, FormationReport
from edenmem.engine.scopes.references import Labels
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
from edenmem.models.memory import (
    Consolidation,
    Fact,
    FactFields,
    HeldCount,
    Reflection,
    describe_doubt,
)
from edenmem.models.scope import Scope
from edenmem.models.told import Reply, text_key
from edenmem.text import ago, cell, iso, many

if TYPE_CHECKING:
    from edenmem.engine.cold.report import ColdReport
    from edenmem.engine.context.told import Telling
    from edenmem.engine.formation.sharing import InForce


def scope_fields(run: Invocation, scope: Scope) -> list[tuple[str, object]]:
    """Return the fields of a scope: its agent, and its label within the agent."""
    labels = run.service.scopes.labels([scope])
    return [("agent", labels[scope.agent_id]), ("scope", labels.within_agent(scope))]


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
    Column("tags", lambda fact: fact.tags),
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


def print_edits(
    run: Invocation,
    *reports: EditReport,
    verbs: tuple[str, str] | None = None,
    target: str | None = None,
) -> None:
    """Print the reports of changes, and how to undo them; see `edit_line` for the wording."""
    run.out.notes(notice for report in reports for notice in report.notices)
    if not run.out.data(reports, edit_data):
        for report in reports:
            run.out.line(edit_line(report, verbs=verbs, target=target))
    note_told(run, map(_told_key, reports))
    done = [
        report.result.change_id
        for report in reports
        if report.result and report.result.status is ChangeStatus.APPLIED and not report.dry_run
    ]
    if done:
        what = done[0] if len(done) == 1 else f"--run {run.actor.run_id}"
        run.out.note(f"to undo: edenmem undo {what}")


def note_undo_last(run: Invocation, changed: object) -> None:
    """Print how to undo what this command changed, if anything."""
    if changed:
        run.out.note("to undo: edenmem undo --last")


def note_undo_run(run: Invocation, run_id: str | None) -> None:
    """Print how to undo a run of a command that changed something."""
    if run_id:
        run.out.note(f"to undo this run: edenmem undo --run {run_id}")


def _told_key(report: EditReport) -> str:
    """Return the key of what a report changes in the notes of replies, or ""."""
    before, scope = report.before, None
    if before is None or before == report.after:
        return ""
    if report.target_type == "consolidation":
        scope = msgspec.convert(before, Consolidation).home
    return key_of(report.target_type, report.target_id, scope)


def edit_data(report: EditReport) -> dict[str, Any]:
    """Return the report of a change as data."""
    status = report.result.status.value if report.result else "unchanged"
    return {
        "id": report.target_id,
        "action": report.action,
        "target_type": report.target_type,
        "status": "dry_run" if report.dry_run else status,
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
    target = cell(target or f"{report.target_type} {report.target_id}")
    would, done = verbs or _VERBS.get(report.action, (report.action, report.action))
    if report.target_type == "consolidation":
        target = f"version {after.get('version')} of the text"
    elif report.action == "set_privacy":
        target += " private" if after.get("private") else " no longer private"
    elif report.action == "set_agent_toggles":
        toggles = {kind: after.get(f"{kind}_memory_enabled") for kind in ("user", "agent")}
        states = (f"{kind} memory {'on' if each else 'off'}" for kind, each in toggles.items())
        target += f": {', '.join(states)}"
    if report.result is not None and report.result.status is ChangeStatus.DUPLICATE:
        return f"{'would keep' if report.dry_run else 'kept'} {target}"
    if report.action == "none":
        return f"{target}: no change"
    return f"would {would} {target}" if report.dry_run else f"{done} {target}"


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
    return many(count, *_NOUNS.get(kind, (kind.removesuffix("s"),)))


def counts(*parts: tuple[int, str]) -> str:
    """Return the counts that are not 0, each with its words: "2 added, 1 failed"."""
    return ", ".join(f"{count:,} {words}" for count, words in parts if count)


def usage_line(used: Sequence[CallUsage]) -> str:
    """Summarize calls of models: number, tokens and cost."""
    embeds = sum(u.task == "embed" for u in used)
    calls = ((len(used) - embeds, "call"), (embeds, "embedding call"))
    about = "~" if any(u.estimated for u in used) else ""
    cost = sum(u.cost for u in used if u.cost is not None)
    unpriced = ", ".join(sorted({u.model for u in used if u.cost is None}))
    parts = [
        *(many(number, what) for number, what in calls if number),
        f"{about}{sum(u.input_tokens for u in used):,} tokens in",
        f"{about}{sum(u.output_tokens for u in used):,} out",
        f"{about}{format_cost(cost)}" if cost else "",
        f"cost unknown (no price for {unpriced})" if unpriced else "",
    ]
    return ", ".join(filter(None, parts))


def facts_changed(report: FormationReport | ColdReport) -> str:
    """Return the numbers of added, revised and removed facts: "+2 ~1"."""
    parts = (("+", report.facts_added), ("~", report.facts_revised), ("-", report.facts_removed))
    return " ".join(f"{sign}{count}" for sign, count in parts if count)


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


# -- which replies had a memory ------------------------------------------------------------------

#: Maximum number of sessions in a note.
_SESSIONS = 5
#: Maximum number of replies or items in a list.
_SHOWN = 20


def key_of(target_type: str, target_id: str, scope: Scope | None) -> str:
    """Return the key of a changed memory in the notes of replies, or ""."""
    if target_type == "consolidation":
        return text_key(scope) if scope is not None else ""
    return target_id if target_type in ("fact", "reflection") else ""


def note_told(run: Invocation, keys: Iterable[str]) -> None:
    """Print which sessions had memory with these keys, if any."""
    keys = [key for key in keys if key]
    if keys and (told := run.service.told.tellings(keys)):
        run.out.note(f"told before: {describe_told(run, told, versions=len(keys) == 1)}")


def describe_told(run: Invocation, told: Sequence[Telling], *, versions: bool = False) -> str:
    """Describe the sessions that had a memory, latest first."""
    names = _names(run, (one.reply for one in told))
    found: dict[str, list[Telling]] = {}
    for one in told:
        found.setdefault(one.reply.session_id or one.reply.user_id or "", []).append(one)
    parts = []
    for some in list(found.values())[:_SESSIONS]:
        known = ", ".join(map(str, sorted({one.version for one in some})))
        count = many(len(some), "reply", "replies")
        facts = (f"version {known}" if versions else "", count, ago(some[0].reply.at))
        parts.append(f"{_where(some[0].reply, names)} ({', '.join(filter(None, facts))})")
    more = len(found) - len(parts)
    return ", ".join([*parts, *([f"{more} more"] if more else [])])


def told_sections(run: Invocation, told: Sequence[Telling]) -> Iterator[Section]:
    """Yield the section of an origin that lists the replies that had the memory, if any."""
    names = _names(run, (one.reply for one in told))
    lines = [
        f"{ago(one.reply.at)}, {one.reply.kind}, {_where(one.reply, names)}:"
        f" version {one.version} ({one.reply.id})"
        for one in told[:_SHOWN]
    ]
    more = [f"and {len(told) - _SHOWN:,} more; --json shows all"] if len(told) > _SHOWN else []
    hint = "see one: edenmem context --as-told SESSION --reply REPLY"
    if lines:
        yield Section("told", tuple(("  ", line) for line in [*lines, *more, hint]))


def _names(run: Invocation, replies: Iterable[Reply]) -> Labels:
    """Load the names of the sessions and users of replies."""
    owners: list[Scope | str] = []
    for reply in replies:
        if reply.session_id:
            owners.append(Scope.session(reply.agent_id, reply.session_id))
        if reply.user_id:
            owners.append(reply.user_id)
    return run.service.scopes.labels(owners)


def describe_reply(run: Invocation, reply: Reply) -> str:
    """Name the session, or the user, of a reply."""
    return _where(reply, _names(run, [reply]))


def _where(reply: Reply, names: Labels) -> str:
    if reply.session_id:
        return f"session {names[reply.session_id]}"
    return f"a search for {names[reply.user_id]}" if reply.user_id else "a search"
