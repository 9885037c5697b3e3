"""Generated changes of all kinds over a few targets, so that most of them interact.

A move is a few small numbers, drawn and shrunk by hypothesis; a `Scene` converts it to a change.
The scene keeps the kernel's results of earlier moves, so that most changes expect the current
version, and some a different one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from hypothesis import strategies as st

from edenmem.memory import Effect, State, plan_all
from edenmem.models.changes import (
    AddAgent,
    AddFact,
    AddReflection,
    AddUser,
    Change,
    ChangeSet,
    HoldItem,
    RemoveAgent,
    RemoveFact,
    RemoveHeld,
    RemovePolicy,
    RemoveReflection,
    RemoveUser,
    RestoreReflection,
    RevertConsolidation,
    ReviseFact,
    ReviseReflection,
    SetAgentToggles,
    SetPrivacy,
    WritePolicy,
)
from edenmem.models.host import Agent, User
from edenmem.models.ids import derived_id
from edenmem.models.memory import Fact, FactFields, Reflection
from edenmem.models.scope import Scope
from tests.support.builders import (
    ACTOR,
    NOW,
    make_fact,
    make_held,
    make_policy,
    make_reflection,
    writing,
)
from tests.support.vectors import random_unit

#: Kind, target, text or other target, and whether the expected version is current.
Move = tuple[int, int, int, bool]

_THINGS, _TEXTS = 6, 3


def moves(kinds: int, *, at_least: int = 12, at_most: int = 40) -> st.SearchStrategy[list[Move]]:
    """Return a strategy of several moves."""
    right = st.sampled_from([True, True, True, False])
    move = st.tuples(
        st.integers(0, kinds - 1), st.integers(0, _THINGS - 1), st.integers(0, _TEXTS - 1), right
    )
    return st.lists(move, min_size=at_least, max_size=at_most)


class Scene:
    """An agent with a user, their memory, and the kernel's results of changes."""

    def __init__(self, salt: str) -> None:
        self._salt = salt
        agent, user = self.id("agent"), self.id("user")
        self.scopes = (Scope.agent(agent), Scope.user(agent, user))
        self.state = State()
        self.effects: list[Effect] = []
        self._made = 0
        self._kinds: Sequence[Callable[[int, int, bool], Change]] = (
            self._add_fact,
            self._add_fact,
            self._revise_fact,
            self._revise_or_add,
            self._remove_fact,
            self._set_privacy,
            self._add_reflection,
            self._add_reflection,
            self._revise_reflection,
            self._remove_reflection,
            self._restore_reflection,
            self._write_text,
            self._write_text,
            self._revert_text,
            self._write_policy,
            self._remove_policy,
            self._add_account,
            self._remove_account,
            self._set_toggles,
            self._set_toggles,
            self._hold,
            self._remove_held,
            self._again,
        )

    @classmethod
    def kinds(cls) -> int:
        """Return the number of kinds of moves."""
        return len(cls("")._kinds)

    def id(self, *what: object) -> str:
        """Return the ID of a target of this scene."""
        return derived_id(self._salt, *map(str, what))

    def play(self, moves: Sequence[Move]) -> ChangeSet:
        """Return the moves as a set of changes, each planned on the state after the others."""
        self._made += 1
        at = NOW + timedelta(minutes=self._made)
        empty = ChangeSet(id=self.id("set", self._made), actor=ACTOR, at=at)
        changes: list[Change] = []
        for kind, thing, text, right in moves:
            change = self._kinds[kind](thing, text, right)
            changes.append(change)
            self.effects += plan_all(empty, self.state, (change,), start=len(changes) - 1)
        return ChangeSet(id=empty.id, actor=ACTOR, at=at, changes=tuple(changes))

    def _there(self, kind: str, thing: int, right: bool) -> Fact | Reflection | None:
        """Return an existing fact or reflection, or sometimes None."""
        known = self.state.facts if kind == "fact" else self.state.reflections
        there = [each for each, document in known.items() if document is not None]
        return known[there[thing % len(there)]] if there and (right or thing) else None

    def _target(self, kind: str, thing: int, right: bool) -> dict[str, Any]:
        """Return the target fields of a change, with the expected version."""
        found = self._there(kind, thing, right)
        return {
            "id": self._new(),
            "scope": found.home if found and thing != 3 else self._scope(thing),
            f"{kind}_id": found.id if found else self.id(kind, thing),
            "expected_version": (found.version if found else 1) + (0 if right else 1),
            "at": self._now,
        }

    # -- facts -------------------------------------------------------------------------------

    def _new(self) -> str:
        return self.id("change", len(self.effects))

    @property
    def _now(self) -> datetime:
        return NOW + timedelta(minutes=self._made)

    def _scope(self, thing: int) -> Scope:
        return self.scopes[thing % 2]

    def _fact(self, thing: int, text: int) -> Fact:
        vector = {"embedding": random_unit(text), "embedding_model": "m"} if thing % 3 else {}
        fields = msgspec.structs.asdict(self._fields(thing, text))
        return make_fact(
            self._scope(thing), f"text {text}", id=self.id("fact", thing), **vector, **fields
        )

    def _fields(self, thing: int, text: int) -> FactFields:
        """Return the fields of some facts: a key that others want too, or a time of expiry."""
        if thing == 4:
            return FactFields(key=f"key {text % 2}", metadata={"made by": "a.b"}, value={"n": text})
        if thing == 5:
            return FactFields(tags=("home",), expires_at=NOW + timedelta(hours=text))
        return FactFields()

    def _add_fact(self, thing: int, text: int, right: bool) -> Change:
        return AddFact(id=self._new(), fact=self._fact(thing, text))

    def _revise_fact(self, thing: int, text: int, right: bool) -> Change:
        return ReviseFact(
            **self._target("fact", thing, right),
            content=f"text {text}",
            source_message_ids=(self.id("message", text),),
            fields=self._fields(thing, text) if thing % 3 else None,
        )

    def _revise_or_add(self, thing: int, text: int, right: bool) -> Change:
        return ReviseFact(
            **self._target("fact", thing, right),
            content=f"text {text}",
            embedding=random_unit(9),
            embedding_model="m",
            or_add=self._fact((thing + 2) % _THINGS, text),
        )

    def _remove_fact(self, thing: int, text: int, right: bool) -> Change:
        return RemoveFact(**self._target("fact", thing, right))

    def _set_privacy(self, thing: int, text: int, right: bool) -> Change:
        kind = ("fact", "reflection", "policy")[text]
        found = self._there(kind, thing, right)
        return SetPrivacy(
            id=self._new(),
            scope=found.home if found else self._scope(thing),
            target_type=kind,
            target_id=found.id if found else self.id(kind, thing),
            private=thing > 1,
            at=self._now,
        )

    # -- reflections and texts ---------------------------------------------------------------

    def _reflection(self, thing: int, text: int) -> Reflection:
        formed_at = NOW - timedelta(minutes=thing // 2)
        return make_reflection(
            self._scope(thing),
            f"thought {text}",
            id=self.id("reflection", thing),
            formed_at=formed_at,
        )

    def _add_reflection(self, thing: int, text: int, right: bool) -> Change:
        return AddReflection(
            id=self._new(), reflection=self._reflection(thing, text), word_limit=300
        )

    def _restore_reflection(self, thing: int, text: int, right: bool) -> Change:
        return RestoreReflection(
            id=self._new(), reflection=self._reflection(thing, text), word_limit=200
        )

    def _revise_reflection(self, thing: int, text: int, right: bool) -> Change:
        return ReviseReflection(
            **self._target("reflection", thing, right), content=f"thought {text}"
        )

    def _remove_reflection(self, thing: int, text: int, right: bool) -> Change:
        return RemoveReflection(**self._target("reflection", thing, right))

    def _text_version(self, scope: Scope, right: bool) -> int:
        text = self.state.texts.get(scope)
        return (text.version if text else 0) + (0 if right else 1)

    def _of_scope(self, scope: Scope, *, absorbed: bool) -> tuple[str, ...]:
        found = (each for each in self.state.reflections.values() if each is not None)
        return tuple(each.id for each in found if each.home == scope and each.absorbed is absorbed)

    def _write_text(self, thing: int, text: int, right: bool) -> Change:
        scope = self._scope(thing)
        waiting = self._of_scope(
            scope, absorbed=text == 2 and not right
        )  # these cannot be absorbed again
        return writing(
            scope,
            f"A long text {text}.",
            id=self._new(),
            expected_version=self._text_version(scope, right),
            word_limit=100 + text,
            at=self._now,
            absorbed_ids=waiting[: thing + 1],
            propagate=thing == 0,
            as_version=thing,
        )

    def _revert_text(self, thing: int, text: int, right: bool) -> Change:
        scope = self._scope(thing)
        version = self._text_version(scope, right)
        return RevertConsolidation(
            id=self._new(),
            scope=scope,
            expected_version=version,
            content="" if text == 0 else f"A long text {text}.",
            word_limit=300,
            at=self._now,
            released_ids=self._of_scope(scope, absorbed=text < 2 or right)[: thing + 1],
            reverted_versions=(version,),
        )

    # -- held items --------------------------------------------------------------------------

    def _hold(self, thing: int, text: int, right: bool) -> Change:
        held = make_held(self._scope(thing), f"text {text}", id=self.id("held", thing))
        return HoldItem(id=self._new(), held=held)

    def _remove_held(self, thing: int, text: int, right: bool) -> Change:
        scope = self._scope(thing if right else thing + 1)
        return RemoveHeld(id=self._new(), scope=scope, held_id=self.id("held", thing))

    # -- settings and accounts ---------------------------------------------------------------

    def _policy_version(self, scope: Scope, right: bool) -> int:
        policy = self.state.policies.get(scope)
        return (policy.version if policy else 0) + (0 if right else 1)

    def _write_policy(self, thing: int, text: int, right: bool) -> Change:
        scope = self._scope(thing)
        return WritePolicy(
            id=self._new(),
            policy=make_policy(scope, id=self.id("policy", thing % 2), word_limit=100 + text),
            expected_version=self._policy_version(scope, right),
            at=self._now,
        )

    def _remove_policy(self, thing: int, text: int, right: bool) -> Change:
        scope = self._scope(thing)
        version = self._policy_version(scope, right)
        return RemovePolicy(id=self._new(), scope=scope, expected_version=version, at=self._now)

    def _add_account(self, thing: int, text: int, right: bool) -> Change:
        kind = ("agent", "user")[thing % 2]
        account = self.id(kind) if thing < 3 else self.id(kind, text)
        name = f"{kind} {text} {self._salt}"
        if kind == "user":
            return AddUser(id=self._new(), user=User(id=account, username=name, created_at=NOW))
        owner = self.id("user")
        agent = Agent(id=account, username=name, owner=owner, created_at=NOW)
        return AddAgent(id=self._new(), agent=agent)

    def _remove_account(self, thing: int, text: int, right: bool) -> Change:
        kind = ("agent", "user")[thing % 2]
        account = self.id(kind) if thing < 1 else self.id(kind, text)
        if kind == "user":
            return RemoveUser(id=self._new(), user_id=account)
        return RemoveAgent(id=self._new(), agent_id=account)

    def _set_toggles(self, thing: int, text: int, right: bool) -> Change:
        values = (True, False, None)
        return SetAgentToggles(
            id=self._new(),
            agent_id=self.id("agent"),
            at=self._now,
            user_memory_enabled=values[thing % 3],
            agent_memory_enabled=values[text],
        )

    def _again(self, thing: int, text: int, right: bool) -> Change:
        """Return an earlier change."""
        if not self.effects:
            return self._add_fact(thing, text, right)
        return self.effects[-1 - (thing + text) % len(self.effects)].change
