"""The one place where an exception becomes a message and an exit code.

A message goes to stderr as ``edenmem: error: …``, the hint on a line of its own, without a
traceback unless ``--traceback`` asks for it. What the text quotes may come from anybody, so it is
made printable first.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable

import typer

from edenmem.errors import EdenmemError, ExitCode
from edenmem.text import one_line, printable


def run_guarded(work: Callable[[], int], *, wants_traceback: Callable[[], bool]) -> int:
    """Run ``work`` and turn whatever it raises into a message and an exit code."""
    try:
        code = work()
        sys.stdout.flush()
        return code
    except EdenmemError as error:
        print_error(error.message, error.hint)
        return _end(error.exit_code, wants_traceback)
    except (KeyboardInterrupt, typer.Abort):
        sys.stderr.write("\n")
        print_error("interrupted")
        return _end(ExitCode.INTERRUPTED, wants_traceback)
    except BrokenPipeError:
        return _reader_left()
    except typer.TyperException as error:
        # One that the parser of the command line raised: it knows its command.
        path = getattr(getattr(error, "ctx", None), "command_path", "edenmem")
        print_error(one_line(error.format_message()), f"see '{path} --help'")
        return _end(ExitCode.USAGE, wants_traceback)
    except OSError as error:  # a disk that is full, a folder that may not be written
        where = f": {error.filename}" if error.filename else ""
        print_error(f"{error.strerror or type(error).__name__}{where}")
        return _end(ExitCode.SOME_FAILED, wants_traceback)
    except Exception as error:  # noqa: BLE001 - the last resort: told, and told to be a bug
        what = one_line(str(error), 500) or "no message"
        print_error(
            f"{type(error).__name__}: {what}",
            "this is a bug in edenmem; run the command again with --traceback and report it",
        )
        return _end(ExitCode.SOME_FAILED, wants_traceback)


def print_error(message: str, hint: str | None = None) -> None:
    """Say on stderr what was wrong and what to do."""
    sys.stderr.write(f"edenmem: error: {printable(message)}\n")
    if hint:
        sys.stderr.write(f"  hint: {printable(hint)}\n")


def _end(code: ExitCode, wants_traceback: Callable[[], bool]) -> int:
    if wants_traceback():
        sys.stderr.write(printable(traceback.format_exc()))
    return int(code)


def _reader_left() -> int:
    """Whoever read our output has enough (``| head``): say nothing, also at interpreter exit."""
    import os

    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    return int(ExitCode.SOME_FAILED)
