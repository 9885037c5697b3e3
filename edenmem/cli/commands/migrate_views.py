"""Views of ``edenmem migrate``: plans, reports, verifications, runs and steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from edenmem.cli.app.invocation import Invocation
from edenmem.cli.terminal.data import plan_data, to_data
from edenmem.cli.terminal.tables import Column
from edenmem.models.migration import MigrationRun, RunState, SchemaStep
from edenmem.models.v1 import V1Damage, V1Problem
from edenmem.text import cell, many, one_line

if TYPE_CHECKING:
    from edenmem.engine.migration.reports import (
        MigrationPlan,
        MigrationReport,
        PlanConflict,
        PlanRow,
        RepairReport,
        Verification,
    )

#: Maximum numbers of problems and rows to print; data formats contain more.
_SHOWN = 10
_ROWS_SHOWN = 40
_SAMPLE_WIDTH = 300

_STATES = {
    RunState.RUNNING: "running",
    RunState.DONE: "done",
    RunState.FAILED: "stopped",
    RunState.ROLLED_BACK: "rolled back",
    RunState.PARTLY: "partly rolled back",
    RunState.INTERRUPTED: "interrupted",
    RunState.INCOMPLETE: "incomplete",
    RunState.SUPERSEDED: "superseded",
    RunState.STALE: "stale",
}

#: Outcome of an item → label, in order.
_OUTCOMES = {
    "migrated": "migrated",
    "merged": "merged",
    "already": "already present",
    "kept": "v2 kept",
    "left_behind": "left behind",
    "bad": "bad",
    "failed": "failed",
}

#: Planned outcome of an item → label.
_PLANNED = _OUTCOMES | {
    "migrated": "to migrate",
    "merged": "to merge",
    "left_behind": "to leave behind",
}

#: Result of a document → label.
_RESULTS = {"used": "used", "left_behind": "left behind", "bad": "bad"}

#: Kind of difference → label.
_DIFFERENCES = {
    "missing": "is missing",
    "changed": "was changed",
    "duplicate": "is a duplicate",
    "extra": "is not from v1",
    "order": "is out of order",
}

#: Type of a repaired document → plural.
_REPAIRED = {
    "fact": "facts",
    "reflection": "reflections",
    "consolidation": "texts",
    "policy": "settings",
    "agent": "switches of agents",
    "buffer": "buffers",
}

#: Plural → singular.
_ONE = {
    "facts": "fact",
    "texts": "text",
    "reflections": "reflection",
    "shards' settings": "shard's settings",
    "switches of agents": "switch of an agent",
    "buffers": "buffer",
}

STEPS: list[Column[SchemaStep]] = [
    Column("step", lambda step: step.name, "text"),
    Column("applied", lambda step: step.applied_at or "pending", "time"),
    Column("reversible", lambda step: "no" if step.no_way_back else "yes"),
]

RUNS: list[Column[MigrationRun]] = [
    Column("run", lambda run: run.id, "id"),
    Column("state", lambda run: _STATES[run.state]),
    Column("verified", lambda run: describe_check(run)),
    Column("started", lambda run: run.started_at, "time"),
    Column("items", lambda run: f"{run.done:,} of {run.total:,}", "number"),
    Column("source", lambda run: run.source, "text"),
]

#: Further outcomes of a verification.
_VERIFIED = {"taken_back": "rolled back", "differs": "differ"}

_ROWS: list[Column[PlanRow]] = [
    Column("agent", lambda row: row.agent or row.agent_id or "(none)", "text"),
    Column("texts", lambda row: row.texts, "number"),
    Column("facts", lambda row: row.facts, "number"),
    Column("reflections", lambda row: row.reflections, "number"),
    Column("left", lambda row: row.left_behind, "number"),
    Column("bad", lambda row: row.bad, "number"),
    Column("already", lambda row: row.already, "number"),
]


def format_counts(counts: Mapping[str, int], words: Mapping[str, str] | None = None) -> str:
    """Format counts other than zero, such as ``12 facts, 1 text``.

    Without ``words``, the names are printed with spaces for underscores.
    """
    names = words or {name: name.replace("_", " ") for name in counts}
    return ", ".join(
        f"{counts[name]:,} {_ONE.get(word, word) if counts[name] == 1 else word}"
        for name, word in names.items()
        if counts.get(name)
    )


def _format_total(counts: Mapping[str, int], words: Mapping[str, str]) -> str | None:
    """Format a total and its parts, such as ``48: 43 used, 5 bad``."""
    total = sum(counts.values())
    return f"{total:,}: {format_counts(counts, words)}" if total else None


def print_plan(run: Invocation, plan: MigrationPlan, *, whole: bool) -> None:
    """Print the plan of a run; ``whole`` adds samples and problems."""
    if run.out.data([plan], plan_data):
        return
    rows = plan.rows
    writes = {
        "texts": sum(row.texts for row in rows),
        "facts": sum(row.facts for row in rows),
        "reflections": sum(row.reflections for row in rows),
        "shards' settings": sum(row.policies for row in rows),
        "switches of agents": sum(row.switches for row in rows),
    }
    already = sum(row.already for row in rows)
    names = {field: field for field in plan.unknown_fields}
    run.out.fields(
        [
            ("from", plan.source),
            ("into", plan.target),
            ("holds", ", ".join(f"{n:,} {name}" for name, n in plan.documents.items())),
            ("documents", _format_total(plan.results, _RESULTS)),
            *_incomplete(plan.incomplete),
            ("not selected", ", ".join(f"{n:,} {name}" for name, n in plan.not_asked.items())),
            ("resumes", plan.resumes),
            ("items", _format_total(plan.outcomes, _PLANNED)),
            ("would write", format_counts(writes, {each: each for each in writes}) or "nothing"),
            ("already present", f"{already:,}" if already else None),
            ("conflicts", format_counts(plan.conflicts_by_treatment)),
            *_lines("left behind", [f"{n:,}: {why}" for why, n in plan.left_behind.items()]),
            ("problems", format_counts(plan.problems_by_kind)),
            ("unknown fields", format_counts(plan.unknown_fields, names)),
        ]
    )
    if rows:
        run.out.line()
        shown = sorted(rows, key=lambda row: (row.agent, row.agent_id))
        most = _ROWS_SHOWN if whole else _SHOWN
        run.out.listing(shown[:most], _ROWS)
        if len(rows) > most:
            run.out.note(f"and {len(rows) - most:,} more; --dry-run --json lists all")
    if whole:
        _print_samples(run, plan)
        _print_conflicts(run, plan.conflicts)
        _print_problems(run, plan.problems, sum(plan.problems_by_kind.values()))
    run.out.notes(plan.notices)


def _incomplete(found: Sequence[V1Damage]) -> list[tuple[str, object]]:
    """Return a line for each missing part of the input."""
    return _lines("incomplete input", [each.detail for each in found])


def _lines(name: str, texts: Sequence[str]) -> list[tuple[str, object]]:
    """Return a line for each text, labeled with the name."""
    return [("" if number else name, text) for number, text in enumerate(texts)]


def _print_samples(run: Invocation, plan: MigrationPlan) -> None:
    for sample in plan.samples:
        run.out.line()
        run.out.paragraph("", f"{sample.kind} of {sample.label}, from {sample.source}")
        run.out.paragraph("  before: ", one_line(sample.before, _SAMPLE_WIDTH))
        run.out.paragraph("  after:  ", one_line(sample.after, _SAMPLE_WIDTH))


def _print_some(run: Invocation, lines: Sequence[tuple[str, str]], total: int, noun: str) -> None:
    """Print the first lines, each a title and a text, and the number of the others."""
    if lines:
        run.out.line()
    for title, text in lines[:_SHOWN]:
        run.out.paragraph(f"{title}: ", one_line(text, _SAMPLE_WIDTH))
    if total > _SHOWN:
        run.out.note(f"and {many(total - _SHOWN, noun)}; --json lists up to 1,000")


def _print_conflicts(run: Invocation, conflicts: Sequence[PlanConflict]) -> None:
    lines = [(f"{c.kind} of {c.label or c.scope} {c.treatment}", c.reason) for c in conflicts]
    _print_some(run, lines, len(conflicts), "more conflict")


def _print_problems(run: Invocation, problems: Sequence[V1Problem], total: int) -> None:
    lines = [(f"{each.collection}/{each.document_id}", each.detail) for each in problems]
    _print_some(run, lines, total, "more problem")


def print_report(run: Invocation, report: MigrationReport) -> None:
    """Print the report of a run."""
    if not run.out.data([report]):
        _show_report(run, report)
    run.out.notes(report.notices)
    if report.run.lacks_input:
        run.out.note(
            "the input is incomplete: migrated the readable part (exit 1 without"
            " --allow-incomplete)"
        )
    if any(report.run.counts.get(made) for made in ("migrated", "merged")):
        run.out.note(f"to roll back: edenmem migrate rollback {report.run.id}")


def _show_report(run: Invocation, report: MigrationReport) -> None:
    embedding, check = report.embedding, report.verification
    run.out.fields(
        [
            *_run_fields(report.run),
            ("vectors", embedding and f"{embedding.embedded:,} of {embedding.model}"),
            ("result", check and _describe_verification(check)),
            ("problems", format_counts(report.problems_by_kind)),
        ]
    )
    _print_run_problems(run, report.run)
    _print_conflicts(run, report.conflicts)
    _print_problems(run, report.problems, sum(report.problems_by_kind.values()))
    if check is not None:
        _print_differences(run, check)


def _run_fields(run: MigrationRun) -> list[tuple[str, object]]:
    rate = f", {run.done / run.seconds:,.0f} items/s" if run.seconds > 1 else ""
    return [
        ("run", run.id),
        ("state", _STATES[run.state]),
        ("verified", describe_check(run)),
        ("from", run.source),
        ("holds", ", ".join(f"{n:,} {name}" for name, n in run.documents.items())),
        ("documents", _format_total(run.results, _RESULTS)),
        ("items", f"{run.done:,} of {run.total:,}"),
        ("outcome", format_counts(run.counts, _OUTCOMES)),
        ("resumed", many(run.resumed, "time") if run.resumed else None),
        ("took", f"{run.seconds:.1f} s{rate}"),
        *_incomplete(run.incomplete),
        ("accepted", "--allow-incomplete" if run.incomplete and not run.lacks_input else None),
        ("error", run.error),
    ]


def describe_check(run: MigrationRun) -> str:
    """Return the outcome of the latest verification of a run."""
    check = run.verification
    if check is None:
        return "not verified"
    if check.differing:
        return many(check.differing, "difference")
    if check.taken_back:
        return f"{check.taken_back:,} rolled back"
    return "outdated" if run.state is RunState.STALE else check.outcome


def print_run(run: Invocation, found: MigrationRun) -> None:
    """Print one run of the ledger."""
    if run.out.data([found]):
        return
    run.out.fields(
        [
            *_run_fields(found),
            ("started", found.started_at),
            ("ended", found.finished_at),
            ("by", f"{found.actor.name} on {found.actor.host}"),
            ("options", ", ".join(_options(found))),
            ("undone by", list(found.undo_runs)),
        ]
    )
    _print_run_problems(run, found)


def _options(found: MigrationRun) -> list[str]:
    """Return the options that differ from the defaults."""
    usual = {"shards": "merge", "episodes": "leave", "on_conflict": "keep"}
    return [
        name.replace("_", "-") if value is True else f"{name.replace('_', '-')} {cell(value)}"
        for name, value in found.options.items()
        if value and not name.endswith("_words") and usual.get(name) != value
    ]


def _print_run_problems(run: Invocation, found: MigrationRun) -> None:
    """Print the problems of a run by reason, with one example each."""
    by_reason: dict[str, list[str]] = {}
    for problem in found.problems:
        by_reason.setdefault(problem.reason, []).append(problem.source)
    for reason, sources in list(by_reason.items())[:_SHOWN]:
        more = f" and {len(sources) - 1:,} more" if len(sources) > 1 else ""
        run.out.paragraph("  ", f"{one_line(reason, 300)}: {one_line(sources[0], 80)}{more}")
    listed = ("kept", "bad", "failed")
    beyond = sum(found.counts.get(name, 0) for name in listed) - len(found.problems)
    if beyond > 0:
        run.out.note(f"and {beyond:,} more; --dry-run lists those in the source")


def print_verification(run: Invocation, check: Verification) -> None:
    """Print a verification."""
    if run.out.data([check], lambda one: to_data(one) | {"complete": one.complete}):
        return
    unreadable = many(check.unreadable, "entry", "entries") if check.unreadable else None
    run.out.fields(
        [
            ("run", check.run_id),
            ("superseded by", check.superseded_by),
            ("documents", f"{check.documents:,}"),
            ("items", format_counts(check.counts, {**_OUTCOMES, **_VERIFIED})),
            ("changed since", check.changed or None),
            ("of the platform", check.platform or None),
            ("unreadable", unreadable and f"{unreadable} of the log, ignored"),
            *_incomplete(check.incomplete),
            ("result", _describe_verification(check)),
        ]
    )
    _print_differences(run, check)


def _describe_verification(check: Verification) -> str:
    if check.unfinished:
        return "the run is unfinished: continue with 'edenmem migrate v1' and the same options"
    if check.complete:
        return f"all {check.documents:,} documents are accounted for"
    if check.differing:
        return f"{many(check.differing, 'difference')} from v1 that the log does not explain"
    if check.taken_back:
        number = many(check.taken_back, "item")
        return f"{number} rolled back or undone; to repeat: 'edenmem migrate v1'"
    if check.incomplete and check.documents == check.seen:
        return f"all {check.documents:,} documents read are accounted for; the input is incomplete"
    if check.documents == check.seen:
        return f"all {check.documents:,} documents are accounted for; the log is damaged"
    return f"{check.documents:,} documents expected, {check.seen:,} read"


def _print_differences(run: Invocation, check: Verification) -> None:
    for each in check.differences[:_SHOWN]:
        where = " ".join(filter(None, (each.target_type, each.target_id, "in", each.scope)))
        values = f": {each.field} is {each.found}, not {each.expected}" if each.field else ""
        text = one_line(f"{where} {_DIFFERENCES[each.kind]}{values}; {each.reason}", 400)
        run.out.paragraph("  ", text)
        if each.source:
            run.out.paragraph("    from ", one_line(each.source, 200))
    more = check.differing - min(_SHOWN, len(check.differences))
    if more > 0:
        run.out.note(f"and {more:,} more; --json lists up to 1,000")


def print_repair(run: Invocation, report: RepairReport) -> None:
    """Print the report of a repair."""
    if run.out.data([report]):
        return
    verb = "would write" if report.dry_run else "written again"
    run.out.fields(
        [
            ("run", report.verification.run_id),
            (verb, format_counts(report.repaired, _REPAIRED) or "nothing"),
            ("result", _describe_verification(report.verification)),
        ]
    )
    _print_differences(run, report.verification)
