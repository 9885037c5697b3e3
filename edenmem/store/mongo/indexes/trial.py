"""Test on a real cluster that search works as edenmem needs.

The test creates a scratch collection, runs every kind of search on it with the code that searches
facts, and removes it. The simulated server of the test suite follows MongoDB's documentation.
"""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import timedelta
from functools import partial
from typing import Literal

from pymongo.errors import OperationFailure

from edenmem.errors import EmbeddingModelMismatch, StoreError
from edenmem.models.ids import new_id, utc_now
from edenmem.models.indexes import IndexState, SearchTrial, TrialStep
from edenmem.models.memory import Fact, content_hash
from edenmem.models.scope import Scope
from edenmem.models.search import Candidate, FactFilter
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core import collections as names
from edenmem.store.mongo.core.collection import Document
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.search.atlas_search import AtlasSearch
from edenmem.store.mongo.search.search_definitions import state_of

_PREFIX = "edenmem_trial_"
_MODEL, _DIMENSIONS = "edenmem-trial", 8
#: Maximum difference of a score from (1 + cosine) / 2, due to float32 and index rounding.
_TOLERANCE = 1e-3
#: The steps without which the others are skipped.
_REQUIRED = 4

_Storage = Literal["array", "bindata"]
_Search = Callable[[FactFilter], list[Candidate]]

#: Stages with an unknown option.
_WRONG: dict[str, Document] = {
    "$vectorSearch": {
        "index": names.VECTOR_INDEX,
        "path": "embedding",
        "queryVector": [1.0] * _DIMENSIONS,
        "limit": 1,
        "numCandidates": 1,
        "noSuchOption": 1,
    },
    "$search": {
        "index": names.TEXT_INDEX,
        "compound": {"must": [{"text": {"query": "any", "path": "content"}}]},
        "noSuchOption": 1,
    },
}


class _Unexpected(Exception):
    """A wrong answer of the cluster."""


