"""Memories of mem0 (2.0): results of ``get_all``, pages of its REST API, lists and lines."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from typing import Any

from edenmem.engine.exchange.documents import read_items
from edenmem.engine.exchange.files import Source
from edenmem.engine.exchange.formats.common import LeftOut, fact

#: Fields that say where a memory comes from, kept as metadata.
_ORIGINS = ("run_id", "session_id", "actor_id", "role", "app_id", "attributed_to")


def read(source: Source, left_out: LeftOut) -> Iterator[tuple[int, Any]]:
    """Yield the lines of a file."""
    for number, item in read_items(source, "results", "relations"):
        if not isinstance(item, dict):
            yield number, item
        elif "relationship" in item:
            left_out["relations of the graph"] += 1
        elif item.get("replaced_by"):
            left_out["superseded memories"] += 1
        else:
            origins = {name: item[name] for name in _ORIGINS if item.get(name)}
            metadata = item.get("metadata")
            yield (
                number,
                fact(
                    "mem0",
                    item.get("memory"),
                    item.get("id"),
                    agent=item.get("agent_id"),
                    user=item.get("user_id"),
                    formed_at=item.get("created_at"),
                    updated_at=item.get("updated_at"),
                    expires_at=_end_of(item.get("expiration_date")),
                    metadata={**(metadata if isinstance(metadata, dict) else {}), **origins},
                    tags=item.get("categories"),
                ),
            )


def _end_of(day: object) -> object:
    """Return when a day ends: mem0 keeps a memory through its last day."""
    try:
        return f"{date.fromisoformat(str(day)[:10]) + timedelta(days=1)}T00:00:00+00:00"
    except (ValueError, OverflowError):
        return day
