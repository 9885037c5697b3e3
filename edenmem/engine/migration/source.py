"""Read v1 memory onto a stage, and make the plan from the stage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, dropwhile
from types import TracebackType
from typing import Literal, Self

import msgspec

from edenmem.engine.migration import agent_items as text_items
from edenmem.engine.migration import memory_items
from edenmem.engine.migration.agent_items import KINDS, ItemBuilder
from edenmem.engine.migration.items import V1Plan
from edenmem.engine.runtime.runtime import Runtime
from edenmem.engine.scopes.references import MIN_PREFIX
from edenmem.errors import AmbiguousReference, NotFoundError
from edenmem.models.changes import AddAgent, AddUser, Change, ChangeSet
from edenmem.models.host import Agent, User
from edenmem.models.ids import is_id
from edenmem.models.v1 import (
    Disposition,
    V1Damage,
    V1Item,
    V1Options,
    V1Person,
    V1Problem,
    V1ProblemKind,
    V1Ref,
)
from edenmem.models.v1_documents import V1Account, V1Read
from edenmem.store.protocol.store import Store, batched
from edenmem.store.v1.protocol import V1Source, V1Stage

_BATCH = 500
_NAMED = 5


def join_names(names: Sequence[str]) -> str:
    """Join the first names, and count the others."""
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


def has_own_accounts(store: Store) -> bool:
    """Return whether the store manages the accounts itself, without a platform."""
    return store.database.info().kind == "sqlite"


#: Advice on an account whose name is taken, by kind.
_TAKEN = {
    "agent": "its memory is kept under its ID: name the agent with "
    "'edenmem agent add NAME --id ID'",
    "user": "its memory is kept under its ID: name the user with 'edenmem user add NAME --id ID', "
    "or move the memory with 'edenmem user merge' if both are one person",
}


def add_people(runtime: Runtime, plan: V1Plan) -> tuple[list[V1Problem], list[str]]:
    """Add the agents and users of the plan; return accounts with a taken name, and notices.

    Raises:
        StoreError: the database cannot be used.
    """
    host, own = runtime.store.host, has_own_accounts(runtime.store)
    taken = list(find_taken_names(runtime.store, plan))
    not_added = {problem.document_id for problem in taken}
    unknown = [person for person in plan.agents() if host.agent(person.id) is None]
    added = [person for person in unknown if own and is_addable(person)]
    refused = _apply(
        runtime,
        [
            AddAgent(agent=describe_agent(person), reason=_KNOWN_TO_V1)
            for person in added
            if person.id not in not_added
        ],
    )
    if own:
        for people in batched(plan.users(), _BATCH):
            known = host.users_by_ids([person.id for person in people])
            new = [p for p in people if p.id not in known and is_addable(p)]
            refused += _apply(
                runtime,
                [
                    AddUser(user=describe_user(person), reason=_KNOWN_TO_V1)
                    for person in new
                    if person.id not in not_added
                ],
            )
    notices = [f"not added: {reason}" for reason in refused]
    silent = [
        str(person.username)
        for person in added
        if not person.user_memory_enabled and host.agent(person.id) is not None
    ]
    if silent:
        notices.append(
            f"user memory is off for {join_names(silent)}, as in the "
            "source: 'edenmem agent set NAME --user-memory' turns it on"
        )
    strangers = [person.id for person in unknown if person not in added]
    if strangers:
        notices.append(strangers_notice(strangers))
    return taken, notices


def agents_to_add(store: Store, plan: V1Plan) -> list[Agent]:
    """Return the agents that `add_people` would add."""
    if not has_own_accounts(store):
        return []
    taken = {agent.username for agent in store.host.agents()}
    return [
        describe_agent(person)
        for person in plan.agents()
        if is_addable(person)
        and person.username not in taken
        and store.host.agent(person.id) is None
    ]


def is_addable(person: V1Person) -> bool:
    """Return whether the source has the person's username, and the person still exists."""
    return bool(person.username) and person.known is True


def find_taken_names(store: Store, plan: V1Plan) -> Iterator[V1Problem]:
    """Yield a problem for each account whose username is taken, here or in the source."""
    if not has_own_accounts(store):
        return
    host = store.host
    names = {agent.username: agent.id for agent in host.agents()}
    for person in plan.agents():
        if is_addable(person) and host.agent(person.id) is None:
            yield from _find_holder("agent", person, names)
    names = {user.username: user.id for user in host.users()}
    for people in batched(plan.users(), _BATCH):
        known = host.users_by_ids([person.id for person in people])
        for person in people:
            if is_addable(person) and person.id not in known:
                yield from _find_holder("user", person, names)


