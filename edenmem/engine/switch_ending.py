"""Ways out of a switch of the embedding model: back, on for good, or never mind.

None of them asks a model. Each may be cut off and called again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

import msgspec

from edenmem.engine.index_waiting import Clock, Sleep, poll, wait_for_indexes
from edenmem.engine.vector_status import VectorStatus, demand_own_database, vector_status
from edenmem.errors import ConflictError, NotFoundError, StoreError
from edenmem.models.ids import utc_now
from edenmem.models.indexes import IndexState, IndexWish
from edenmem.models.switch import WAY_ON, SwitchPhase, VectorSwitch
from edenmem.settings.schema import Settings
from edenmem.store.protocol.store import Store

Tell = Callable[[str, int], None]


class SwitchEnding(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a switch: ``in_force`` is the model to configure. ``facts`` were changed, and
    ``stale`` have no vector of that model, so that a backfill is due."""

    action: str
    in_force: str
    facts: int = 0
    stale: int = 0


def switch_status(store: Store) -> tuple[VectorSwitch, VectorStatus] | None:
    """The switch that is under way, and how many facts have vectors of the new model.

    Raises:
        StoreError: the database cannot be used.
    """
    switch = store.vector_switch()
    if switch is None:
        return None
    return switch, vector_status(store, switch.model, dimensions=switch.dimensions)


