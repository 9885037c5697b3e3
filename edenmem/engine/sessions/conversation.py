"""Store conversations of a host program, with its own IDs and messages in chat API form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec

from edenmem.engine.edits.checks import add_account
from edenmem.engine.runtime.runtime import Runtime
from edenmem.engine.scopes.lookups import add_messages, existing_session
from edenmem.engine.scopes.references import Resolver
from edenmem.engine.sessions.format import BadLine, parse_message
from edenmem.engine.sessions.importer import People
from edenmem.errors import ConflictError, InputError, UsageError
from edenmem.models.host import STORED, Agent, Message, Session, User, owner_of
from edenmem.models.ids import as_utc, derived_id, is_id, new_id
from edenmem.store.protocol.store import Store
from edenmem.text import clean

T = TypeVar("T")

#: Messages without a time follow the newest one of the session, each later by this.
_STEP = timedelta(milliseconds=1)
#: Maximum length of the host's keys in characters.
_MAX_KEY = 1000


def ensure_agent(runtime: Runtime, agent: str, *, owner: str | None = None) -> Agent:
    """Return the agent with this username or ID; add an agent with memory on if there is none.

    Raises:
        UsageError: the name is blank, or the store requires an owner.
        ConflictError: the ID belongs to a deleted agent.
    """
    people = People(runtime.store)
    people.owner_id = Resolver(runtime.store).user(owner).id if owner else None
    name = require_key("agent", agent)
    found = people.agent(name)
    if found is not None:
        return found
    add_account(runtime, people.agent_or_new(name))
    return _require(People(runtime.store).agent(name), "agent", name)


def ensure_user(runtime: Runtime, user: str) -> User:
    """Return the user with this username or ID; add an account if there is none.

    Raises:
        UsageError: the name is blank.
        ConflictError: the ID belongs to a deleted account.
    """
    people = People(runtime.store)
    name = require_key("user", user)
    found = people.user(name)
    if found is not None:
        return found
    add_account(runtime, people.user_or_new(name))
    return _require(People(runtime.store).user(name), "user", name)


def ensure_session(
    runtime: Runtime,
    session: str,
    *,
    agents: Sequence[str],
    users: Sequence[str],
    group: str | None = None,
    title: str | None = None,
    incognito: bool = False,
) -> Session:
    """Return the session with the host's key, after adding missing agents and users.

    A missing session is created with ``group``, ``title`` and ``incognito``.

    Raises:
        UsageError: a key or name is blank, there is no agent, or the store requires an owner.
        ConflictError: the session is deleted, or exists without ``incognito``.
    """
    key = require_key("session", session)
    for named in (agents, users):
        if isinstance(named, str):
            raise UsageError(f"agents and users must be lists: {named!r:.60}")
    people = [ensure_user(runtime, user) for user in users]
    owner = people[0].id if people else None
    hosts = [ensure_agent(runtime, agent, owner=owner) for agent in agents]
    session_id = key if is_id(key) else derived_id("session", key)
    stored = runtime.store.host.session(session_id)
    if incognito and stored is not None and not stored.incognito:
        raise ConflictError(f"the session exists and is not incognito: {key!r}")
    if not agents and stored is None:
        raise UsageError("a session needs an agent")
    wanted = stored or Session(
        id=session_id,
        agents=(),
        group_id=group,
        name=None if key == session_id else key,
        title=title,
        incognito=incognito,
        imported=True,
        status=STORED,
        created_at=runtime.clock(),
    )
    wanted = msgspec.structs.replace(
        wanted,
        agents=tuple(dict.fromkeys((*wanted.agents, *(agent.id for agent in hosts)))),
        users=tuple(dict.fromkeys((*wanted.users, *(user.id for user in people)))),
    )
    if wanted == stored:
        return stored
    wanted = msgspec.structs.replace(wanted, owner=owner_of(wanted, hosts))
    if reason := runtime.store.host.refusal(wanted):
        raise UsageError(reason, hint="specify a user, or an agent with an owner")
    runtime.store.host.put_session(wanted)
    return _require(runtime.store.host.session(session_id), "session", key)


def store_messages(
    runtime: Runtime,
    session_ref: str,
    given: Sequence[Message | Mapping[str, Any]],
    *,
    user: str | None = None,
    agent: str | None = None,
) -> int:
    """Store messages of a session; return the number of new ones.

    Args:
        runtime: The store and clock.
        session_ref: The session: ID or name.
        given: Messages, or dicts in the form of chat APIs; see `MemoryService.add_messages`.
        user: Default sender of user messages (None: the session's only user).
        agent: Default sender of assistant messages (None: the session's first agent).

    Raises:
        NotFoundError: the session or a sender does not exist.
        UsageError: ``given`` is not a list of messages, or a sender is ambiguous.
        InputError: a dict is not a message.
    """
    if isinstance(given, str | bytes | Mapping | Message):
        raise UsageError(f"messages must be a list: {type(given).__name__}")
    session = existing_session(runtime.store, session_ref)
    senders = _Senders(runtime.store, session, user=user, agent=agent)
    newest = list(runtime.store.host.messages(session.id, newest=1))
    now = max([runtime.clock(), *(message.created_at + _STEP for message in newest)])
    messages = []
    for index, each in enumerate(given):
        path = f"messages[{index}]"
        if isinstance(each, Message):
            messages.append(_resolve_sender(each, session, senders, path))
        elif isinstance(each, Mapping):
            at = now + index * _STEP
            messages.append(_convert(each, session, senders, path, at))
        else:
            raise UsageError(f"{path} must be a Message or a dict: {type(each).__name__}")
    return add_messages(runtime.store, session.id, messages)


def retract_messages(runtime: Runtime, session_ref: str, message_ids: Sequence[str]) -> int:
    """Empty messages of a session, and return how many there are.

    Raises:
        NotFoundError: the session does not exist.
        UsageError: the session belongs to the platform.
    """
    session = existing_session(runtime.store, session_ref)
    if not session.imported:
        raise UsageError(f"the session belongs to the platform: {session.label}")
    found = list(runtime.store.host.messages(session.id, ids=message_ids))
    for message in found:
        empty = msgspec.structs.replace(message, content="", tool_calls=())
        runtime.store.host.put_message(empty)
    return len(found)


class _Senders:
    """The senders of a session's messages, by the host's names."""

    def __init__(
        self, store: Store, session: Session, *, user: str | None, agent: str | None
    ) -> None:
        self._resolver = Resolver(store)
        self._session = session
        self._known: dict[tuple[str, str], str] = {}
        self._user = self._id("user", user) if user else None
        self._agent = self._id("assistant", agent) if agent else next(iter(session.agents), None)

    def of(self, role: str, named: str | None, path: str) -> str | None:
        """Return the ID of the named or default sender."""
        if role == "assistant":
            return self._id(role, named) if named else self._agent
        if role != "user":
            return None
        if named:
            return self._id(role, named)
        if self._user is None and len(self._session.users) > 1:
            raise UsageError(
                f"{path}: ambiguous sender: the session has {len(self._session.users)} users",
                hint="set 'name' in the message, or pass user=",
            )
        return self._user or next(iter(self._session.users), None)

    def _id(self, role: str, named: str) -> str:
        if is_id(named):
            return named
        if (role, named) not in self._known:
            find = self._resolver.agent if role == "assistant" else self._resolver.user
            self._known[role, named] = find(named).id
        return self._known[role, named]


def _resolve_sender(message: Message, session: Session, senders: _Senders, path: str) -> Message:
    """Return a message with the ID of its sender in place of a name."""
    if message.session_id != session.id:
        raise UsageError(f"{path}: belongs to another session: {message.session_id}")
    if not is_id(message.id):
        raise UsageError(f"{path}: the id must be 24 hex digits: {message.id!r}")
    if message.sender is None or is_id(message.sender):
        return message
    sender = senders.of(message.role, message.sender, path)
    return msgspec.structs.replace(message, sender=sender)


def _convert(
    given: Mapping[str, Any], session: Session, senders: _Senders, path: str, at: datetime
) -> Message:
    """Convert a dict in chat API form to a message."""
    try:
        parsed = parse_message(given, path)
    except BadLine as error:
        raise InputError(str(error)) from None
    sent = given.get("created_at")
    return Message(
        id=_id_of(given.get("id"), session, path),
        session_id=session.id,
        role=parsed.role,
        content=parsed.content,
        created_at=as_utc(sent) if isinstance(sent, datetime) else parsed.at or at,
        sender=senders.of(parsed.role, parsed.name, path),
        name=parsed.name,
        tool_calls=parsed.tool_calls,
    )


def _id_of(key: object, session: Session, path: str) -> str:
    """Return the ID for the host's key; a new ID without a key."""
    if key is None:
        return new_id()
    if not isinstance(key, str) or not key.strip():
        raise InputError(f"{path}.id: expected a text")
    return key if is_id(key) else derived_id("message", session.id, key)


def require_key(what: str, given: object) -> str:
    """Return the host's key without surrounding space.

    Raises:
        UsageError: the key is not a text, blank, or too long.
    """
    if not isinstance(given, str):
        raise UsageError(f"the {what} must be a text: {type(given).__name__}")
    key = clean(given).strip()
    if not key or len(key) > _MAX_KEY:
        raise UsageError(f"the {what} must have 1 to {_MAX_KEY} characters: {key[:40]!r}")
    return key


def _require(found: T | None, what: str, name: str) -> T:
    if found is None:
        raise ConflictError(f"the {what} was deleted and cannot be added again: {name!r}")
    return found
