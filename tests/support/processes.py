"""Processes with edenmem already loaded, forked from a template process.

Starting Python and importing a command takes half a second of processor time, two with a model, and
tests start some hundred commands. Startup itself is tested in fresh processes.
"""

from __future__ import annotations

import atexit
import gc
import multiprocessing
import os
import sys
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import reduction
from pathlib import Path
from pkgutil import iter_modules
from typing import IO, TYPE_CHECKING, Any

import edenmem.cli.commands

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerProcess

_PLACE = "edenmem.cli.commands"
_COMMANDS = [module.name for module in iter_modules(edenmem.cli.commands.__path__, f"{_PLACE}.")]

#: Modules to preload. Not numpy: a fork loses its threads.
_READ = (
    "tests.faults.days",
    "tests.faults.commands",
    "tests.faults.statements",
    *_COMMANDS,
    "edenmem.cli.app.root",
    "anyio._backends._asyncio",
    "edenmem.embed.local",
    "edenmem.embed.openai_compat",
    "edenmem.engine.embeddings.backfill",
    "edenmem.engine.cold.runner",
    "edenmem.engine.consolidation.consolidator",
    "edenmem.engine.context.builder",
    "edenmem.engine.factory",
    "edenmem.engine.formation.former",
    "edenmem.engine.consolidation.propagation",
    "edenmem.engine.runtime.llm_session",
    "edenmem.engine.search.searcher",
    "edenmem.engine.context.recall",
    "edenmem.engine.scopes.references",
    "edenmem.engine.search.searcher",
    "edenmem.llm.openai_compat",
    "edenmem.llm.replay",
    "edenmem.settings.load",
    "edenmem.store.mongo",
    "edenmem.store.sqlite",
    "getpass",
    "jinja2",
    "openai.resources.chat.completions",
    "openai.resources.embeddings",
    "questionary",
    "rich.console",
    "rich.table",
)


def forked(target: Callable[..., object], *args: object) -> ForkServerProcess:
    """Fork a process that runs ``target``, which must be a module-level name."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(_READ))
    process = context.Process(target=target, args=args, daemon=True)
    process.start()
    return process


class Handed:
    """An open file of this process, to pass to a forked process."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __reduce__(self) -> tuple[Callable[..., int], tuple[Any, ...]]:
        return _taken, (reduction.DupFd(self.descriptor),)


def _taken(handed: Any) -> int:
    return int(handed.detach())


def command(
    arguments: Sequence[str],
    streams: tuple[int, int, int],
    *,
    cwd: Path,
    environment: Mapping[str, str],
    session: bool = False,
) -> ForkServerProcess:
    """Run ``edenmem`` with exactly these arguments, streams, folder and environment."""
    handed = [Handed(stream) for stream in streams]
    return forked(_become, list(arguments), handed, str(cwd), dict(environment), session)


def _become(
    arguments: list[str], streams: list[int], cwd: str, environment: dict[str, str], session: bool
) -> None:
    """Become ``python -m edenmem``."""
    gc.freeze()  # preloaded objects are not garbage
    if session:
        os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin, sys.stdout, sys.stderr = _text(0, "r"), _text(1, "w"), _text(2, "w")
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    warnings.resetwarnings()
    warnings.simplefilter("error")
    sys.argv = [str(Path(edenmem.__file__).with_name("__main__.py")), *arguments]
    sys.path[0] = cwd

    from edenmem.__main__ import main

    code: Any = 0
    try:
        main()
    except SystemExit as end:
        code = end.code
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)


def _text(number: int, mode: str) -> IO[str]:
    """Open a standard stream as Python does."""
    like = (sys.__stdin__, sys.__stdout__, sys.__stderr__)[number]
    assert like is not None
    by_line = mode == "w" and (number == 2 or os.isatty(number))
    return open(
        number,
        mode,
        buffering=1 if by_line else -1,
        encoding=like.encoding,
        errors=like.errors,
        closefd=False,
    )
