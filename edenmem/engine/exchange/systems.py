"""Export facts in the forms of other systems."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import IO, Any, NamedTuple

from edenmem.engine.exchange.exporter import ExportReport, ExportRequest
from edenmem.engine.exchange.folders import select_scopes
from edenmem.engine.exchange.kinds import System
from edenmem.errors import UsageError
from edenmem.models.memory import Fact
from edenmem.models.scope import Scope
from edenmem.models.search import FactFilter
from edenmem.store.protocol.store import Store
from edenmem.text import flat, iso


class _Content(NamedTuple):
    """The memory of one scope; ``names`` are those of the agent and the owner."""

    scope: Scope
    names: dict[str, Any]
    facts: list[Fact]
    text: str


def write_for(
    store: Store,
    file: IO[bytes],
    system: System,
    request: ExportRequest,
    *,
    clock: Callable[[], datetime],
    progress: Callable[[int], None] = lambda done: None,
) -> ExportReport:
    """Write the facts of the selected scopes that have not expired, and for Markdown their texts.

    ``progress`` is called with the number of facts so far.

    Raises:
        UsageError: a filter is not supported.
    """
    if request.types or request.since is not None:
        raise UsageError("--to always has whole scopes: omit --type and --since")
    now = clock()
    counts, left_out = Counter[str](), Counter[str]()

    def contents() -> Iterator[_Content]:
        for scope, _, names in select_scopes(store, request):
            facts = list(store.memory.facts(FactFilter(scopes=(scope,), live_at=now)))
            facts.sort(key=lambda fact: (fact.dated_at, fact.id))
            found = store.memory.consolidations([scope]).get(scope)
            text = found.consolidated_content if found is not None and found.version else ""
            kept = counts if system is System.MARKDOWN else left_out
            kept["consolidation" if kept is counts else "texts"] += bool(text)
            left_out["pending reflections"] += len(store.memory.pending(scope))
            counts["fact"] += len(facts)
            if system is not System.MEM0:
                lossy = [f for f in facts if f.tags or f.metadata or f.expires_at]
                left_out["tags, metadata and expiry times"] += len(lossy)
            progress(counts["fact"])
            if facts or (text and system is System.MARKDOWN):
                yield _Content(scope, names, facts, text)

    for piece in _WRITERS[system](contents()):
        file.write(piece.encode("utf-8", "replace"))
    return ExportReport(
        counts={kind: count for kind, count in counts.items() if count},
        left_out={name: count for name, count in left_out.items() if count},
    )


def _write_mem0(contents: Iterator[_Content]) -> Iterator[str]:
    """Write what mem0's ``get_all`` returns."""
    yield '{"results": ['
    before = "\n"
    for scope, names, facts, _ in contents:
        owner = {name: names.get(f"{name}_id") or names.get(name) for name in ("group", "shard")}
        owner = {name: value for name, value in owner.items() if value}
        for fact in facts:
            system, _, id = (fact.key or "").partition(":")
            end = fact.expires_at and fact.expires_at - timedelta(days=1)
            item = {
                "id": id if system == System.MEM0 else fact.id,
                "memory": fact.content,
                "hash": fact.hash,
                "created_at": iso(fact.dated_at),
                "updated_at": iso(fact.updated_at) if fact.updated_at else None,
                "agent_id": names.get("agent") or scope.agent_id,
                "user_id": names.get("user") or scope.user_id,
                "metadata": {**fact.metadata, **owner},
                "categories": list(fact.tags),
                "expiration_date": f"{end:%Y-%m-%d}" if end else None,
            }
            yield before + json.dumps({n: v for n, v in item.items() if v}, ensure_ascii=False)
            before = ",\n"
    yield "\n]}\n"


def _write_mcp(contents: Iterator[_Content]) -> Iterator[str]:
    """Write an entity for each scope, as the memory server keeps them."""
    taken: set[str] = set()
    for scope, names, facts, _ in contents:
        agent = str(names.get("agent") or scope.agent_id)
        name = _owner(scope, names)
        name = f"{name} ({agent})" if name in taken else name
        taken.add(name)
        entity = {
            "type": "entity",
            "name": name,
            "entityType": scope.kind.value,
            "observations": [fact.content for fact in facts],
        }
        yield json.dumps(entity, ensure_ascii=False) + "\n"


def _write_markdown(contents: Iterator[_Content]) -> Iterator[str]:
    before = ""
    for scope, names, facts, text in contents:
        title = f"{_owner(scope, names)} ({scope.kind}, {names.get('agent') or scope.agent_id})"
        yield f"{before}# {flat(title)}\n"
        if text:
            yield f"\n{text.strip()}\n"
        if facts:
            yield "\n"
        yield from (f"- {flat(fact.content)}\n" for fact in facts)
        before = "\n"


def _owner(scope: Scope, names: dict[str, Any]) -> str:
    return str(names.get(scope.kind.value) or scope.owner or names.get("agent") or scope.agent_id)


_WRITERS: dict[System, Callable[[Iterator[_Content]], Iterator[str]]] = {
    System.MEM0: _write_mem0,
    System.MCP: _write_mcp,
    System.MARKDOWN: _write_markdown,
}
