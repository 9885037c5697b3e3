"""Waiting until search finds a new fact: Atlas updates its indexes with a delay."""

from __future__ import annotations

import typer

from edenmem.cli.app.invocation import Invocation
from edenmem.errors import ExitCode


def await_search(run: Invocation, fact_id: str, *, wait: bool, seconds: float) -> None:
    """Wait until search finds the fact, or print a note about the delay.

    Exits with 1 on a timeout; the fact is stored.
    """
    if not wait:
        if run.service.indexes.follow_later:
            run.out.note("search finds it once the indexes are updated; --wait waits for that")
        return
    run.out.progress("waiting until search finds it")
    if not run.service.indexes.await_fact(fact_id, timeout=seconds):
        run.out.note(
            f"the fact is stored, but search did not find it within {seconds:g} seconds;"
            " see 'edenmem index list --check'"
        )
        raise typer.Exit(ExitCode.SOME_FAILED)
