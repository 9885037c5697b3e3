"""Import conversations from JSON Lines, one session per line, and resolve the names in them.

The whole file is checked before the first write, so that by default all or nothing is imported.
Repeated imports add only new messages.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta
from itertools import islice
from typing import NamedTuple, TypeVar

import msgspec

from edenmem.engine.edits.checks import add_account
from edenmem.engine.reports import ImportReport
from edenmem.engine.runtime.runtime import Runtime
from edenmem.engine.scopes.references import find_references, fold
from edenmem.engine.sessions.format import (
    LINE_BYTES,
    BadLine,
    ParsedMessage,
    ParsedSession,
    Spool,
    parse,
    read_lines,
)
from edenmem.errors import ConflictError, InputError, InvalidLines, NotFoundError
from edenmem.models.host import STORED, Agent, Message, Session, User, literal, owner_of
from edenmem.models.ids import derived_id, is_id
from edenmem.store.protocol.host import ReferenceKind
from edenmem.store.protocol.store import Store
from edenmem.text import normalize_name

#: The time between messages without times.
_STEP = timedelta(seconds=1)
_TIE = timedelta(milliseconds=1)


def user_speakers(
    parsed: ParsedSession,
    users: list[User],
    people: People,
    store: Store,
    session_id: str,
) -> dict[str | None, str | None]:
    """Return the account of each name in messages of the role "user" (None: no name).

    The name of another known user adds that user to ``users``. An unknown name is a display name:
    of the only user, if there is only one such name, including stored messages of the session.

    Raises:
        BadLine: a line with one user has messages under several names: the words of others would
            become that user's memory.
    """
    names = dict.fromkeys(m.name for m in parsed.messages if m.role == "user")
    known: dict[str | None, str | None] = {}
    for name in names:
        among = (u for u in users if name and (name == u.id or fold(name) == fold(u.username)))
        account = next(among, None) or (people.user(name) if name else None)
        if account is not None:
            known[name] = account.id
            if account.id not in {user.id for user in users}:
                users.append(account)
    unknown = [name for name in names if name is not None and name not in known]
    only = users[0].id if len(users) == 1 else None
    called = {name for name in names if name}
    if only is not None and unknown:
        called |= {m.name for m in store.host.messages(session_id) if m.role == "user" and m.name}
    if only is not None and unknown and len(called) > 1:
        index = next(i for i, m in enumerate(parsed.messages) if m.name == unknown[0])
        raise BadLine(
            f"messages[{index}].name: {unknown[0]!r} is not among the session's users; "
            "list all people of the session in 'users'"
        )
    return {name: known.get(name, only) for name in names}


def times_of(
    parsed: ParsedSession,
    ids: Sequence[str],
    stored: Mapping[str, datetime],
    now: datetime,
) -> list[datetime]:
    """Return a time for each message that keeps the order of the file.

    Messages of the same time are set a millisecond apart. A message without a time is a second
    after the previous one; leading ones count back from the next known time, or from ``now``.
    Stored messages keep their times.
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
    for index, at in enumerate(known):
        times.append(at or _between(times, known, index, parsed.created_at, now))
    return times


def _between(
    before: Sequence[datetime],
    known: Sequence[datetime | None],
    index: int,
    begun: datetime | None,
    now: datetime,
) -> datetime:
    ahead = next(((i, at) for i, at in enumerate(known[index:]) if at is not None), None)
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


#: Maximum number of problems in a report; all are counted.
MAX_PROBLEMS = 1000


