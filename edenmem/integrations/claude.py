"""The memory tool of Claude (``memory_20250818``), whose files are facts with the tag "claude"."""

from __future__ import annotations

from typing import Any

from edenmem import AgentMemory, Fact, SyncAgentMemory
from edenmem.integrations import REFUSALS, claude_files, requires
from edenmem.integrations.claude_files import ROOT, below, checked, found, taken
from edenmem.integrations.items import Items

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
            shown = claude_files.numbered(_text(files[path]), *(command.view_range or (1, -1)))
            return f"Here's the content of {path} with line numbers:\n{shown}"
        if path != ROOT and not below(path, files):
            raise ToolError(f"The path {path} does not exist. Please provide a valid path.")
        sizes = {name: len(_text(fact).encode()) for name, fact in below(path, files).items()}
        return claude_files.listed(path, sizes)

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
        text, answer = claude_files.replaced(path, _text(fact), old, new)
        await self._write(path, text, version=fact.version)
        return answer

    async def insert(self, command: Any) -> str:
        """Insert lines after a line of a file; 0 is the beginning."""
        path, fact = await self._file(command.path)
        text = claude_files.inserted(_text(fact), command.insert_line, command.insert_text)
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
