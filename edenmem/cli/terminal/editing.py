"""Editing a text: input, diff, confirmation, and keeping unsaved text."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from edenmem.cli.terminal.output import Output
from edenmem.cli.terminal.prompts import Missing, ask_key, confirm, person_is_there
from edenmem.cli.terminal.tables import style
from edenmem.engine.reports import EditReport
from edenmem.errors import ConflictError, EdenmemError, InputError, UsageError, unreadable
from edenmem.text import printable

_COLORS = {"+": "32", "-": "31", "@": "36"}


def read_text_option(content: str | None, file: str | None) -> str | None:
    """Read the text of ``--content`` or ``--file`` (``-``: stdin); None if neither is given.

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
        return None if content is None else _decode_argument(content)
    except UnicodeError as error:
        raise InputError("the text is not UTF-8") from error
    except OSError as error:
        raise unreadable(file or "stdin", error) from error


def _decode_argument(text: str) -> str:
    """Return an argument as text, also if it is not in the encoding of the locale.

    Python keeps bytes outside that encoding as surrogates, which no store can hold.

    Raises:
        UnicodeError: The argument is not UTF-8 either.
    """
    if not any("\ud800" <= character <= "\udfff" for character in text):
        return text
    return os.fsencode(text).decode("utf-8")


def editor_command() -> list[str]:
    """Return the command of ``$VISUAL`` or ``$EDITOR``.

    Raises:
        UsageError: There is no terminal, or the variable is invalid.
    """
    if not person_is_there():
        raise Missing("--content or --file", hint="--content - reads from stdin")
    named = _editor_name()
    try:
        words = shlex.split(named)
    except ValueError as error:
        raise UsageError(f"invalid $EDITOR: {named!r}: {error}") from error
    if not words:
        raise UsageError("$EDITOR is empty", hint="set $EDITOR, or use --content")
    return words


def _editor_name() -> str:
    return os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"


def find_editor() -> str | None:
    """Return the path of the editor, or None if it is not installed."""
    try:
        words = shlex.split(_editor_name())
    except ValueError:
        return None
    return shutil.which(words[0]) if words else None


class EditorFile:
    """A private file with a text for the editor."""

    def __init__(self, text: str, name: str) -> None:
        self._words = editor_command()
        self._original = f"{text}\n".encode()
        handle, path = tempfile.mkstemp(prefix=f"edenmem-{name}-", suffix=".md")  # mode 0600
        self.path = Path(path)
        with os.fdopen(handle, "wb") as file:
            file.write(self._original)

    def edit(self) -> str:
        """Open the editor and return the saved text.

        Raises:
            UsageError: The editor cannot be started, or failed.
            InputError: The file is not UTF-8.
        """
        words = self._words
        try:
            status = subprocess.run([*words, str(self.path)], check=False).returncode  # noqa: S603
        except OSError as error:
            raise UsageError(
                f"cannot start the editor {words[0]!r}: {error.strerror}",
                hint="set $EDITOR, or use --content",
            ) from error
        if status != 0:
            raise UsageError(f"the editor failed with status {status}; nothing was changed")
        try:
            return self.path.read_text("utf-8").removesuffix("\n")
        except UnicodeDecodeError as error:
            raise InputError("the text is not UTF-8") from error
        except OSError as error:
            raise InputError(f"cannot read {self.path}: {error.strerror}") from error

    def has_changes(self) -> bool:
        """Return whether the file differs from the original text."""
        try:
            return self.path.read_bytes() != self._original
        except OSError:
            return False

    def remove(self) -> None:
        """Remove the file."""
        self.path.unlink(missing_ok=True)


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
    confirmation. Text from the editor that is not written is kept in a file, whose name is printed.

    Returns:
        The report of the change, or None if nothing was written.
    """
    edited = EditorFile(before, name) if given is None else None
    with _keep_text(given, edited, name):
        while True:
            after = edited.edit() if edited else (given or "").removesuffix("\n")
            if after == before:
                out.note("the text is unchanged")
                break
            tried = write(after, True)
            if not (yes and out.is_data):
                show_diff(out, before, after)
            if dry_run:
                show(tried)
                _leave(edited)
                return None
            answer = _ask_to_write(can_edit=edited is not None, yes=yes)
            if answer == "no":
                out.note("nothing was changed")
                _leave(edited)
                return None
            if answer == "yes":
                written = write(after, False)
                show(written)
                if edited:
                    edited.remove()
                return written
    if edited:
        edited.remove()
    return None


def _ask_to_write(*, can_edit: bool, yes: bool) -> str:
    """Ask for confirmation: "yes", "no" or "edit again"."""
    if yes or not can_edit:
        return "yes" if confirm("Write this?", yes=yes) else "no"
    answers = {"y": "yes", "n": "no", "e": "edit again"}
    return answers[ask_key("Write this? [y]es, [n]o, [e]dit again", answers, default="n")]


def _leave(edited: EditorFile | None) -> None:
    """Print the name of the file with the edited text."""
    if edited:
        sys.stderr.write(f"{_saved_in(edited.path)}\n")


def _saved_in(path: Path) -> str:
    return f"your text is saved in {path} (use it with --file)"


@contextlib.contextmanager
def _keep_text(given: str | None, edited: EditorFile | None, name: str) -> Iterator[None]:
    """Save the text to a file if the command fails or is interrupted.

    Text from a pipe is saved after a conflict.
    """
    try:
        yield
    except EdenmemError as error:
        if edited is not None:
            path = _changed_file(edited)
        else:
            path = _write_kept(given or "", name) if isinstance(error, ConflictError) else None
        if path is not None:
            error.add_hint(_saved_in(path))
        raise
    except BaseException:
        path = _changed_file(edited) if edited is not None else None
        if path is not None:
            sys.stderr.write(f"\n{_saved_in(path)}\n")
        raise


def _changed_file(edited: EditorFile) -> Path | None:
    """Return the file if it was edited; otherwise remove it."""
    if edited.has_changes():
        return edited.path
    edited.remove()
    return None


def _write_kept(text: str, name: str) -> Path:
    handle, path = tempfile.mkstemp(prefix=f"edenmem-{name}-", suffix=".md")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text.removesuffix("\n") + "\n")
    return Path(path)


def diff_lines(before: str, after: str, old: str, new: str) -> list[str]:
    """Return a unified diff with printable lines."""
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
    """Print a colored unified diff, on stderr unless it is the result."""
    stream = sys.stdout if to_stdout else sys.stderr
    color = out.is_colored(stream)
    for line in diff_lines(before, after, old, new):
        stream.write(style(line, _COLORS.get(line[:1], ""), color and line[:1] in _COLORS) + "\n")
