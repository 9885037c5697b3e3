"""Shell completion of names and IDs from the database.

Shells evaluate completions, and zsh even runs them as code. Therefore only names without special
characters are offered, without descriptions; other things are offered by ID. Completion never
writes, is silent on errors, and has a short timeout.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from edenmem.cli.app.invocation import Invocation
    from edenmem.engine.scopes.references import ReferenceKind

#: Maximum number of candidates, about a screen.
LIMIT = 50

_HARMLESS = re.compile(r"[\w.@+][\w.@+-]*\Z")

Completer = Callable[["Invocation", Any, str], Iterable[str]]


def declare(declaration: Any, name: str) -> None:
    """Add a completer to the declaration of an option or argument."""
    completer = BY_NAME.get(name) or COMPLETERS.get(str(declaration.metavar or "").strip("[]…"))
    if completer is None:
        return

    def autocomplete(ctx: typer.Context, incomplete: str) -> list[str]:
        return _complete(completer, ctx, incomplete)

    declaration.autocompletion = autocomplete


def _complete(completer: Completer, ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the candidates; none on errors."""
    from edenmem.cli.app.invocation import Invocation
    from edenmem.errors import EdenmemError

    if not isinstance(ctx.obj, Invocation):
        return []
    run = ctx.obj
    run.quiet = run.read_only = True
    run.overrides.setdefault("store.connect_timeout_seconds", "1")
    try:
        values = dict.fromkeys(completer(run, ctx, incomplete))
    except EdenmemError:
        return []
    return [value for value in values if value.startswith(incomplete) and _HARMLESS.match(value)]


def _complete_ids(kind: ReferenceKind) -> Completer:
    def completer(run: Invocation, ctx: Any, incomplete: str) -> Iterable[str]:
        for found in run.service.host.find_by_prefix(kind, incomplete, limit=LIMIT):
            if incomplete and found.id.startswith(incomplete.lower()):
                yield found.id
            else:
                yield found.label if _HARMLESS.match(found.label) else found.id

    return completer


def _complete_refs(run: Invocation, ctx: Any, incomplete: str) -> Iterable[str]:
    """Yield agents, users, sessions and memories, by name or ID."""
    kinds: tuple[ReferenceKind, ...] = ("agent", "user", "session", "fact", "reflection")
    for kind in kinds:
        yield from islice(_complete_ids(kind)(run, ctx, incomplete), LIMIT)


def _shards(run: Invocation, ctx: Any, incomplete: str) -> Iterable[str]:
    """Yield the shards of the given agent, or of all agents."""
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


def _recipes(run: Invocation, ctx: Any, incomplete: str) -> Iterable[str]:
    """Yield recipes that extend the typed one by a stage."""
    from edenmem.engine.search.request import complete_recipe

    return complete_recipe(incomplete)


def _checks(run: Invocation, ctx: Any, incomplete: str) -> Iterable[str]:
    from edenmem.engine.doctor.report import CATALOG

    return CATALOG


def _settings(run: Invocation, ctx: Any, incomplete: str) -> Iterable[str]:
    from edenmem.settings.keys import defaults

    return defaults()


#: Metavar of a parameter → completer.
COMPLETERS: dict[str, Completer] = {
    "AGENT": _complete_ids("agent"),
    "USER": _complete_ids("user"),
    "ACCOUNT": _complete_ids("user"),
    "FROM": _complete_ids("user"),
    "TO": _complete_ids("user"),
    "SESSION": _complete_ids("session"),
    "FACT": _complete_ids("fact"),
    "REF": _complete_refs,
    "FORMATION": _complete_ids("formation"),
    "ENTRY": lambda run, *_: (e.id for e in run.service.history.entries(limit=20 * LIMIT)),
    "GROUP": _groups,
    "KEY": _settings,
}
#: Name of a parameter → completer.
BY_NAME: dict[str, Completer] = {
    "check": _checks,
    "profile": lambda run, *_: run.loaded.profiles,
    "recipe": _recipes,
    "recipes": _recipes,
    "shard": _shards,
}
