"""`session import`: conversations from JSON Lines, a session a line.

The whole file is judged before anything is written, so that by default all of it is imported or
nothing. Importing again adds only what is new; see `edenmem.engine.sessions.importer`.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from datetime import datetime, timedelta
from typing import Any

import msgspec

from edenmem.engine.reports import ImportReport
from edenmem.engine.runtime.runtime import Runtime
from edenmem.engine.sessions.format import (
    LINE_BYTES,
    BadLine,
    Line,
    ParsedMessage,
    ParsedSession,
    TwiceReadable,
    parse,
)
from edenmem.engine.sessions.people import People
from edenmem.errors import InputError, NotFoundError
from edenmem.models.host import (
    STORED,
    Agent,
    Message,
    Session,
    ToolCall,
    User,
    literal,
    owner_of,
)
from edenmem.models.ids import derived_id, is_id

#: Between messages whose times are not given.
_STEP = timedelta(seconds=1)
_TIE = timedelta(milliseconds=1)


class _Said(msgspec.Struct):
    """What tells a tool call from another. These fields and their order make the ids of messages
    that were imported long ago."""

    tool: str
    args: Any
    status: str | None
    result: Any


def session_id_of(parsed: ParsedSession) -> str:
    """The id that the line gives, or one that belongs to the name it gives."""
    return parsed.session if is_id(parsed.session) else derived_id("session", parsed.session)


def message_ids(parsed: ParsedSession, session_id: str) -> list[str]:
    """The id of each message. Equal messages are told apart by their order."""
    seen: Counter[str] = Counter()
    ids = []
    for message in parsed.messages:
        said = [_Said(c.tool, c.args, c.status, c.result) for c in message.tool_calls]
        calls = msgspec.json.encode(said, order="deterministic").decode()
        at = message.at.isoformat() if message.at is not None else ""
        identity = derived_id(
            "message", session_id, message.role, message.name or "", message.content, calls, at
        )
        ids.append(derived_id(identity, str(seen[identity])))
        seen[identity] += 1
    return ids


def session_of(
    parsed: ParsedSession,
    session_id: str,
    agents: Sequence[Agent],
    users: Sequence[User],
    created_at: datetime | None,
    *,
    stored: Session | None = None,
    owner: str | None = None,
) -> Session:
    """The session as it is stored if it is new.

    It is marked as imported, and its status keeps the platform's cold run away, unless it is a
    session of the platform: one that is there without the mark, and has no name of an import.
    """
    ours = stored is None or stored.imported or _is_named(stored)
    session = Session(
        id=session_id,
        agents=tuple(dict.fromkeys(agent.id for agent in agents)),
        users=tuple(dict.fromkeys(user.id for user in users)),
        owner=owner,
        group_id=parsed.group,
        name=None if parsed.session == session_id else parsed.session,
        title=parsed.title,
        platform=parsed.platform,
        incognito=parsed.incognito,
        created_at=parsed.created_at or created_at,
        imported=ours,
        status=STORED if ours else "active",
    )
    return msgspec.structs.replace(session, owner=owner_of(session, agents))


def _is_named(stored: Session) -> bool:
    """Whether an import gave the session its id, also before imported sessions were marked."""
    return stored.name is not None and stored.id == derived_id("session", stored.name)


def messages_of(
    parsed: ParsedSession,
    session_id: str,
    ids: Sequence[str],
    times: Sequence[datetime],
    speakers: Mapping[str | None, str | None],
    agents: Sequence[Agent],
) -> list[Message]:
    """The messages as they are stored; ``speakers`` is from `user_speakers`."""
    return [
        Message(
            id=id,
            session_id=session_id,
            role=message.role,
            content=message.content,
            created_at=at,
            sender=_sender(message, speakers, agents),
            name=message.name,
            tool_calls=tuple(
                _convert_call(call, id, place) for place, call in enumerate(message.tool_calls)
            ),
        )
        for id, at, message in zip(ids, times, parsed.messages, strict=True)
    ]


def _convert_call(call: ToolCall, message_id: str, place: int) -> ToolCall:
    plain = msgspec.structs.replace(call, args=literal(call.args), result=literal(call.result))
    return plain.loadable(message_id, place)


def user_speakers(
    parsed: ParsedSession,
    users: list[User],
    people: People,
    earlier: Callable[[], Set[str]],
) -> dict[str | None, str | None]:
    """The account behind each name that messages of the role "user" have (None: no name).

    A name that is another known user's adds that user to ``users``: with two people in it, a
    session is a group's. A name that nobody has is a display name; it is the one user's if there
    is one user and one such name, those of messages that are stored (``earlier``) included.

    Raises:
        BadLine: messages under several names, where the line has one user and does not say who
            the others are: their words would become that user's memory.
    """
    names = dict.fromkeys(m.name for m in parsed.messages if m.role == "user")
    known: dict[str | None, str | None] = {}
    for name in names:
        account = _among(name, users) or (people.user(name) if name else None)
        if account is not None:
            known[name] = account.id
            if account.id not in {user.id for user in users}:
                users.append(account)
    strangers = [name for name in names if name is not None and name not in known]
    only = users[0].id if len(users) == 1 else None
    if only is not None and strangers and len({name for name in names if name} | earlier()) > 1:
        place = next(i for i, m in enumerate(parsed.messages) if m.name == strangers[0])
        raise BadLine(
            f"messages[{place}].name: {strangers[0]!r} is not among the session's users; "
            "several people speak in it, so name them all in 'users'"
        )
    return {name: known.get(name, only) for name in names}


def times_of(
    parsed: ParsedSession,
    ids: Sequence[str],
    stored: Mapping[str, datetime],
    now: datetime,
) -> list[datetime]:
    """A time for each message, such that their order is the file's.

    Messages of the same time are set a millisecond apart. One without a time follows the one
    before it by a second; the first ones lead up to the next time that is known, or else to
    ``now``. A message that is stored keeps the time that it has.
    """
    ties: Counter[datetime] = Counter()
    known: list[datetime | None] = []
    for id, message in zip(ids, parsed.messages, strict=True):
        at = message.at
        if at is not None:
            ties[at] += 1
            at = _shift(at, (ties[at] - 1) * _TIE)
        known.append(stored.get(id, at))
    times: list[datetime] = []
    for place, at in enumerate(known):
        if at is None:
            at = _between(times, known, place, parsed.created_at, now)
        times.append(at)
    return times


def _between(
    before: Sequence[datetime],
    known: Sequence[datetime | None],
    place: int,
    begun: datetime | None,
    now: datetime,
) -> datetime:
    ahead = next(((i, at) for i, at in enumerate(known[place:]) if at is not None), None)
    if before:
        at = _shift(before[-1], _STEP)
        return _shift(before[-1], _TIE) if ahead is not None and at >= ahead[1] else at
    if ahead is not None:
        return _shift(ahead[1], -ahead[0] * _STEP)
    return begun or now - len(known) * _STEP


def _shift(at: datetime, by: timedelta) -> datetime:
    try:
        return at + by
    except OverflowError:  # the year 1 or 9999
        return at


def _among(name: str | None, users: Sequence[User]) -> User | None:
    if name is None:
        return None
    folded = name.casefold()
    return next((u for u in users if name == u.id or u.username.casefold() == folded), None)


def _sender(
    message: ParsedMessage, speakers: Mapping[str | None, str | None], agents: Sequence[Agent]
) -> str | None:
    if message.role == "user":
        return speakers[message.name]
    if message.role != "assistant":
        return None
    if len(agents) == 1:
        return agents[0].id
    called = (message.name or "").casefold()
    names = [(agent.id, {agent.username.casefold(), agent.name.casefold()}) for agent in agents]
    return next((id for id, labels in names if called and called in labels), None)


#: Problems that a report lists; more are counted.
MAX_PROBLEMS = 1000


def import_sessions(
    runtime: Runtime,
    lines: Iterable[bytes | str],
    *,
    skip_bad: bool = False,
    add_missing: bool = False,
    dry_run: bool = False,
    line_bytes: int = LINE_BYTES,
    owner: str | None = None,
) -> ImportReport:
    """Store the sessions and messages that the lines describe.

    Args:
        runtime: Where to, who is written into the audit entries of added agents and users, and the
            time up to which messages without times are placed.
        lines: A file, best opened as bytes, or its lines. What cannot be rewound is spooled.
        skip_bad: Import the good lines and report the bad ones.
        add_missing: Add agents and users that are not known.
        dry_run: Write nothing; the report says what would be.
        line_bytes: The longest line that is taken.
        owner: The id or username of the user who owns agents that are added, and sessions whose
            line has no ``owner``; None: a session is its first user's, else its agent's owner's.
            One that is not known has to be among the people whom the lines add.

    Raises:
        InputError: a line is bad, and ``skip_bad`` is off. Nothing was written.
        NotFoundError: an agent or user is not known, and neither option is on; or the owner is
            not. Nothing was written.
    """
    job = _Import(runtime, add_missing=add_missing, line_bytes=line_bytes, owner=owner)
    with TwiceReadable(lines, line_bytes=line_bytes) as source:
        judged = _FirstPass()
        for line in source.first():
            _judge(job, line, judged)
        job.demand_owner()
        if not skip_bad:
            judged.refuse()
        if not dry_run:
            job.people.add(runtime)
        totals = _Totals()
        for line in source.again():
            try:
                plan = job.plan(line)
            except BadLine as error:
                # known since the first pass, or at odds with an earlier line that is stored by now
                judged.add_late(line.number, error, skip_bad=skip_bad)
                continue
            job.carry_out(plan, totals, dry_run=dry_run)
    return ImportReport(
        sessions=totals.sessions,
        new_sessions=totals.new_sessions,
        messages=totals.messages,
        new_messages=totals.new_messages,
        agents_added=tuple(job.people.new_agents),
        users_added=tuple(job.people.new_users),
        owners_kept=totals.owners_kept,
        problems=judged.report(),
    )


class UnknownNames(BadLine):
    """A line names agents or users that are not known."""

    def __init__(self, agents: list[str], users: list[str]) -> None:
        self.agents = agents
        self.users = users
        self.commands = _commands(agents, users)
        names = ", ".join([f"agent {a!r}" for a in agents] + [f"user {u!r}" for u in users])
        super().__init__(f"not known: {names}; add with {'; '.join(self.commands)}")


class _Plan(msgspec.Struct, frozen=True):
    parsed: ParsedSession
    session_id: str
    stored: Session | None
    agents: list[Agent]
    users: list[User]
    speakers: dict[str | None, str | None]
    owner_id: str | None


class _Totals:
    def __init__(self) -> None:
        self.sessions = 0
        self.new_sessions = 0
        self.messages = 0
        self.new_messages = 0
        self.owners_kept = 0


class _Import:
    """What lines have in common: the store, the people, and the rules."""

    def __init__(
        self, runtime: Runtime, *, add_missing: bool, line_bytes: int, owner: str | None
    ) -> None:
        self._store = runtime.store
        self._add_missing = add_missing
        self._now = runtime.clock()
        self._line_bytes = line_bytes
        self.people = People(runtime.store)
        self._owner = owner

    def plan(self, line: Line) -> _Plan:
        """What is to be done with a line.

        Raises:
            BadLine: nothing can be.
        """
        if line.data is None:
            raise BadLine(f"longer than {self._line_bytes:,} bytes; split the session's messages")
        parsed = parse(line.data)
        session_id = session_id_of(parsed)
        stored = self._store.host.session(session_id)
        if stored is not None:
            _check_same(stored, parsed)
        owner_id = self._owner_id(parsed)
        agents, users = self._people(parsed)
        if stored is not None and not parsed.users:
            users = list(self._store.host.users_by_ids(stored.users).values())
        speakers = user_speakers(parsed, users, self.people, lambda: self._names_in(stored))
        self.people.plan(parsed.agents, parsed.users)
        if stored is None:
            self._check(session_of(parsed, session_id, agents, users, None, owner=owner_id))
        for agent in agents:
            if agent.username in self.people.new_agents:
                self._check(agent)
        self._check_messages(parsed, session_id)
        return _Plan(parsed, session_id, stored, agents, users, speakers, owner_id)

    def _owner_id(self, parsed: ParsedSession) -> str | None:
        if self._owner and self.people.owner_id is None:
            # Whoever it is: `demand_owner` refuses one whom nobody knows.
            self.people.owner_id = self.people.user_or_new(self._owner).id
        return self._user_id(parsed.owner) if parsed.owner else self.people.owner_id

    def demand_owner(self) -> None:
        """Refuse an owner who neither exists nor is added, once all lines were judged.

        Raises:
            NotFoundError: there is no such user.
        """
        if self._owner and self.people.user(self._owner) is None:
            raise NotFoundError(
                f"there is no user {self._owner!r}. Nothing was imported",
                hint=f"name a user that exists with --owner, or {_commands([], [self._owner])[0]}",
            )

    def _user_id(self, name: str) -> str:
        user = self.people.user(name)
        if user is None and self._add_missing:
            self.people.plan((), (name,))
            user = self.people.user(name)
        if user is None:
            raise UnknownNames([], [name])
        return user.id

    def _check(self, record: Agent | Session) -> None:
        if reason := self._store.host.refusal(record):
            raise BadLine(f"{reason}; name a user with --owner, or in the line's 'owner'")

    def _check_messages(self, parsed: ParsedSession, session_id: str) -> None:
        for place, message in enumerate(parsed.messages):
            reason = self._store.host.refusal(
                Message(
                    id=session_id,
                    session_id=session_id,
                    role=message.role,
                    content=message.content,
                    created_at=self._now,
                    name=message.name,
                    tool_calls=message.tool_calls,
                )
            )
            if reason:
                raise BadLine(f"messages[{place}]: {reason}")

    def _names_in(self, stored: Session | None) -> set[str]:
        """The names under which people speak in a session already."""
        if stored is None:
            return set()
        spoken = self._store.host.messages(stored.id)
        return {message.name for message in spoken if message.role == "user" and message.name}

    def carry_out(self, plan: _Plan, totals: _Totals, *, dry_run: bool) -> None:
        """Store a line's session and messages, and count."""
        ids = message_ids(plan.parsed, plan.session_id)
        there: dict[str, datetime] = {}
        untimed = any(message.at is None for message in plan.parsed.messages)
        if plan.stored is not None and ids and (untimed or dry_run):
            known = self._store.host.messages(plan.session_id, ids=ids)
            there = {message.id: message.created_at for message in known}
        times = times_of(plan.parsed, ids, there, self._now)
        begun = min(times, default=self._now)
        session = session_of(
            plan.parsed,
            plan.session_id,
            plan.agents,
            plan.users,
            begun,
            stored=plan.stored,
            owner=plan.owner_id,
        )
        messages = messages_of(plan.parsed, plan.session_id, ids, times, plan.speakers, plan.agents)
        totals.sessions += 1
        wanted, stored = plan.owner_id, plan.stored
        totals.owners_kept += bool(wanted and stored is not None and stored.owner != wanted)
        totals.messages += len(messages)
        if dry_run:
            totals.new_sessions += plan.stored is None
            totals.new_messages += len(set(ids) - there.keys())
        else:
            totals.new_sessions += self._store.host.put_session(session)
            totals.new_messages += self._add(session.id, messages)

    def _add(self, session_id: str, messages: list[Message]) -> int:
        return self._store.host.add_messages(session_id, messages) if messages else 0

    def _people(self, parsed: ParsedSession) -> tuple[list[Agent], list[User]]:
        if self._add_missing:
            return (
                [self.people.agent_or_new(name) for name in parsed.agents],
                [self.people.user_or_new(name) for name in parsed.users],
            )
        agents = {name: self.people.agent(name) for name in parsed.agents}
        users = {name: self.people.user(name) for name in parsed.users}
        no_agents = [name for name, agent in agents.items() if agent is None]
        no_users = [name for name, user in users.items() if user is None]
        if no_agents or no_users:
            raise UnknownNames(no_agents, no_users)
        return [a for a in agents.values() if a], [u for u in users.values() if u]


