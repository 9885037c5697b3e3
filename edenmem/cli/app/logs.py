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
    levels = [logging.INFO if is_json else logging.WARNING, logging.INFO, logging.DEBUG]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter(is_json=is_json))
    stop_logging()
    logging.getLogger().addHandler(handler)
    logging.getLogger("edenmem").setLevel(levels[min(verbosity, 2)])


def stop_logging() -> None:
    """Remove the handler of `start_logging`."""
    root = logging.getLogger()
    for added in [each for each in root.handlers if isinstance(each.formatter, _Formatter)]:
        root.removeHandler(added)
    logging.getLogger("edenmem").setLevel(logging.NOTSET)


def note_logger() -> Callable[[str], None]:
    """Return a function that writes a note to the JSON log."""
    start_logging(0, is_json=True)
    return logging.getLogger("edenmem.cli").info


class _Formatter(logging.Formatter):
    """Lines of text (level, logger, message, traceback), or of JSON with time and details."""

    def __init__(self, *, is_json: bool) -> None:
        super().__init__()
        self._is_json = is_json

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        level, message = record.levelname.lower(), record.getMessage()
        traceback = self.formatException(record.exc_info) if record.exc_info else ""
        if not self._is_json:
            lines = [f"{level}: {record.name}: {message}", traceback]
            return printable("\n".join(filter(None, lines)))
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        data = {"time": at, "level": level, "logger": record.name, "message": message}
        data |= getattr(record, "details", {})
        return json.dumps(data | ({"traceback": traceback} if traceback else {}))
