"""What the parts of the engine work with, where a test names only what matters to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edenmem.engine.runtime.runtime import Runtime
from edenmem.settings.schema import Settings
from tests.support.builders import ACTOR

if TYPE_CHECKING:
    from edenmem.models.changes import Actor
    from edenmem.store.protocol.store import Store


def make_runtime(
    store: Store, settings: Settings | None = None, *, actor: Actor = ACTOR, **parts: Any
) -> Runtime:
    """A runtime with these parts; without them default settings, no models, the tests' actor."""
    return Runtime(store, settings or Settings(), find_actor=lambda: actor, **parts)
