"""Interrupted propagation is resumed without duplicates."""

from __future__ import annotations

from typing import Any

import pytest

from edenmem.engine.service import MemoryService
from edenmem.errors import BudgetExceeded, ProviderTimeout, StoreError
from edenmem.models.scope import ScopeKind
from edenmem.settings.schema import Settings
from tests.engine.propagation.conftest import GENERAL, OTHER, Ladder, items
from tests.support.builders import ACTOR, FixedClock
from tests.support.interposed import InterposedStore
from tests.support.llm import NONSENSE
from tests.support.memory import consolidate


class Breaking(InterposedStore):
    """A store with one failing method; ``after``: the method fails after its work."""

    def __init__(self, store: Any, method: str, *, after: bool, skip: int = 0) -> None:
        super().__init__(store)
        self._method, self._after, self._skip = method, after, skip

    def wrap(self, name: str, method: Any) -> Any:
        found = method
        if name != self._method:
            return found

        def broken(*args: Any, **kwargs: Any) -> Any:
            if self._skip:
                self._skip -= 1
                return found(*args, **kwargs)
            if self._after:
                found(*args, **kwargs)
            raise StoreError(f"{name} broke")

        return broken


@pytest.mark.parametrize("failure", [NONSENSE, ProviderTimeout("late"), BudgetExceeded("spent")])
async def test_a_failing_model_does_not_fail_the_consolidation(
    any_ladder: Ladder, failure: Any
) -> None:
    ladder = any_ladder
    ladder.learn(ladder.user, GENERAL)
    ladder.llm.script("propagate", failure)
    report = await ladder.consolidate(ladder.user)
    assert (report.outcome, report.version, report.error) == ("written", 1, None)
    assert report.propagation_error
    assert ladder.noted(ladder.user) == (1,)
    assert ladder.store.memory.find_unpropagated() == [ladder.user]

    # The next run catches up without new messages.
    assert await ladder.consolidator().due((ladder.user, ladder.group)) == [ladder.user]
    ladder.llm.script("propagate", items((1, GENERAL)))
    again = await ladder.consolidator().consolidate(ladder.user)
    assert (again.outcome, again.propagated, again.propagation_error) == (
        "nothing_pending",
        1,
        None,
    )
    assert ladder.pending(ladder.agent) == [GENERAL]
    assert await ladder.consolidator().due((ladder.user, ladder.group)) == []
    assert (await ladder.consolidator().consolidate(ladder.user)).propagated == 0


async def test_a_run_over_all_scopes_catches_up(any_ladder: Ladder) -> None:
    ladder = any_ladder
    ladder.learn(ladder.user, GENERAL)
    ladder.llm.script("propagate", ProviderTimeout("late"))
    await ladder.consolidate(ladder.user)
    ladder.llm.script("propagate", items((1, GENERAL)))
    service = MemoryService(
        ladder.store, Settings(), llm=ladder.llm, actor=ACTOR, clock=FixedClock()
    )
    assert await service.consolidate_all(kinds=[ScopeKind.GROUP]) == []
    assert await service.consolidate_all(user_id=ladder.cast.bruno.id) == []
    [report] = await service.consolidate_all(user_id=ladder.cast.anna.id)
    assert (report.scope, report.propagated) == (ladder.user, 1)
    assert await service.consolidate_all() == []


@pytest.mark.parametrize(
    ("method", "after", "skip"),
    [
        ("apply", False, 1),  # the consolidation itself is the first
        ("apply", True, 1),
        ("settle_propagation", False, 0),
        ("settle_propagation", True, 0),
        ("add_usage", False, 1),
        ("add_usage", True, 1),
        ("reflection", False, 0),
    ],
)
async def test_a_crash_loses_and_duplicates_nothing(
    any_ladder: Ladder, method: str, after: bool, skip: int
) -> None:
    ladder = any_ladder
    ladder.learn(ladder.user, GENERAL, OTHER)
    ladder.llm.script("propagate", items((1, GENERAL), (2, OTHER)))
    broken = Breaking(ladder.store, method, after=after, skip=skip)
    report = await ladder.consolidate(ladder.user, store=broken)
    assert report.outcome == "written"
    assert report.propagation_error == f"{method} broke"

    # The second answer of the model has other words.
    ladder.llm.script("propagate", items((2, "The archive moves."), (1, "The festival begins.")))
    await ladder.consolidator().consolidate(ladder.user)
    moved = ladder.store.memory.pending(ladder.agent)
    sources = [reflection.propagated_from for reflection in moved]
    assert len(sources) == len(set(sources)) == 2
    assert ladder.noted(ladder.user) == ()
    await ladder.consolidator().consolidate(ladder.user)
    assert len(ladder.store.memory.pending(ladder.agent)) == 2


async def test_versions_are_propagated_in_order(any_ladder: Ladder) -> None:
    ladder = any_ladder
    ladder.llm.script("propagate", ProviderTimeout("late"))
    for content in (GENERAL, OTHER):
        ladder.learn(ladder.user, content)
        await ladder.consolidate(ladder.user)
    consolidate(ladder.store, ladder.user, "Edited by hand.", expected_version=2)
    assert ladder.noted(ladder.user) == (1, 2)

    seen = len(ladder.asked)
    ladder.llm.script(
        "propagate",
        lambda request: items((1, GENERAL if request.key == "user/eve/anna/1/agent" else OTHER)),
    )
    report = await ladder.consolidator().consolidate(ladder.user)
    assert [request.key for request in ladder.asked[seen:]] == [
        "user/eve/anna/1/agent",
        "user/eve/anna/2/agent",
    ]
    assert report.propagated == 2
    assert sorted(ladder.pending(ladder.agent)) == sorted([GENERAL, OTHER])


async def test_disabling_propagation_removes_the_mark(any_ladder: Ladder) -> None:
    ladder = any_ladder
    ladder.learn(ladder.user, GENERAL)
    ladder.llm.script("propagate", ProviderTimeout("late"))
    await ladder.consolidate(ladder.user)
    ladder.set_policy(ladder.user, propagate=False)
    seen = len(ladder.asked)
    report = await ladder.consolidator().consolidate(ladder.user)
    assert (report.propagated, report.propagation_error) == (0, None)
    assert len(ladder.asked) == seen
    assert ladder.store.memory.find_unpropagated() == []


async def test_without_a_model_the_mark_stays(ladder: Ladder) -> None:
    ladder.learn(ladder.user, GENERAL)
    ladder.llm.script("propagate", ProviderTimeout("late"))
    await ladder.consolidate(ladder.user)
    report = await ladder.consolidator(llm=None).consolidate(ladder.user)
    assert report.outcome == "nothing_pending"
    assert "language model" in (report.propagation_error or "")
    assert ladder.noted(ladder.user) == (1,)


async def test_concurrent_workers_duplicate_nothing(any_ladder: Ladder) -> None:
    import asyncio

    ladder = any_ladder
    ladder.learn(ladder.user, GENERAL)
    ladder.llm.script("propagate", ProviderTimeout("late"))
    await ladder.consolidate(ladder.user)
    ladder.llm.script("propagate", items((1, GENERAL)))
    reports = await asyncio.gather(
        *(ladder.consolidator().consolidate(ladder.user) for _ in range(4))
    )
    assert [report.propagation_error for report in reports] == [None] * 4
    assert ladder.pending(ladder.agent) == [GENERAL]
    assert ladder.noted(ladder.user) == ()
