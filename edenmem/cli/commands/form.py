"""``edenmem form|remember|consolidate``: form memories, and merge reflections into texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from edenmem.cli.app import options
from edenmem.cli.app.failures import print_error
from edenmem.cli.app.invocation import Invocation, end_if
from edenmem.cli.app.views import (
    change_line,
    facts_changed,
    note_undo_last,
    print_judgments,
    usage_line,
)
from edenmem.cli.commands.cold import run_once
from edenmem.cli.terminal.editing import read_text_option, show_diff
from edenmem.cli.terminal.output import show_progress
from edenmem.cli.terminal.prompts import Missing, ask_text
from edenmem.cli.terminal.tables import Column
from edenmem.engine.reports import ConsolidationReport, FormationReport
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
from edenmem.models.formation import HELD, Decision, Reach, Trigger
from edenmem.models.host import Session
from edenmem.models.memory import describe_doubt
from edenmem.models.scope import ScopeKind
from edenmem.text import ago, iso, many, one_line

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
#: Outcomes of sessions that are idle.
_IDLE = ("not_due", "incognito")


def form(
    run: Invocation,
    sessions: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SESSION]…", help="Sessions to process, even if not due."),
    ] = None,
    agent: options.Agent = None,
    due: Annotated[bool, typer.Option("--due", help="Process all sessions that are due.")] = False,
    idle: Annotated[
        bool, typer.Option("--idle", help="Process all idle sessions, like 'edenmem cold run'.")
    ] = False,
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
    stop the others. --dry-run calls the models and shows the result without storing it; with
    --idle, it calls no model and lists the sessions. --verbose also lists rejected items, with rule
    and reason, and facts in doubt.

    Messages that edenmem or the platform already read are skipped. --again repeats formations of
    edenmem, for example after an undo. Existing facts are not added twice. In a database shared
    with the platform, a named SESSION is formed even if the platform may still read it.

    \b
    edenmem form lena-progress --dry-run
    edenmem form lena-progress --again
    edenmem form --due
    edenmem form --idle --dry-run
    """
    options.exclusive({"SESSION": sessions, "--due": due, "--idle": idle})
    options.exclusive({"--idle": idle, "--no-consolidate": not consolidate})
    for_all = "for all idle sessions, use 'edenmem cold run --include-formed'"
    options.needs({"--again": again, "--from-start": from_start}, "a SESSION", sessions, for_all)
    for_all = "for all sessions: edenmem scope policy --review"
    options.needs({"--propose": propose}, "a SESSION", sessions, for_all)
    if not (sessions or due or idle or agent):
        raise Missing("SESSION, --due, --idle or --agent")
    agent_id = options.agent_id_of(run, agent)
    if idle:
        from edenmem.engine.cold.runner import ColdOptions

        code = run_once(run, ColdOptions(agent_id=agent_id, dry_run=dry_run))
        end_if(code, code or ExitCode.OK)
        return
    if sessions:
        chosen = [run.resolver.session(name) for name in sessions]
        trigger = Trigger.PROPOSED if propose else Trigger.FORCED
    else:
        # Oldest first, as later messages correct earlier ones.
        chosen = list(run.service.host.sessions(agent_id=agent_id))[::-1]
        trigger = Trigger.THRESHOLD
    reach = Reach.FROM_START if from_start else Reach.AGAIN if again else Reach.WAITING
    made: list[FormationReport] = []
    failed: list[tuple[Session, Exception]] = []
    under_way: list[Session] = []
    is_broken = True

    async def form_all(service: MemoryService) -> None:
        """Form memories from the sessions, one after another.

        Errors name their session, and end the work if the session was named. Otherwise failing
        sessions stop no others, except for errors that affect all sessions, for outages over
        ``cold.outage_after`` sessions in a row, and if every session failed.
        """
        outages: list[UnavailableError] = []  # of consecutive sessions
        for session in chosen:
            under_way.append(session)
            show_step("reading")
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
                if sessions or is_down or isinstance(error, _FOR_ALL):
                    raise _naming(session, error) from None
                failed.append((session, error))
            else:
                made.extend(found)
                outages = [] if _has_formed(found) else outages
        if failed and len(outages) == len(failed) and not _has_formed(made):
            raise _naming(failed.pop()[0], outages[-1])

    def show_step(task: str) -> None:
        label = one_line(under_way[-1].label, 30)
        progress.say(f"{label}: {task}", len(under_way) - 1, len(chosen))

    def show() -> list[FormationReport]:
        """Print what was done; without named sessions, idle ones are left out."""
        reports = [each for each in made if sessions or each.outcome not in _IDLE]
        if reports or not is_broken:
            _print_formations(run, reports, chosen, verbose=run.verbosity > 0)
        if sessions and not (is_broken or run.out.is_data):
            _print_idle(run, reports, chosen, reach)
        for session, error in failed:
            if isinstance(error, EdenmemError):
                print_error(f"{session.label}: {error.message}", error.hint)
            else:
                print_error(f"{session.label}: {type(error).__name__}: {error}")
        return reports

    try:
        with show_progress(run.out) as progress:
            run.serve(form_all, llm=True, asking=show_step)
        is_broken = False
    finally:
        reports = show()
    end_if(failed or any(report.outcome == "failed" or report.error for report in reports))


