"""Read v1 memory onto a stage, and make the plan: the targets of all documents."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager

import msgspec

from edenmem.engine.migration import conversion
from edenmem.engine.migration.conversion import ItemBuilder, shard_key
from edenmem.engine.migration.items import (
    SWITCH,
    TYPES,
    digest_of,
    format_sources,
    origin_of,
)
from edenmem.engine.scopes.references import MIN_PREFIX
from edenmem.errors import AmbiguousReference, NotFoundError
from edenmem.models.host import User
from edenmem.models.ids import is_id
from edenmem.models.migration import UNFINISHED, MigrationRun
from edenmem.models.scope import Scope, ScopeKind
from edenmem.models.v1 import (
    Outcome,
    V1Account,
    V1Damage,
    V1Item,
    V1Options,
    V1Problem,
    V1Read,
    V1Ref,
)
from edenmem.store.sqlite.v1.staging import SqliteV1Stage, TargetRow
from edenmem.store.v1.source import V1Source

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


class PlanNote(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about a source that its stage keeps for a later process.

    Attributes:
        location: The location, without secrets.
        fingerprint: A hash of all bytes of the source.
        options: The options, with the IDs of the selected agents.
        incomplete: The missing or unreadable parts of the source.
        totals: Number of documents of the selected agents, or without an owner, by collection.
        not_asked: Number of documents of other agents by collection.
        unknown_fields: ``collection.field`` → number of documents with this unknown field.
        agents: IDs of the selected agents with documents.
        item_total: Number of items.
        results: Number of documents that are "used", "left_behind" or "bad".
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
    results: dict[str, int]


def open_plan(
    source: V1Source,
    stage: SqliteV1Stage,
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
            total, fingerprint = source.size(), source.fingerprint()
            stage.add_accounts(source.accounts())
            found = (_find_agent(stage, source, name, find_agent) for name in options.agents)
            options = msgspec.structs.replace(options, agents=tuple(dict.fromkeys(found)))
            stage.add_people((user.id, user.person_id) for user in users if user.eden_user_id)
            stage.add(_count(source.documents(stage.canonical), progress, total))
            stage.settle(merge=options.shards == "merge")
            incomplete = (*source.damage(), *stage.damage(source.collections()))
            _complete(stage, source.location, fingerprint, options, incomplete)
    except BaseException:
        stage.close()
        raise
    finally:
        source.close()
    return StagedPlan(stage)


def _complete(
    stage: SqliteV1Stage,
    location: str,
    fingerprint: str,
    options: V1Options,
    incomplete: tuple[V1Damage, ...],
) -> None:
    """Add the targets of all documents to a settled stage."""
    everything = stage.counts()
    totals = stage.counts(options.agents) if options.agents else everything
    agents = tuple(
        agent for agent in stage.column("agents") if agent and agent in (options.agents or (agent,))
    )
    #: By document number: 0 unseen, 1 in an item, 2 in an item with a target.
    uses = array("b", bytes(sum(everything.values()) + 1))

    def use(number: int, used: bool) -> None:
        uses[number] = max(uses[number], 1 + used)

    for agent in agents:
        stage.add_targets(rows_of(_build(ItemBuilder(stage, options, agent, use))))
    for agent in ("", *agents):
        stage.add_problems(
            msgspec.structs.replace(conversion.leftover(cause, staged), agent_id=agent)
            for cause, staged in stage.noted_leftovers(agent)
        )
    causes = {
        cause: (reason, "bad" if cause in conversion.BAD else "left_behind")
        for cause, reason in conversion.REASONS.items()
        if not (cause == "episode" and options.episodes == "keep")
        and not (cause == "absorbed" and options.provenance)
    }
    stage.add_leftovers(causes, options.agents)
    for number in stage.leftover_numbers():
        use(number, used=False)
    counts = stage.outcomes()
    counted = Counter(uses[1:])
    bad = counts.get(Outcome.BAD, 0)
    note = PlanNote(
        location=location,
        fingerprint=fingerprint,
        options=options,
        incomplete=incomplete,
        totals=totals,
        not_asked={name: everything[name] - totals[name] for name in everything},
        unknown_fields=stage.unknown_fields(),
        agents=agents,
        item_total=sum(counts.values()),
        results={"used": counted[2], "left_behind": counted[1] - bad, "bad": bad},
    )
    stage.complete(msgspec.msgpack.encode(note))


def _build(builder: ItemBuilder) -> Iterator[V1Item]:
    """Yield the items of an agent, as they are written."""
    yield from builder.switch()
    yield from builder.policies()
    yield from builder.texts()
    yield from conversion.facts(builder)
    yield from conversion.reflections(builder)
    if builder.options.episodes == "keep":
        yield from conversion.episodes(builder)


def rows_of(items: Iterable[V1Item]) -> Iterator[TargetRow]:
    """Yield the rows of items."""
    for item in items:
        memory = item.memory
        about = (item, item.agent_id, item.kind, item.outcome, item.reason)
        if memory is None:
            switch = () if item.switch is None else (SWITCH, item.agent_id, None, int(item.switch))
            yield TargetRow(*about, *switch)
            continue
        scope = memory.home.key
        type, own = TYPES[memory.__class__], memory.id
        key = own if type in ("fact", "reflection") else scope
        origin = f"from {format_sources(item.sources)}"
        # No log entry has the origin of a text with older ones.
        origin = f"older texts {origin}" if item.earlier else origin
        yield TargetRow(*about, type, key, scope, digest_of(memory), origin_of(origin))


def _find_agent(
    stage: SqliteV1Stage, source: V1Source, name: str, find_agent: FindAgent | None
) -> str:
    """Return the ID of an agent, given by it, or by username or prefix, in the source or store."""
    folded = name.casefold()
    if is_id(folded):
        return folded
    accounts = stage.accounts("agents")
    matches: tuple[Callable[[V1Account], bool], ...] = (
        lambda each: each.username == name and bool(each.known),
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
        f"no agent {name!r} in {source.location} or in this store",
        hint=f"{names}--agent also accepts the agent_id of the source's documents",
    )


def _count(reads: Iterable[V1Read], progress: Progress, total: int) -> Iterator[V1Read]:
    done = 0
    for done, read in enumerate(reads, start=1):
        yield read
        if done % _STEP == 0:
            progress(done, max(total, done))  # a live database can grow after the count
    progress(done, done)


def find_person(stage: SqliteV1Stage, person_id: str, *, is_agent: bool) -> V1Account:
    """Return an agent or user by ID, also if the source does not know it."""
    account = next(iter(stage.accounts("one", person_id)), None)
    if account is None or account.is_agent is not is_agent:
        known = False if stage.has("accounts", is_agent) else None
        return V1Account(id=person_id, is_agent=is_agent, known=known)
    return msgspec.structs.replace(account, id=person_id, eden_user_id="")


def is_of(stage: SqliteV1Stage, source: V1Source, runs: Sequence[MigrationRun]) -> bool:
    """Return whether a complete stage has what an unfinished run read from a source."""
    about = msgspec.msgpack.decode(stage.note, type=PlanNote)
    return (source.is_live or about.fingerprint == source.fingerprint()) and any(
        run.source == source.location and run.state in UNFINISHED for run in runs
    )


class StagedPlan(AbstractContextManager["StagedPlan", None]):
    """The plan of a source: what v2 must hold, on a stage.

    ``keep`` keeps the stage for the next process when the plan is closed. Blocks. Not thread-safe.
    """

    def __init__(self, stage: SqliteV1Stage) -> None:
        self.stage = stage
        self.about = msgspec.msgpack.decode(stage.note, type=PlanNote)
        self.options = self.about.options
        self.keep = False

    def agents(self) -> list[V1Account]:
        """Return the agents, in the order of their items."""
        return [find_person(self.stage, agent, is_agent=True) for agent in self.about.agents]

    def users(self) -> Iterator[V1Account]:
        """Yield users with a text or named by memory, each once, with their other accounts."""
        stage = self.stage
        unused = self.options.provenance or self.options.episodes == "keep"
        for user_id in stage.user_ids(self.about.agents, unused=unused):
            accounts = stage.accounts("of_user", user_id)
            if all(account.id != user_id for account in accounts):
                known = find_person(stage, user_id, is_agent=False).known
                yield V1Account(id=user_id, known=known)
            yield from sorted(accounts, key=lambda each: each.id != user_id)

    def items(self, outcome: str = "") -> Iterator[V1Item]:
        """Yield all items; every document of v1 is among the sources of at least one.

        With an ``outcome``, those that have it in an empty store.
        """
        for found in self.stage.items(outcome):
            yield found if isinstance(found, V1Item) else conversion.leftover(*found)

    def problems(self) -> Iterator[V1Problem]:
        """Yield the problems of all documents."""
        for raw in self.stage.problems():
            yield msgspec.msgpack.decode(raw, type=V1Problem)

    def source_text(self, ref: V1Ref) -> str:
        """Return the text of a v1 document; empty if it is unreadable."""
        staged = self.stage.find(ref)
        return "" if staged is None or staged.document is None else staged.document.content

    def find_absorbed(self, item: V1Item, memory_ids: Sequence[str]) -> set[str]:
        """Return those of these v1 memories that are no longer pending for the item's text."""
        assert item.scope is not None
        scope = stage_key(item.scope) or shard_key(item.sources[0].id)
        return self.stage.find_unlisted(item.agent_id, scope, memory_ids)

    def close(self) -> None:
        """Remove the stage, unless it is kept."""
        self.stage.close(keep=self.keep)

    def __exit__(self, *_: object) -> None:
        self.close()


def stage_key(scope: Scope) -> str | None:
    """Return the key of a scope in the stage; None for a shard, which has an ID there."""
    return {ScopeKind.USER: f"user/{scope.owner}", ScopeKind.AGENT: "agent"}.get(scope.kind)