def _find_holder(
    kind: Literal["agent", "user"], person: V1Person, names: dict[str, str]
) -> Iterator[V1Problem]:
    assert person.username is not None
    holder = names.setdefault(person.username, person.id)
    if holder != person.id:
        yield V1Problem(
            collection="users3",
            document_id=person.id,
            agent_id=person.id if kind == "agent" else None,
            kind=V1ProblemKind.NAME_TAKEN,
            detail=f"{kind} name {person.username!r} is taken by {holder}; {_TAKEN[kind]}",
        )


def strangers_notice(agent_ids: list[str]) -> str:
    """Return a notice on agents that the host does not know."""
    count = "1 agent is" if len(agent_ids) == 1 else f"{len(agent_ids)} agents are"
    return (
        f"{count} unknown to the host; memory is kept under the ID "
        f"({join_names(agent_ids)}): add an agent with "
        "'edenmem agent add NAME --id ID'"
    )


#: The reason of added agents and users in the log.
_KNOWN_TO_V1 = "known to the source of v1"


def describe_agent(person: V1Person) -> Agent:
    """Return the agent that a run adds for a v1 agent."""
    return Agent(
        id=person.id,
        username=person.username or person.id,
        name=person.name or "",
        persona=person.persona or "",
        owner=person.owner,
        user_memory_enabled=person.user_memory_enabled,
    )


def describe_user(person: V1Person) -> User:
    """Return the account that a run adds for a v1 user."""
    return User(
        id=person.id, username=person.username or person.id, eden_user_id=person.eden_user_id
    )


def _apply(runtime: Runtime, changes: list[Change]) -> list[str]:
    if not changes:
        return []
    results = runtime.store.changes.apply(
        ChangeSet(actor=runtime.actor, at=runtime.clock(), changes=tuple(changes))
    )
    return [f"{found.target_id}: {found.detail}" for found in results if not found.ok]


#: Called with the number of documents read, and their total.
Progress = Callable[[int, int], None]

#: Returns the ID of the store's agent with this name, or raises `NotFoundError`.
FindAgent = Callable[[str], str]

#: Number of documents between progress reports.
_STEP = 500

#: Functions that build the items of each kind, in the order of `KINDS`.
_STEPS: tuple[Callable[[ItemBuilder], Iterator[V1Item]], ...] = (
    text_items.toggles,
    text_items.policies,
    text_items.texts,
    memory_items.facts,
    memory_items.reflections,
    memory_items.episodes,
    memory_items.leftovers,
)


