"""The settings of scopes and the toggles of agents, by hand."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from edenmem.engine import edit_checks as checks
from edenmem.engine import policy_changes
from edenmem.engine.edit_road import EditRoad, owner_fields, unchanged
from edenmem.engine.offload import in_thread
from edenmem.engine.reports import EditReport
from edenmem.errors import UsageError
from edenmem.models.changes import SetAgentToggles, WritePolicy
from edenmem.models.ids import new_id
from edenmem.models.memory import Policy
from edenmem.models.scope import Scope


class ScopeEdits(EditRoad):
    """Changes of policies and agents; see `edenmem.engine.editing.Editor`."""

    async def set_policy(
        self,
        scope: Scope,
        changes: Mapping[str, object],
        *,
        expected_version: int | None = None,
        reason: str = "",
        dry_run: bool = False,
    ) -> EditReport:
        """Change settings of one scope; None gives one back to the default of its kind.

        A shard exists as soon as it has a policy, so this is also how one is made.
        """
        if scope.shard_name is not None:
            policy_changes.check_shard_name(scope.shard_name)
        before = await in_thread(checks.check_scope_known, self._store, scope, new_shard=True)
        base = before or Policy(id=new_id(), **owner_fields(scope))
        checks.check_version("policy", base.version, expected_version)
        after = policy_changes.changed(base, changes)
        if before is not None and after == before:
            return unchanged("policy", before, dry_run)
        now = self._clock()
        after = msgspec.structs.replace(after, version=base.version + 1, updated_at=now)
        change = WritePolicy(policy=after, expected_version=base.version, at=now, reason=reason)
        return await self._apply(change, "policy", after.id, before, after, dry_run)

    async def pause(self, scope: Scope, *, reason: str = "", dry_run: bool = False) -> EditReport:
        """Let the scope keep what it has and take nothing new."""
        return await self.set_policy(scope, {"active": False}, reason=reason, dry_run=dry_run)

    async def resume(self, scope: Scope, *, reason: str = "", dry_run: bool = False) -> EditReport:
        """Let a paused scope take new memory again. Of any other nothing is written."""
        policy = await in_thread(checks.check_scope_known, self._store, scope)
        if policy is None or policy.active:
            unset = policy or Policy(id="", **owner_fields(scope))
            return unchanged("policy", unset, dry_run, why="it was not paused")
        return await self.set_policy(scope, {"active": True}, reason=reason, dry_run=dry_run)

    async def set_agent(
        self,
        agent_id: str,
        *,
        user_memory: bool | None = None,
        agent_memory: bool | None = None,
        reason: str = "",
        dry_run: bool = False,
    ) -> EditReport:
        """Switch an agent's user or agent memory on or off."""
        if user_memory is None and agent_memory is None:
            raise UsageError("nothing to change: name user memory, agent memory, or both")
        await in_thread(checks.check_agent_known, self._store, agent_id)
        before = await in_thread(self._store.agent, agent_id)
        assert before is not None
        change = SetAgentToggles(
            agent_id=agent_id,
            at=self._clock(),
            user_memory_enabled=user_memory,
            agent_memory_enabled=agent_memory,
            reason=reason,
        )
        toggles = {"user_memory_enabled": user_memory, "agent_memory_enabled": agent_memory}
        wanted = {name: value for name, value in toggles.items() if value is not None}
        after = msgspec.structs.replace(before, **wanted)
        if after == before:
            return unchanged("agent", before, dry_run)
        return await self._apply(change, "agent", agent_id, before, after, dry_run)