def import_sessions(
    runtime: Runtime,
    lines: Iterable[bytes | str] | Spool,
    *,
    skip_bad: bool = False,
    add_missing: bool = False,
    dry_run: bool = False,
    owner: str | None = None,
    progress: Callable[[str, int, int], None] = lambda step, done, total: None,
) -> ImportReport:
    """Store the sessions and messages of lines.

    Args:
        runtime: The store, the actor for audit entries, and the clock.
        lines: A file, preferably binary, or its lines. Streams are buffered.
            Lines with numbers of their own keep them in messages.
        skip_bad: Import the good lines and report the bad ones.
        add_missing: Add unknown agents and users.
        dry_run: Write nothing.
        owner: ID or username of the owner of added agents, and of sessions whose line has no
            ``owner`` (None: the session's first user, else the owner of its agent). An unknown
            owner must be among the users that the lines add.
        progress: Called with the step, and the number of sessions done and of all.

    Raises:
        InputError: a line is bad, and ``skip_bad`` is off. Nothing was written.
        NotFoundError: an agent or user is unknown, and neither option is on; or the owner is
            unknown. Nothing was written.
    """
    job = _Import(runtime, add_missing=add_missing, owner=owner, dry_run=dry_run)
    with ExitStack() as opened:
        if isinstance(lines, Spool):
            spool = lines
        else:
            spool = opened.enter_context(Spool())
            for number, data in read_lines(lines):
                spool.put(number, data)
        bad: dict[int, BadLine] = {}
        for done, (number, data) in enumerate(spool.lines()):
            progress("checking", done, spool.count)
            try:
                job.plan(data)
            except BadLine as error:
                bad[number] = error
        if owner and job.people.user(owner) is None:
            raise NotFoundError(
                f"unknown user: {owner!r}; nothing was imported",
                hint=f"use an existing user as --owner, or {_commands([], [owner])[0]}",
            )
        if bad and not skip_bad:
            raise _refusal(bad, spool.unit)
        if not dry_run:
            job.people.add(runtime)
        for done, (number, data) in enumerate(spool.lines()):
            progress("comparing" if dry_run else "storing", done, spool.count)
            if number in bad:
                continue
            try:
                plan = job.plan(data)
            except BadLine as error:  # in conflict with an earlier line, which is now stored
                bad[number] = error
                if not skip_bad:
                    hint = "earlier lines were imported; fix the line and retry"
                    raise InputError(str(error), line=number, hint=hint) from None
            else:
                job.carry_out(plan)
    problems = [(number, str(error)) for number, error in islice(bad.items(), MAX_PROBLEMS)]
    if more := len(bad) - len(problems):
        problems.append((problems[-1][0], f"and {more} more bad lines"))
    return ImportReport(
        **job.totals,
        agents_added=tuple(job.people.new_agents),
        users_added=tuple(job.people.new_users),
        problems=tuple(problems),
    )


def _refusal(bad: Mapping[int, BadLine], unit: str) -> InputError | NotFoundError:
    """Return the error for bad lines; unknown names matter only without other problems."""
    invalid = [(n, str(each)) for n, each in bad.items() if not isinstance(each, UnknownNames)]
    if invalid:
        hint = "nothing was imported; import the others with --skip-bad"
        return InvalidLines(invalid, len(invalid), unit=unit, hint=hint)
    unknown = [each for each in bad.values() if isinstance(each, UnknownNames)]
    agents = list(dict.fromkeys(name for each in unknown for name in each.agents))
    users = list(dict.fromkeys(name for each in unknown for name in each.users))
    names = _listed(agents, users)
    shown = ", ".join(names[:8]) + (" …" if len(names) > 8 else "")
    commands = "; ".join(_commands(agents, users)[:8])
    return NotFoundError(
        f"unknown: {shown}; nothing was imported", hint=f"{commands}; or add all with --add-missing"
    )


class UnknownNames(BadLine):
    """A line with unknown agents or users."""

    def __init__(self, agents: list[str], users: list[str]) -> None:
        self.agents = agents
        self.users = users
        names, commands = _listed(agents, users), _commands(agents, users)
        super().__init__(f"unknown: {', '.join(names)}; add with {'; '.join(commands)}")


def _listed(agents: list[str], users: list[str]) -> list[str]:
    return [f"agent {name!r}" for name in agents] + [f"user {name!r}" for name in users]


def _commands(agents: list[str], users: list[str]) -> list[str]:
    return [f"edenmem agent add {shlex.quote(name)}" for name in agents] + [
        f"edenmem user add {shlex.quote(name)}" for name in users
    ]


class _Plan(NamedTuple):
    parsed: ParsedSession
    session: Session
    stored: Session | None
    agents: list[Agent]
    speakers: dict[str | None, str | None]
    owner_id: str | None


