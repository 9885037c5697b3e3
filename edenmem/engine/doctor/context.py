"""Who and what there is, asked of the store a page at a time and remembered for a while."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Generic, TypeVar

from edenmem.engine.doctor.providers import Providers
from edenmem.models.backup import Document, RecordKind, Selection
from edenmem.models.integrity import Finding, PresenceKind
from edenmem.models.memory import Consolidation, Fact, Policy, Reflection
from edenmem.models.scope import Scope
from edenmem.settings.schema import Settings
from edenmem.store.protocol.database import StoreInfo
from edenmem.store.protocol.store import Store, batched

_K = TypeVar("_K")
_V = TypeVar("_V")

#: Answers that are kept of each kind.
_KEPT = 50_000
#: Ids that are asked about at once.
_ASKED = 1000


class _Shelf(Generic[_K, _V]):
    """A dictionary that forgets all when it is full: simpler than the oldest, and as bounded."""

    def __init__(self) -> None:
        self.held: dict[_K, _V] = {}

    def lacks(self, keys: Iterable[_K]) -> list[_K]:
        """Those that must be asked for."""
        if len(self.held) > _KEPT:
            self.held.clear()
        return [key for key in dict.fromkeys(keys) if key not in self.held]


class Cache:
    """Answers of one store, for one examination."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._present: dict[PresenceKind, _Shelf[str, bool]] = {}
        self._person_ids: _Shelf[str, str] = _Shelf()
        self._people: _Shelf[str, frozenset[str] | None] = _Shelf()
        self._policies: _Shelf[Scope, Policy | None] = _Shelf()

    def missing(self, kind: PresenceKind, ids: Collection[str]) -> set[str]:
        """Those of the ids that do not exist."""
        shelf = self._present.setdefault(kind, _Shelf())
        answers = {key: shelf.held[key] for key in ids if key in shelf.held}
        for part in batched(shelf.lacks(ids), _ASKED):
            there = self._store.walk.present(kind, part)
            answers |= {key: key in there for key in part}
        shelf.held |= answers
        return {key for key in ids if not answers[key]}

    def person_ids(self, account_ids: Collection[str]) -> dict[str, str]:
        """Account → the canonical id of its person; of an unknown account its own id."""
        held = self._person_ids.held
        answers = {key: held[key] for key in account_ids if key in held}
        for part in batched(self._person_ids.lacks(account_ids), _ASKED):
            found = self._store.host.users_by_ids(part)
            answers |= {key: found[key].person_id if key in found else key for key in part}
        held |= answers
        return answers

    def people(self, session_ids: Collection[str]) -> dict[str, frozenset[str] | None]:
        """Session → its people; None for a session that is not there."""
        answers = {key: self._people.held[key] for key in session_ids if key in self._people.held}
        for part in batched(self._people.lacks(session_ids), _ASKED):
            found = self._store.host.people_of(part)
            answers |= {key: found.get(key) for key in part}
        self._people.held |= answers
        return answers

    def policies(self, scopes: Collection[Scope]) -> dict[Scope, Policy | None]:
        """Scope → its policy, if it has one."""
        held = self._policies.held
        answers = {scope: held[scope] for scope in scopes if scope in held}
        for part in batched(self._policies.lacks(scopes), _ASKED):
            found = self._store.memory.policies(part)
            answers |= {scope: found.get(scope) for scope in part}
        held |= answers
        return answers


#: How far clocks of hosts may be apart before a time counts as one to come.
CLOCKS = timedelta(minutes=5)

#: Records that are looked at together.
BATCH = 500

Owned = Fact | Reflection | Consolidation | Policy


@dataclass(kw_only=True)
class DoctorContext:
    """A store and its surroundings. ``files`` are those of the configuration; ``tell`` is called
    with what is being looked at, and how many of it so far."""

    store: Store
    settings: Settings
    providers: Providers
    now: datetime
    agent_id: str | None = None
    files: tuple[Path, ...] = ()
    tell: Callable[[str, int], None] = lambda what, count: None
    info: StoreInfo | None = None
    cache: Cache = field(init=False)

    def __post_init__(self) -> None:
        self.forget()

    def documents(self, kind: RecordKind) -> Iterator[Document]:
        """Walk everything of a kind that is looked at."""
        agents = () if self.agent_id is None else (self.agent_id,)
        return self.store.walk.documents((kind,), Selection(agent_ids=agents))

    def forget(self) -> None:
        """Ask anew who and what there is."""
        self.cache = Cache(self.store)


def about(
    item: Owned, detail: str, *, target_type: str = "", related: tuple[str, ...] = ()
) -> Finding:
    """A finding about a memory."""
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
