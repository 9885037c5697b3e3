"""``edenmem fact why`` and ``edenmem consolidation why``: where a memory comes from."""

from __future__ import annotations

from typing import Annotated

import typer

from edenmem.cli.app import options
from edenmem.cli.app.invocation import invocation
from edenmem.cli.terminal.choosing import choose_scope
from edenmem.cli.terminal.data import to_data


def fact_why(
    ctx: typer.Context,
    fact: Annotated[str, typer.Argument(metavar="FACT", help="Its id or the id's beginning.")],
) -> None:
    """Show where a fact comes from: what was said, what was decided and why, what it replaced.

    \b
    edenmem fact why 65f3a1b2
    """
    from edenmem.cli.commands.memory.why_views import tell_fact
    from edenmem.engine.history import why
    from edenmem.engine.history.entries import logged_id
    from edenmem.errors import NotFoundError

    run = invocation(ctx)
    try:
        fact_id = run.resolver.fact_id(fact)
    except NotFoundError:  # it may be gone, and known to the log alone
        fact_id = logged_id(run.store, "target", fact)
    found = why.fact_why(run.store, fact_id)
    if run.out.is_data:
        run.out.objects([to_data(found)])
    else:
        tell_fact(run, found)


def text_why(
    ctx: typer.Context,
    agent: options.Agent = None,
    kind: options.Kind = None,
    user: options.User = None,
    group: options.Group = None,
    shard: options.Shard = None,
    session: options.Session = None,
    version: Annotated[
        int | None, typer.Option("--version", min=1, metavar="N", help="Only this version.")
    ] = None,
) -> None:
    """Show what went into each version of a scope's text, newest first, and who wrote it.

    \b
    edenmem consolidation why --agent mira --user lena
    edenmem consolidation why --agent mira --user lena --version 3
    """
    from edenmem.cli.commands.memory.why_views import tell_text
    from edenmem.engine.history import why

    run = invocation(ctx)
    scope = choose_scope(
        run, kind=kind, agent=agent, user=user, group=group, shard=shard, session=session
    )
    found = why.text_why(run.store, scope, version)
    if run.out.is_data:
        run.out.objects(to_data(each) for each in found)
    else:
        tell_text(run, found)
