"""A world where the memory of Anna and of a guild propagates, with a scripted model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from edenmem.engine.consolidation.consolidator import Consolidator
from edenmem.engine.reports import ConsolidationReport
from edenmem.llm.protocol import LLMRequest
from edenmem.models.host import Session
from edenmem.models.memory import Policy, Reflection
from edenmem.models.scope import Scope
from edenmem.settings.schema import LLMSettings, Settings
from tests.engine.conftest import Cast, make_cast
from tests.support.builders import FixedClock, make_message
from tests.support.memory import add_reflection, set_policy
from tests.support.runtime import make_runtime

if TYPE_CHECKING:
    from edenmem.store.protocol.store import Store
    from tests.support.llm import FakeLLM

GENERAL = "The summer festival begins on 12 June 2026 in the old harbour."
OTHER = "The archive moves to the second floor in March 2026."


def items(*proposals: tuple[int, str]) -> dict[str, Any]:
    """Return an answer to ``propagate``."""
    return {"items": [{"reflection": number, "content": text} for number, text in proposals]}


@dataclass(kw_only=True)
class Ladder:
    """The cast with an additional session of a guild; ``user`` and ``group`` propagate."""

    cast: Cast
    llm: FakeLLM
    guild_session: Session
    group: Scope

    @property
    def store(self) -> Store:
        return self.cast.store

    @property
    def user(self) -> Scope:
        return self.cast.anna_scope

    @property
    def agent(self) -> Scope:
        return self.cast.agent_scope

    def consolidator(self, **options: Any) -> Consolidator:
        """Return a consolidator, with overrides of ``settings``, ``store`` and ``llm``."""
        settings = options.get("settings", Settings(llm=LLMSettings(fast_model="fast")))
        return Consolidator(
            make_runtime(
                options.get("store", self.store),
                settings,
                llm=options.get("llm", self.llm),
                clock=FixedClock(),
            )
        )

    async def consolidate(self, scope: Scope, **options: Any) -> ConsolidationReport:
        """Consolidate all pending reflections."""
        return await self.consolidator(**options).consolidate(scope, force=True)

    def learn(self, scope: Scope, *contents: str, **fields: Any) -> list[Reflection]:
        """Add pending reflections, by default from Anna's session."""
        fields.setdefault("session_id", self.cast.session.id)
        return [add_reflection(self.store, scope, content, **fields) for content in contents]

    def say(self, session: Session, content: str, **fields: Any) -> str:
        """Add a message; return its ID."""
        message = make_message(session, content, **fields)
        self.store.host.add_messages(session.id, [message])
        return message.id

    def set_policy(self, scope: Scope, **fields: Any) -> Policy:
        """Change a policy."""
        stored = self.store.memory.policies((scope,)).get(scope)
        version = stored.version if stored else 0
        return set_policy(self.store, scope, expected_version=version, **fields)

    def pending(self, scope: Scope) -> list[str]:
        """Return the contents of a scope's buffer."""
        return [reflection.content for reflection in self.store.memory.pending(scope)]

    def noted(self, scope: Scope) -> tuple[int, ...]:
        """Return the versions pending propagation."""
        return self.store.memory.consolidations((scope,))[scope].unpropagated_versions

    @property
    def asked(self) -> Sequence[LLMRequest[Any]]:
        """Return the requests for propagation."""
        return self.llm.requests_for("propagate")


def make_ladder(store: Store, llm: FakeLLM) -> Ladder:
    cast = make_cast(store)
    guild_session = cast.add_session(cast.anna, cast.bruno, name="guild-talk", group_id="guild")
    group = Scope.group(cast.eve.id, "guild")
    for scope in (cast.anna_scope, group):
        set_policy(store, scope, propagate=True)
    llm.script("consolidate", {"text": "A text of this scope."})
    llm.script("propagate", items())
    return Ladder(cast=cast, llm=llm, guild_session=guild_session, group=group)


@pytest.fixture
def ladder(sqlite_store: Store, llm: FakeLLM) -> Ladder:
    """Return the ladder in SQLite."""
    return make_ladder(sqlite_store, llm)


@pytest.fixture
def any_ladder(store: Store, llm: FakeLLM) -> Ladder:
    """Return the ladder in each kind of store."""
    return make_ladder(store, llm)
