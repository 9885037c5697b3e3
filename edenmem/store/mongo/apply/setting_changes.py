"""Changes to what governs memory: privacy, policies, the toggles of agents."""

from __future__ import annotations

from typing import Any

import msgspec
from pymongo.errors import DuplicateKeyError

from edenmem.errors import ScopeError
from edenmem.models.changes import (
    ChangeResult,
    ChangeStatus,
    RemovePolicy,
    SetAgentToggles,
    SetPrivacy,
    WritePolicy,
)
from edenmem.models.ids import utc_now
from edenmem.models.memory import Policy
from edenmem.store.mongo.apply.ledger import LedgerPart, Run, result
from edenmem.store.mongo.apply.reflection_changes import remember, remembers
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core.collection import Document
from edenmem.store.mongo.core.filters import object_id, owner_fields, policy_id
from edenmem.store.mongo.host.host_codec import agent_from
from edenmem.store.mongo.memory.history import plain


class SettingChangesPart(LedgerPart):
    """Sets privacy, policies and toggles, each by one write on its document."""

    def _set_privacy(self, run: Run, change: SetPrivacy) -> ChangeResult:
        collections = {"fact": self._facts, "reflection": self._reflections}
        collection = collections.get(change.target_type)
        if collection is None:
            detail = f"a {change.target_type} cannot be private"
            return result(change, ChangeStatus.CONFLICT, change.target_id, detail)
        key = {"_id": object_id(change.target_id)}
        document = collection.find_one(key, codec.NO_VECTOR)
        try:
            target = _memory_from(change.target_type, document) if document else None
            inside = target is not None and target.home == change.scope
        except ScopeError:
            inside = False
        if target is None or not inside:
            detail = f"there is no such {change.target_type}"
            return result(change, ChangeStatus.MISSING, change.target_id, detail)
        entry = run.entry(
            change,
            target_type=change.target_type,
            target_id=target.id,
            agent_id=target.agent_id,
            scope=change.scope,
            before=plain(target),
            after=plain(msgspec.structs.replace(target, private=change.private)),
        )
        if not self._begin(run, entry):
            return run.answer(change)
        # Not conditional: to set it twice is to set it once.
        collection.update_one(key, {"$set": {"private": change.private, "updatedAt": utc_now()}})
        return run.applied(change, target.id, change.scope)

    def _write_policy(self, run: Run, change: WritePolicy) -> ChangeResult:
        scope = change.policy.home
        key = policy_id(scope)
        document = self._policies.find_one({"_id": key}) or {"_id": key}
        before = codec.policy_from(document)
        version = before.version if before else 0
        policy_key = before.id if before else change.policy.id
        if change.id in run.resumed and remembers(document, change.id):
            return run.already(change, policy_key, scope)
        if version != change.expected_version:
            detail = f"the policy is at version {version}, not {change.expected_version}"
            return result(change, ChangeStatus.CONFLICT, policy_key, detail)
        after = msgspec.structs.replace(
            change.policy, id=policy_key, version=version + 1, updated_at=change.at
        )
        entry = run.entry(
            change,
            target_type="policy",
            target_id=policy_key,
            agent_id=scope.agent_id,
            scope=scope,
            before=plain(before) if before else None,
            after=plain(after),
        )
        if not self._begin(run, entry):
            return run.answer(change)
        if self._policy_written(document, after, change):
            return run.applied(change, policy_key, scope)
        run.resumed.add(change.id)  # by now it may have been made by a twin of this run
        return self._write_policy(run, change)

    def _remove_policy(self, run: Run, change: RemovePolicy) -> ChangeResult:
        document = self._policies.find_one({"_id": policy_id(change.scope)})
        before = codec.policy_from(document) if document is not None else None
        if change.id in run.resumed and document is not None and remembers(document, change.id):
            return run.already(change, codec.text_id(document.get("policy_id")) or "", change.scope)
        if document is None or before is None:
            return result(change, ChangeStatus.MISSING, "", "there is no such policy")
        if before.version != change.expected_version:
            detail = f"the policy is at version {before.version}, not {change.expected_version}"
            return result(change, ChangeStatus.CONFLICT, before.id, detail)
        entry = run.entry(
            change,
            target_type="policy",
            target_id=before.id,
            agent_id=change.scope.agent_id,
            scope=change.scope,
            before=plain(before),
        )
        if not self._begin(run, entry):
            return run.answer(change)
        # The document stays: it counts the scope's revisions, and knows this change.
        gone = dict.fromkeys((*codec.POLICY_FIELDS, "version", "updated_at"), "")
        update = {"$unset": gone, "$set": {"updatedAt": utc_now()}, **remember(change.id)}
        if self._policies.update_one(codec.version_filter(document), update):
            return run.applied(change, before.id, change.scope)
        run.resumed.add(change.id)  # by now it may have been made by a twin of this run
        return self._remove_policy(run, change)

    def _policy_written(self, document: Document, after: Policy, change: WritePolicy) -> bool:
        now = utc_now()
        update = {
            "$set": {
                **owner_fields(after.home),
                **{name: getattr(after, name) for name in codec.POLICY_FIELDS},
                "policy_id": object_id(after.id),
                "version": after.version,
                "updated_at": after.updated_at,
                "updatedAt": now,
            },
            "$setOnInsert": {"createdAt": now},
            **remember(change.id),
        }
        try:
            return bool(
                self._policies.update_one(
                    codec.version_filter(document), update, upsert=change.expected_version == 0
                )
            )
        except DuplicateKeyError:  # the document was made meanwhile
            return False

    def _set_toggles(self, run: Run, change: SetAgentToggles) -> ChangeResult:
        key = {"_id": object_id(change.agent_id), "type": "agent", "deleted": {"$ne": True}}
        document = self._users.find_one(key)
        if document is None:
            detail = "there is no such agent"
            return result(change, ChangeStatus.MISSING, change.agent_id, detail)
        wanted = {
            "user_memory_enabled": change.user_memory_enabled,
            "agent_memory_enabled": change.agent_memory_enabled,
        }
        fields = {name: value for name, value in wanted.items() if value is not None}
        agent = agent_from(document)
        entry = run.entry(
            change,
            target_type="agent",
            target_id=agent.id,
            agent_id=agent.id,
            scope=None,
            before=plain(agent),
            after=plain(msgspec.structs.replace(agent, **fields)),
        )
        if not self._begin(run, entry):
            return run.answer(change)
        self._users.update_one(key, {"$set": {**fields, "updatedAt": utc_now()}})
        return run.applied(change, agent.id, None)


def _memory_from(target_type: str, document: Document) -> Any:
    read = codec.fact_from if target_type == "fact" else codec.reflection_from
    return read(document)
