"""Convert memories exported by mem0 to import lines.

Three forms are supported: the result of ``get_all`` (an object with the list under "results"), a
plain list, and one memory per line. Pages of mem0's REST API have the first form and may follow
each other in one file. Only one memory at a time is held in RAM.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from datetime import datetime
from typing import IO, Any

import msgspec

from edenmem.engine.exchange.files import Source
from edenmem.engine.sessions.people import People
from edenmem.models.ids import derived_id
from edenmem.store.protocol.store import Store

_CHUNK = 1 << 16
#: Maximum length of a memory in characters.
_LONGEST = 4 << 20
#: The beginning of a page or list; other files have one memory per line.
_DOCUMENT = re.compile(rb'\s*(\[|\{\s*("[^"\\]*"\s*:\s*[^\[{]*)?"results"\s*:\s*\[|\{\s*$)')
#: The beginning of a file with one memory per line.
_MEMORY = re.compile(rb'\s*\{(?![^\n]*"type"\s*:)[^\n]*"memory"\s*:')
_SPACE = re.compile(r"[\s,]*")
_LIST = "results"


def may_be_mem0(source: Source) -> bool:
    """Return whether a file begins as mem0 writes its files."""
    beginning = source.rewind().read(_CHUNK)
    return any(form.match(beginning) for form in (_DOCUMENT, _MEMORY))


class Mem0Lines:
    """The memories of a file as lines for the importer.

    ``agent`` and ``user`` are the defaults for memories without them; a memory with an agent but
    no user belongs to the agent. Superseded and expired memories are skipped. ``add_missing``: add
    users that the store does not know.
    """

    def __init__(
        self,
        source: Source,
        store: Store,
        *,
        now: datetime,
        agent: str | None = None,
        user: str | None = None,
        add_missing: bool = False,
    ) -> None:
        self.name = source.name
        self._source = source
        self._store = store
        self._today = now.date().isoformat()
        self._agent = agent
        self._user = user
        self._add_missing = add_missing
        self._is_document = _DOCUMENT.match(source.rewind().read(_CHUNK)) is not None
        self.unit = "entry" if self._is_document else "line"
        self.left_out = 0

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield the number of each memory and its line; invalid entries stay unchanged."""
        self.left_out = 0
        people = People(self._store)
        named: set[str] = set()
        for number, item in self._items():
            if not isinstance(item, dict):
                yield number, item if isinstance(item, bytes) else _encode(item)
                continue
            last_day = item.get("expiration_date")
            is_expired = isinstance(last_day, str) and last_day[:10] < self._today
            if item.get("replaced_by") or is_expired:
                self.left_out += 1
                continue
            line = self._line(item)
            user = line.get("user")
            if self._add_missing and isinstance(user, str) and user not in named:
                named.add(user)
                if people.user(user) is None:
                    yield number, _encode({"type": "user", "username": user})
            yield number, _encode(line)

    def _line(self, item: dict[str, Any]) -> dict[str, Any]:
        agent, user = item.get("agent_id"), item.get("user_id")
        if user is None and agent is None:
            user = self._user
        line = {
            "type": "fact",
            "agent": self._agent if agent is None else agent,
            "scope": "agent" if user is None else "user",
            "user": user,
            "content": item.get("memory"),
            "formed_at": item.get("created_at"),
        }
        if item.get("updated_at") != item.get("created_at"):
            line["updated_at"] = item.get("updated_at")
        if item.get("id") is not None:
            line |= {"id": derived_id("mem0", str(item["id"])), "source": f"mem0 {item['id']}"}
        if user is None and agent is None:
            line["scope"] = "user"  # with only a run_id: never shared as the agent's memory
        return {name: value for name, value in line.items() if value is not None}

    def _items(self) -> Iterator[tuple[int, Any]]:
        """Yield each memory decoded, or the bytes of an invalid one."""
        if self._is_document:
            yield from enumerate(_Document(self._source.rewind()).values(), 1)
            return
        for number, raw in self._source.lines():
            text = raw.strip()
            if not text:
                continue
            try:
                item = msgspec.json.decode(text)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                yield number, text
                continue
            page = item.get(_LIST) if isinstance(item, dict) else None
            for each in page if isinstance(page, list) else [item]:
                yield number, each


def _encode(value: object) -> bytes:
    """Encode as ASCII JSON: lone surrogates stay escaped for the importer to reject."""
    try:
        return json.dumps(value).encode()
    except RecursionError:
        return b"{"


class _Document:
    """An incremental reader of JSON lists, and of objects with a list under "results"."""

    def __init__(self, file: IO[bytes]) -> None:
        # Invalid bytes become lone surrogates, so that one bad memory does not spoil the file.
        self._file = codecs.getreader("utf-8-sig")(file, "surrogateescape")
        self._decoder = json.JSONDecoder()
        self._text = ""
        self._at = 0

    def values(self) -> Iterator[Any]:
        """Yield the values of the lists; at a syntax error, the bytes that follow."""
        try:
            while first := self._peek():
                if first == "[":
                    yield from self._list()
                elif first == "{":
                    yield from self._page()
                else:
                    yield self._value()
        except (ValueError, RecursionError, EOFError):
            left = self._text[self._at : self._at + 100]
            yield left.encode("utf-8", "replace") or b"{"

    def _page(self) -> Iterator[Any]:
        self._at += 1
        while self._peek() != "}":
            name = self._value()
            self._expect(":")
            if name == _LIST and self._peek() == "[":
                yield from self._list()
            else:
                self._value()
        self._at += 1

    def _list(self) -> Iterator[Any]:
        self._at += 1
        while self._peek() != "]":
            yield self._value()
        self._at += 1

    def _expect(self, sign: str) -> None:
        if self._peek() != sign:
            raise ValueError(f"{sign!r} is missing")
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
        self._text, self._at = left + more, 0
        return bool(more)
