"""Exceptions to messages and exit codes.

A message goes to stderr as ``edenmem: error: …``, with the hint on its own line, and a traceback
only with ``--traceback``. Quoted text is untrusted and made printable first.
"""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable

import typer

from edenmem.cli.app.parameters import suggest
from edenmem.cli.terminal.tables import wrap_text
from edenmem.errors import DiskFull, EdenmemError, ExitCode, is_disk_full
from edenmem.text import one_line, printable

#: Errors of a library, or of a new thread, for which the memory does not suffice.
_NO_MEMORY = re.compile("failed to map segment|[Cc]annot allocate memory|can't start new thread")


def run_guarded(
    work: Callable[[], int],
    *,
    wants_traceback: Callable[[], bool],
    is_writing: Callable[[], bool] = lambda: False,
    advise: Callable[[str], str] = str,
) -> int:
    """Run ``work``, and turn exceptions into a message and an exit code.

    ``is_writing`` returns whether a closed pipe interrupts a change. ``advise`` completes the
    commands that a hint suggests.
    """
    code = _run(work, wants_traceback, is_writing, advise)
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # the work is done
        _discard_output()
    except OSError as error:
        return _refuse_output(error, wants_traceback)
    return code


def _run(
    work: Callable[[], int],
    wants_traceback: Callable[[], bool],
    is_writing: Callable[[], bool],
    advise: Callable[[str], str],
) -> int:
    try:
        return work()
    except EdenmemError as error:
        print_error(error.message, error.hint and advise(error.hint))
        return _end(error.exit_code, wants_traceback)
    except (KeyboardInterrupt, typer.Abort):
        sys.stderr.write("\n")
        print_error("interrupted")
        return _end(ExitCode.INTERRUPTED, wants_traceback)
    except BrokenPipeError:
        _discard_output()
        if not is_writing():  # as with ``| head``
            return int(ExitCode.OK)
        print_error(
            "standard output was closed before the command finished", "run the command again"
        )
        return _end(ExitCode.SOME_FAILED, wants_traceback)
    except typer.TyperException as error:
        # Raised by the parser, with its command.
        path = getattr(getattr(error, "ctx", None), "command_path", "edenmem")
        option = getattr(error, "option_name", None)
        if option and hasattr(error, "possibilities"):
            near = suggest(option, error.possibilities or ())
            print_error(f"no such option: {option!r}", near or f"see '{path} --help'")
        else:
            print_error(_explain_parser(error), f"see '{path} --help'")
        return _end(ExitCode.USAGE, wants_traceback)
    except OSError as error:  # such as a full disk or a read-only folder
        if error.filename is None and not _is_output_writable():
            return _refuse_output(error, wants_traceback)
        if is_disk_full(error):
            full = DiskFull(str(error.filename or "a file"))
            print_error(full.message, full.hint)
            return _end(full.exit_code, wants_traceback)
        where = f": {error.filename}" if error.filename else ""
        print_error(f"{error.strerror or type(error).__name__}{where}")
        return _end(ExitCode.SOME_FAILED, wants_traceback)
    except Exception as error:  # noqa: BLE001 - reported as a bug
        if isinstance(error, MemoryError) or _NO_MEMORY.search(str(error)):
            print_error("not enough memory", "check the memory limit of the process ('ulimit -v')")
            return _end(ExitCode.UNAVAILABLE, wants_traceback)
        what = one_line(str(error), 500) or "no message"
        print_error(
            f"{type(error).__name__}: {what}",
            "this is a bug in edenmem; run the command again with --traceback and report it",
        )
        return _end(ExitCode.SOME_FAILED, wants_traceback)


#: Messages of the parser, and ours.
_PARSER_MESSAGES = (
    (re.compile(r"Missing command\.$"), "COMMAND is missing"),
    (re.compile(r"Option '(.+)' requires an argument\.$"), r"\1 needs a value"),
    (re.compile(r"Option '(.+)' does not take a value\.$"), r"\1 takes no value"),
    (re.compile(r"Got unexpected extra argument\(s\) \((.*)\)$"), r"too many arguments: \1"),
)


def _explain_parser(error: typer.TyperException) -> str:
    """Return the message of an error of the parser, in the form of other errors."""
    message = one_line(error.format_message())
    for pattern, words in _PARSER_MESSAGES:
        if found := pattern.match(message):
            return found.expand(words)
    return message


def print_error(message: str, hint: str | None = None) -> None:
    """Print an error and its hint on stderr."""
    sys.stderr.write(_wrap(f"edenmem: error: {printable(message)}", indent=4) + "\n")
    if hint:
        sys.stderr.write(_wrap(f"  hint: {printable(hint)}", indent=8) + "\n")


def print_errors(errors: Iterable[tuple[str, str | None]]) -> None:
    """Print several errors with their hints."""
    for message, hint in errors:
        print_error(message, hint)


def _wrap(text: str, *, indent: int) -> str:
    """Wrap lines on a terminal, and indent continuation lines."""
    if not sys.stderr.isatty():
        return text
    width = max(_width() - indent, 20)
    lines = []
    for line in text.split("\n"):
        words = line.lstrip(" ")
        first, *others = wrap_text(words, width)
        lines += [line[: len(line) - len(words)] + first, *(" " * indent + one for one in others)]
    return "\n".join(lines)


def _width() -> int:
    """Return the width of the terminal of stderr; stdout may be a file."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return int(given)
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except OSError:
        return 80


def _end(code: ExitCode, wants_traceback: Callable[[], bool]) -> int:
    if wants_traceback():
        sys.stderr.write(printable(traceback.format_exc()))
    return int(code)


def _is_output_writable() -> bool:
    """Return whether stdout is writable, to identify the file of an error."""
    try:
        sys.stdout.write("\n")
        sys.stdout.flush()
    except OSError:
        return False
    return True


def _refuse_output(error: OSError, wants_traceback: Callable[[], bool]) -> int:
    _discard_output()
    is_full = is_disk_full(error)
    why = "the disk is full" if is_full else error.strerror or type(error).__name__
    print_error(
        f"cannot write to standard output: {why}",
        "write to a file on a disk with free space: -o FILE",
    )
    return _end(ExitCode.UNAVAILABLE if is_full else ExitCode.SOME_FAILED, wants_traceback)


def _discard_output() -> None:
    """Discard buffered output, also at interpreter exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
