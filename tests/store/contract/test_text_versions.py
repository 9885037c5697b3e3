"""A text from another system keeps its version."""

from __future__ import annotations

from edenmem.models.changes import ChangeStatus, WriteConsolidation
from edenmem.models.ids import new_id
from edenmem.models.scope import Scope
from edenmem.store.protocol.store import Store
from tests.support.builders import change_set, writing


def write(scope: Scope, expected: int, content: str, as_version: int = 0) -> WriteConsolidation:
    return writing(scope, content, expected_version=expected, as_version=as_version, propagate=True)


def test_a_text_can_start_at_any_version_and_versions_only_grow(store: Store) -> None:
    scope = Scope.user(new_id(), new_id())
    steps = (
        write(scope, 0, "third", 3),
        write(scope, 3, "seventh", 7),
        write(scope, 7, "eighth", 2),  # never backwards
        write(scope, 8, "ninth"),
    )
    results = store.changes.apply(change_set(*steps))
    assert {each.status for each in results} == {ChangeStatus.APPLIED}
    text = store.memory.consolidations([scope])[scope]
    assert (text.version, text.consolidated_content) == (9, "ninth")
    assert text.unpropagated_versions == (3, 7, 8, 9)
    history = store.history.versions("consolidation", "", scope=scope)
    assert [(each.version, each.content) for each in history] == [
        (3, "third"),
        (7, "seventh"),
        (8, "eighth"),
        (9, "ninth"),
    ]
    again = store.changes.apply(change_set(*steps))
    assert {each.status for each in again} == {ChangeStatus.ALREADY}