def open_plan(
    source: V1Source,
    stage: V1Stage,
    options: V1Options,
    *,
    users: Iterable[User] = (),
    find_agent: FindAgent | None = None,
    progress: Progress | None = None,
) -> StagedPlan:
    """Read a source onto a stage, and return its plan. Blocks.

    Args:
        source: The source; always closed afterwards.
        stage: An empty stage. The plan closes it; closed here if reading fails.
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
        counts = source.counts()
        stage.add_accounts(source.accounts())
        options = msgspec.structs.replace(
            options, agents=_agent_ids(stage, source.location, options.agents, find_agent)
        )
        stage.add_people((user.id, user.person_id) for user in users if user.eden_user_id)
        reads = source.documents(stage.canonical)
        if progress is not None:
            reads = _count(reads, progress, sum(counts.values()))
        stage.add(reads)
        stage.settle(merge=options.shards == "merge")
        incomplete = (*source.damage(), *stage.damage(source.collections()))
    except BaseException:
        stage.close()
        raise
    finally:
        source.close()
    return StagedPlan(stage, options, source.location, incomplete)


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
    progress(done, max(total, done))


class StagedPlan:
    """The plan of a staged source; see `edenmem.engine.migration.items.V1Plan`."""

    def __init__(
        self,
        stage: V1Stage,
        options: V1Options,
        location: str,
        incomplete: tuple[V1Damage, ...] = (),
    ) -> None:
        self.incomplete = incomplete
        self._stage = stage
        self.options = options
        self._item_total: int | None = None
        self._fates: dict[str, int] = {}
        self.location = location
        everything = stage.counts()
        self.totals = stage.counts(options.agents) if options.agents else everything
        self.not_asked = {name: everything[name] - self.totals[name] for name in everything}
        self.unknown_fields = stage.unknown_fields()
        self._agents = [
            agent
            for agent in stage.agents()
            if not agent or not options.agents or agent in options.agents
        ]

    def item_total(self, progress: Callable[[int], None] = lambda done: None) -> int:
        """Return the number of items."""
        if self._item_total is None:
            self._item_total, self._fates = self._count_items(progress)
        return self._item_total

    def fates(self) -> Mapping[str, int]:
        """Return the number of documents by fate."""
        self.item_total()
        return self._fates

    def _count_items(self, progress: Callable[[int], None]) -> tuple[int, dict[str, int]]:
        """Count items, and each document once, by its best use in any item."""
        unused: Counter[str] = Counter()
        # Hashes of documents that several items may use; others are counted directly.
        left, used = dict[str, Disposition](), set[str]()
        total = 0
        for total, item in enumerate(self.items(), 1):
            if total % _STEP == 0:
                progress(total)
            hashes = [ref.content_hash for ref in item.sources]
            if item.target is not None:
                if item.kind in ("policy", "toggles", "text") or self.options.active_since:
                    used.update(hashes)
            elif item.kind in ("leftover", "episode"):
                unused[item.disposition] += len(hashes)
            else:
                left.update(dict.fromkeys(hashes, item.disposition))
        unused.update(fate for each, fate in left.items() if each not in used)
        documents = sum(self.totals.values())
        bad, behind = unused[Disposition.BAD], unused[Disposition.LEFT_BEHIND]
        return total, {"used": documents - bad - behind, "left_behind": behind, "bad": bad}

    def agents(self) -> list[V1Person]:
        """Return the agents, in the order of their items."""
        return [self._person(agent, is_agent=True) for agent in self._agents if agent]

    def users(self, agent_id: str | None = None) -> Iterator[V1Person]:
        """Yield users with a text or named by memory, each once, with their other accounts."""
        agents = self._agents if agent_id is None else [agent_id]
        unused = self.options.provenance or self.options.episodes == "keep"
        for user_id in self._stage.user_ids(agents, unused=unused):
            accounts = self._stage.accounts_of(user_id)
            if all(account.id != user_id for account in accounts):
                yield V1Person(id=user_id, known=self._is_known(user_id))
            for account in sorted(accounts, key=lambda each: each.id != user_id):
                yield V1Person(
                    id=account.id,
                    username=account.username or None,
                    known=not account.deleted,
                    eden_user_id=account.memory_id if account.memory_id != account.id else None,
                )

    def _is_known(self, user_id: str) -> bool | None:
        """Return whether the source has this user; None if it has no users."""
        if not self._stage.has_accounts(agents=False):
            return None
        account = self._stage.account(user_id)
        return account is not None and not account.is_agent and not account.deleted

    def _person(self, person_id: str, *, is_agent: bool) -> V1Person:
        account = self._stage.account(person_id)
        if account is not None and account.is_agent is not is_agent:
            account = None
        known = None
        if self._stage.has_accounts(agents=is_agent):
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

    def items(self, *, after: str | None = None, agent_id: str | None = None) -> Iterator[V1Item]:
        """Yield the items after the key ``after``."""
        for agent in self._agents:
            if agent_id is not None and agent != agent_id:
                continue
            if after is None or not after.startswith(f"{agent}/"):
                if after is None or f"{agent}/" > after:
                    yield from self._items_of(agent, 0)
                continue
            first = int(after.removeprefix(f"{agent}/").partition("/")[0])
            items = self._items_of(agent, first)
            yield from dropwhile(lambda item: item.key <= after, items)

    def _items_of(self, agent_id: str, first: int) -> Iterator[V1Item]:
        builder = ItemBuilder(self._stage, self.options, agent_id)
        steps = _STEPS[first:] if agent_id else _STEPS[-1:]
        items = chain.from_iterable(step(builder) for step in steps)
        if first or not agent_id:
            yield from items
            return
        person = self._person(agent_id, is_agent=True)
        for item in items:
            yield _of_stranger(item) if person.known is False else item
            break
        yield from items

    def problems(self) -> Iterator[V1Problem]:
        """Yield the problems of all items."""
        for item in self.items():
            yield from item.problems

    def source_text(self, ref: V1Ref) -> str | None:
        """Return the text of a document."""
        staged = self._stage.find(ref)
        return None if staged is None or staged.document is None else staged.document.content

    def find_absorbed(self, item: V1Item, memory_ids: Sequence[str]) -> set[str]:
        """Return the memories that the item's text has absorbed."""
        scope = item.key.split("/", 2)[2]  # for texts, the scope's key in the stage
        return self._stage.find_unlisted(item.agent_id, scope, memory_ids)

    def close(self) -> None:
        """Remove the stage."""
        self._stage.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _of_stranger(item: V1Item) -> V1Item:
    """Add the problem of an unknown agent to its first item."""
    problem = V1Problem(
        collection=item.sources[0].collection,
        document_id=item.sources[0].id,
        agent_id=item.agent_id,
        kind=V1ProblemKind.UNKNOWN_AGENT,
        detail=f"the host no longer has agent {item.agent_id}",
    )
    return msgspec.structs.replace(item, problems=(problem, *item.problems))


assert len(_STEPS) == len(KINDS)
