"""From a session as a line describes it to documents, the same ones each time it is imported.

A message is known again by what it says: its id is derived from session, role, name, content,
tool calls and time, and from how many like it came before. So a file that has grown adds only
what is new, wherever that stands in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from datetime import datetime, timedelta
from typing import Any

import msgspec

from edenmem.engine.sessions.format import BadLine, ParsedMessage, ParsedSession
from edenmem.engine.sessions.people import People
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
                _stored_call(call, id, place) for place, call in enumerate(message.tool_calls)
            ),
        )
        for id, at, message in zip(ids, times, parsed.messages, strict=True)
    ]


def _stored_call(call: ToolCall, message_id: str, place: int) -> ToolCall:
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
            at = _shifted(at, (ties[at] - 1) * _TIE)
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
        at = _shifted(before[-1], _STEP)
        return _shifted(before[-1], _TIE) if ahead is not None and at >= ahead[1] else at
    if ahead is not None:
        return _shifted(ahead[1], -ahead[0] * _STEP)
    return begun or now - len(known) * _STEP


def _shifted(at: datetime, by: timedelta) -> datetime:
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
