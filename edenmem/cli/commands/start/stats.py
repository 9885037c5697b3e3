"""``edenmem stats``: memory in numbers."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edenmem.cli.app import options
from edenmem.cli.app.framework import Command, single
from edenmem.cli.app.invocation import Invocation, invocation
from edenmem.cli.commands.start.stats_views import tell_statistics
from edenmem.cli.terminal.files import write_whole
from edenmem.cli.terminal.times import parse_when
from edenmem.models.ids import utc_now

if TYPE_CHECKING:
    from edenmem.engine.stats.statistics import MemoryStatistics

app = single()

#: Growth over a quarter of a year, as many weeks as fit a screen.
_PERIOD = timedelta(weeks=12)


@app.command(cls=Command)
def stats(
    ctx: typer.Context,
    agent: options.Agent = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since", metavar="TIME", help="Growth and cost from this time on.  [default: 12w]"
        ),
    ] = None,
    top: Annotated[
        int,
        typer.Option(
            "--top", metavar="N", min=1, max=100, help="How many texts, buffers, facts to name."
        ),
    ] = 5,
    html: Annotated[
        str | None,
        typer.Option("--html", metavar="FILE", help="Write one page with charts instead."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="With --html: replace the file.")] = False,
) -> None:
    """Memory in numbers: growth, sizes, buffers, use of facts, tokens and cost.

    \b
    edenmem stats
    edenmem stats --agent mira --since 30d --format json
    edenmem stats --html memory.html
    """
    from edenmem.engine.stats.statistics import gather

    run = invocation(ctx)
    now = utc_now()
    statistics = gather(
        run.store,
        run.settings,
        since=parse_when(since, "--since") or now - _PERIOD,
        now=now,
        agent_id=run.resolver.agent(agent).id if agent else None,
        top=top,
    )
    if html is None:
        tell_statistics(run, statistics)
    else:
        _write_page(run, statistics, Path(html), force=force)


def _write_page(run: Invocation, statistics: MemoryStatistics, path: Path, *, force: bool) -> None:
    from edenmem.engine.stats.page import page

    text = page(statistics, run.store, place=run.store.info().location)
    write_whole(path, text, replace=force)
    run.out.note(f"written: {path}")
