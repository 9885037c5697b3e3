"""The text that v1 served (``fully_formed_memory``), where a document has no other text.

v1 put it together of the consolidated text, which is what is looked for, and of lists of memories,
each under a heading of its own. What the lists repeat of memories that are moved anyway is left
out; everything else is kept, for it was what the agent knew.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

#: The line above a user's text.
_NAME_LINE = re.compile(r"^-- User Memory for .* --[^\S\n]*\n?", re.MULTILINE)
_HEADING = re.compile(
    r"^## (?P<title>Consolidated user memory|Current consolidated shard memory"
    r"|Memory shard context|Shard facts|Recent shard suggestions|Recent user directives)"
    r":?[^\S\n]*$",
    re.MULTILINE,
)
_TEXTS = ("Consolidated user memory", "Current consolidated shard memory")
_CONTEXT = "Memory shard context"
#: What v1 wrote behind a memory of a list.
_AGE = re.compile(r"[^\S\n]*\(age: \d+ days? ago\)[^\S\n]*$", re.MULTILINE)


def has_lists(assembled: str) -> bool:
    """Whether the text has a heading of a list, so that memories must be compared."""
    return any(
        found["title"] not in _TEXTS and found["title"] != _CONTEXT
        for found in _HEADING.finditer(assembled)
    )


def split_off_text(assembled: str, *, instructions: str = "", listed: Iterable[str] = ()) -> str:
    """What the assembled text holds and nothing else does; empty if that is nothing.

    Args:
        assembled: The text, as v1 stored it.
        instructions: Those of the shard, which v1 repeated.
        listed: Contents of the memories that are moved by themselves.
    """
    plain = _NAME_LINE.sub("", assembled, count=1)
    headings = list(_HEADING.finditer(plain))
    starts = [*(heading.start() for heading in headings), len(plain)]
    memories = sorted({content.strip() for content in listed} - {""}, key=len, reverse=True)
    texts, lists = [plain[: starts[0]].strip()], []
    for heading, end in zip(headings, starts[1:], strict=True):
        title, body = heading["title"], plain[heading.end() : end].strip()
        if title in _TEXTS:
            texts.append(body)
        elif title == _CONTEXT:
            if instructions.strip() and instructions.strip() not in body:
                lists.append(f"## {title}\n\n{body}")
        elif rest := _without(body, memories):
            lists.append(f"## {title}\n\n{rest}")
    return "\n\n".join(filter(None, [*texts, *lists]))


def _without(body: str, memories: Iterable[str]) -> str:
    """A list without the entries that are among these memories."""
    kept = "\n" + _AGE.sub("", body) + "\n"
    for memory in memories:
        entry = f"\n- {memory}\n"
        while entry in kept:
            kept = kept.replace(entry, "\n")
    return kept.strip()
