"""``edenmem context``: the context that goes into an agent's prompt."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from edenmem.cli.app import options
from edenmem.cli.app.choosing import agent_id_of
from edenmem.cli.app.invocation import Invocation, invocation
from edenmem.cli.app.told import print_told
from edenmem.cli.terminal.prompts import ask_text
from edenmem.cli.terminal.tables import Column, plain_table
from edenmem.cli.terminal.times import parse_when
from edenmem.engine.reports import ContextPart, ContextReport
from edenmem.errors import UsageError
from edenmem.models.host import Session
from edenmem.models.ids import is_id
from edenmem.models.told import Reply


class Recall(StrEnum):
    """When to search facts for a message."""

    OFF = "off"
    HEURISTIC = "heuristic"
    LLM = "llm"
    ALWAYS = "always"


def context(
    ctx: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="[SESSION]", help="Name, title, ID, or ID prefix.")
    ] = None,
    session: options.Session = None,
    agent: options.Agent = None,
    user: options.User = None,
    message: Annotated[
        str | None, typer.Option("--message", metavar="TEXT", help="The message to answer.")
    ] = None,
    recall: Annotated[
        Recall | None,
        typer.Option(
            "--recall",
            metavar="MODE",
            help="When to search facts for the message: off, heuristic, llm or always.",
        ),
    ] = None,
    as_of: Annotated[
        str | None,
        typer.Option(
            "--as-of",
            metavar="TIME",
            help="Show the context of an earlier time: 2025-03-01T14:30, 7d.",
        ),
    ] = None,
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Rebuild the context instead of reading the cache.")
    ] = False,
    as_told: Annotated[
        bool, typer.Option("--as-told", help="Show what the agent was given for a reply.")
    ] = False,
    reply: Annotated[
        str | None,
        typer.Option(
            "--reply", metavar="REPLY", help="With --as-told: N-th newest reply, ID, or ID prefix."
        ),
    ] = None,
) -> None:
    """Print the context of a session as XML; sizes go to stderr.

    Never writes the cache that agents are served from.

    \b
    edenmem context lena-progress
    edenmem context lena-progress --message "Which paste?" --recall always
    edenmem context lena-progress --as-of 2d --format json
    edenmem context --as-told lena-progress --reply 2
    """
    run = invocation(ctx)
    if name and session and name != session:
        raise UsageError("session given twice: as SESSION and with --session")
    moment = parse_when(as_of, "--as-of")
    wanted = name or session or ask_text("session", "SESSION or --session")
    if reply and not as_told:
        raise UsageError("--reply requires --as-told")
    if as_told:
        if agent or user or message or recall or as_of or refresh:
            raise UsageError("--as-told can be combined with --reply only")
        print_told(run, run.service.told.as_told(_find_reply(run, wanted, reply or "1")))
        return
    found = run.resolver.session(wanted)
    report = run.serve(
        lambda service: service.assemble_context(
            found.id,
            agent_id=agent_id_of(run, agent),
            user_id=run.resolver.user(user).id if user else None,
            message=message,
            recall=recall.value if recall else None,
            force_refresh=refresh,
            as_of=moment,
            keep=False,
            told=False,
        ),
        llm=recall is not Recall.OFF,
    )
    if agent is None and len(found.agents) > 1:
        _note_agent(run, found)
    print_context(run, report)


def _find_reply(run: Invocation, session: str, reply: str) -> Reply:
    """Return a reply of a session, which need not be stored."""
    session_id = session if is_id(session) else run.resolver.session(session).id
    return run.service.told.find(session_id, reply)


def _note_agent(run: Invocation, session: Session) -> None:
    known = run.service.scopes.labels(session.agents)
    there = [known[agent_id] for agent_id in session.agents if agent_id in known]
    if len(there) > 1:
        run.out.note(f"showing {there[0]}; choose with --agent: {', '.join(there)}")


def print_context(run: Invocation, report: ContextReport) -> None:
    """Print a context: XML on stdout, sizes of its parts on stderr."""
    run.out.one(report, lambda: _show_context(run, report))


def _show_context(run: Invocation, report: ContextReport) -> None:
    run.out.document(report.xml)
    for line in plain_table(_PARTS, [*report.parts, _total(report)], 80):
        run.out.note(line)
    recalled = f", recall: {report.explanation}" if report.recall != "off" else ""
    run.out.note(f"{'from the cache' if report.cached else 'built now'}{recalled}")


def _total(report: ContextReport) -> ContextPart:
    return ContextPart(
        name="total",
        words=sum(part.words for part in report.parts),
        tokens=sum(part.tokens for part in report.parts),
    )


_PARTS: list[Column[ContextPart]] = [
    Column("part", lambda part: part.name),
    Column("words", lambda part: part.words, "number"),
    Column("tokens", lambda part: part.tokens, "number"),
]
