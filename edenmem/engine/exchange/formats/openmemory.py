"""Backups of OpenMemory (mem0's server, 1.0): the zip, its memories.json or memories.jsonl.gz."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from edenmem.engine.exchange.documents import read_pairs
from edenmem.engine.exchange.files import Source
from edenmem.engine.exchange.formats.common import LeftOut, fact

_SKIPPED = {"status_history": "status changes", "access_controls": "access rules"}


def read(source: Source, left_out: LeftOut) -> Iterator[tuple[int, Any]]:
    """Yield the lines of a file."""
    user, apps, categories, number = None, dict[Any, Any](), dict[Any, Any](), 0
    for line, field, item in read_pairs(source):
        if field in _SKIPPED:
            left_out[_SKIPPED[field]] += 1
        if not isinstance(item, dict):
            if not field:
                yield line, item
        elif field == "user":
            user = item.get("user_id")
        elif field == "apps":
            apps[item.get("id")] = item.get("name")
        elif field == "categories":
            categories[item.get("id")] = item.get("name")
        elif field in ("", "memories"):
            number = number + 1 if field else line
            state = item.get("state", "active")
            if state != "active":
                left_out[f"{state} memories"] += 1
                continue
            app = item.get("app") or apps.get(item.get("app_id"))
            named = [categories.get(each, each) for each in item.get("category_ids") or ()]
            yield (
                number,
                fact(
                    "openmemory",
                    item.get("content"),
                    item.get("id"),
                    user=user,
                    formed_at=item.get("created_at"),
                    updated_at=item.get("updated_at"),
                    metadata={**(item.get("metadata") or {}), **({"app": app} if app else {})},
                    tags=item.get("categories") or named,
                ),
            )