class _Import:
    """The context of all lines: the store, the people, and the options.

    ``totals`` are the numbers of the report.
    """

    def __init__(
        self, runtime: Runtime, *, add_missing: bool, owner: str | None, dry_run: bool
    ) -> None:
        self._store = runtime.store
        self._add_missing = add_missing
        self._dry_run = dry_run
        self._now = runtime.clock()
        self.people = People(runtime.store)
        self._owner = owner
        self.totals = Counter[str]()

    def plan(self, data: bytes) -> _Plan:
        """Check a line, and plan its import.

        Raises:
            BadLine: the line is invalid.
        """
        if len(data) > LINE_BYTES:
            raise BadLine(
                f"the line is longer than {LINE_BYTES:,} bytes; split the session's messages"
            )
        parsed = parse(data)
        name = parsed.session
        session_id = name if is_id(name) else derived_id("session", name)
        stored = self._store.host.session(session_id)
        if stored is not None and stored.incognito != parsed.incognito:
            raise BadLine(
                f"incognito: differs from the stored session ({str(stored.incognito).lower()}), "
                "and cannot be changed"
            )
        if stored is not None and parsed.group not in (None, stored.group_id):
            raise BadLine(f"group: differs from the stored session ({stored.group_id!r})")
        owner_id = self._owner_id(parsed)
        agents, users = self._people(parsed)
        if stored is not None and not parsed.users:
            users = list(self._store.host.users_by_ids(stored.users).values())
        speakers = user_speakers(parsed, users, self.people, self._store, session_id)
        self.people.plan(parsed.agents, parsed.users)
        # Marked as imported, with a status that keeps the platform's cold run away, unless it is a
        # session of the platform.
        is_ours = stored is None or stored.imported
        session = Session(
            id=session_id,
            agents=tuple(dict.fromkeys(agent.id for agent in agents)),
            users=tuple(dict.fromkeys(user.id for user in users)),
            owner=owner_id,
            group_id=parsed.group,
            name=None if name == session_id else name,
            title=parsed.title,
            platform=parsed.platform,
            incognito=parsed.incognito,
            created_at=parsed.created_at,
            imported=is_ours,
            status=STORED if is_ours else "active",
        )
        session = msgspec.structs.replace(session, owner=owner_of(session, agents))
        if stored is None:
            self._check(session)
        for agent in agents:
            if agent.username in self.people.new_agents:
                self._check(agent)
        for index, message in enumerate(parsed.messages):
            record = Message(
                id=session_id,
                session_id=session_id,
                role=message.role,
                content=message.content,
                created_at=self._now,
                name=message.name,
                tool_calls=message.tool_calls,
            )
            if reason := self._store.host.refusal(record):
                raise BadLine(f"messages[{index}]: {reason}")
        return _Plan(parsed, session, stored, agents, speakers, owner_id)

    def _owner_id(self, parsed: ParsedSession) -> str | None:
        if self._owner and self.people.owner_id is None:
            # An unknown owner is an error after all lines.
            self.people.owner_id = self.people.user_or_new(self._owner).id
        if not parsed.owner:
            return self.people.owner_id
        if self._add_missing:
            self.people.plan((), (parsed.owner,))
        user = self.people.user(parsed.owner)
        if user is None:
            raise UnknownNames([], [parsed.owner])
        return user.id

    def _people(self, parsed: ParsedSession) -> tuple[list[Agent], list[User]]:
        people = self.people
        if not self._add_missing:
            no_agents = [name for name in parsed.agents if people.agent(name) is None]
            no_users = [name for name in parsed.users if people.user(name) is None]
            if no_agents or no_users:
                raise UnknownNames(no_agents, no_users)
        return (
            [people.agent_or_new(name) for name in parsed.agents],
            [people.user_or_new(name) for name in parsed.users],
        )

    def _check(self, record: Agent | Session) -> None:
        if reason := self._store.host.refusal(record):
            raise BadLine(f"{reason}; specify a user with --owner, or in the line's 'owner'")

    def carry_out(self, plan: _Plan) -> None:
        """Store a line's session and messages, and count them."""
        parsed, session, stored = plan.parsed, plan.session, plan.stored
        ids = _message_ids(parsed, session.id)
        existing: dict[str, datetime] = {}
        untimed = any(message.at is None for message in parsed.messages)
        if stored is not None and ids and (untimed or self._dry_run):
            known = self._store.host.messages(session.id, ids=ids)
            existing = {message.id: message.created_at for message in known}
        times = times_of(parsed, ids, existing, self._now)
        begun = session.created_at or min(times, default=self._now)
        session = msgspec.structs.replace(session, created_at=begun)
        messages = [
            Message(
                id=id,
                session_id=session.id,
                role=message.role,
                content=message.content,
                created_at=at,
                sender=_sender(message, plan.speakers, plan.agents),
                name=message.name,
                tool_calls=tuple(
                    msgspec.structs.replace(
                        call, args=literal(call.args), result=literal(call.result)
                    ).loadable(id, index)
                    for index, call in enumerate(message.tool_calls)
                ),
            )
            for id, at, message in zip(ids, times, parsed.messages, strict=True)
        ]
        differs = stored is not None and stored.owner != plan.owner_id
        counts = {
            "sessions": 1,
            "messages": len(messages),
            "owners_kept": int(bool(plan.owner_id) and differs),
        }
        if self._dry_run:
            counts["new_sessions"] = int(stored is None)
            counts["new_messages"] = len(set(ids) - existing.keys())
        else:
            counts["new_sessions"] = int(self._store.host.put_session(session))
            if messages:
                counts["new_messages"] = self._store.host.add_messages(session.id, messages)
        self.totals.update(counts)


