"""``edenmem forget``: erase a user, session, group, agent or single facts completely."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from edenmem.cli.app import options
from edenmem.cli.app.failures import print_error
from edenmem.cli.app.invocation import Invocation, invocation
from edenmem.cli.commands.data.forgetting_views import (
    MentionReview,
    format_receipt,
    show_plan,
    show_report,
)
from edenmem.cli.terminal.files import open_report
from edenmem.cli.terminal.prompts import Missing, ask_text, confirm, person_is_there
from edenmem.engine.erasure.reports import MentionMode
from edenmem.errors import ExitCode, UsageError
from edenmem.text import many

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edenmem.engine.erasure.reports import ForgetPlan, ForgetReport, MentionDecision


_FOR_EVER = "This cannot be undone, not even with 'undo' or history. No memory will be formed from"


def forget(
    ctx: typer.Context,
    user: options.User = None,
    session: options.Session = None,
    group: options.Group = None,
    agent: options.Agent = None,
    fact: Annotated[
        list[str] | None,
        typer.Option(
            "--fact",
            metavar="FACT",
            help="Fact: ID or ID prefix (repeatable). A deleted fact needs its full ID.",
        ),
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option(
            "--name",
            metavar="NAME",
            help="Another name, or with --fact other words, in texts (repeatable).",
        ),
    ] = None,
    mentions: Annotated[
        MentionMode | None,
        typer.Option(
            "--mentions",
            metavar="HOW",
            help="Entries of others that mention the name: ask, rewrite (with the model), remove or"
            " keep.  [default: ask on a terminal, else keep]",
        ),
    ] = None,
    learned: Annotated[
        MentionMode | None,
        typer.Option(
            "--learned",
            metavar="HOW",
            help="Entries learned from the user's messages: same values and default. 'remove' keeps"
            " entries that others may have said too.",
        ),
    ] = None,
    messages: Annotated[
        bool,
        typer.Option(
            "--messages",
            help="Also remove messages and accounts, or with --fact its source messages (SQLite"
            " only).",
        ),
    ] = False,
    receipt: Annotated[
        str | None,
        typer.Option(
            "--receipt",
            metavar="FILE",
            help="Write a JSON receipt without names or contents; --force overwrites the file.",
        ),
    ] = None,
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
) -> None:
    """Erase single facts, or all memory of a user (for one agent or all), session, group or agent.

    Removes facts, reflections, texts, versions, audit contents, formation records, cached contexts,
    vectors, and memory derived from them in wider scopes. On request, also removes entries learned
    from the user's messages and mentions in memory of others. Shows the plan, asks, removes, and
    verifies that nothing is left (else exit 1). If interrupted, run the same command again.

    --fact removes facts with all copies of their texts, such as versions and log contents, and
    forms no memory from their source messages again. Other memory that contains a whole text, or a
    --name, is listed and follows --mentions.

    \b
    edenmem forget --user lena --dry-run
    edenmem forget --user lena --receipt lena.json
    edenmem forget --user lena --yes --mentions rewrite --learned remove
    edenmem forget --session first-visit --yes
    edenmem forget --agent mira
    edenmem forget --fact 65a1f0 --dry-run
    edenmem forget --fact 65a1f0 --name sk-live-42 --mentions remove --messages
    """
    from edenmem.engine.exchange.files import check_target

    run = invocation(ctx)
    if not (user or session or group or agent or fact):
        raise Missing("--user, --session, --group, --agent or --fact")
    for option, mode in (("--mentions", mentions), ("--learned", learned)):
        if mode is MentionMode.ASK and not person_is_there():
            raise UsageError(
                f"{option} ask needs a terminal",
                hint=f"use {option} keep, {option} remove or {option} rewrite",
            )
    asking = MentionMode.ASK if person_is_there() and not yes else MentionMode.KEEP
    modes = (mentions or asking, learned or asking)
    if receipt is not None:
        check_target(receipt, force=run.overwrite, in_use=run.files_in_use)
    subject = run.service.erasure.find_subject(
        user=user,
        session=session,
        group=group,
        agent=agent,
        facts=fact or (),
        names=name or (),
    )
    if messages:
        run.service.erasure.check_conversations(subject)
    if not (yes or dry_run or person_is_there()):
        confirm("", yes=False)  # names the missing option, before the plan is made
    plan = run.serve(lambda service: service.erasure.plan(subject))
    show_plan(run, plan, modes, messages=messages, to_data_too=dry_run)
    if plan.begun_at is not None:
        run.out.note("resuming an interrupted run")
    if dry_run:
        return
    deciding = MentionReview(run, plan)
    decisions = deciding.decide(*modes)
    if not _confirm(run, plan, yes=yes):
        run.out.note("nothing was changed")
        return
    with open_report(receipt, force=run.overwrite, in_use=run.files_in_use) as write:
        report = _carry_out(run, plan, decisions, messages=messages, failed=deciding.failed)
        write(format_receipt(report))
    show_report(run, report)
    if report.mentions["kept"]:
        run.out.note(_describe_kept(report))
    for left in report.unfinished:
        print_error(left, "run the same command again")
    if not report.complete:
        raise typer.Exit(ExitCode.SOME_FAILED)


def _describe_kept(report: ForgetReport) -> str:
    number = report.mentions["kept"]
    if report.subject.kind == "fact":
        kept = many(number, "entry that repeats a text", "entries that repeat a text")
        return f"kept {kept} or mentions a name; see --mentions"
    kept = many(
        number,
        "entry that mentions the user or was learned",
        "entries that mention the user or were learned",
    )
    return f"kept {kept} from their messages; see --mentions and --learned"


def _confirm(run: Invocation, plan: ForgetPlan, *, yes: bool) -> bool:
    of_fact = plan.subject.kind == "fact"
    run.out.note(f"{_FOR_EVER} {'the source messages' if of_fact else 'existing messages'}.")
    if plan.subject.kind != "agent" or yes:
        return confirm("Erase all this?", yes=yes)
    agent = run.service.host.agent(plan.subject.agent_id or "")
    wanted = agent.username if agent is not None else plan.subject.agent_id
    return ask_text(f"to erase the agent, type its name ({wanted})", "--yes") == wanted


def _carry_out(
    run: Invocation,
    plan: ForgetPlan,
    decisions: Sequence[MentionDecision],
    *,
    messages: bool,
    failed: Sequence[str],
) -> ForgetReport:
    run.out.progress("erasing; if interrupted, run the same command again")
    return run.serve(
        lambda service: service.erasure.forget(plan, decisions, messages=messages, failed=failed)
    )
