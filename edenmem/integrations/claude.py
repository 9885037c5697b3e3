"""The memory tool of Claude (``memory_20250818``), whose files are facts with the tag "claude"."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any, TypeVar

from edenmem import AgentMemory, Fact, SyncAgentMemory
from edenmem.integrations import REFUSALS, requires
from edenmem.integrations.common import Items

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


with requires("anthropic"):
    from anthropic.lib.tools import BetaAbstractMemoryTool, BetaAsyncAbstractMemoryTool, ToolError


class EdenmemMemoryTool(BetaAsyncAbstractMemoryTool):
    """The memory tool on the memory of a user; without a user, on memory of all users.

    A file has up to 16 KB. What memory refuses, Claude reads as an error.

    Args:
        memory: The memory, from `MemoryService.memory_for`.
    """

    def __init__(self, memory: AgentMemory) -> None:
        super().__init__()
        self._items = Items(memory, "claude")

    async def execute(self, command: Any) -> Any:
        """Run a command."""
        try:
            return await super().execute(command)
        except REFUSALS as error:
            raise ToolError(f"Error: {error.message}") from error

    async def view(self, command: Any) -> str:
        """Return a file with line numbers, or the names in a directory."""
        path, files = checked(command.path), await self._files()
        if path in files:
            shown = numbered(_text(files[path]), *(command.view_range or (1, -1)))
            return f"Here's the content of {path} with line numbers:\n{shown}"
        if path != ROOT and not below(path, files):
            raise ToolError(f"The path {path} does not exist. Please provide a valid path.")
        sizes = {name: len(_text(fact).encode()) for name, fact in below(path, files).items()}
        return listed(path, sizes)

    async def create(self, command: Any) -> str:
        """Create a file."""
        path = checked(command.path)
        if other := taken(path, await self._files()):
            raise ToolError(f"File {other} already exists")
        await self._write(path, command.file_text, version=0)
        return f"File created successfully at: {path}"

    async def str_replace(self, command: Any) -> str:
        """Replace a text that a file has once."""
        path, fact = await self._file(command.path)
        old, new = command.old_str, command.new_str
        text, answer = replaced(path, _text(fact), old, new)
        await self._write(path, text, version=fact.version)
        return answer

    async def insert(self, command: Any) -> str:
        """Insert lines after a line of a file; 0 is the beginning."""
        path, fact = await self._file(command.path)
        text = inserted(_text(fact), command.insert_line, command.insert_text)
        await self._write(path, text, version=fact.version)
        return f"The file {path} has been edited."

    async def delete(self, command: Any) -> str:
        """Delete a file, or a directory with its files."""
        path = checked(command.path)
        for fact in found(path, await self._files()).values():
            await self._items.delete(fact)
        return f"Successfully deleted {path}"

    async def rename(self, command: Any) -> str:
        """Move a file, or a directory with its files."""
        old, new = checked(command.old_path), checked(command.new_path)
        files = await self._files()
        if taken(new, files):
            raise ToolError(f"The destination {new} already exists")
        for path, fact in found(old, files).items():
            await self._items.move(fact, new + path.removeprefix(old))
        return f"Successfully renamed {old} to {new}"

    async def _files(self) -> dict[str, Fact]:
        return {str(fact.key): fact for fact in await self._items.facts()}

    async def _file(self, given: str) -> tuple[str, Fact]:
        path, files = checked(given), await self._files()
        if path in files:
            return path, files[path]
        is_folder = path == ROOT or below(path, files)
        why = "is not a file." if is_folder else "does not exist. Please provide a valid path."
        raise ToolError(f"The path {path} {why}")

    async def _write(self, path: str, text: str, *, version: int) -> None:
        await self._items.put(path, text.strip() or path, {"text": text}, version=version)


class SyncEdenmemMemoryTool(BetaAbstractMemoryTool):
    """`EdenmemMemoryTool` without 'await', on a memory from `SyncMemoryService.memory_for`."""

    def __init__(self, memory: SyncAgentMemory) -> None:
        super().__init__()
        self._blocking, self._tool = memory, EdenmemMemoryTool(memory.memory)

    def execute(self, command: Any) -> Any:
        """Run a command."""
        return self._blocking.run(self._tool.execute(command))

    view = create = str_replace = insert = delete = rename = execute


def _text(fact: Fact) -> str:
    return str((fact.value or {}).get("text", ""))
