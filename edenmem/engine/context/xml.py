"""Render memory contexts as XML.

Stored texts are escaped and folded into one line, so that no user text can open or close a tag or
look like a separate item. The result parses with any XML parser.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from edenmem.engine.reports import ContextPart
from edenmem.models.memory import UNCONFIRMED, Fact, Reflection
from edenmem.models.scope import Scope, ScopeKind
from edenmem.text import escape_xml, legible, word_count

#: Maximum length of an item. Formation stays far below; imported or edited texts may not.
ITEM_CHARACTERS = 2000

EMPTY = "<MemoryContext/>"
_OPEN, _CLOSE = "<MemoryContext>\n", "</MemoryContext>"

#: The element of each kind, from broad to narrow. Shards are nested in their agent's element.
_ELEMENTS = {
    ScopeKind.AGENT: "AgentMemory",
    ScopeKind.GROUP: "GroupMemory",
    ScopeKind.USER: "UserMemory",
    ScopeKind.SESSION: "SessionMemory",
}
_SHARD = "MemoryShard"

_PART = re.compile(r"^  <(\w+)>\n(.*?)^  </\1>\n", re.S | re.M)
_SHARD_PART = re.compile(rf'^    <{_SHARD} name="(.*?)">\n(.*?)^    </{_SHARD}>\n', re.S | re.M)
_TAG = re.compile(r"<[^<>]*>")


class ScopeMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of one scope in a context. ``reflections`` are pending, oldest first.

    ``account`` names the account of the text if several accounts of one person have texts.
    ``word_limit`` and ``written_at`` belong to the text; a part of a context shows neither.
    """

    account: str = ""
    text: str = ""
    version: int = 0
    word_limit: int = 0
    written_at: datetime | None = None
    reflections: tuple[Reflection, ...] = ()


def render_context(
    memories: Mapping[Scope, ScopeMemory], facts: Sequence[Fact], *, now: datetime
) -> str:
    """Render scopes, from broad to narrow, and facts; empty parts are omitted."""
    by_kind: dict[ScopeKind, dict[Scope, ScopeMemory]] = {kind: {} for kind in ScopeKind}
    for scope, memory in memories.items():
        by_kind[scope.kind][scope] = memory

    parts: list[str] = []
    for kind, element in _ELEMENTS.items():
        inner = _memory(by_kind[kind].values(), indent=4)
        if kind is ScopeKind.AGENT:
            shards = by_kind[ScopeKind.SHARD].items()
            inner += "".join(_shard(scope, memory) for scope, memory in shards)
        parts.append(_element(element, inner, indent=2))
    parts.append(_element("Facts", _fact_lines(facts, now), indent=2))
    return _wrap("".join(parts))


def with_retrieved(xml: str, facts: Sequence[Fact], *, now: datetime) -> str:
    """Append a ``<RetrievedMemories>`` part to ``xml`` if there are facts."""
    return with_part(xml, "RetrievedMemories", _fact_lines(facts, now))


def with_part(xml: str, name: str, lines: str) -> str:
    """Append a part to ``xml`` if it has lines."""
    body = "" if xml == EMPTY else xml.removeprefix(_OPEN).removesuffix(_CLOSE)
    return _wrap(body + _element(name, lines, indent=2))


def fact_line(fact: Fact, now: datetime) -> str:
    """Render ``- [scope] text (3d ago)``, or "" without text.

    What is in doubt has the mark "(unconfirmed)" after the text. The age counts from a correction,
    else from the source messages.
    """
    text = _marked(item(fact.content), bool(fact.unconfirmed))
    label = item(f"shard {fact.shard}") if fact.scope is ScopeKind.SHARD else fact.scope.value
    return f"- [{label}] {text} ({age(fact.recent_at, now)})" if text else ""


def _marked(text: str, is_doubted: bool) -> str:
    """Return a text with the mark of doubt, which no cut removes."""
    return f"{text} ({UNCONFIRMED})" if text and is_doubted else text


def item(text: str) -> str:
    """Return a stored text as one escaped line."""
    line = " ".join(legible(text).split())
    if len(line) > ITEM_CHARACTERS:
        line = line[: ITEM_CHARACTERS - 1] + "…"
    return escape_xml(line)


def age(moment: datetime, now: datetime) -> str:
    """Return an age in the largest whole unit: now, 5m ago, 2h ago, 3d ago."""
    minutes = int((now - moment).total_seconds() // 60)
    if minutes < 1:
        return "now"
    if minutes < 60:
        return f"{minutes}m ago"
    hours = minutes // 60
    return f"{hours}h ago" if hours < 24 else f"{hours // 24}d ago"


def measure(xml: str, *, characters_per_token: float) -> tuple[ContextPart, ...]:
    """Measure the parts of a rendered context; shards count separately from their agent.

    Words count the memories only; tokens are an estimate that includes the markup.
    """
    parts: list[ContextPart] = []

    def add(name: str, markup: str) -> None:
        parts.append(
            ContextPart(
                name=name,
                words=word_count(html.unescape(_TAG.sub(" ", markup))),
                tokens=math.ceil(len(markup) / characters_per_token),
            )
        )

    for part in _PART.finditer(xml):
        shards = list(_SHARD_PART.finditer(part[0]))
        rest = _SHARD_PART.sub("", part[0]) if shards else part[0]
        if not shards or _SHARD_PART.sub("", part[2]).strip():
            add(part[1], rest)
        for shard in shards:
            add(f"{_SHARD} {html.unescape(shard[1])}", shard[0])
    return tuple(parts)


def _wrap(body: str) -> str:
    return f"{_OPEN}{body}{_CLOSE}" if body else EMPTY


def _element(name: str, inner: str, *, indent: int, attributes: str = "") -> str:
    """Render an element on separate lines, or "" if it has no content."""
    if not inner:
        return ""
    space = " " * indent
    return f"{space}<{name}{attributes}>\n{inner}{space}</{name}>\n"


def _shard(scope: Scope, memory: ScopeMemory) -> str:
    name = f' name="{item(scope.owner)}"'
    return _element(_SHARD, _memory([memory], indent=6), indent=4, attributes=name)


def _memory(memories: Iterable[ScopeMemory], *, indent: int) -> str:
    """Render the texts of the scopes in order, then all their reflections."""
    memories = list(memories)
    consolidated = "".join(_render_text(memory, indent) for memory in memories)
    items = (
        _marked(item(each.content), bool(each.unconfirmed))
        for memory in memories
        for each in memory.reflections
    )
    reflections = _lines(line and f"- {line}" for line in items)
    return consolidated + _element("RecentReflections", reflections, indent=indent)


def _render_text(memory: ScopeMemory, indent: int) -> str:
    text = escape_xml(legible(memory.text)).strip()
    if not text:
        return ""
    account = f' account="{item(memory.account)}"' if memory.account else ""
    return (
        f"{' ' * indent}<Consolidated{account}>VERSION: {memory.version}\n{text}</Consolidated>\n"
    )


def _fact_lines(facts: Sequence[Fact], now: datetime) -> str:
    return _lines(fact_line(fact, now) for fact in facts)


def _lines(lines: Iterable[str]) -> str:
    """Return the lines that are not empty, each with its end."""
    return "".join(f"{line}\n" for line in lines if line)
