"""Read the host, scopes and memory for operators. All functions block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import islice

import msgspec

from edenmem.engine.reports import ScopeStatus
from edenmem.engine.scopes.overview import (
    consolidate_at_of,
    in_database,
    scope_statuses,
    store_overview,
    word_limit_of,
)
from edenmem.engine.scopes.people import person_of, resolve_person
from edenmem.engine.scopes.references import Resolver, load_labels
from edenmem.engine.scopes.visibility import reader_scopes
from edenmem.errors import NotFoundError
from edenmem.models.ids import is_id
from edenmem.models.memory import Consolidation, Fact, Policy, Reflection
from edenmem.models.scope import Scope, ScopeKind
from edenmem.settings.schema import Settings
from edenmem.store.protocol.store import Store, batched

#: Texts per query.
_BATCH = 200


class HostReader:
    """Read agents, accounts, sessions and messages."""

    def __init__(self, store: Store) -> None:
        self.agents = store.host.agents
        self.agent = store.host.agent
        self.users = store.host.users
        self.sessions = store.host.sessions
        self.session = store.host.session
        self.messages = store.host.messages
        self.find_by_prefix = store.host.find_by_prefix
        self.shards = store.memory.shards
        self.person = partial(person_of, store)
        self.choose_accounts = partial(resolve_person, store)


class ScopeReader:
    """Read scopes with their labels, sizes, limits and policies."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._settings = settings
        self.labels = partial(load_labels, store)
        self.statuses = partial(scope_statuses, store, settings)
        self.overview = partial(store_overview, store, settings)
        self.readable = partial(reader_scopes, store)
        self.in_database = partial(in_database, store, settings)
        self.is_beside_platform = store.database.is_beside_platform

    def of_agent(self, agent_id: str, kinds: Sequence[ScopeKind]) -> tuple[Scope, ...]:
        """Return the agent's scopes of these kinds (empty: all kinds)."""
        found = self._store.memory.scopes(agent_id=agent_id, kinds=kinds)
        return tuple(summary.scope for summary in found)

    def policy(self, scope: Scope) -> Policy | None:
        """Return the policy of a scope, or None."""
        return self._store.memory.policies([scope]).get(scope)

    def status(self, scope: Scope) -> ScopeStatus:
        """Return the status of one scope, which may be empty."""
        stored = self.statuses(
            agent_id=scope.agent_id,
            kinds=[scope.kind],
            user_ids=[scope.user_id] if scope.user_id else None,
            details=True,
        )
        policy = self.policy(scope)
        return next((status for status in stored if status.scope == scope), None) or ScopeStatus(
            scope=scope,
            facts=0,
            pending=0,
            consolidate_at=consolidate_at_of(self._store, self._settings, scope, policy),
            due=False,
            active=policy is None or policy.active,
            version=0,
            words=0,
            word_limit=word_limit_of(self._store, self._settings, scope, policy),
        )


class MemoryReader:
    """Read current facts, reflections and texts."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._settings = settings
        self.facts = store.memory.facts
        self.fact = store.memory.fact
        self.reflections = store.memory.reflections
        self.reflection = store.memory.reflection
        self.pending = store.memory.pending
        self.held = store.memory.held

    def find_reflections(
        self,
        scopes: Sequence[Scope],
        *,
        absorbed: bool | None = None,
        containing: str = "",
        since: datetime | None = None,
        before: datetime | None = None,
        limit: int | None = None,
    ) -> Iterator[Reflection]:
        """Return reflections that contain a text, ignoring case, newest first.

        See `Memory.reflections` for the other arguments.
        """
        if not containing:
            return self.reflections(
                scopes, absorbed=absorbed, since=since, before=before, limit=limit
            )
        wanted = containing.casefold()
        found = self.reflections(scopes, absorbed=absorbed, since=since, before=before)
        return islice((each for each in found if wanted in each.content.casefold()), limit)

    def find_fact(self, text: str) -> Fact:
        """Return the fact with this ID or ID prefix.

        Raises:
            NotFoundError: the fact does not exist, or was deleted.
            AmbiguousReference: several IDs match.
        """
        try:
            return Resolver(self._store).fact(text)
        except NotFoundError:
            fact_id = text.strip().lower()
            if not is_id(fact_id) or not self._store.history.versions("fact", fact_id):
                raise
            raise NotFoundError(
                f"the fact was deleted: {fact_id}",
                hint=f"restore it with 'edenmem restore {fact_id}', "
                f"or see 'edenmem history {fact_id}'",
            ) from None

    def texts(
        self,
        *,
        agent_id: str | None = None,
        kinds: Sequence[ScopeKind] = (),
        user_ids: Sequence[str] | None = None,
    ) -> Iterator[Consolidation]:
        """Return the texts of scopes with their effective word limits."""
        stored = self._store.memory.scopes(agent_id=agent_id, kinds=kinds, user_ids=user_ids)
        for batch in batched((s.scope for s in stored if s.version), _BATCH):
            yield from self._with_limits(self._store.memory.consolidations(batch)).values()

    def text(self, scope: Scope) -> Consolidation | None:
        """Return the text of one scope with its effective word limit."""
        return self._with_limits(self._store.memory.consolidations([scope])).get(scope)

    def _with_limits(self, texts: Mapping[Scope, Consolidation]) -> dict[Scope, Consolidation]:
        """Replace the stored limits with the effective ones."""
        policies = self._store.memory.policies(list(texts))
        return {
            scope: msgspec.structs.replace(
                text,
                word_limit=word_limit_of(
                    self._store, self._settings, scope, policies.get(scope), text
                ),
            )
            for scope, text in texts.items()
        }
