"""Helpers that add memory, and check the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from threading import Barrier
from typing import TYPE_CHECKING, TypeVar

from edenmem.models.changes import (
    AddFact,
    AddReflection,
    Change,
    ChangeResult,
    ChangeStatus,
    WritePolicy,
)
from edenmem.models.memory import Fact, Policy, Reflection
from edenmem.models.scope import Scope
from edenmem.models.search import FactFilter
from tests.support.builders import NOW, change_set, make_fact, make_policy, make_reflection, writing

if TYPE_CHECKING:
    from edenmem.store.protocol.store import Store

ResultT = TypeVar("ResultT")


def apply(store: Store, *changes: Change, at: datetime = NOW) -> list[ChangeResult]:
    """Apply the changes as one set, and return one result per change, in order."""
    results = store.changes.apply(change_set(*changes, at=at))
    assert [result.change_id for result in results] == [change.id for change in changes]
    return results


def apply_one(store: Store, change: Change, *, at: datetime = NOW) -> ChangeResult:
    """Apply one change."""
    return apply(store, change, at=at)[0]


def applied(store: Store, *changes: Change, at: datetime = NOW) -> list[ChangeResult]:
    """Apply the changes, which must all succeed."""
    results = apply(store, *changes, at=at)
    assert {result.status for result in results} <= {ChangeStatus.APPLIED}, results
    return results


def add_facts(store: Store, *facts: Fact) -> None:
    """Add new facts."""
    applied(store, *(AddFact(fact=fact) for fact in facts))


def add_fact(
    store: Store, scope: Scope, content: str = "Anna lives in Lisbon.", **fields: object
) -> Fact:
    """Add one new fact."""
    fact = make_fact(scope, content, **fields)
    applied(store, AddFact(fact=fact), at=fact.formed_at)
    return fact


def add_reflection(
    store: Store, scope: Scope, content: str = "Anna likes short answers.", **fields: object
) -> Reflection:
    """Add one new reflection."""
    reflection = make_reflection(scope, content, **fields)
    applied(store, AddReflection(reflection=reflection, word_limit=300), at=reflection.formed_at)
    return reflection


def consolidate(
    store: Store,
    scope: Scope,
    content: str,
    *,
    expected_version: int,
    absorbed_ids: Sequence[str] = (),
    at: datetime = NOW,
) -> ChangeResult:
    """Write the scope's text, and return the result."""
    change = writing(
        scope,
        content,
        expected_version=expected_version,
        at=at,
        absorbed_ids=tuple(absorbed_ids),
    )
    return apply_one(store, change, at=at)


def set_policy(
    store: Store, scope: Scope, *, expected_version: int = 0, **fields: object
) -> Policy:
    """Write a policy without conflicts, and return the stored one."""
    policy = make_policy(scope, **fields)
    applied(store, WritePolicy(policy=policy, expected_version=expected_version, at=NOW))
    return store.memory.policies([scope])[scope]


def facts_of(store: Store, *scopes: Scope, with_vectors: bool = False) -> list[Fact]:
    """Return all facts of these scopes."""
    return list(store.memory.facts(FactFilter(scopes=scopes), with_vectors=with_vectors))


def at_once(count: int, work: Callable[[int], ResultT]) -> list[ResultT]:
    """Return the results of ``work(0)`` … ``work(count - 1)``, run by threads started together."""
    barrier = Barrier(count)

    def begin(number: int) -> ResultT:
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(begin, range(count)))
