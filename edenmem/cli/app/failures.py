"""Exceptions to messages and exit codes.

A message goes to stderr as ``edenmem: error: …``, with the hint on its own line, and a traceback
only with ``--traceback``. Quoted text is untrusted and made printable first.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import traceback
from collections.abc import Callable, Iterable

import typer

from edenmem.cli.app.invocation import Invocation
from edenmem.cli.app.parameters import suggest
from edenmem.cli.terminal.prompts import Missing
from edenmem.cli.terminal.tables import wrap_lines
from edenmem.errors import DiskFull, EdenmemError, ExitCode, is_disk_full
from edenmem.text import one_line, printable

#: Errors of a library, or of a new thread, for which the memory does not suffice.
_NO_MEMORY = re.compile("failed to map segment|[Cc]annot allocate memory|can't start new thread")


def run_guarded(work: Callable[[], int], run: Invocation) -> int:
    """Run ``work``, and turn exceptions into a message and an exit code."""
    try:
        code = work()
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - reported
        code = _report(error, run)
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # the work is done
        _discard_output()
    except OSError as error:
        return _report(error, run)
    return code


def _report(error: BaseException, run: Invocation) -> int:
    """Print an error, with a traceback on request, and return its exit code."""
    code = _explain(error, run)
    if run.traceback and code:
        sys.stderr.write(printable("".join(traceback.format_exception(error))))
    return int(code)


def _explain(error: BaseException, run: Invocation) -> ExitCode:
    match error:
        case EdenmemError():
            see = f"see '{run.path} --help'" if isinstance(error, Missing) else None
            print_error(error.message, (error.hint and run.repeat_options(error.hint)) or see)
            return error.exit_code
        case KeyboardInterrupt() | typer.Abort():
            sys.stderr.write("\n")
            print_error("interrupted")
            return ExitCode.INTERRUPTED
        case BrokenPipeError():
            _discard_output()
            if not run.is_writing:  # as with ``| head``
                return ExitCode.OK
            why = "standard output was closed before the command finished"
            print_error(why, "run the command again")
            return ExitCode.SOME_FAILED
        case typer.TyperException():
            # Raised by the parser, with its command.
            path = getattr(getattr(error, "ctx", None), "command_path", "edenmem")
            message, hint = _explain_parser(error), None
            option = getattr(error, "option_name", None)
            if option and hasattr(error, "possibilities"):
                message = f"no such option: {option!r}"
                hint = suggest(option, error.possibilities or ())
            print_error(message, hint or f"see '{path} --help'")
            return ExitCode.USAGE
        case OSError():  # such as a full disk or a read-only folder
            return _explain_file(error)
    if isinstance(error, MemoryError) or _NO_MEMORY.search(str(error)):
        print_error("not enough memory", "check the memory limit of the process ('ulimit -v')")
        return ExitCode.UNAVAILABLE
    print_error(
        f"{type(error).__name__}: {one_line(str(error), 500) or 'no message'}",
        "this is a bug in edenmem; run the command again with --traceback and report it",
    )
    return ExitCode.SOME_FAILED


def _explain_file(error: OSError) -> ExitCode:
    """Print an error of a file, or of stdout."""
    is_full, why = is_disk_full(error), error.strerror or type(error).__name__
    if error.filename is None and not _is_output_writable():
        _discard_output()
        print_error(
            f"cannot write to standard output: {'the disk is full' if is_full else why}",
            "write to a file on a disk with free space: -o FILE",
        )
    elif is_full:
        full = DiskFull(str(error.filename or "a file"))
        print_error(full.message, full.hint)
    else:
        print_error(f"{why}: {error.filename}" if error.filename else why)
    return ExitCode.UNAVAILABLE if is_full else ExitCode.SOME_FAILED


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
    return wrap_lines(text, shutil.get_terminal_size().columns, hang=indent)


def _is_output_writable() -> bool:
    """Return whether stdout is writable, to identify the file of an error."""
    try:
        sys.stdout.write("\n")
        sys.stdout.flush()
    except OSError:
        return False
    return True


def _discard_output() -> None:
    """Discard buffered output, also at interpreter exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
