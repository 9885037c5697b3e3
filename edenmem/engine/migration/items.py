"""The items of v1, in which a plan gives them, as changes of v2: ids, reasons, outcomes.

The id of a change is derived from the item and from its documents as they were read. So a run that
was cut off goes on without doing anything twice, and a later run finds what an earlier one did,
also where it was edited or deleted since: migrating again never undoes what people and live traffic
did to migrated memory. After a rollback the ids are new (the number of the ``round``), so that what
was taken back can be migrated again.
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
from edenmem.models.forgetting import Forgetting, Subject
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
    """The items of a source. Reading them writes only to a temporary file, which is removed when
    the plan is closed or the process ends.

    Blocks. One thread at a time may use a plan.
    """

    @property
    def location(self) -> str:
        """The location of the source, without secrets."""

    @property
    def options(self) -> V1Options:
        """What the plan makes of v1, with the ids of the agents that were asked for."""

    @property
    def incomplete(self) -> Sequence[V1Damage]:
        """The parts of the source that are missing or cannot be read."""

    @property
    def totals(self) -> Mapping[str, int]:
        """How many documents each collection has of the agents that were asked for, those of
        nobody included; the sources of all items together are exactly these."""

    @property
    def not_asked(self) -> Mapping[str, int]:
        """How many documents each collection has of agents that were not asked for."""

    @property
    def unknown_fields(self) -> Mapping[str, int]:
        """``collection.field`` → how many documents have this field, which v1 is not known for."""

    def item_total(self, tell: Callable[[int], None] = ...) -> int:
        """Return the number of items, which are counted at the first call; ``tell`` is then called
        now and then with the number so far."""

    def fates(self) -> Mapping[str, int]:
        """Return the number of documents that have a place in v2 ("used"), are "left_behind", or
        "bad"; each counts once, so that these are all `totals`. Counted with `item_total`."""

    def agents(self) -> Sequence[V1Person]:
        """The agents that the items belong to, in that order."""

    def users(self, agent_id: str | None = None) -> Iterator[V1Person]:
        """The users with a text of the agent, or whom its memory names, or those of any of the
        agents that were asked for; each followed by their other accounts."""

    def items(self, *, after: str | None = None, agent_id: str | None = None) -> Iterator[V1Item]:
        """The items by agent, kind and key; with ``after``, only those with greater keys."""

    def problems(self) -> Iterator[V1Problem]:
        """The problems of all items, in their order."""

    def source_text(self, ref: V1Ref) -> str | None:
        """Return the text of a document of v1; None if there is no such document."""

    def find_absorbed(self, item: V1Item, memory_ids: Sequence[str]) -> set[str]:
        """Those of these memories (ids of v1) that v1 has and that do not wait for the text of the
        item any more."""

    def close(self) -> None:
        """Remove the temporary file."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


#: Characters of the items that are handled together.
_CHARACTERS = 2_000_000


def batched_items(items: Iterable[V1Item], size: int) -> Iterator[list[V1Item]]:
    """Yield lists of up to ``size`` items, in order; shorter ones where texts are long, so that
    memory does not grow with the length of texts."""
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


#: Sources that are named in the audit entry of a change; more are counted.
_NAMED_SOURCES = 20

#: Why there is a version of a text, in the log: a model shortened it,
SHORTENED = "shortened to the limit of its scope; the version before is the whole text"
#: or v1 has a later one of the same owner.
REPLACED_LATER = "replaced by a later text of the same owner"
#: or v1 has absorbed memories without another text.
ABSORBED_LATER = "v1 has absorbed what was pending, and kept its text"


class Outcome(StrEnum):
    """What became of an item."""

    MIGRATED = "migrated"
    MERGED = "merged"
    ALREADY = "already"  # an earlier run has moved it, or v2 has the same anyway
    KEPT = "kept"  # v2 has something of its own in that place, which was kept
    LEFT_BEHIND = "left_behind"
    BAD = "bad"
    FAILED = "failed"


#: Digits of an id that are its time.
_TIME = 8

#: The outcomes of items that the run itself has moved.
MOVED = (Outcome.MIGRATED, Outcome.MERGED)


class Treatment(StrEnum):
    """What a run does where v2 has something of its own, or of an earlier run."""

    FOLLOWED = "followed"
    KEPT = "kept"
    APPENDED = "appended"
    REPLACED = "replaced"


class Done(msgspec.Struct, frozen=True):
    """An item and what became of it.

    ``detail`` says why, where that is not the item's own word; ``treatment`` what became of what v2
    had in its place, if there was something else.
    """

    item: V1Item
    outcome: Outcome
    detail: str = ""
    treatment: Treatment | None = None


