"""``edenmem session``: the conversations that memory is formed from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import typer

from edenmem.cli.app import options
from edenmem.cli.app.choosing import agent_id_of
from edenmem.cli.app.framework import Command, group
from edenmem.cli.app.invocation import Invocation, invocation
from edenmem.cli.terminal.data import to_data
from edenmem.cli.terminal.files import file_name, lines_of
from edenmem.cli.terminal.tables import Column
from edenmem.cli.terminal.times import iso
from edenmem.engine.reports import ImportReport
from edenmem.errors import ExitCode, line_place
from edenmem.models.formation import Reading
from edenmem.models.host import Session
from edenmem.models.ids import derived_id
from edenmem.text import many

app = group("List, show and import sessions.")


@app.command("list", cls=Command)
def list_sessions(
    ctx: typer.Context,
    agent: options.Agent = None,
    user: options.User = None,
    group: options.Group = None,
    limit: options.Limit = 50,
) -> None:
    """List sessions, latest activity first.

    \b
    edenmem session list --agent mira --user lena
    """
    run = invocation(ctx)
    sessions = run.service.host.sessions(
        agent_id=agent_id_of(run, agent),
        user_id=run.resolver.user(user).id if user else None,
        group_id=group,
        limit=options.fetch(limit),
    )
    run.out.listing(sessions, _columns(run), limit=limit, empty="no sessions", header=Session)


def _columns(run: Invocation) -> Any:
    def columns(sessions: Sequence[Session]) -> list[Column[Session]]:
        accounts = run.service.scopes.labels([id for s in sessions for id in (*s.agents, *s.users)])
        return [
            Column("id", lambda s: s.id, "id"),
            Column("name", lambda s: s.name or s.title, "name"),
            Column("agents", lambda s: ", ".join(accounts[id] for id in s.agents)),
            Column("users", lambda s: ", ".join(accounts[id] for id in s.users), "text"),
            Column("group", lambda s: s.group_id),
            Column("last", lambda s: s.last_activity, "time"),
            Column("state", _state, "state"),
        ]

    return columns


def _state(session: Session) -> str:
    """Return what keeps a session out of a cold run, or how edenmem came to store it."""
    if session.incognito:
        return "incognito"
    if session.imported:
        return _origin(session)
    return "" if session.status == "active" else session.status


def _origin(session: Session) -> str:
    """Return "chat" for a session of 'edenmem serve', else "imported".

    A chat has no title, and the ID of an import is derived from its name.
    """
    is_named = session.name is not None and session.id == derived_id("session", session.name)
    return "imported" if is_named or session.title else "chat"


@app.command("show", cls=Command)
def show(
    ctx: typer.Context,
    session: Annotated[
        str, typer.Argument(metavar="SESSION", help="Name, title, ID, or ID prefix.")
    ],
    limit: options.Limit = 20,
) -> None:
    """Show a session and its newest messages.

    \b
    edenmem session show lena-first-visit --limit 0
    """
    run = invocation(ctx)
    found = run.resolver.session(session)
    messages = list(run.service.host.messages(found.id, newest=options.fetch(limit)))
    cut = limit and len(messages) > limit
    messages = messages[-limit:] if limit else messages
    accounts = run.service.scopes.labels([*found.agents, *found.users])
    readings = run.service.cold.readings(found)
    run.out.record(
        found,
        [
            ("id", found.id),
            ("name", found.name),
            ("title", found.title),
            ("agents", [accounts[id] for id in found.agents]),
            ("users", [accounts[id] for id in found.users]),
            ("group", found.group_id),
            ("status", found.status),
            ("origin", _origin(found) if found.imported else None),
            ("incognito", found.incognito or None),
            ("last activity", found.last_activity),
            *_list_readings(readings, accounts),
        ],
        data=lambda one: (
            to_data(one)
            | {
                "messages": [to_data(message) for message in messages],
                "readings": [to_data(reading) for reading in readings],
            }
        ),
    )
    if not run.out.is_data:
        for message in messages:
            run.out.line()
            run.out.passage(
                f"{message.name or message.role} ({message.role}, {iso(message.created_at)})",
                message.content,
            )
    if cut:
        run.out.note(f"showing the newest {many(limit, 'message')}; --limit 0 shows all")


def _list_readings(
    readings: Sequence[Reading], accounts: Mapping[str, str]
) -> list[tuple[str, object]]:
    """Return the fields about messages read by neither edenmem nor the platform, or by both."""

    def counts(of: Callable[[Reading], int]) -> list[str]:
        counted = [reading for reading in readings if of(reading)]
        return [f"{many(of(each), 'message')} for {accounts[each.agent_id]}" for each in counted]

    return [
        ("passed unread", counts(lambda reading: reading.unread)),
        ("read twice", counts(lambda reading: reading.twice)),
    ]


@app.command("import", cls=Command)
def import_(
    ctx: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="JSON Lines (- = stdin).")],
    skip_bad: Annotated[
        bool,
        typer.Option("--skip-bad", help="Import the valid lines only (exit 1)."),
    ] = False,
    add_missing: Annotated[
        bool, typer.Option("--add-missing", help="Add unknown agents and users.")
    ] = False,
    owner: Annotated[
        str | None,
        typer.Option("--owner", metavar="USER", help="Owner of added agents and sessions."),
    ] = None,
    dry_run: options.DryRun = False,
) -> None:
    """Import sessions, one per line. Importing again adds only new sessions and messages.

    \b
    {"session": "first-visit", "agent": "mira", "users": ["lena"], "messages":
     [{"role": "user", "name": "lena", "content": "Hi!",
       "created_at": "2026-11-02T09:14:00Z"}]}

    \b
    edenmem session import sessions.jsonl --add-missing
    """
    run = invocation(ctx)
    with lines_of(file) as lines:
        report = run.service.sessions.import_lines(
            lines,
            skip_bad=skip_bad,
            add_missing=add_missing,
            dry_run=dry_run,
            owner=owner,
        )
    print_import(run, report, file, dry_run=dry_run)
    if report.problems:
        raise typer.Exit(ExitCode.SOME_FAILED)


def print_import(
    run: Invocation, report: ImportReport, file: str, *, dry_run: bool = False
) -> None:
    """Print the result of an import; invalid lines go to stderr."""
    for number, problem in report.problems:
        run.out.note(f"{line_place(number, file_name(file))}: {problem}")
    if kept := report.owners_kept:
        run.out.note(f"owners of {many(kept, 'existing session')} left unchanged")

    def show() -> None:
        run.out.line(
            f"{'would import' if dry_run else 'imported'} {report.new_sessions} of "
            f"{many(report.sessions, 'session')}, {report.new_messages} of"
            f" {many(report.messages, 'message')}"
        )
        for what, added in (("agents", report.agents_added), ("users", report.users_added)):
            if added:
                run.out.fields([(f"  {what} added", list(added))])

    run.out.report([report], show, data=lambda one: to_data(one) | {"dry_run": dry_run})
