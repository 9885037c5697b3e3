"""The text that v1 served (``fully_formed_memory``), for documents without another text.

v1 assembled it from the consolidated text, which is wanted here, and lists of memories, each under
its own heading. List entries that repeat separately migrated memories are dropped. All other text
is kept, since the agent knew it.
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
#: The suffix that v1 added to the memories of a list.
_AGE = re.compile(r"[^\S\n]*\(age: \d+ days? ago\)[^\S\n]*$", re.MULTILINE)


def has_lists(assembled: str) -> bool:
    """Return whether the text has the heading of a list, so that memories must be compared."""
    return any(
        found["title"] not in _TEXTS and found["title"] != _CONTEXT
        for found in _HEADING.finditer(assembled)
    )


def split_off_text(assembled: str, *, instructions: str = "", listed: Iterable[str] = ()) -> str:
    """Return the part of the assembled text that exists nowhere else; empty if none.

    Args:
        assembled: The text, as v1 stored it.
        instructions: The shard's instructions, which v1 repeated.
        listed: Contents of the memories that are migrated separately.
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
    """Return a list without entries that repeat these memories."""
    kept = "\n" + _AGE.sub("", body) + "\n"
    for memory in memories:
        entry = f"\n- {memory}\n"
        while entry in kept:
            kept = kept.replace(entry, "\n")
    return kept.strip()
