"""Several workers, operators and a moving clock at one session, in whatever order they come.

Hypothesis chooses the order; a model says what each call must answer. After each step the backlog
is exactly what no formation has, and everything that is always true of a memory is true.

Known failures 12, 14, 15, 16 and 20.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from edenmem.models.changes import (
    AddFact,
    AddReflection,
    ChangeSet,
    ChangeStatus,
    RemoveFact,
    ReviseFact,
)
from edenmem.models.formation import Formation, FormationStatus
from edenmem.models.host import Message
from edenmem.models.scope import Scope
from edenmem.store.sqlite import SqliteStore
from tests.faults.invariants import check_all_formed, check_memory
from tests.support.builders import (
    FixedClock,
    change_set,
    make_agent,
    make_fact,
    make_formation,
    make_message,
    make_reflection,
    make_session,
    make_user,
    some,
    writing,
)
from tests.support.formations import Steps

pytestmark = pytest.mark.slow


LEASE = timedelta(minutes=2)
UNFINISHED = (FormationStatus.CLAIMED, FormationStatus.RELEASED, FormationStatus.RECORDED)

workers = st.sampled_from(["ann", "ben", "cem"])
places = st.integers(min_value=0, max_value=10**6)


@dataclass
class Known:
    """A fact as it must be."""

    content: str
    version: int = 1


@dataclass
class Model:
    """What must be in the store."""

    messages: list[Message] = field(default_factory=list)
    formations: dict[str, Formation] = field(default_factory=dict)
    facts: dict[str, Known] = field(default_factory=dict)
    pending: list[str] = field(default_factory=list)
    text_version: int = 0

    @property
    def unfinished(self) -> Formation | None:
        return next((f for f in self.formations.values() if f.status in UNFINISHED), None)

    @property
    def backlog(self) -> list[Message]:
        taken = {id for each in self.formations.values() for id in each.message_ids}
        waiting = [message for message in self.messages if message.id not in taken]
        return sorted(waiting, key=lambda message: (message.created_at, message.id))


class Interleavings(RuleBasedStateMachine):
    """The store and its model, side by side."""

    @initialize()
    def open(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.store = SqliteStore(Path(self.folder.name) / "memory.db")
        self.store.database.initialize()
        self.clock = FixedClock()
        self.model = Model()
        self.steps = 0
        self.agent, anna = make_agent("eve"), make_user("anna")
        assert self.store.host.add_agent(self.agent)
        assert self.store.host.add_user(anna)
        self.session = make_session([self.agent], [anna])
        assert self.store.host.put_session(self.session)
        self.scope = Scope.user(self.agent.id, anna.id)

    def teardown(self) -> None:
        if not hasattr(self, "store"):
            return
        try:
            self._complete()
        finally:
            self.store.database.close()
            self.folder.cleanup()

    def _fresh(self, what: str) -> str:
        self.steps += 1
        return f"{what} number {self.steps}"

    def _put(self, formation: Formation, **fields: Any) -> None:
        self.model.formations[formation.id] = msgspec.structs.replace(formation, **fields)

    def _some(self, place: int) -> Formation | None:
        """Any formation, mostly one that is not finished."""
        if place % 3 and self.model.unfinished is not None:
            return self.model.unfinished
        known = list(self.model.formations.values())
        return known[place % len(known)] if known else None

    # -- what happens in the session ---------------------------------------------------------

    @rule(number=st.integers(1, 5), late=st.booleans())
    def say(self, number: int, late: bool) -> None:
        """Late ones have a time that others have been formed beyond."""
        at = self.clock.now - timedelta(hours=3) if late else self.clock.now
        said = [
            make_message(self.session, self._fresh("word"), created_at=at) for _ in range(number)
        ]
        assert self.store.host.add_messages(self.session.id, said) == number
        assert self.store.host.add_messages(self.session.id, said[:1]) == 0
        self.model.messages += said

    @rule(minutes=st.integers(1, 3))
    def wait(self, minutes: int) -> None:
        self.clock.advance(minutes=minutes)

    # -- workers -----------------------------------------------------------------------------

    @rule(worker=workers, size=st.integers(1, 6))
    def claim(self, worker: str, size: int) -> None:
        found = self.store.formations.backlog(self.session.id, self.agent.id, limit=size)
        if found.messages:
            self._claim(worker, found.messages, free=self.model.unfinished is None)

    @precondition(lambda self: self.model.formations and self.model.backlog)
    @rule(worker=workers, place=places)
    def claim_what_another_has(self, worker: str, place: int) -> None:
        """A worker that looked at the backlog some time ago."""
        known = list(self.model.formations.values())
        taken = set(known[place % len(known)].message_ids)
        messages = [message for message in self.model.messages if message.id in taken]
        self._claim(worker, [*self.model.backlog[:2], *messages], free=False)

    def _claim(self, worker: str, messages: Sequence[Message], *, free: bool) -> None:
        now = self.clock.now
        formation = make_formation(
            self.session,
            messages,
            seq=len(self.model.formations) + 1,
            worker=worker,
            now=now,
            lease=LEASE,
        )
        assert self.store.formations.claim(formation) is free
        if free:
            self._put(formation)

    @rule(worker=workers, place=places)
    def renew(self, worker: str, place: int) -> None:
        formation = self._some(place)
        if formation is None:
            return
        held = formation.status in (FormationStatus.CLAIMED, FormationStatus.RECORDED)
        mine = held and formation.worker == worker
        until = self.clock.now + LEASE
        renewed = Steps(self.store).renew(formation.id, worker=worker, lease_until=until)
        assert (renewed is not None) is mine
        if mine:
            self._put(formation, lease_until=until)

    @rule(worker=workers, place=places)
    def reclaim(self, worker: str, place: int) -> None:
        formation = self._some(place)
        if formation is not None:
            self._reclaim(worker, formation)

    def _reclaim(self, worker: str, formation: Formation) -> None:
        now, until = self.clock.now, self.clock.now + LEASE
        match formation.status:
            case FormationStatus.RELEASED:
                free = formation.not_before is None or formation.not_before <= now
            case FormationStatus.CLAIMED | FormationStatus.RECORDED:
                assert formation.lease_until is not None
                free = formation.worker == worker or formation.lease_until <= now
            case _:
                free = False
        taken = Steps(self.store).claim(formation.id, worker=worker, now=now, lease_until=until)
        assert (taken is not None) is free
        if taken is not None:
            recorded = formation.status is FormationStatus.RECORDED
            status = FormationStatus.RECORDED if recorded else FormationStatus.CLAIMED
            assert (taken.status, taken.worker, taken.lease_until) == (status, worker, until)
            self._put(formation, status=status, worker=worker, lease_until=until)

    @rule(worker=workers, place=places, revises=st.booleans())
    def record(self, worker: str, place: int, revises: bool) -> None:
        formation = self._some(place)
        if formation is not None:
            self._record(worker, formation, place if revises else None)

    def _record(self, worker: str, formation: Formation, target: int | None) -> None:
        changes = self._outcome(formation, target)
        mine = formation.status is FormationStatus.CLAIMED and formation.worker == worker
        recorded = Steps(self.store).record(
            formation.id, worker=worker, changes=changes, now=self.clock.now
        )
        assert (recorded is not None) is mine
        if mine:
            self._put(formation, status=FormationStatus.RECORDED, changes=changes)

    def _outcome(self, formation: Formation, target: int | None) -> ChangeSet:
        """A fact, two reflections and perhaps a correction of a fact that is there now."""
        fields = {"formation_id": formation.id, "formed_at": self.clock.now}
        changes: list[Any] = [
            AddFact(fact=make_fact(self.scope, self._fresh("fact"), **fields)),
            *(
                AddReflection(
                    reflection=make_reflection(self.scope, self._fresh("thought"), **fields),
                    word_limit=300,
                )
                for _ in range(2)
            ),
        ]
        if target is not None and self.model.facts:
            fact_id = sorted(self.model.facts)[target % len(self.model.facts)]
            content = self._fresh("correction")
            changes.append(
                ReviseFact(
                    scope=self.scope,
                    fact_id=fact_id,
                    expected_version=self.model.facts[fact_id].version,
                    content=content,
                    at=self.clock.now,
                    or_add=make_fact(self.scope, content, **fields),
                )
            )
        return change_set(*changes, at=self.clock.now)

    @rule(place=places)
    def apply(self, place: int) -> None:
        formation = self._some(place)
        if formation is not None:
            self._apply(formation)

    def _apply(self, formation: Formation) -> None:
        results = Steps(self.store).apply(formation.id, now=self.clock.now)
        if formation.changes is None:
            assert results == []
            return
        for change, result in zip(formation.changes.changes, results, strict=True):
            match change:
                case AddFact():
                    self.model.facts[change.fact.id] = Known(change.fact.content)
                case AddReflection():
                    self.model.pending.append(change.reflection.id)
                case ReviseFact(or_add=instead):
                    known = self.model.facts.get(change.fact_id)
                    if known is not None and known.version == change.expected_version:
                        assert result.status is ChangeStatus.APPLIED
                        known.content, known.version = change.content, known.version + 1
                    else:
                        assert result.status is ChangeStatus.ADDED_INSTEAD
                        assert instead is not None
                        self.model.facts[instead.id] = Known(instead.content)
        self._put(formation, status=FormationStatus.APPLIED, worker=None, changes=None)

    @rule(worker=workers, place=places, minutes=st.integers(0, 3), count=st.booleans())
    def release(self, worker: str, place: int, minutes: int, count: bool) -> None:
        formation = self._some(place)
        if formation is None:
            return
        mine = formation.status is FormationStatus.CLAIMED and formation.worker == worker
        not_before = self.clock.now + timedelta(minutes=minutes) if minutes else None
        released = Steps(self.store).release(
            formation.id, worker=worker, now=self.clock.now, not_before=not_before, count=count
        )
        assert (released is not None) is mine
        if mine:
            self._put(
                formation,
                status=FormationStatus.RELEASED,
                worker=None,
                not_before=not_before,
                attempts=formation.attempts + count,
            )

    @rule(worker=workers, place=places)
    def fail(self, worker: str, place: int) -> None:
        formation = self._some(place)
        if formation is None:
            return
        mine = formation.status is FormationStatus.CLAIMED and formation.worker == worker
        failed = Steps(self.store).fail(formation.id, worker=worker, now=self.clock.now, error="no")
        assert (failed is not None) is mine
        if mine:
            attempts = formation.attempts + 1
            self._put(formation, status=FormationStatus.FAILED, worker=None, attempts=attempts)

    @rule(place=places)
    def retry(self, place: int) -> None:
        formation = self._some(place)
        if formation is not None:
            self._retry(formation)

    def _retry(self, formation: Formation) -> None:
        free = formation.status is FormationStatus.FAILED and self.model.unfinished is None
        retried = Steps(self.store).retry(formation.id, now=self.clock.now)
        assert (retried is not None) is free
        if free:
            self._put(formation, status=FormationStatus.RELEASED, attempts=0, not_before=None)

    # -- operators and consolidations ---------------------------------------------------------

    @precondition(lambda self: self.model.facts)
    @rule(place=places, behind=st.booleans())
    def edit(self, place: int, behind: bool) -> None:
        """``behind``: on the version that was before the one that is."""
        fact_id = sorted(self.model.facts)[place % len(self.model.facts)]
        known = self.model.facts[fact_id]
        change = ReviseFact(
            scope=self.scope,
            fact_id=fact_id,
            expected_version=known.version - behind,
            content=self._fresh("edit"),
            at=self.clock.now,
        )
        (result,) = self.store.changes.apply(change_set(change, at=self.clock.now))
        assert result.status is (ChangeStatus.CONFLICT if behind else ChangeStatus.APPLIED)
        if not behind:
            known.content, known.version = change.content, known.version + 1

    @precondition(lambda self: self.model.facts)
    @rule(place=places)
    def remove(self, place: int) -> None:
        fact_id = sorted(self.model.facts)[place % len(self.model.facts)]
        version = self.model.facts.pop(fact_id).version
        change = RemoveFact(
            scope=self.scope, fact_id=fact_id, expected_version=version, at=self.clock.now
        )
        results = [self.store.changes.apply(change_set(change))[0].status for _ in range(2)]
        assert results == [ChangeStatus.APPLIED, ChangeStatus.ALREADY]

    @rule(number=st.integers(0, 4), behind=st.booleans())
    def consolidate(self, number: int, behind: bool) -> None:
        behind = behind and self.model.text_version > 0
        absorbed = self.model.pending[:number]
        change = writing(
            self.scope,
            self._fresh("text"),
            expected_version=self.model.text_version - behind,
            at=self.clock.now,
            absorbed_ids=tuple(absorbed),
        )
        (result,) = self.store.changes.apply(change_set(change, at=self.clock.now))
        assert result.status is (ChangeStatus.CONFLICT if behind else ChangeStatus.APPLIED)
        if not behind:
            self.model.text_version += 1
            del self.model.pending[:number]

    # -- what is always true ------------------------------------------------------------------

    @invariant()
    def is_as_it_must_be(self) -> None:
        if not hasattr(self, "store"):
            return
        waiting = self.model.backlog
        found = self.store.formations.backlog(self.session.id, self.agent.id, limit=3)
        assert found.total == len(waiting)
        assert [message.id for message in found.messages] == [m.id for m in waiting[:3]]
        stored = {each.id: each for each in self.store.formations.list_formations()}
        assert stored.keys() == self.model.formations.keys()
        for formation in self.model.formations.values():
            assert stored[formation.id].status is formation.status
            assert stored[formation.id].attempts == formation.attempts
            assert stored[formation.id].message_ids == formation.message_ids
        for fact_id, known in self.model.facts.items():
            fact = some(self.store.memory.fact(fact_id))
            assert (fact.content, fact.version) == (known.content, known.version)
        pending = [reflection.id for reflection in self.store.memory.pending(self.scope)]
        assert sorted(pending) == sorted(self.model.pending)
        check_memory(self.store, (self.scope,))

    def _complete(self) -> None:
        """Whatever came before, one worker that goes on in peace brings all to its end."""
        while True:
            self.clock.advance(hours=1)
            unfinished = self.model.unfinished
            failed = [
                each
                for each in self.model.formations.values()
                if each.status is FormationStatus.FAILED
            ]
            if unfinished is not None:
                if unfinished.status is FormationStatus.RECORDED:
                    self._apply(unfinished)
                    continue
                self._reclaim("dora", unfinished)
                self._record("dora", self.model.formations[unfinished.id], None)
            elif failed:
                self._retry(failed[0])
            elif self.model.backlog:
                self._claim("dora", self.model.backlog[:5], free=True)
            else:
                break
        self.is_as_it_must_be()
        check_all_formed(self.store, self.session.id, self.agent.id)


TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(max_examples=15, stateful_step_count=40)
