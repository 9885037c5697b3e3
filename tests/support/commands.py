"""All commands of the command line, with their parsers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from edenmem.cli.app.root import COMMANDS, load


def every_command() -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the words and the parser of each command, without groups."""
    for name, entry in COMMANDS.items():
        command = load(entry)
        if not entry.is_group:
            yield (name,), command
            continue
        for sub in command.list_commands(None):
            yield (name, sub), command.get_command(None, sub)
