"""Days of random changes, and the memory at the end of a day."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from edenmem.models.changes import (
    AddAgent,
    AddFact,
    AddReflection,
    AddUser,
    Change,
    ChangeSet,
    RemoveFact,
    RemovePolicy,
    RemoveReflection,
    ReviseFact,
    ReviseReflection,
    SetAgentToggles,
    SetPrivacy,
    WriteConsolidation,
    WritePolicy,
)
from edenmem.models.host import Agent
from edenmem.models.ids import new_id
from edenmem.models.memory import FactFields
from edenmem.models.scope import Scope
from edenmem.models.search import FactFilter
from tests.support.builders import (
    FixedClock,
    make_actor,
    make_agent,
    make_fact,
    make_policy,
    make_reflection,
    make_user,
)

if TYPE_CHECKING:
    from edenmem.store.protocol.store import Store

#: Changes of a day, applied to any existing target.
DEEDS = (
    "add fact",
    "revise fact",
    "mark fact",
    "remove fact",
    "hide fact",
    "add reflection",
    "revise reflection",
    "remove reflection",
    "hide reflection",
    "consolidate",
    "edit text",
    "write policy",
    "remove policy",
    "add shard",
    "toggle",
    "add agent",
    "add user",
)


class Day:
    """An agent whose memory is changed by ``deeds``, pairs of a deed and a target number."""

    def __init__(self, store: Store, agent: Agent, scopes: tuple[Scope, ...]) -> None:
        self.store = store
        self.agent = agent
        self.scopes = scopes
        self.clock = FixedClock()
        self.run_id = new_id()
        self.actor = make_actor("test day", run_id=self.run_id)

    def live(self, deeds: list[tuple[str, int]]) -> list[str]:
        """Make all possible changes, and return their IDs in order."""
        made = []
        for deed, choice in deeds:
            self.clock.advance(seconds=1)
            change = self._change(deed, random.Random(choice))
            if change is None:
                continue
            changes = ChangeSet(actor=self.actor, at=self.clock(), changes=(change,))
            (result,) = self.store.changes.apply(changes)
            if self.store.log.audit_entry(change.id) is not None:
                assert result.ok
                made.append(change.id)
        return made

    def _change(self, deed: str, dice: random.Random) -> Change | None:
        what, _, kind = deed.partition(" ")
        scope = dice.choice(self.scopes)
        at, content = self.clock(), f"sentence {dice.randrange(4)}"
        same: dict[str, Any] = {"scope": scope, "at": at}
        if deed == "add fact":
            return AddFact(fact=make_fact(scope, content, id=new_id(), formed_at=at))
        if deed == "add reflection":
            reflection = make_reflection(scope, content, id=new_id(), formed_at=at)
            return AddReflection(reflection=reflection, word_limit=300)
        if kind == "fact":
            facts = sorted(self.store.memory.facts(FactFilter(scopes=(scope,))), key=lambda f: f.id)
            if not facts:
                return None
            fact = dice.choice(facts)
            named = {"fact_id": fact.id, "expected_version": fact.version}
            if what == "revise":
                return ReviseFact(**named, content=content, **same)
            if what == "mark":
                key = dice.choice((None, "one", "two"))
                tags = tuple(dice.sample(("home", "work"), dice.randrange(3)))
                expires_at = dice.choice((None, at + timedelta(days=9)))
                fields = FactFields(key=key, tags=tags, expires_at=expires_at)
                return ReviseFact(**named, content=fact.content, fields=fields, **same)
            if what == "remove":
                return RemoveFact(**named, **same)
            return SetPrivacy(
                target_type="fact", target_id=fact.id, private=not fact.private, **same
            )
        if kind == "reflection":
            return self._reflection_change(what, content, same, dice)
        if deed in ("consolidate", "edit text"):
            text = self.store.memory.consolidations([scope]).get(scope)
            waiting = [each.id for each in self.store.memory.pending(scope)]
            if what == "consolidate" and not waiting:
                return None
            taken = dice.sample(waiting, dice.randint(1, len(waiting))) if what != "edit" else []
            return WriteConsolidation(
                expected_version=text.version if text else 0,
                content=f"text {dice.randrange(3)}",
                word_limit=dice.choice([200, 300]),
                absorbed_ids=tuple(taken),
                propagate=dice.random() < 0.5,
                **same,
            )
        return self._setting(deed, same, dice)

    def _reflection_change(
        self, what: str, content: str, same: dict[str, Any], dice: random.Random
    ) -> Change | None:
        found = sorted(self.store.memory.reflections([same["scope"]]), key=lambda each: each.id)
        if what == "revise":
            found = [each for each in found if not each.absorbed]
        if not found:
            return None
        chosen = dice.choice(found)
        named = {"reflection_id": chosen.id, "expected_version": chosen.version}
        if what == "revise":
            return ReviseReflection(**named, content=content, **same)
        if what == "remove":
            return RemoveReflection(**named, **same)
        private = not chosen.private
        return SetPrivacy(target_type="reflection", target_id=chosen.id, private=private, **same)

    def _setting(self, deed: str, same: dict[str, Any], dice: random.Random) -> Change | None:
        match deed:
            case "add agent":
                return AddAgent(agent=make_agent(f"agent-{new_id()}", created_at=self.clock()))
            case "add user":
                return AddUser(user=make_user(f"user-{new_id()}", created_at=self.clock()))
            case "toggle":
                return SetAgentToggles(
                    agent_id=self.agent.id,
                    at=self.clock(),
                    user_memory_enabled=dice.choice([True, False, None]),
                    agent_memory_enabled=dice.choice([True, False]),
                )
            case "add shard":
                same["scope"] = Scope.shard(self.agent.id, f"shard {dice.randrange(2)}")
        policy = self.store.memory.policies([same["scope"]]).get(same["scope"])
        version = policy.version if policy else 0
        if deed == "remove policy":
            return RemovePolicy(expected_version=version, **same) if policy else None
        new = make_policy(
            same["scope"],
            memory_instructions=f"instruction {dice.randrange(3)}",
            word_limit=dice.choice([None, 50]),
            active=dice.random() < 0.8,
            private=dice.random() < 0.2,
        )
        return WritePolicy(policy=new, expected_version=version, at=self.clock())


def remembered(store: Store, agent: Agent, scopes: tuple[Scope, ...]) -> dict[str, Any]:
    """Return texts, buffers, flags, policies, toggles and accounts, without versions."""
    shards = tuple(Scope.shard(agent.id, f"shard {number}") for number in range(2))
    texts = store.memory.consolidations(scopes)
    for scope in scopes:
        waiting = [each.id for each in store.memory.pending(scope)]
        text = texts.get(scope)
        # as read, as in the buffer, and as flagged
        assert set(waiting) == set(text.unabsorbed_ids if text else ())
        assert set(waiting) == {
            each.id for each in store.memory.reflections([scope], absorbed=False)
        }
    found: dict[str, Any] = {
        "facts": sorted(
            (fact.id, fact.home.key, fact.content, fact.hash, fact.private, str(fact.fields))
            for fact in store.memory.facts(FactFilter(scopes=scopes))
        ),
        "reflections": sorted(
            (each.id, each.home.key, each.content, each.private, each.absorbed, each.formed_at)
            for each in store.memory.reflections(scopes)
        ),
        "buffers": {
            scope.key: [each.id for each in store.memory.pending(scope)] for scope in scopes
        },
        "texts": {
            scope.key: text.consolidated_content
            for scope, text in texts.items()
            if text.consolidated_content
        },
        "policies": {
            scope.key: msgspec.structs.replace(policy, id="", version=0, updated_at=None)
            for scope, policy in store.memory.policies((*scopes, *shards)).items()
        },
        "accounts": [*store.host.agents(), *store.host.users()],
    }
    return found
