"""`EdenmemStore`: a LangGraph store whose items are facts with the tag "langgraph"."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from edenmem import Fact, MemoryService, NotFoundError, SyncMemoryService, UsageError
from edenmem.integrations import requires
from edenmem.integrations.common import Items, names_of, path_of

with requires("langgraph"):
    from langgraph.store import base
    from langgraph.store.memory import InMemoryStore

AnyService = MemoryService | SyncMemoryService


class EdenmemStore(base.BaseStore):
    """A LangGraph store on the memory of an agent.

    Items below ``users`` and a name are memory of this user; others are shared by all users of the
    agent, and alone found without a user. The first item creates agent and user. An item expires
    ``ttl`` minutes after it was written, read or not.

    Args:
        service: A `SyncMemoryService`, or a `MemoryService` for graphs that only run with 'await'.
        agent: Name or ID of the agent.
        users: The labels before the name or ID of a user in a namespace.
    """

    supports_ttl = True
    ttl_config = base.TTLConfig(refresh_on_read=False)

    def __init__(
        self, service: AnyService, *, agent: str, users: Sequence[str] = ("users",)
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
        puts = {(op.namespace, op.key): op for op in ops if isinstance(op, base.PutOp)}
        for put in puts.values():  # the last one of each key
            await self._put(put)
        return results

    async def _read(self, op: base.Op) -> Any:
        if isinstance(op, base.PutOp):
            return None
        if isinstance(op, base.GetOp):
            path = path_of(*op.namespace, op.key)
            return next(iter(await self._find(op.namespace, path=path)), None)
        if isinstance(op, base.SearchOp):
            found = await self._find(op.namespace_prefix, query=op.query)
            matching = op._replace(offset=0, limit=len(found), query=None)
            wanted = {(item.namespace, item.key) for item in _answer(matching, found)}
            kept = [item for item in found if (item.namespace, item.key) in wanted]
            return kept[op.offset : op.offset + op.limit]
        prefixes = [each.path for each in op.match_conditions or () if each.match_type == "prefix"]
        return _answer(op, await self._find(max(prefixes, key=len, default=())))

    async def _find(
        self, prefix: Sequence[str], *, query: str | None = None, path: str | None = None
    ) -> list[base.SearchItem]:
        with suppress(NotFoundError):  # an unknown agent or user has no items
            items = await self._open(prefix)
            if query:
                return [_item(hit.fact, hit.score) for hit in await items.search(query)]
            return [_item(fact) for fact in await items.facts(path)]
        return []

    async def _put(self, op: base.PutOp) -> None:
        path = path_of(*op.namespace, op.key)
        if op.value is None:
            with suppress(NotFoundError):
                await (await self._open(op.namespace)).delete(path)
            return
        paths = ["*"] if op.index is None else op.index or []
        texts = [text for path in paths for text in base.get_text_at_path(dict(op.value), path)]
        text = "; ".join(texts).strip() or op.key
        items = await self._open(op.namespace, create=True)
        await items.put(path, text, op.value, minutes=op.ttl)

    async def _open(self, namespace: Sequence[str], *, create: bool = False) -> Items:
        """Open the items of the user that a namespace names, else those of all users."""
        depth = len(self._users)
        names = namespace[depth:] if tuple(namespace[:depth]) == self._users else ()
        user = names[0] if names else None
        return await Items.open(self._service, "langgraph", self._agent, user, create=create)


def _item(fact: Fact, score: float | None = None) -> base.SearchItem:
    *namespace, key = names_of(str(fact.key))
    times = fact.formed_at, fact.changed_at
    return base.SearchItem(tuple(namespace), key, fact.value or {}, *times, score=score)


def _answer(op: base.Op, items: Sequence[base.SearchItem]) -> Any:
    """Run an operation on these items, by the rules of the framework."""
    among = InMemoryStore()
    among.batch(base.PutOp(item.namespace, item.key, item.value) for item in items)
    return among.batch([op])[0]
