"""`EdenmemStore`: a LangGraph store whose items are facts.

The key of a fact is the path of its item, namespace and key; its text is what the item is found
by, its value the value of the item. The tag "langgraph" marks these facts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import unquote

from edenmem import (
    AgentMemory,
    Fact,
    FactFields,
    MemoryService,
    NotFoundError,
    SyncMemoryService,
    UsageError,
)
from edenmem.integrations import requires

with requires("langgraph"):
    from langgraph.store import base
    from langgraph.store.memory import InMemoryStore

_TAGS = ("langgraph",)


class EdenmemStore(base.BaseStore):
    """A LangGraph store on the memory of an agent.

    Items below ``users`` and a name are memory of the user of this name; others are shared with all
    users of the agent. A search or list that names no user covers shared items only. The first item
    creates agent and user. An item expires ``ttl`` minutes after it was written, read or not.

    Args:
        service: A `SyncMemoryService`, or a `MemoryService` for graphs that only run with 'await'.
        agent: Name or ID of the agent.
        users: The labels before the name or ID of a user in a namespace.
    """

    supports_ttl = True
    ttl_config = base.TTLConfig(refresh_on_read=False)

    def __init__(
        self,
        service: MemoryService | SyncMemoryService,
        *,
        agent: str,
        users: Sequence[str] = ("users",),
    ) -> None:
        self._blocking = service if isinstance(service, SyncMemoryService) else None
        self._service = service.service if isinstance(service, SyncMemoryService) else service
        self._agent, self._users = agent, tuple(users)

    def batch(self, ops: Iterable[base.Op]) -> list[base.Result]:
        """Run the reads, then the writes; see `AgentMemory.put_fact` for errors."""
        if self._blocking is None:
            raise UsageError("without 'await', the store needs a SyncMemoryService")
        return self._blocking.run(self._run(list(ops)))

    async def abatch(self, ops: Iterable[base.Op]) -> list[base.Result]:
        """Run the reads, then the writes; see `AgentMemory.put_fact` for errors."""
        if self._blocking is not None:
            return await asyncio.to_thread(self.batch, ops)
        return await self._run(list(ops))

    async def _run(self, ops: Sequence[base.Op]) -> list[base.Result]:
        results = [await self._read(op) for op in ops]
        for put in {
            (op.namespace, op.key): op for op in ops if isinstance(op, base.PutOp)
        }.values():
            await self._put(put)
        return results

    async def _read(self, op: base.Op) -> base.Result:
        if isinstance(op, base.PutOp):
            return None
        if isinstance(op, base.GetOp):
            return next(iter(await self._items(op.namespace, key=_path(op))), None)
        if isinstance(op, base.SearchOp):
            items = await self._items(op.namespace_prefix, query=op.query)
            matching = op._replace(offset=0, limit=len(items), query=None)
            answer: Any = _answer(matching, items)
            found = {(item.namespace, item.key) for item in answer}
            kept = [item for item in items if (item.namespace, item.key) in found]
            return kept[op.offset : op.offset + op.limit]
        prefixes = [each.path for each in op.match_conditions or () if each.match_type == "prefix"]
        return _answer(op, await self._items(max(prefixes, key=len, default=())))

    async def _items(
        self, prefix: tuple[str, ...], *, key: str | None = None, query: str | None = None
    ) -> list[base.SearchItem]:
        memory, shared = await self._open(prefix)
        if memory is None:
            return []
        if query:
            report = await memory.search(query, top_k=100, tags=_TAGS, shared=shared)
            return [_item(hit.fact, hit.score) for hit in report.hits]
        facts = await memory.facts(limit=None, tags=_TAGS, key=key, shared=shared)
        return [_item(fact) for fact in facts]

    async def _put(self, op: base.PutOp) -> None:
        memory, shared = await self._open(op.namespace, create=op.value is not None)
        if memory is None:
            return
        if op.value is None:
            for fact in await memory.facts(tags=_TAGS, key=_path(op), shared=shared):
                await memory.forget_fact(fact.id)
            return
        paths = ["*"] if op.index is None else op.index or []
        texts = [text for path in paths for text in base.get_text_at_path(dict(op.value), path)]
        ends = None if op.ttl is None else datetime.now(UTC) + timedelta(minutes=op.ttl)
        fields = FactFields(key=_path(op), tags=_TAGS, value=dict(op.value), expires_at=ends)
        await memory.put_fact("; ".join(texts).strip() or op.key, shared=shared, fields=fields)

    async def _open(
        self, namespace: tuple[str, ...], *, create: bool = False
    ) -> tuple[AgentMemory | None, bool]:
        """Return the memory with these items, if any, and whether it is shared."""
        depth = len(self._users)
        is_of_user = namespace[:depth] == self._users and len(namespace) > depth
        user = namespace[depth] if is_of_user else None
        if create:
            await self._service.ensure_agent(self._agent)
            if user is not None:
                await self._service.ensure_user(user)
        try:
            return await self._service.memory_for(self._agent, user=user), user is None
        except NotFoundError:
            return None, user is None


def _path(op: base.GetOp | base.PutOp) -> str:
    parts = (*op.namespace, op.key)
    return "/".join(part.replace("%", "%25").replace("/", "%2F") for part in parts)


def _item(fact: Fact, score: float | None = None) -> base.SearchItem:
    *namespace, key = map(unquote, str(fact.key).split("/"))
    times = fact.formed_at, fact.changed_at
    return base.SearchItem(tuple(namespace), key, fact.value or {}, *times, score=score)


def _answer(op: base.Op, items: Sequence[base.SearchItem]) -> base.Result:
    """Run an operation on these items, by the rules of the framework."""
    among = InMemoryStore()
    among.batch(base.PutOp(item.namespace, item.key, item.value) for item in items)
    return among.batch([op])[0]
