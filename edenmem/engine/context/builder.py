"""Build the memory context of an agent in a session, and cache it.

Every call computes the readable scopes first. A cached context is used only if it was built for
exactly these scopes in their current state.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from edenmem.engine.context.recall import Recaller, RecallMode
from edenmem.engine.context.xml import (
    ScopeMemory,
    item,
    measure,
    render_context,
    with_part,
    with_retrieved,
)
from edenmem.engine.reports import ContextPart, ContextReport
from edenmem.engine.runtime.concurrency import in_thread
from edenmem.engine.runtime.runtime import Runtime
from edenmem.engine.scopes.lookups import session_and_agents
from edenmem.engine.scopes.overview import in_database, pending_among, word_limit_of
from edenmem.engine.scopes.references import person_of
from edenmem.engine.scopes.visibility import SessionView, current_view
from edenmem.errors import StoreReadOnly, UsageError
from edenmem.models.host import Agent, CachedContext, Person, Session
from edenmem.models.ids import as_utc
from edenmem.models.memory import Consolidation, Fact, Reflection
from edenmem.models.scope import Scope, ScopeKind
from edenmem.models.told import Reply, Shown, make_note, pack, shown_facts
from edenmem.text import word_count


class BaseContext(NamedTuple):
    """The part of a context that does not depend on the message: XML, and its encoded items."""

    xml: str
    shown: bytes
    built_at: datetime


class _SessionBase(NamedTuple):
    """The context of a stored session, whether it was cached, and who may see it."""

    session: Session
    agent: Agent
    view: SessionView
    made: BaseContext | CachedContext
    cached: bool


def _confirmed_first(newest: Callable[[int], list[Fact]], limit: int) -> list[Fact]:
    """Return facts up to a limit, newest first, those in doubt only where room is left.

    ``newest`` returns a number of the newest facts.
    """
    size = limit
    while True:
        found = newest(size)
        confirmed = [fact for fact in found if not fact.unconfirmed]
        if len(confirmed) >= limit or len(found) < size:
            return [*confirmed, *(fact for fact in found if fact.unconfirmed)][:limit]
        size *= 2


class _Recent:
    """Recent contexts in memory, under everything they depend on; safe for threads.

    The key has the revision of each scope, so a write by any process leaves a context unused. It
    is dropped when it is too old, or when newer ones need its place.
    """

    _MOST = 256

    def __init__(self, seconds: float) -> None:
        self._age = timedelta(seconds=seconds)
        self._known: OrderedDict[tuple[str, ...], BaseContext] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, key: tuple[str, ...], now: datetime) -> BaseContext | None:
        """Return the context stored under a key, unless it is too old."""
        with self._lock:
            known = self._known.get(key)
        return known if known is not None and self._is_fresh(known, now) else None

    def store(self, key: tuple[str, ...], made: BaseContext, now: datetime) -> None:
        """Store a context, and drop the oldest ones."""
        with self._lock:
            self._known.pop(key, None)
            self._known[key] = made
            while self._known:
                oldest = next(iter(self._known.values()))
                if len(self._known) <= self._MOST and self._is_fresh(oldest, now):
                    break
                self._known.popitem(last=False)

    def _is_fresh(self, made: BaseContext, now: datetime) -> bool:
        return timedelta() <= now - made.built_at < self._age


class ContextBuilder:
    """Build contexts, and cache each one with its session until a scope changes."""

    def __init__(self, runtime: Runtime, *, recaller: Recaller) -> None:
        self._store = runtime.store
        self._settings = runtime.settings
        self._told = runtime.told
        self._recaller = recaller
        self._clock = runtime.clock
        self._recent = _Recent(runtime.settings.context.cache_seconds)

    async def build(
        self,
        session: Session | str,
        agent: Agent | str | None,
        *,
        speaker: str | None = None,
        message: str | None = None,
        recall: RecallMode | None = None,
        force_refresh: bool = False,
        as_of: datetime | None = None,
        keep: bool = True,
        measured: bool = True,
        own_only: bool = False,
        told: bool = False,
        is_stored: bool = True,
    ) -> ContextReport:
        """Build the context of ``agent`` in ``session``, or return the cached one.

        Args:
            session: The conversation, or its ID or name.
            agent: An agent of the session, or its ID or username (None: the first).
            speaker: Account that the agent is about to answer, if known. It counts as a
                participant: a stranger makes the session a group chat.
            message: Message to recall memories for (None: the newest user message).
            recall: Recall mode (None: the setting).
            force_refresh: Rebuild the context even if the cached one is valid.
            as_of: Rebuild the context of this moment, with the participants and scopes of today;
                nothing is cached or recalled.
            keep: Cache a new context. A context that ``speaker`` changes is never cached.
            measured: Count the words of each part, which takes half as long as the build.
            own_only: Leave out group and session memory, and recall only for ``message``. Such a
                context is never cached.
            told: Note what the agent gets (see `edenmem.models.told`).
            is_stored: Whether the session exists in the store. If not, nothing is cached.

        Raises:
            NotFoundError: the session does not exist, or the agent is not part of it.
            UsageError: ``recall`` is combined with ``as_of``.
            StoreError: the database cannot be used.
        """
        if as_of is not None:
            if recall not in (None, "off"):
                raise UsageError("recall is not available for past contexts")
            return await in_thread(self._past, session, agent, speaker, as_utc(as_of), own_only)
        base = await in_thread(
            self._session_base,
            session,
            agent,
            speaker,
            force_refresh or not is_stored,
            keep and is_stored,
            own_only,
        )
        if own_only and message is None:  # the newest one may be of another participant
            recall = "off"
        made, view = base.made, base.view
        recalled = await self._recaller.recall(
            recall or self._settings.context.recall,
            message,
            session=base.session,
            agent=base.agent,
            view=view,
            known=made.xml,
        )
        new = [fact for fact in recalled.facts if f" {item(fact.content)} (" not in made.xml]
        if told:
            reply = Reply(
                at=self._clock(),
                kind="context",
                agent_id=base.agent.id,
                session_id=base.session.id if is_stored else None,
                user_id=speaker or (view.user.id if view.user else None),
                built_at=made.built_at,
            )
            self._told.add(make_note(reply, made.shown, shown_facts(new)))
        xml = with_retrieved(made.xml, new, now=self._clock())
        known = len(recalled.facts) - len(new)
        return ContextReport(
            xml=xml,
            parts=self._measure(xml) if measured else (),
            scopes=view.reads,
            cached=base.cached,
            built_at=made.built_at,
            recall=recalled.note + (f", {known} already in the context" if known else ""),
            failure=recalled.failure,
            queries=recalled.queries,
            usage=recalled.usage,
        )

    async def refresh(self, session: Session, agent: Agent) -> None:
        """Rebuild the context of ``agent`` in ``session``, and cache it.

        Raises:
            StoreError: the database cannot be used.
        """
        await in_thread(self._session_base, session, agent, None, True, True, False)

    def rebuild(
        self,
        memories: Sequence[Fact | Reflection | Consolidation],
        found: Sequence[Fact],
        missing: Sequence[str],
        reply: Reply,
    ) -> str:
        """Return the XML of the context of a reply. Blocks.

        Args:
            memories: The memory as it was then, in order.
            found: The facts that a search found.
            missing: Descriptions of items that are gone.
            reply: The reply.
        """
        texts = {each.home: each for each in memories if isinstance(each, Consolidation)}
        pending = [each for each in memories if isinstance(each, Reflection)]
        whole = {
            scope: ScopeMemory(
                text=text.consolidated_content if text else "",
                version=text.version if text else 0,
                written_at=text.updated_at if text else None,
                reflections=tuple(each for each in pending if each.home == scope),
            )
            for scope in dict.fromkeys((*texts, *(each.home for each in pending)))
            for text in [texts.get(scope)]
        }
        person = person_of(self._store, reply.user_id) if reply.user_id else None
        facts = [each for each in memories if isinstance(each, Fact)]
        xml = render_context(
            self._merge_accounts(whole, person), facts, now=reply.built_at or reply.at
        )
        xml = with_retrieved(xml, found, now=reply.at)
        return with_part(xml, "Missing", "".join(f"- {each}\n" for each in missing))

    def _measure(self, xml: str) -> tuple[ContextPart, ...]:
        return measure(xml, characters_per_token=self._settings.formation.characters_per_token)

    def build_base(self, session: Session, view: SessionView, *, is_new: bool) -> BaseContext:
        """Return a context without recalled memories; blocks.

        Contexts are kept in the memory of this process, not with their sessions: a chat costs no
        write before its answer, and all new sessions of a user share one context.

        Args:
            session: The session.
            view: The scopes that the agent may read now.
            is_new: The session is not stored yet, so it has no memory.

        Raises:
            StoreError: the database cannot be used.
        """
        now = self._clock()
        own = {scope for scope in view.reads if is_new and scope.kind is ScopeKind.SESSION}
        scopes = tuple(scope for scope in view.reads if scope not in own)
        # Read before everything else, so that a later change changes the key.
        names = [f"{id} {name}" for id, name in view.person.names.items()] if view.person else []
        key = (self._state(scopes), *names)
        made = self._recent.find(key, now)
        if made is None:
            xml, shown, lasts = self._render(scopes, view, now)
            made = BaseContext(xml, shown, now)
            if lasts:
                self._recent.store(key, made, now)
        return made

    # -- store access, in a thread -------------------------------------------------------------

    def _find(self, session: Session | str, agent: Agent | str | None) -> tuple[Session, Agent]:
        if isinstance(session, Session) and isinstance(agent, Agent):
            return session, agent
        found, agents = session_and_agents(
            self._store,
            session if isinstance(session, str) else session.id,
            agent.id if isinstance(agent, Agent) else agent,
        )
        return found, agents[0]

    def _session_base(
        self,
        session_or_id: Session | str,
        agent_or_id: Agent | str | None,
        speaker: str | None,
        force_refresh: bool,
        keep: bool,
        own_only: bool,
    ) -> _SessionBase:
        now = self._clock()
        with self._store.database.snapshot():
            session, agent = self._find(session_or_id, agent_or_id)
            view = current_view(self._store, session, agent, speaker=speaker, own_only=own_only)
            # Read before everything else, so that a later change invalidates the fingerprint.
            state = self._state(view.reads)
            if not force_refresh:
                cached = self._store.contexts.find_context(session.id, agent.id)
                fresh_until = timedelta(seconds=self._settings.context.cache_seconds)
                if (
                    cached is not None
                    and timedelta() <= now - cached.built_at < fresh_until
                    and cached.fingerprint == _fingerprint(state, cached.xml)
                ):
                    return _SessionBase(session, agent, view, cached, cached=True)
            xml, shown, lasts = self._render(view.reads, view, now)
        context = CachedContext(
            xml=xml, fingerprint=_fingerprint(state, xml), built_at=now, shown=shown
        )
        keep = keep and not own_only and lasts
        if keep and (not speaker or current_view(self._store, session, agent).reads == view.reads):
            with suppress(StoreReadOnly):
                # The platform serves it to the next speaker, so it has the memory of a user only
                # if the session has one account.
                is_shared = all(scope.kind is not ScopeKind.USER for scope in view.reads)
                self._store.contexts.cache_context(
                    session.id, agent.id, context, shared=is_shared or len(session.users) == 1
                )
        return _SessionBase(session, agent, view, context, cached=False)

    def _render(
        self, scopes: Sequence[Scope], view: SessionView, now: datetime
    ) -> tuple[str, bytes, bool]:
        """Return the XML of a context, its encoded items, and whether it may be cached.

        A fact that expires while it would be cached is shown once.
        """
        documents = self._store.memory.consolidations(scopes)
        pending = self._newest_pending(documents)
        of_scope = {
            scope: ScopeMemory(
                text=text.consolidated_content,
                version=text.version,
                word_limit=text.word_limit,
                written_at=text.updated_at or text.last_consolidated_at,
                reflections=pending.get(scope, ()),
            )
            for scope in scopes
            if (text := documents.get(scope)) is not None
        }
        memories = self._merge_accounts(of_scope, view.person)
        facts = self._facts(scopes, now)
        xml = render_context(memories, facts, now=now)
        end = now + timedelta(seconds=self._settings.context.cache_seconds)
        lasts = not any(fact.has_expired(end) for fact in facts)
        return xml, pack((*shown_memories(memories), *shown_facts(facts))), lasts

    def _state(self, scopes: Sequence[Scope]) -> str:
        """Return the limits and scope revisions that a context depends on, as one text."""
        revisions = self._store.memory.revisions(scopes)
        limits = self._settings.context
        return "\n".join(
            [
                f"{limits.facts_limit} {limits.facts_max_age_hours} {limits.reflections_limit}"
                f" {in_database(self._store, self._settings).scopes.user.word_limit}",
                *(f"{scope.key} {revisions.get(scope, 0)}" for scope in scopes),
            ]
        )

    def _merge_accounts(
        self, memories: Mapping[Scope, ScopeMemory], person: Person | None
    ) -> dict[Scope, ScopeMemory]:
        """Merge the memory of all accounts of one person.

        The texts, newest first, share the word limit of the newest one. The newest pending
        reflections share the limit of one scope.
        """
        own = {scope: memory for scope, memory in memories.items() if scope.user_id}
        if len(own) < 2 or person is None:
            return dict(memories)
        others = {scope: memory for scope, memory in memories.items() if scope not in own}

        def written(scope: Scope) -> float:
            at = own[scope].written_at
            return at.timestamp() if at else 0.0

        newest_first = sorted(own, key=written, reverse=True)
        texts = [scope for scope in newest_first if own[scope].text.strip()]
        limit = self._settings.context.reflections_limit
        pending = [each for memory in own.values() for each in memory.reflections]
        pending.sort(key=lambda reflection: reflection.order)
        reflections = tuple(pending[-limit:])
        if len(texts) < 2:
            scope = next(iter(texts), newest_first[0])
            return others | {scope: msgspec.structs.replace(own[scope], reflections=reflections)}
        policy = self._store.memory.policies(texts[:1]).get(texts[0])
        room = word_limit_of(
            self._store, self._settings, texts[0], policy, stored=own[texts[0]].word_limit
        )
        shown: dict[Scope, ScopeMemory] = {}
        for scope in texts:
            text = own[scope].text if not shown else first_lines(own[scope].text, room)
            room -= word_count(text)
            shown[scope] = ScopeMemory(
                account=person.names.get(scope.owner, scope.owner),
                text=text,
                version=own[scope].version,
                reflections=() if shown else reflections,
            )
        return others | shown

    def _newest_pending(
        self, documents: Mapping[Scope, Consolidation]
    ) -> dict[Scope, tuple[Reflection, ...]]:
        """Return the newest pending reflections of each scope in buffer order.

        One query reads the ends of all buffers. The platform may leave IDs there that are not
        pending; a second query reads the whole buffers that have too few others at their ends.
        """
        limit = self._settings.context.reflections_limit
        if not limit:
            return {}
        buffers = {scope: text.unabsorbed_ids for scope, text in documents.items()}
        ends = {scope: buffer[-limit:] for scope, buffer in buffers.items()}
        found = pending_among(self._store, ends)
        short = {
            scope: buffers[scope]
            for scope, pending in found.items()
            if len(pending) < limit < len(buffers[scope])
        }
        found.update(pending_among(self._store, short))
        return {scope: pending[-limit:] for scope, pending in found.items()}

    def _facts(self, scopes: Sequence[Scope], now: datetime) -> list[Fact]:
        limit = self._settings.context.facts_limit
        if not limit:
            return []
        since = self._facts_since(now)
        return _confirmed_first(
            lambda size: self._store.memory.recent_facts(
                scopes, since=since, limit=size, live_at=now
            ),
            limit,
        )

    def _facts_since(self, now: datetime) -> datetime:
        return now - timedelta(hours=self._settings.context.facts_max_age_hours)

    def _past(
        self,
        session_or_id: Session | str,
        agent_or_id: Agent | str | None,
        speaker: str | None,
        moment: datetime,
        own_only: bool,
    ) -> ContextReport:
        session, agent = self._find(session_or_id, agent_or_id)
        view = current_view(self._store, session, agent, speaker=speaker, own_only=own_only)
        past = {scope: self._memory_at(scope, moment) for scope in view.reads}
        memories = self._merge_accounts(past, view.person)
        limit = self._settings.context.facts_limit
        since = self._facts_since(moment)

        def newest(size: int) -> list[Fact]:
            found = self._store.history.facts_at(view.reads, moment, limit=size)
            return [fact for fact in found if fact.recent_at >= since]

        recent = _confirmed_first(newest, limit) if limit else []
        xml = render_context(memories, recent, now=moment)
        return ContextReport(
            xml=xml,
            parts=self._measure(xml),
            scopes=view.reads,
            cached=False,
            built_at=moment,
            recall="off: not available for past contexts",
        )

    def _memory_at(self, scope: Scope, moment: datetime) -> ScopeMemory:
        versions = self._store.history.versions("consolidation", "", scope=scope)
        version = next((each for each in reversed(versions) if each.at <= moment), None)
        limit = self._settings.context.reflections_limit
        pending = self._store.history.pending_at(scope, moment)[-limit:] if limit else []
        return ScopeMemory(
            text=version.content if version else "",
            version=version.version if version else 0,
            written_at=version.at if version else None,
            reflections=tuple(pending),
        )


def shown_memories(memories: Mapping[Scope, ScopeMemory]) -> Iterator[Shown]:
    """Yield what a context shows of its scopes."""
    for scope, memory in memories.items():
        if memory.text.strip():
            yield Shown("text", "", memory.version, scope)
        for each in memory.reflections:
            yield Shown("reflection", each.id, each.version, each.home)


def first_lines(text: str, words: int) -> str:
    """Return the first whole lines of a text, up to a number of words."""
    kept: list[str] = []
    for line in text.splitlines():
        words -= word_count(line)
        if words < 0:
            break
        kept.append(line)
    return "\n".join(kept)


def _fingerprint(state: str, xml: str) -> str:
    """Hash the state and the XML, so that a context written by another program is not reused."""
    digest = hashlib.sha256()
    for part in (state, xml):
        raw = part.encode("utf-8", "surrogatepass")
        digest.update(len(raw).to_bytes(8, "big") + raw)
    return digest.hexdigest()
