"""Text files as the memory tool of Claude lists, shows and edits them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import TypeVar

from edenmem.integrations import requires

with requires("anthropic"):
    from anthropic.lib.tools import ToolError

T = TypeVar("T")

ROOT = "/memories"


def checked(path: str) -> str:
    """Return the path in its shortest form.

    Raises:
        ToolError: The path is outside of the root.
    """
    parts = PurePosixPath(path).parts
    if parts[:2] != ("/", "memories") or ".." in parts:
        raise ToolError(f"Path must start with {ROOT}, got: {path}")
    return str(PurePosixPath(path))


def below(folder: str, files: Mapping[str, T]) -> dict[str, T]:
    """Return the files in a directory and its subdirectories."""
    return {path: each for path, each in files.items() if path.startswith(f"{folder}/")}


def taken(path: str, files: Iterable[str]) -> str:
    """Return a file that excludes a new path: the same one, one below or one above; "" if none."""
    new = f"{path}/"
    excluding = (each for each in files if f"{each}/".startswith(new) or new.startswith(f"{each}/"))
    return path if path == ROOT else next(excluding, "")


def found(path: str, files: Mapping[str, T]) -> dict[str, T]:
    """Return the file at a path, or the files in this directory.

    Raises:
        ToolError: There is none, or the path is the root.
    """
    some = {path: files[path]} if path in files else below(path, files)
    if path == ROOT or not some:
        raise ToolError(f"The path {path} {'is the root' if path == ROOT else 'does not exist'}")
    return some


def listed(folder: str, sizes: Mapping[str, int]) -> str:
    """List a directory by the sizes of its files, two levels deep, without hidden items."""
    totals: Counter[str] = Counter({folder: 0})
    for name, size in sizes.items():
        if "/." not in name:
            parts = name.removeprefix(f"{folder}/").split("/")
            folders = [f"{folder}/{'/'.join(parts[:n])}/" for n in range(1, len(parts))]
            totals.update(dict.fromkeys([folder, *folders, name][:3], size))
    names = sorted(totals, key=lambda name: name.split("/"))
    lines = "\n".join(f"{totals[name]}B\t{name}" for name in names)
    what = f"files and directories up to 2 levels deep in {folder}, excluding hidden items"
    return f"Here're the {what}:\n{lines}"


def numbered(text: str, first: int, last: int) -> str:
    """Return lines of a text with their numbers, up to the end if ``last`` is -1."""
    first, lines = max(1, first), text.split("\n")
    shown = lines[first - 1 : len(lines) if last == -1 else last]
    return "\n".join(f"{number:6}\t{line}" for number, line in enumerate(shown, first))


def replaced(path: str, text: str, old: str, new: str) -> tuple[str, str]:
    """Replace a text that a file has once; return the new text, and the answer.

    Raises:
        ToolError: The file has the text never, or several times.
    """
    starts = [found.start() for found in re.finditer(re.escape(old), text)]
    lines = [text[:start].count("\n") + 1 for start in starts]
    if not lines:
        why = f", old_str `{old}` did not appear verbatim in {path}."
        raise ToolError(f"No replacement was performed{why}")
    if len(lines) > 1:
        why = f"Multiple occurrences of old_str `{old}` in lines: {', '.join(map(str, lines))}"
        raise ToolError(f"No replacement was performed. {why}. Please ensure it is unique")
    text = text.replace(old, new)
    what = "Here is the snippet showing the change (with line numbers)"
    shown = numbered(text, lines[0] - 2, lines[0] + 2)
    return text, f"The memory file has been edited. {what}:\n{shown}"


def inserted(text: str, after: int, new: str) -> str:
    """Insert lines after a line of a text; 0 is the beginning.

    Raises:
        ToolError: The text has no such line.
    """
    lines = text.removesuffix("\n").split("\n") if text else []
    if not 0 <= after <= len(lines):
        why = f"It should be within the range [0, {len(lines)}]."
        raise ToolError(f"Invalid `insert_line` parameter: {after}. {why}")
    lines.insert(after, new.rstrip("\n"))
    return "\n".join(lines) + "\n"
