"""Memory as Markdown, and back.

Each scope is a folder with up to three files: ``text.md`` is its consolidated text, ``facts.md``
and ``reflections.md`` are lists. Front matter says whose they are; the names of files and folders
say nothing that is relied on. An item of a list ends in a comment with its id and version, which
Markdown does not show::

    - Anna lives in Lisbon. <!-- 6b02545b0075b8dca7747394 v2 -->

Lines of a text behind its first are indented by two spaces. An item without a comment is new.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Literal

import msgspec

from edenmem.errors import InputError

FORMAT = 1
#: What a file holds, and its name.
Content = Literal["text", "facts", "reflections"]
FILES: dict[Content, str] = {
    "text": "text.md",
    "facts": "facts.md",
    "reflections": "reflections.md",
}

#: In characters: no front matter and no file of ours comes near.
_LONGEST_HEAD, _LONGEST = 8_000, 20_000_000
_HEAD = re.compile(r"\A---[ \t]*\n(.*?)^---[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_MARK = re.compile(r"(?:\A|[ \t])<!-- ([0-9a-f]{24}) v(\d{1,9})( private)? -->[ \t]*\Z")
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
}


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """An item of a list; one without an id is new. ``line`` is its first line's number."""

    content: str
    id: str | None = None
    version: int = 0
    private: bool = False
    line: int = 0


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A file: its front matter, and the text or the list that it holds."""

    head: dict[str, Any]
    text: str = ""
    items: tuple[Item, ...] = ()


def render(page: Page) -> str:
    """The file's text: the same for the same page."""
    import yaml

    class Dumper(yaml.SafeDumper):
        """Writes times as everything else here does."""

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
    return "\n".join(lines) + f" <!-- {item.id} v{item.version}{private} -->"


def parse(text: str) -> Page | None:
    """The page that a file holds; None for one that is not of an export.

    Raises:
        InputError: it is of an export, and was broken since.
    """
    if len(text) > _LONGEST:
        raise InputError("the file is too large to be of an export")
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
        raise InputError("its front matter is too long")
    try:
        head = yaml.safe_load(front)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"its front matter is no YAML: {str(error).splitlines()[0]}") from error
    if not isinstance(head, dict):
        raise InputError("its front matter is no list of names and values")
    for name, value in head.items():
        kind = _KEYS.get(name) if isinstance(name, str) else None
        if kind is None:
            raise InputError(f"its front matter has no {name!r:.60}")
        if not isinstance(value, kind) or isinstance(value, bool):
            raise InputError(f"{name} in its front matter is {value!r:.60}")
    if head.get("edenmem") != FORMAT:
        raise InputError(f"it is of format {head.get('edenmem')}, this edenmem reads {FORMAT}")
    if head.get("content") not in FILES:
        raise InputError("its front matter does not say what it holds (content)")
    return head


def _items(body: str, line: int) -> Iterable[Item]:
    """The items of a list; blank lines and headings between them mean nothing."""
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
                "it is no item of a list: begin it with '- ', or indent it by two spaces",
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
    """The fields of a front matter that say whose a file is."""
    names = ("agent", "agent_id", "scope", "user", "user_id", "group_id", "shard", "session")
    return {name: fields.get(name) for name in (*names, "session_id")}
