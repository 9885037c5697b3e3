"""Options that several commands share."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import typer
from msgspec.structs import replace

from edenmem.cli.app.parameters import OptionGroup
from edenmem.cli.terminal.times import parse_end, parse_when
from edenmem.errors import UsageError
from edenmem.models.ids import is_id, new_id, utc_now
from edenmem.models.memory import FactFields
from edenmem.models.scope import ScopeKind
from edenmem.text import is_displayable, normalize_name

Ref = Annotated[
    str,
    typer.Argument(metavar="REF", help="ID, ID prefix, name, or a scope such as mira/user:lena."),
]
Agent = Annotated[
    str | None,
    typer.Option("--agent", "-a", metavar="AGENT", help="Agent: username, ID, or ID prefix."),
]
User = Annotated[
    str | None,
    typer.Option(
        "--user", "-u", metavar="USER", help="User, by any account: username, ID, or ID prefix."
    ),
]
Account = Annotated[
    str | None,
    typer.Option(
        "--account",
        metavar="ACCOUNT",
        help="Only this account of the user: username, ID, or ID prefix.",
    ),
]
Group = Annotated[str | None, typer.Option("--group", "-g", metavar="GROUP", help="Group ID.")]
#: Larger than any result, and within the integers of every store.
_MOST = 2**31 - 2

Shard = Annotated[
    str | None,
    typer.Option("--shard", "-d", metavar="NAME", help="Shard of the agent, by name."),
]
Session = Annotated[
    str | None,
    typer.Option("--session", "-e", metavar="SESSION", help="Session: name, ID, or ID prefix."),
]
Kind = Annotated[
    ScopeKind | None,
    typer.Option(
        "--scope",
        "-s",
        metavar="KIND",
        help="Kind of scope: agent, shard, group, user or session.",
    ),
]
Kinds = Annotated[
    list[ScopeKind] | None,
    typer.Option("--scope", "-s", metavar="KIND", help="Only this kind of scope (repeatable)."),
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
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show what would happen, without changing anything.")
]
Concurrency = Annotated[
    int, typer.Option("--concurrency", min=1, max=64, metavar="N", help="Concurrent batches.")
]
Reason = Annotated[
    str, typer.Option("--reason", metavar="TEXT", help="Reason, stored in the audit entry.")
]
Vectors = Annotated[bool, typer.Option("--vectors", help="Include vectors in data formats.")]
WithTags = Annotated[
    list[str] | None,
    typer.Option("--tag", metavar="TAG", help="Only facts with this tag (repeatable: with all)."),
]
WithKey = Annotated[
    str | None, typer.Option("--key", metavar="KEY", help="Only the facts with this key.")
]
Since = Annotated[
    str | None,
    typer.Option(
        "--since", metavar="TIME", help="Only from this time on: 2025-03-01, 2025-03-01T14:30, 7d."
    ),
]
Until = Annotated[
    str | None,
    typer.Option("--until", metavar="TIME", help="Only before this time (formats as --since)."),
]
Content = Annotated[
    str | None,
    typer.Option("--content", metavar="TEXT", help="The text (- = stdin)."),
]
File = Annotated[
    str | None,
    typer.Option("--file", metavar="FILE", help="Read the text from a file (- = stdin)."),
]
Private = Annotated[bool, typer.Option("--private", help="Never propagate to a wider scope.")]
AllowLong = Annotated[bool, typer.Option("--allow-long", help="Allow text over the word limit.")]
Wait = Annotated[
    bool,
    typer.Option(
        "--wait/--no-wait", help="Wait until search finds the fact (Atlas indexes with a delay)."
    ),
]
WaitTimeout = Annotated[
    str, typer.Option("--timeout", metavar="TIME", help="Maximum duration of --wait.")
]
Hex = Annotated[
    str | None, typer.Option("--id", metavar="HEX", help="ID, 24 hex digits.  [default: a new one]")
]


class FactScope(OptionGroup, frozen=True, kw_only=True):
    """Options that name the scope of a fact; see `choosing.choose_scope`."""

    agent: Agent = None
    kind: Kind = None
    user: User = None
    group: Group = None
    shard: Shard = None


class FactFieldOptions(OptionGroup, frozen=True, kw_only=True):
    """Options that set fields of a fact."""

    key: Annotated[
        str | None,
        typer.Option("--key", metavar="KEY", help="Key in another system ('' = none)."),
    ] = None
    tags: Annotated[
        list[str] | None,
        typer.Option("--tag", metavar="TAG", help="Tag (repeatable; '' = none)."),
    ] = None
    metadata: Annotated[
        list[str] | None,
        typer.Option("--meta", metavar="NAME=TEXT", help="Metadata (repeatable; NAME= removes)."),
    ] = None
    expires: Annotated[
        str | None,
        typer.Option("--expires", metavar="TIME", help="Expiry: 12h, 90d, 2027-03-01, or never."),
    ] = None

    @property
    def are_given(self) -> bool:
        """Return whether any of the options is given."""
        return any(getattr(self, name) not in (None, ()) for name in self.__struct_fields__)

    def change(self, fields: FactFields) -> FactFields:
        """Return the fields with the given ones; tags replace all tags.

        Raises:
            UsageError: An option is invalid.
        """
        changes: dict[str, Any] = {}
        if self.key is not None:
            changes["key"] = self.key or None
        if self.tags:
            changes["tags"] = tuple(filter(None, self.tags))
        if self.metadata:
            pairs = [each.partition("=") for each in self.metadata]
            if any(not sign for _, sign, _ in pairs):
                raise UsageError("--meta needs NAME=TEXT")
            merged = {**fields.metadata, **{name: text for name, _, text in pairs}}
            changes["metadata"] = {name: text for name, text in merged.items() if text}
        if self.expires is not None:
            changes["expires_at"] = parse_end(self.expires, "--expires", utc_now())
        return replace(fields, **changes)


class OneScope(FactScope, frozen=True, kw_only=True):
    """Options that name one scope; see `choosing.choose_scope`."""

    session: Session = None


class Owners(OptionGroup, frozen=True, kw_only=True):
    """Options that add owners to read; see `choosing.choose_reader`."""

    user: User = None
    account: Account = None
    group: Group = None
    shard: Shard = None


class Scopes(OptionGroup, frozen=True, kw_only=True):
    """Options that filter scopes by agent, kind and user; see `choosing.choose_scopes`."""

    agent: Agent = None
    kinds: Kinds = None
    user: User = None
    account: Account = None


def fetch(limit: int) -> int | None:
    """Return how many rows to read to know whether there are more than ``limit``."""
    return limit + 1 if limit else None


def parse_id(given: str | None) -> str:
    """Return the given ID, or a new one.

    Raises:
        UsageError: The ID is invalid.
    """
    if given is None:
        return new_id()
    if not is_id(given.lower()):
        raise UsageError(
            f"invalid --id: {given!r}", hint="use 24 hex digits, or omit --id for a new one"
        )
    return given.lower()


def parse_username(given: str) -> str:
    """Return the username of a new account in its stored form.

    Usernames of a platform are read as they are.

    Raises:
        UsageError: The username is blank, looks like an ID, or has control characters.
    """
    name = normalize_name(given.strip())
    if not name or is_id(name.lower()) or not is_displayable(name):
        raise UsageError(
            f"invalid username: {given!r}",
            hint="use letters, digits, spaces and punctuation; no control characters, no ID",
        )
    return name


def period(since: str | None, until: str | None) -> tuple[datetime | None, datetime | None]:
    """Return the times of ``--since`` and ``--until``.

    Raises:
        UsageError: A time is invalid, or the period is empty.
    """
    begin, end = parse_when(since, "--since"), parse_when(until, "--until")
    if begin and end and begin >= end:
        raise UsageError("--since must be before --until")
    return begin, end
