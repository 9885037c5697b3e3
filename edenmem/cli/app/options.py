"""Options that several commands share, their values, and what they name.

Where a name is missing, a person on a terminal is asked.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, TypedDict

import typer
from msgspec.structs import replace

from edenmem.cli.app.invocation import Invocation
from edenmem.cli.app.parameters import OptionGroup
from edenmem.cli.terminal.prompts import ask_choice, ask_text, person_is_there
from edenmem.errors import NotFoundError, UsageError
from edenmem.models.host import Agent as HostAgent
from edenmem.models.ids import as_utc, is_id, new_id, utc_now
from edenmem.models.memory import FactFields
from edenmem.models.scope import Scope, ScopeKind
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
        callback=lambda given: min(given, 2**31 - 2),  # within the integers of every store
    ),
]
OnConflict = Literal["keep", "replace"]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show what would happen, without changing anything.")
]
Reason = Annotated[
    str, typer.Option("--reason", metavar="TEXT", help="Reason, stored in the log entry.")
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
        "--wait/--no-wait",
        help="Wait up to a minute until search finds the fact (Atlas indexes with a delay).",
    ),
]
Hex = Annotated[
    str | None, typer.Option("--id", metavar="HEX", help="ID, 24 hex digits.  [default: a new one]")
]


class FactScope(OptionGroup, frozen=True, kw_only=True):
    """Options that name the scope of a fact; see `choose_scope`."""

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
    value: Annotated[
        str | None,
        typer.Option("--value", metavar="JSON", help="Value: a JSON object ('' = none)."),
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
        if self.value is not None:
            changes["value"] = _parse_object(self.value)
        return replace(fields, **changes)


def _parse_object(text: str) -> dict[str, Any] | None:
    import json

    with suppress(ValueError):
        value = json.loads(text or "null")
        if value is None or isinstance(value, dict):
            return value
    raise UsageError(f"--value: not a JSON object: {text!r}")


class OneScope(FactScope, frozen=True, kw_only=True):
    """Options that name one scope; see `choose_scope`."""

    session: Session = None


class Owners(OptionGroup, frozen=True, kw_only=True):
    """Options that add owners to read; see `choose_reader`."""

    user: User = None
    account: Account = None
    group: Group = None
    shard: Shard = None


class Scopes(OptionGroup, frozen=True, kw_only=True):
    """Options that filter scopes by agent, kind and user; see `choose_scopes`."""

    agent: Agent = None
    kinds: Kinds = None
    user: User = None
    account: Account = None


def exclusive(given: Mapping[str, object], *, hint: str | None = None) -> None:
    """Check that at most one of these options is given.

    Raises:
        UsageError: Several are.
    """
    if sum(map(bool, given.values())) > 1:
        *names, last = given
        raise UsageError(f"{', '.join(names)} and {last} exclude each other", hint=hint)


def needs(
    given: Mapping[str, object], what: str, is_given: object, hint: str | None = None
) -> None:
    """Check that these options are given only with another one.

    Raises:
        UsageError: One is given without it.
    """
    if not is_given and any(each is not None and each is not False for each in given.values()):
        verb = "need" if len(given) > 1 else "needs"
        raise UsageError(f"{' and '.join(given)} {verb} {what}", hint=hint)


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


# -- times ----------------------------------------------------------------------------------------

_FORMS = (
    "2025-03-01, 2025-03-01T14:30, 2025-03-01T14:30:00+02:00, or 30m, 12h, 7d, 2w, 6mo, 1y (ago)"
)
_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)\s*(s|m|min|h|d|w|mo|y)?\Z")
_UNITS = {
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "min": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
    "mo": timedelta(days=30),
    "y": timedelta(days=365),
}


def parse_when(text: str | None, option: str, *, now: datetime | None = None) -> datetime | None:
    """Parse a time to UTC; without a zone it is UTC, a date is midnight.

    Raises:
        UsageError: The time is invalid; the hint lists the formats.
    """
    if text is None:
        return None
    given = re.sub(r"(?i)\s+ago\Z", "", text.strip())
    return _parse_moment(given, now or utc_now(), -1, option, text, f"use {_FORMS}")


def parse_end(text: str, option: str, now: datetime) -> datetime | None:
    """Parse a time of expiry: a duration from now, a time, or ``never`` (None).

    Raises:
        UsageError: The time is invalid.
    """
    if text.strip().lower() == "never":
        return None
    hint = "use 12h, 90d, 2027-03-01, or never"
    return _parse_moment(text.strip(), now, 1, option, text, hint)


def _parse_moment(
    given: str, now: datetime, sign: int, option: str, text: str, hint: str
) -> datetime:
    """Parse a time, or a duration with its unit before (``sign`` -1) or after now."""
    with suppress(ValueError, OverflowError):
        if given[-1:].isalpha() and (length := _parse_length(given)):
            return as_utc(now + sign * length)
        return as_utc(datetime.fromisoformat(given))
    raise UsageError(f"{option}: invalid time: {text!r}", hint=hint)


def parse_duration(text: str, option: str) -> timedelta:
    """Parse a duration: ``90``, ``90s``, ``10m``, ``12h``, ``30d``; a bare number is seconds.

    Raises:
        UsageError: The duration is invalid or zero.
    """
    with suppress(OverflowError):
        if length := _parse_length(text.strip()):
            return length
    raise UsageError(f"{option}: invalid duration: {text!r}", hint="use 90s, 10m, 12h, 7d")


def _parse_length(text: str) -> timedelta | None:
    """Return a duration, or None if the text is no duration."""
    found = _DURATION.match(text.lower())
    return float(found[1]) * _UNITS[found[2] or "s"] if found else None


# -- agents and scopes ----------------------------------------------------------------------------

#: Maximum number of agents to choose from.
_OFFERED = 50

#: Note on a store without agents.
NO_AGENTS = "no agents; add one with 'edenmem agent add NAME'"


def choose_agent(run: Invocation, given: str | None) -> HostAgent:
    """Return the given agent, the only one, or the one chosen on a terminal."""
    if given:
        return run.resolver.agent(given)
    agents = list(itertools.islice(run.service.host.agents(), _OFFERED))
    if not agents:
        raise NotFoundError("the store has no agents", hint="add one with 'edenmem agent add NAME'")
    if len(agents) == 1:
        run.out.note(f"agent: {agents[0].username}, the only one")
        return agents[0]
    chosen = ask_choice("agent", "--agent", [(agent.id, agent.username) for agent in agents])
    return run.resolver.agent(chosen)


def check_hold_facts(kinds: Iterable[ScopeKind]) -> None:
    """Check that scopes of these kinds can have facts.

    Raises:
        UsageError: A session scope is included, which has only reflections and a text.
    """
    if ScopeKind.SESSION in kinds:
        raise UsageError(
            "a session scope has no facts, only reflections and a text",
            hint="for facts from a session, use 'edenmem fact list --session NAME'; for its "
            "reflections, 'edenmem reflection list --session NAME'",
        )


def agent_id_of(run: Invocation, given: str | None) -> str | None:
    """Return the ID of the given agent, or None."""
    return run.resolver.agent(given).id if given else None


def choose_scope(
    run: Invocation, named: FactScope, *, new: bool = False, new_group: bool = False
) -> Scope:
    """Return the scope that the options name; without a kind, the scope of the given owner.

    ``new`` accepts a shard or group that does not exist yet, ``new_group`` only a group.
    """
    owners = {
        ScopeKind.USER: named.user,
        ScopeKind.GROUP: named.group,
        ScopeKind.SHARD: named.shard,
        ScopeKind.SESSION: named.session if isinstance(named, OneScope) else None,
    }
    kind = named.kind
    if kind is None:
        given = [owner_kind for owner_kind, owner in owners.items() if owner]
        if len(given) > 1:
            options = " and ".join(f"--{one}" for one in given)
            raise UsageError(f"{options} name different scopes", hint="choose one with --scope")
        kind = given[0] if given else ScopeKind.AGENT
    if kind is not ScopeKind.AGENT and not owners[kind] and person_is_there():
        owners[kind] = ask_text(kind.value, f"--{kind}")
    return run.resolver.scope(
        kind,
        agent=choose_agent(run, named.agent),
        user=owners[ScopeKind.USER],
        group=owners[ScopeKind.GROUP],
        shard=owners[ScopeKind.SHARD],
        session=owners[ScopeKind.SESSION],
        new=new,
        new_group=new_group,
    )


class ScopeFilter(TypedDict):
    """Filter for scopes."""

    agent_id: str | None
    kinds: Sequence[ScopeKind]
    user_ids: Sequence[str] | None


def choose_scopes(run: Invocation, named: Scopes) -> ScopeFilter:
    """Return the filter for the options of a list."""
    agent_id = agent_id_of(run, named.agent)
    return {
        "agent_id": agent_id,
        "kinds": named.kinds or (),
        "user_ids": resolve_accounts(run, named.user, named.account, agent_id=agent_id),
    }


class Reader(TypedDict):
    """Owners and kinds of scopes to read, in addition to the agent."""

    user_id: str | None
    account_id: str | None
    group_id: str | None
    shards: Sequence[str] | None
    kinds: Sequence[ScopeKind] | None


def choose_reader(
    run: Invocation, agent: HostAgent, owners: Owners, kinds: Sequence[ScopeKind] | None
) -> Reader:
    """Return the owners to read; users and groups only if they are named."""
    user_id, account_id = _resolve_user(run, owners.user, owners.account, agent_id=agent.id)
    return {
        "user_id": user_id,
        "account_id": account_id,
        "group_id": run.resolver.group(agent, owners.group) if owners.group else None,
        "shards": [run.resolver.shard(agent, owners.shard)] if owners.shard else None,
        "kinds": kinds,
    }


def resolve_accounts(
    run: Invocation, user: str | None, account: str | None, *, agent_id: str | None = None
) -> tuple[str, ...] | None:
    """Return the accounts for ``--user`` and ``--account``: all of the user, or one."""
    user_id, account_id = _resolve_user(run, user, account, agent_id=agent_id)
    if not (user_id or account_id):
        return None
    return run.service.host.choose_accounts(user_id, account_id).ids


def _resolve_user(
    run: Invocation, user: str | None, account: str | None, *, agent_id: str | None = None
) -> tuple[str | None, str | None]:
    user_id = run.resolver.user_id(user, agent_id=agent_id) if user else None
    if not account:
        return user_id, None
    return user_id, run.resolver.account_id(account, user_id=user_id, agent_id=agent_id)
