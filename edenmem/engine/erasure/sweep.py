"""Sweep forgotten memory that another program has written again.

The platform forms from sessions that it loaded before a forgetting, and writes these sessions back
with the context that they had. Memory is swept if it is newer than the forgetting and its source
messages are forgotten. All functions block.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta

import msgspec

from edenmem.engine.formation.sharing import drop_proof
from edenmem.engine.runtime.runtime import Runtime
from edenmem.engine.seals.sealer import Sealer
from edenmem.models.forgetting import Forgetting, Passage, Traces, block
from edenmem.models.formation import PROOF_WAIT
from edenmem.models.host import Message, Session
from edenmem.models.ids import derived_id, new_id, time_of
from edenmem.models.memory import Fact, Reflection
from edenmem.models.records import AuditEntry
from edenmem.models.scope import Scope
from edenmem.models.search import FactFilter
from edenmem.store.protocol.store import Store, batched

#: How far a cold run looks back; `doctor` looks back to the first forgetting.
RECENT = timedelta(days=2)
_AT_ONCE = 500


class Returned(msgspec.Struct, frozen=True, kw_only=True):
    """Forgotten memory that was written again, or a session with an old context.

    ``why`` is the reason not to remove it, or "". ``sources`` are the messages of ``session_id``
    that the platform read for it.
    """

    target_type: str
    target_id: str
    scope: Scope | None = None
    session_id: str = ""
    sources: tuple[str, ...] = ()
    why: str = ""


class Sweep:
    """Find and remove what came back, for one agent or for all.

    Args:
        runtime: The store and the actor of the audit entries.
        agent_id: Only memory of this agent.
        recent: Only memory written within this time; None for all.
    """

    def __init__(
        self, runtime: Runtime, *, agent_id: str | None = None, recent: timedelta | None = None
    ) -> None:
        self._store = runtime.store
        self._sealer = Sealer(runtime)
        self._actor = runtime.actor
        self._now = runtime.clock()
        self._agent_id = agent_id
        self._recent = recent

    def find(self) -> Iterator[Returned]:
        """Yield what came back. Writes nothing."""
        forgettings = self._store.erasure.forgettings()
        if not forgettings:
            return
        since = min(each.begun_at for each in forgettings)
        if self._recent is not None:
            since = max(since, self._now - self._recent)
        blocks = _Blocks(forgettings)
        for page in batched(self._store.erasure.find_returned(since), _AT_ONCE):
            ids = tuple({id for memory in page for id in memory.source_message_ids})
            known = {each.id: each for each in self._store.host.messages_by_ids(ids)}
            for memory in page:
                if self._agent_id in (None, memory.agent_id):
                    why = blocks.judge(memory, known)
                    if why is not None:
                        yield Returned(
                            target_type=type(memory).__name__.lower(),
                            target_id=memory.id,
                            scope=memory.home,
                            session_id=memory.session_id or "",
                            sources=memory.source_message_ids,
                            why=why,
                        )
        yield from self._rewritten(forgettings, since)
        if self._recent is None:  # it counts all scopes
            yield from self._restored(blocks)
        closed = [each.closed_at for each in forgettings if each.closed_at is not None]
        if closed and self._agent_id is None and max(closed) >= since:
            cached = self._store.erasure.find_old_contexts(since=since, before=max(closed))
            for session in self._store.host.sessions_by_ids(tuple(cached)).values():
                if blocks.concern(session, cached[session.id], self._store):
                    yield Returned(target_type="session", target_id=session.id)

    def _restored(self, blocks: _Blocks) -> Iterator[Returned]:
        """Yield memory of forgotten scopes that is older than their forgetting, from a copy."""
        for summary in self._store.memory.scopes(agent_id=self._agent_id):
            scope, begun = summary.scope, blocks.begun(block("scope", summary.scope.key))
            if begun is None:
                continue
            for fact in self._store.memory.facts(FactFilter(scopes=(scope,))):
                if fact.formed_at < begun:
                    yield Returned(target_type="fact", target_id=fact.id, scope=scope)
            for reflection in self._store.memory.reflections((scope,), before=begun):
                yield Returned(target_type="reflection", target_id=reflection.id, scope=scope)
            at = summary.last_consolidated_at
            if at is not None and at < begun:
                yield Returned(
                    target_type="consolidation",
                    target_id="",
                    scope=scope,
                    why="the text is from a copy; run 'edenmem forget' again",
                )

    def _rewritten(self, forgettings: Sequence[Forgetting], since: datetime) -> Iterator[Returned]:
        """Yield texts that the platform wrote while or just after memory was forgotten.

        It may have begun with what was forgotten. Edenmem's next version ends the doubt.
        """
        spans = [
            (each.begun_at, each.closed_at + PROOF_WAIT)
            for each in forgettings
            if each.closed_at is not None and each.closed_at >= since
        ]
        if not spans or not self._store.database.is_beside_platform():
            return
        near = [
            summary.scope
            for summary in self._store.memory.scopes(agent_id=self._agent_id)
            if (at := summary.last_consolidated_at) is not None
            and any(begun <= at <= end for begun, end in spans)
        ]
        for page in batched(near, _AT_ONCE):
            for scope, text in self._store.memory.consolidations(page).items():
                if text.consolidated_content.strip() and text.updated_at is None:
                    yield Returned(
                        target_type="consolidation",
                        target_id=text.id,
                        scope=scope,
                        why="the platform wrote it during a forgetting; check or edit the text",
                    )

    def run(self) -> tuple[int, int]:
        """Remove what came back; return the numbers of removed and of remaining items."""
        removed = left = 0
        for page in batched(self.find(), _AT_ONCE):
            left += sum(bool(each.why) for each in page)
            removed += self.remove([each for each in page if not each.why])
        return removed, left

    def remove(self, found: Sequence[Returned]) -> int:
        """Remove items for good, with an audit entry for each; return their number."""
        erasure, run = self._store.erasure, new_id(self._now)
        ids: dict[str, list[str]] = {"fact": [], "reflection": [], "session": []}
        for each in found:
            ids[each.target_type].append(each.target_id)
        erasure.add_entries(  # first: a repeated removal finds no memory to name
            [
                AuditEntry(
                    id=derived_id("swept", each.target_id),
                    change_set_id=run,
                    at=self._now,
                    actor=self._actor,
                    action="forget",
                    target_type=each.target_type,
                    target_id=each.target_id,
                    agent_id=each.scope.agent_id,
                )
                for each in found
                if each.scope is not None  # a dropped context is not a change of memory
            ]
        )
        for each in found:  # before the memory, which proves that its messages were read
            if each.scope is not None and each.session_id:
                drop_proof(
                    self._store.formations,
                    each.session_id,
                    each.scope.agent_id,
                    each.sources,
                    self._now,
                )
        agents = {each.scope.agent_id for each in found if each.scope is not None}
        if agents:
            traces = Traces(facts=tuple(ids["fact"]), agents=tuple(sorted(agents)))
            erasure.erase(traces, ids["reflection"], at=self._now, run=run)
        erasure.redact(
            [
                Passage(kind="context", id=id, target_type="session", target_id=id, text="")
                for id in ids["session"]
            ],
            run=run,
        )
        if agents:
            self._sealer.seal_if_possible()  # else the next seal covers it
        return len(found)


class _Blocks:
    """The blocks of all forgettings, with the times of those that set them."""

    def __init__(self, forgettings: Collection[Forgetting]) -> None:
        self._by_key: dict[str, list[Forgetting]] = {}
        self._of_facts = any(each.kind == "fact" for each in forgettings)
        for forgetting in forgettings:
            for key in forgetting.blocks:
                self._by_key.setdefault(key, []).append(forgetting)

    def begun(self, key: str) -> datetime | None:
        """Return when the last closed forgetting with a block began."""
        found = (each.begun_at for each in self._by_key.get(key, ()) if each.closed_at is not None)
        return max(found, default=None)

    def judge(self, memory: Fact | Reflection, known: dict[str, Message]) -> str | None:
        """Return why memory must stay although it is forgotten, "" if it can go, else None."""
        messages = [
            known.get(id)
            or Message(  # a deleted message, as far as its ID and the memory tell
                id=id,
                session_id=memory.session_id or "",
                role="user",
                sender=memory.user_id,
                created_at=time_of(id),
            )
            for id in memory.source_message_ids
        ]
        forgotten = [each for each in messages if self._is_forgotten(memory, each)]
        if not forgotten:
            return None
        if isinstance(memory, Reflection) and memory.absorbed:
            return "a text has absorbed it"
        home = {block("scope", memory.home.key), block("session", memory.session_id or "")}
        if any(self._holds(key, memory) for key in home):
            return ""
        people = [each for each in messages if each.id in known and each.role == "user"]
        if any(each not in forgotten for each in people):
            return "it may also come from messages of others"
        return ""

    def concern(self, session: Session, cached_at: datetime, store: Store) -> bool:
        """Return whether a later forgetting dropped the context that a session had then."""
        keys = [block("session", session.id)]
        keys += [
            block("scope", Scope.user(agent, user).key)
            for agent in session.agents
            for user in session.users
        ]
        found = [each for key in keys for each in self._by_key.get(key, ())]
        if self._of_facts:
            messages = (block("message", each.id) for each in store.host.messages(session.id))
            found += (each for key in messages for each in self._by_key.get(key, ()))
        return any(each.closed_at is not None and cached_at < each.closed_at for each in found)

    def _is_forgotten(self, memory: Fact | Reflection, message: Message) -> bool:
        if self._holds(block("message", message.id), memory):
            return True
        keys = [block("session", message.session_id)]
        if message.sender is not None:
            keys.append(block("scope", Scope.user(memory.agent_id, message.sender).key))
        return any(self._holds(key, memory, sent=message.created_at) for key in keys)

    def _holds(self, key: str, memory: Fact | Reflection, *, sent: datetime | None = None) -> bool:
        """Return whether a forgetting before the memory, and after the message, has the block."""
        return any(
            each.begun_at <= memory.formed_at
            and (sent is None or each.closed_at is None or sent <= each.closed_at)
            for each in self._by_key.get(key, ())
        )
