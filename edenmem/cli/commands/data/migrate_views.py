"""What ``edenmem migrate`` prints: plans, reports, checks, runs and steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from edenmem.cli.app.invocation import Invocation
from edenmem.cli.terminal.data import plan_data, to_data
from edenmem.cli.terminal.money import format_cost
from edenmem.cli.terminal.tables import Column
from edenmem.models.migration import MigrationRun, RunState, SchemaStep
from edenmem.models.v1 import V1Damage
from edenmem.text import one_line

if TYPE_CHECKING:
    from edenmem.engine.migration.reports import (
        MigrationPlan,
        MigrationReport,
        PlanRow,
        RollbackReport,
        Verification,
    )

#: Problems and samples that a plan shows to a person; the data formats have more.
_SHOWN = 10
_ROWS_SHOWN = 40
_SAMPLE_WIDTH = 300

_STATES = {
    RunState.RUNNING: "running",
    RunState.DONE: "done",
    RunState.FAILED: "stopped",
    RunState.ROLLED_BACK: "rolled back",
    RunState.UNDONE: "undone",
    RunState.PARTLY: "partly rolled back",
    RunState.INTERRUPTED: "interrupted",
    RunState.INCOMPLETE: "incomplete",
    RunState.SUPERSEDED: "superseded",
    RunState.STALE: "stale",
}

#: Outcomes of items in the words of a person, in the order in which they are told.
_OUTCOMES = {
    "migrated": "migrated",
    "merged": "merged",
    "already": "there already",
    "kept": "v2 kept",
    "left_behind": "left behind",
    "bad": "bad",
    "failed": "failed",
}

#: The same of items that a run would move.
_PLANNED = _OUTCOMES | {
    "migrated": "to migrate",
    "merged": "to merge",
    "left_behind": "to leave behind",
}

#: Documents by what becomes of them.
_FATES = {"used": "used", "left_behind": "left behind", "bad": "bad"}

#: What is the matter, by kind of difference.
_DIFFERENCES = {
    "missing": "is missing",
    "changed": "was changed",
    "duplicate": "is a duplicate",
    "copy": "is a copy",
    "extra": "is not of v1",
    "order": "is out of order",
}

#: Kinds of what a run makes, in the words of a person.
_TARGETS = {
    "fact": "facts",
    "reflection": "reflections",
    "consolidation": "versions of texts",
    "policy": "settings",
    "switch": "switches of agents",
    "agent": "agents",
    "user": "users",
}

#: One of what is counted, where its word differs from that of several.
_ONE = {
    "facts": "fact",
    "texts": "text",
    "reflections": "reflection",
    "versions of texts": "version of a text",
    "shards' settings": "shard's settings",
    "switches of agents": "switch of an agent",
    "agents": "agent",
    "users": "user",
}

STEPS: list[Column[SchemaStep]] = [
    Column("step", lambda step: step.name, "text"),
    Column("applied", lambda step: step.applied_at or "pending", "time"),
    Column("way back", lambda step: "no" if step.no_way_back else "yes"),
]

RUNS: list[Column[MigrationRun]] = [
    Column("run", lambda run: run.id, "id"),
    Column("state", lambda run: _STATES[run.state]),
    Column("verified", lambda run: describe_check(run)),
    Column("began", lambda run: run.started_at, "time"),
    Column("items", lambda run: f"{run.done:,} of {run.total:,}", "number"),
    Column("source", lambda run: run.source, "text"),
]

#: Further counts of a verification.
_VERIFIED = {"taken_back": "taken back", "differs": "differ"}

_ROWS: list[Column[PlanRow]] = [
    Column("agent", lambda row: row.agent or row.agent_id or "nobody's", "text"),
    Column("shard", lambda row: row.shard, "text"),
    Column("texts", lambda row: row.texts, "number"),
    Column("facts", lambda row: row.facts, "number"),
    Column("reflections", lambda row: row.reflections, "number"),
    Column("left", lambda row: row.left_behind, "number"),
    Column("bad", lambda row: row.bad, "number"),
    Column("already", lambda row: row.already, "number"),
]


def format_counts(counts: Mapping[str, int], words: Mapping[str, str] | None = None) -> str:
    """Format counts that are not zero, such as ``12 facts, 1 text``; without ``words`` their names
    with spaces for underscores."""
    names = words or {name: name.replace("_", " ") for name in counts}
    return ", ".join(
        f"{counts[name]:,} {_ONE.get(word, word) if counts[name] == 1 else word}"
        for name, word in names.items()
        if counts.get(name)
    )


def _count_texts(count: int) -> str:
    return f"{count:,} {'text' if count == 1 else 'texts'}"


def _format_total(counts: Mapping[str, int], words: Mapping[str, str]) -> str | None:
    """Format a sum and what it is made up of, such as ``48: 43 used, 5 bad``."""
    total = sum(counts.values())
    return f"{total:,}: {format_counts(counts, words)}" if total else None


def print_plan(run: Invocation, plan: MigrationPlan, *, whole: bool) -> None:
    """Print what a run would do; ``whole``: with samples and problems."""
    run.out.report([plan], lambda: _show_plan(run, plan, whole=whole), data=plan_data)


def _show_plan(run: Invocation, plan: MigrationPlan, *, whole: bool) -> None:
    rows = plan.rows
    writes = {
        "texts": sum(row.texts for row in rows),
        "facts": sum(row.facts for row in rows),
        "reflections": sum(row.reflections for row in rows),
        "shards' settings": sum(row.policies for row in rows),
        "switches of agents": sum(row.switches for row in rows),
    }
    conflicts = sum(row.conflicts for row in rows)
    long = sum(row.over_limit for row in rows)
    already = sum(row.already for row in rows)
    names = {field: field for field in plan.unknown_fields}
    run.out.fields(
        [
            ("from", plan.source),
            ("into", plan.target),
            ("holds", ", ".join(f"{n:,} {name}" for name, n in plan.documents.items())),
            ("documents", _format_total(plan.fates, _FATES)),
            *_incomplete(plan.incomplete),
            ("not asked for", ", ".join(f"{n:,} {name}" for name, n in plan.not_asked.items())),
            ("goes on with", plan.resumes),
            ("items", _format_total(plan.outcomes, _PLANNED)),
            ("would write", format_counts(writes, {each: each for each in writes}) or "nothing"),
            ("there already", f"{already:,}" if already else None),
            (
                "v2 has",
                f"{_count_texts(conflicts)} of its own; see --on-conflict" if conflicts else None,
            ),
            ("conflicts", format_counts(plan.conflicts_by_treatment)),
            (
                "over limit",
                f"{_count_texts(long)}, kept whole; see --condense" if long else None,
            ),
            *_lines("left behind", [f"{n:,}: {why}" for why, n in plan.left_behind.items()]),
            ("problems", format_counts(plan.problems_by_kind)),
            ("unknown fields", format_counts(plan.unknown_fields, names)),
            ("embedding", _embedding(plan)),
        ]
    )
    if rows:
        run.out.line()
        shown = sorted(rows, key=lambda row: (row.agent, row.agent_id, row.shard or ""))
        most = _ROWS_SHOWN if whole else _SHOWN
        run.out.listing(shown[:most], _ROWS)
        if len(rows) > most:
            run.out.note(f"and {len(rows) - most:,} more; --dry-run --format json has them all")
    if whole:
        _print_samples(run, plan)
        _print_conflicts(run, plan)
        _print_problems(run, plan)
    for notice in plan.notices:
        run.out.note(notice)


def _incomplete(found: Sequence[V1Damage]) -> list[tuple[str, object]]:
    """A line for each part of the input that is missing."""
    return _lines("incomplete input", [each.detail for each in found])


def _lines(name: str, texts: Sequence[str]) -> list[tuple[str, object]]:
    """A line for each text, the first of them with the name."""
    return [("" if number else name, text) for number, text in enumerate(texts)]


def _embedding(plan: MigrationPlan) -> str:
    if not plan.facts:
        return ""
    model = (
        f" with {plan.model}, {format_cost(plan.cost)}"
        if plan.model
        else "; no embedding model is configured"
    )
    return f"{plan.facts:,} facts, about {plan.tokens:,} tokens{model}"


def _print_samples(run: Invocation, plan: MigrationPlan) -> None:
    for sample in plan.samples:
        run.out.line()
        run.out.paragraph("", f"{sample.kind} of {sample.scope}, from {sample.source}")
        run.out.paragraph("  before: ", one_line(sample.before, _SAMPLE_WIDTH))
        run.out.paragraph("  after:  ", one_line(sample.after, _SAMPLE_WIDTH))


def _print_conflicts(run: Invocation, plan: MigrationPlan) -> None:
    if plan.conflicts:
        run.out.line()
    for each in plan.conflicts[:_SHOWN]:
        what = f"{each.kind} of {each.scope} {each.treatment}: "
        run.out.paragraph(what, one_line(each.reason, _SAMPLE_WIDTH))
    more = sum(plan.conflicts_by_treatment.values()) - _SHOWN
    if more > 0:
        run.out.note(f"and {more:,} more conflicts; --format json names up to 1,000")


def _print_problems(run: Invocation, plan: MigrationPlan) -> None:
    if plan.problems:
        run.out.line()
    for problem in plan.problems[:_SHOWN]:
        where = f"{problem.collection}/{problem.document_id}"
        run.out.paragraph(f"{where}: ", one_line(problem.detail, _SAMPLE_WIDTH))
    more = sum(plan.problems_by_kind.values()) - _SHOWN
    if more > 0:
        run.out.note(f"and {more:,} more problems; --format json names up to 1,000")


def print_report(run: Invocation, report: MigrationReport) -> None:
    """Print what a run did, on one screen."""
    run.out.report([report], lambda: _show_report(run, report))
    for notice in report.notices:
        run.out.note(notice)
    if report.run.lacks_input:
        run.out.note(
            "the input is incomplete: what could be read was moved; the exit code is 1 without "
            "--allow-incomplete"
        )
    if report.run.names_taken:
        run.out.note(
            "accounts whose username is taken were not added, so the exit code is 1: their memory "
            "is there under their IDs"
        )
    if any(report.run.counts.get(made) for made in ("migrated", "merged")):
        run.out.note(f"to go back: edenmem migrate rollback {report.run.id}")


def _show_report(run: Invocation, report: MigrationReport) -> None:
    embedding, check = report.embedding, report.verification
    run.out.fields(
        [
            *_run_fields(report.run),
            ("condensed", report.condensed or None),
            ("kept whole", [one_line(text, 70) for text in report.kept_whole[:5]]),
            ("vectors", embedding and f"{embedding.embedded:,} of {embedding.model}"),
            ("result", check and _describe_verification(check)),
            ("vectors verified", check and _describe_vectors(check)),
        ]
    )
    _print_run_problems(run, report.run)
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
        ("documents", _format_total(run.fates, _FATES)),
        ("items", f"{run.done:,} of {run.total:,}"),
        ("outcome", format_counts(run.counts, _OUTCOMES)),
        ("not added", f"{run.names_taken:,}: the username is taken" if run.names_taken else None),
        ("resumed", f"{run.resumed} times" if run.resumed > 1 else "once" if run.resumed else None),
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
        return "1 difference" if check.differing == 1 else f"{check.differing:,} differences"
    if check.taken_back:
        return f"{check.taken_back:,} taken back"
    return "outdated" if run.state is RunState.STALE else check.outcome


def print_run(run: Invocation, found: MigrationRun) -> None:
    """Print one run of the ledger."""
    run.out.report([found], lambda: _show_run(run, found))


def _show_run(run: Invocation, found: MigrationRun) -> None:
    run.out.fields(
        [
            *_run_fields(found),
            ("began", found.started_at),
            ("ended", found.finished_at),
            ("by", f"{found.actor.name} on {found.actor.host}"),
            ("options", ", ".join(_options(found))),
            ("undone by", list(found.undo_runs)),
        ]
    )
    _print_run_problems(run, found)


def _options(found: MigrationRun) -> list[str]:
    """What was asked for beyond what is usual."""
    usual = {"shards": "merge", "episodes": "leave", "on_conflict": "keep"}
    return [
        name.replace("_", "-")
        if value is True
        else f"{name.replace('_', '-')} {_format_list(value)}"
        for name, value in found.options.items()
        if value and not name.endswith("_words") and usual.get(name) != value
    ]


def _format_list(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _print_run_problems(run: Invocation, found: MigrationRun) -> None:
    """The problems that the ledger keeps, by their reasons, with the first of each."""
    by_reason: dict[str, list[str]] = {}
    for problem in found.problems:
        by_reason.setdefault(problem.reason, []).append(problem.source)
    for reason, sources in list(by_reason.items())[:_SHOWN]:
        more = f" and {len(sources) - 1:,} more" if len(sources) > 1 else ""
        run.out.paragraph("  ", f"{one_line(reason, 300)}: {one_line(sources[0], 80)}{more}")
    told = ("kept", "bad", "failed")
    beyond = sum(found.counts.get(name, 0) for name in told) + found.names_taken
    beyond -= len(found.problems)
    if beyond > 0:
        run.out.note(f"and {beyond:,} more; a plan (--dry-run) names those of the source")


def print_verification(run: Invocation, check: Verification) -> None:
    """Print what a check found."""
    run.out.report(
        [check],
        lambda: _show_verification(run, check),
        data=lambda one: {**to_data(one), "complete": one.complete},
    )


def _show_verification(run: Invocation, check: Verification) -> None:
    run.out.fields(
        [
            ("run", check.run_id),
            ("superseded by", check.superseded_by),
            ("documents", f"{check.documents:,}"),
            ("items", format_counts(check.counts, {**_OUTCOMES, **_VERIFIED})),
            ("changed since", check.changed or None),
            ("of the platform", check.platform or None),
            ("vectors", _describe_vectors(check)),
            ("unreadable", _describe_unreadable(check)),
            *_incomplete(check.incomplete),
            ("result", _describe_verification(check)),
        ]
    )
    _print_differences(run, check)


def _describe_vectors(check: Verification) -> str | None:
    """Return how far the vectors were verified; None if there are none."""
    vectors = check.vectors
    if vectors is None or not vectors.facts:
        return None
    compared = f"{vectors.compared:,} compared with {vectors.model}"
    if not vectors.compared:
        compared = f"not compared with their texts: {vectors.reason}"
    return f"{vectors.facts:,} searched for one that two texts share; {compared}"


def _describe_unreadable(check: Verification) -> str | None:
    if not check.unreadable:
        return None
    number = "1 entry" if check.unreadable == 1 else f"{check.unreadable:,} entries"
    return f"{number} of the log; they excuse nothing"


def _describe_verification(check: Verification) -> str:
    if check.unfinished:
        return "the run is unfinished: 'edenmem migrate v1' with the same options goes on"
    if check.complete:
        return f"all {check.documents:,} documents are accounted for"
    if check.differing:
        number = "1 difference" if check.differing == 1 else f"{check.differing:,} differences"
        return f"{number} from v1 that the log does not explain"
    if check.taken_back:
        number = "1 item was" if check.taken_back == 1 else f"{check.taken_back:,} items were"
        return f"{number} taken back by a rollback or undo; 'edenmem migrate v1' moves them again"
    if check.incomplete and check.documents == check.seen:
        return f"all {check.documents:,} documents read are accounted for; the input is incomplete"
    if check.documents == check.seen:
        return f"all {check.documents:,} documents are accounted for; the log is damaged"
    return f"{check.documents:,} documents, but {check.seen:,} were looked at"


def _print_differences(run: Invocation, check: Verification) -> None:
    for each in check.differences[:_SHOWN]:
        where = " ".join(filter(None, (each.target_type, each.target_id, "in", each.scope)))
        values = f": {each.field} is {each.found}, not {each.expected}" if each.field else ""
        told = one_line(f"{where} {_DIFFERENCES[each.kind]}{values}; {each.reason}", 400)
        run.out.paragraph("  ", told)
        if each.source:
            run.out.paragraph("    from ", one_line(each.source, 200))
    more = check.differing - min(_SHOWN, len(check.differences))
    if more > 0:
        run.out.note(f"and {more:,} more; --format json names up to 1,000")


def print_rollback(run: Invocation, report: RollbackReport, *, forced: bool) -> None:
    """Print what a rollback took back and kept."""
    run.out.report([report], lambda: _show_rollback(run, report, forced=forced))


def _show_rollback(run: Invocation, report: RollbackReport, *, forced: bool) -> None:
    verb = "would take back" if report.dry_run else "took back"
    run.out.fields(
        [
            ("run", report.run.id),
            (verb, format_counts(report.removed, _TARGETS) or "nothing"),
            ("kept", f"{report.kept_total:,}, changed since" if report.kept_total else None),
            ("state", None if report.dry_run else _STATES[report.run.state]),
        ]
    )
    for kept in report.kept[:_SHOWN]:
        run.out.paragraph(f"  {kept.target_type} {kept.target_id}: ", one_line(kept.reason, 200))
    if report.kept_total > _SHOWN:
        run.out.note(f"and {report.kept_total - _SHOWN:,} more; --format json names up to 1,000")
    if report.forceable and not forced:
        run.out.note(
            f"'edenmem migrate rollback {report.run.id} --force' takes it back all the same; "
            "later states stay in history"
        )