class Rounds:
    """How often items were migrated and rolled back: an item is in its next round only if what
    moved it was taken back, whatever else was. Of a run that is partly rolled back, the log says
    which of its changes were."""

    def __init__(self, runs: Iterable[MigrationRun]) -> None:
        self._everybody = 0
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
            self._everybody += not agents
            for agent_id in agents:
                self._agents[agent_id] = self._agents.get(agent_id, 0) + 1
        self.run_ids = frozenset(ids)

    def most(self, item: V1Item) -> int:
        """The last round that the item can be in: so many runs of its agent were rolled back."""
        return self._everybody + self._agents.get(item.agent_id, 0)

    def look(self, store: Store, items: Iterable[V1Item]) -> None:
        """Find the rounds of some items; `of` then knows these.

        Raises:
            StoreError: the database cannot be used.
        """
        ids = {
            item.key: [change_id(item, round) for round in range(self.most(item) + 1)]
            for item in items
            if item.target is not None and self.most(item)
        }
        entries = (
            store.log.audit_entries([each for own in ids.values() for each in own]) if ids else {}
        )
        undone = self._undone(store, entries)
        self._of = {}
        for key, own in ids.items():
            rolled_back = [undone.get(each) for each in own]
            # The round whose change stands, else the first that was never taken.
            wanted = False if False in rolled_back else None
            found = rolled_back.index(wanted) if wanted in rolled_back else len(own) - 1
            self._of[key] = found

    def _undone(self, store: Store, entries: Mapping[str, AuditEntry]) -> dict[str, bool]:
        """By id: whether what an entry did was taken back with its run."""
        states = {id: self._rolled_back.get(e.actor.run_id or "") for id, e in entries.items()}
        partly = [entries[id] for id, state in states.items() if state is RunState.PARTLY]
        chains = chains_of(store, partly)
        return {
            id: len(chains[id]) % 2 == 0 if id in chains else state in TAKEN_BACK
            for id, state in states.items()
        }

    def of(self, item: V1Item) -> int:
        """The round that the item is in."""
        return self._of.get(item.key, 0)


class Forgotten:
    """Whose memory was forgotten here, and so does not come back out of v1."""

    reason = "whose it is was forgotten here"

    def __init__(self, forgettings: Iterable[Forgetting]) -> None:
        self._ids = {forgetting.id for forgetting in forgettings}

    def has(self, item: V1Item) -> bool:
        """Whether the item's target is of somebody, or of a whole agent, that was forgotten."""
        scope = target_scope(item)
        if not self._ids or scope is None:
            return False
        subjects = [Subject(kind="agent", agent_id=scope.agent_id)]
        if scope.kind is ScopeKind.USER:
            subjects.append(Subject(kind="user", owner=scope.owner))
            subjects.append(Subject(kind="user", owner=scope.owner, agent_id=scope.agent_id))
        elif scope.kind is ScopeKind.SESSION:
            subjects.append(Subject(kind="session", owner=scope.owner))
        return any(subject.id in self._ids for subject in subjects)

    def without_users(self, item: V1Item) -> V1Item:
        """The item without related users that were forgotten."""
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
    """The id of the change that moves an item, or of one ``part`` of it.

    It begins with the time of the first document, as ids do: an index takes those that come in
    order several times faster than those that come at random.
    """
    if isinstance(item.target, V1Toggles):
        # What else is in a shard is no reason to switch its agent again.
        return derived_id("v1", str(round), item.key, _place(item), part)
    hashes = sorted(ref.content_hash for ref in item.sources)
    own = derived_id("v1", str(round), item.key, _place(item), part, *hashes)
    first = item.sources[0].id[:24]
    return first[:_TIME] + own[_TIME:] if is_id(first) else own


def _place(item: V1Item) -> str:
    """Where the item goes: the same document may go elsewhere with other options."""
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
    """The scope that the item's target belongs to; None for toggles and without a target."""
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
    """What the audit keeps of where a change came from: documents, why, and the fields that v2 has
    no place for."""
    parts = [f"from {format_sources(item.sources)}", item.reason, item.extra]
    return "; ".join(filter(None, parts))


def format_sources(sources: Sequence[V1Ref]) -> str:
    """The documents, for people; of many only the first."""
    shown = [f"{ref.collection}/{ref.id}" for ref in sources[:_NAMED_SOURCES]]
    more = len(sources) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def read_sources(reason: str) -> list[tuple[str, str]]:
    """The documents (collection, id) that the reason of a change names."""
    named = reason.partition(";")[0].removeprefix("from ").partition(" and ")[0]
    pairs = (each.partition("/") for each in named.split(", "))
    return [(collection, id) for collection, slash, id in pairs if slash]


def changes_of(item: V1Item, round: int, *, at: datetime) -> list[Change]:
    """The changes that move an item; those of a text are to be decided on (`text_changes`)."""
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
    """The versions that move a text, oldest first.

    Args:
        item: The item.
        text: Its target.
        round: The round that the item is in.
        version: That of the scope's text on which the first one is written.
        content: What the last one says.
        earlier: The older texts that come before it.
        absorbed_ids: What waits in the scope and is in the text now.
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


#: The settings that v1 has.
_SETTINGS = ("memory_instructions", "consolidate_at", "fact_buffer_max", "active")


def settings_of(policy: Policy) -> dict[str, Any]:
    """What a policy says of that which v1 has settings for, too."""
    return {name: getattr(policy, name) for name in _SETTINGS}


def classify_moved(item: V1Item) -> Outcome:
    """The outcome of an item that was moved."""
    return Outcome.MERGED if item.disposition is Disposition.MERGED else Outcome.MIGRATED


def classify_unmoved(item: V1Item) -> Outcome:
    """The outcome of an item that has no target."""
    return Outcome.BAD if item.disposition is Disposition.BAD else Outcome.LEFT_BEHIND


def expected_of(item: V1Item) -> Fact | Reflection | Consolidation | Policy | None:
    """Return what a run makes of an item in an empty store."""
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
