"""``edenmem person``: what is stored about a person, and their right to have it erased."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from edenmem.cli.app import options
from edenmem.cli.app.framework import Command, group
from edenmem.cli.app.invocation import Invocation, invocation
from edenmem.cli.app.told import describe_told
from edenmem.cli.commands.data.forget import (
    COUNTS,
    Learned,
    Mentions,
    Messages,
    Names,
    ReceiptFile,
    forget,
    mention_columns,
)
from edenmem.cli.terminal.data import to_data
from edenmem.engine.erasure.reports import MentionMode
from edenmem.text import many

if TYPE_CHECKING:
    from edenmem.engine.erasure.person import PersonData

app = group("Show, export and erase everything about a person.")

_Name = Annotated[str, typer.Argument(metavar="NAME", help="Username, ID or ID prefix.")]


def _gather(
    run: Invocation, user: str, agent: str | None, names: Sequence[str] | None
) -> PersonData:
    erasure = run.service.erasure
    subject = erasure.find_subject(user=user, agent=agent, names=names or ())
    return erasure.gather(run.serve(lambda service: service.erasure.plan(subject)))


@app.command("show", cls=Command)
def show(ctx: typer.Context, user: _Name, agent: options.Agent = None, name: Names = None) -> None:
    """List what is stored about a person: own memory, memory elsewhere, messages, backups.

    \b
    edenmem person show lena
    """
    run = invocation(ctx)
    data = _gather(run, user, agent, name)
    run.out.one(data, lambda: _show(run, data))


def _show(run: Invocation, data: PersonData) -> None:
    out = run.out
    out.heading(f"Stored about {data.names[0] if data.names else 'the person'}")
    out.fields(
        [
            ("accounts", [f"{each.username} ({each.id})" for each in data.accounts]),
            ("names", list(data.names)),
            ("sessions", [each.label for each in data.sessions]),
            ("told", describe_told(run, data.told) if data.told else None),
            ("replies", f"{data.replies:,} noted" if data.replies else None),
            ("backups", list(data.backups)),
        ]
    )
    out.listing(list(data.counts.items()), COUNTS, empty="no memory of their own")
    if data.mentions:
        out.line()
        out.heading(f"{many(len(data.mentions), 'entry', 'entries')} elsewhere")
        keep = (MentionMode.KEEP, MentionMode.KEEP)
        out.listing(
            data.mentions, [each for each in mention_columns(keep) if each.title != "action"]
        )
    out.line()
    for what in data.stays:
        out.paragraph("not listed: ", what)


@app.command("export", cls=Command)
def export(
    ctx: typer.Context, user: _Name, agent: options.Agent = None, name: Names = None
) -> None:
    """Write what is stored about a person: as a readable document, or completely with --json.

    \b
    edenmem person export lena -o lena.md
    edenmem person export lena --json -o lena.json
    """
    run = invocation(ctx)
    data = _gather(run, user, agent, name)
    if run.out.is_data:
        run.out.one(data, lambda: None, data=to_data)
    else:
        run.out.document(run.service.erasure.to_markdown(data))


@app.command("forget", cls=Command)
def forget_person(
    ctx: typer.Context,
    user: _Name,
    agent: options.Agent = None,
    name: Names = None,
    mentions: Mentions = None,
    learned: Learned = None,
    messages: Messages = False,
    receipt: ReceiptFile = None,
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
) -> None:
    """Erase a person, like 'edenmem forget --user'.

    \b
    edenmem person forget lena --receipt lena-receipt.json
    """
    forget(
        ctx,
        user=user,
        agent=agent,
        name=name,
        mentions=mentions,
        learned=learned,
        messages=messages,
        receipt=receipt,
        yes=yes,
        dry_run=dry_run,
    )