def _naming(session: Session, error: Exception) -> Exception:
    """Add the name of the session to an error."""
    if isinstance(error, EdenmemError):
        error.message = f"{session.label}: {error.message}"
    return error


def _has_formed(reports: Sequence[FormationReport]) -> bool:
    return any(report.outcome in ("applied", "resumed", "dry_run") for report in reports)


def _print_formations(
    run: Invocation,
    reports: Sequence[FormationReport],
    sessions: Sequence[Session],
    *,
    verbose: bool,
) -> None:
    """Print formations; ``verbose`` adds rejected items."""
    labels = Labels({session.id: session.label for session in sessions})
    columns: list[Column[FormationReport]] = [
        Column("session", lambda r: labels[r.session_id], "text"),
        Column("agent", lambda r: r.agent_id, names="account"),
        Column("outcome", lambda r: _OUTCOMES.get(r.outcome, r.outcome)),
        Column("messages", lambda r: r.messages, "number"),
        Column("facts", facts_changed, "number"),
        Column("reflections", lambda r: sum(r.reflections.values()), "number"),
        Column(
            "texts",
            lambda r: sum(text.outcome == "written" for text in r.consolidations) or None,
            "number",
        ),
    ]
    run.out.listing(reports, columns, empty="nothing was due")
    if not run.out.is_data:
        _print_planned(run, reports, labels)
        for report in reports:
            run.out.notes(_notes(report, labels[report.session_id]))
        _print_rejected(run, reports, verbose=verbose)
    _print_switched_off(run, reports, labels)
    used = [usage for report in reports for usage in report.usage]
    used += [u for report in reports for text in report.consolidations for u in text.usage]
    if used:
        run.out.note(usage_line(used))
    done = [report for report in reports if report.outcome in ("applied", "resumed")]
    note_undo_last(run, any(facts_changed(each) or each.reflections for each in done))


