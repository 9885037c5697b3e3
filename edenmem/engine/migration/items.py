"""Convert the v1 items of a plan to v2 changes: IDs, reasons, outcomes.

The ID of a change is derived from the item and the content of its documents. An interrupted run
therefore resumes without duplicates, and a later run recognizes items already migrated, even if
they were edited or deleted since: migrating again never reverts later edits. After a rollback the
IDs change (with the number of the ``round``), so that the items can be migrated again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from types import TracebackType
from typing import Any, Protocol, Self

import msgspec

from edenmem.engine.history.undo import chains_of
from edenmem.models.changes import (
    AddFact,
    AddReflection,
    AuditEntry,
    Change,
    SetAgentToggles,
    WriteConsolidation,
    WritePolicy,
)
from edenmem.models.forgetting import Forgetting, Subject, block
from edenmem.models.ids import derived_id, is_id
from edenmem.models.memory import Consolidation, Fact, Policy, Reflection
from edenmem.models.migration import TAKEN_BACK, MigrationRun, RunState
from edenmem.models.scope import Scope, ScopeKind
from edenmem.models.v1 import (
    Disposition,
    V1Damage,
    V1EarlierText,
    V1Fact,
    V1Item,
    V1Options,
    V1Person,
    V1Policy,
    V1Problem,
    V1Ref,
    V1Reflection,
    V1Text,
    V1Toggles,
)
from edenmem.store.protocol.store import Store


class V1Plan(Protocol):
    """The items of a source.

    Reading them writes only to a temporary file, which is removed when the plan is closed or the
    process ends. Blocks. Not thread-safe.
    """

    @property
    def location(self) -> str:
        """Return the location of the source, without secrets."""

    @property
    def options(self) -> V1Options:
        """Return the options, with the IDs of the selected agents."""

    @property
    def incomplete(self) -> Sequence[V1Damage]:
        """Return the missing or unreadable parts of the source."""

    @property
    def totals(self) -> Mapping[str, int]:
        """Return the number of documents of the selected agents by collection.

        Documents without an owner count too. These are exactly the sources of all items.
        """

    @property
    def not_asked(self) -> Mapping[str, int]:
        """Return the number of documents of other agents by collection."""

    @property
    def unknown_fields(self) -> Mapping[str, int]:
        """Return ``collection.field`` → number of documents with this unknown field."""

    def item_total(self, progress: Callable[[int], None] = ...) -> int:
        """Return the number of items; the first call counts them and reports progress."""

    def fates(self) -> Mapping[str, int]:
        """Return the number of documents that are "used", "left_behind" or "bad".

        Each document counts once: the sum is that of `totals`. Counted with `item_total`.
        """

    def agents(self) -> Sequence[V1Person]:
        """Return the agents in the order of their items."""

    def users(self, agent_id: str | None = None) -> Iterator[V1Person]:
        """Yield the users that memory of an agent (default: all selected) belongs to or names.

        The other accounts of a user follow that user.
        """

    def items(self, *, after: str | None = None, agent_id: str | None = None) -> Iterator[V1Item]:
        """Yield items by agent, kind and key; with ``after``, only those with greater keys."""

    def problems(self) -> Iterator[V1Problem]:
        """Yield the problems of all items, in their order."""

    def source_text(self, ref: V1Ref) -> str | None:
        """Return the text of a v1 document, or None if the document is missing."""

    def find_absorbed(self, item: V1Item, memory_ids: Sequence[str]) -> set[str]:
        """Return those of these v1 memories that are no longer pending for the item's text."""

    def close(self) -> None:
        """Remove the temporary file."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


#: Maximum number of characters in a batch of items.
_CHARACTERS = 2_000_000


def batched_items(items: Iterable[V1Item], size: int) -> Iterator[list[V1Item]]:
    """Yield batches of up to ``size`` items, and fewer where texts are long."""
    batch: list[V1Item] = []
    characters = 0
    for item in items:
        batch.append(item)
        characters += _length(item)
        if len(batch) >= size or characters >= _CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _length(item: V1Item) -> int:
    match item.target:
        case V1Fact(fact=memory) | V1Reflection(reflection=memory):
            length = len(memory.content)
        case V1Text(content=content, earlier=earlier):
            length = len(content) + sum(len(each.content) for each in earlier)
        case _:
            length = 0
    return length + len(item.extra)


#: Maximum number of sources named in an audit entry; more are counted.
_NAMED_SOURCES = 20

# Reasons of versions in the log. Stored logs contain them: never change these.
#: A model shortened the text.
SHORTENED = "shortened to the limit of its scope; the version before is the whole text"
#: v1 has a later text of the same owner.
REPLACED_LATER = "replaced by a later text of the same owner"
#: v1 has absorbed memories without changing the text.
ABSORBED_LATER = "v1 has absorbed what was pending, and kept its text"


class Outcome(StrEnum):
    """The outcome of an item."""

    MIGRATED = "migrated"
    MERGED = "merged"
    ALREADY = "already"  # moved by an earlier run, or identical in v2
    KEPT = "kept"  # v2 has another version, which was kept
    LEFT_BEHIND = "left_behind"
    BAD = "bad"
    FAILED = "failed"


#: Number of leading digits of an ID that encode its time.
_TIME = 8

#: Outcomes of items moved by the run itself.
MOVED = (Outcome.MIGRATED, Outcome.MERGED)


class Treatment(StrEnum):
    """How a run resolves a conflict with existing v2 memory."""

    FOLLOWED = "followed"
    KEPT = "kept"
    APPENDED = "appended"
    REPLACED = "replaced"


class Done(msgspec.Struct, frozen=True):
    """An item and its outcome.

    ``detail`` is the reason, if it differs from the item's own; ``treatment`` is how a conflict
    was resolved, if there was one.
    """

    item: V1Item
    outcome: Outcome
    detail: str = ""
    treatment: Treatment | None = None


class Rounds:
    """The rounds of items: how often each was migrated and rolled back.

    An item enters its next round only if its own change was reverted. For a partly rolled-back
    run, the log decides.
    """

    def __init__(self, runs: Iterable[MigrationRun]) -> None:
        self._all_agents = 0
        self._agents: dict[str, int] = {}
        self._rolled_back: dict[str, RunState] = {}
        self._of: dict[str, int] = {}
        ids = set[str]()
        for run in runs:
            ids.add(run.id)
            if run.state not in (*TAKEN_BACK, RunState.PARTLY):
                continue
            self._rolled_back[run.id] = run.state
            agents = run.options.get("agents") or ()
            self._all_agents += not agents
            for agent_id in agents:
                self._agents[agent_id] = self._agents.get(agent_id, 0) + 1
        self.run_ids = frozenset(ids)

    def latest(self, item: V1Item) -> int:
        """Return the highest possible round: the number of rolled-back runs of its agent."""
        return self._all_agents + self._agents.get(item.agent_id, 0)

    def load(self, store: Store, items: Iterable[V1Item]) -> None:
        """Load the rounds of some items for `of`.

        Raises:
            StoreError: the database cannot be used.
        """
        ids = {
            item.key: [change_id(item, round) for round in range(self.latest(item) + 1)]
            for item in items
            if item.target is not None and self.latest(item)
        }
        entries = (
            store.log.audit_entries([each for own in ids.values() for each in own]) if ids else {}
        )
        undone = self._undone(store, entries)
        self._of = {}
        for key, own in ids.items():
            rolled_back = [undone.get(each) for each in own]
            # The round whose change is in force, else the first unused round.
            wanted = False if False in rolled_back else None
            found = rolled_back.index(wanted) if wanted in rolled_back else len(own) - 1
            self._of[key] = found

    def _undone(self, store: Store, entries: Mapping[str, AuditEntry]) -> dict[str, bool]:
        """Return by ID whether an entry was reverted with its run."""
        states = {id: self._rolled_back.get(e.actor.run_id or "") for id, e in entries.items()}
        partly = [entries[id] for id, state in states.items() if state is RunState.PARTLY]
        chains = chains_of(store, partly)
        return {
            id: len(chains[id]) % 2 == 0 if id in chains else state in TAKEN_BACK
            for id, state in states.items()
        }

    def of(self, item: V1Item) -> int:
        """Return the round of an item."""
        return self._of.get(item.key, 0)


class Forgotten:
    """The erased facts and owners, whose memory is not migrated again."""

    reason = "it or its owner was erased here"

    def __init__(self, forgettings: Iterable[Forgetting]) -> None:
        forgettings = list(forgettings)
        self._ids = {forgetting.id for forgetting in forgettings}
        self._blocks = {key for one in forgettings if one.kind == "fact" for key in one.blocks}

    def has(self, item: V1Item) -> bool:
        """Return whether the item's target, its owner or its agent was erased."""
        scope = target_scope(item)
        if not self._ids or scope is None:
            return False
        if isinstance(item.target, V1Fact) and block("fact", item.target.fact.id) in self._blocks:
            return True
        subjects = [Subject(kind="agent", agent_id=scope.agent_id)]
        if scope.kind is ScopeKind.USER:
            subjects.append(Subject(kind="user", owner=scope.owner))
            subjects.append(Subject(kind="user", owner=scope.owner, agent_id=scope.agent_id))
        elif scope.kind is ScopeKind.SESSION:
            subjects.append(Subject(kind="session", owner=scope.owner))
        return any(subject.id in self._ids for subject in subjects)

    def without_users(self, item: V1Item) -> V1Item:
        """Return the item without erased related users."""
        replace = msgspec.structs.replace
        match item.target if self._ids else None:
            case V1Fact(fact=fact) as target:
                fact = replace(fact, related_users=self._known_of(fact))
                return replace(item, target=replace(target, fact=fact))
            case V1Reflection(reflection=reflection) as target:
                reflection = replace(reflection, related_users=self._known_of(reflection))
                return replace(item, target=replace(target, reflection=reflection))
        return item

    def _known_of(self, memory: Fact | Reflection) -> tuple[str, ...]:
        return tuple(
            user
            for user in memory.related_users
            if Subject(kind="user", owner=user).id not in self._ids
            and Subject(kind="user", owner=user, agent_id=memory.agent_id).id not in self._ids
        )


