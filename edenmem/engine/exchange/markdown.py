"""Render memory as Markdown, and parse it.

Each scope is a folder with up to three files: ``text.md`` is its consolidated text, ``facts.md``
and ``reflections.md`` are lists. The front matter identifies the scope; names of files and folders
are ignored. A list item ends with a comment that has its ID and version, invisible in rendered
Markdown::

    - Anna lives in Lisbon. <!-- 6b02545b0075b8dca7747394 v2 -->

The second and further lines of an item are indented by two spaces. An item without a comment is
new.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Literal

import msgspec

from edenmem.errors import InputError

FORMAT = 1
#: The content of a file, and its name.
Content = Literal["text", "facts", "reflections"]
FILES: dict[Content, str] = {
    "text": "text.md",
    "facts": "facts.md",
    "reflections": "reflections.md",
}

#: Maximum lengths in characters, far above those of any export.
_LONGEST_HEAD, _LONGEST = 8_000, 20_000_000
_HEAD = re.compile(r"\A---[ \t]*\n(.*?)^---[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_MARK = re.compile(
    r"(?:\A|[ \t])<!-- ([0-9a-f]{24}) v(\d{1,9})( private)?(?: unconfirmed)? -->[ \t]*\Z"
)
_KEYS = {
    "edenmem": int,
    "content": str,
    "agent": str,
    "agent_id": str,
    "scope": str,
    "user": str,
    "user_id": str,
    "group_id": str,
    "shard": str,
    "session": str,
    "session_id": str,
    "id": str,
    "version": int,
    "updated_at": datetime,
    "said_at": datetime,
}


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """A list item; one without an ID is new. ``line`` is the number of its first line."""

    content: str
    id: str | None = None
    version: int = 0
    private: bool = False
    unconfirmed: bool = False
    line: int = 0


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A file: its front matter, and its text or list."""

    head: dict[str, Any]
    text: str = ""
    items: tuple[Item, ...] = ()


def render(page: Page) -> str:
    """Render a page; the same page always gives the same text."""
    import yaml

    class Dumper(yaml.SafeDumper):
        """Write times in ISO 8601 with milliseconds."""

    Dumper.add_representer(
        datetime,
        lambda dumper, moment: dumper.represent_scalar(
            "tag:yaml.org,2002:timestamp",
            moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        ),
    )
    head = {"edenmem": FORMAT, **{k: v for k, v in page.head.items() if v is not None}}
    front = yaml.dump(
        head,
        Dumper=Dumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=False,
        width=1_000_000,
    )
    body = f"{page.text}\n" if page.head["content"] == "text" else _list(page.items)
    return f"---\n{front}---\n\n{body}"


def _list(items: Iterable[Item]) -> str:
    return "".join(f"{_item(item)}\n" for item in items)


def _item(item: Item) -> str:
    first, *others = item.content.split("\n")
    lines = [f"- {first}", *(f"  {line}" if line else "" for line in others)]
    private = " private" if item.private else ""
    doubt = " unconfirmed" if item.unconfirmed else ""
    return "\n".join(lines) + f" <!-- {item.id} v{item.version}{private}{doubt} -->"


def parse(text: str) -> Page | None:
    """Parse an exported file; return None for other files.

    Raises:
        InputError: an exported file is invalid.
    """
    if len(text) > _LONGEST:
        raise InputError("the file is too large")
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    found = _HEAD.match(text)
    if found is None or not re.search(r"^edenmem:", found[1], re.MULTILINE):
        return None
    head = _head(found[1])
    body = text[found.end() :]
    if head["content"] == "text":
        return Page(head=head, text=body.strip("\n").rstrip())
    return Page(head=head, items=tuple(_items(body, text[: found.end()].count("\n") + 1)))


def _head(front: str) -> dict[str, Any]:
    import yaml

    if len(front) > _LONGEST_HEAD:
        raise InputError("the front matter is too long")
    try:
        head = yaml.safe_load(front)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"invalid YAML front matter: {str(error).splitlines()[0]}") from error
    if not isinstance(head, dict):
        raise InputError("the front matter is not a mapping")
    for name, value in head.items():
        kind = _KEYS.get(name) if isinstance(name, str) else None
        if kind is None:
            raise InputError(f"unknown field in the front matter: {name!r:.60}")
        if not isinstance(value, kind) or isinstance(value, bool):
            raise InputError(f"invalid {name} in the front matter: {value!r:.60}")
    if head.get("edenmem") != FORMAT:
        raise InputError(f"unsupported format: {head.get('edenmem')} (supported: {FORMAT})")
    if head.get("content") not in FILES:
        raise InputError(f"invalid content in the front matter: {head.get('content')!r:.60}")
    return head


def _items(body: str, line: int) -> Iterable[Item]:
    """Yield the items of a list; ignore blank lines and headings between them."""
    current: list[str] = []
    begun = 0
    for number, row in enumerate(body.split("\n"), line):
        if row.startswith(("- ", "* ")) or row in ("-", "*"):
            if current:
                yield _read(current, begun)
            current, begun = [row[2:]], number
        elif current and (row.startswith("  ") or not row.strip()):
            current.append(row[2:])
        elif row.startswith("#") or not row.strip():
            if current:
                yield _read(current, begun)
            current = []
        else:
            raise InputError(
                "not a list item: begin the line with '- ', or indent it by two spaces",
                line=number,
            )
    if current:
        yield _read(current, begun)


def _read(rows: list[str], line: int) -> Item:
    content = "\n".join(rows).rstrip()
    mark = _MARK.search(content)
    if mark is None:
        return Item(content=content.strip(), line=line)
    return Item(
        content=content[: mark.start()].strip(),
        id=mark[1],
        version=int(mark[2]),
        private=mark[3] is not None,
        line=line,
    )


def owner_head(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a front matter that identify a scope."""
    names = ("agent", "agent_id", "scope", "user", "user_id", "group_id", "shard", "session")
    return {name: fields.get(name) for name in (*names, "session_id")}