def _message_ids(parsed: ParsedSession, session_id: str) -> list[str]:
    """Return the ID of each message; equal messages are distinguished by order."""
    seen: Counter[str] = Counter()
    ids = []
    for message in parsed.messages:
        said = [(call.tool, call.args, call.status, call.result) for call in message.tool_calls]
        calls = msgspec.json.encode(said, order="deterministic").decode()
        at = message.at.isoformat() if message.at is not None else ""
        identity = derived_id(
            "message", session_id, message.role, message.name or "", message.content, calls, at
        )
        ids.append(derived_id(identity, str(seen[identity])))
        seen[identity] += 1
    return ids


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


Account = TypeVar("Account", Agent, User)


class People:
    """Cached lookup of names by full ID or username; a prefix would be too ambiguous in a file."""

    def __init__(self, store: Store) -> None:
        self._store = store
        #: Owner of added agents.
        self.owner_id: str | None = None
        self._agents: dict[str, Agent | None] = {}
        self._users: dict[str, User | None] = {}
        self.new_agents: dict[str, Agent] = {}
        self.new_users: dict[str, User] = {}

    def agent(self, name: str) -> Agent | None:
        """Return the agent with this name, existing or planned."""
        if name not in self._agents:
            self._agents[name] = self._look_up("agent", name, self._store.host.agent)
        return self._agents[name] or self.new_agents.get(name)

    def user(self, name: str) -> User | None:
        """Return the account with this name, existing or planned."""
        if name not in self._users:
            self._users[name] = self._look_up("user", name, self._store.host.user)
        return self._users[name] or self.new_users.get(name)

    def agent_or_new(self, name: str) -> Agent:
        """Return the agent with this name, or a new one with memory on."""
        id = name if is_id(name) else derived_id("agent", normalize_name(name))
        return self.agent(name) or Agent(
            id=id,
            username=normalize_name(name),
            name=normalize_name(name),
            owner=self.owner_id,
            user_memory_enabled=True,
            agent_memory_enabled=True,
        )

    def user_or_new(self, name: str) -> User:
        """Return the account with this name, or a new one."""
        id = name if is_id(name) else derived_id("user", normalize_name(name))
        return self.user(name) or User(id=id, username=normalize_name(name))

    def plan(self, agents: Iterable[str], users: Iterable[str]) -> None:
        """Plan to add those that do not exist."""
        for name in agents:
            if self.agent(name) is None:
                self.new_agents[name] = self.agent_or_new(name)
        for name in users:
            if self.user(name) is None:
                self.new_users[name] = self.user_or_new(name)

    def add(self, runtime: Runtime) -> None:
        """Add the planned accounts, with audit entries.

        Raises:
            ConflictError: an ID belongs to a deleted account.
        """
        accounts: list[Agent | User] = [*self.new_agents.values(), *self.new_users.values()]
        for account in accounts:
            if not add_account(runtime, account):
                kind = "agent" if isinstance(account, Agent) else "user"
                raise ConflictError(f"{kind} was deleted and cannot be added: {account.username!r}")

    def _look_up(
        self, kind: ReferenceKind, name: str, load: Callable[[str], Account | None]
    ) -> Account | None:
        if is_id(name):
            by_id = load(name)
            if by_id is not None:
                return by_id
        loaded = [load(found.id) for found in find_references(self._store, kind, name)]
        found = [account for account in loaded if account is not None]
        exact = [account for account in found if account.username == name]
        like = [account for account in found if fold(account.username) == fold(name)]
        matches = exact or like
        return matches[0] if len(matches) == 1 else None
