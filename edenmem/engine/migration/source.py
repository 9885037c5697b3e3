"""Read v1 memory onto a stage, and make the plan: the targets of all documents."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from types import TracebackType
from typing import Self

import msgspec

from edenmem.engine.migration import memory_items, text_items
from edenmem.engine.migration.items import (
    classify_moved,
    classify_unmoved,
    digest,
    digest_of_ids,
    digest_of_text,
    origin_of,
    target_scope,
    text_of,
    wanted_of,
)
from edenmem.engine.migration.text_items import ItemBuilder
from edenmem.engine.scopes.references import MIN_PREFIX
from edenmem.errors import AmbiguousReference, NotFoundError
from edenmem.models.host import User
from edenmem.models.ids import derived_id, is_id
from edenmem.models.migration import UNFINISHED, MigrationRun
from edenmem.models.scope import Scope, ScopeKind
from edenmem.models.v1 import (
    SHARDS,
    V1Damage,
    V1Item,
    V1Options,
    V1Person,
    V1Problem,
    V1ProblemKind,
    V1Ref,
    V1Reflection,
    V1Text,
)
from edenmem.models.v1_documents import V1Account, V1Read
from edenmem.store.v1.protocol import TargetRow, V1Source, V1Stage

_NAMED = 5


def join_names(names: Sequence[str]) -> str:
    """Join the first names, and count the others."""
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


#: Called with the number of documents read, and their total.
Progress = Callable[[int, int], None]

#: Returns the ID of the store's agent with this name, or raises `NotFoundError`.
FindAgent = Callable[[str], str]

#: Number of documents between progress reports.
_STEP = 500

#: Functions that build the items of an agent, in the order in which they are written.
_STEPS: tuple[Callable[[ItemBuilder], Iterator[V1Item]], ...] = (
    text_items.toggles,
    text_items.policies,
    text_items.texts,
    memory_items.facts,
    memory_items.reflections,
    memory_items.episodes,
)


class PlanNote(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about a source that its stage keeps for a later process.

    Attributes:
        location: The location, without secrets.
        fingerprint: A text that changes with the files of the source.
        options: The options, with the IDs of the selected agents.
        incomplete: The missing or unreadable parts of the source.
        totals: Number of documents of the selected agents, or without an owner, by collection.
        not_asked: Number of documents of other agents by collection.
        unknown_fields: ``collection.field`` → number of documents with this unknown field.
        agents: IDs of the selected agents with documents.
        item_total: Number of items.
        fates: Number of documents that are "used", "left_behind" or "bad".
    """

    location: str
    fingerprint: str
    options: V1Options
    incomplete: tuple[V1Damage, ...]
    totals: dict[str, int]
    not_asked: dict[str, int]
    unknown_fields: dict[str, int]
    agents: tuple[str, ...]
    item_total: int
    fates: dict[str, int]


def open_plan(
    source: V1Source,
    stage: V1Stage,
    options: V1Options,
    *,
    users: Iterable[User] = (),
    find_agent: FindAgent | None = None,
    progress: Progress = lambda done, total: None,
) -> StagedPlan:
    """Read a source onto a stage, and return its plan. Blocks.

    Args:
        source: The source; always closed afterwards.
        stage: A stage: an empty one, or a complete one of the same source and options, which is
            used as it is. The plan closes it; closed here if reading fails.
        options: How to convert v1 memory.
        users: Users of the target store. They identify the accounts of one person if the source
            has no accounts.
        find_agent: Finds agents that the source does not know.
        progress: Called with the number of documents read, and their total.

    Raises:
        AmbiguousReference: an agent name is ambiguous in the source.
        NotFoundError: neither the source nor the store has an agent.
    """
    try:
        if not stage.note:
            total = source.size()
            stage.add_accounts(source.accounts())
            agents = _agent_ids(stage, source.location, options.agents, find_agent)
            options = msgspec.structs.replace(options, agents=agents)
            stage.add_people((user.id, user.person_id) for user in users if user.eden_user_id)
            stage.add(_count(source.documents(stage.canonical), progress, total))
            stage.settle(merge=options.shards == "merge")
            incomplete = (*source.damage(), *stage.damage(source.collections()))
            _complete(stage, source, options, incomplete)
    except BaseException:
        stage.close()
        raise
    finally:
        source.close()
    return StagedPlan(stage)


