"""Markdown notes (a folder as of Obsidian, or a file such as MEMORY.md): each statement a fact."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from edenmem.engine.exchange.folders import HEAD, markdown_files, read_markdown
from edenmem.engine.exchange.formats.common import LeftOut, fact
from edenmem.errors import EdenmemError

#: Maximum length of a statement in words; a longer paragraph is split into sentences.
_WORDS = 30
_FENCE = re.compile(r"^\s*(```+|~~~+)")
_HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$")
_ITEM = re.compile(r"^(\s*)(?:[-*+]|\d{1,9}[.)])\s+(.*)$")
_TASK = re.compile(r"^\[.\]\s")
_SENTENCE = re.compile(r"(?<=[.!?…])\s+(?=[^\sa-z])")
#: No part of a pattern passes the character that it begins with: each takes linear time.
_MARKS = (
    (re.compile(r"!\[\[[^\[\]]*\]\]|!\[[^\[\]]*\]\([^()]*\)"), ""),  # images and embedded notes
    (re.compile(r"\[\[(?:[^\[\]|]*\|)?([^\[\]]*)\]\]"), r"\1"),  # links between notes
    (re.compile(r"\[([^\[\]]+)\]\([^()]*\)"), r"\1"),
    (re.compile(r"(\*\*|__|==|~~|`)(.+?)\1"), r"\2"),
    (re.compile(r"\s\^[A-Za-z][\w-]*(?=\s|$)"), ""),  # names of blocks
)
_TAG = re.compile(r"(?<!\S)#([^\s#.,;:!?]*[^\W\d][^\s#.,;:!?]*)")
#: Maximum length of the front matter in characters.
_LONGEST_HEAD = 8_000
_DATES = ("updated", "modified", "created", "date")


class Statement(NamedTuple):
    """A list item, or a paragraph or sentence; ``heading`` is the one above."""

    text: str
    line: int
    heading: str
    tags: tuple[str, ...]


def read(path: Path, left_out: LeftOut) -> Iterator[tuple[int, Any]]:
    """Yield the lines of a file, or of the files in a folder; links are not followed.

    Raises:
        InputError: the folder has too many files.
    """
    number = 0
    for file in markdown_files(path) if path.is_dir() else (path,):
        try:
            text = read_markdown(file)
        except EdenmemError as error:
            left_out[f"unreadable files: {file.name}, {error.message}"] += 1
            continue
        head, tags = _front(text)
        at = next((head[name] for name in _DATES if isinstance(head.get(name), date | str)), None)
        name = str(file.relative_to(path)) if path.is_dir() else file.name
        for each in statements(text, left_out):
            number += 1
            place = f"{name}:{each.line}"
            named = {"file": name, "heading": each.heading}
            line = fact(
                "notes",
                each.text,
                formed_at=at.isoformat() if isinstance(at, date) else at,
                metadata={field: value for field, value in named.items() if value},
                tags=[*tags, *each.tags] or None,
            )
            yield number, line | {"source": place}


def _front(text: str) -> tuple[dict[str, Any], list[str]]:
    """Return the front matter of a note, and its tags."""
    import yaml

    found = HEAD.match(text)
    try:
        head = yaml.safe_load(found[1]) if found and len(found[1]) <= _LONGEST_HEAD else {}
    except (yaml.YAMLError, ValueError, RecursionError):
        head = {}
    head = head if isinstance(head, dict) else {}
    tags = head.get("tags") or head.get("tag") or []
    listed = tags.replace(",", " ").split() if isinstance(tags, str) else tags
    # An alias of YAML may stand for a text of any length: only plain tags are written out.
    plain = (
        [tag for tag in listed if isinstance(tag, str | int)] if isinstance(listed, list) else []
    )
    return head, [str(tag).lstrip("#") for tag in plain]


def statements(text: str, left_out: LeftOut) -> Iterator[Statement]:
    """Yield the statements of a Markdown text; code, tables and tasks are left out."""
    found = HEAD.match(text)
    start = text[: found.end()].count("\n") if found else 0
    heading, block, begun, fence = "", list[str](), 0, ""
    for number, row in enumerate([*text.split("\n")[start:], ""], start + 1):
        mark = _FENCE.match(row)
        title, item = _HEADING.match(row), _ITEM.match(row)
        if fence or mark:
            if mark and not fence:
                left_out["code blocks"] += 1
            fence = (
                (mark[1][:3] if not fence else "" if mark[1][:3] == fence else fence)
                if mark
                else fence
            )
        is_text = not (fence or mark or title or item) and bool(row.strip())
        if block and not is_text:
            yield from _split(" ".join(block), begun, heading, left_out)
            block = []
        if title and not fence:
            heading = _plain(title[1])
        elif item and not fence and not mark:
            block, begun = [item[2]], number
        elif is_text:
            begun = begun if block else number
            block.append(row.strip())


def _split(block: str, line: int, heading: str, left_out: LeftOut) -> Iterator[Statement]:
    if block.startswith("|"):
        left_out["tables"] += 1
    elif _TASK.match(block):
        left_out["tasks"] += 1
    else:
        tags = tuple(_TAG.findall(block))
        text = " ".join(_TAG.sub("", _plain(block.lstrip("> "))).split())
        parts = _SENTENCE.split(text) if len(text.split()) > _WORDS else [text]
        yield from (
            Statement(part, line, heading, tags) for part in parts if any(map(str.isalnum, part))
        )


def _plain(text: str) -> str:
    text = _drop(_drop(text, "<!--", "-->"), "%%", "%%")
    for pattern, replacement in _MARKS:
        text = pattern.sub(replacement, text)
    return text.strip()


def _drop(text: str, begin: str, end: str) -> str:
    """Remove comments; one without an end stays."""
    if begin == end:
        parts = text.split(begin)
        last = [begin + parts.pop()] if len(parts) % 2 == 0 else []
        return "".join((*parts[::2], *last))
    first, *rest = text.split(begin)
    return first + "".join(each.partition(end)[2] if end in each else begin + each for each in rest)
