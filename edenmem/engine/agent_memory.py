"""`AgentMemory`: the memory that an agent can use with one user or in one session.

Every call computes the readable and writable scopes by the rules of
`edenmem.engine.scopes.visibility`, so a toggle, a pause or a second person in the session applies
immediately. Memory outside these scopes is reported as not found.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from edenmem.engine.edits.checks import check_version, find_objection
from edenmem.engine.edits.editor import Editor, make_edit
from edenmem.engine.history.reader import Source, fact_why
from edenmem.engine.runtime.concurrency import in_thread
from edenmem.engine.runtime.runtime import Runtime
from edenmem.engine.scopes import lookups
from edenmem.engine.scopes.visibility import SessionView, current_view, people_who_wrote
from edenmem.errors import ConflictError, NotFoundError, ScopeError, UsageError
from edenmem.models.host import Agent, Message, Session
from edenmem.models.ids import new_id
from edenmem.models.memory import NO_FIELDS, Fact, FactFields
from edenmem.models.scope import Scope, ScopeKind
from edenmem.models.search import FactFilter
from edenmem.models.told import Reply, make_note, shown_facts
from edenmem.text import truncate_words

if TYPE_CHECKING:
    from edenmem.engine.context.builder import ContextBuilder
    from edenmem.engine.context.recall import RecallMode
    from edenmem.engine.reports import ContextReport, EditReport, FormationReport, SearchReport
    from edenmem.engine.search.searcher import Searcher


#: Maximum length of the text of `AgentMemory.put_fact`.
_PUT_WORDS = 200


class FactOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """The origin of a fact, limited to conversations of the reader.

    ``messages`` are the source messages of these conversations, in order; ``hidden`` counts the
    other and deleted ones. ``earlier`` are former texts, oldest first. ``is_note`` marks facts
    from `MemoryService.remember`. ``quote`` is empty unless it is in one of the messages.
    """

    fact: Fact
    removed: bool
    messages: tuple[Message, ...]
    hidden: int
    earlier: tuple[str, ...]
    is_note: bool
    quote: str = ""


class AgentMemory:
    """The memory of an agent for one user or session, from `MemoryService.memory_for`.

    Concurrent calls are safe.
    """

    def __init__(
        self,
        runtime: Runtime,
        *,
        agent_id: str,
        user_id: str | None,
        session_id: str | None,
        own_only: bool,
        searcher: Searcher,
        contexts: ContextBuilder,
    ) -> None:
        self._runtime = runtime
        self._store = runtime.store
        self._searcher = searcher
        self._contexts = contexts
        self.agent_id = agent_id
        self.user_id = user_id
        self.session_id = session_id
        self._own_only = own_only

    @property
    def can_extract(self) -> bool:
        """Check for a language model, which `remember` requires."""
        return self._runtime.llm is not None

    @property
    def fact_words(self) -> int:
        """Return the maximum number of words of a fact."""
        return self._runtime.settings.formation.fact_words

    # -- reading -------------------------------------------------------------------------------

    async def search(
        self,
        queries: str | Sequence[str],
        *,
        top_k: int | None = None,
        tags: Sequence[str] = (),
        key: str | None = None,
        shared: bool | None = None,
        explain: bool = False,
    ) -> SearchReport:
        """Find facts by meaning and by words.

        Args:
            queries: One query, or up to three that run together.
            top_k: Maximum number of results per query (None: ``search.top_k``).
            tags: Only facts with all of these tags.
            key: Only the fact with this key.
            shared: Only memory of all users (True) or of this user (False).
            explain: Return the figures of each stage, and the dropped candidates.

        Raises:
            UsageError: an argument is invalid.
            EmbeddingModelMismatch: stored vectors and embedder use different models.
            ProviderError: embedding the query failed.
        """
        texts = (queries,) if isinstance(queries, str) else queries
        _, _, view = await in_thread(self._access)
        report = await self._searcher.search(
            texts,
            _narrow(view.reads, shared),
            top_k=top_k,
            tags=tags,
            key=key,
            explain=explain,
        )
        self._note([hit.fact for hit in report.hits], view)
        return report

    async def context(
        self, *, message: str | None = None, recall: RecallMode | None = None
    ) -> ContextReport:
        """Build the memory for the agent's prompt, as XML.

        Args:
            message: Message to recall memories for.
            recall: "off", "heuristic", "llm" or "always" (None: ``context.recall``).
        """
        agent, session, _ = await in_thread(self._access)
        return await self._contexts.build(
            session,
            agent,
            speaker=self.user_id,
            message=message,
            recall=recall,
            own_only=self._own_only,
            told=True,
            is_stored=self.session_id is not None,
        )

    async def facts(
        self,
        *,
        limit: int | None = 20,
        containing: str = "",
        tags: Sequence[str] = (),
        key: str | None = None,
        shared: bool | None = None,
    ) -> list[Fact]:
        """Return the most recently created or corrected facts that have not expired.

        Args:
            limit: Maximum number of facts (None: no limit).
            containing: Only facts that contain this text, ignoring case.
            tags: Only facts with all of these tags.
            key: Only facts with this key, which is unique in a scope.
            shared: Only facts of all users (True) or of this user (False).
        """
        if limit is not None and limit < 1:
            raise UsageError(f"limit must be at least 1: {limit}")
        return await in_thread(self._facts, limit, containing.casefold(), tuple(tags), key, shared)

    async def why(self, fact_id: str) -> FactOrigin:
        """Return the origin of a fact, also of a removed one.

        Raises:
            NotFoundError: the fact does not exist or is not readable.
        """
        return await in_thread(self._why, fact_id)

    # -- writing -------------------------------------------------------------------------------

    async def remember(self, text: str, *, dry_run: bool = False) -> FormationReport:
        """Extract facts from a text with the language model, and store the new ones.

        Raises:
            UsageError: the text is empty.
            ScopeError: memory is switched off or paused in all scopes.
            ConfigError: no language model is configured; `add_fact` works without one.
            ProviderError: the model failed.
        """
        from edenmem.engine.formation.notes import remember

        agent, _, view = await in_thread(self._access)
        is_open = any(scope.user_id for scope in view.writes_facts)
        return await remember(
            self._runtime, text, agent, view.user if is_open else None, dry_run=dry_run
        )

    async def add_fact(
        self, content: str, *, shared: bool | None = None, fields: FactFields = NO_FIELDS
    ) -> EditReport:
        """Store one fact verbatim, without a language model.

        Args:
            content: One statement that makes sense without its conversation.
            shared: Store for all users of the agent (True) or for this user (False). None: for
                this user if there is one, else for all.
            fields: Key, tags, metadata, time of expiry and value of the fact.

        Raises:
            UsageError: the text is empty, too long, a secret, or an order to the agent; or a field
                is invalid.
            ConflictError: another fact of the scope has the key.
            ScopeError: the scope is not writable.
        """
        _, _, view = await in_thread(self._access)
        scope = self._scope_for(view, shared)
        _check_content(content, fields)
        return await make_edit(
            self._runtime,
            lambda editor: editor.add_fact(
                scope, content, session_id=self.session_id, fields=fields
            ),
        )

    async def put_fact(
        self,
        content: str,
        *,
        shared: bool | None = None,
        fields: FactFields,
        version: int | None = None,
    ) -> EditReport:
        """Store a fact under its key, in place of the fact that has the key.

        Args:
            content: The text, by which the fact is found; stored as one line of up to 200 words.
                The whole item belongs in ``fields.value``.
            shared: See `add_fact`.
            fields: All fields of the fact; the key is required.
            version: The version that the caller read; 0 for no fact (None: any).

        Raises:
            UsageError: there is no key, or see `add_fact`.
            ConflictError: the fact has changed since this version, or other writers changed it at
                the same time, three times.
            ScopeError: the scope is not writable.
        """
        if fields.key is None:
            raise UsageError("the fact needs a key")
        _, _, view = await in_thread(self._access)
        scope = self._scope_for(view, shared)
        _check_content(content, fields, is_statement=False)
        keyed = FactFilter(scopes=(scope,), key=fields.key)
        text = truncate_words(" ".join(content.split()), _PUT_WORDS)

        def put(editor: Editor) -> EditReport:
            there = next(iter(self._store.memory.facts(keyed, limit=1)), None)
            stored = there.version if there is not None else 0
            check_version("fact", stored, version)
            if there is None:
                session_id = self.session_id
                return editor.add_fact(
                    scope, text, session_id=session_id, fields=fields, allow_long=True
                )
            return editor.edit(
                there.id, text, expected_version=there.version, fields=fields, allow_long=True
            )

        for _ in range(2):
            try:
                return await make_edit(self._runtime, put)
            except ConflictError:
                continue
        return await make_edit(self._runtime, put)

    async def edit_fact(
        self,
        fact_id: str,
        content: str | None = None,
        *,
        version: int,
        fields: FactFields | None = None,
    ) -> EditReport:
        """Replace the text or the fields of a fact; the old ones stay in the history.

        Args:
            fact_id: The ID of the fact.
            content: The new text; None keeps it.
            version: The version that the caller read.
            fields: All fields of the fact, with the new ones; None keeps them.

        Raises:
            NotFoundError: the fact does not exist or is not readable.
            ConflictError: the fact has changed since this version, or another fact of the scope
                has the key.
            UsageError: the text is empty, too long, a secret, or an order to the agent.
            ScopeError: the scope is not writable.
        """
        await in_thread(self._check_writable, fact_id)
        _check_content(content or "", fields)
        return await make_edit(
            self._runtime,
            lambda editor: editor.edit(fact_id, content, expected_version=version, fields=fields),
        )

    async def forget_fact(self, fact_id: str) -> EditReport:
        """Remove a fact; ``edenmem restore`` restores it.

        Raises:
            NotFoundError: the fact does not exist or is not readable.
            ScopeError: the scope is not writable.
        """
        await in_thread(self._check_writable, fact_id)
        return await make_edit(self._runtime, lambda editor: editor.delete(fact_id))

    # -- in a thread ---------------------------------------------------------------------------

    def _note(self, facts: Sequence[Fact], view: SessionView) -> None:
        """Note what the agent gets."""
        reply = Reply(
            at=self._runtime.clock(),
            kind="search",
            agent_id=self.agent_id,
            session_id=self.session_id,
            user_id=self.user_id or (view.user.id if view.user else None),
        )
        self._runtime.told.add(make_note(reply, found=shown_facts(facts)))

    def _access(self) -> tuple[Agent, Session, SessionView]:
        agent = lookups.existing_agent(self._store, self.agent_id)
        if self.session_id is not None:
            session = lookups.existing_session(self._store, self.session_id)
        else:  # never stored
            users = (self.user_id,) if self.user_id else ()
            session = Session(id=new_id(), agents=(agent.id,), users=users)
        view = current_view(
            self._store, session, agent, speaker=self.user_id, own_only=self._own_only
        )
        return agent, session, view

    def _facts(
        self,
        limit: int | None,
        wanted: str,
        tags: tuple[str, ...],
        key: str | None,
        shared: bool | None,
    ) -> list[Fact]:
        _, _, view = self._access()
        reads = _narrow(view.reads, shared)
        scopes = tuple(scope for scope in reads if scope.kind is not ScopeKind.SESSION)
        filter = FactFilter(scopes=scopes, live_at=self._runtime.clock(), tags=tags, key=key)
        found = self._store.memory.facts(filter, limit=None if wanted else limit)
        listed = list(islice((each for each in found if wanted in each.content.casefold()), limit))
        self._note(listed, view)
        return listed

    def _why(self, fact_id: str) -> FactOrigin:
        from edenmem.acceptance.texts import contains, fold

        _, _, view = self._access()
        try:
            found = fact_why(self._store, fact_id)
        except NotFoundError:
            raise _unknown(fact_id) from None
        if found.fact.home not in view.reads:
            raise _unknown(fact_id)
        self._note([found.fact], view)
        sources = (found.source, *found.other_sources)
        shown = [each for each in sources if self._took_part(each, view)]
        messages = tuple(message for each in shown for message in each.messages)
        named = {*found.fact.source_message_ids, *(m.id for each in sources for m in each.messages)}
        quote, passage = found.fact.quote, fold(found.fact.quote)
        is_quoted = any(contains(fold(each.content), passage) for each in messages if quote)
        return FactOrigin(
            fact=found.fact,
            removed=found.removed,
            messages=messages,
            hidden=len(named) - len(messages),
            earlier=found.replaced,
            is_note=found.is_note,
            quote=quote if is_quoted else "",
        )

    def _took_part(self, source: Source, view: SessionView) -> bool:
        """Check whether the source is this session, or a conversation of this person.

        With ``own_only``, no other user took part in it.
        """
        session = source.session
        if session is None:
            return False
        own = {account.id for account in view.person.accounts} if view.person else set()
        people = {*session.users, *people_who_wrote(self._store, session)}
        if self._own_only:
            return bool(people) and people <= own
        return session.id == self.session_id or bool(own & people)

    def _check_writable(self, fact_id: str) -> None:
        _, _, view = self._access()
        fact = self._store.memory.fact(fact_id)
        if fact is None or fact.home not in view.reads:
            raise _unknown(fact_id)
        self._check_open(fact.home, view)

    def _scope_for(self, view: SessionView, shared: bool | None) -> Scope:
        """Return the scope of a new fact."""
        user = view.user
        if shared is False and user is None:
            raise UsageError("cannot store a fact for one user: the session has several or none")
        is_shared = shared or user is None
        agent_id = self.agent_id
        scope = Scope.agent(agent_id) if is_shared or not user else Scope.user(agent_id, user.id)
        self._check_open(scope, view)
        return scope

    def _check_open(self, scope: Scope, view: SessionView) -> None:
        if self._own_only and scope.kind is not ScopeKind.USER:
            raise ScopeError(f"{scope.kind} memory is shared and not editable by users")
        if scope not in view.writes_facts:
            raise ScopeError(f"{scope.kind} memory is not writable: switched off or paused")


def _narrow(scopes: Sequence[Scope], shared: bool | None) -> Sequence[Scope]:
    """Return the scopes of all users (True), of one user (False), or all (None)."""
    if shared is None:
        return scopes
    return [scope for scope in scopes if (scope.kind is ScopeKind.USER) is not shared]


def _check_content(content: str, fields: FactFields | None, *, is_statement: bool = True) -> None:
    """Reject secrets and orders to the agent, as for facts of conversations."""
    if why := find_objection(content, fields, is_statement=is_statement):
        raise UsageError(why)


def _unknown(fact_id: str) -> NotFoundError:
    return NotFoundError(f"fact not found: {fact_id}")