def _complete(
    stage: V1Stage, source: V1Source, options: V1Options, incomplete: tuple[V1Damage, ...]
) -> None:
    """Add the targets of all documents to a settled stage."""
    everything = stage.counts()
    totals = stage.counts(options.agents) if options.agents else everything
    agents = tuple(
        agent for agent in stage.agents() if agent and agent in (options.agents or (agent,))
    )
    #: By document number: 0 unseen, 1 in an item, 2 in an item with a target.
    uses = array("b", bytes(sum(everything.values()) + 1))

    def use(number: int, used: bool) -> None:
        uses[number] = max(uses[number], 1 + used)

    for agent in agents:
        builder = ItemBuilder(stage, options, agent, use)
        items = _with_stranger(stage, builder, options)
        stage.add_targets(rows_of(items))
    for agent in ("", *agents):
        stage.add_problems(
            msgspec.structs.replace(memory_items.leftover(fate, staged), agent_id=agent)
            for fate, staged in stage.noted_leftovers(agent)
        )
    fates = {
        fate: (reason, "bad" if fate in memory_items.BAD else "left_behind")
        for fate, reason in memory_items.REASONS.items()
        if not (fate == "episode" and options.episodes == "keep")
        and not (fate == "absorbed" and options.provenance)
    }
    stage.add_leftovers(fates, options.agents)
    for number in stage.leftover_numbers():
        use(number, used=False)
    counts = Counter(stage_outcomes(stage))
    counted = Counter(uses[1:])
    note = PlanNote(
        location=source.location,
        fingerprint=source.fingerprint(),
        options=options,
        incomplete=incomplete,
        totals=totals,
        not_asked={name: everything[name] - totals[name] for name in everything},
        unknown_fields=stage.unknown_fields(),
        agents=agents,
        item_total=sum(counts.values()),
        fates={
            "used": counted[2],
            "left_behind": counted[1] - counts["bad"],
            "bad": counts["bad"],
        },
    )
    stage.complete(msgspec.msgpack.encode(note))


def stage_outcomes(stage: V1Stage) -> dict[str, int]:
    """Count the items of a stage by outcome."""
    counts: Counter[str] = Counter()
    for *_, outcome, _, count in stage.count_outcomes():
        counts[outcome] += count
    return counts


def _with_stranger(stage: V1Stage, builder: ItemBuilder, options: V1Options) -> Iterator[V1Item]:
    """Yield the items of an agent; the first one has the problem of an unknown agent."""
    steps = _STEPS if options.episodes == "keep" else _STEPS[:-1]
    items = chain.from_iterable(step(builder) for step in steps)
    person = person_of(stage, builder.agent_id, is_agent=True)
    for item in items:
        if person.known is False:
            problem = V1Problem(
                collection=item.sources[0].collection,
                document_id=item.sources[0].id,
                agent_id=item.agent_id,
                kind=V1ProblemKind.UNKNOWN_AGENT,
                detail=f"the host no longer has agent {item.agent_id}",
            )
            item = msgspec.structs.replace(item, problems=(problem, *item.problems))
            person = msgspec.structs.replace(person, known=None)
        yield item


def rows_of(items: Iterable[V1Item]) -> Iterator[TargetRow]:
    """Yield the rows of items, and one for each buffer."""
    home: Scope | None = None
    waiting: list[str] = []
    for item in items:
        wanted, scope = wanted_of(item), target_scope(item)
        outcome = classify_moved(item) if wanted else classify_unmoved(item)
        yield TargetRow(
            agent_id=item.agent_id,
            shard=item.shard,
            kind=item.kind,
            type=wanted.key.type if wanted else None,
            key=wanted.key.id if wanted else None,
            scope=scope.key if scope is not None else None,
            digest=wanted.digest if wanted else None,
            origin=_origin_of(item) if wanted else None,
            text=digest_of_text(text_of(wanted.memory)) if wanted and wanted.memory else None,
            outcome=outcome,
            reason=item.reason,
            item=item,
        )
        # Episodes belong to sessions, which are not consolidated: their buffers have no order.
        if isinstance(item.target, V1Reflection) and item.kind == "reflection":
            if scope != home:
                yield from _buffer_row(home, waiting)
                home, waiting = scope, []
            if not item.target.reflection.absorbed:
                waiting.append(item.target.reflection.id)
    yield from _buffer_row(home, waiting)


def _buffer_row(scope: Scope | None, ids: Sequence[str]) -> Iterator[TargetRow]:
    if scope is not None and ids:
        ordered = digest_of_ids(ids)
        yield TargetRow(
            agent_id=scope.agent_id,
            shard=None,
            kind="buffer",
            type="buffer",
            key=scope.key,
            scope=None,
            digest=ordered,
            origin=None,
            text=None,
            outcome="",
            reason="",
            item=None,
        )


def _origin_of(item: V1Item) -> int:
    """Return the digest of an item's documents; no entry has that of a text with older ones."""
    origin = origin_of(item.sources)
    is_long = isinstance(item.target, V1Text) and item.target.earlier
    return origin_digest(f"older texts {origin}" if is_long else origin)


def origin_digest(reason: str) -> int:
    """Return the digest of the documents that a reason begins with."""
    return digest(reason.partition(";")[0].encode("utf-8", "surrogatepass"))


def _agent_ids(
    stage: V1Stage, location: str, names: Sequence[str], find_agent: FindAgent | None
) -> tuple[str, ...]:
    """Return the IDs of agents given by username, ID or ID prefix."""
    return tuple(
        dict.fromkeys(
            name.lower()
            if is_id(name.lower())
            else _agent_id(list(stage.agent_accounts()), location, name, find_agent)
            for name in names
        )
    )


