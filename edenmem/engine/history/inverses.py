"""The way back of each kind of change to facts, reflections, settings and accounts.

Each way is judged on what there is now, not on what the log says: what somebody else wrote, or took
back by hand, counts alike. What is compared is what people and models read; versions, times and
vectors may differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from edenmem.engine.edits.editor import plain
from edenmem.engine.edits.policies import POLICY_FIELDS
from edenmem.models.changes import (
    AddAgent,
    AddFact,
    AddUser,
    AuditEntry,
    Change,
    HistoryEntry,
    RemoveAgent,
    RemoveFact,
    RemovePolicy,
    RemoveReflection,
    RemoveUser,
    RestoreReflection,
    RevertConsolidation,
    ReviseFact,
    ReviseReflection,
    SetAgentToggles,
    SetPrivacy,
    WriteConsolidation,
    WritePolicy,
)
from edenmem.models.host import Agent, User
from edenmem.models.memory import Consolidation, Fact, Policy, Reflection, content_hash
from edenmem.models.scope import Scope, ScopeKind
from edenmem.models.search import FactFilter
from edenmem.store.protocol.store import Store


class Now:
    """Facts and reflections that entries tell of, as they are."""

    def __init__(self, store: Store, entries: Sequence[AuditEntry]) -> None:
        facts = [entry for entry in entries if entry.target_type == "fact" and entry.scope]
        homes = list(dict.fromkeys(entry.scope for entry in facts if entry.scope is not None))
        self._facts = store.facts_by_ids(homes, [e.target_id for e in facts]) if facts else {}
        ids = [entry.target_id for entry in entries if entry.target_type == "reflection"]
        self._reflections = store.reflections_by_ids(ids) if ids else {}

    def fact(self, fact_id: str, home: Scope) -> Fact | None:
        """The fact, if it is in the scope."""
        found = self._facts.get(fact_id)
        return found if found is not None and found.home == home else None

    def reflection(self, reflection_id: str, home: Scope) -> Reflection | None:
        """The reflection, if it is in the scope."""
        found = self._reflections.get(reflection_id)
        return found if found is not None and found.home == home else None


class UndoOutcome(StrEnum):
    """What became of one entry, or would."""

    PLANNED = "planned"  # nothing was written: it can be done
    DONE = "done"
    ALREADY = "already"  # what it did is not so any more
    REFUSED = "refused"


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """The way back of one entry, judged on what there is now.

    ``change`` takes it back; None: there is nothing to do (``why`` says so) or no way, not even by
    force (``blocked``). ``differs``: the target is not as the entry left it, so that the way back
    takes later work away too. ``why`` says what is the matter. ``before`` and ``after`` are the
    target as it is and would be, without vectors.
    """

    change: Change | None = None
    differs: bool = False
    blocked: bool = False
    why: str = ""
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    by: tuple[str, ...] = ()  # ids of entries of other targets that are in the way
    notices: tuple[str, ...] = ()


class UndoStep(msgspec.Struct, frozen=True, kw_only=True):
    """One entry on its way back.

    ``entry`` is what was asked for, ``of`` what is taken back if that is another: the latest entry
    that made the same change again. ``undo_id`` is the id of the entry that takes it back.
    ``in_the_way`` are the later entries of the target, newest first; there may be ``more``.
    ``forced`` says that they were overruled, ``forceable`` that they can be.
    """

    entry: AuditEntry
    outcome: UndoOutcome
    undo_id: str
    of: AuditEntry | None = None
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    why: str = ""
    in_the_way: tuple[AuditEntry, ...] = ()
    more: int = 0
    forced: bool = False
    forceable: bool = False
    notices: tuple[str, ...] = ()


#: Why a change that wrote what was there already needs no way back.
NO_CHANGE = "it changed nothing"


def nothing_to_do(why: str, now: dict[str, Any] | None = None) -> Way:
    """What the entry did is not so any more."""
    return Way(why=why, before=now, after=now)


def no_way(why: str, now: dict[str, Any] | None = None, *, by: tuple[str, ...] = ()) -> Way:
    """It cannot be taken back, not even by force."""
    return Way(blocked=True, why=why, before=now, by=by)


class TextWays:
    """Finds the way back of texts, and where reflections went."""

    def __init__(self, store: Store, at: datetime, *, force: bool) -> None:
        self._store = store
        self._at = at
        self._force = force

    def _write_consolidation(self, entry: AuditEntry) -> Way:
        home = entry.scope
        assert home is not None
        old = _text_in(entry.before)
        new = msgspec.convert(entry.after, Consolidation)
        now = self._store.consolidations([home]).get(home)
        if now is None:
            return nothing_to_do("the text is not there any more")
        if old == new.consolidated_content and not new.absorbed_ids:
            return nothing_to_do(NO_CHANGE, plain(now))
        still = self._absorbed_since(now, new)
        differs = now.consolidated_content != new.consolidated_content or bool(still)
        # Whoever overrules later versions lets wait what went into them, too: their text goes.
        released = self._absorbed([*new.absorbed_ids, *(still if self._force else ())], now)
        if now.consolidated_content == old and not released:
            return nothing_to_do("the text says so already", plain(now))
        last = now.version if self._force else new.version
        change = RevertConsolidation(
            scope=home,
            expected_version=now.version,
            content=old,
            word_limit=_limit_in(entry.before) or now.word_limit,
            at=self._at,
            released_ids=tuple(each.id for each in released),
            reverted_versions=tuple(range(new.version, last + 1)),
        )
        return Way(
            change=change,
            differs=differs,
            before=plain(now),
            after=plain(_next(now, old, waiting=self._in_order(now, released))),
            notices=_told(released, "wait again to be consolidated"),
        )

    def _revert_consolidation(self, entry: AuditEntry) -> Way:
        """The way back of a way back: the text that was there, with what was in it."""
        home = entry.scope
        assert home is not None
        then = msgspec.convert(entry.before, Consolidation)
        new = msgspec.convert(entry.after, Consolidation)
        now = self._store.consolidations([home]).get(home)
        if now is None:
            return no_way("the text is not there any more")
        differs = now.consolidated_content != new.consolidated_content or bool(
            self._absorbed_since(now, new)
        )
        waiting = set(now.unabsorbed_ids)
        released = entry.released_ids
        absorbed = tuple(each for each in released if each in waiting)
        old = then.consolidated_content
        if now.consolidated_content == old and not absorbed:
            return nothing_to_do("the text says so already", plain(now))
        lost = len(released) - len(absorbed)
        left = tuple(each for each in now.unabsorbed_ids if each not in absorbed)
        common: dict[str, Any] = {
            "scope": home,
            "expected_version": now.version,
            "content": old,
            "at": self._at,
        }
        limit = then.word_limit or now.word_limit
        change: RevertConsolidation | WriteConsolidation
        if old:
            propagate = then.version in then.unpropagated_versions
            change = WriteConsolidation(
                **common, word_limit=limit, absorbed_ids=absorbed, propagate=propagate
            )
        else:
            change = RevertConsolidation(**common, word_limit=limit)
        return Way(
            change=change,
            differs=differs,
            before=plain(now),
            after=plain(_next(now, old, waiting=left)),
            notices=(f"{lost} reflections do not wait any more, and stay as they are",)
            if lost
            else (),
        )

    def _repair_buffer(self, entry: AuditEntry) -> Way:
        return no_way("a repair has no way back: it made a buffer agree with what is in it")

    # -- where reflections went --------------------------------------------------------------

    def _absorbed_by(self, reflection: Reflection) -> tuple[str, ...]:
        """The entry by which a reflection went into the text."""
        history = self._store.history("consolidation", "", scope=reflection.home)
        by = [each.change_id for each in history if reflection.id in each.absorbed_ids]
        return tuple(each for each in by[-1:] if each is not None)

    def _released_since(self, entry: AuditEntry) -> bool:
        """Whether the version that a removed reflection went into, or one before it, was taken
        back after the removal."""
        assert entry.scope is not None
        history = self._store.history("consolidation", "", scope=entry.scope)
        into = [each.version for each in history if entry.target_id in each.absorbed_ids]
        reverts = self._store.audit(
            scope=entry.scope, actions=["revert_consolidation"], since=entry.at
        )
        undone = self._store.audit_entries([each.undoes for each in reverts if each.undoes])
        return bool(into) and any(
            each.action == "write_consolidation" and _version_in(each.after) <= into[-1]
            for each in undone.values()
        )

    def _absorbed_since(self, now: Consolidation, then: Consolidation) -> list[str]:
        """What went into later versions, is in the text still, and was not when it was ``then``."""
        history = self._store.history("consolidation", "", scope=now.home)
        before = _absorbed_in(each for each in history if each.version <= then.version)
        inside = before - set(then.unabsorbed_ids)
        later = _absorbed_in(each for each in history if each.version > then.version)
        return [each.id for each in self._absorbed(later - inside, now)]

    def _absorbed(self, ids: Iterable[str], now: Consolidation) -> list[Reflection]:
        """Those that are there and in the text, in order of time."""
        found = self._store.reflections_by_ids(list(dict.fromkeys(ids))).values()
        inside = (each for each in found if each.absorbed and each.home == now.home)
        return sorted(inside, key=lambda each: (each.formed_at, each.id))

    def _in_order(self, now: Consolidation, released: Sequence[Reflection]) -> tuple[str, ...]:
        waiting = [*self._store.pending(now.home), *released]
        return tuple(
            each.id for each in sorted(waiting, key=lambda each: (each.formed_at, each.id))
        )


def _absorbed_in(versions: Iterable[HistoryEntry]) -> set[str]:
    return {each for version in versions for each in version.absorbed_ids}


def _text_in(document: dict[str, object] | None) -> str:
    return str((document or {}).get("consolidated_content", ""))


def _version_in(document: dict[str, object] | None) -> int:
    return msgspec.convert((document or {}).get("version", 0), int)


def _limit_in(document: dict[str, object] | None) -> int:
    return msgspec.convert((document or {}).get("word_limit", 0), int)


def _next(now: Consolidation, content: str, *, waiting: tuple[str, ...]) -> Consolidation:
    return msgspec.structs.replace(
        now,
        consolidated_content=content,
        version=now.version + 1,
        absorbed_ids=(),
        unabsorbed_ids=waiting,
    )


def _told(released: Sequence[Reflection], what: str) -> tuple[str, ...]:
    count = len(released)
    return (f"{count} reflection{'s' if count > 1 else ''} {what}",) if count else ()


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
        return Way(change=change, before=plain(now), after=plain(change.revise(now)))

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
