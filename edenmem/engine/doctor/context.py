"""The context of an examination: the store, the configured models, and lookups of owners."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from edenmem.engine.doctor.report import Advice, CheckFinding, State
from edenmem.engine.erasure.sweep import Sweep
from edenmem.engine.factory import open_embedder, open_llm
from edenmem.errors import EdenmemError
from edenmem.models.backup import Document, RecordKind, Selection
from edenmem.models.integrity import Finding, PresenceKind
from edenmem.models.memory import Consolidation, Fact, Reflection, ScopeSummary
from edenmem.models.scope import Scope
from edenmem.settings.schema import Settings
from edenmem.store.protocol.database import StoreInfo
from edenmem.store.protocol.store import Store, batched

if TYPE_CHECKING:
    from edenmem.embed.protocol import Embedder
    from edenmem.llm.protocol import LLM


@dataclass(kw_only=True)
class Providers:
    """The configured models, one event loop for both, and the reasons why one cannot be opened."""

    runner: asyncio.Runner
    embedder: Embedder | None = None
    llm: LLM | None = None
    dimensions: int | None = None
    faults: dict[str, str] = field(default_factory=dict)

    def vectors(self, texts: Sequence[str]) -> Sequence[bytes | None]:
        """Return the vectors of texts; None for each without an embedding model.

        Raises:
            ProviderError: the model is unavailable.
        """
        if self.embedder is None or not texts:
            return [None] * len(texts)
        return self.runner.run(self.embedder.embed(list(texts), role="passage")).vectors


@contextmanager
def open_providers(settings: Settings) -> Iterator[Providers]:
    """Open the configured models; a misconfigured one is a fault."""
    with asyncio.Runner() as runner:
        providers = Providers(runner=runner)
        try:
            providers.embedder = embedder = open_embedder(settings)
            providers.dimensions = None if embedder is None else embedder.dimensions
        except EdenmemError as error:
            providers.faults["embedding"] = describe_error(error)
        try:
            providers.llm = open_llm(settings)
        except EdenmemError as error:
            providers.faults["llm"] = describe_error(error)
        try:
            yield providers
        finally:
            for provider in (providers.embedder, providers.llm):
                if provider is not None:
                    runner.run(provider.close())


def describe_error(error: Exception) -> str:
    """Return an error as text, with its hint."""
    if not isinstance(error, EdenmemError):
        return f"{type(error).__name__}: {error}"
    return f"{error.message}; {error.hint}" if error.hint else error.message


#: Tolerated difference between the clocks of hosts.
CLOCK_SKEW = timedelta(minutes=5)

#: Number of records examined together.
BATCH = 500
#: Maximum number of sessions whose users are kept.
_KEPT = 50_000


@dataclass(kw_only=True)
class DoctorContext:
    """The store to examine and its environment.

    ``files`` are the configuration files; checks that read all memory run only if ``is_full``,
    models are called only if ``is_online``; ``progress`` is called with the current subject and the
    number of examined items.
    """

    store: Store
    settings: Settings
    providers: Providers
    sweep: Sweep
    now: datetime
    agent_id: str | None = None
    files: tuple[Path, ...] = ()
    is_full: bool = True
    is_online: bool = False
    progress: Callable[[str, int], None] = lambda what, count: None
    info: StoreInfo | None = None
    _people: dict[str, frozenset[str] | None] = field(default_factory=dict, init=False)

    @property
    def agent_ids(self) -> tuple[str, ...]:
        """Return the examined agent; empty for all agents."""
        return () if self.agent_id is None else (self.agent_id,)

    @property
    def is_mongodb(self) -> bool:
        """Return whether the store is a MongoDB that responds."""
        return self.info is not None and self.info.kind == "mongodb"

    @cached_property
    def scopes(self) -> tuple[ScopeSummary, ...]:
        """Return all scopes of the examined agent, or of all agents."""
        return tuple(self.store.memory.scopes(agent_id=self.agent_id))

    def documents(self, kind: RecordKind, *, with_vectors: bool = False) -> Iterator[Document]:
        """Yield all documents of a kind, of ``agent_id`` if set."""
        selection = Selection(agent_ids=self.agent_ids)
        return self.store.walk.documents((kind,), selection, with_vectors=with_vectors)

    def missing(self, kind: PresenceKind, ids: Iterable[str]) -> set[str]:
        """Return the IDs that do not exist."""
        wanted = set(ids)
        for part in batched(sorted(wanted), BATCH):
            wanted -= self.store.walk.present(kind, part)
        return wanted

    def persons(self, ids: Collection[str]) -> dict[str, str]:
        """Return account → canonical ID of its user; an unknown account maps to itself."""
        known = self.store.host.users_by_ids(tuple(ids))
        return {id: known[id].person_id if id in known else id for id in ids}

    def people(self, session_ids: Iterable[str]) -> dict[str, frozenset[str] | None]:
        """Return session → its users, at least for these sessions; None for a missing session."""
        if len(self._people) > _KEPT:
            self._people.clear()
        new = [id for id in session_ids if id not in self._people]
        found = self.store.host.people_of(new) if new else {}
        self._people.update({id: found.get(id) for id in new})
        return self._people


def found(
    check: str,
    target_type: str,
    target_id: str,
    detail: str,
    state: State | None = None,
    advice: Advice | None = None,
    *,
    agent_id: str = "",
    scope: Scope | None = None,
    related: Iterable[str] = (),
) -> CheckFinding:
    """Return a finding of a check; see `CheckFinding`."""
    finding = Finding(
        target_type=target_type,
        target_id=target_id,
        detail=detail,
        agent_id=agent_id or (scope.agent_id if scope is not None else ""),
        scope=scope,
        related=tuple(related),
    )
    return CheckFinding(check, finding, state, advice)


def note(
    check: str,
    item: Fact | Reflection | Consolidation,
    detail: str,
    state: State | None = None,
    advice: Advice | None = None,
    *,
    related: Iterable[str] = (),
) -> CheckFinding:
    """Return a finding of a check about a memory; see `CheckFinding`."""
    finding = Finding(
        target_type=type(item).__name__.lower(),
        target_id=item.id,
        detail=detail,
        agent_id=item.agent_id,
        scope=item.home,
        text=item.consolidated_content if isinstance(item, Consolidation) else item.content,
        related=tuple(related),
    )
    return CheckFinding(check, finding, state, advice)
