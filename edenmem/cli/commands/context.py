"""``edenmem context``: the context that goes into an agent's prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from edenmem.cli.app import options
from edenmem.cli.app.invocation import Invocation
from edenmem.cli.app.views import describe_reply
from edenmem.cli.terminal.prompts import ask_text
from edenmem.cli.terminal.tables import Column, plain_table
from edenmem.engine.reports import ContextPart
from edenmem.errors import UsageError
from edenmem.models.ids import is_id
from edenmem.text import ago, many

if TYPE_CHECKING:
    from edenmem.engine.context.told import ToldContext


Recall = Literal["off", "heuristic", "llm", "always"]


def context(
    run: Invocation,
    name: Annotated[
        str | None, typer.Argument(metavar="[SESSION]", help="Name, title, ID, or ID prefix.")
    ] = None,
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
    moment = options.parse_when(as_of, "--as-of")
    wanted = name or ask_text("session", "SESSION")
    options.needs({"--reply": reply}, "--as-told", as_told)
    if as_told:
        if agent or user or message or recall or as_of or refresh:
            raise UsageError("--as-told can be combined with --reply only")
        # The session of a noted reply need not be stored.
        session_id = wanted if is_id(wanted) else run.resolver.session(wanted).id
        told = run.service.told
        _print_told(run, told.as_told(told.find(session_id, reply or "1")))
        return
    found = run.resolver.session(wanted)
    report = run.serve(
        lambda service: service.assemble_context(
            found.id,
            agent_id=options.agent_id_of(run, agent),
            user_id=run.resolver.user(user).id if user else None,
            message=message,
            recall=recall,
            force_refresh=refresh,
            as_of=moment,
            keep=False,
            told=False,
        ),
        llm=recall != "off",
    )
    if agent is None and len(found.agents) > 1:
        known = run.service.scopes.labels(found.agents)
        there = [known[agent_id] for agent_id in found.agents if agent_id in known]
        if len(there) > 1:
            run.out.note(f"showing {there[0]}; choose with --agent: {', '.join(there)}")
    if run.out.datum(report):
        return
    run.out.document(report.xml)
    total = ContextPart(
        name="total",
        words=sum(part.words for part in report.parts),
        tokens=sum(part.tokens for part in report.parts),
    )
    run.out.notes(plain_table(_PARTS, [*report.parts, total]))
    recalled = f", recall: {report.explanation}" if report.recall != "off" else ""
    run.out.note(f"{'from the cache' if report.cached else 'built now'}{recalled}")


_PARTS: list[Column[ContextPart]] = [
    Column("part", lambda part: part.name),
    Column("words", lambda part: part.words, "number"),
    Column("tokens", lambda part: part.tokens, "number"),
]
#: Maximum number of changed items of a reply to print.
_SHOWN = 20


def _print_told(run: Invocation, told: ToldContext) -> None:
    """Print a context as an agent saw it; its time and later changes go to stderr."""
    out, reply, items = run.out, told.reply, told.items
    if out.datum(told):
        return
    out.document(told.context)
    out.note(f"told {ago(reply.at)}, {reply.kind}, {describe_reply(run, reply)}: reply {reply.id}")
    others = [item for item in items if item.state != "same"]
    for item in others[:_SHOWN]:
        now = f", now version {item.version_now}" if item.version_now else ""
        what = f"{item.kind} {item.id}".strip()
        out.note(f"{what}: version {item.version}, {item.state} since{now}")
    out.note(f"{many(len(items), 'item')}, {len(items) - len(others)} unchanged since")