def change_id(item: V1Item, round: int, part: str = "") -> str:
    """Return the ID of the change that moves an item, or one ``part`` of it.

    The ID begins with the time of the first document: an index takes IDs in ascending order
    several times faster than random ones.
    """
    if isinstance(item.target, V1Toggles):
        # Other edits of a shard must not switch its agent again.
        return derived_id("v1", str(round), item.key, _place(item), part)
    hashes = sorted(ref.content_hash for ref in item.sources)
    own = derived_id("v1", str(round), item.key, _place(item), part, *hashes)
    first = item.sources[0].id[:24]
    return first[:_TIME] + own[_TIME:] if is_id(first) else own


def _place(item: V1Item) -> str:
    """Return the destination of the item, which depends on the options."""
    match item.target:
        case V1Text(scope=scope):
            return scope.key
        case V1Reflection(reflection=memory) | V1Fact(fact=memory):
            return memory.home.key
        case V1Policy(policy=policy):
            return policy.home.key
        case V1Toggles(agent_memory_enabled=enabled):
            return str(enabled)
        case _:
            return ""


def target_scope(item: V1Item) -> Scope | None:
    """Return the scope of the item's target; None for toggles and without a target."""
    match item.target:
        case V1Text(scope=scope):
            return scope
        case V1Reflection(reflection=memory) | V1Fact(fact=memory):
            return memory.home
        case V1Policy(policy=policy):
            return policy.home
        case _:
            return None


