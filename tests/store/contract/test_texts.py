"""Fixed sentences, failed drafts and versions to propagate are kept with the text of a scope."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from edenmem.models.backup import RecordKind
from edenmem.models.changes import RevertConsolidation, WriteConsolidation
from edenmem.models.ids import new_id
from edenmem.models.memory import FailedDrafts, FixedSentence
from edenmem.models.scope import Scope
from edenmem.store.protocol.store import Store
from tests.support.builders import NOW, ago, writing
from tests.support.memory import add_reflection, applied, consolidate

TEA = FixedSentence("Ines drinks tea.", "lena", ago(days=2))
SEA = FixedSentence("Ines swims.", "omar", NOW)
FAILED = FailedDrafts("abc", 3, ((1, new_id()),))


def write(
    store: Store, scope: Scope, expected: int, fixed: tuple[FixedSentence, ...] | None
) -> None:
    change = writing(
        scope, f"Ines drinks tea. Ines swims. {expected}", expected_version=expected, fixed=fixed
    )
    applied(store, change)


def fixed_of(store: Store, scope: Scope) -> tuple[FixedSentence, ...]:
    return store.memory.consolidations([scope])[scope].fixed


def test_known_failure_103_fixed_sentences_stay_until_they_are_replaced(store: Store) -> None:
    """Known failure 103: a sentence that a person added was gone after the next round."""
    scope = Scope.user(new_id(), new_id())
    write(store, scope, 0, (TEA, SEA))
    assert fixed_of(store, scope) == (TEA, SEA)
    write(store, scope, 1, None)
    assert fixed_of(store, scope) == (TEA, SEA)
    write(store, scope, 2, (SEA,))
    assert fixed_of(store, scope) == (SEA,)
    back = RevertConsolidation(
        scope=scope,
        expected_version=3,
        content="Ines drinks tea.",
        word_limit=300,
        at=NOW,
        fixed=(TEA,),
    )
    applied(store, back)
    assert fixed_of(store, scope) == (TEA,)
    write(store, scope, 4, ())
    assert fixed_of(store, scope) == ()


def test_failed_drafts_last_until_the_text_changes(store: Store) -> None:
    scope, other = Scope.user(new_id(), new_id()), Scope.user(new_id(), new_id())
    store.changes.set_failed_drafts(scope, FAILED)  # nothing to keep it with
    assert store.memory.failed_drafts([scope]) == {}
    add_reflection(store, scope, "Ines dives.")
    store.changes.set_failed_drafts(scope, FAILED)
    assert store.memory.failed_drafts([scope, other]) == {scope: FAILED}
    add_reflection(store, scope, "Ines sails.")
    assert store.memory.failed_drafts([scope]) == {scope: FAILED}
    write(store, scope, 0, None)
    assert store.memory.failed_drafts([scope]) == {}
    text = store.memory.consolidations([scope])[scope]
    assert (text.version, len(text.unabsorbed_ids)) == (1, 2)


@pytest.mark.slow
def test_fixed_sentences_move_with_a_backup(
    store: Store, open_store: Callable[[str], Store]
) -> None:
    scope = Scope.user(new_id(), new_id())
    write(store, scope, 0, (TEA, SEA))
    (document,) = store.walk.documents((RecordKind.CONSOLIDATION,))
    assert document.record is not None
    for kind in ("sqlite", "secantus"):
        target = open_store(kind)
        target.walk.load(RecordKind.CONSOLIDATION, [document.record])
        assert fixed_of(target, scope) == (TEA, SEA)


# -- versions to propagate ------------------------------------------------------------------------

AGENT = new_id()
USER = Scope.user(AGENT, new_id())
GROUP = Scope.group(AGENT, "guild")


def noting(scope: Scope, version: int) -> WriteConsolidation:
    return writing(scope, f"Text {version + 1}.", expected_version=version, propagate=True)


def noted(store: Store, scope: Scope) -> tuple[int, ...]:
    return store.memory.consolidations((scope,))[scope].unpropagated_versions


def test_scopes_with_noted_versions_are_found(store: Store) -> None:
    other = Scope.user(new_id(), new_id())
    for scope in (USER, GROUP, other):
        applied(store, noting(scope, 0))
    consolidate(store, Scope.agent(AGENT), "Nothing to propagate.", expected_version=0)
    everything = sorted((USER, GROUP, other), key=lambda s: (s.agent_id, s.kind, s.owner))
    assert store.memory.find_unpropagated() == everything
    assert store.memory.find_unpropagated(agent_id=AGENT) == [GROUP, USER]
    assert store.memory.find_unpropagated(agent_id=new_id()) == []


def test_settling_removes_exactly_one_version(store: Store) -> None:
    for version in range(3):
        applied(store, noting(USER, version))
    before = store.memory.consolidations((USER,))[USER]
    for _ in range(2):
        store.changes.settle_propagation(USER, 2)
        assert noted(store, USER) == (1, 3)
    store.changes.settle_propagation(USER, 7)
    store.changes.settle_propagation(GROUP, 1)  # a missing text is not created
    assert store.memory.consolidations((GROUP,)) == {}
    store.changes.settle_propagation(USER, 1)
    store.changes.settle_propagation(USER, 3)
    after = store.memory.consolidations((USER,))[USER]
    assert after.unpropagated_versions == ()
    assert (after.version, after.consolidated_content) == (3, before.consolidated_content)
    assert store.memory.find_unpropagated() == []
