"""The inverse of a change: from the current state to the state before an entry of the log.

An entry is judged by the current state: later writes and manual changes count the same. If later
changes led back to the state after the entry, the log decides (see `is_overridden_by`). Compared is
what people and models read, and its sources; versions, times and vectors may differ. To undo
several entries, newest first: `invert` one, `plan` its change, `fold` both `State` and `Past`, and
continue with the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

import msgspec

from edenmem.memory.effect import Effect, Model
from edenmem.memory.facts import fact_in, key_words
from edenmem.memory.outcome import plain
from edenmem.memory.reflections import reflection_in
from edenmem.memory.requirements import Needs
from edenmem.memory.state import State
from edenmem.models.changes import (
    EXPIRED,
    AddAgent,
    AddFact,
    AddUser,
    AuditEntry,
    Change,
    HistoryEntry,
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
    WriteConsolidation,
    WritePolicy,
)
from edenmem.models.host import Agent, User
from edenmem.models.ids import derived_id
from edenmem.models.memory import (
    Consolidation,
    Fact,
    FactFields,
    Held,
    Policy,
    Reflection,
    content_hash,
)
from edenmem.models.scope import Scope, ScopeKind

#: The reason for changes that wrote what already existed.
NO_CHANGE = "it changed nothing"

#: Kinds of changes to reflections that cannot be undone after consolidation.
_OF_REFLECTIONS = ("add_reflection", "revise_reflection", "restore_reflection")
_TOGGLES = ("user_memory_enabled", "agent_memory_enabled")


def undo_id(entry_id: str) -> str:
    """Return the ID of the change, and so of the entry, that undoes an entry."""
    return derived_id("undo", entry_id)


class Inverse(msgspec.Struct, frozen=True, kw_only=True):
    """The inverse of one entry.

    Attributes:
        change: The change that undoes the entry; None if nothing is to do (see ``why``) or it
            is impossible.
        blocked: Whether the undo is impossible, even by force.
        differs: Whether the target has changed since; the change discards later work too.
        why: The reason.
        now: The current target.
        by: IDs of entries of other targets that block it.
        rival: The ID of another target that blocks it, regardless of what changed that target.
        notices: Notes on the change for the reader.
    """

    change: Change | None = None
    blocked: bool = False
    differs: bool = False
    why: str = ""
    now: Model | None = None
    by: tuple[str, ...] = ()
    rival: str = ""
    notices: tuple[str, ...] = ()


#: By type of target: the fields that people and models read (None: all but those of versions).
_READ = {
    "fact": {"content", "private", "unconfirmed", *FactFields.__struct_fields__},
    "reflection": {"content", "private", "unconfirmed"},
    "held": {"content"},
    "consolidation": {"consolidated_content"},
    "policy": None,
    "agent": set(_TOGGLES),
    "user": set[str](),
}
_OF_VERSIONS = {"id", "version", "updated_at"}


def is_overridden_by(entry: AuditEntry, later: AuditEntry, now: Model | None) -> bool:
    """Return whether a later change of the same fields is in effect, so that undoing overrides it.

    Needed where the state ``now`` equals the one after the entry: delete, restore, delete, and
    undo the first.
    """
    changed, then = _changed(later), _read(later.target_type, later.after)
    state = _read(later.target_type, plain(now))
    stands = all(state.get(name) == then.get(name) for name in changed)
    return bool(changed & _changed(entry)) and stands


def _changed(entry: AuditEntry) -> set[str]:
    before, after = (_read(entry.target_type, each) for each in (entry.before, entry.after))
    return {name for name in before | after if before.get(name) != after.get(name)}


def _read(target_type: str, document: dict[str, Any] | None) -> dict[str, Any]:
    """Return the read fields of a document, and whether it exists."""
    if document is None:
        return {}
    fields = _READ.get(target_type)
    names = document.keys() - _OF_VERSIONS if fields is None else document.keys() & fields
    return {"": True, **{name: document[name] for name in names}}


class Past(msgspec.Struct, kw_only=True):
    """The log's and history's data on entries, beyond the `State` of their targets.

    Attributes:
        snapshots: By the ID of an entry that removed a fact: the fact, with its vector.
        versions: By scope: all versions of its text, oldest first.
        reverts: By scope: when versions of its text were reverted, and which.
        contents: By shard: the number of its facts and reflections in the store.
        grown: By shard: the growth by folded effects.
    """

    snapshots: dict[str, Fact] = msgspec.field(default_factory=dict)
    versions: dict[Scope, tuple[HistoryEntry, ...]] = msgspec.field(default_factory=dict)
    reverts: dict[Scope, tuple[tuple[datetime, int], ...]] = msgspec.field(default_factory=dict)
    contents: dict[Scope, int] = msgspec.field(default_factory=dict)
    grown: dict[Scope, int] = msgspec.field(default_factory=dict)

    def fold(self, effect: Effect) -> None:
        """Update it with an effect, as `edenmem.memory.fold` updates the state."""
        for version in effect.versions:
            if version.target_type == "consolidation" and version.scope in self.versions:
                self.versions[version.scope] += (version,)
        for touch in effect.touches:
            more = touch.facts + touch.reflections
            if more and touch.scope.kind is ScopeKind.SHARD:
                self.grown[touch.scope] = self.grown.get(touch.scope, 0) + more


class PastNeeds(msgspec.Struct, kw_only=True):
    """What to load into a `Past`; the field of the same name answers each field."""

    snapshots: list[AuditEntry] = msgspec.field(default_factory=list)
    versions: set[Scope] = msgspec.field(default_factory=set)
    reverts: dict[Scope, datetime] = msgspec.field(default_factory=dict)  # since when
    contents: set[Scope] = msgspec.field(default_factory=set)


def past_needs(entries: Iterable[AuditEntry]) -> PastNeeds:
    """Name what the past must contain before `inverse_needs` is called for these entries.

    `versions_needed` names the versions of texts with absorbed reflections, once those are known.
    """
    found = PastNeeds()
    for entry in entries:
        scope = entry.scope
        match entry.action:
            case "remove_fact" | "revise_fact" if entry.before and entry.after is None:
                found.snapshots.append(entry)
            case "write_consolidation" | "revert_consolidation" if scope is not None:
                found.versions.add(scope)
            case "remove_reflection" if scope is not None and (entry.before or {}).get("absorbed"):
                found.versions.add(scope)
                found.reverts[scope] = min(entry.at, found.reverts.get(scope, entry.at))
            case "write_policy" if _makes_shard(entry) and scope is not None:
                found.contents.add(scope)
    return found


def versions_needed(entries: Iterable[AuditEntry], state: State) -> set[Scope]:
    """Return the scopes of reflections that were consolidated since their entries."""
    found = set()
    for entry in entries:
        if entry.action in _OF_REFLECTIONS and entry.scope is not None:
            now = state.reflections.get(entry.target_id)
            if now is not None and now.absorbed:
                found.add(entry.scope)
    return found


def inverse_needs(entries: Iterable[AuditEntry], past: Past) -> Needs:
    """Name what the state must contain to invert these entries and plan the inverses."""
    found = Needs()
    for entry in entries:
        if entry.before is None and entry.after is None:
            continue
        match entry.target_type:
            case "fact":
                found.facts.add(entry.target_id)
                found.heads.add(("fact", entry.target_id))
                content, key = ((entry.before or {}).get(name) for name in ("content", "key"))
                if entry.scope is not None and isinstance(content, str):
                    found.owners.add((entry.scope, content_hash(content, key)))
                if entry.scope is not None and key is not None:
                    found.keys.add((entry.scope, key))
            case "reflection":
                found.reflections.add(entry.target_id)
                if entry.scope is not None:
                    found.texts.add(entry.scope)
            case "held":
                found.held.add(entry.target_id)
            case "consolidation" if entry.scope is not None:
                found.texts.add(entry.scope)
                found.buffers.add(entry.scope)
                found.reflections |= _ingredients(entry, past)
            case "policy" if entry.scope is not None:
                found.policies.add(entry.scope)
                if _makes_shard(entry):
                    found.texts.add(entry.scope)
            case "agent" | "user" as kind:
                (found.agents if kind == "agent" else found.users).add(entry.target_id)
                found.ids.add(entry.target_id)
                found.used.add((kind, entry.target_id))
                name = (entry.before or entry.after or {}).get("username")
                if isinstance(name, str):
                    found.names.add((kind, name))
    return found


def invert(entry: AuditEntry, state: State, past: Past, *, at: datetime) -> Inverse:
    """Find the inverse of an entry.

    Args:
        entry: The entry to undo: the one in force, if it was undone and redone.
        state: The current state; it must contain what `inverse_needs` names.
        past: The past; it must contain what `past_needs` and `versions_needed` name.
        at: The time of the change.
    """
    find = _INVERSES.get(entry.action)
    if find is None:
        return _no_way(f"cannot be undone: {entry.action!r}")
    if entry.before is None and entry.after is None:
        return _no_way("what it changed was erased")
    found = find(entry, state, past, at)
    if found.change is None:
        return found
    change = msgspec.structs.replace(found.change, id=undo_id(entry.id), undoes=entry.id)
    return msgspec.structs.replace(found, change=change)


def _nothing(why: str, now: Model | None = None) -> Inverse:
    """Return an inverse that does nothing: the entry is no longer in effect."""
    return Inverse(why=why, now=now)


def _no_way(
    why: str, now: Model | None = None, *, by: tuple[str, ...] = (), rival: str = ""
) -> Inverse:
    """Return an inverse that is blocked, even by force."""
    return Inverse(blocked=True, why=why, now=now, by=by, rival=rival)


def _home(entry: AuditEntry) -> Scope:
    assert entry.scope is not None
    return entry.scope


# -- facts ---------------------------------------------------------------------------------------


def _undo_add_fact(entry: AuditEntry, state: State, past: Past, at: datetime) -> Inverse:
    home = _home(entry)
    made = msgspec.convert(entry.after, Fact)
    now = fact_in(state, home, entry.target_id)
    if now is None:
        return _nothing("the fact no longer exists")
    learned = set(now.source_message_ids) - set(made.source_message_ids)
    return Inverse(
        change=RemoveFact(scope=home, fact_id=now.id, expected_version=now.version, at=at),
        differs=bool(learned) or now.private != made.private or bool(_changed_parts(now, made)),
        now=now,
    )


def _undo_revise_fact(entry: AuditEntry, state: State, past: Past, at: datetime) -> Inverse:
    if entry.before is None:  # its target had changed, so it was added instead
        return _undo_add_fact(entry, state, past, at)
    if entry.after is None:  # it went in favor of one that had the text
        return _undo_remove_fact(entry, state, past, at)
    home = _home(entry)
    old, new = msgspec.convert(entry.before, Fact), msgspec.convert(entry.after, Fact)
    now = fact_in(state, home, entry.target_id)
    changed = _changed_parts(old, new)
    if not changed:
        return _restore_marks(now, old, new, at)
    if now is None:
        return _no_way("the fact was removed since; undo that first")
    if not changed & _changed_parts(now, old):
        what = "text" if changed == {"content"} else "state"
        return _nothing(f"the fact already has this {what}", now)
    parts = {name: getattr(old if name in changed else now, name) for name in _PARTS}
    content, fields = parts.pop("content"), FactFields(**parts)
    holder = None if fields.key is None else state.keys.get((home, fields.key))
    if holder not in (None, now.id):
        return _no_way(key_words(str(holder)), now, rival=str(holder))
    twin = state.owners.get((home, content_hash(content, fields.key)))
    is_taken = twin is not None and twin != now.id
    return Inverse(
        change=_with_sources(now, old, new, content, at, fields),
        differs=is_taken or bool(changed & _changed_parts(now, new)),
        why=_twin_words(twin) if is_taken else "",
        now=now,
        notices=(f"{now.id} goes in favor of {twin}",) if is_taken else (),
    )


#: What a person or another system writes into a fact; each part is undone on its own.
_PARTS = ("content", *FactFields.__struct_fields__)


def _changed_parts(one: Fact, other: Fact) -> set[str]:
    return {name for name in _PARTS if getattr(one, name) != getattr(other, name)}


def _restore_marks(now: Fact | None, old: Fact, new: Fact, at: datetime) -> Inverse:
    """Invert a revision of sources, related users or doubts that kept text and fields."""
    if now is None:
        return _nothing(NO_CHANGE)
    change = _with_sources(now, old, new, now.content, at)
    then = change.revise(now)
    if (_origins(then), then.unconfirmed) == (_origins(now), now.unconfirmed):
        return _nothing(NO_CHANGE, now)
    return Inverse(change=change, now=now)


def _origins(fact: Fact) -> tuple[set[str], set[str]]:
    return set(fact.source_message_ids), set(fact.related_users)


def _with_sources(
    now: Fact, old: Fact, new: Fact, content: str, at: datetime, fields: FactFields | None = None
) -> ReviseFact:
    """Revise a fact: drop the sources and users added by ``new``, restore lost ones and times.

    The old quote and doubts return with their text, unless others came since.
    """
    (sources, users), (old_sources, old_users) = _origins(new), _origins(old)
    is_same = (now.quote, now.unconfirmed) == (new.quote, new.unconfirmed)
    is_back = is_same and content == old.content
    return ReviseFact(
        scope=now.home,
        fact_id=now.id,
        expected_version=now.version,
        content=content,
        at=at,
        source_message_ids=tuple(s for s in old.source_message_ids if s not in sources),
        dropped_source_ids=tuple(s for s in now.source_message_ids if s in sources - old_sources),
        related_users=tuple(u for u in old.related_users if u not in users),
        dropped_users=tuple(u for u in now.related_users if u in users - old_users),
        quote=old.quote if is_back else "",
        unconfirmed=old.unconfirmed if is_back else None,
        times=old.times if now.times == new.times else now.times,
        fields=fields,
    )


def _undo_remove_fact(entry: AuditEntry, state: State, past: Past, at: datetime) -> Inverse:
    home = _home(entry)
    gone = msgspec.convert(entry.before, Fact)
    now = fact_in(state, home, entry.target_id)
    if now is not None:
        if now.content == gone.content:
            return _nothing("the fact exists again", now)
        return _no_way("the fact exists again, with another text", now)
    twin = state.owners.get((home, content_hash(gone.content, gone.key)))
    if twin is not None:
        return _no_way(_twin_words(twin), state.facts.get(twin), rival=twin)
    holder = None if gone.key is None else state.keys.get((home, gone.key))
    if holder is not None:
        return _no_way(key_words(holder), state.facts.get(holder), rival=holder)
    kept = past.snapshots.get(entry.id)
    fact = kept if kept is not None and kept.content == gone.content else gone
    if entry.reason == EXPIRED:  # or the next run would remove it again
        fact = fact.with_fields(fact.fields.until(None))
    head = state.heads.get(("fact", entry.target_id))
    version = max(fact.version, head.version if head is not None else 0) + 1
    back = msgspec.structs.replace(fact, version=version, updated_at=at)
    if back.embedding is None:
        back = msgspec.structs.replace(back, embedding_model=None)
    return Inverse(change=AddFact(fact=back))


def _twin_words(twin: str | None) -> str:
    return f"the scope has that text in another fact, {twin}"


def _undo_set_privacy(entry: AuditEntry, state: State, past: Past, at: datetime) -> Inverse:
    home, was = _home(entry), bool((entry.before or {}).get("private"))
    find = fact_in if entry.target_type == "fact" else reflection_in
    now = find(state, home, entry.target_id)
    if entry.before == entry.after:
        return _nothing(NO_CHANGE, now)
    if now is None:
        return _no_way(f"the {entry.target_type} was removed since; undo that first")
    if now.private == was:
        return _nothing("already the case", now)
    change = SetPrivacy(
        scope=home, target_type=entry.target_type, target_id=now.id, private=was, at=at
    )
    return Inverse(change=change, now=now)


# -- reflections ---------------------------------------------------------------------------------


def _undo_add_reflection(entry: AuditEntry, state: State, past: Past, at: datetime) -> Inverse:
    home = _home(entry)
    made = msgspec.convert(entry.after, Reflection)
    now = reflection_in(state, home, entry.target_id)
    if now is None:
        return _nothing("the reflection no longer exists")
    went_in = now.absorbed and not made.absorbed
    change = RemoveReflection(scope=home, reflection_id=now.id, expected_version=now.version, at=at)
    return Inverse(
        change=change,
        differs=_content(now) != _content(made),
        why="it was consolidated since" if went_in else "",
        now=now,
        by=_absorbed_by(now, past) if went_in else (),
    )


def _undo_revise_reflection(entry: AuditEntry, state: State, past: Past, at: datetime) -> Inverse:
    home = _home(entry)
    old, new = (msgspec.convert(each, Reflection) for each in (entry.before, entry.after))
    now = reflection_in(state, home, entry.target_id)
    was, then = (old.content, old.unconfirmed), (new.content, new.unconfirmed)
    if was == then:
        return _nothing(NO_CHANGE, now)
    if now is None:
        return _no_way("the reflection was removed since; undo that first")
    if (now.content, now.unconfirmed) == was:
        return _nothing("the reflection already has this text", now)
    if now.absorbed:
        why = "it was consolidated since; undo that first"
        return _no_way(why, now, by=_absorbed_by(now, past))
    change = ReviseReflection(
        scope=home,
        reflection_id=now.id,
        expected_version=now.version,
        content=old.content,
        at=at,
        unconfirmed=old.unconfirmed,
    )
    return Inverse(change=change, differs=(now.content, now.unconfirmed) != then, now=now)


def _undo_remove_reflection(entry: AuditEntry, state: State, past: Past, at: datetime) -> Inverse:
    home = _home(entry)
    gone = msgspec.convert(entry.before, Reflection)
    now = reflection_in(state, home, entry.target_id)
    if now is not None:
        if now.content == gone.content:
            return _nothing("the reflection exists again", now)
        return _no_way("the reflection exists again, with another text", now)
    back = msgspec.structs.replace(gone, version=gone.version + 1)
    if gone.absorbed and _released_since(entry, past):
        # Its version was reverted in the meantime, so it is pending again.
        back = msgspec.structs.replace(
            back, absorbed=False, absorbed_at=None, consolidated_into=None
        )
    text = state.texts.get(home)
    limit = text.word_limit if text is not None else 0
    return Inverse(change=RestoreReflection(reflection=back, word_limit=limit))


def _content(reflection: Reflection) -> tuple[str, bool, bool]:
    return reflection.content, reflection.private, reflection.absorbed


def _absorbed_by(reflection: Reflection, past: Past) -> tuple[str, ...]:
    """Return the entry that consolidated a reflection into the text."""
    history = past.versions.get(reflection.home, ())
    by = [each.change_id for each in history if reflection.id in each.absorbed_ids]
    return tuple(each for each in by[-1:] if each is not None)


def _released_since(entry: AuditEntry, past: Past) -> bool:
    """Return whether the version with a removed reflection, or an earlier one, was reverted."""
    home = _home(entry)
    history = past.versions.get(home, ())
    into = [each.version for each in history if entry.target_id in each.absorbed_ids]
    reverts = past.reverts.get(home, ())
    return bool(into) and any(at >= entry.at and version <= into[-1] for at, version in reverts)


# -- texts ---------------------------------------------------------------------------------------


def _undo_write_text(entry: AuditEntry, state: State, past: Past, at: datetime) -> Inverse:
    home = _home(entry)
    old = _text_in(entry)
    new = msgspec.convert(entry.after, Consolidation)
    now = state.texts.get(home)
    if now is None:
        return _nothing("the text no longer exists")
    if old == new.consolidated_content and not new.absorbed_ids:
        return _nothing(NO_CHANGE, now)
    released = _find_absorbed(new.absorbed_ids, home, state)
    if now.consolidated_content == old and not released:
        return _nothing("the text already has this content", now)
    still = _absorbed_since(new, home, state, past)
    differs = now.consolidated_content != new.consolidated_content or bool(still)
    if differs:  # overruling later versions releases their reflections too
        released = _find_absorbed([*new.absorbed_ids, *(each.id for each in still)], home, state)
    last = now.version if differs else new.version
    change = RevertConsolidation(
        scope=home,
        expected_version=now.version,
        content=old,
        word_limit=_limit_before(entry, now),
        at=at,
        released_ids=tuple(each.id for each in released),
        reverted_versions=tuple(range(new.version, last + 1)),
        fixed=msgspec.convert(entry.before, Consolidation).fixed if entry.before else (),
    )
    count = len(released)
    told = f"{count} reflection{'s are' if count > 1 else ' is'} pending again"
    return Inverse(change=change, differs=differs, now=now, notices=(told,) if count else ())


def _undo_revert_text(entry: AuditEntry, state: State, past: Past, at: datetime) -> Inverse:
    """Restore the text before a revert, with its reflections."""
    home = _home(entry)
    then = msgspec.convert(entry.before, Consolidation)
    new = msgspec.convert(entry.after, Consolidation)
    now = state.texts.get(home)
    if now is None:
        return _no_way("the text no longer exists")
    still = _absorbed_since(new, home, state, past)
    differs = now.consolidated_content != new.consolidated_content or bool(still)
    released, waiting = entry.released_ids, set(state.buffer(home))
    absorbed = tuple(each for each in released if each in waiting)
    old = then.consolidated_content
    if now.consolidated_content == old and not absorbed:
        return _nothing("the text already has this content", now)
    limit = _limit_before(entry, now)
    change: RevertConsolidation | WriteConsolidation
    if old:
        change = WriteConsolidation(
            scope=home,
            expected_version=now.version,
            content=old,
            word_limit=limit,
            at=at,
            absorbed_ids=absorbed,
            propagate=then.version in then.unpropagated_versions,
            fixed=then.fixed,
        )
    else:
        change = RevertConsolidation(
            scope=home, expected_version=now.version, content=old, word_limit=limit, at=at
        )
    lost = len(released) - len(absorbed)
    told = f"{lost} reflection{'s are' if lost > 1 else ' is'} no longer pending; left unchanged"
    return Inverse(change=change, differs=differs, now=now, notices=(told,) if lost else ())


def _undo_repair_buffer(entry: AuditEntry, state: State, past: Past, at: datetime) -> Inverse:
    return _no_way("a repair cannot be undone: it made a buffer match its contents")


def _ingredients(entry: AuditEntry, past: Past) -> set[str]:
    """Return the reflections that reverting a version of a text may affect."""
    own = set((entry.after or {}).get("absorbed_ids") or ())
    if entry.action == "repair_buffer" or entry.after is None:
        return own
    new = msgspec.convert(entry.after, Consolidation)
    return own | _later_ingredients(new, _home(entry), past) | set(entry.released_ids)


def _later_ingredients(then: Consolidation, home: Scope, past: Past) -> set[str]:
    """Return what versions after ``then`` absorbed that was not in the text then."""
    before: set[str] = set()
    later: set[str] = set()
    for version in past.versions.get(home, ()):
        (before if version.version <= then.version else later).update(version.absorbed_ids)
    return later - (before - set(then.unabsorbed_ids))


def _absorbed_since(then: Consolidation, home: Scope, state: State, past: Past) -> list[Reflection]:
    """Return what later versions absorbed, still do, and was not in the text at ``then``."""
    return _find_absorbed(_later_ingredients(then, home, past), home, state)


def _find_absorbed(ids: Iterable[str], home: Scope, state: State) -> list[Reflection]:
    """Return the existing absorbed reflections, in order of time."""
    found = (reflection_in(state, home, each) for each in dict.fromkeys(ids))
    inside = (each for each in found if each is not None and each.absorbed)
    return sorted(inside, key=lambda each: each.order)


def _text_in(entry: AuditEntry) -> str:
    return str((entry.before or {}).get("consolidated_content", ""))


def _limit_before(entry: AuditEntry, now: Consolidation) -> int:
    """Return the word limit to restore: the earlier one if the entry changed it."""
    before, after = ((each or {}).get("word_limit") for each in (entry.before, entry.after))
    return int(before) if before and before != after else now.word_limit


# -- policies and toggles ------------------------------------------------------------------------


def _undo_write_policy(entry: AuditEntry, state: State, past: Past, at: datetime) -> Inverse:
    home = _home(entry)
    new = msgspec.convert(entry.after, Policy)
    now = state.policies.get(home)
    if entry.before is None:
        return _remove_policy(home, new, now, state, past, at)
    old = msgspec.convert(entry.before, Policy)
    if _rules(old) == _rules(new):
        return _nothing(NO_CHANGE, now)
    if now is None:
        return _no_way("the policy was removed since; undo that first")
    if _rules(now) == _rules(old):
        return _nothing("the policy already has these values", now)
    return _restore_policy(old, now, at, differs=_rules(now) != _rules(new))


def _remove_policy(
    home: Scope, made: Policy, now: Policy | None, state: State, past: Past, at: datetime
) -> Inverse:
    if now is None:
        return _nothing("the policy no longer exists")
    text = state.texts.get(home)
    inhabited = past.contents.get(home, 0) + past.grown.get(home, 0) > 0 or (
        text is not None and bool(text.consolidated_content)
    )
    why = ""
    if home.kind is ScopeKind.SHARD and inhabited:
        why = "the shard has memory that would become inaccessible"
    change = RemovePolicy(scope=home, expected_version=now.version, at=at)
    differs = bool(why) or _rules(now) != _rules(made)
    return Inverse(change=change, differs=differs, why=why, now=now)


def _undo_remove_policy(entry: AuditEntry, state: State, past: Past, at: datetime) -> Inverse:
    old = msgspec.convert(entry.before, Policy)
    now = state.policies.get(_home(entry))
    if now is not None and _rules(now) == _rules(old):
        return _nothing("the policy exists again", now)
    return _restore_policy(old, now, at, differs=now is not None)


def _restore_policy(old: Policy, now: Policy | None, at: datetime, *, differs: bool) -> Inverse:
    version = now.version if now is not None else 0
    change = WritePolicy(policy=old, expected_version=version, at=at)
    return Inverse(change=change, differs=differs, now=now)


def _rules(policy: Policy) -> Policy:
    """Return a policy's rules, without its ID and version."""
    return msgspec.structs.replace(policy, id="", version=0, updated_at=None)


