"""Runs of `ColdRunner` as a process has them: signals, progress, pauses."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from edenmem.cli.app.invocation import Invocation
from edenmem.cli.commands.work.cold_views import exit_code, print_report, show_progress
from edenmem.errors import ExitCode

if TYPE_CHECKING:
    from edenmem.embed.protocol import Embedder
    from edenmem.engine.cold.runner import ColdOptions
    from edenmem.llm.protocol import LLM


def one_round(
    run: Invocation, chosen: ColdOptions, *, watch: bool, pause: float
) -> ExitCode | None:
    """One run, and with ``watch`` the pause after it: then None if there is to be another."""
    from edenmem.engine.cold.runner import ColdRunner

    async def work(llm: LLM | None, embedder: Embedder | None) -> ExitCode | None:
        stop = asyncio.Event()
        with _Signals(stop.set):  # also while the report is told: whoever reads it may answer it
            with show_progress(run) as progress:
                runner = ColdRunner(
                    run.store,
                    run.settings,
                    llm=llm,
                    embedder=embedder,
                    actor=run.actor,
                    progress=progress,
                )
                report = await runner.run(chosen, stop=stop)
            print_report(run, report, one_line=watch)
            if not watch or report.stopped_early == "interrupted":
                return exit_code(report)
            try:
                await asyncio.wait_for(stop.wait(), pause)
            except TimeoutError:
                return None
        return ExitCode.OK  # told to stop while there was nothing in work

    return run.with_models(work, llm=not chosen.dry_run)


class _Signals:
    """Have SIGTERM and Ctrl-C call a function instead of ending the process."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act

    def __enter__(self) -> None:
        loop = asyncio.get_running_loop()
        for name in (signal.SIGTERM, signal.SIGINT):
            with suppress(NotImplementedError):  # on Windows Ctrl-C cancels, which loses nothing
                loop.add_signal_handler(name, self._act)

    def __exit__(self, *error: object) -> None:
        loop = asyncio.get_running_loop()
        for name in (signal.SIGTERM, signal.SIGINT):
            with suppress(NotImplementedError):
                loop.remove_signal_handler(name)
