"""Where the log of a command goes: to stderr, as lines for people or as JSON."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from datetime import UTC, datetime

from edenmem.text import printable


def start_logging(verbosity: int, *, is_json: bool) -> None:
    """Write the log to stderr: warnings, with ``-v`` what was done, with ``-vv`` details.

    JSON begins with what was done. Libraries have their warnings logged, whatever the verbosity.
    """
    quietest = logging.INFO if is_json else logging.WARNING
    levels = [quietest, logging.INFO, logging.DEBUG]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if is_json else _TextFormatter())
    stop_logging()
    logging.getLogger().addHandler(handler)
    logging.getLogger("edenmem").setLevel(levels[min(verbosity, 2)])


def stop_logging() -> None:
    """Take off what `start_logging` added."""
    root = logging.getLogger()
    for added in [each for each in root.handlers if isinstance(each.formatter, _FORMATTERS)]:
        root.removeHandler(added)
    logging.getLogger("edenmem").setLevel(logging.NOTSET)


def note_logger() -> Callable[[str], None]:
    """Return what writes a note of a command as a line of the JSON log."""
    start_logging(0, is_json=True)
    return logging.getLogger("edenmem.cli").info


class _TextFormatter(logging.Formatter):
    """A line for people: the level, what logged it, and what it says."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, and below it the traceback if there is one."""
        text = f"{record.levelname.lower()}: {record.name}: {record.getMessage()}"
        if record.exc_info:
            text += f"\n{self.formatException(record.exc_info)}"
        return printable(text)


class _JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the object: time, level, logger, message, and the details as fields."""
        at = datetime.fromtimestamp(record.created, UTC)
        data: dict[str, object] = {
            "time": at.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        data |= getattr(record, "details", {})
        if record.exc_info:
            data["traceback"] = self.formatException(record.exc_info)
        return json.dumps(data)


_FORMATTERS = (_TextFormatter, _JsonFormatter)