def _notes(report: FormationReport, label: str) -> Iterator[str]:
    """Describe an error, and messages that were split off or that the platform reads too."""
    if report.error:
        yield f"{label}: {report.error}"
        if report.not_before:
            yield f"  next attempt: {iso(report.not_before)} ({ago(report.not_before)})"
    if report.split_off:
        yield (
            f"{label}: formed {many(report.split_off, 'message')} separately: all messages exceed"
            " the context of the model"
        )
    if report.read_twice:
        yield (
            f"{label}: {many(report.read_twice, 'message')} also read by the platform in the"
            " meantime; memory from these alone was not stored again"
        )
    if report.left_to_platform and report.messages:
        yield (
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
    counts = sum((Counter(report.rejected) for report in reports), Counter[str]())
    for report in reports if verbose else ():
        print_judgments(run, report.decisions)
    held = sum(report.held for report in reports)
    doubtful = sum(each.is_marked for report in reports for each in report.decisions)
    unconfirmed = many(doubtful, "item")
    by_rule = ", ".join(f"{rule or 'other'} {count}" for rule, count in counts.most_common())
    more = "" if verbose else "; listed by --verbose and 'edenmem why'"
    run.out.notes(
        [
            f"held for review: {many(held, 'item')}; decide: edenmem review" if held else "",
            f"unconfirmed: {unconfirmed}; see 'edenmem fact list --unconfirmed'"
            if doubtful
            else "",
            f"rejected by rule: {by_rule}{more}" if counts else "",
        ]
    )


def _print_switched_off(
    run: Invocation, reports: Sequence[FormationReport], labels: Mapping[str, str]
) -> None:
    """Note messages that count as formed although the agent's memory is off."""
    messages = Counter[tuple[str, str, str]]()
    for report in reports:
        if report.outcome in ("applied", "dry_run"):
            messages[report.agent_id, report.session_id, report.outcome] += report.messages
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


# -- any text ------------------------------------------------------------------------------------

#: Decision → outcome, and outcome of a dry run.
_DECISIONS = {
    "ADD": ("added", "add"),
    "UPDATE": ("revised", "revise"),
    "DELETE": ("replaced", "replace"),
    "NONE": ("known", "known"),
    "HELD": ("held", "hold"),
    "REJECTED": ("rejected", "reject"),
}


def remember(
    run: Invocation,
    text: Annotated[
        list[str] | None, typer.Argument(metavar="[TEXT]", help="Text to remember (- = stdin).")
    ] = None,
    agent: options.Agent = None,
    user: options.User = None,
    file: options.File = None,
    dry_run: options.DryRun = False,
) -> None:
    """Extract facts from a text, and store the new ones.

    A model extracts facts, which are checked and compared with known facts. With --user, the text
    counts as a message of that user; otherwise facts go to the memory of the agent and its shards.
    To store a fact verbatim without a model, use 'edenmem fact add'.

    \b
    edenmem remember "The hall opens at 9 on Saturdays." --agent mira
    edenmem remember --agent mira --user lena --file notes.txt --dry-run
    """
    from edenmem.engine.factory import has_llm
    from edenmem.engine.formation.notes import STORE_UNCHANGED, demand_text
    from edenmem.engine.runtime.runtime import no_llm

    texts = text or []
    if len(texts) > 1:
        raise UsageError(f"too many texts: {len(texts)} (at most 1)", hint="put the text in quotes")
    options.exclusive({"TEXT": texts, "--file": file})
    chosen = options.choose_agent(run, agent)
    account = run.resolver.user(user) if user else None
    given = read_text_option(texts[0] if texts else None, file)
    if given is None:
        if not has_llm(run.settings):
            raise no_llm(otherwise=STORE_UNCHANGED)
        given = ask_text("text to remember", "TEXT or --file", hint="TEXT - reads from stdin")
    demand_text(given)
    report = run.serve(
        lambda service: service.remember(
            given, agent_id=chosen.id, user_id=account.id if account else None, dry_run=dry_run
        ),
        llm=True,
    )
    columns = [
        Column[Decision]("outcome", lambda each: _DECISIONS[each.action][dry_run]),
        Column[Decision]("fact", lambda each: each.content, "text"),
        Column[Decision]("why", _explain, "text"),
    ]
    run.out.listing(report.decisions, columns, empty="no facts found", header=Decision)
    if not run.out.is_data:
        print_judgments(run, report.decisions)
    if report.usage:
        run.out.note(usage_line(report.usage))
    stored = ("ADD", "UPDATE", "DELETE", HELD)
    note_undo_last(run, not dry_run and any(each.action in stored for each in report.decisions))


def _explain(decision: Decision) -> str | None:
    """Return a short reason; the full reason of a rejection is below the table."""
    if decision.action == "REJECTED":
        return decision.rule or None
    return describe_doubt(decision.unconfirmed) or decision.explanation or None


# -- consolidate ---------------------------------------------------------------------------------


def consolidate(
    run: Invocation,
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

    With --dry-run the model is asked too, and nothing is written; 'scope list' shows what is
    pending.

    \b
    edenmem consolidate
    edenmem consolidate --agent mira --scope user --dry-run
    edenmem consolidate --agent mira --user lena --force
    """
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
            for note in _describe_text(report, verbose=run.verbosity > 0)
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


def _describe_text(report: ConsolidationReport, *, verbose: bool) -> list[str]:
    """Describe a failure, what the check of a draft changed, and the propagation."""
    is_long = report.outcome == "written" and report.words > report.word_limit
    dropped = f"dropped {many(len(report.dropped), 'line')} of the model; list them with --verbose"
    lines = [f"dropped: {each.content or 'a line'} ({each.reason})" for each in report.dropped]
    rejected = [each.reason for each in report.propagation if each.action == "REJECTED"]
    notes = [
        report.error or "",
        f"{report.words:,} words, over the limit of {report.word_limit:,}" if is_long else "",
        *(lines if verbose or not lines else [dropped]),
        *(f"put back a fixed sentence: {sentence}" for sentence in report.restored),
        *(
            f'"{each.reflection}" contradicts "{each.fixed}", fixed by {each.by}'
            for each in report.conflicts
        ),
        "the platform may be writing this text; retried after 15 minutes"
        if report.outcome == "waiting"
        else "",
        f"propagated {many(report.propagated, 'reflection')}" if report.propagated else "",
        *(f"not propagated: {reason}" for reason in rejected),
        f"propagation will be retried: {report.propagation_error}"
        if report.propagation_error
        else "",
    ]
    return list(filter(None, notes))
