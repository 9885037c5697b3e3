"""What a shell offers while somebody types: names and ids out of the database.

A shell evaluates what it is offered, some of them as code (zsh), so a name from the database is
offered only if it is made of characters that mean nothing to any shell, and no text beside it.
What has another name is offered by its id. Nothing is ever written, nothing is told on failure,
and a server that does not answer is soon given up.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edenmem.cli.app.invocation import Invocation
    from edenmem.engine.scopes.references import ReferenceKind

#: More than a screen of candidates helps nobody.
LIMIT = 50

_HARMLESS = re.compile(r"[\w.@+][\w.@+-]*\Z")

Completer = Callable[["Invocation", Any, str], Iterable[str]]


def complete(completer: Completer) -> Callable[[Any, Any, str], list[Any]]:
    """A completer in the form that the parser calls; any failure leaves it without candidates."""

    def shell_complete(ctx: Any, parameter: Any, incomplete: str) -> list[Any]:
        from edenmem.cli.app.invocation import Invocation
        from edenmem.errors import EdenmemError

        if not isinstance(ctx.obj, Invocation):
            return []
        run = ctx.obj
        run.quiet = run.read_only = True
        run.overrides.setdefault("store.connect_timeout_seconds", "1")
        try:
            return _items(completer(run, ctx, incomplete), incomplete)
        except EdenmemError:
            return []

    return shell_complete


def _items(values: Iterable[str], incomplete: str) -> list[Any]:
    from typer._click.shell_completion import CompletionItem

    typed = incomplete.casefold()
    fitting = (value for value in values if value.casefold().startswith(typed))
    return [CompletionItem(value) for value in dict.fromkeys(fitting) if _HARMLESS.match(value)]


def _complete_ids(kind: ReferenceKind) -> Completer:
    def completer(run: Invocation, ctx: Any, incomplete: str) -> Iterable[str]:
        for found in run.service.host.beginning_with(kind, incomplete, limit=LIMIT):
            if incomplete and found.id.startswith(incomplete.lower()):
                yield found.id
            else:
                yield found.label if _HARMLESS.match(found.label) else found.id

    return completer


def _shards(run: Invocation, ctx: Any, incomplete: str) -> Iterable[str]:
    """The shards of the agent that was named before, or of every agent."""
    agent = ctx.params.get("agent")
    agents = [run.resolver.agent(agent)] if agent else run.service.host.agents()
    for each in islice(agents, LIMIT):
        for policy in run.service.host.shards(each.id):
            yield policy.shard or ""


def _groups(run: Invocation, ctx: Any, incomplete: str) -> Iterable[str]:
    agent = ctx.params.get("agent")
    agent_id = run.resolver.agent(agent).id if agent else None
    for session in run.service.host.sessions(agent_id=agent_id, limit=20 * LIMIT):
        yield session.group_id or ""


def _settings(run: Invocation, ctx: Any, incomplete: str) -> Iterable[str]:
    from edenmem.settings.keys import defaults

    return defaults()


def _profiles(run: Invocation, ctx: Any, incomplete: str) -> Iterable[str]:
    return run.loaded.profiles


#: What a parameter's place in the help stands for → who completes it.
COMPLETERS: dict[str, Completer] = {
    "AGENT": _complete_ids("agent"),
    "USER": _complete_ids("user"),
    "ACCOUNT": _complete_ids("user"),
    "FROM": _complete_ids("user"),
    "TO": _complete_ids("user"),
    "SESSION": _complete_ids("session"),
    "FACT": _complete_ids("fact"),
    "REFLECTION": _complete_ids("reflection"),
    "FORMATION": _complete_ids("formation"),
    "GROUP": _groups,
    "KEY": _settings,
}
#: The same for parameters whose place says only ``NAME``.
BY_NAME: dict[str, Completer] = {"shard": _shards, "profile": _profiles}


def completer_of(parameter: Any) -> Completer | None:
    """Who completes a parameter's values; None: its own choices, or files."""
    own = BY_NAME.get(parameter.name or "")
    return own or COMPLETERS.get(str(parameter.metavar or "").strip("[]…"))
