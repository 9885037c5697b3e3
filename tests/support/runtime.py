"""What the parts of the engine work with, where a test names only what matters to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edenmem.engine.runtime.runtime import Runtime
from edenmem.settings.schema import AcceptanceSettings, Settings
from tests.support.builders import ACTOR

if TYPE_CHECKING:
    from edenmem.models.changes import Actor
    from edenmem.store.protocol.store import Store

#: For scripted models, which say what a test needs and not what was said.
ANYTHING_GOES = AcceptanceSettings(
    words_floor=0,
    words_reject=0,
    sources=False,
    names=False,
    numbers=False,
    words=False,
    echo=False,
    statement=False,
    relative_dates=False,
    secrets=False,
    orders=False,
)


def make_runtime(
    store: Store, settings: Settings | None = None, *, actor: Actor = ACTOR, **parts: Any
) -> Runtime:
    """A runtime with these parts; without them default settings but for acceptance, no models, the
    tests' actor."""
    settings = settings or Settings(acceptance=ANYTHING_GOES)
    return Runtime(store, settings, find_actor=lambda: actor, **parts)
