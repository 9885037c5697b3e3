"""Decide what a run does for a target, by three digests: base, v1 now, and v2 now.

The *base* is what runs wrote, unless it was undone, according to the log. What v1 has not changed
since is not written again, even if it was edited, deleted, merged or expired here. What v1 has
changed is followed if v2 still has the base, else v2 is kept and named. Without a base, equal
content is adopted, an empty place is filled, and anything else is kept and named.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec

from edenmem.engine.history.trails import read_after
from edenmem.engine.migration.items import (
    ABSORBED_LATER,
    REPLACED_LATER,
    SWITCH,
    TYPES,
    Key,
    Outcome,
    Treatment,
    classify_moved,
    format_sources,
    read_sources,
    reason_of,
    settings_of,
)
from edenmem.models.changes import (
    AddFact,
    AddReflection,
    AuditEntry,
    Change,
    ReviseFact,
    ReviseReflection,
    SetAgentToggles,
    WriteConsolidation,
    WritePolicy,
)
from edenmem.models.host import Agent
from edenmem.models.memory import Consolidation, Fact, Policy, Reflection
from edenmem.models.scope import Scope
from edenmem.models.v1 import (
    V1EarlierText,
    V1Fact,
    V1Item,
    V1Policy,
    V1Reflection,
    V1Text,
    V1Toggles,
)
from edenmem.store.protocol.store import Store

OnConflict = Literal["keep", "replace"]

#: Log actions of a run by type of target, and those that can undo them.
WRITES = {
    "fact": "add_fact",
    "reflection": "add_reflection",
    "consolidation": "write_consolidation",
    "policy": "write_policy",
    SWITCH: "set_agent_toggles",
}
_REVISES = ("revise_fact", "revise_reflection")
_OF_TEXTS = ("write_consolidation", "revert_consolidation")
_OF_POLICIES = ("write_policy", "remove_policy")


class Base(msgspec.Struct, frozen=True, kw_only=True):
    """What runs wrote for a target, unless it was undone.

    ``document`` is the latest state, ``entry`` the log entry that wrote it; ``texts`` are all
    contents of a text that runs wrote.
    """

    document: Any
    entry: AuditEntry
    texts: frozenset[str] = frozenset()

    @property
    def sources(self) -> list[tuple[str, str]]:
        """Return the documents (collection, ID) that the document came from."""
        return read_sources(self.entry.reason)


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What to do for an item: changes in order, and the outcome if they succeed."""

    outcome: Outcome
    changes: Sequence[Change] = ()
    treatment: Treatment | None = None
    detail: str = ""


def in_force(entries: Iterable[AuditEntry], run_ids: Collection[str]) -> list[AuditEntry]:
    """Return the entries of runs for one target that are not undone, oldest first.

    An entry, its undo, the undo of that, … form a chain; an odd length means in force.
    """
    entries = list(entries)
    undone = {entry.undoes: entry.id for entry in entries if entry.undoes}

    def holds(entry: AuditEntry) -> bool:
        is_odd, last = True, entry.id
        while last in undone:
            is_odd, last = not is_odd, undone[last]
        return is_odd

    return [entry for entry in written_by(entries, run_ids) if holds(entry)]


def written_by(entries: Iterable[AuditEntry], run_ids: Collection[str]) -> list[AuditEntry]:
    """Return the entries of one target that runs wrote, oldest first."""
    found = [
        entry
        for entry in entries
        if entry.action in (WRITES.get(entry.target_type), *_REVISES)
        and entry.actor.run_id in run_ids
        and not entry.undoes
    ]
    # The log may not keep the order of entries of the same time.
    found.sort(key=lambda entry: (entry.at, (entry.after or {}).get("version") or 0))
    return found


def base_of(entries: Iterable[AuditEntry], run_ids: Collection[str]) -> Base | None:
    """Return the base of a target from all of its log entries."""
    written = in_force(entries, run_ids)
    if not written:
        return None
    documents = [read_after(entry) for entry in written]
    texts = {each.consolidated_content for each in documents if isinstance(each, Consolidation)}
    return Base(document=documents[-1], entry=written[-1], texts=frozenset(texts))


