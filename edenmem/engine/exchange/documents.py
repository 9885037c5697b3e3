"""Read JSON documents of any size item by item.

`ijson` reads as fast, but one invalid byte ends the file, and its errors have no position.
"""

from __future__ import annotations

import codecs
import io
import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import IO, Any

from edenmem.engine.exchange.files import DAMAGES, Source
from edenmem.errors import InputError

_CHUNK = 1 << 16
#: Maximum length of an item in characters.
_LONGEST = 64 << 20
_SPACE = re.compile(r"[\s,]*")
#: Names of lists that make an object on one line a document.
_LISTS = frozenset(
    {
        "results",
        "memories",
        "conversations",
        "entities",
        "episodes",
        "edges",
        "agents",
        "core_memory",
    }
)
#: Number of items that tell formats apart.
_FIRST = 64


class DamagedDocument(Exception):
    """A document cannot be read beyond ``offset``, in bytes from the beginning."""

    def __init__(self, offset: int) -> None:
        super().__init__(f"cannot be read beyond byte {offset:,}: invalid JSON, or cut off")


class Document:
    """An incremental reader of JSON values, which may follow each other in one file."""

    def __init__(self, file: IO[bytes]) -> None:
        # Invalid bytes become lone surrogates, so that one bad item does not spoil the file.
        self._file = codecs.getreader("utf-8-sig")(file, "surrogateescape")
        self._decoder = json.JSONDecoder()
        self._text = ""
        self._at = 0
        self._passed = 0
        #: The names of fields so far.
        self.names: dict[str, None] = {}

    def pairs(self) -> Iterator[tuple[str, Any]]:
        """Yield the items of lists, and the fields of objects, with the name of the field.

        A field with a list yields each item; a name is "" for lists without one.

        Raises:
            DamagedDocument: the rest cannot be read.
        """
        try:
            while first := self._peek():
                if first == "[":
                    yield from (("", item) for item in self._list())
                elif first == "{":
                    yield from self._object()
                else:
                    value = self._value()
                    if isinstance(value, str):  # a document within a string
                        yield from Document(io.BytesIO(value.encode())).pairs()
                    else:
                        yield "", value
        except (ValueError, RecursionError, *DAMAGES):
            read = self._text[: self._at].encode("utf-8", "surrogateescape")
            raise DamagedDocument(self._passed + len(read)) from None

    def _object(self) -> Iterator[tuple[str, Any]]:
        self._at += 1
        while self._peek() != "}":
            name = str(self._value())
            self.names[name] = None
            if self._peek() != ":":
                raise ValueError("':' is missing")
            self._at += 1
            if self._peek() == "[":
                yield from ((name, item) for item in self._list())
            else:
                yield name, self._value()
        self._at += 1

    def _list(self) -> Iterator[Any]:
        self._at += 1
        while self._peek() != "]":
            yield self._value()
        self._at += 1

    def _peek(self) -> str:
        """Return the next character that is neither space nor comma; "" at the end."""
        while True:
            match = _SPACE.match(self._text, self._at)
            assert match is not None
            self._at = match.end()
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._read():
                return ""

    def _value(self) -> Any:
        if not self._peek():
            raise EOFError
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except ValueError:
                if len(self._text) - self._at > _LONGEST or not self._read():
                    raise
                continue
            if end == len(self._text) and self._read():
                continue  # a number may have more digits
            self._at = end
            return value

    def _read(self) -> bool:
        """Read more, at least doubling the unread text; return False at the end."""
        left = self._text[self._at :]
        more = self._file.read(max(_CHUNK, len(left)))
        self._passed += len(self._text[: self._at].encode("utf-8", "surrogateescape"))
        self._text, self._at = left + more, 0
        return bool(more)


def is_document(source: Source) -> bool:
    """Return whether a file is a document; other files have an item per line."""
    try:
        texts = (text for _, raw in source.lines() if (text := bare(raw)))
        line, after = next(texts, b""), next(texts, b"")
    except InputError as error:
        if error.line is None:
            raise
        return True  # one long line
    if not line.startswith(b"{"):
        return line.startswith((b"[", b'"'))
    try:
        return not _LISTS.isdisjoint(json.loads(line))
    except (ValueError, RecursionError):
        names = any(b'"%s"' % name.encode() in line for name in _LISTS)
        return line.endswith((b"{", b"[", b",")) or (names and not after)


def bare(line: bytes) -> bytes:
    """Return a line without spaces around it, and without a byte order mark."""
    return line.removeprefix(codecs.BOM_UTF8).strip()


def read_pairs(source: Source) -> Iterator[tuple[int, str, Any]]:
    """Yield number, field and value of each item; see `Document.pairs`.

    If the file has an item per line, the number is that of the line, and the value the whole item,
    or the bytes of an invalid line.

    Raises:
        DamagedDocument: the rest of a document cannot be read.
        InputError: the rest of a compressed file cannot be read.
    """
    if is_document(source):
        for number, (name, value) in enumerate(Document(source.rewind()).pairs(), 1):
            yield number, name, value
        return
    for number, line in source.lines():
        text = bare(line)
        if not text:
            continue
        try:
            yield number, "", json.loads(text)
        except (ValueError, RecursionError):
            yield number, "", text


def read_items(source: Source, *names: str) -> Iterator[tuple[int, Any]]:
    """Yield number and value of the items of lists, without a name or with one of ``names``.

    Raises:
        DamagedDocument, InputError: as for `read_pairs`.
    """
    listed = 0
    for number, field, value in read_pairs(source):
        if field in names:
            listed += 1
            yield listed, value
        elif not field:
            yield number, value


def read_beginning(source: Source) -> dict[str, Any]:
    """Return the first item if it is an object; else the first fields of the document.

    The value of a field with a list is the first item of the list, if any.

    Raises:
        InputError: an archive cannot be read.
    """
    found: dict[str, Any] = {}
    document = Document(source.rewind()) if is_document(source) else None
    pairs = document.pairs() if document else ((f, v) for _, f, v in read_pairs(source))
    try:
        for name, value in islice(pairs, _FIRST):
            if not name and isinstance(value, dict):
                return value
            if not isinstance(value, bytes):
                found.setdefault(name, value)
    except DamagedDocument:
        pass  # reported by the import
    except InputError as error:
        if error.line is None:
            raise
    return found | {name: found.get(name) for name in (document.names if document else ())}
