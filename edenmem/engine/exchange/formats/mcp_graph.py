"""The graph of the MCP memory server (0.6): memory.jsonl, or the answer of ``read_graph``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from edenmem.engine.exchange.documents import read_items
from edenmem.engine.exchange.files import Source
from edenmem.engine.exchange.formats.common import LeftOut, fact


def read(source: Source, left_out: LeftOut) -> Iterator[tuple[int, Any]]:
    """Yield the lines of a file: a fact for each observation, and for each relation."""
    for number, item in read_items(source, "entities", "relations"):
        if not isinstance(item, dict):
            yield number, item
        elif "relationType" in item:
            ends = (_words(item.get(end)) for end in ("from", "relationType", "to"))
            yield number, fact("mcp", " ".join(ends))
        else:
            name, observations = _words(item.get("name")), item.get("observations") or ()
            if not observations:
                left_out["entities without observations"] += 1
            tags = [item["entityType"]] if item.get("entityType") else None
            for text in observations:
                says_who = str(text).casefold().startswith(name.casefold())
                content = text if says_who else f"{name}: {text}"
                yield number, fact("mcp", content, metadata={"entity": name}, tags=tags)


def _words(name: object) -> str:
    return str(name).replace("_", " ")
