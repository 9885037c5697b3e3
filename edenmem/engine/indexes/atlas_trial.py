"""Test on the configured cluster that search works as edenmem needs.

The test creates a scratch collection, runs every kind of search on it, and removes it. The
simulated server of the test suite follows MongoDB's documentation; this checks a real cluster.
"""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import msgspec

from edenmem.engine.indexes.manager import Clock, Sleep, poll, wait_for_indexes
from edenmem.errors import EmbeddingModelMismatch, StoreError
from edenmem.models.ids import new_id, utc_now
from edenmem.models.indexes import IndexState, IndexWish
from edenmem.models.memory import Fact, content_hash
from edenmem.models.scope import Scope
from edenmem.models.search import Candidate, FactFilter
from edenmem.store.protocol.indexes import SearchTrial
from edenmem.store.protocol.store import Store

MODEL = "edenmem-trial"


class AtlasWorld:
    """Facts that all contain the word "bees", with their expected scores."""

    DIMENSIONS = 8

    def __init__(self) -> None:
        self._places: list[tuple[Fact, int]] = []
        agent, self.stranger = new_id(), new_id()
        self.anna, self.shared = Scope.user(agent, new_id()), Scope.agent(agent)
        self.rare_word = "saffron"
        now = utc_now()
        self.old = self._fact(
            self.anna, "Bees were kept here long ago.", 1, said_at=now - timedelta(days=40)
        )
        self.rare = self._fact(self.shared, "Bees love saffron.", 2)
        self.arrays = (
            self.old,
            self.rare,
            self._fact(self.anna, "Anna keeps bees in Lisbon.", 0),
            self._fact(self.shared, "The bees are quiet in winter.", 5),
        )
        self.bindata = (
            self._fact(self.anna, "Anna sold four hives of bees.", 3),
            self._fact(self.shared, "Bees fly when the orange trees flower.", 4),
        )
        self.facts = (*self.arrays, *self.bindata)
        self.query = _vector(0.0)
        self.everywhere = FactFilter(scopes=(self.anna, self.shared))
        self.scores = {fact.id: (1 + math.cos(_angle(n))) / 2 for fact, n in self._places}

    def _fact(
        self, scope: Scope, content: str, position: int, *, said_at: datetime | None = None
    ) -> Fact:
        fact = Fact(
            id=new_id(),
            scope=scope.kind,
            agent_id=scope.agent_id,
            user_id=scope.user_id,
            session_id=new_id(),
            content=content,
            hash=content_hash(content),
            embedding=_vector(_angle(position)),
            embedding_model=MODEL,
            formed_at=utc_now(),
            said_at=said_at,
        )
        self._places.append((fact, position))
        return fact

    def ids_of(self, *scopes: Scope) -> set[str]:
        """Return the IDs of the facts in these scopes."""
        return {fact.id for fact in self.facts if fact.home in scopes}


def _angle(position: int) -> float:
    """Return an angle; neighbors are far enough apart that rounding keeps the order."""
    return position * math.pi / 7


def _vector(angle: float) -> bytes:
    """Return the unit vector of an angle."""
    numbers: Sequence[float] = (math.cos(angle), math.sin(angle), *([0.0] * 6))
    return struct.pack(f"<{AtlasWorld.DIMENSIONS}f", *numbers)


#: Maximum difference of a score from (1 + cosine) / 2, due to float32 and index rounding.
_TOLERANCE = 1e-3


