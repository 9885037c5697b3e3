"""``edenmem form``: form memories from sessions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from edenmem.cli.app import options
from edenmem.cli.app.choosing import agent_id_of
from edenmem.cli.app.failures import print_error
from edenmem.cli.app.invocation import Invocation, invocation
from edenmem.cli.app.views import change_line, print_judgments, usage_line
from edenmem.cli.terminal.data import to_data
from edenmem.cli.terminal.prompts import Missing
from edenmem.cli.terminal.tables import Column
from edenmem.cli.terminal.times import ago, iso
from edenmem.engine.reports import FormationReport
from edenmem.engine.scopes.references import Labels
from edenmem.errors import (
    BudgetExceeded,
    ConfigError,
    EdenmemError,
    ExitCode,
    FactKeyConflict,
    InputError,
    ProviderAuthError,
    ProviderMisconfigured,
    StoreReadOnly,
    StoreUnreachable,
    UnavailableError,
    UsageError,
)
from edenmem.models.formation import Reach, Trigger
from edenmem.models.host import Session
from edenmem.text import many

if TYPE_CHECKING:
    from edenmem.engine.service import MemoryService


#: Errors that affect every session.
_FOR_ALL = (
    BudgetExceeded,
    ConfigError,
    FactKeyConflict,
    InputError,
    ProviderAuthError,
    ProviderMisconfigured,
    StoreReadOnly,
    StoreUnreachable,
)

#: Outcomes of `FormationReport` with another label.
_OUTCOMES = {"not_due": "nothing new", "dry_run": "would apply"}


def form(
    ctx: typer.Context,
    sessions: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SESSION]…", help="Sessions to process, even if not due."),
    ] = None,
    agent: options.Agent = None,
    due: Annotated[bool, typer.Option("--due", help="Process all sessions that are due.")] = False,
    consolidate: Annotated[
        bool,
        typer.Option(
            "--consolidate/--no-consolidate", help="Also consolidate the scopes that become due."
        ),
    ] = True,
    again: Annotated[bool, typer.Option("--again", help="Repeat formations of edenmem.")] = False,
    from_start: Annotated[
        bool,
        typer.Option(
            "--from-start",
            help="Process the whole session, including messages that the platform read.",
        ),
    ] = False,
    propose: Annotated[
        bool, typer.Option("--propose", help="Hold all that is formed for 'edenmem review'.")
    ] = False,
    dry_run: options.DryRun = False,
) -> None:
    """Form memories from new messages of sessions.

    With --agent and no SESSION, processes all due sessions of the agent; a failing session does not
    stop the others. --dry-run calls the models and shows the result without storing it. --verbose
    also lists rejected items, with rule and reason, and facts in doubt.

    Messages that edenmem or the platform already read are skipped. --again repeats formations of
    edenmem, for example after an undo. Existing facts are not added twice. In a database shared
    with the platform, a named SESSION is formed even if the platform may still read it.

    \b
    edenmem form lena-progress --dry-run
    edenmem form lena-progress --again
    edenmem form --due
    """
    run = invocation(ctx)
    verbose = run.verbosity > 0
    if sessions and due:
        raise UsageError("SESSION and --due exclude each other")
    if (again or from_start) and not sessions:
        raise UsageError(
            "--again and --from-start need a SESSION",
            hint="for all idle sessions, use 'edenmem cold run --include-formed'",
        )
    if propose and not sessions:
        raise UsageError(
            "--propose needs a SESSION", hint="for all sessions: edenmem scope policy --review"
        )
    if not sessions and not due and not agent:
        raise Missing("SESSION, --due or --agent")
    agent_id = agent_id_of(run, agent)
    if sessions:
        chosen = [run.resolver.session(name) for name in sessions]
    else:
        # Oldest first, as later messages correct earlier ones.
        chosen = list(run.service.host.sessions(agent_id=agent_id))[::-1]
    forced = Trigger.PROPOSED if propose else Trigger.FORCED
    trigger = forced if sessions else Trigger.THRESHOLD
    reach = Reach.FROM_START if from_start else Reach.AGAIN if again else Reach.WAITING

    reports: list[FormationReport] = []
    failed: list[tuple[Session, Exception]] = []
    try:
        run.serve(
            lambda service: form_each(
                run,
                service,
                chosen,
                agent_id=agent_id,
                trigger=trigger,
                dry_run=dry_run,
                consolidate=consolidate,
                reach=reach,
                done=reports,
                failed=None if sessions else failed,
            ),
            llm=True,
        )
    except (EdenmemError, KeyboardInterrupt):
        if reports := _of_interest(reports, named=bool(sessions)):
            print_formations(run, reports, chosen, verbose=verbose)
        _print_failed(failed)
        raise
    reports = _of_interest(reports, named=bool(sessions))
    print_formations(run, reports, chosen, verbose=verbose)
    if sessions and not run.out.is_data:
        _print_idle(run, reports, chosen, reach)
    _print_failed(failed)
    if failed or any(report.outcome == "failed" or report.error for report in reports):
        raise typer.Exit(ExitCode.SOME_FAILED)


def _print_failed(failed: Sequence[tuple[Session, Exception]]) -> None:
    """Print failed sessions on stderr."""
    for session, error in failed:
        if isinstance(error, EdenmemError):
            print_error(f"{session.label}: {error.message}", error.hint)
        else:
            print_error(f"{session.label}: {type(error).__name__}: {error}")


def _of_interest(reports: list[FormationReport], *, named: bool) -> list[FormationReport]:
    """Return the reports to print; without named sessions, idle ones are left out."""
    idle = () if named else ("not_due", "incognito")
    return [report for report in reports if report.outcome not in idle]


async def form_each(
    run: Invocation,
    service: MemoryService,
    sessions: Sequence[Session],
    *,
    agent_id: str | None = None,
    trigger: Trigger = Trigger.FORCED,
    dry_run: bool = False,
    consolidate: bool = True,
    reach: Reach = Reach.WAITING,
    done: list[FormationReport] | None = None,
    failed: list[tuple[Session, Exception]] | None = None,
) -> list[FormationReport]:
    """Form memories from the sessions, one after another.

    Errors name their session; earlier reports are appended to ``done``. With ``failed``, failing
    sessions are appended to it and do not stop the others, except for errors that affect all
    sessions, for outages over ``cold.outage_after`` sessions in a row, and if every session failed.
    """
    reports = [] if done is None else done
    outages: list[UnavailableError] = []  # of consecutive sessions
    for session in sessions:
        run.out.progress(f"{session.label} …")
        try:
            found = await service.form_memories(
                session.id,
                agent_id=agent_id,
                trigger=trigger,
                dry_run=dry_run,
                consolidate=consolidate,
                reach=reach,
            )
        except Exception as error:  # noqa: BLE001 - reported at the end
            outages = [*outages, error] if isinstance(error, UnavailableError) else []
            is_down = len(outages) >= run.settings.cold.outage_after
            if failed is None or is_down or isinstance(error, _FOR_ALL):
                raise _naming(session, error) from None
            failed.append((session, error))
        else:
            reports += found
            outages = [] if _has_formed(found) else outages
    if failed and len(outages) == len(failed) and not _has_formed(reports):
        raise _naming(failed.pop()[0], outages[-1])
    return reports


def _naming(session: Session, error: Exception) -> Exception:
    """Add the name of the session to an error."""
    if isinstance(error, EdenmemError):
        error.message = f"{session.label}: {error.message}"
    return error


def _has_formed(reports: Sequence[FormationReport]) -> bool:
    return any(report.outcome in ("applied", "resumed", "dry_run") for report in reports)


def print_formations(
    run: Invocation,
    reports: Sequence[FormationReport],
    sessions: Sequence[Session],
    *,
    verbose: bool = False,
) -> None:
    """Print formations; ``verbose`` adds rejected items."""
    labels = Labels({session.id: session.label for session in sessions})

    columns: list[Column[FormationReport]] = [
        Column("session", lambda r: labels[r.session_id], "text"),
        Column("agent", lambda r: r.agent_id, names="account"),
        Column("outcome", lambda r: _OUTCOMES.get(r.outcome, r.outcome)),
        Column("messages", lambda r: r.messages, "number"),
        Column("facts", _facts, "number"),
        Column("reflections", lambda r: sum(r.reflections.values()), "number"),
        Column("texts", lambda r: _count_written(r) or None, "number"),
    ]
    run.out.listing(reports, columns, data=to_data, empty="nothing was due")
    if not run.out.is_data:
        _print_planned(run, reports, labels)
        for report in reports:
            if report.error:
                run.out.note(f"{labels[report.session_id]}: {report.error}")
                if report.not_before:
                    again = f"{iso(report.not_before)} ({ago(report.not_before)})"
                    run.out.note(f"  next attempt: {again}")
            if report.split_off:
                run.out.note(
                    f"{labels[report.session_id]}: formed {many(report.split_off, 'message')}"
                    " separately: all messages exceed the context of the model"
                )
            _print_shared(run, report, labels[report.session_id])
        _print_rejected(run, reports, verbose=verbose)
    _print_switched_off(run, reports, labels)
    used = [usage for report in reports for usage in report.usage]
    used += [u for report in reports for text in report.consolidations for u in text.usage]
    if used:
        run.out.note(usage_line(used))


def _print_shared(run: Invocation, report: FormationReport, label: str) -> None:
    """Print notices about messages that the platform reads too."""
    if report.read_twice:
        run.out.note(
            f"{label}: {many(report.read_twice, 'message')} also read by the platform in the"
            " meantime; memory from these alone was not stored again"
        )
    if report.left_to_platform and report.messages:
        run.out.note(
            f"{label}: the platform may also read {many(report.left_to_platform, 'message')}"
            " (see formation.former)"
        )


def _print_planned(
    run: Invocation, reports: Sequence[FormationReport], labels: Mapping[str, str]
) -> None:
    """Print the plan of a dry run, by session and agent."""
    planned = [(report, report.changes.changes) for report in reports if report.changes]
    agents = run.service.scopes.labels([report.agent_id for report, _ in planned])
    is_one_agent = len({report.agent_id for report, _ in planned}) == 1
    for report, changes in planned:
        if len(planned) > 1 and changes:
            label = labels[report.session_id]
            run.out.safe(f"{label}:" if is_one_agent else f"{label}, {agents[report.agent_id]}:")
        for change in changes:
            run.out.paragraph("  ", f"would {change_line(change)}", indent=4)


def _print_rejected(run: Invocation, reports: Sequence[FormationReport], *, verbose: bool) -> None:
    """Print counts of held and rejected items; ``verbose`` lists them, and those in doubt."""
    counts: Counter[str] = Counter()
    held = unconfirmed = 0
    for report in reports:
        counts.update(report.rejected)
        held += report.held
        unconfirmed += sum(each.is_marked for each in report.decisions)
        if verbose:
            print_judgments(run, report.decisions)
    if held:
        run.out.note(f"held for review: {many(held, 'item')}; decide: edenmem review")
    if unconfirmed:
        items = many(unconfirmed, "item")
        run.out.note(f"unconfirmed: {items}; see 'edenmem fact list --unconfirmed'")
    if counts:
        by_rule = ", ".join(f"{rule or 'other'} {count}" for rule, count in counts.most_common())
        more = "" if verbose else "; listed by --verbose and 'edenmem why'"
        run.out.note(f"rejected by rule: {by_rule}{more}")


def _print_switched_off(
    run: Invocation, reports: Sequence[FormationReport], labels: Mapping[str, str]
) -> None:
    """Note messages that count as formed although the agent's memory is off."""
    messages: dict[tuple[str, str, str], int] = {}
    for report in reports:
        if report.outcome in ("applied", "dry_run"):
            key = (report.agent_id, report.session_id, report.outcome)
            messages[key] = messages.get(key, 0) + report.messages
    for (agent_id, session_id, outcome), count in messages.items():
        agent = run.service.host.agent(agent_id)
        if agent is None or agent.user_memory_enabled or agent.agent_memory_enabled:
            continue
        label, done = labels[session_id], outcome == "applied"
        advice = f"'edenmem agent set {quote(agent.username)} --user-memory --agent-memory'"
        if done:
            again = f"'edenmem form {quote(label)} --again'"
            advice = f"to repeat: {advice}, then {again}"
        run.out.note(
            f"{label}: user and agent memory of {agent.username} are off: "
            f"{'formed' if done else 'would form'} {many(count, 'message')} without memory;"
            f" {advice}"
        )


def _print_idle(
    run: Invocation, reports: Sequence[FormationReport], sessions: Sequence[Session], reach: Reach
) -> None:
    """Print why named sessions had nothing to do."""
    labels = Labels({session.id: session.label for session in sessions})
    for report in reports:
        if report.outcome != "not_due":
            continue
        if report.by_platform:
            formed = many(report.by_platform, "message")
            why = f"the platform read {formed}; include them with --from-start"
        elif next(iter(run.service.host.messages(report.session_id, newest=1)), None) is None:
            why = "the session has no messages"
        elif reach.own:
            why = "no messages left to form"
        else:
            why = "all messages were formed; repeat with --again"
        run.out.note(f"{labels[report.session_id]}: nothing new: {why}")


def _facts(report: FormationReport) -> str:
    parts = (("+", report.facts_added), ("~", report.facts_revised), ("-", report.facts_removed))
    return " ".join(f"{sign}{count}" for sign, count in parts if count)


def _count_written(report: FormationReport) -> int:
    return sum(text.outcome == "written" for text in report.consolidations)
