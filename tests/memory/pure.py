"""Memory without a store: a state, what was done to it, and the way back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

import msgspec

from edenmem.memory import State, fold, plan
from edenmem.memory.inverse import Inverse, Past, invert
from edenmem.models.changes import AuditEntry, Change, ChangeResult, ChangeSet
from edenmem.models.host import Agent, User
from edenmem.models.memory import Consolidation, Fact, Policy, Reflection
from edenmem.models.scope import Scope
from edenmem.models.search import FactFilter
from tests.support.builders import ACTOR, NOW


class Memory:
    """A state in which everything is known. It reads as a store does, as far as days need it."""

    def __init__(self) -> None:
        self.state = State()
        self.past = Past()
        self.entries: dict[str, AuditEntry] = {}
        self.memory = self.host = self.changes = self.log = self

    def do(self, change: Change, *, at: datetime = NOW) -> AuditEntry:
        """Apply a change that must be possible; its entry."""
        (result,) = self.apply(ChangeSet(actor=ACTOR, at=at, changes=(change,)))
        assert result.ok, result
        return self.entries[change.id]

    def invert(self, entry: AuditEntry, *, at: datetime = NOW) -> Inverse:
        """The way back of an entry."""
        return invert(entry, self.state, self._past_now(), at=at)

    def apply(self, changes: ChangeSet) -> list[ChangeResult]:
        results = []
        for change in changes.changes:
            effect = plan(change, self.state, changes)
            fold(self.state, effect)
            results.append(effect.result)
            if effect.entry is None or effect.entry.status == "void":
                continue
            self.entries[change.id] = effect.entry
            for version in effect.versions:
                scope = version.scope
                if version.target_type == "consolidation":
                    self.past.versions[scope] = (*self.past.versions.get(scope, ()), version)
                elif version.snapshot is not None:
                    self.past.snapshots[change.id] = version.snapshot
            self._note_revert(effect.entry)
        return results

    def _note_revert(self, entry: AuditEntry) -> None:
        undone = self.entries.get(entry.undoes or "")
        if entry.action == "revert_consolidation" and undone is not None and undone.after:
            assert entry.scope is not None
            known = self.past.reverts.get(entry.scope, ())
            self.past.reverts[entry.scope] = (*known, (entry.at, undone.after["version"]))

    def _past_now(self) -> Past:
        shards = {policy for policy in self.state.policies if policy.shard_name}
        contents = {
            shard: len([*self.facts(FactFilter(scopes=(shard,))), *self.reflections([shard])])
            for shard in shards
        }
        return msgspec.structs.replace(self.past, contents=contents)

    def audit_entry(self, entry_id: str) -> AuditEntry | None:
        return self.entries.get(entry_id)

    def add_agent(self, agent: Agent) -> None:
        self.state.agents[agent.id] = agent

    def facts(self, wanted: FactFilter) -> Iterator[Fact]:
        found = (fact for fact in self.state.facts.values() if fact is not None)
        return (fact for fact in found if fact.home in wanted.scopes)

    def reflections(
        self, scopes: Sequence[Scope], *, absorbed: bool | None = None
    ) -> Iterator[Reflection]:
        found = (each for each in self.state.reflections.values() if each is not None)
        return (each for each in found if each.home in scopes and absorbed in (None, each.absorbed))

    def pending(self, scope: Scope) -> list[Reflection]:
        found = (self.state.reflections[each] for each in self.state.buffer(scope))
        return [each for each in found if each is not None]

    def consolidations(self, scopes: Sequence[Scope]) -> dict[Scope, Consolidation]:
        found = {scope: self.state.texts.get(scope) for scope in scopes}
        return {
            scope: msgspec.structs.replace(text, unabsorbed_ids=self.state.buffer(scope))
            for scope, text in found.items()
            if text is not None
        }

    def policies(self, scopes: Sequence[Scope]) -> dict[Scope, Policy]:
        found = {scope: self.state.policies.get(scope) for scope in scopes}
        return {scope: policy for scope, policy in found.items() if policy is not None}

    def agents(self) -> list[Agent]:
        found = (agent for agent in self.state.agents.values() if agent is not None)
        return sorted(found, key=lambda agent: agent.id)

    def users(self) -> list[User]:
        found = (user for user in self.state.users.values() if user is not None)
        return sorted(found, key=lambda user: user.id)