def _makes_shard(entry: AuditEntry) -> bool:
    is_shard = entry.scope is not None and entry.scope.kind is ScopeKind.SHARD
    return is_shard and entry.action == "write_policy" and entry.before is None


def _undo_set_toggles(entry: AuditEntry, state: State, past: Past, at: datetime) -> Inverse:
    before, after = entry.before or {}, entry.after or {}
    turned = [name for name in _TOGGLES if before.get(name) != after.get(name)]
    now = state.agents.get(entry.target_id)
    if not turned:
        return _nothing(NO_CHANGE, now)
    if now is None:
        return _no_way("the agent no longer exists")
    old = {name: bool(before.get(name)) for name in turned}
    if all(getattr(now, name) is value for name, value in old.items()):
        return _nothing("already the case", now)
    change = SetAgentToggles(
        agent_id=now.id,
        at=at,
        user_memory_enabled=old.get("user_memory_enabled"),
        agent_memory_enabled=old.get("agent_memory_enabled"),
    )
    differs = any(getattr(now, name) is not after[name] for name in turned)
    return Inverse(change=change, differs=differs, now=now)


# -- held items ----------------------------------------------------------------------------------


def _undo_hold_item(entry: AuditEntry, state: State, past: Past, at: datetime) -> Inverse:
    now = state.held.get(entry.target_id)
    if now is None:
        return _nothing("the item no longer waits for review")
    return Inverse(change=RemoveHeld(scope=_home(entry), held_id=now.id), now=now)


