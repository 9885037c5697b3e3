"""``edenmem remember``: extract facts from any text."""

from __future__ import annotations

from typing import Annotated

import typer

from edenmem.cli.app import options
from edenmem.cli.app.choosing import choose_agent
from edenmem.cli.app.invocation import invocation
from edenmem.cli.app.views import describe_doubt, print_judgments, usage_line
from edenmem.cli.terminal.editing import read_text_option
from edenmem.cli.terminal.prompts import ask_text
from edenmem.cli.terminal.tables import Column
from edenmem.errors import UsageError
from edenmem.models.formation import Decision

#: Decision → outcome, and outcome of a dry run.
_OUTCOMES = {
    "ADD": ("added", "add"),
    "UPDATE": ("revised", "revise"),
    "DELETE": ("replaced", "replace"),
    "NONE": ("known", "known"),
    "HELD": ("held", "hold"),
    "REJECTED": ("rejected", "reject"),
}


def remember(
    ctx: typer.Context,
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

    run = invocation(ctx)
    texts = text or []
    if len(texts) > 1:
        raise UsageError(f"too many texts: {len(texts)} (at most 1)", hint="put the text in quotes")
    if texts and file is not None:
        raise UsageError("TEXT and --file exclude each other")
    chosen = choose_agent(run, agent)
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
        Column[Decision]("outcome", lambda each: _OUTCOMES[each.action][dry_run]),
        Column[Decision]("fact", lambda each: each.content, "text"),
        Column[Decision]("why", _explain, "text"),
    ]
    run.out.listing(report.decisions, columns, empty="no facts found", header=Decision)
    if not run.out.is_data:
        print_judgments(run, report.decisions)
    if report.usage:
        run.out.note(usage_line(report.usage))


def _explain(decision: Decision) -> str | None:
    """Return a short reason; the full reason of a rejection is below the table."""
    if decision.action == "REJECTED":
        return decision.rule or None
    return describe_doubt(decision.unconfirmed) or decision.explanation or None
