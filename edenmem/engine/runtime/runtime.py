"""The environment of the engine: store, settings, models, actor and clock."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from edenmem.embed import embedder_hint
from edenmem.engine.runtime.told import Notes
from edenmem.errors import ConfigError
from edenmem.llm import LLM_HINT, NO_LLM
from edenmem.models.changes import Actor
from edenmem.models.ids import new_id, utc_now

if TYPE_CHECKING:
    from edenmem.embed.protocol import Embedder, QueryShelf
    from edenmem.llm.protocol import LLM
    from edenmem.rerank.protocol import Reranker
    from edenmem.settings.schema import Settings
    from edenmem.store.protocol.store import Store


def current_actor() -> Actor:
    """Return the user and host of this process, for history and audit."""
    import getpass
    import socket

    try:
        name = getpass.getuser()
    except (OSError, KeyError):  # a container user without a name
        name = "unknown"
    return Actor(name=name, host=socket.gethostname(), command="MemoryService")


class Runtime(msgspec.Struct, frozen=True, eq=False):
    """The environment of the engine. Use ``msgspec.structs.replace`` for a variant.

    Attributes:
        store: The store.
        settings: Limits, models and modes.
        llm: Model for formation, consolidation etc.; without one they raise `ConfigError`.
        embedder: Model for vectors; without one, search is by text only.
        reranker: Model for reranking search results on request.
        find_actor: Returns the author of changes.
        clock: Returns the current time.
        query_shelf: Cache of query vectors on disk.
        told: Notes of what leaves the engine; variants share them.
    """

    store: Store
    settings: Settings
    llm: LLM | None = None
    embedder: Embedder | None = None
    reranker: Reranker | None = None
    find_actor: Callable[[], Actor] = current_actor
    clock: Callable[[], datetime] = utc_now
    query_shelf: QueryShelf | None = None
    told: Notes = None  # type: ignore[assignment]  # set below

    def __post_init__(self) -> None:
        if self.told is None:
            msgspec.structs.force_setattr(self, "told", Notes(self.store, self.settings))

    @property
    def actor(self) -> Actor:
        """Return the author of changes in history and audit."""
        return self.find_actor()

    def for_actor(self, actor: Actor) -> Runtime:
        """Return a runtime with this actor."""
        return msgspec.structs.replace(self, find_actor=lambda: actor)

    def for_run(self) -> Runtime:
        """Return a runtime whose changes belong to one run, the actor's or a new one."""
        actor = self.actor
        return self.for_actor(msgspec.structs.replace(actor, run_id=actor.run_id or new_id()))

    def demand_embedder(self) -> Embedder:
        """Return the embedding model.

        Raises:
            ConfigError: no embedding model is configured.
        """
        if self.embedder is None:
            raise ConfigError("no embedding model is configured", hint=embedder_hint())
        return self.embedder


def no_llm(otherwise: str = "") -> ConfigError:
    """Return the error of work without a language model.

    ``otherwise`` adds what works without one to the hint.
    """
    error = ConfigError(NO_LLM, hint=LLM_HINT)
    if otherwise:
        error.add_hint(otherwise)
    return error


def require_llm(llm: LLM | None, *, otherwise: str = "") -> LLM:
    """Return the language model; see `no_llm`.

    Raises:
        ConfigError: no language model is configured.
    """
    if llm is None:
        raise no_llm(otherwise)
    return llm