def reason_of(item: V1Item) -> str:
    """Return the audit reason of a change: its documents, why, and fields unknown to v2."""
    parts = [f"from {format_sources(item.sources)}", item.reason, item.extra]
    return "; ".join(filter(None, parts))


def format_sources(sources: Sequence[V1Ref]) -> str:
    """Return the names of documents, shortened if there are many."""
    shown = [f"{ref.collection}/{ref.id}" for ref in sources[:_NAMED_SOURCES]]
    more = len(sources) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def read_sources(reason: str) -> list[tuple[str, str]]:
    """Return the documents (collection, ID) named in the reason of a change."""
    named = reason.partition(";")[0].removeprefix("from ").partition(" and ")[0]
    pairs = (each.partition("/") for each in named.split(", "))
    return [(collection, id) for collection, slash, id in pairs if slash]


def changes_of(item: V1Item, round: int, *, at: datetime) -> list[Change]:
    """Return the changes that move an item; those of a text come from `text_changes`."""
    own = change_id(item, round)
    reason = reason_of(item)
    match item.target:
        case V1Fact(fact=fact):
            return [AddFact(id=own, reason=reason, fact=fact)]
        case V1Reflection(reflection=reflection, word_limit=word_limit):
            return [
                AddReflection(id=own, reason=reason, reflection=reflection, word_limit=word_limit)
            ]
        case V1Policy(policy=policy):
            return [WritePolicy(id=own, reason=reason, policy=policy, expected_version=0, at=at)]
        case V1Toggles(agent_id=agent_id, agent_memory_enabled=enabled):
            return [
                SetAgentToggles(
                    id=own, reason=reason, agent_id=agent_id, at=at, agent_memory_enabled=enabled
                )
            ]
        case V1Text() | None:
            return []


