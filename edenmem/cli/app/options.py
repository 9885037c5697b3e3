"""Every option that more than one command has, defined once."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from edenmem.cli.app.parameters import OptionGroup
from edenmem.cli.terminal.times import parse_when
from edenmem.errors import UsageError
from edenmem.models.ids import is_id, new_id
from edenmem.models.scope import ScopeKind
from edenmem.text import clean, normalize_name

Agent = Annotated[
    str | None,
    typer.Option(
        "--agent", "-a", metavar="AGENT", help="The agent: username, id or its beginning."
    ),
]
User = Annotated[
    str | None,
    typer.Option(
        "--user", "-u", metavar="USER", help="The user, by any account: username, ID or ID prefix."
    ),
]
Account = Annotated[
    str | None,
    typer.Option(
        "--account",
        metavar="ACCOUNT",
        help="Only this one of the user's accounts: username, ID or ID prefix.",
    ),
]
Group = Annotated[
    str | None, typer.Option("--group", "-g", metavar="GROUP", help="The id of a group.")
]
#: More than any store holds, and few enough for every store to count to.
_MOST = 2**31 - 2

Shard = Annotated[
    str | None,
    typer.Option("--shard", "-d", metavar="NAME", help="The name of a shard of the agent."),
]
Session = Annotated[
    str | None,
    typer.Option("--session", "-e", metavar="SESSION", help="The session: name, ID or ID prefix."),
]
Kind = Annotated[
    ScopeKind | None,
    typer.Option(
        "--scope",
        "-s",
        metavar="KIND",
        help="The kind of scope: agent, shard, group, user, session.",
    ),
]
Kinds = Annotated[
    list[ScopeKind] | None,
    typer.Option("--scope", "-s", metavar="KIND", help="Only this kind of scope; may be repeated."),
]
Limit = Annotated[
    int,
    typer.Option(
        "--limit",
        "-n",
        min=0,
        metavar="N",
        help="Maximum number of results (0 = no limit).",
        callback=lambda given: min(given, _MOST),
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show what would happen, and change nothing.")
]
Reason = Annotated[
    str, typer.Option("--reason", metavar="TEXT", help="Why; kept in the audit entry.")
]
Vectors = Annotated[bool, typer.Option("--vectors", help="Include vectors in the data formats.")]
Since = Annotated[
    str | None,
    typer.Option(
        "--since", metavar="TIME", help="From this time on: 2025-03-01, 2025-03-01T14:30, 7d."
    ),
]
Until = Annotated[
    str | None, typer.Option("--until", metavar="TIME", help="Before this time, written alike.")
]
Content = Annotated[
    str | None,
    typer.Option("--content", metavar="TEXT", help="The text; - reads it from stdin."),
]
File = Annotated[
    str | None, typer.Option("--file", metavar="FILE", help="Take the text from this file.")
]
Private = Annotated[bool, typer.Option("--private", help="Never propagate it to a wider scope.")]
AllowLong = Annotated[bool, typer.Option("--allow-long", help="Let it be over the word limit.")]
Wait = Annotated[
    bool,
    typer.Option("--wait/--no-wait", help="Wait until search finds the fact (Atlas indexes late)."),
]
WaitTimeout = Annotated[
    str, typer.Option("--timeout", metavar="TIME", help="With --wait: no longer than this.")
]
Hex = Annotated[
    str | None, typer.Option("--id", metavar="HEX", help="Its id, 24 hex digits; else a new one.")
]


class FactScope(OptionGroup, frozen=True, kw_only=True):
    """The one scope that a fact is in; see `choosing.choose_scope`."""

    agent: Agent = None
    kind: Kind = None
    user: User = None
    group: Group = None
    shard: Shard = None


class OneScope(FactScope, frozen=True, kw_only=True):
    """The one scope that a command is about; see `choosing.choose_scope`."""

    session: Session = None


class Owners(OptionGroup, frozen=True, kw_only=True):
    """Whose facts are read beside the agent's own; see `choosing.choose_reader`."""

    user: User = None
    account: Account = None
    group: Group = None
    shard: Shard = None


class Scopes(OptionGroup, frozen=True, kw_only=True):
    """The scopes that a list covers: all, or those of an agent, of some kinds, of a user; see
    `choosing.choose_scopes`."""

    agent: Agent = None
    kinds: Kinds = None
    user: User = None
    account: Account = None


def fetch(limit: int) -> int | None:
    """How many to read so that it is known whether there were more than ``limit``."""
    return limit + 1 if limit else None


def parse_id(given: str | None) -> str:
    """The id that was given, or a new one.

    Raises:
        UsageError: it is not an id.
    """
    if given is None:
        return new_id()
    if not is_id(given.lower()):
        raise UsageError(
            f"--id {given!r} is not an id", hint="write 24 hex digits, or leave it out"
        )
    return given.lower()


def parse_username(given: str) -> str:
    """A username as it is stored.

    Raises:
        UsageError: it is blank, or would be taken for an id.
    """
    name = normalize_name(clean(given).strip())
    if not name or is_id(name.lower()):
        raise UsageError(f"{given!r} cannot be a username", hint="it is blank, or looks like an id")
    return name


def period(since: str | None, until: str | None) -> tuple[datetime | None, datetime | None]:
    """The moments that ``--since`` and ``--until`` name.

    Raises:
        UsageError: one is not a time, or they leave nothing between them.
    """
    begin, end = parse_when(since, "--since"), parse_when(until, "--until")
    if begin and end and begin >= end:
        raise UsageError("--since is not before --until")
    return begin, end