def _undo_remove_held(entry: AuditEntry, state: State, past: Past, at: datetime) -> Inverse:
    now = state.held.get(entry.target_id)
    if now is not None:
        return _nothing("the item waits for review again", now)
    return Inverse(change=HoldItem(held=msgspec.convert(entry.before, Held)))


# -- agents and accounts -------------------------------------------------------------------------


def _undo_add_agent(entry: AuditEntry, state: State, past: Past, at: datetime) -> Inverse:
    now = state.agents.get(entry.target_id)
    if now is None:
        return _nothing("the agent no longer exists")
    used = state.use("agent", now.id).words
    if used:
        return _no_way(f"the agent {used}", now)
    return Inverse(change=RemoveAgent(agent_id=now.id), now=now)


def _undo_add_user(entry: AuditEntry, state: State, past: Past, at: datetime) -> Inverse:
    now = state.users.get(entry.target_id)
    if now is None:
        return _nothing("the account no longer exists")
    used = state.use("user", now.id).words
    if used:
        return _no_way(f"the person {used}", now)
    return Inverse(change=RemoveUser(user_id=now.id), now=now)


def _undo_remove_agent(entry: AuditEntry, state: State, past: Past, at: datetime) -> Inverse:
    now = state.agents.get(entry.target_id)
    if now is not None:
        return _nothing("the agent exists again", now)
    return Inverse(change=AddAgent(agent=msgspec.convert(entry.before, Agent)))


