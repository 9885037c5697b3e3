"""The memory tool of Claude (``memory_20250818``), whose files are facts with the tag "claude"."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

from edenmem import AgentMemory, Fact, SyncAgentMemory
from edenmem.integrations import REFUSALS, requires
from edenmem.integrations.common import Items

with requires("anthropic"):
    from anthropic.lib.tools import (
        BetaAbstractMemoryTool,
        BetaAsyncAbstractMemoryTool,
        ToolError,
    )
    from anthropic.tools import BetaLocalFilesystemMemoryTool


class EdenmemMemoryTool(BetaAsyncAbstractMemoryTool):
    """The memory tool on the memory of a user; without a user, on memory of all users.

    The SDK's own tool runs each command on a temporary copy of the files, and what it changed is
    written to memory. A file has up to 16 KB. What memory refuses, Claude reads as an error.

    Args:
        memory: The memory, from `MemoryService.memory_for`.
    """

    def __init__(self, memory: AgentMemory) -> None:
        super().__init__()
        self._items = Items(memory, "claude")

    async def execute(self, command: Any) -> Any:
        """Run a command."""
        facts = {str(fact.key): fact for fact in await self._items.facts() if _is_file(fact.key)}
        before = {path: str((fact.value or {}).get("text", "")) for path, fact in facts.items()}
        answer, after = await asyncio.to_thread(_run, command, before)
        try:
            await self._keep(facts, before, after)
        except REFUSALS as error:
            raise ToolError(f"Error: {error.message}") from error
        return answer

    async def _keep(
        self, facts: Mapping[str, Fact], before: Mapping[str, str], after: Mapping[str, str]
    ) -> None:
        """Write the files that a command created, edited, moved or deleted."""
        gone = {path: text for path, text in before.items() if path not in after}
        for path, text in after.items():
            if before.get(path) == text:
                continue
            old = next((old for old, moved in gone.items() if moved == text), None)
            if old is not None:
                await self._items.move(facts[old], path)
                del gone[old]
                continue
            version = facts[path].version if path in facts else 0
            await self._items.put(path, text.strip() or path, {"text": text}, version=version)
        for path in gone:
            await self._items.delete(path)

    view = create = str_replace = insert = delete = rename = execute


class SyncEdenmemMemoryTool(BetaAbstractMemoryTool):
    """`EdenmemMemoryTool` without 'await', on a memory from `SyncMemoryService.memory_for`."""

    def __init__(self, memory: SyncAgentMemory) -> None:
        super().__init__()
        self._blocking, self._tool = memory, EdenmemMemoryTool(memory.memory)

    def execute(self, command: Any) -> Any:
        """Run a command."""
        return self._blocking.run(self._tool.execute(command))

    view = create = str_replace = insert = delete = rename = execute


def _is_file(key: str | None) -> bool:
    """Return whether a key is the path of a file below /memories; others have keys of their own."""
    path = PurePosixPath(key or "")
    return str(path) == key and key.startswith("/memories/") and ".." not in path.parts


def _run(command: Any, files: Mapping[str, str]) -> tuple[Any, dict[str, str]]:
    """Run a command on a copy of the files; return the answer and the files after it.

    Raises:
        ToolError: The command is invalid.
    """
    with TemporaryDirectory() as folder:
        tool = BetaLocalFilesystemMemoryTool(folder)
        try:
            for path, text in files.items():
                file = Path(f"{folder}{path}")
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(text.encode())
            answer = tool.execute(command)
        except OSError as error:
            raise ToolError(f"Error: {error.strerror}") from error
        found = (file for file in tool.memory_root.rglob("*") if file.is_file())
        return answer, {
            f"/{file.relative_to(folder).as_posix()}": file.read_bytes().decode() for file in found
        }
