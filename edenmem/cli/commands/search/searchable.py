"""Whether search finds what was just written: on Atlas its indexes follow a little later."""

from __future__ import annotations

import typer

from edenmem.cli.app.invocation import Invocation
from edenmem.errors import ExitCode


def await_search(run: Invocation, fact_id: str, *, wait: bool, seconds: float) -> None:
    """With ``wait`` until search finds the fact, else say where it does so only later.

    Exits with 1 if it does not within the time; the fact is stored all the same.
    """
    if not wait:
        if run.service.indexes.follow_later:
            run.out.note("search finds it when the indexes have followed; --wait waits for them")
        return
    run.out.progress("waiting until search finds it")
    if not run.service.indexes.await_fact(fact_id, timeout=seconds):
        run.out.note(
            f"the fact is stored, and search did not find it within {seconds:g} seconds; "
            "'edenmem index status' tells how the indexes are"
        )
        raise typer.Exit(ExitCode.SOME_FAILED)