def _undo_remove_user(entry: AuditEntry, state: State, past: Past, at: datetime) -> Inverse:
    now = state.users.get(entry.target_id)
    if now is not None:
        return _nothing("the account exists again", now)
    return Inverse(change=AddUser(user=msgspec.convert(entry.before, User)))


_INVERSES: dict[str, Callable[[AuditEntry, State, Past, datetime], Inverse]] = {
    "add_fact": _undo_add_fact,
    "revise_fact": _undo_revise_fact,
    "remove_fact": _undo_remove_fact,
    "set_privacy": _undo_set_privacy,
    "add_reflection": _undo_add_reflection,
    "revise_reflection": _undo_revise_reflection,
    "remove_reflection": _undo_remove_reflection,
    "restore_reflection": _undo_add_reflection,
    "hold_item": _undo_hold_item,
    "remove_held": _undo_remove_held,
    "write_consolidation": _undo_write_text,
    "revert_consolidation": _undo_revert_text,
    "repair_buffer": _undo_repair_buffer,
    "write_policy": _undo_write_policy,
    "remove_policy": _undo_remove_policy,
    "set_agent_toggles": _undo_set_toggles,
    "add_agent": _undo_add_agent,
    "add_user": _undo_add_user,
    "remove_agent": _undo_remove_agent,
    "remove_user": _undo_remove_user,
}
