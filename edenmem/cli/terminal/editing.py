"""Changing a text: where the new one comes from, the diff, the question, and losing nothing."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from edenmem.cli.terminal.output import Output
from edenmem.cli.terminal.prompts import confirm, person_is_there
from edenmem.cli.terminal.tables import style
from edenmem.engine.reports import EditReport
from edenmem.errors import ConflictError, EdenmemError, InputError, UsageError
from edenmem.text import printable

_COLORS = {"+": "32", "-": "31", "@": "36"}


def read_text_option(content: str | None, file: str | None) -> str | None:
    """The text of ``--content`` (``-``: stdin) or ``--file``; None if neither was given.

    Raises:
        UsageError: both were given.
        InputError: the file or stdin cannot be read as UTF-8.
    """
    if content is not None and file is not None:
        raise UsageError("--content and --file exclude each other")
    try:
        if content == "-" or file == "-":
            return sys.stdin.buffer.read().decode("utf-8")
        if file is not None:
            return Path(file).read_text("utf-8")
    except UnicodeDecodeError as error:
        raise InputError("the text is not UTF-8") from error
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}") from error
    return content


def editor_command() -> list[str]:
    """The words of ``$VISUAL`` or ``$EDITOR``.

    Raises:
        UsageError: nobody could use an editor here, or none is named.
    """
    if not person_is_there():
        raise UsageError(
            "the new text is missing",
            hint="give it with --content TEXT, --file FILE or --content -",
        )
    named = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        words = shlex.split(named)
    except ValueError as error:
        raise UsageError(f"$EDITOR {named!r} cannot be read: {error}") from error
    if not words:
        raise UsageError("$EDITOR is empty", hint="set it, or give the text with --content")
    return words


class EditorFile:
    """A text in the person's editor, in a file that only they may read."""

    def __init__(self, text: str, name: str) -> None:
        words = editor_command()
        handle, path = tempfile.mkstemp(prefix=f"edenmem-{name}-", suffix=".md")  # mode 0600
        self.path = Path(path)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text + "\n")
        try:
            status = subprocess.run([*words, path], check=False).returncode  # noqa: S603
        except OSError as error:
            self.path.unlink()
            raise UsageError(
                f"the editor {words[0]!r} cannot be started: {error.strerror}",
                hint="set $EDITOR, or give the text with --content",
            ) from error
        if status != 0:
            raise UsageError(
                f"the editor ended with status {status}; nothing was changed",
                hint=f"the text is kept in {self.path}",
            )
        try:
            self.text = self.path.read_text("utf-8").removesuffix("\n")
        except UnicodeDecodeError as error:
            raise InputError(f"the text is not UTF-8; it is kept in {self.path}") from error


def change_text(
    out: Output,
    before: str,
    *,
    name: str,
    given: str | None,
    yes: bool,
    dry_run: bool,
    write: Callable[[str, bool], EditReport],
    tell: Callable[[EditReport], None],
) -> EditReport | None:
    """Have a text changed: from what was given or in the editor, shown as a diff, asked, written.
    What was written; None if nothing was.

    ``write`` gets the new text and whether it is only to be tried, which comes first: nobody is
    asked about a text that would be refused. If it is, the text of the editor is kept in a file
    that the error names.
    """
    edited = EditorFile(before, name) if given is None else None
    after = edited.text if edited else (given or "").removesuffix("\n")
    with _keep_if_refused(after, edited.path if edited else None, name):
        if after == before:
            out.note("the text is as it was; nothing to do")
            return None
        tried = write(after, True)
        if not (yes and out.is_data):
            show_diff(out, before, after)
        if dry_run:
            tell(tried)
        elif confirm("Write this?", yes=yes):
            written = write(after, False)
            tell(written)
            return written
        else:
            out.note("nothing was changed")
    return None


@contextlib.contextmanager
def _keep_if_refused(text: str, path: Path | None, name: str) -> Iterator[None]:
    """Remove the editor's file at the end, but keep the text if the change was refused.

    A text that came from a pipe is gone with the pipe, so a conflict keeps it too.
    """
    try:
        yield
    except KeyboardInterrupt:
        if path is not None:
            sys.stderr.write(f"\nyour text is kept in {path}\n")
        raise
    except EdenmemError as error:
        if path is None and isinstance(error, ConflictError):
            handle, made = tempfile.mkstemp(prefix=f"edenmem-{name}-", suffix=".md")
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text + "\n")
            path = Path(made)
        if path is not None:
            error.add_hint(f"your text is kept in {path}")
        raise
    else:
        if path is not None:
            path.unlink(missing_ok=True)


def diff_lines(before: str, after: str, old: str, new: str) -> list[str]:
    """A unified diff, its lines printable."""
    import difflib

    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), old, new, lineterm="", n=2
    )
    return [printable(line) for line in lines]


def show_diff(
    out: Output,
    before: str,
    after: str,
    *,
    old: str = "before",
    new: str = "after",
    to_stdout: bool = False,
) -> None:
    """Print a coloured unified diff; on stderr, unless it is the result itself."""
    stream = sys.stdout if to_stdout else sys.stderr
    color = out.is_colored(stream)
    for line in diff_lines(before, after, old, new):
        stream.write(style(line, _COLORS.get(line[:1], ""), color and line[:1] in _COLORS) + "\n")