class Trial:
    """A test of search; `run` leaves nothing behind.

    Args:
        db: The database.
        analyzer: The analyzer of the text index.
        wait: Polls a condition until a timeout; returns whether it was met.
        progress: Called with the name of each step.
    """

    def __init__(
        self,
        db: Connection,
        analyzer: str,
        wait: Callable[[Callable[[], bool]], bool],
        progress: Callable[[str], None],
    ) -> None:
        self._name = _PREFIX + new_id()
        self._collection = db.collection(self._name)
        self._wait = wait
        self._progress = progress
        self._steps: list[TrialStep] = []
        self._indexes = (
            names.vector_index(dimensions=_DIMENSIONS, collection=self._name),
            names.text_index(analyzer=analyzer, collection=self._name),
        )
        seconds = db.settings.search_timeout_seconds
        forms: tuple[_Storage, ...] = ("array", "bindata")
        self._searches = {
            form: AtlasSearch(self._collection, db.run_all, storage=form, max_seconds=seconds)
            for form in forms
        }
        agent = new_id()
        self._anna, self._shared = Scope.user(agent, new_id()), Scope.agent(agent)
        self._all = FactFilter(scopes=(self._anna, self._shared))
        contents = (
            (self._anna, "Anna keeps bees in Lisbon."),
            (self._anna, "Bees were kept here long ago."),
            (self._shared, "Bees love saffron."),
            (self._shared, "The bees are quiet in winter."),
            (self._anna, "Anna sold four hives of bees."),
            (self._shared, "Bees fly when the orange trees flower."),
        )
        #: All contain the word "bees"; their vectors are at growing angles from the query's.
        self._facts = [_make_fact(*each, place) for place, each in enumerate(contents)]

    def run(self) -> SearchTrial:
        """Run all steps, each after a failed required one only in name."""
        near, text = partial(self._near), partial(self._text, words="bees")
        nearest = partial(self._near, self._all, limit=3, exact=True)
        binary = partial(self._near, self._all, storage="bindata")
        misspelled = partial(self._text, self._all, words="safron")
        steps: tuple[tuple[str, Callable[[], str]], ...] = (
            ("indexes are created", self._create),
            ("indexes become queryable", self._await_indexes),
            ("vectors as arrays are found", partial(self._add, self._facts[:4], "array")),
            ("vectors as bindata are found", partial(self._add, self._facts[4:], "bindata")),
            ("vector scores are (1 + cosine) / 2", self._scores),
            ("exact vector search", lambda: self._expect(nearest(), range(3), in_order=True)),
            ("vector query as bindata", lambda: self._expect(binary(), range(6))),
            ("vector filters", partial(self._filters, near)),
            ("vector filter: embedding model", self._other_model),
            ("text search by any word", self._words),
            ("text search within one edit", lambda: self._expect(misspelled(), (2,))),
            ("text filters", partial(self._filters, text)),
            *(
                (f"unknown option of {stage} is refused", partial(self._refusal, stage))
                for stage in _WRONG
            ),
        )
        try:
            for place, (name, work) in enumerate(steps):
                needed = self._steps[:_REQUIRED] if place >= _REQUIRED else self._steps
                self._step(name, work, skip=any(one.outcome != "passed" for one in needed))
        finally:
            removed = self._step("scratch collection is removed", self._remove)
        return SearchTrial(collection=self._name, steps=tuple(self._steps), removed=removed)

    def _step(self, name: str, work: Callable[[], str], *, skip: bool = False) -> bool:
        """Run a step and note its result; return whether it passed."""
        seen, outcome, begun = "a required step failed", "skipped", time.monotonic()
        if not skip:
            self._progress(name)
            try:
                seen, outcome = work(), "passed"
            except (_Unexpected, StoreError) as error:
                seen, outcome = str(error), "failed"
        seconds = round(time.monotonic() - begun, 3)
        self._steps.append(TrialStep(name=name, outcome=outcome, seconds=seconds, seen=seen))
        return outcome == "passed"

    def _remove(self) -> str:
        self._collection.drop()
        return "removed"

    # -- required steps ----------------------------------------------------------------------

    def _create(self) -> str:
        self._collection.create()
        for index in self._indexes:
            self._collection.create_search_index(index.name, index.type, index.definition)
        return _describe(self._states())

    def _states(self) -> list[IndexState]:
        there = self._collection.search_indexes()
        return [state_of(index, there.get(index.name)) for index in self._indexes]

    def _await_indexes(self) -> str:
        path: dict[str, None] = {}

        def is_ready() -> bool:
            states = self._states()
            path[_describe(states)] = None
            return all(state.status != "building" for state in states)

        self._wait(is_ready)
        phases, states = " → ".join(path), self._states()
        wrong = [difference for state in states for difference in state.differences]
        if wrong or not all(state.queryable for state in states):
            raise _Unexpected("; ".join((f"not queryable as defined: {phases}", *wrong)))
        return phases

    def _add(self, facts: Sequence[Fact], storage: _Storage) -> str:
        now, begun = utc_now(), time.monotonic()
        self._collection.insert_new(
            [codec.fact_document(fact, at=now, storage=storage) for fact in facts]
        )
        wanted = {fact.id for fact in facts}
        searches: tuple[_Search, ...] = (self._near, partial(self._text, words="bees"))
        if not self._wait(lambda: all(wanted <= _ids(each(self._all)) for each in searches)):
            raise _Unexpected(f"{len(facts)} documents were not found in time")
        return f"{len(facts)} documents, found {time.monotonic() - begun:.1f} s after the insert"

    # -- search steps ------------------------------------------------------------------------

    def _near(
        self,
        filter: FactFilter,
        *,
        model: str = _MODEL,
        limit: int = 50,
        exact: bool = False,
        storage: _Storage = "array",
    ) -> list[Candidate]:
        (found,) = self._searches[storage].semantic(
            filter, [_vector(0)], model=model, limit=limit, exact=exact
        )
        return found

    def _text(self, filter: FactFilter, words: str) -> list[Candidate]:
        (found,) = self._searches["array"].text(filter, [words], limit=50)
        return found

    def _scores(self) -> str:
        exact = {
            fact.id: (1 + math.cos(_angle(place))) / 2 for place, fact in enumerate(self._facts)
        }
        off = max(abs(one.score - exact[one.fact_id]) for one in self._near(self._all))
        if off > _TOLERANCE:
            raise _Unexpected(f"a score is off by {off:.4f}")
        return f"off by at most {off:.6f}"

    def _filters(self, search: _Search) -> str:
        old, scopes = self._facts[1], self._all.scopes
        middle = old.dated_at + timedelta(days=1)
        stranger = Scope.user(self._anna.agent_id, new_id())
        for filter, wanted in (
            (FactFilter(scopes=(self._anna,)), (0, 1, 4)),
            (FactFilter(scopes=(self._shared,)), (2, 3, 5)),
            (FactFilter(scopes=(stranger,)), ()),
            (FactFilter(scopes=scopes, until=middle), (1,)),
            (FactFilter(scopes=scopes, since=middle), (0, 2, 3, 4, 5)),
            (FactFilter(scopes=scopes, session_id=old.session_id), (1,)),
        ):
            self._expect(search(filter), wanted)
        return "by scope, time and session"

    def _other_model(self) -> str:
        try:
            self._near(self._all, model="another model")
        except EmbeddingModelMismatch:
            return "vectors of another model are not compared"
        raise _Unexpected("vectors of another model were compared")

    def _words(self) -> str:
        found = self._text(self._all, "bees saffron")
        if not found or found[0].fact_id != self._facts[2].id:
            raise _Unexpected("the fact with both words is not the first result")
        self._expect(self._text(self._all, "xylophone"), ())
        return f"best score {found[0].score:.2f}, last {found[-1].score:.2f}"

    def _refusal(self, stage: str) -> str:
        try:
            list(self._collection.aggregate([{stage: _WRONG[stage]}]))
        except StoreError as error:
            if isinstance(error.__cause__, OperationFailure):
                return error.message
            raise  # an outage is not a refusal
        raise _Unexpected("an unknown option was accepted")

    def _expect(
        self, found: Sequence[Candidate], places: Iterable[int], *, in_order: bool = False
    ) -> str:
        ids, wanted = (each.fact_id for each in found), (self._facts[place].id for place in places)
        collect = list if in_order else set
        there, expected = collect(ids), collect(wanted)
        if there != expected:
            other = ", or in another order" if in_order else ""
            raise _Unexpected(
                f"found {self._contents(there)}{other}, expected {self._contents(expected)}"
            )
        return f"found {self._contents(there)}"

    def _contents(self, ids: Collection[str]) -> str:
        return ", ".join(repr(fact.content) for fact in self._facts if fact.id in ids) or "nothing"


def _make_fact(scope: Scope, content: str, place: int) -> Fact:
    now = utc_now()
    return Fact(
        id=new_id(),
        scope=scope.kind,
        agent_id=scope.agent_id,
        user_id=scope.user_id,
        session_id=new_id(),
        content=content,
        hash=content_hash(content),
        embedding=_vector(place),
        embedding_model=_MODEL,
        formed_at=now,
        said_at=now - timedelta(days=40) if place == 1 else None,
    )


def _angle(place: int) -> float:
    """Return an angle; neighbors are far enough apart that rounding keeps the order."""
    return place * math.pi / 7


def _vector(place: int) -> bytes:
    """Return the unit vector of an angle."""
    angle = _angle(place)
    return struct.pack(f"<{_DIMENSIONS}f", math.cos(angle), math.sin(angle), *[0.0] * 6)


def _ids(found: Iterable[Candidate]) -> set[str]:
    return {one.fact_id for one in found}


def _describe(states: Sequence[IndexState]) -> str:
    return ", ".join(
        f"{state.kind} {state.status}{' (queryable)' if state.queryable else ''}"
        for state in states
    )