class Bases:
    """Read the log entries of targets, for their bases.

    Args:
        store: The store.
        run_ids: IDs of all runs in the ledger.
        unreadable: Collects the IDs of unreadable entries, which are ignored; otherwise they are
            an error.
    """

    def __init__(
        self, store: Store, run_ids: Collection[str], unreadable: set[str] | None = None
    ) -> None:
        self._log = store.log
        self.run_ids = run_ids
        self._found: dict[Key, list[AuditEntry]] = {}
        self._unreadable = unreadable

    def load(self, items: Iterable[V1Item]) -> None:
        """Load the entries of some targets."""
        ids: list[Key] = []
        self._found = {}
        for item in items:
            match item.target:
                case V1Fact(fact=made) | V1Reflection(reflection=made):
                    ids.append(Key(TYPES[type(made)], made.id))
                case V1Text(scope=scope):
                    self._load_of_scope("consolidation", scope, _OF_TEXTS)
                case V1Policy(policy=policy):
                    self._load_of_scope("policy", policy.home, _OF_POLICIES)
                case V1Toggles(agent_id=agent_id):
                    ids.append(Key(SWITCH, agent_id))
        self.load_ids(ids)

    def load_ids(self, keys: Sequence[Key]) -> None:
        """Load the entries of documents by type and ID."""
        if not keys:
            return
        wanted = set(keys)
        ids = list({key.id for key in keys})
        for entry in self._log.audit(target_ids=ids, unreadable=self._unreadable):
            key = Key(entry.target_type, entry.target_id)
            if key in wanted:
                self._found.setdefault(key, []).append(entry)

    def _load_of_scope(self, type: str, scope: Scope, actions: Sequence[str]) -> None:
        entries = self._log.audit(scope=scope, actions=actions, unreadable=self._unreadable)
        self._found[Key(type, scope.key)] = list(entries)

    def of(self, key: Key) -> Base | None:
        """Return the base of a loaded target."""
        return base_of(self._found.get(key, ()), self.run_ids)

    def entries(self, key: Key) -> list[AuditEntry]:
        """Return the entries of a loaded target, newest first."""
        return self._found.get(key, [])

    def is_switched(self, item: V1Item) -> bool:
        """Return whether anyone but a run switched the agent."""
        if not isinstance(item.target, V1Toggles):
            return False
        return any(
            entry.action == WRITES[SWITCH]
            and not entry.undoes
            and entry.actor.run_id not in self.run_ids
            for entry in self.entries(Key(SWITCH, item.target.agent_id))
        )


class Stored:
    """The stored documents of some items."""

    def __init__(self, store: Store, items: Sequence[V1Item], agents: dict[str, Agent]) -> None:
        self._agents = agents
        facts = [item.target.fact for item in items if isinstance(item.target, V1Fact)]
        own = [each.target.reflection for each in items if isinstance(each.target, V1Reflection)]
        texts = [item.target.scope for item in items if isinstance(item.target, V1Text)]
        policies = [item.target.policy.home for item in items if isinstance(item.target, V1Policy)]
        memory = store.memory
        self._facts: dict[str, Fact] = {}
        by_scope: dict[Scope, list[str]] = {}
        if facts:
            homes = list(dict.fromkeys(each.home for each in facts))
            self._facts = memory.facts_by_ids(homes, [each.id for each in facts])
            for each in facts:
                if each.id not in self._facts:
                    by_scope.setdefault(each.home, []).append(each.hash)
        self._twins = {
            (scope, hash): fact
            for scope, hashes in by_scope.items()
            for hash, fact in memory.facts_by_hashes(scope, hashes).items()
        }
        self._reflections = memory.reflections_by_ids([each.id for each in own]) if own else {}
        self._texts = memory.consolidations(texts) if texts else {}
        self._policies = memory.policies(policies) if policies else {}

    def find(self, item: V1Item) -> Any:
        """Return the stored document of an item; a fact with the same text counts, too."""
        match item.target:
            case V1Fact(fact=fact):
                return self._facts.get(fact.id) or self._twins.get((fact.home, fact.hash))
            case V1Reflection(reflection=reflection):
                return self._reflections.get(reflection.id)
            case V1Text(scope=scope):
                return self._texts.get(scope)
            case V1Policy(policy=policy):
                return self._policies.get(policy.home)
            case V1Toggles(agent_id=agent_id):
                return self._agents.get(agent_id)
        return None


