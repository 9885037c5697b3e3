"""The way back of each kind of change to facts, reflections, settings and accounts.

Each way is judged on what there is now, not on what the log says: what somebody else wrote, or took
back by hand, counts alike. What is compared is what people and models read; versions, times and
vectors may differ.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from edenmem.engine.edit_road import plain
from edenmem.engine.policy_changes import POLICY_FIELDS
from edenmem.engine.undo_now import Now
from edenmem.engine.undo_reports import NO_CHANGE, Way, no_way, nothing_to_do
from edenmem.engine.undo_texts import TextWays
from edenmem.models.changes import (
    AddAgent,
    AddFact,
    AddUser,
    AuditEntry,
    RemoveAgent,
    RemoveFact,
    RemovePolicy,
    RemoveReflection,
    RemoveUser,
    RestoreReflection,
    ReviseFact,
    ReviseReflection,
    SetAgentToggles,
    SetPrivacy,
    WritePolicy,
)
from edenmem.models.host import Agent, User
from edenmem.models.memory import Fact, Policy, Reflection, content_hash
from edenmem.models.scope import Scope, ScopeKind
from edenmem.models.search import FactFilter
from edenmem.store.protocol.store import Store

#: Entries of a fact that are looked at where it keeps another from coming back.
_READ = 20
_TOGGLES = ("user_memory_enabled", "agent_memory_enabled")


class Ways(TextWays):
    """Finds the way back of entries; the method for each kind is named after its tag."""

    def __init__(self, store: Store, now: Now, at: datetime, *, force: bool) -> None:
        super().__init__(store, at, force=force)
        self._now = now

    def back(self, entry: AuditEntry) -> Way:
        """The way back of ``entry``; the change has no id yet."""
        find: Callable[[AuditEntry], Way] | None = getattr(self, f"_{entry.action}", None)
        if find is None:
            return no_way(f"edenmem knows no way back of {entry.action!r}")
        if entry.before is None and entry.after is None:
            return no_way("what it changed was erased")
        return find(entry)

    # -- facts -------------------------------------------------------------------------------

    def _add_fact(self, entry: AuditEntry) -> Way:
        home = _home(entry)
        made = msgspec.convert(entry.after, Fact)
        now = self._now.fact(entry.target_id, home)
        if now is None:
            return nothing_to_do("the fact is not there any more")
        change = RemoveFact(scope=home, fact_id=now.id, expected_version=now.version, at=self._at)
        differs = (now.content, now.private) != (made.content, made.private)
        return Way(change=change, differs=differs, before=plain(now))

    def _revise_fact(self, entry: AuditEntry) -> Way:
        if entry.before is None:
            return self._add_fact(entry)  # its target had changed, so it was added instead
        if entry.after is None:
            return self._remove_fact(entry)  # it went in favour of one that had the text
        home = _home(entry)
        old, new = msgspec.convert(entry.before, Fact), msgspec.convert(entry.after, Fact)
        now = self._now.fact(entry.target_id, home)
        if now is None and old.content != new.content:
            return no_way("the fact was removed since; undo that first")
        if old.content == new.content or now is None:
            return self._drop_sources(now, old, new)
        if now.content == old.content:
            return nothing_to_do("the fact says so already", plain(now))
        twin = self._twin(home, old.content)
        notices = () if twin is None else (f"{now.id} goes in favour of {twin.id}",)
        change = ReviseFact(
            scope=home,
            fact_id=now.id,
            expected_version=now.version,
            content=old.content,
            at=self._at,
        )
        after = msgspec.structs.replace(
            now, content=old.content, version=now.version + 1, embedding_model=None
        )
        return Way(
            change=change,
            differs=now.content != new.content or twin is not None,
            why="" if twin is None else f"the scope has that text in another fact, {twin.id}",
            before=plain(now),
            after=None if twin is not None else plain(after),
            notices=notices,
        )

    def _drop_sources(self, now: Fact | None, old: Fact, new: Fact) -> Way:
        """The way back of a revision that only added sources."""
        added = set(new.source_message_ids) - set(old.source_message_ids)
        if now is None or not added & set(now.source_message_ids):
            return nothing_to_do(NO_CHANGE, plain(now))
        change = ReviseFact(
            scope=now.home,
            fact_id=now.id,
            expected_version=now.version,
            content=now.content,
            at=self._at,
            dropped_source_ids=tuple(sorted(added)),
        )
        return Way(change=change, before=plain(now), after=plain(change.revised(now)))

    def _remove_fact(self, entry: AuditEntry) -> Way:
        home = _home(entry)
        gone = msgspec.convert(entry.before, Fact)
        now = self._now.fact(entry.target_id, home)
        if now is not None:
            if now.content == gone.content:
                return nothing_to_do("the fact is there again", plain(now))
            return no_way("the fact is there again, with another text", plain(now))
        twin = self._twin(home, gone.content)
        if twin is not None:
            why = f"the scope has that text in another fact, {twin.id}"
            by = tuple(entry.id for entry in self._store.audit(target_id=twin.id, limit=_READ))
            return no_way(why, plain(twin), by=by)
        history = self._store.history("fact", entry.target_id, scope=home)
        snapshots = [each for each in history if each.snapshot is not None]
        own = [each for each in snapshots if each.change_id == entry.id] or snapshots
        kept = own[-1].snapshot if own else None
        fact = kept if kept is not None and kept.content == gone.content else gone
        version = max([each.version for each in history], default=fact.version) + 1
        back = msgspec.structs.replace(fact, version=version, updated_at=self._at)
        if back.embedding is None:
            back = msgspec.structs.replace(back, embedding_model=None)
        return Way(change=AddFact(fact=back), after=plain(back))

    def _twin(self, home: Scope, content: str) -> Fact | None:
        digest = content_hash(content)
        return self._store.facts_by_hashes(home, [digest]).get(digest)

    # -- privacy -----------------------------------------------------------------------------

    def _set_privacy(self, entry: AuditEntry) -> Way:
        home, was = _home(entry), bool((entry.before or {}).get("private"))
        if entry.before == entry.after:
            return nothing_to_do(NO_CHANGE, entry.before)
        now: Fact | Reflection | None
        if entry.target_type == "fact":
            now = self._now.fact(entry.target_id, home)
        else:
            now = self._now.reflection(entry.target_id, home)
        if now is None:
            return no_way(f"the {entry.target_type} was removed since; undo that first")
        if now.private == was:
            return nothing_to_do("already the case", plain(now))
        change = SetPrivacy(
            scope=home,
            target_type=entry.target_type,
            target_id=now.id,
            private=was,
            at=self._at,
        )
        after = msgspec.structs.replace(now, private=was)
        return Way(change=change, before=plain(now), after=plain(after))

    # -- reflections -------------------------------------------------------------------------

    def _add_reflection(self, entry: AuditEntry) -> Way:
        home = _home(entry)
        made = msgspec.convert(entry.after, Reflection)
        now = self._now.reflection(entry.target_id, home)
        if now is None:
            return nothing_to_do("the reflection is not there any more")
        absorbed = now.absorbed and not made.absorbed
        change = RemoveReflection(
            scope=home, reflection_id=now.id, expected_version=now.version, at=self._at
        )
        return Way(
            change=change,
            differs=absorbed or _said(now) != _said(made),
            why="it was consolidated since" if absorbed else "",
            by=self._absorbed_by(now) if absorbed else (),
            before=plain(now),
        )

    def _restore_reflection(self, entry: AuditEntry) -> Way:
        return self._add_reflection(entry)

    def _revise_reflection(self, entry: AuditEntry) -> Way:
        home = _home(entry)
        old, new = (msgspec.convert(each, Reflection) for each in (entry.before, entry.after))
        now = self._now.reflection(entry.target_id, home)
        if old.content == new.content:
            return nothing_to_do(NO_CHANGE, plain(now))
        if now is None:
            return no_way("the reflection was removed since; undo that first")
        if now.content == old.content:
            return nothing_to_do("the reflection says so already", plain(now))
        if now.absorbed:
            by = self._absorbed_by(now)
            return no_way("it was consolidated since; undo that first", plain(now), by=by)
        change = ReviseReflection(
            scope=home,
            reflection_id=now.id,
            expected_version=now.version,
            content=old.content,
            at=self._at,
        )
        after = msgspec.structs.replace(now, content=old.content, version=now.version + 1)
        differs = now.content != new.content
        return Way(change=change, differs=differs, before=plain(now), after=plain(after))

    def _remove_reflection(self, entry: AuditEntry) -> Way:
        home = _home(entry)
        gone = msgspec.convert(entry.before, Reflection)
        now = self._now.reflection(entry.target_id, home)
        if now is not None:
            if now.content == gone.content:
                return nothing_to_do("the reflection is there again", plain(now))
            return no_way("the reflection is there again, with another text", plain(now))
        back = msgspec.structs.replace(gone, version=gone.version + 1)
        if gone.absorbed and self._released_since(entry):
            # What it went into was taken back while it was away: it has to wait again.
            back = msgspec.structs.replace(
                back, absorbed=False, absorbed_at=None, consolidated_into=None
            )
        text = self._store.consolidations([home]).get(home)
        change = RestoreReflection(reflection=back, word_limit=text.word_limit if text else 0)
        return Way(change=change, after=plain(back))

    # -- policies and toggles ----------------------------------------------------------------

    def _write_policy(self, entry: AuditEntry) -> Way:
        home = _home(entry)
        new = msgspec.convert(entry.after, Policy)
        now = self._store.policies([home]).get(home)
        if entry.before is None:
            return self._policy_away(home, new, now)
        old = msgspec.convert(entry.before, Policy)
        if _governs(old) == _governs(new):
            return nothing_to_do(NO_CHANGE, plain(now))
        if now is None:
            return no_way("the policy was removed since; undo that first")
        if _governs(now) == _governs(old):
            return nothing_to_do("the policy says so already", plain(now))
        return self._policy_back(old, now, differs=_governs(now) != _governs(new))

    def _policy_away(self, home: Scope, made: Policy, now: Policy | None) -> Way:
        if now is None:
            return nothing_to_do("the policy is not there any more")
        why = ""
        if home.kind is ScopeKind.SHARD and self._has_memory(home):
            why = "the shard has memory, which nobody would see any more"
        change = RemovePolicy(scope=home, expected_version=now.version, at=self._at)
        differs = bool(why) or _governs(now) != _governs(made)
        return Way(change=change, differs=differs, why=why, before=plain(now))

    def _remove_policy(self, entry: AuditEntry) -> Way:
        home = _home(entry)
        old = msgspec.convert(entry.before, Policy)
        now = self._store.policies([home]).get(home)
        if now is not None and _governs(now) == _governs(old):
            return nothing_to_do("the policy is there again", plain(now))
        return self._policy_back(old, now, differs=now is not None)

    def _policy_back(self, old: Policy, now: Policy | None, *, differs: bool) -> Way:
        version = now.version if now is not None else 0
        change = WritePolicy(policy=old, expected_version=version, at=self._at)
        after = msgspec.structs.replace(old, version=version + 1, updated_at=self._at)
        return Way(change=change, differs=differs, before=plain(now), after=plain(after))

    def _has_memory(self, home: Scope) -> bool:
        text = self._store.consolidations([home]).get(home)
        return (
            any(self._store.facts(FactFilter(scopes=(home,)), limit=1))
            or any(self._store.reflections([home], limit=1))
            or (text is not None and bool(text.consolidated_content))
        )

    def _set_agent_toggles(self, entry: AuditEntry) -> Way:
        before, after = entry.before or {}, entry.after or {}
        turned = [name for name in _TOGGLES if before.get(name) != after.get(name)]
        now = self._store.agent(entry.target_id)
        if not turned:
            return nothing_to_do(NO_CHANGE, plain(now))
        if now is None:
            return no_way("the agent is not there any more")
        old: dict[str, Any] = {name: bool(before[name]) for name in turned}
        if all(getattr(now, name) is value for name, value in old.items()):
            return nothing_to_do("already the case", plain(now))
        change = SetAgentToggles(agent_id=now.id, at=self._at, **old)
        differs = any(getattr(now, name) is not after[name] for name in turned)
        then = msgspec.structs.replace(now, **old)
        return Way(change=change, differs=differs, before=plain(now), after=plain(then))

    # -- agents and accounts -----------------------------------------------------------------

    def _add_agent(self, entry: AuditEntry) -> Way:
        now = self._store.agent(entry.target_id)
        if now is None:
            return nothing_to_do("the agent is not there any more")
        used = (
            self._store.sessions(agent_id=now.id, limit=1),
            (each for each in self._store.scopes(agent_id=now.id) if self._is_used(each.scope)),
        )
        if any(map(any, used)):
            return no_way("the agent has sessions or memory", plain(now))
        return Way(change=RemoveAgent(agent_id=now.id), before=plain(now))

    def _add_user(self, entry: AuditEntry) -> Way:
        now = self._store.user(entry.target_id)
        if now is None:
            return nothing_to_do("the account is not there any more")
        homes = (Scope.user(agent.id, now.id) for agent in self._store.agents())
        if any(self._store.sessions(user_id=now.id, limit=1)) or any(map(self._is_used, homes)):
            return no_way("the person has sessions or memory", plain(now))
        return Way(change=RemoveUser(user_id=now.id), before=plain(now))

    def _is_used(self, scope: Scope) -> bool:
        return self._has_memory(scope) or bool(self._store.policies([scope]))

    def _remove_agent(self, entry: AuditEntry) -> Way:
        now = self._store.agent(entry.target_id)
        if now is not None:
            return nothing_to_do("the agent is there again", plain(now))
        agent = msgspec.convert(entry.before, Agent)
        return Way(change=AddAgent(agent=agent), after=plain(agent))

    def _remove_user(self, entry: AuditEntry) -> Way:
        now = self._store.user(entry.target_id)
        if now is not None:
            return nothing_to_do("the account is there again", plain(now))
        user = msgspec.convert(entry.before, User)
        return Way(change=AddUser(user=user), after=plain(user))


def _home(entry: AuditEntry) -> Scope:
    assert entry.scope is not None
    return entry.scope


def _said(reflection: Reflection) -> tuple[str, bool, bool]:
    return reflection.content, reflection.private, reflection.absorbed


def _governs(policy: Policy) -> dict[str, Any]:
    return {name: getattr(policy, name) for name in POLICY_FIELDS}
