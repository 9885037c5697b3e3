"""Runtimes with defaults for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edenmem.engine.runtime.runtime import Runtime
from edenmem.settings.schema import FormationSettings, Settings
from tests.support.builders import ACTOR

if TYPE_CHECKING:
    from edenmem.models.changes import Actor
    from edenmem.store.protocol.store import Store

#: For scripted models, whose answers need not match the conversation.
ANYTHING_GOES = FormationSettings(check=False, min_messages=4)


def make_runtime(
    store: Store, settings: Settings | None = None, *, actor: Actor = ACTOR, **parts: Any
) -> Runtime:
    """Return a runtime with these parts.

    Defaults: default settings without acceptance, no models, the actor of tests."""
    settings = settings or Settings(formation=ANYTHING_GOES)
    return Runtime(store, settings, find_actor=lambda: actor, **parts)
