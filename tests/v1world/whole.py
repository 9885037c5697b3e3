"""What a place held after a clean run, for whoever damages or changes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.v1world.memory import Item, Memory, Policy, Text
from tests.v1world.world import World


class Whole:
    """What was there before the damage, looked up by the case."""

    def __init__(self, world: World, memory: Memory) -> None:
        self.world = world
        self.memory = memory

    def agent(self, case: str) -> str:
        """Return the case's agent."""
        return str(self.world.cases[case].agent)

    def text(self, case: str, kind: str, place: int = 0) -> Text:
        """Return a text of a case."""
        found = [
            each
            for each in self.memory.texts
            if each.scope.agent == self.agent(case) and each.scope.kind == kind
        ]
        return sorted(found, key=lambda each: each.scope)[place]

    def fact(self, case: str, kind: str = "agent", place: int = 0) -> Item:
        """Return a fact of a case, oldest first."""
        return _pick(self.memory.facts, self.agent(case), kind, place)

    def reflection(
        self, case: str, kind: str = "user", place: int = 0, *, absorbed: bool = False
    ) -> Item:
        """Return a reflection of a case, oldest first."""
        items = [each for each in self.memory.reflections if each.absorbed is absorbed]
        return _pick(items, self.agent(case), kind, place)

    def policy(self, case: str, kind: str) -> Policy:
        """Return a policy of a case."""
        (found,) = (
            each
            for each in self.memory.policies
            if each.scope.agent == self.agent(case) and each.scope.kind == kind
        )
        return found


def _pick(items: list[Item], agent: str, kind: str, place: int) -> Item:
    found = [each for each in items if each.scope.agent == agent and each.scope.kind == kind]
    return sorted(found, key=lambda each: (each.formed_at, each.id))[place]


Do = Callable[[Any, Whole], None]