class CheckStep(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one step.

    ``outcome`` is "passed", "failed", or "skipped" after the failure of a required step; ``seen``
    describes the behavior of the cluster.
    """

    name: str
    outcome: str
    seconds: float
    seen: str


class AtlasReport(msgspec.Struct, frozen=True, kw_only=True):
    """The results of all steps; ``removed``: nothing is left on the cluster."""

    location: str
    server_version: str
    collection: str
    steps: tuple[CheckStep, ...]
    removed: bool

    @property
    def passed(self) -> bool:
        """Return whether all steps passed."""
        return self.removed and all(step.outcome == "passed" for step in self.steps)


class _Unexpected(Exception):
    """A wrong answer of the cluster."""


class AtlasCheck:
    """One test run; ``timeout`` limits building the indexes, and finding new documents."""

    def __init__(
        self,
        store: Store,
        *,
        analyzer: str,
        timeout: float,
        progress: Callable[[str], None] = lambda name: None,
        clock: Clock = time.monotonic,
        sleep: Sleep = time.sleep,
    ) -> None:
        self._store = store
        self._wish = IndexWish(dimensions=AtlasWorld.DIMENSIONS, analyzer=analyzer)
        self._timeout = timeout
        self._progress = progress
        self._clock = clock
        self._sleep = sleep
        self._world = AtlasWorld()
        self._steps: list[CheckStep] = []

    def run(self) -> AtlasReport:
        """Run all steps.

        Raises:
            StoreError: the database cannot be reached, or has no search commands.
        """
        info = self._store.database.info()
        trial = self._store.indexes.search_trial()
        removed = False
        try:
            self._try_all(trial)
        finally:
            removed = self._remove(trial)
        return AtlasReport(
            location=info.location,
            server_version=info.server_version,
            collection=trial.name,
            steps=tuple(self._steps),
            removed=removed,
        )

    def _remove(self, trial: SearchTrial) -> bool:
        def remove() -> str:
            trial.remove()
            return "removed"

        return self._step("scratch collection is removed", remove)

    def _try_all(self, trial: SearchTrial) -> None:
        world = self._world
        needed = (
            ("indexes are created", lambda: self._prepare(trial)),
            ("indexes become queryable", lambda: self._await_indexes(trial)),
            ("vectors as arrays are found", lambda: self._add(trial, world.arrays, "array")),
            ("vectors as bindata are found", lambda: self._add(trial, world.bindata, "bindata")),
        )
        tried: tuple[tuple[str, Callable[[], str]], ...] = (
            ("vector scores are (1 + cosine) / 2", lambda: self._scores(trial)),
            ("exact vector search", lambda: self._exact(trial)),
            ("vector query as bindata", lambda: self._bindata_query(trial)),
            ("vector filter: scopes", lambda: self._scopes(self._by_vector(trial))),
            ("vector filter: time and session", lambda: self._moments(self._by_vector(trial))),
            ("vector filter: embedding model", lambda: self._other_model(trial)),
            ("text search by any word", lambda: self._words(trial)),
            ("text search within one edit", lambda: self._fuzzy(trial)),
            ("text filter: scopes", lambda: self._scopes(self._by_text(trial))),
            ("text filter: time and session", lambda: self._moments(self._by_text(trial))),
            (
                "unknown option of $vectorSearch is refused",
                lambda: self._demand_refusal(trial, "vector"),
            ),
            ("unknown option of $search is refused", lambda: self._demand_refusal(trial, "text")),
        )
        ready = True
        for name, work in needed:
            ready = self._step(name, work, skip=not ready) and ready
        for name, work in tried:
            self._step(name, work, skip=not ready)

    def _step(self, name: str, work: Callable[[], str], *, skip: bool = False) -> bool:
        """Run a step and note its result; return whether it passed."""
        if skip:
            seen, outcome, seconds = "a required step failed", "skipped", 0.0
        else:
            self._progress(name)
            begun = self._clock()
            try:
                seen, outcome = work(), "passed"
            except (_Unexpected, StoreError) as error:
                seen, outcome = str(error), "failed"
            seconds = round(self._clock() - begun, 3)
        self._steps.append(CheckStep(name=name, outcome=outcome, seconds=seconds, seen=seen))
        return outcome == "passed"

    # -- required steps ----------------------------------------------------------------------

    def _prepare(self, trial: SearchTrial) -> str:
        trial.prepare(self._wish)
        states = trial.states(self._wish)
        missing = [state.name for state in states if state.status == "missing"]
        if missing:
            raise _Unexpected(f"not listed after creation: {', '.join(missing)}")
        return _statuses(states)

    def _await_indexes(self, trial: SearchTrial) -> str:
        path: list[str] = []

        def note(states: Sequence[IndexState]) -> None:
            seen = _statuses(states)
            if not path or path[-1] != seen:
                path.append(seen)

        states = wait_for_indexes(
            lambda: trial.states(self._wish),
            timeout=self._timeout,
            progress=note,
            clock=self._clock,
            sleep=self._sleep,
        )
        phases = " → ".join(path)
        wrong = [f"{s.name}: {'; '.join(s.differences) or s.note}" for s in states if s.differences]
        if wrong:
            raise _Unexpected(f"the listed definitions differ: {'; '.join(wrong)}")
        if not all(state.queryable for state in states):
            raise _Unexpected(f"not queryable: {phases}")
        return phases

    def _add(self, trial: SearchTrial, facts: Sequence[Fact], storage: str) -> str:
        trial.add(facts, storage="bindata" if storage == "bindata" else "array")
        begun = self._clock()
        wanted = {fact.id for fact in facts}

        def is_found() -> bool:
            by_vector = {one.fact_id for one in self._near(trial, self._world.everywhere)}
            by_text = {one.fact_id for one in self._text(trial, self._world.everywhere, "bees")}
            return wanted <= by_vector and wanted <= by_text

        if not poll(is_found, timeout=self._timeout, clock=self._clock, sleep=self._sleep):
            raise _Unexpected(f"{len(facts)} documents were not found in time")
        return f"{len(facts)} documents, found {self._clock() - begun:.1f} s after the insert"

    # -- ways to search ----------------------------------------------------------------------

    def _near(
        self,
        trial: SearchTrial,
        filter: FactFilter,
        *,
        limit: int = 50,
        exact: bool = False,
        bindata: bool = False,
    ) -> list[Candidate]:
        (found,) = trial.semantic(
            filter,
            [self._world.query],
            model=MODEL,
            limit=limit,
            exact=exact,
            storage="bindata" if bindata else "array",
        )
        return found

    def _text(self, trial: SearchTrial, filter: FactFilter, words: str) -> list[Candidate]:
        (found,) = trial.text(filter, [words], limit=50)
        return found

    def _by_vector(self, trial: SearchTrial) -> Callable[[FactFilter], list[Candidate]]:
        return lambda filter: self._near(trial, filter)

    def _by_text(self, trial: SearchTrial) -> Callable[[FactFilter], list[Candidate]]:
        return lambda filter: self._text(trial, filter, "bees")

    # -- search steps ------------------------------------------------------------------------

    def _scores(self, trial: SearchTrial) -> str:
        found = self._near(trial, self._world.everywhere)
        off = [abs(one.score - self._world.scores[one.fact_id]) for one in found]
        if max(off) > _TOLERANCE:
            raise _Unexpected(f"a score is off by {max(off):.4f}")
        return f"{len(off)} scores, off by at most {max(off):.6f}"

    def _exact(self, trial: SearchTrial) -> str:
        best = sorted(self._world.scores.items(), key=lambda one: -one[1])[:3]
        found = self._near(trial, self._world.everywhere, limit=3, exact=True)
        self._expect([one.fact_id for one in found], [fact_id for fact_id, _ in best])
        return "the three nearest, in order"

    def _bindata_query(self, trial: SearchTrial) -> str:
        everyone = {fact.id for fact in self._world.facts}
        found = self._near(trial, self._world.everywhere, bindata=True)
        self._expect(_ids(found), everyone)
        return "finds documents of both forms"

    def _scopes(self, search: Callable[[FactFilter], list[Candidate]]) -> str:
        world = self._world
        for scopes in ((world.anna,), (world.shared,), (world.anna, world.shared)):
            self._expect(_ids(search(FactFilter(scopes=scopes))), world.ids_of(*scopes))
        stranger = Scope.user(world.anna.agent_id, world.stranger)
        self._expect(_ids(search(FactFilter(scopes=(stranger,)))), set())
        return "one scope, several scopes, and an empty one"

    def _moments(self, search: Callable[[FactFilter], list[Candidate]]) -> str:
        world = self._world
        middle = world.old.dated_at + timedelta(days=1)
        scopes = (world.anna, world.shared)
        self._expect(_ids(search(FactFilter(scopes=scopes, until=middle))), {world.old.id})
        since = _ids(search(FactFilter(scopes=scopes, since=middle)))
        self._expect(since, world.ids_of(*scopes) - {world.old.id})
        session = FactFilter(scopes=scopes, session_id=world.old.session_id)
        self._expect(_ids(search(session)), {world.old.id})
        return "before, after, and in one session"

    def _other_model(self, trial: SearchTrial) -> str:
        try:
            trial.semantic(
                self._world.everywhere, [self._world.query], model="another model", limit=5
            )
        except EmbeddingModelMismatch:
            return "vectors of another model are not compared"
        raise _Unexpected("vectors of another model were compared")

    def _words(self, trial: SearchTrial) -> str:
        world = self._world
        found = self._text(trial, world.everywhere, f"bees {world.rare_word}")
        if not found or found[0].fact_id != world.rare.id:
            raise _Unexpected("the fact with both words is not the first result")
        self._expect(_ids(self._text(trial, world.everywhere, "xylophone")), set())
        return f"best score {found[0].score:.2f}, last {found[-1].score:.2f}"

    def _fuzzy(self, trial: SearchTrial) -> str:
        world = self._world
        typo = world.rare_word[:2] + world.rare_word[3:]
        self._expect(_ids(self._text(trial, world.everywhere, typo)), {world.rare.id})
        return f"{typo!r} finds {world.rare_word!r}"

    def _demand_refusal(self, trial: SearchTrial, stage: str) -> str:
        refusal = trial.refusal("vector" if stage == "vector" else "text")
        if not refusal:
            raise _Unexpected("an unknown option was accepted")
        return refusal

    def _expect(self, found: object, wanted: object) -> None:
        if found != wanted:
            raise _Unexpected(
                f"found {self._name_facts(found)}, expected {self._name_facts(wanted)}"
            )

    def _name_facts(self, ids: object) -> str:
        assert isinstance(ids, list | set)
        contents = {fact.id: fact.content for fact in self._world.facts}
        ordered = ids if isinstance(ids, list) else sorted(ids)
        names = [repr(contents.get(one, one)) for one in ordered]
        return ", ".join(names) or "nothing"


def _ids(found: Sequence[Candidate]) -> set[str]:
    return {one.fact_id for one in found}


def _statuses(states: Sequence[IndexState]) -> str:
    return ", ".join(
        f"{state.kind} {state.status}{' (queryable)' if state.queryable else ''}"
        for state in states
    )
