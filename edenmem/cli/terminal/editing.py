"""Editing a text: input, diff, confirmation, and keeping unsaved text."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from edenmem.cli.terminal.output import Output
from edenmem.cli.terminal.prompts import Missing, ask_key, confirm, person_is_there
from edenmem.cli.terminal.tables import style
from edenmem.engine.reports import EditReport
from edenmem.errors import ConflictError, InputError, UsageError, unreadable
from edenmem.text import printable

_COLORS = {"+": "32", "-": "31", "@": "36"}
_ANSWERS = {"y": "yes", "n": "no", "e": "edit again"}


def read_text_option(content: str | None, file: str | None) -> str | None:
    """Read the text of ``--content`` or ``--file`` (``-``: stdin); None if neither is given.

    Python keeps bytes of an argument outside the encoding of the locale as surrogates, which no
    store can hold; they are read as UTF-8.

    Raises:
        UsageError: Both are given.
        NotFoundError: The file does not exist.
        InputError: The text is not UTF-8, or the file or stdin cannot be read.
    """
    if content is not None and file is not None:
        raise UsageError("--content and --file exclude each other")
    try:
        if content == "-" or file == "-":
            return sys.stdin.buffer.read().decode("utf-8")
        if file is not None:
            return Path(file).read_text("utf-8")
        if content is None or not any("\ud800" <= character <= "\udfff" for character in content):
            return content
        return os.fsencode(content).decode("utf-8")
    except UnicodeError as error:
        raise InputError("the text is not UTF-8") from error
    except OSError as error:
        raise unreadable(file or "stdin", error) from error


def _find_editor() -> list[str]:
    """Return the words of the command that starts the editor, ``$VISUAL`` or ``$EDITOR``.

    Raises:
        UsageError: There is no terminal, or the variable is invalid.
    """
    if not person_is_there():
        raise Missing("--content or --file", hint="--content - reads from stdin")
    named = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        words = shlex.split(named)
    except ValueError as error:
        raise UsageError(f"invalid $EDITOR: {named!r}: {error}") from error
    if not words:
        raise UsageError("$EDITOR is empty", hint="set $EDITOR, or use --content")
    return words


def _edit_file(editor: Sequence[str], path: Path) -> str:
    """Open a file in the editor and return the saved text.

    Raises:
        UsageError: The editor cannot be started, or failed.
        InputError: The file is not UTF-8, or cannot be read.
    """
    try:
        status = subprocess.run([*editor, str(path)], check=False).returncode  # noqa: S603
    except OSError as error:
        raise UsageError(
            f"cannot start the editor {editor[0]!r}: {error.strerror}",
            hint="set $EDITOR, or use --content",
        ) from error
    if status != 0:
        raise UsageError(f"the editor failed with status {status}; nothing was changed")
    return (read_text_option(None, str(path)) or "").removesuffix("\n")


def _write_private(text: str, name: str) -> Path:
    handle, path = tempfile.mkstemp(prefix=f"edenmem-{name}-", suffix=".md")  # mode 0600
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(f"{text}\n")
    return Path(path)


def change_text(
    out: Output,
    before: str,
    *,
    name: str,
    given: str | None,
    yes: bool,
    dry_run: bool,
    write: Callable[[str, bool], EditReport],
    show: Callable[[EditReport], None],
) -> EditReport | None:
    """Edit a text: read or edit the new one, show the diff, confirm, and write it.

    ``write`` gets the new text and whether to only validate it, which comes before the
    confirmation. A text from the editor that is not written, and one from a pipe after a conflict,
    are kept in a file, whose name is printed.

    Returns:
        The report of the change, or None if nothing was written.
    """
    editor = _find_editor() if given is None else []
    path = _write_private(before, name) if editor else None
    after, is_lost = before, path is not None
    try:
        while True:
            after = _edit_file(editor, path) if path else (given or "").removesuffix("\n")
            if after == before:
                out.note("the text is unchanged")
                is_lost = False
                return None
            tried = write(after, True)
            if not (yes and out.is_data):
                show_diff(out, before, after)
            if dry_run:
                show(tried)
                return None
            if path is None or yes:
                answer = "y" if confirm("Write this?", yes=yes) else "n"
            else:
                answer = ask_key("Write this? [y]es, [n]o, [e]dit again", _ANSWERS, default="n")
            if answer == "n":
                out.note("nothing was changed")
                return None
            if answer == "y":
                written = write(after, False)
                is_lost = False
                show(written)
                return written
    except ConflictError:
        is_lost = True
        raise
    finally:
        original = f"{before}\n".encode()
        if path is not None and not (is_lost and path.exists() and path.read_bytes() != original):
            path.unlink(missing_ok=True)
        elif is_lost:
            path = path or _write_private(after, name)
            sys.stderr.write(f"your text is saved in {path} (use it with --file)\n")


def show_diff(
    out: Output,
    before: str,
    after: str,
    *,
    old: str = "before",
    new: str = "after",
    to_stdout: bool = False,
) -> None:
    """Print a colored unified diff with printable lines, on stderr unless it is the result."""
    import difflib

    stream = sys.stdout if to_stdout else sys.stderr
    color = out.is_colored(stream)
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), old, new, lineterm="", n=2
    )
    for line in map(printable, lines):
        code = _COLORS.get(line[:1], "")
        stream.write(style(line, code, color and bool(code)) + "\n")
