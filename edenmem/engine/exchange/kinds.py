"""Recognize what a file to import contains, and name the forms of exports for other programs."""

from __future__ import annotations

from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Any

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

    def load(self) -> Any:
        """Return the module that reads the format; see `formats`."""
        name = "mcp_graph" if self is FileKind.MCP else self.value
        return import_module(f"edenmem.engine.exchange.formats.{name}")


_WORDS = {
    FileKind.CHATGPT: "chats of ChatGPT",
    FileKind.CLAUDE: "chats of Claude",
    FileKind.MCP: "a knowledge graph of the MCP memory server",
    FileKind.LETTA: "an agent file of Letta",
    FileKind.OPENMEMORY: "memories of OpenMemory",
    FileKind.GRAPHITI: "episodes of Graphiti or Zep",
    FileKind.MESSAGES: "lists of messages",
    FileKind.MEM0: "memories of mem0",
    FileKind.SESSIONS: "conversations",
    FileKind.NOTES: "Markdown notes",
    FileKind.RECORDS: "records of edenmem",
}


def kind_of(source: Source) -> FileKind:
    """Return what a file contains, from its beginning; records if that is not clear."""
    from edenmem.engine.exchange.documents import read_beginning

    if source.name.endswith(".md"):
        return FileKind.NOTES
    beginning = read_beginning(source)
    for kind in FileKind:
        if kind not in (FileKind.NOTES, FileKind.RECORDS) and kind.load().matches(beginning):
            return kind
    return FileKind.RECORDS
