"""What the parts of the engine work with: a store, its settings, the models, and who acts when."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from edenmem.embed import EMBEDDER_HINT
from edenmem.engine.runtime.current_actor import current_actor
from edenmem.errors import ConfigError
from edenmem.models.ids import new_id, utc_now

if TYPE_CHECKING:
    from edenmem.embed.protocol import Embedder, QueryShelf
    from edenmem.llm.protocol import LLM
    from edenmem.models.changes import Actor
    from edenmem.rerank.protocol import Reranker
    from edenmem.settings.schema import Settings
    from edenmem.store.protocol.store import Store


class Runtime(msgspec.Struct, frozen=True, eq=False):
    """Everything that a part needs from outside. ``msgspec.structs.replace`` makes a variant.

    Attributes:
        store: Where memory is.
        settings: All limits, models and modes.
        llm: Asked by formation, consolidation and the like; None: they raise `ConfigError`.
        embedder: Gives facts and queries their vectors; None: text search works.
        reranker: Orders what a search found, where that is asked for.
        find_actor: Tells who acts, when something is written.
        clock: The current time.
        query_shelf: Keeps the vectors of queries beyond this process.
    """

    store: Store
    settings: Settings
    llm: LLM | None = None
    embedder: Embedder | None = None
    reranker: Reranker | None = None
    find_actor: Callable[[], Actor] = current_actor
    clock: Callable[[], datetime] = utc_now
    query_shelf: QueryShelf | None = None

    @property
    def actor(self) -> Actor:
        """Who is written into history and audit."""
        return self.find_actor()

    def for_actor(self, actor: Actor) -> Runtime:
        """Return the same runtime for another actor."""
        return msgspec.structs.replace(self, find_actor=lambda: actor)

    def for_run(self) -> Runtime:
        """Return a runtime whose changes are all of one run, that of the actor or a new one."""
        actor = self.actor
        return self.for_actor(msgspec.structs.replace(actor, run_id=actor.run_id or new_id()))

    def demand_embedder(self) -> Embedder:
        """Return the embedding model.

        Raises:
            ConfigError: there is none.
        """
        if self.embedder is None:
            raise ConfigError("there is no embedding model", hint=EMBEDDER_HINT)
        return self.embedder