def _agent_id(
    accounts: Sequence[V1Account], location: str, name: str, find_agent: FindAgent | None
) -> str:
    """Return the ID of the agent with this name in the source, else in the store."""
    folded = name.casefold()
    matches: tuple[Callable[[V1Account], bool], ...] = (
        lambda each: each.username == name and not each.deleted,
        lambda each: each.username.casefold() == folded,
        lambda each: len(name) >= MIN_PREFIX and each.id.startswith(folded),
    )
    for is_match in matches:
        found = [each for each in accounts if is_match(each)]
        if len(found) > 1:
            raise AmbiguousReference("agent", name, [f"{a.id}  {a.username}" for a in found])
        if found:
            return found[0].id
    try:
        if find_agent is not None:
            return find_agent(name)
    except NotFoundError:
        pass
    named = sorted(filter(None, (each.username for each in accounts)))
    names = f"agents of the source: {join_names(named)}; " if named else ""
    raise NotFoundError(
        f"no agent {name!r} in {location} or in this store",
        hint=f"{names}--agent also accepts the agent_id of the source's documents",
    )


def _count(reads: Iterable[V1Read], progress: Progress, total: int) -> Iterator[V1Read]:
    done = 0
    for done, read in enumerate(reads, start=1):
        yield read
        if done % _STEP == 0:
            progress(done, max(total, done))  # a live database can grow after the count
    progress(done, done)


def person_of(stage: V1Stage, person_id: str, *, is_agent: bool) -> V1Person:
    """Return an agent or user by ID."""
    account = stage.account(person_id)
    if account is not None and account.is_agent is not is_agent:
        account = None
    known = None
    if stage.has_accounts(agents=is_agent):
        known = account is not None and not account.deleted
    if account is None:
        return V1Person(id=person_id, known=known)
    return V1Person(
        id=person_id,
        username=account.username or None,
        name=account.name or None,
        owner=account.owner or None,
        known=known,
        persona=account.persona or None,
        user_memory_enabled=account.user_memory_enabled,
    )


def is_of(stage: V1Stage, source: V1Source, runs: Sequence[MigrationRun]) -> bool:
    """Return whether a complete stage has what an unfinished run read from a source."""
    about = msgspec.msgpack.decode(stage.note, type=PlanNote)
    return about.fingerprint == source.fingerprint() and any(
        run.source == source.location and run.state in UNFINISHED for run in runs
    )


class StagedPlan:
    """The plan of a source: what v2 must hold, on a stage.

    ``keep`` keeps the stage for the next process when the plan is closed. Blocks. Not thread-safe.
    """

    def __init__(self, stage: V1Stage) -> None:
        self.stage = stage
        self.about = msgspec.msgpack.decode(stage.note, type=PlanNote)
        self.location = self.about.location
        self.options = self.about.options
        self.incomplete = self.about.incomplete
        self.totals = self.about.totals
        self.item_total = self.about.item_total
        self.fates = self.about.fates
        self.keep = False

    def agents(self) -> list[V1Person]:
        """Return the agents, in the order of their items."""
        return [person_of(self.stage, agent, is_agent=True) for agent in self.about.agents]

    def users(self) -> Iterator[V1Person]:
        """Yield users with a text or named by memory, each once, with their other accounts."""
        stage = self.stage
        unused = self.options.provenance or self.options.episodes == "keep"
        for user_id in stage.user_ids(self.about.agents, unused=unused):
            accounts = stage.accounts_of(user_id)
            if all(account.id != user_id for account in accounts):
                yield V1Person(id=user_id, known=person_of(stage, user_id, is_agent=False).known)
            for account in sorted(accounts, key=lambda each: each.id != user_id):
                yield V1Person(
                    id=account.id,
                    username=account.username or None,
                    known=not account.deleted,
                    eden_user_id=account.memory_id if account.memory_id != account.id else None,
                )

    def items(self, outcome: str = "") -> Iterator[V1Item]:
        """Yield all items; every document of v1 is among the sources of at least one.

        With an ``outcome``, those that have it in an empty store.
        """
        for found in self.stage.items(outcome):
            yield found if isinstance(found, V1Item) else memory_items.leftover(*found)

    def problems(self) -> Iterator[V1Problem]:
        """Yield the problems of all documents."""
        for raw in self.stage.problems():
            yield msgspec.msgpack.decode(raw, type=V1Problem)

    def count_problems(self) -> dict[str, int]:
        """Count the problems of all documents by kind."""
        return self.stage.count_problems()

    def source_text(self, ref: V1Ref) -> str | None:
        """Return the text of a v1 document, or None if the document is missing."""
        staged = self.stage.find(ref)
        return None if staged is None or staged.document is None else staged.document.content

    def find_absorbed(self, item: V1Item, memory_ids: Sequence[str]) -> set[str]:
        """Return those of these v1 memories that are no longer pending for the item's text."""
        scope = target_scope(item)
        assert scope is not None
        key = {ScopeKind.USER: f"user/{scope.owner}", ScopeKind.AGENT: "agent"}.get(scope.kind)
        if key is None:
            own = item.sources[0].id
            key = f"shard/{own if is_id(own) else derived_id('v1', SHARDS, own)}"
        return self.stage.find_unlisted(item.agent_id, key, memory_ids)

    def close(self) -> None:
        """Remove the stage, unless it is kept."""
        self.stage.close(keep=self.keep)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
