"""Characters that a stream cannot encode, and what is written instead.

Encoding error handlers, so that every table, chart and text takes the same path.
"""

from __future__ import annotations

import codecs
import os
from typing import TextIO

#: What tables, charts and notes draw → ASCII of the same width.
_DRAWN = str.maketrans("…─━│┃╸╺█░▒▓→←·•×–—✓✗", "~--||--#.+=><.*x--+x")
_HANDLERS = ("edenmem.ascii", "edenmem.utf8", "edenmem.json")


def adapt_stream(stream: TextIO) -> None:
    """Make a stream write any text: drawings fall back to ASCII, the rest to escapes.

    Python writes UTF-8 in the C locale. On a terminal, drawings are ASCII there all the same; text
    stays UTF-8.
    """
    if stream.isatty() and _is_c_locale():
        _configure(stream, encoding="ascii", errors="edenmem.utf8")
    else:
        _configure(stream, errors="edenmem.ascii")


def escape_json(stream: TextIO) -> None:
    """Make a stream write characters outside its encoding as JSON escapes."""
    if stream.errors in _HANDLERS:
        _configure(stream, errors="edenmem.json")


def _configure(stream: TextIO, **how: str) -> None:
    stream.reconfigure(**how)  # type: ignore[attr-defined]


def _is_c_locale() -> bool:
    """Return whether the environment names the C locale; an unset locale does not count."""
    if os.environ.get("PYTHONIOENCODING"):
        return False
    named = (os.environ.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    return next(filter(None, named), "") in ("C", "POSIX")


def _take(error: UnicodeError) -> tuple[str, int]:
    """Return the text that cannot be encoded, with drawings replaced, and where it ends."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return error.object[error.start : error.end].translate(_DRAWN), error.end


def _to_ascii(error: UnicodeError) -> tuple[str | bytes, int]:
    text, end = _take(error)
    return text.encode("ascii", "backslashreplace").decode("ascii"), end


def _to_utf8(error: UnicodeError) -> tuple[str | bytes, int]:
    text, end = _take(error)
    return text.encode("utf-8", "backslashreplace"), end


def _to_json(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    pairs = zip(units[::2], units[1::2], strict=True)
    return "".join(f"\\u{high:02x}{low:02x}" for high, low in pairs), error.end


for _name, _handler in zip(_HANDLERS, (_to_ascii, _to_utf8, _to_json), strict=True):
    codecs.register_error(_name, _handler)
