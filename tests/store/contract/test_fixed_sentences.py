"""Fixed sentences and failed drafts are kept with the text of a scope."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from edenmem.models.backup import RecordKind
from edenmem.models.changes import RevertConsolidation
from edenmem.models.ids import new_id
from edenmem.models.memory import FailedDrafts, FixedSentence
from edenmem.models.scope import Scope
from edenmem.store.protocol.store import Store
from tests.support.builders import NOW, ago, writing
from tests.support.memory import add_reflection, applied

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
