"""Recognize what a file to import contains."""

from __future__ import annotations

import json
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING

from edenmem.errors import InputError

if TYPE_CHECKING:
    from edenmem.engine.exchange.files import Source

#: Number of lines to look at.
_LINES = 20


class FileKind(StrEnum):
    """What a file or folder contains."""

    RECORDS = "records"
    SESSIONS = "sessions"
    MEM0 = "mem0"
    NOTES = "notes"

    @property
    def words(self) -> str:
        """Describe the content."""
        return _WORDS[self]


_WORDS = {
    FileKind.RECORDS: "records of edenmem",
    FileKind.SESSIONS: "conversations",
    FileKind.MEM0: "memories of mem0",
    FileKind.NOTES: "a folder of Markdown",
}


def kind_of(source: Source) -> FileKind:
    """Return what a file contains, from its first lines; records if that is not clear."""
    from edenmem.engine.exchange.mem0 import may_be_mem0

    if may_be_mem0(source):
        return FileKind.MEM0
    try:
        for _, line in islice(source.lines(), _LINES):
            try:
                item = json.loads(line)
            except ValueError:
                continue
            if isinstance(item, dict):
                is_session = "type" not in item and not item.keys().isdisjoint(_OF_SESSIONS)
                return FileKind.SESSIONS if is_session else FileKind.RECORDS
    except InputError:  # reported by the import
        pass
    return FileKind.RECORDS


#: Keys of a line with a conversation.
_OF_SESSIONS = frozenset({"session", "messages", "agent", "users"})