def text_changes(
    item: V1Item,
    text: V1Text,
    round: int,
    *,
    version: int,
    content: str,
    earlier: Sequence[V1EarlierText],
    absorbed_ids: Sequence[str],
) -> list[WriteConsolidation]:
    """Return the changes that write the versions of a text, oldest first.

    Args:
        item: The item.
        text: The target of the item.
        round: The round of the item.
        version: The current version of the scope's text (0: none).
        content: The content of the last version.
        earlier: The older texts to write before it.
        absorbed_ids: Pending reflections of the scope that the text contains.
    """
    changes: list[WriteConsolidation] = []
    for old in earlier:
        step = WriteConsolidation(
            id=change_id(item, round, f"earlier {old.source.id}"),
            reason=f"from {format_sources((old.source,))}; {REPLACED_LATER}",
            scope=text.scope,
            expected_version=version,
            as_version=old.version,
            content=old.content,
            word_limit=text.word_limit,
            at=old.at,
        )
        changes.append(step)
        version = step.next_version
    changes.append(
        WriteConsolidation(
            id=change_id(item, round),
            reason=reason_of(item),
            scope=text.scope,
            expected_version=version,
            as_version=text.version,
            content=content,
            word_limit=text.word_limit,
            at=text.last_updated_at,
            absorbed_ids=tuple(absorbed_ids),
        )
    )
    return changes


#: Settings of v2 that v1 has too.
_SETTINGS = ("memory_instructions", "consolidate_at", "fact_buffer_max", "active")


def settings_of(policy: Policy) -> dict[str, Any]:
    """Return the settings of a policy that exist in v1."""
    return {name: getattr(policy, name) for name in _SETTINGS}


def classify_moved(item: V1Item) -> Outcome:
    """Return the outcome of a moved item."""
    return Outcome.MERGED if item.disposition is Disposition.MERGED else Outcome.MIGRATED


def classify_unmoved(item: V1Item) -> Outcome:
    """Return the outcome of an item without a target."""
    return Outcome.BAD if item.disposition is Disposition.BAD else Outcome.LEFT_BEHIND


def expected_of(item: V1Item) -> Fact | Reflection | Consolidation | Policy | None:
    """Return the memory that a run creates from an item in an empty store."""
    match item.target:
        case V1Fact(fact=memory) | V1Reflection(reflection=memory):
            return memory
        case V1Policy(policy=policy):
            return msgspec.structs.replace(policy, version=1)
        case V1Text(scope=scope) as text:
            return Consolidation(
                id="",
                **scope.fields(),
                consolidated_content=text.content,
                version=text.version,
                word_limit=text.word_limit,
                updated_at=text.last_updated_at,
            )
    return None
