"""Memory that a store has of its own before v1 comes: written as edenmem writes it."""

from __future__ import annotations

from typing import Any

from edenmem.engine.factory import open_store
from edenmem.models.changes import Actor, Change, ChangeSet
from edenmem.models.ids import utc_now
from edenmem.models.scope import Scope as HomeScope
from edenmem.models.scope import ScopeKind
from edenmem.settings.schema import Settings, StoreSettings
from tests.support.builders import writing
from tests.v1world.memory import Scope


def home_of(scope: Scope) -> HomeScope:
    """Return a scope as edenmem has it."""
    return HomeScope(ScopeKind(scope.kind), scope.agent, scope.owner)


def apply(place: Any, *changes: Change) -> None:
    """Apply changes through the store, as any command does."""
    store = open_store(Settings(store=StoreSettings(uri=place.cli.uri)))
    try:
        actor = Actor(name="tester", host="here", command="by hand")
        made = ChangeSet(actor=actor, at=utc_now(), changes=changes)
        results = store.changes.apply(made)
        assert all(each.ok for each in results), results
    finally:
        store.database.close()


def write_text(place: Any, scope: Scope, content: str, *, absorbed: tuple[str, ...] = ()) -> None:
    """Write the text of a scope, after whatever version there is."""
    versions = {text.scope: text.version for text in place.read().texts}
    change = writing(
        home_of(scope),
        content,
        expected_version=versions.get(scope, 0),
        at=utc_now(),
        absorbed_ids=absorbed,
    )
    apply(place, change)
