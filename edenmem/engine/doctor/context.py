"""The context of an examination: the configured models, and cached lookups.

Models are tested on request; a misconfigured model is a finding.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Generic, TypeVar

from edenmem.engine.doctor.report import Advice, CheckFinding, Remark, State
from edenmem.engine.erasure.sweep import Sweep
from edenmem.engine.factory import LLM_HINT, embedder_hint, open_embedder, open_llm
from edenmem.engine.runtime.llm_session import ping
from edenmem.errors import EdenmemError
from edenmem.llm import NO_LLM
from edenmem.models.backup import Document, RecordKind, Selection
from edenmem.models.integrity import Finding, PresenceKind
from edenmem.models.memory import Consolidation, Fact, Policy, Reflection, ScopeSummary
from edenmem.models.scope import Scope
from edenmem.settings.schema import Settings
from edenmem.store.protocol.database import StoreInfo
from edenmem.store.protocol.store import Store, batched

if TYPE_CHECKING:
    from edenmem.embed.protocol import Embedder
    from edenmem.llm.protocol import LLM

_CHECK = "providers"
_NO_LLM = Advice("Formation and consolidation need a language model.", LLM_HINT)


class Providers:
    """The embedding model and the language model, with one event loop for both."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._faults: list[Finding] = []
        self._runner: asyncio.Runner | None = None
        self.embedder: Embedder | None = None
        self.llm: LLM | None = None
        self.dimensions: int | None = None

    def __enter__(self) -> Providers:
        self._runner = asyncio.Runner()
        try:
            self.embedder = open_embedder(self._settings)
            self.dimensions = None if self.embedder is None else self.embedder.dimensions
        except EdenmemError as error:
            self._faults.append(_failure("embedding", error))
        try:
            self.llm = open_llm(self._settings)
        except EdenmemError as error:
            self._faults.append(_failure("llm", error))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._runner is not None
        for provider in (self.embedder, self.llm):
            if provider is not None:
                self._runner.run(provider.close())
        self._runner.close()

    def look(self, *, online: bool) -> Iterator[CheckFinding | Remark]:
        """Yield the configured models and, if ``online``, whether they respond."""
        for fault in self._faults:
            yield CheckFinding(_CHECK, fault, State.PROBLEM)
        faulty = {fault.target_id for fault in self._faults}
        called, script = list[str](), ""
        if self.embedder is not None:
            called.append(self.embedder.model)
        elif "embedding" not in faulty:
            finding = _finding("embedding", "no embedding model")
            advice = Advice("Search by meaning needs an embedding model.", embedder_hint())
            yield CheckFinding(_CHECK, finding, State.NOTE, advice)
        if self.llm is not None and self.llm.is_scripted:  # needs no test
            script = self.llm.description
        elif self.llm is not None:
            called.append(self.llm.description)
        elif "llm" not in faulty:
            finding = _finding("llm", NO_LLM)
            yield CheckFinding(_CHECK, finding, State.NOTE, _NO_LLM)
        named, is_one = ", ".join(called), len(called) == 1
        if online:
            failures = list(self._test())
            yield from failures
            if script:
                yield Remark(_CHECK, f"{script} was not tested")
            if called and not failures:
                yield Remark(_CHECK, f"{named} {'responds' if is_one else 'respond'}")
        elif called:
            untested = f"{named} not called; --online calls {'it' if is_one else 'them'}"
            text = f"{untested}; {script}" if script else untested
            yield Remark(_CHECK, text, state=State.UNTESTED)
        elif script:
            yield Remark(_CHECK, script)

    def _test(self) -> Iterator[CheckFinding]:
        assert self._runner is not None
        if self.embedder is not None:
            try:
                self._runner.run(self.embedder.embed(["Is anybody there?"], role="query"))
            except EdenmemError as error:
                yield CheckFinding(_CHECK, _failure("embedding", error), State.PROBLEM)
        if self.llm is not None and not self.llm.is_scripted:
            for model in dict.fromkeys(
                (self._settings.llm.fast_model, self._settings.llm.slow_model)
            ):
                try:
                    self._runner.run(ping(self.llm, model))
                except EdenmemError as error:
                    yield CheckFinding(_CHECK, _failure(model, error), State.PROBLEM)

    def vectors(self, texts: Sequence[str]) -> Sequence[bytes | None]:
        """Return the vectors of texts; None for each without an embedding model.

        Raises:
            ProviderError: the model is unavailable.
        """
        if self.embedder is None or not texts:
            return [None] * len(texts)
        assert self._runner is not None
        return self._runner.run(self.embedder.embed(list(texts), role="passage")).vectors


