"""The inverse of a change: from the current state to the state before an entry of the log.

An entry is judged by the current state: later writes and manual changes count the same. If later
changes led back to the state after the entry, the log decides (see `is_overridden_by`). Compared is
what people and models read, and its sources; versions, times and vectors may differ. To undo
several entries, newest first: `invert` one, `plan` its change, `fold` both `State` and `Past`, and
continue with the next.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple, get_args

import msgspec
from msgspec.structs import replace

from edenmem.memory.facts import key_words
from edenmem.memory.reflections import reflection_in
from edenmem.memory.state import FIELDS, Effect, Model, Needs, State, home_of, plain
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
    UNCONFIRMED,
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


class _Kind(NamedTuple):
    """A type of target; ``parts`` are what people write into it, each undone on its own."""

    name: str
    model: type[Model]
    parts: frozenset[str]

    def differing(self, one: Model, other: Model) -> set[str]:
        """Return the parts in which two documents differ."""
        return {name for name in self.parts if getattr(one, name) != getattr(other, name)}


_OF_VERSIONS = ("id", "version", "updated_at")
_KINDS = {
    "fact": _Kind("fact", Fact, frozenset(("content", "private", *FactFields.__struct_fields__))),
    "reflection": _Kind("reflection", Reflection, frozenset(("content", "private", UNCONFIRMED))),
    "held": _Kind("held item", Held, frozenset(("content",))),
    "consolidation": _Kind("text", Consolidation, frozenset(("consolidated_content",))),
    "policy": _Kind(
        "policy",
        Policy,
        frozenset(Policy.__struct_fields__).difference(_OF_VERSIONS),
    ),
    "agent": _Kind("agent", Agent, frozenset(("user_memory_enabled", "agent_memory_enabled"))),
    "user": _Kind("account", User, frozenset()),
}
_ACTIONS = frozenset(change.__struct_config__.tag for change in get_args(Change))


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
    """Return what people and models read of a document, and whether it exists."""
    if document is None:
        return {}
    names = document.keys() & {*_KINDS[target_type].parts, UNCONFIRMED}
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
            case "write_policy" if scope is not None and entry.before is None:
                if scope.kind is ScopeKind.SHARD:
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
                found.texts.add(entry.scope)  # a shard with a text stays
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
    if entry.action == "repair_buffer":
        return _no_way("a repair cannot be undone: it made a buffer match its contents")
    if entry.action not in _ACTIONS:
        return _no_way(f"cannot be undone: {entry.action!r}")
    if entry.before is None and entry.after is None:
        return _no_way("what it changed was erased")
    kind = _KINDS[entry.target_type]
    old, new = (_read_back(document, kind) for document in (entry.before, entry.after))
    by_scope = entry.target_type in ("policy", "consolidation")
    now = getattr(state, FIELDS[entry.target_type]).get(
        entry.scope if by_scope else entry.target_id
    )
    if isinstance(now, Fact | Reflection) and home_of(now) != entry.scope:
        now = None
    if entry.action == "revert_consolidation":
        found = _undo_revert_text(entry, old, new, now, state, past, at)
    elif kind.model is Consolidation:
        found = _undo_write_text(entry, old, new, now, state, past, at)
    elif old is None:
        found = _undo_addition(kind, new, now, state, past, at)
    elif new is None:
        found = _undo_removal(kind, entry, old, now, state, past, at)
    else:
        found = _undo_revision(kind, old, new, now, state, past, at)
    if found.change is None:
        return found
    return replace(found, change=replace(found.change, id=undo_id(entry.id), undoes=entry.id))


def _read_back(document: dict[str, Any] | None, kind: _Kind) -> Any:
    return None if document is None else msgspec.convert(document, kind.model)


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


def _undo_addition(
    kind: _Kind, made: Any, now: Any, state: State, past: Past, at: datetime
) -> Inverse:
    if now is None:
        return _nothing(f"the {kind.name} no longer exists")
    change: Change
    why, by, differs = "", tuple[str, ...](), bool(kind.differing(now, made))
    match now:
        case Fact():
            change = RemoveFact.of(now, at, "")
            differs |= not set(now.source_message_ids) <= set(made.source_message_ids)
        case Reflection():
            change = RemoveReflection.of(now, at, "")
            differs |= now.absorbed != made.absorbed
            if now.absorbed and not made.absorbed:
                why, by = "it was consolidated since", _absorbed_by(now, past)
        case Held():
            change = RemoveHeld(scope=now.home, held_id=now.id)
        case Policy(home=home):
            change = RemovePolicy(scope=home, expected_version=now.version, at=at)
            if home.kind is ScopeKind.SHARD and _has_memory(home, state, past):
                differs, why = True, "the shard has memory that would become inaccessible"
        case _:
            is_agent = isinstance(now, Agent)
            if used := state.use("agent" if is_agent else "user", now.id):
                return _no_way(f"the {kind.name} {used}", now)
            change = RemoveAgent(agent_id=now.id) if is_agent else RemoveUser(user_id=now.id)
            differs = False
    return Inverse(change=change, differs=differs, why=why, now=now, by=by)


def _has_memory(shard: Scope, state: State, past: Past) -> bool:
    text = state.texts.get(shard)
    has_text = text is not None and bool(text.consolidated_content)
    return has_text or past.contents.get(shard, 0) + past.grown.get(shard, 0) > 0


def _undo_removal(
    kind: _Kind, entry: AuditEntry, gone: Any, now: Any, state: State, past: Past, at: datetime
) -> Inverse:
    change: Change
    if isinstance(gone, Policy):
        if now is not None and not kind.differing(now, gone):
            return _nothing("the policy exists again", now)
        change = WritePolicy(policy=gone, expected_version=now.version if now else 0, at=at)
        return Inverse(change=change, differs=now is not None, now=now)
    if now is not None:
        if getattr(now, "content", "") == getattr(gone, "content", ""):
            return _nothing(f"the {kind.name} exists again", now)
        return _no_way(f"the {kind.name} exists again, with another text", now)
    match gone:
        case Fact():
            return _restore_fact(entry, gone, state, past, at)
        case Reflection():
            back = replace(gone, version=gone.version + 1)
            if gone.absorbed and _released_since(entry, past):
                # Its version was reverted in the meantime, so it is pending again.
                back = replace(back, absorbed=False, absorbed_at=None, consolidated_into=None)
            text = state.texts.get(gone.home)
            change = RestoreReflection(reflection=back, word_limit=text.word_limit if text else 0)
        case Held():
            change = HoldItem(held=gone)
        case Agent():
            change = AddAgent(agent=gone)
        case _:
            change = AddUser(user=gone)
    return Inverse(change=change)


def _undo_revision(
    kind: _Kind, old: Any, new: Any, now: Any, state: State, past: Past, at: datetime
) -> Inverse:
    changed = kind.differing(old, new)
    if not changed:
        return _restore_marks(now, old, new, at) if isinstance(now, Fact) else _nothing(NO_CHANGE)
    if now is None:
        return _no_way(f"the {kind.name} was removed since; undo that first")
    if not changed & kind.differing(now, old):
        what = "text" if changed == {"content"} else "state"
        return _nothing(f"the {kind.name} already has this {what}", now)
    change: Change
    differs = bool(changed & kind.differing(now, new))
    before = {name: getattr(old, name) for name in changed}
    match now:
        case Fact() | Reflection() if changed == {"private"}:
            change = SetPrivacy(
                scope=now.home, target_type=kind.name, target_id=now.id, private=old.private, at=at
            )
        case Fact():
            return _restore_parts(now, old, new, before, differs, state, at)
        case Reflection(absorbed=True):
            why = "it was consolidated since; undo that first"
            return _no_way(why, now, by=_absorbed_by(now, past))
        case Reflection():
            change = ReviseReflection(
                scope=now.home,
                reflection_id=now.id,
                expected_version=now.version,
                content=old.content,
                at=at,
                unconfirmed=old.unconfirmed,
            )
        case Policy():
            change = WritePolicy(policy=replace(now, **before), expected_version=now.version, at=at)
        case _:
            change = SetAgentToggles(agent_id=now.id, at=at, **before)
    return Inverse(change=change, differs=differs, now=now)


# -- facts ---------------------------------------------------------------------------------------


def _restore_parts(
    now: Fact,
    old: Fact,
    new: Fact,
    before: dict[str, Any],
    differs: bool,
    state: State,
    at: datetime,
) -> Inverse:
    """Restore text and fields of a fact, unless another one has the key."""
    home, content = now.home, before.pop("content", now.content)
    fields = replace(now.fields, **before)
    holder = None if fields.key is None else state.keys.get((home, fields.key))
    if holder not in (None, now.id):
        return _no_way(key_words(str(holder)), now, rival=str(holder))
    twin = state.owners.get((home, content_hash(content, fields.key)))
    is_taken = twin is not None and twin != now.id
    return Inverse(
        change=_with_sources(now, old, new, content, at, fields),
        differs=is_taken or differs,
        why=_twin_words(twin) if is_taken else "",
        now=now,
        notices=(f"{now.id} goes in favor of {twin}",) if is_taken else (),
    )


def _restore_marks(now: Fact, old: Fact, new: Fact, at: datetime) -> Inverse:
    """Invert a revision of sources, related users or doubts that kept text and fields."""
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


def _restore_fact(entry: AuditEntry, gone: Fact, state: State, past: Past, at: datetime) -> Inverse:
    home = gone.home
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
    head = state.heads.get(("fact", gone.id))
    version = max(fact.version, head.version if head is not None else 0) + 1
    model = fact.embedding_model if fact.embedding is not None else None
    back = replace(fact, version=version, updated_at=at, embedding_model=model)
    return Inverse(change=AddFact(fact=back))


def _twin_words(twin: str | None) -> str:
    return f"the scope has that text in another fact, {twin}"


# -- reflections and texts -----------------------------------------------------------------------


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


def _undo_write_text(
    entry: AuditEntry,
    old: Consolidation | None,
    new: Consolidation,
    now: Consolidation | None,
    state: State,
    past: Past,
    at: datetime,
) -> Inverse:
    home, content = new.home, old.consolidated_content if old else ""
    if now is None:
        return _nothing("the text no longer exists")
    if content == new.consolidated_content and not new.absorbed_ids:
        return _nothing(NO_CHANGE, now)
    released = _find_absorbed(new.absorbed_ids, home, state)
    if now.consolidated_content == content and not released:
        return _nothing("the text already has this content", now)
    still = _absorbed_since(new, home, state, past)
    differs = now.consolidated_content != new.consolidated_content or bool(still)
    if differs:  # overruling later versions releases their reflections too
        released = _find_absorbed([*new.absorbed_ids, *(each.id for each in still)], home, state)
    last = now.version if differs else new.version
    change = RevertConsolidation(
        scope=home,
        expected_version=now.version,
        content=content,
        word_limit=_limit_before(entry, now),
        at=at,
        released_ids=tuple(each.id for each in released),
        reverted_versions=tuple(range(new.version, last + 1)),
        fixed=old.fixed if old else (),
    )
    count = len(released)
    told = f"{count} reflection{'s are' if count > 1 else ' is'} pending again"
    return Inverse(change=change, differs=differs, now=now, notices=(told,) if count else ())


def _undo_revert_text(
    entry: AuditEntry,
    then: Consolidation,
    new: Consolidation,
    now: Consolidation | None,
    state: State,
    past: Past,
    at: datetime,
) -> Inverse:
    """Restore the text before a revert, with its reflections."""
    home = new.home
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


def _limit_before(entry: AuditEntry, now: Consolidation) -> int:
    """Return the word limit to restore: the earlier one if the entry changed it, 0 for none."""
    if entry.before is None:
        return 0
    before, after = ((each or {}).get("word_limit") for each in (entry.before, entry.after))
    return int(before) if before and before != after else now.word_limit
