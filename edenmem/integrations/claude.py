"""The memory tool of Claude (``memory_20250818``), whose files are facts.

The key of a fact is the path of its file, its value has the text of the file, and the tag
"claude" marks these facts.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import PurePosixPath
from typing import Any

from edenmem import AgentMemory, Fact, FactFields, SyncAgentMemory
from edenmem.integrations import REFUSALS, requires

with requires("anthropic"):
    from anthropic.lib.tools import BetaAbstractMemoryTool, BetaAsyncAbstractMemoryTool, ToolError

_TAGS = ("claude",)
_ROOT = "/memories"


class EdenmemMemoryTool(BetaAsyncAbstractMemoryTool):
    """The memory tool on the memory of a user; without a user, on memory of all users.

    A file has up to 16 KB. What memory refuses, Claude reads as an error.

    Args:
        memory: The memory, from `MemoryService.memory_for`.
    """

    def __init__(self, memory: AgentMemory) -> None:
        super().__init__()
        self._memory, self._shared = memory, memory.user_id is None

    async def execute(self, command: Any) -> Any:
        """Run a command."""
        try:
            return await super().execute(command)
        except REFUSALS as error:
            raise ToolError(f"Error: {error.message}") from error

    async def view(self, command: Any) -> str:
        """Return a file with line numbers, or the names in a directory."""
        path, files = _checked(command.path), await self._files()
        if path in files:
            first, last = command.view_range or (1, -1)
            shown = _numbered(_text(files[path]), first, last)
            return f"Here's the content of {path} with line numbers:\n{shown}"
        if path != _ROOT and not _below(path, files):
            raise ToolError(f"The path {path} does not exist. Please provide a valid path.")
        sizes: Counter[str] = Counter({path: 0})
        for name, fact in _below(path, files).items():
            if "/." not in name:
                parts = name.removeprefix(f"{path}/").split("/")
                folders = [f"{path}/{'/'.join(parts[:n])}/" for n in range(1, len(parts))]
                sizes.update(dict.fromkeys([path, *folders, name][:3], len(_text(fact).encode())))
        names = sorted(sizes, key=lambda name: name.split("/"))
        listed = "\n".join(f"{sizes[name]}B\t{name}" for name in names)
        what = f"files and directories up to 2 levels deep in {path}, excluding hidden items"
        return f"Here're the {what}:\n{listed}"

    async def create(self, command: Any) -> str:
        """Create a file."""
        path = _checked(command.path)
        if taken := _taken(path, await self._files()):
            raise ToolError(f"File {taken} already exists")
        await self._write(path, command.file_text, version=0)
        return f"File created successfully at: {path}"

    async def str_replace(self, command: Any) -> str:
        """Replace a text that a file has once."""
        path, fact = await self._file(command.path)
        text, old = _text(fact), command.old_str
        starts = [found.start() for found in re.finditer(re.escape(old), text)]
        lines = [text[:start].count("\n") + 1 for start in starts]
        if not lines:
            why = f", old_str `{old}` did not appear verbatim in {path}."
            raise ToolError(f"No replacement was performed{why}")
        if len(lines) > 1:
            why = f"Multiple occurrences of old_str `{old}` in lines: {', '.join(map(str, lines))}"
            raise ToolError(f"No replacement was performed. {why}. Please ensure it is unique")
        text = text.replace(old, command.new_str)
        await self._write(path, text, version=fact.version)
        shown = _numbered(text, lines[0] - 2, lines[0] + 2)
        what = "Here is the snippet showing the change (with line numbers)"
        return f"The memory file has been edited. {what}:\n{shown}"

    async def insert(self, command: Any) -> str:
        """Insert lines after a line of a file; 0 is the beginning."""
        path, fact = await self._file(command.path)
        lines = _text(fact).removesuffix("\n").split("\n") if _text(fact) else []
        if not 0 <= (line := command.insert_line) <= len(lines):
            why = f"It should be within the range [0, {len(lines)}]."
            raise ToolError(f"Invalid `insert_line` parameter: {line}. {why}")
        lines.insert(line, command.insert_text.rstrip("\n"))
        await self._write(path, "\n".join(lines) + "\n", version=fact.version)
        return f"The file {path} has been edited."

    async def delete(self, command: Any) -> str:
        """Delete a file, or a directory with its files."""
        path = _checked(command.path)
        for fact in (await self._found(path)).values():
            await self._memory.forget_fact(fact.id)
        return f"Successfully deleted {path}"

    async def rename(self, command: Any) -> str:
        """Move a file, or a directory with its files."""
        old, new = _checked(command.old_path), _checked(command.new_path)
        if _taken(new, await self._files()):
            raise ToolError(f"The destination {new} already exists")
        for path, fact in (await self._found(old)).items():
            fields = FactFields(key=new + path.removeprefix(old), tags=fact.tags, value=fact.value)
            await self._memory.edit_fact(fact.id, version=fact.version, fields=fields)
        return f"Successfully renamed {old} to {new}"

    async def _files(self) -> dict[str, Fact]:
        facts = await self._memory.facts(limit=None, tags=_TAGS, shared=self._shared)
        return {fact.key: fact for fact in facts if fact.key is not None}

    async def _file(self, given: str) -> tuple[str, Fact]:
        path, files = _checked(given), await self._files()
        if path in files:
            return path, files[path]
        is_folder = path == _ROOT or _below(path, files)
        why = "is not a file." if is_folder else "does not exist. Please provide a valid path."
        raise ToolError(f"The path {path} {why}")

    async def _found(self, path: str) -> dict[str, Fact]:
        files = await self._files()
        found = {path: files[path]} if path in files else _below(path, files)
        if path == _ROOT or not found:
            raise ToolError(
                f"The path {path} {'is the root' if path == _ROOT else 'does not exist'}"
            )
        return found

    async def _write(self, path: str, text: str, *, version: int) -> None:
        content, fields = (
            text.strip() or path,
            FactFields(key=path, tags=_TAGS, value={"text": text}),
        )
        await self._memory.put_fact(content, shared=self._shared, fields=fields, version=version)


class SyncEdenmemMemoryTool(BetaAbstractMemoryTool):
    """`EdenmemMemoryTool` without 'await', on a memory from `SyncMemoryService.memory_for`."""

    def __init__(self, memory: SyncAgentMemory) -> None:
        super().__init__()
        self._blocking, self._tool = memory, EdenmemMemoryTool(memory.memory)

    def execute(self, command: Any) -> Any:
        """Run a command."""
        return self._blocking.run(self._tool.execute(command))

    view = create = str_replace = insert = delete = rename = execute


def _checked(path: str) -> str:
    """Return the path in its shortest form."""
    parts = PurePosixPath(path).parts
    if parts[:2] != ("/", "memories") or ".." in parts:
        raise ToolError(f"Path must start with {_ROOT}, got: {path}")
    return str(PurePosixPath(path))


def _below(folder: str, files: dict[str, Fact]) -> dict[str, Fact]:
    return {path: fact for path, fact in files.items() if path.startswith(f"{folder}/")}


def _taken(path: str, files: dict[str, Fact]) -> str:
    """Return a file that excludes a new path: the same one, one below or one above; "" if none."""
    if path == _ROOT:
        return path
    new = f"{path}/"
    return next(
        (each for each in files if f"{each}/".startswith(new) or new.startswith(f"{each}/")), ""
    )


def _text(fact: Fact) -> str:
    return str((fact.value or {}).get("text", ""))


def _numbered(text: str, first: int, last: int) -> str:
    first, lines = max(1, first), text.split("\n")
    shown = lines[first - 1 : len(lines) if last == -1 else last]
    return "\n".join(f"{number:6}\t{line}" for number, line in enumerate(shown, first))
