"""A world of formation with policies set by an operator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from edenmem.engine.service import MemoryService
from edenmem.models.scope import Scope
from edenmem.settings.schema import FormationSettings, Settings
from tests.engine.conftest import make_cast
from tests.engine.formation.conftest import World, facts, reflections
from tests.support.builders import ACTOR, FixedClock
from tests.support.editing import AwaitedEditor
from tests.support.runtime import make_runtime

if TYPE_CHECKING:
    from edenmem.store.protocol.store import Store
    from tests.support.embedder import FakeEmbedder
    from tests.support.llm import FakeLLM

SETTINGS = Settings(formation=FormationSettings(dedup=False, check=False))


@dataclass(kw_only=True)
class Governed(World):
    """A `World` with an operator and the whole service."""

    def editor(self) -> AwaitedEditor:
        """Return the editor of the command line."""
        return AwaitedEditor(
            make_runtime(self.store, SETTINGS, embedder=self.embedder, clock=self.clock)
        )

    async def set(self, scope: Scope, **fields: object) -> None:
        """Set a policy as an operator."""
        await self.editor().set_policy(scope, fields)

    def service(self, **sections: Any) -> MemoryService:
        """Return the service, with other sections of the settings."""
        return MemoryService(
            self.store,
            msgspec.structs.replace(SETTINGS, **sections),
            llm=self.llm,
            embedder=self.embedder,
            actor=ACTOR,
            clock=self.clock,
        )

    def learn(self, *contents: Any, **of_scopes: list[str]) -> None:
        """Script the next answers: facts, and reflections by kind of scope."""
        self.llm.script("facts", facts(*contents))
        self.llm.script("reflections", reflections(**of_scopes))


def govern(store: Store, llm: FakeLLM, embedder: FakeEmbedder, clock: FixedClock) -> Governed:
    llm.script("facts", facts())
    llm.script("reflections", reflections())
    return Governed(cast=make_cast(store), llm=llm, embedder=embedder, clock=clock)


@pytest.fixture
def governed(
    sqlite_store: Store, llm: FakeLLM, embedder: FakeEmbedder, clock: FixedClock
) -> Governed:
    """Return the world on SQLite."""
    return govern(sqlite_store, llm, embedder, clock)


@pytest.fixture
def governed_anywhere(
    store: Store, llm: FakeLLM, embedder: FakeEmbedder, clock: FixedClock
) -> Governed:
    """Return the world, once per kind of store."""
    return govern(store, llm, embedder, clock)
