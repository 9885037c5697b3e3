"""The context of an examination, with cached lookups of owners, accounts and policies."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Generic, TypeVar

from edenmem.engine.doctor.providers import Providers
from edenmem.engine.erasure.sweep import Sweep
from edenmem.models.backup import Document, RecordKind, Selection
from edenmem.models.integrity import Finding, PresenceKind
from edenmem.models.memory import Consolidation, Fact, Policy, Reflection
from edenmem.models.scope import Scope
from edenmem.settings.schema import Settings
from edenmem.store.protocol.database import StoreInfo
from edenmem.store.protocol.store import Store, batched

_K = TypeVar("_K")
_V = TypeVar("_V")

#: Maximum number of cached answers of each kind.
_KEPT = 50_000
#: Number of keys per query.
_BATCH = 1000


class _Lookup(Generic[_K, _V]):
    """Cached answers; all are dropped when the cache is full."""

    def __init__(self) -> None:
        self._held: dict[_K, _V] = {}

    def get(self, keys: Collection[_K], query: Callable[[list[_K]], dict[_K, _V]]) -> dict[_K, _V]:
        """Return the answers for keys; ``query`` answers the keys that are not cached."""
        answers = {key: self._held[key] for key in keys if key in self._held}
        new: dict[_K, _V] = {}
        for part in batched((key for key in dict.fromkeys(keys) if key not in answers), _BATCH):
            new |= query(part)
        if len(self._held) > _KEPT:
            self._held.clear()
        self._held |= new
        return answers | new


class Cache:
    """Cached lookups in a store for one examination."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._present: dict[PresenceKind, _Lookup[str, bool]] = {}
        self._person_ids: _Lookup[str, str] = _Lookup()
        self._people: _Lookup[str, frozenset[str] | None] = _Lookup()
        self._policies: _Lookup[Scope, Policy | None] = _Lookup()

    def missing(self, kind: PresenceKind, ids: Collection[str]) -> set[str]:
        """Return the IDs that do not exist."""

        def query(part: list[str]) -> dict[str, bool]:
            found = self._store.walk.present(kind, part)
            return {key: key in found for key in part}

        answers = self._present.setdefault(kind, _Lookup()).get(ids, query)
        return {key for key in ids if not answers[key]}

    def person_ids(self, account_ids: Collection[str]) -> dict[str, str]:
        """Return account → canonical ID of its user; an unknown account maps to itself."""

        def query(part: list[str]) -> dict[str, str]:
            found = self._store.host.users_by_ids(part)
            return {key: found[key].person_id if key in found else key for key in part}

        return self._person_ids.get(account_ids, query)

    def people(self, session_ids: Collection[str]) -> dict[str, frozenset[str] | None]:
        """Return session → its users; None for a missing session."""

        def query(part: list[str]) -> dict[str, frozenset[str] | None]:
            found = self._store.host.people_of(part)
            return {key: found.get(key) for key in part}

        return self._people.get(session_ids, query)

    def policies(self, scopes: Collection[Scope]) -> dict[Scope, Policy | None]:
        """Return scope → its policy, if any."""

        def query(part: list[Scope]) -> dict[Scope, Policy | None]:
            found = self._store.memory.policies(part)
            return {scope: found.get(scope) for scope in part}

        return self._policies.get(scopes, query)


#: Tolerated difference between the clocks of hosts.
CLOCK_SKEW = timedelta(minutes=5)

#: Number of records examined together.
BATCH = 500

Owned = Fact | Reflection | Consolidation | Policy


@dataclass(kw_only=True)
class DoctorContext:
    """The store to examine and its environment.

    ``files`` are the configuration files; ``progress`` is called with the current subject and the
    number of examined items.
    """

    store: Store
    settings: Settings
    providers: Providers
    sweep: Sweep
    now: datetime
    agent_id: str | None = None
    files: tuple[Path, ...] = ()
    progress: Callable[[str, int], None] = lambda what, count: None
    info: StoreInfo | None = None
    cache: Cache = field(init=False)

    def __post_init__(self) -> None:
        self.reset_cache()

    def documents(self, kind: RecordKind) -> Iterator[Document]:
        """Yield all documents of a kind, of ``agent_id`` if set."""
        agents = () if self.agent_id is None else (self.agent_id,)
        return self.store.walk.documents((kind,), Selection(agent_ids=agents))

    def reset_cache(self) -> None:
        """Drop all cached lookups."""
        self.cache = Cache(self.store)


def about(
    item: Owned, detail: str, *, target_type: str = "", related: tuple[str, ...] = ()
) -> Finding:
    """Return a finding about a memory."""
    text = item.consolidated_content if isinstance(item, Consolidation) else ""
    if isinstance(item, Fact | Reflection):
        text = item.content
    return Finding(
        target_type=target_type or type(item).__name__.lower(),
        target_id=item.id,
        detail=detail,
        agent_id=item.agent_id,
        scope=item.home,
        text=text,
        related=related,
    )
