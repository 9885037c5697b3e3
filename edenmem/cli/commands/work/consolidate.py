"""``edenmem consolidate``: merge pending reflections into texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from edenmem.cli.app import options
from edenmem.cli.app.invocation import Invocation, end_if, invocation
from edenmem.cli.app.views import note_undo_last, usage_line
from edenmem.cli.terminal.editing import show_diff
from edenmem.cli.terminal.tables import Column
from edenmem.engine.reports import ConsolidationReport
from edenmem.errors import ExitCode, UsageError
from edenmem.models.scope import ScopeKind
from edenmem.text import many

if TYPE_CHECKING:
    from edenmem.engine.service import MemoryService


def consolidate(
    ctx: typer.Context,
    agent: options.Agent = None,
    kinds: options.Kinds = None,
    user: options.User = None,
    group: options.Group = None,
    shard: options.Shard = None,
    session: options.Session = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Ignore threshold and pause; shorten or rewrite a text."),
    ] = False,
    dry_run: options.DryRun = False,
) -> None:
    """Merge pending reflections into the texts of all due scopes, or of given scopes.

    \b
    edenmem consolidate
    edenmem consolidate --agent mira --scope user --dry-run
    edenmem consolidate --agent mira --user lena --force
    """
    run = invocation(ctx)
    if group or shard or session:
        if kinds and len(kinds) > 1:
            raise UsageError("--scope must not be repeated with --group, --shard or --session")
        kind = kinds[0] if kinds else None
        named = options.OneScope(
            agent=agent, kind=kind, user=user, group=group, shard=shard, session=session
        )
        scope = options.choose_scope(run, named)

        async def work(service: MemoryService) -> list[ConsolidationReport]:
            return [await service.consolidate(scope, force=force, dry_run=dry_run)]

        reports = run.serve(work, llm=True)
    else:
        if user and kinds and kinds != [ScopeKind.USER]:
            raise UsageError("--user requires --scope user")
        agent_id = options.agent_id_of(run, agent)
        reports = run.serve(
            lambda service: service.consolidate_all(
                agent_id=agent_id,
                kinds=[ScopeKind.USER] if user else kinds or (),
                user_id=run.resolver.user_id(user, agent_id=agent_id) if user else None,
                force=force,
                dry_run=dry_run,
            ),
            llm=True,
        )
    _print_reports(run, reports, diffs=dry_run)
    code = _exit_code(run, reports)
    end_if(code, code)


def _exit_code(run: Invocation, reports: Sequence[ConsolidationReport]) -> ExitCode:
    """Return 5 for an outage of provider or database, 1 if some scopes failed, else 0."""
    failed = [report for report in reports if report.outcome in ("failed", "stuck")]
    if not failed:
        return ExitCode.OK
    left = sum(report.outcome == "not_tried" for report in reports)
    if left:
        run.out.note(f"ended early: {many(left, 'scope')} not processed")
    is_down = all(report.is_outage for report in failed)
    some_written = any(report.outcome in ("written", "dry_run") for report in reports)
    return ExitCode.UNAVAILABLE if is_down and (left or not some_written) else ExitCode.SOME_FAILED


_COLUMNS: list[Column[ConsolidationReport]] = [
    Column("agent", lambda r: r.scope.agent_id, names="account"),
    Column("kind", lambda r: r.scope.kind),
    Column("owner", lambda r: r.scope, "text", "owner"),
    Column("outcome", lambda r: r.outcome),
    Column("version", lambda r: r.version or None, "number"),
    Column("absorbed", lambda r: r.absorbed, "number"),
    Column("left", lambda r: r.left, "number"),
    Column("words", lambda r: f"{r.words}/{r.word_limit}" if r.words else "", "number"),
]


def _print_reports(run: Invocation, reports: Sequence[ConsolidationReport], *, diffs: bool) -> None:
    """Print consolidations; ``diffs`` adds the planned texts."""
    labels = run.service.scopes.labels([report.scope for report in reports])
    run.out.listing(reports, _COLUMNS, empty="nothing was due")
    for report in () if run.out.is_data else reports:
        run.out.notes(
            f"{labels.full(report.scope)}: {note}"
            for note in _notes(report, verbose=run.verbosity > 0)
        )
    for report in reports if diffs and not run.out.is_data else ():
        if report.before != report.after:
            name = labels.full(report.scope)
            old, new = f"{name} (stored)", f"{name} (planned)"
            run.out.line()
            show_diff(run.out, report.before, report.after, old=old, new=new, to_stdout=True)
    used = [usage for report in reports for usage in report.usage]
    if used:
        run.out.note(usage_line(used))
    note_undo_last(run, any(report.outcome == "written" for report in reports))


def _notes(report: ConsolidationReport, *, verbose: bool) -> Iterator[str]:
    """Describe a failure, what the check of a draft changed, and the propagation."""
    if report.error:
        yield report.error
    if report.outcome == "written" and report.words > report.word_limit:
        yield f"{report.words:,} words, over the limit of {report.word_limit:,}"
    if report.dropped and not verbose:
        count = many(len(report.dropped), "line")
        yield f"dropped {count} of the model; list them with --verbose"
    for each in report.dropped if verbose else ():
        yield f"dropped: {each.content or 'a line'} ({each.reason})"
    for sentence in report.restored:
        yield f"put back a fixed sentence: {sentence}"
    for conflict in report.conflicts:
        yield f'"{conflict.reflection}" contradicts "{conflict.fixed}", fixed by {conflict.by}'
    if report.outcome == "waiting":
        yield "the platform may be writing this text; retried after 15 minutes"
    if report.propagated:
        yield f"propagated {many(report.propagated, 'reflection')}"
    for decision in report.propagation:
        if decision.action == "REJECTED":
            yield f"not propagated: {decision.reason}"
    if report.propagation_error:
        yield f"propagation will be retried: {report.propagation_error}"
