"""``edenmem browse``: the full-screen browser."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

import typer

from edenmem.cli.app.invocation import invocation
from edenmem.cli.terminal.prompts import person_is_there
from edenmem.engine.service import MemoryService
from edenmem.errors import ConfigError, UsageError
from edenmem.settings.installation import install_hint


def browse(ctx: typer.Context) -> None:
    """Browse and edit scopes, facts, reflections, texts and the log in a full-screen view.

    The bottom line lists the keys; ? explains them. --read-only disables edits.

    \b
    edenmem browse
    edenmem browse --read-only
    """
    if find_spec("textual") is None:
        raise ConfigError("the browser is not installed", hint=install_hint("ui"))
    run = invocation(ctx)
    run.refuse_output_file("the browser is a full-screen view")
    if not (person_is_there() and sys.stdout.isatty()):
        raise UsageError(
            "'edenmem browse' needs a terminal", hint="without one, try 'edenmem scope list'"
        )
    next(iter(run.service.scopes.statuses()), None)  # fail here if the store cannot be read
    from edenmem.browse.app import Browser

    if run.out.is_colored(sys.stdout):
        os.environ.pop("NO_COLOR", None)
    else:
        os.environ["NO_COLOR"] = "1"  # textual reads the environment

    async def work(service: MemoryService) -> None:
        await Browser(service, run.settings).run_async()

    run.serve(work)