class SwitchEnder:
    """Ends the one switch that a store is in. ``timeout``: seconds to wait for search indexes."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        *,
        timeout: float = 900.0,
        clock: Callable[[], datetime] = utc_now,
        monotonic: Clock = time.monotonic,
        sleep: Sleep = time.sleep,
    ) -> None:
        self._store = store
        self._settings = settings
        self._timeout = timeout
        self._clock = clock
        self._monotonic = monotonic
        self._sleep = sleep

    def expect(self, *phases: SwitchPhase) -> VectorSwitch:
        """The switch, if it is in one of these phases.

        Raises:
            NotFoundError: no switch is under way.
            ConflictError: it is in another phase.
        """
        switch = self._store.vector_switch()
        if switch is None:
            raise NotFoundError(
                "no switch of the embedding model is under way",
                hint="'edenmem embed backfill --model NAME' begins one",
            )
        if switch.phase not in phases:
            raise ConflictError(
                f"the switch from {switch.previous!r} to {switch.model!r} is {switch.phase}, "
                "so this cannot be done to it",
                hint=WAY_ON[switch.phase],
            )
        return switch

    def back(self) -> SwitchEnding:
        """Bring the old model back into force, in one step. The new vectors are kept, and what was
        learned since with vectors of the new model alone is found by a backfill.

        Raises:
            NotFoundError: no switch is under way.
            ConflictError: it has not been made, or the old vectors are being dropped.
            StoreError: the database cannot be used.
        """
        switch = self.expect("switched")
        self._move(switch, "switched", "filling")
        status = vector_status(self._store, switch.previous, dimensions=None)
        return SwitchEnding(
            action="back", in_force=switch.previous, stale=max(0, status.total.stale)
        )

    def drop_old(self, tell: Tell = lambda what, done: None) -> SwitchEnding:
        """Put the new vectors in the place of the old ones, for good. Readers of the new model are
        served all the while; those of the old one are refused from now on.

        Args:
            tell: Called with what is done, and to how many facts so far.

        Raises:
            NotFoundError: no switch is under way.
            ConflictError: it has not been made, facts have no vector of the new model, or the
                platform uses the database, with vectors of the old one.
            StoreError: the search index of the settled vectors is not there in time.
        """
        switch = self.expect("switched", "settling", "clearing")
        if switch.phase == "switched":
            demand_own_database(self._store, self._settings, switch.model)
        facts = 0
        if switch.phase == "switched":
            self._refuse_to_lose(switch)
            self._move(switch, "switched", "settling")
            switch = self.expect("settling")
        if switch.phase == "settling":
            facts += self._exhausted(self._store.settle_vectors, "settling", tell)
            self._index_settled(switch, tell)
            self._move(switch, "settling", "clearing")
        facts += self._exhausted(self._store.settle_vectors, "settling", tell)
        self._cleared(switch, tell)
        return SwitchEnding(action="drop-old", in_force=switch.model, facts=facts)

    def abandon(self, tell: Tell = lambda what, done: None) -> SwitchEnding:
        """Take the new vectors away; the old model is in force as it was all the time.

        Raises:
            NotFoundError: no switch is under way.
            ConflictError: it has been made already.
            StoreError: the database cannot be used.
        """
        switch = self.expect("filling", "abandoning")
        if switch.phase == "filling":
            self._move(switch, "filling", "abandoning")
        facts = self._cleared(switch, tell)
        return SwitchEnding(action="abandon", in_force=switch.previous, facts=facts)

    # -- steps -------------------------------------------------------------------------------

    def _move(self, switch: VectorSwitch, before: SwitchPhase, after: SwitchPhase) -> None:
        if not self._store.move_switch(switch.model, before=before, after=after, at=self._clock()):
            raise ConflictError(
                f"somebody else moved the switch to {switch.model!r} on meanwhile",
                hint="'edenmem embed status' tells where it stands",
            )

    def _refuse_to_lose(self, switch: VectorSwitch) -> None:
        """See that every fact which meaning finds by the old model is found by the new one."""
        stale = self._store.stale_facts(switch.model, dimensions=switch.dimensions)
        if any(fact.content.strip() for fact in stale):
            raise ConflictError(
                f"some facts have no vector of {switch.model!r} yet, and would lose what they have",
                hint="'edenmem embed backfill' with the new model configured makes them",
            )

    def _exhausted(self, step: Callable[[], Iterator[int]], what: str, tell: Tell) -> int:
        """Pass after pass, until one finds nothing to do."""
        done = 0
        while True:
            before = done
            for count in step():
                done += count
                tell(what, done)
            if done == before:
                return done

    def _index_settled(self, switch: VectorSwitch, tell: Tell) -> None:
        """Have the search index of the vectors' place take up the new ones before it is searched;
        until then the other one is."""
        wish = IndexWish(dimensions=switch.dimensions, analyzer=self._settings.search.analyzer)

        def states() -> list[IndexState]:
            return [state for state in self._store.indexes(wish) if state.kind == "vector"]

        for state in states():
            if state.status == "different":
                self._store.update_index(state.name, wish)
            elif state.status == "missing":
                self._store.create_index(state.name, wish)
        seen = wait_for_indexes(
            states,
            tell=lambda seen: tell("building the search index", 0) if _building(seen) else None,
            timeout=self._timeout,
            clock=self._monotonic,
            sleep=self._sleep,
        )
        wrong = [*_building(seen), *(s for s in seen if s.status in ("failed", "different"))]
        if wrong:
            raise StoreError(
                f"the search index {wrong[0].name} is {wrong[0].status}"
                + (f": {wrong[0].note}" if wrong[0].note else ""),
                hint="run the same command again; until it is ready the other index is searched",
            )
        self._until(
            lambda: self._store.finds_vectors(switch.model), "search has not taken up the vectors"
        )

    def _cleared(self, switch: VectorSwitch, tell: Tell) -> int:
        self._until(self._store.drop_switch_index, "the index of the new vectors is still there")
        done = self._exhausted(self._store.clear_beside, "clearing", tell)
        self._store.end_switch(switch.model)
        return done

    def _until(self, done: Callable[[], bool], why: str) -> None:
        if not poll(done, timeout=self._timeout, clock=self._monotonic, sleep=self._sleep):
            raise StoreError(
                f"after {self._timeout:,.0f} s {why}", hint="run the same command again"
            )


def _building(states: Sequence[IndexState]) -> list[IndexState]:
    return [state for state in states if state.status == "building"]
