"""Recognize what a file to import contains, and name the forms of exports for other programs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Any

from edenmem.errors import InputError

if TYPE_CHECKING:
    from edenmem.engine.exchange.files import Source


class System(StrEnum):
    """The form of an export for other programs."""

    MEM0 = "mem0"
    MCP = "mcp"
    MARKDOWN = "markdown"


class FileKind(StrEnum):
    """What a file or folder contains; the formats are recognized in this order."""

    CHATGPT = "chatgpt"
    CLAUDE = "claude"
    MCP = "mcp"
    LETTA = "letta"
    OPENMEMORY = "openmemory"
    GRAPHITI = "graphiti"
    MESSAGES = "messages"
    MEM0 = "mem0"
    SESSIONS = "sessions"
    NOTES = "notes"
    RECORDS = "records"

    @property
    def words(self) -> str:
        """Describe the content."""
        return _WORDS[self]

    @property
    def has_chats(self) -> bool:
        """Return whether the items are conversations."""
        return self in (self.CHATGPT, self.CLAUDE, self.MESSAGES, self.SESSIONS)

    def read(self, source: Any, left_out: dict[str, int]) -> Iterator[tuple[int, Any]]:
        """Yield number and line of each item of a `Source`, or of the notes at a path.

        The module of the format in `formats` reads them.
        """
        if self is FileKind.SESSIONS:  # edenmem's own form, as it is
            from edenmem.engine.exchange.documents import read_pairs

            return ((number, item) for number, _, item in read_pairs(source))
        name = "mcp_graph" if self is FileKind.MCP else self.value
        module = import_module(f"edenmem.engine.exchange.formats.{name}")
        found: Iterator[tuple[int, Any]] = module.read(source, left_out)
        return found


_WORDS = {
    FileKind.CHATGPT: "ChatGPT chats",
    FileKind.CLAUDE: "Claude chats",
    FileKind.MCP: "a knowledge graph of the MCP memory server",
    FileKind.LETTA: "a Letta agent file",
    FileKind.OPENMEMORY: "OpenMemory memories",
    FileKind.GRAPHITI: "Graphiti or Zep episodes",
    FileKind.MESSAGES: "lists of messages",
    FileKind.MEM0: "mem0 memories",
    FileKind.SESSIONS: "conversations",
    FileKind.NOTES: "Markdown notes",
    FileKind.RECORDS: "edenmem records",
}


#: How a file of SQLite begins.
_DATABASE = b"SQLite format 3\0"
#: How JSON, gzip and zip begin, and an empty input.
_READABLE = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:[{\[\"]|\Z)|\x1f\x8b|PK")


def kind_of(source: Source) -> FileKind:
    """Return what a file contains, from its beginning; records if that is not clear.

    Raises:
        InputError: an archive cannot be read, or the file is neither JSON nor packed.
    """
    from edenmem.engine.exchange.documents import read_beginning

    if source.name.endswith(".md"):
        return FileKind.NOTES
    start = source.start()
    if start == _DATABASE:
        raise InputError(
            f"{source.name} is a SQLite database",
            hint="if it is a store of edenmem, import what 'edenmem --uri FILE export' writes",
        )
    if not _READABLE.match(start):
        raise InputError(
            f"{source.name} does not begin like any format that is known",
            hint="name its format with --as; see 'edenmem help import'",
        )
    beginning = read_beginning(source)
    kinds = (kind for kind, matches in _SIGNS.items() if matches(beginning))
    return next(kinds, FileKind.RECORDS)


def _is_graphiti(beginning: dict[str, Any]) -> bool:
    first = beginning.get("episodes", beginning.get("edges", beginning))
    first = first[0] if isinstance(first, list) and first else first
    return (
        isinstance(first, dict)
        and "uuid" in first
        and not {"source_description", "role_type", "fact"}.isdisjoint(first)
    )


def _has_messages(beginning: dict[str, Any]) -> bool:
    listed = beginning.get("")
    first = listed[0] if isinstance(listed, list) and listed else None
    return (
        {"role", "content"} <= beginning.keys()
        or ("messages" in beginning and "session" not in beginning)
        or (isinstance(first, dict) and "role" in first)
    )


#: How a file of each format begins (see `documents.read_beginning`), in the order of checks.
_SIGNS: dict[FileKind, Callable[[dict[str, Any]], bool]] = {
    FileKind.CHATGPT: lambda b: isinstance(b.get("mapping"), dict) or "current_node" in b,
    FileKind.CLAUDE: lambda b: "chat_messages" in b,
    FileKind.MCP: lambda b: (
        b.get("type") in ("entity", "relation") or {"entities", "relations"} <= b.keys()
    ),
    FileKind.LETTA: lambda b: (
        (isinstance(b.get("agents"), list | dict) and "system" in str(b.get("agents")))
        or ("agent_type" in b and not {"core_memory", "messages"}.isdisjoint(b))
    ),
    FileKind.OPENMEMORY: lambda b: (
        {"user", "apps"} <= b.keys() or {"content", "state", "app"} <= b.keys()
    ),
    FileKind.GRAPHITI: _is_graphiti,
    FileKind.MESSAGES: _has_messages,
    FileKind.MEM0: lambda b: "type" not in b and not {"memory", "results"}.isdisjoint(b),
    FileKind.SESSIONS: lambda b: (
        "type" not in b and not {"session", "messages", "agent", "users"}.isdisjoint(b)
    ),
}