def _failure(what: str, error: EdenmemError) -> Finding:
    hint = f"; {error.hint}" if error.hint else ""
    return _finding(what, f"{error.message}{hint}")


def _finding(what: str, detail: str) -> Finding:
    return Finding(target_type="provider", target_id=what, detail=detail)


_K = TypeVar("_K")
_V = TypeVar("_V")

#: Maximum number of cached answers of each kind.
_KEPT = 50_000
#: Number of keys per query.
_BATCH = 1000


class _Lookup(Generic[_K, _V]):
    """Cached answers; all are dropped when the cache is full.

    ``query`` finds the answers for keys; a key that it leaves out has the answer of ``default``.
    """

    def __init__(
        self, query: Callable[[list[_K]], Mapping[_K, _V]], default: Callable[[_K], _V]
    ) -> None:
        self._query = query
        self._default = default
        self._held: dict[_K, _V] = {}

    def __call__(self, keys: Collection[_K]) -> dict[_K, _V]:
        """Return the answers for keys."""
        answers = {key: self._held[key] for key in keys if key in self._held}
        new: dict[_K, _V] = {}
        for part in batched((key for key in dict.fromkeys(keys) if key not in answers), _BATCH):
            found = self._query(part)
            new |= {key: found[key] if key in found else self._default(key) for key in part}
        if len(self._held) > _KEPT:
            self._held.clear()
        self._held |= new
        return answers | new


class Cache:
    """Cached lookups in a store for one examination.

    Attributes:
        persons: Account → canonical ID of its user; an unknown account maps to itself.
        people: Session → its users; None for a missing session.
        policies: Scope → its policy, if any.
    """

    def __init__(self, store: Store, agent_id: str | None) -> None:
        self._store = store
        self._present: dict[PresenceKind, _Lookup[str, bool]] = {}
        host = store.host
        self.persons = _Lookup[str, str](
            lambda ids: {id: user.person_id for id, user in host.users_by_ids(ids).items()}, str
        )
        self.people = _Lookup[str, frozenset[str] | None](host.people_of, lambda _: None)
        self.policies = _Lookup[Scope, Policy | None](store.memory.policies, lambda _: None)
        self._agent_id = agent_id

    @cached_property
    def scopes(self) -> tuple[ScopeSummary, ...]:
        """Return all scopes of the examined agent, or of all agents."""
        return tuple(self._store.memory.scopes(agent_id=self._agent_id))

    def missing(self, kind: PresenceKind, ids: Collection[str]) -> set[str]:
        """Return the IDs that do not exist."""
        if kind not in self._present:
            self._present[kind] = _Lookup(
                lambda part: dict.fromkeys(self._store.walk.present(kind, part), True),
                lambda _: False,
            )
        return {id for id, is_present in self._present[kind](ids).items() if not is_present}


#: Tolerated difference between the clocks of hosts.
CLOCK_SKEW = timedelta(minutes=5)

#: Number of records examined together.
BATCH = 500


@dataclass(kw_only=True)
class DoctorContext:
    """The store to examine and its environment.

    ``files`` are the configuration files; checks that read all memory run only if ``is_full``;
    ``progress`` is called with the current subject and the number of examined items.
    """

    store: Store
    settings: Settings
    providers: Providers
    sweep: Sweep
    now: datetime
    agent_id: str | None = None
    files: tuple[Path, ...] = ()
    is_full: bool = True
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
        self.cache = Cache(self.store, self.agent_id)


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
    text = item.consolidated_content if isinstance(item, Consolidation) else ""
    if isinstance(item, Fact | Reflection):
        text = item.content
    finding = Finding(
        target_type=type(item).__name__.lower(),
        target_id=item.id,
        detail=detail,
        agent_id=item.agent_id,
        scope=item.home,
        text=text,
        related=tuple(related),
    )
    return CheckFinding(check, finding, state, advice)