class _FirstPass:
    """What was found wrong in the first pass."""

    def __init__(self) -> None:
        self._problems: list[tuple[int, str]] = []
        self._more = 0
        self._lines: set[int] = set()
        self._bad: list[tuple[int, str]] = []
        self._agents: dict[str, None] = {}
        self._users: dict[str, None] = {}

    def add(self, line: int, error: BadLine) -> None:
        """Note what is wrong with a line."""
        self._lines.add(line)
        if isinstance(error, UnknownNames):
            self._agents |= dict.fromkeys(error.agents)
            self._users |= dict.fromkeys(error.users)
        elif len(self._bad) < MAX_PROBLEMS:
            self._bad.append((line, str(error)))
        if len(self._problems) < MAX_PROBLEMS:
            self._problems.append((line, str(error)))
        else:
            self._more += 1

    def add_late(self, line: int, error: BadLine, *, skip_bad: bool) -> None:
        """Note what is wrong with a line in the second pass.

        Raises:
            InputError: it was good in the first one, and no line may be skipped.
        """
        if line in self._lines:
            return
        self.add(line, error)
        if not skip_bad:
            raise InputError(
                str(error), line=line, hint="the lines before it were imported; mend it, run again"
            )

    def report(self) -> tuple[tuple[int, str], ...]:
        """All problems, or the first ones and how many more lines are bad."""
        more = [(self._problems[-1][0], f"and {self._more} more bad lines")] if self._more else []
        return (*self._problems, *more)

    def refuse(self) -> None:
        """Raise what is wrong with the file as a whole, if anything is."""
        if self._bad:
            line, text = self._bad[0]
            others = [f"line {number}: {problem}" for number, problem in self._bad[1:5]]
            if len(self._bad) > 5:
                others.append(f"and {len(self._bad) - 5} more")
            raise InputError(
                "\n".join([text, *others]),
                line=line,
                hint="nothing was imported; --skip-bad imports the good lines",
            )
        if self._agents or self._users:
            agents, users = list(self._agents), list(self._users)
            names = [f"agent {name!r}" for name in agents] + [f"user {name!r}" for name in users]
            shown = ", ".join(names[:8]) + (" …" if len(names) > 8 else "")
            commands = "; ".join(_commands(agents, users)[:8])
            raise NotFoundError(
                f"not known: {shown}. Nothing was imported",
                hint=f"{commands}; or --add-missing adds them all",
            )


def _judge(job: _Import, line: Line, judged: _FirstPass) -> None:
    try:
        job.plan(line)
    except BadLine as error:
        judged.add(line.number, error)


def _check_same(stored: Session, parsed: ParsedSession) -> None:
    """That the line does not say otherwise than the session that is stored."""
    if stored.incognito != parsed.incognito:
        raise BadLine(
            f"incognito: the session is stored as {str(stored.incognito).lower()}, "
            "and an import does not change that"
        )
    if parsed.group is not None and parsed.group != stored.group_id:
        raise BadLine(f"group: the session is stored with group {stored.group_id!r}")


def _commands(agents: list[str], users: list[str]) -> list[str]:
    return [f"edenmem agent add {shlex.quote(name)}" for name in agents] + [
        f"edenmem user add {shlex.quote(name)}" for name in users
    ]