class Decider:
    """Decide on items, given the stored document and the base of each.

    Args:
        on_conflict: The treatment of a text that no run wrote.
        at: The time of changes.
        next_place: Returns the first free place among stored reflections of a scope and time.
        absorbed: Returns the migrated reflections that v1 has absorbed into an item's text.
    """

    def __init__(
        self,
        on_conflict: OnConflict,
        at: datetime,
        next_place: Callable[[str, datetime], int],
        absorbed: Callable[[V1Item], Sequence[Reflection]],
    ) -> None:
        self._on_conflict = on_conflict
        self._at = at
        self._next_place = next_place
        self._absorbed = absorbed

    def decide(self, item: V1Item, now: Any, base: Base | None, switched: bool) -> Decision:
        """Decide on one item.

        Args:
            item: What v1 has now.
            now: What v2 has now.
            base: What runs wrote.
            switched: Whether anyone but a run switched the agent.
        """
        if base is not None and base.document is None:
            return _ALREADY  # a run wrote it, and it was erased since
        match item.target:
            case V1Fact(fact=fact):
                return self._fact(item, fact, now, base)
            case V1Reflection(reflection=reflection):
                return self._reflection(item, reflection, now, base)
            case V1Text() as text:
                return self._text(item, text, now, base)
            case V1Policy(policy=policy):
                return self._policy(item, policy, now, base)
            case V1Toggles(agent_memory_enabled=enabled):
                return self._switch(item, enabled, now, base, switched)
        raise AssertionError(item)

    def _fact(self, item: V1Item, new: Fact, now: Fact | None, base: Base | None) -> Decision:
        if base is None and now is None:
            return _fill(item, AddFact(reason=reason_of(item), fact=new))
        known = now if base is None else base.document
        assert isinstance(known, Fact)
        users = _beyond(new.related_users, known.related_users)
        # An adopted fact keeps its own sources; 'forget' needs its related users.
        sources = () if base is None else _beyond(new.source_message_ids, known.source_message_ids)
        if not users and not sources:
            return _ALREADY
        if now is None or now.content != new.content:
            return _keep("changed here since its migration, and in v1")
        change = ReviseFact(
            reason=reason_of(item),
            scope=now.home,
            fact_id=now.id,
            expected_version=now.version,
            content=now.content,
            at=self._at,
            related_users=users,
            source_message_ids=sources,
            times=now.times,
        )
        outcome = Outcome.ALREADY if base is None else classify_moved(item)
        return Decision(outcome=outcome, changes=[change])

    def _reflection(
        self, item: V1Item, new: Reflection, now: Reflection | None, base: Base | None
    ) -> Decision:
        assert isinstance(item.target, V1Reflection)
        if base is None:
            if now is None:
                place = new.place
                if not new.absorbed:
                    place += self._next_place(new.home.key, new.formed_at)
                placed = msgspec.structs.replace(new, place=place)
                return _fill(
                    item,
                    AddReflection(
                        reason=reason_of(item),
                        reflection=placed,
                        word_limit=item.target.word_limit,
                    ),
                )
            is_same = (now.home, now.content) == (new.home, new.content)
            return _ALREADY if is_same else _keep("v2 has another reflection, which was kept")
        if base.document.content == new.content:
            return _ALREADY
        if now is None or now.absorbed or now.content != base.document.content:
            return _keep("changed or consolidated here since its migration, and changed in v1")
        change = ReviseReflection(
            reason=reason_of(item),
            scope=now.home,
            reflection_id=now.id,
            expected_version=now.version,
            content=new.content,
            at=self._at,
        )
        return _follow(item, [change], "v1 has a newer wording")

    # -- texts -------------------------------------------------------------------------------

    def _text(
        self, item: V1Item, new: V1Text, now: Consolidation | None, base: Base | None
    ) -> Decision:
        own = now.consolidated_content.strip() if now is not None else ""
        content, last = new.content.strip(), base.document if base else None
        is_unchanged = last is not None and last.consolidated_content.strip() == content
        if is_unchanged or own == content:
            return self._absorb(item, new, now) if own == content else _ALREADY
        detail = "v1 has a newer text"
        treatment: Treatment | None = Treatment.FOLLOWED
        if base is not None and last is not None:
            if last.updated_at is not None and new.last_updated_at < last.updated_at:
                if new.content in base.texts:
                    return _ALREADY
                return _keep("v2 has a newer v1 text, which was kept")
            if own != last.consolidated_content.strip():
                return _keep("edited since its migration; v1's newer text was not used")
        elif not own:
            treatment, detail = None, ""
        elif self._on_conflict == "keep":
            return _keep("v2 has another text, which was kept")
        else:
            treatment, detail = Treatment.REPLACED, "v2 had another text (replace)"
        known = base.texts if base else frozenset()
        earlier = [each for each in new.earlier if each.content not in known]
        changes = self._versions(item, new, now.version if now else 0, earlier)
        return Decision(
            outcome=classify_moved(item), changes=changes, treatment=treatment, detail=detail
        )

    def _versions(
        self, item: V1Item, new: V1Text, version: int, earlier: Sequence[V1EarlierText]
    ) -> list[Change]:
        """Return the changes that write the versions of a text, oldest first."""
        changes: list[Change] = []
        for old in earlier:
            step = WriteConsolidation(
                reason=f"from {format_sources((old.source,))}; {REPLACED_LATER}",
                scope=new.scope,
                expected_version=version,
                as_version=old.version,
                content=old.content,
                word_limit=new.word_limit,
                at=old.at,
            )
            changes.append(step)
            version = step.next_version
        changes.append(
            WriteConsolidation(
                reason=reason_of(item),
                scope=new.scope,
                expected_version=version,
                as_version=new.version,
                content=new.content,
                word_limit=new.word_limit,
                at=new.last_updated_at,
                absorbed_ids=tuple(each.id for each in self._absorbed(item)),
            )
        )
        return changes

    def _absorb(self, item: V1Item, new: V1Text, now: Consolidation | None) -> Decision:
        """Mark reflections as absorbed that v1 no longer lists, though its text is unchanged."""
        absorbed = self._absorbed(item) if now is not None else ()
        if not absorbed or now is None:
            return _ALREADY
        change = WriteConsolidation(
            reason=f"from {format_sources(item.sources)}; {ABSORBED_LATER}",
            scope=new.scope,
            expected_version=now.version,
            content=now.consolidated_content,
            word_limit=now.word_limit,
            # Later v1 texts are newer than all memories that this version absorbs.
            at=max([new.last_updated_at, *(each.formed_at for each in absorbed)]),
            absorbed_ids=tuple(each.id for each in absorbed),
        )
        return _follow(item, [change], ABSORBED_LATER)

    # -- settings ----------------------------------------------------------------------------

    def _policy(self, item: V1Item, new: Policy, now: Policy | None, base: Base | None) -> Decision:
        wanted = settings_of(new)
        if base is not None and settings_of(base.document) == wanted:
            return _ALREADY
        if base is None and now is None:
            return _fill(
                item,
                WritePolicy(reason=reason_of(item), policy=new, expected_version=0, at=self._at),
            )
        if now is not None and settings_of(now) == wanted:
            return _ALREADY
        if now is None or base is None or settings_of(now) != settings_of(base.document):
            return _keep("v2 has other settings, which were kept")
        change = WritePolicy(
            reason=reason_of(item),
            policy=msgspec.structs.replace(now, **wanted),
            expected_version=now.version,
            at=self._at,
        )
        return _follow(item, [change], "v1 has newer settings")

    def _switch(
        self, item: V1Item, enabled: bool, now: Agent | None, base: Base | None, switched: bool
    ) -> Decision:
        if now is None:
            return _keep("the host does not know the agent")
        if base is not None:
            if enabled in (base.document.agent_memory_enabled, now.agent_memory_enabled):
                return _ALREADY
            if base.document.agent_memory_enabled is not now.agent_memory_enabled:
                return _keep("switched here since its migration")
        elif now.agent_memory_enabled is not enabled and (switched or not enabled):
            # A switch that is off may never have been set: it counts as an empty place.
            return _keep("v2 has another switch, which was kept")
        # The log notes a switch that is as in v1 already; the change leaves it, also if unset.
        switch = None if now.agent_memory_enabled is enabled else enabled
        change = SetAgentToggles(
            reason=reason_of(item), agent_id=now.id, at=self._at, agent_memory_enabled=switch
        )
        return _fill(item, change)


_ALREADY = Decision(outcome=Outcome.ALREADY)


def _keep(why: str) -> Decision:
    return Decision(outcome=Outcome.KEPT, treatment=Treatment.KEPT, detail=why)


def _fill(item: V1Item, change: Change) -> Decision:
    return Decision(outcome=classify_moved(item), changes=[change])


def _follow(item: V1Item, changes: Sequence[Change], why: str) -> Decision:
    return Decision(
        outcome=classify_moved(item), changes=changes, treatment=Treatment.FOLLOWED, detail=why
    )


def _beyond(wanted: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    have = set(known)
    return tuple(each for each in wanted if each not in have)
