"""The log of a command: text or JSON lines on stderr."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from datetime import UTC, datetime

from edenmem.text import printable


def start_logging(verbosity: int, *, is_json: bool) -> None:
    """Write the log to stderr: warnings, info with ``-v``, debug with ``-vv``.

    JSON starts at info. Libraries log only warnings.
    """
    quietest = logging.INFO if is_json else logging.WARNING
    levels = [quietest, logging.INFO, logging.DEBUG]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if is_json else _TextFormatter())
    stop_logging()
    logging.getLogger().addHandler(handler)
    logging.getLogger("edenmem").setLevel(levels[min(verbosity, 2)])


def stop_logging() -> None:
    """Remove the handler of `start_logging`."""
    root = logging.getLogger()
    for added in [each for each in root.handlers if isinstance(each.formatter, _FORMATTERS)]:
        root.removeHandler(added)
    logging.getLogger("edenmem").setLevel(logging.NOTSET)


def note_logger() -> Callable[[str], None]:
    """Return a function that writes a note to the JSON log."""
    start_logging(0, is_json=True)
    return logging.getLogger("edenmem.cli").info


class _TextFormatter(logging.Formatter):
    """Text lines: level, logger and message."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, followed by the traceback of an exception."""
        text = f"{record.levelname.lower()}: {record.name}: {record.getMessage()}"
        if record.exc_info:
            text += f"\n{self.formatException(record.exc_info)}"
        return printable(text)


class _JsonFormatter(logging.Formatter):
    """JSON lines."""

    def format(self, record: logging.LogRecord) -> str:
        """Return an object with time, level, logger, message and details."""
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
