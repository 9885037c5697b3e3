"""The session of a chat request, and the storage of its messages. All functions block.

No step depends on a later one: IDs are derived from their content, so that a retry of a request,
on any server, finds or creates the same session and messages.

- With a key (``memory_id``, or a name in a header), the session belongs to (agent, user, key).
- Without a key, the session is found by its messages. The ID of the k-th message that no agent
  wrote is derived from agent, user and the rolling hash of all such messages up to it, so that one
  look-up by IDs finds the longest stored prefix of a request. A session that ends there continues.
  If the session has other messages after it, a new session starts, with the place of divergence in
  its ID and the messages from there.
- A client may send the end of a long conversation only. If most of its history is unknown, a recent
  session of the same known user continues if it alone has the beginning of the request.

Agents and users are found by exact name or ID. Prefixes of IDs are for people on the command line:
a program would reach the wrong object.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

import msgspec

from edenmem.engine.chats.messages import (
    Said,
    chain,
    current_turn,
    find_news,
    key_of,
    shared_run,
    with_answers,
)
from edenmem.engine.runtime.runtime import Runtime
from edenmem.engine.scopes.visibility import SessionView, current_view
from edenmem.errors import NotFoundError, UsageError
from edenmem.models.changes import AddUser, ChangeSet
from edenmem.models.forgetting import Subject, block
from edenmem.models.formation import Trigger
from edenmem.models.host import STORED, Agent, Message, Session, ToolCall, User, owner_of
from edenmem.models.ids import derived_id, is_id
from edenmem.models.search import FactFilter
from edenmem.models.told import Note

_STEP = timedelta(milliseconds=1)
#: Number of stored messages to compare with a request, in addition to twice its length.
_MARGIN = 64
#: Number of recent sessions that the end of a conversation may belong to.
_RECENT_SESSIONS = 10


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for an answer.

    Attributes:
        agent: The agent that answers.
        user: The user (None: no known user).
        host_user: Name of the user at the host, known or not.
        key: Name of the session (None: find it by its messages).
        previous: ID of the response that the request follows; it has later messages only.
        may_join: Whether ``key`` may be the ID of any session of the agent.
        own_only: Whether the caller may see the user's memory only.
        said: The messages, without instructions.
        is_retry: Whether the client marks the request as a retry.
        missed_at: When the request arrived, if the store was unavailable then (None: now).
    """

    agent: Agent
    user: User | None = None
    host_user: str = ""
    key: str | None = None
    previous: str = ""
    may_join: bool = False
    own_only: bool = False
    said: tuple[Said, ...] = ()
    is_retry: bool = False
    missed_at: datetime | None = None

    def is_after(self, message: Message) -> bool:
        """Return whether the request arrived after a stored message."""
        return self.missed_at is None or message.created_at < self.missed_at

    @property
    def owner_key(self) -> tuple[str, str]:
        """Return the key shared by all sessions of the agent and the user.

        An unknown user has a key of its own name.
        """
        name = self.user.person_id if self.user else f"?{self.host_user}"
        return self.agent.id, name


class ChatTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A request in its session, before it is stored.

    Attributes:
        session: The session; not stored yet if ``is_new``.
        view: Scopes that the agent may read in the session, with the user as a participant.
        is_new: Whether the session is new.
        joins: Whether the user joins a stored session.
        parent: Session that a new session diverged from.
        messages: New messages, in order.
        asked: ID of the message that the answer replies to ("": the answer is not stored).
        has_facts: Whether a search in the view can find anything.
        note: The note of the memory in the request, to be stored with the messages.
    """

    session: Session
    view: SessionView
    is_new: bool
    joins: bool = False
    parent: str | None = None
    messages: tuple[Message, ...]
    asked: str
    has_facts: bool = False
    note: Note | None = None


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of the agent, complete or not.

    ``at`` is its time (None: now), ``id`` its ID at the upstream; a request may follow it by that.
    """

    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    at: datetime | None = None
    id: str = ""


def find_turn(runtime: Runtime, request: ChatRequest) -> ChatTurn:
    """Find the session of a request and its new messages, without writing.

    Raises:
        UsageError: the store does not allow the session, such as one without owner on MongoDB.
        StoreError: the store is unavailable.
    """
    with runtime.store.database.snapshot():
        # The caller may keep the agent for long: read its current settings.
        agent = runtime.store.host.agent(request.agent.id) or request.agent
        turn = _find(runtime, msgspec.structs.replace(request, agent=agent))
        in_view = FactFilter(scopes=turn.view.reads, live_at=runtime.clock())
        facts = runtime.store.memory.facts(in_view, limit=1)
        return msgspec.structs.replace(turn, has_facts=next(iter(facts), None) is not None)


def _find(runtime: Runtime, request: ChatRequest) -> ChatTurn:
    if request.key is not None:
        return _keyed(runtime, request, request.key)
    if request.previous:
        return _following(runtime, request)
    turn = _by_messages(runtime, request)
    if turn.messages and _was_resent(runtime, request, turn):
        return msgspec.structs.replace(turn, messages=(), asked="")
    return turn


def store_turn(runtime: Runtime, turn: ChatTurn) -> None:
    """Store the new messages with their session, or nothing without messages; idempotent.

    Raises:
        StoreError: the store is unavailable.
    """
    note = turn.note
    if note is not None:  # a chat that was stored late may have found another session
        reply = msgspec.structs.replace(note.reply, session_id=turn.session.id)
        note = msgspec.structs.replace(note, reply=reply)
    if not turn.messages:
        runtime.told.add(note)
        return
    host = runtime.store.host
    if turn.is_new or turn.joins:
        host.put_session(turn.session)
    elif host.session(turn.session.id) is None:
        raise NotFoundError("the session of a chat was removed meanwhile")
    host.add_messages(turn.session.id, turn.messages, note=note)


def store_answer(
    runtime: Runtime, session_id: str, agent_id: str, asked: str, answer: Answer
) -> None:
    """Store the answer of an agent, or replace an older answer to the same message.

    Args:
        runtime: The store.
        session_id: The session of the turn.
        agent_id: The agent.
        asked: `ChatTurn.asked`.
        answer: The answer.

    Raises:
        NotFoundError: the message was removed meanwhile, as by a forgetting.
        StoreError: the store is unavailable.
    """
    if not asked or not (answer.content or answer.tool_calls):
        return
    answer_id = _response_id(agent_id, answer.id) if answer.id else _answer_id(asked, 0)
    found = runtime.store.host.messages_by_ids([asked, answer_id])
    stored = {message.id: message for message in found}
    if asked not in stored:
        raise NotFoundError("the message of an answer was removed meanwhile")
    if answer_id in stored and stored[answer_id].session_id != session_id:
        answer_id = _answer_id(asked, 0)  # the upstream does not number its answers
    at = max(answer.at or runtime.clock(), stored[asked].created_at + _STEP)
    if answer_id in stored and stored[answer_id].created_at > at:
        return
    message = Message(
        id=answer_id,
        session_id=session_id,
        role="assistant",
        content=answer.content,
        created_at=at,
        sender=agent_id,
        tool_calls=answer.tool_calls,
    )
    runtime.store.host.put_message(message)


def is_forgotten(runtime: Runtime, names: Collection[str], since: datetime) -> bool:
    """Return whether a user, session or agent was forgotten since.

    A chat from before must not be stored any more.

    Args:
        runtime: The store.
        names: IDs, and names of users and sessions.
        since: When the chat arrived.
    """
    called = {block("called", name.strip().casefold()) for name in names if name.strip()}
    agents = {Subject(kind="agent", agent_id=name).id for name in names}
    return any(
        forgetting.kind != "fact"
        and (forgetting.id in agents or not called.isdisjoint(forgetting.blocks))
        and (forgetting.closed_at is None or forgetting.closed_at >= since)
        for forgetting in runtime.store.erasure.forgettings()
    )


# -- sessions with a key ---------------------------------------------------------------------------


def name_session(agent: Agent, user: User | None, host_user: str, key: str) -> str:
    """Return the ID of the session that chats of an agent and a user have under a key."""
    request = ChatRequest(agent=agent, user=user, host_user=host_user)
    return derived_id("chat", *request.owner_key, key)


def _keyed(runtime: Runtime, request: ChatRequest, key: str) -> ChatTurn:
    host = runtime.store.host
    session_id = name_session(request.agent, request.user, request.host_user, key)
    session = host.session(session_id)
    if session is None and request.may_join and is_id(key):
        other = host.session(key)
        if other is not None and _may_join(runtime, request, other):
            session, session_id = other, key
    return _continued(runtime, request, session_id, session, key)


def _continued(
    runtime: Runtime, request: ChatRequest, session_id: str, session: Session | None, key: str = ""
) -> ChatTurn:
    """Return the turn in a session whose messages the request repeats in part, or a new one."""
    host = runtime.store.host
    stored: list[Message] = []
    if session is not None:
        newest = host.messages(session_id, newest=2 * len(request.said) + _MARGIN)
        stored = [each for each in newest if request.is_after(each)]
    places = find_news(stored, request.said, is_retry=request.is_retry)
    asked = [message.id for message in stored if message.role in ("user", "tool")]
    ids: dict[int, str] = {}
    # A request of instructions alone asks nothing: its answer must not replace the last one.
    is_asking = any(said.role != "assistant" for said in request.said)
    last = asked[-1] if asked and is_asking else ""
    for place in places:
        said = request.said[place]
        if said.role != "assistant":
            last = ids[place] = derived_id("chat message", session_id, last, said.key)
    made = session or _new_session(request, session_id, name=key or None)
    return _turn(runtime, request, made, session is None, None, stored, places, ids, last)


def _may_join(runtime: Runtime, request: ChatRequest, session: Session) -> bool:
    """Return whether a request may continue a session.

    It must be a session of the agent, with the user (by any account) or without users.
    """
    if request.agent.id not in session.agents:
        return False
    if not session.users:
        return True
    if request.user is None:
        return not request.host_user
    people = {user.person_id for user in runtime.store.host.users_by_ids(session.users).values()}
    return request.user.id in session.users or request.user.person_id in people


def _following(runtime: Runtime, request: ChatRequest) -> ChatTurn:
    """Return the turn after a response. A response that is not stored begins a session."""
    host = runtime.store.host
    session_id = derived_id("chat", *request.owner_key, "response", request.previous)
    before = _response_id(request.agent.id, request.previous)
    found = next(iter(host.messages_by_ids([before])), None)
    session = host.session(found.session_id if found else session_id)
    if session is not None and not _may_join(runtime, request, session):
        session = None
    made = session or _new_session(request, session_id)
    stored = list(host.messages(made.id, newest=2 * len(request.said) + _MARGIN)) if session else []
    places = [place for place, said in enumerate(request.said) if said.role != "assistant"]
    hashes = chain([before, *(request.said[place].key for place in places)])[1:]
    ids = {
        place: derived_id("chat message", made.id, each)
        for place, each in zip(places, hashes, strict=True)
    }
    known = {message.id for message in host.messages_by_ids(list(ids.values()))}
    new = [place for place in places if ids[place] not in known]
    asked = ids[places[-1]] if places else ""
    return _turn(runtime, request, made, session is None, None, stored, new, ids, asked)


# -- sessions without a key ------------------------------------------------------------------------


def _by_messages(runtime: Runtime, request: ChatRequest) -> ChatTurn:
    host = runtime.store.host
    places = [place for place, said in enumerate(request.said) if said.role != "assistant"]
    history = len(places) - len(current_turn(request.said, places))
    hashes = chain([request.said[place].key for place in places])
    primary = [derived_id("chat message", *request.owner_key, each) for each in hashes]
    found = {message.id: message.session_id for message in host.messages_by_ids(primary)}
    known = max((index + 1 for index, each in enumerate(primary) if each in found), default=0)
    if not places:
        session = _new_session(request, derived_id("chat", *request.owner_key, "", "0"))
        view = _view(runtime, request, session)
        return ChatTurn(session=session, view=view, is_new=True, messages=(), asked="")
    if known < history and (window := _find_window(runtime, request)) is not None:
        return _continued(runtime, request, window.id, window)
    if not known:
        session_id = derived_id("chat", *request.owner_key, "", hashes[0], "0")
        session = host.session(session_id) or _new_session(request, session_id)
        ids = dict(zip(places, primary, strict=True))
        new = with_answers(request.said, places, is_answered=False)
        return _turn(runtime, request, session, True, None, (), new, ids, primary[-1])

    shared = hashes[known - 1]
    indexes = {each: index for index, each in enumerate(primary, start=1)}
    branches = _branches(runtime, request, shared)
    candidates = [*branches[-1:], found[primary[known - 1]]]
    for session_id in candidates:
        copy = derived_id("chat message", session_id, shared)
        session_or_none = host.session(session_id)
        stored = list(host.messages(session_id, newest=_MARGIN))
        asked = [message.id for message in stored if message.role in ("user", "tool")]
        if session_or_none is None or not asked:
            continue
        # The same request may have arrived twice, and stored more messages since the look-up.
        here = known if asked[-1] == copy else indexes.get(asked[-1], 0)
        if here >= known:
            ids = dict(zip(places[here:], primary[here:], strict=True))
            new = with_answers(
                request.said, places[here:], is_answered=stored[-1].role == "assistant"
            )
            last = primary[-1] if here < len(places) else asked[-1]
            return _turn(runtime, request, session_or_none, False, None, stored, new, ids, last)
    if branches and not any(host.messages(branches[-1], newest=1)):
        branches.pop()  # the server was killed before it stored a message
    number = str(len(branches) + 1)
    branch_id = derived_id("chat", *request.owner_key, "", shared, number)
    ids = dict(zip(places[known:], primary[known:], strict=True))
    if known == len(places):  # a retry of an earlier turn
        ids = {places[-1]: derived_id("chat message", branch_id, shared)}
    new = with_answers(request.said, sorted(ids), is_answered=True)
    parent = branches[-1] if branches else candidates[-1]
    branch = _new_session(request, branch_id, parent=parent)
    return _turn(runtime, request, branch, True, parent, (), new, ids, ids[max(ids)])


def _find_window(runtime: Runtime, request: ChatRequest) -> Session | None:
    """Return the only recent session of a known user that the request has the end of."""
    if request.user is None:
        return None
    host, found = runtime.store.host, list[Session]()
    for session in host.sessions(
        agent_id=request.agent.id, user_id=request.user.id, limit=_RECENT_SESSIONS
    ):
        stored = list(host.messages(session.id, newest=2 * len(request.said) + _MARGIN))
        if session.imported and session.name is None and shared_run(stored, request.said):
            found.append(session)
    return found[0] if len(found) == 1 else None


def _was_resent(runtime: Runtime, request: ChatRequest, turn: ChatTurn) -> bool:
    """Return whether a later request has stored a missed one, and others followed."""
    if request.missed_at is None:
        return False
    keys = [said.key for said in request.said if said.role != "assistant"]
    return any(
        not request.is_after(message) and key_of(message.role, message.content) == keys[-1]
        for session_id in filter(None, (turn.session.id, turn.parent))
        for message in runtime.store.host.messages(session_id, newest=2 * len(keys) + _MARGIN)
    )


def _branches(runtime: Runtime, request: ChatRequest, shared: str) -> list[str]:
    """Return the IDs of the sessions that diverged after the same prefix, by binary search."""

    def branch(number: int) -> str:
        return derived_id("chat", *request.owner_key, "", shared, str(number))

    def is_there(number: int) -> bool:
        return runtime.store.host.session(branch(number)) is not None

    if not is_there(1):
        return []
    low, high = 1, 2
    while is_there(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_there(middle) else (low, middle)
    return [branch(number) for number in range(1, low + 1)]


# -- both ------------------------------------------------------------------------------------------


def _new_session(
    request: ChatRequest, session_id: str, *, name: str | None = None, parent: str | None = None
) -> Session:
    session = Session(
        id=session_id,
        agents=(request.agent.id,),
        users=(request.user.id,) if request.user else (),
        name=name,
        status=STORED,
        imported=True,
        parent=parent,
    )
    return msgspec.structs.replace(session, owner=owner_of(session, [request.agent]))


def _turn(
    runtime: Runtime,
    request: ChatRequest,
    session: Session,
    is_new: bool,
    parent: str | None,
    stored: Sequence[Message],
    places: Sequence[int],
    ids: dict[int, str],
    asked: str,
) -> ChatTurn:
    """Return the turn with the messages at these indexes, in the order of their times."""
    now = request.missed_at or runtime.clock()
    if is_new:
        session = msgspec.structs.replace(session, created_at=session.created_at or now)
        if reason := runtime.store.host.refusal(session):
            raise UsageError(reason, hint="set an owner of the agent, or send the user")
    joins = request.user is not None and request.user.id not in session.users
    if request.user is not None and joins:
        session = msgspec.structs.replace(session, users=(*session.users, request.user.id))
    at = max(now, stored[-1].created_at + _STEP) if stored else now
    before = next((m.id for m in reversed(stored) if m.role in ("user", "tool")), session.id)
    count = 0
    user_id = request.user.id if request.user else None
    messages: list[Message] = []
    for number, place in enumerate(places):
        said = request.said[place]
        asker = user_id if said.role == "user" else None
        if said.role == "assistant":
            message_id = _answer_id(before, count)
            count += 1
        else:
            message_id = before = ids[place]
            count = 0
        messages.append(
            Message(
                id=message_id,
                session_id=session.id,
                role=said.role,
                content=said.content,
                created_at=at + number * _STEP,
                sender=request.agent.id if said.role == "assistant" else asker,
                name=said.name,
                tool_calls=said.tool_calls,
            )
        )
    return ChatTurn(
        session=session,
        view=_view(runtime, request, session),
        is_new=is_new,
        joins=joins,
        parent=parent,
        messages=tuple(messages),
        asked=asked,
    )


def _view(runtime: Runtime, request: ChatRequest, session: Session) -> SessionView:
    speaker = request.user.id if request.user else None
    return current_view(
        runtime.store, session, request.agent, speaker=speaker, own_only=request.own_only
    )


def _response_id(agent_id: str, response_id: str) -> str:
    return derived_id("chat response", agent_id, response_id)


def _answer_id(asked: str, number: int) -> str:
    return derived_id("chat answer", asked, str(number))


def find_agent(runtime: Runtime, name: str) -> Agent | None:
    """Return the agent with an ID or username."""
    host = runtime.store.host
    found = [host.agent(each.id) for each in host.find("agent", name)]
    exact = [agent for agent in found if agent and name in (agent.id, agent.username)]
    return exact[0] if len(exact) == 1 else None


def find_user(runtime: Runtime, name: str) -> User | None:
    """Return the account with an ID or a unique username."""
    host = runtime.store.host
    if is_id(name) and (user := host.user(name)) is not None:
        return user
    named = host.users_named(name)
    return named[0] if len(named) == 1 else None


def add_user(runtime: Runtime, name: str) -> User | None:
    """Add an account with a name, once for all callers; None if the name is taken."""
    user = User(id=derived_id("user", name), username=name, created_at=runtime.clock())
    change = AddUser(user=user)
    runtime.store.changes.apply(
        ChangeSet(actor=runtime.actor, at=runtime.clock(), changes=(change,))
    )
    return find_user(runtime, name)


#: Every pause is a paid formation, so each doubles the wait of its session, up to this.
_LONGEST_SECONDS = 600.0
#: No wait doubles more often.
_MOST_PAUSES = 10
#: Sessions to look through after a start, and how long ago their last message may be.
_LATEST, _RECENT = 200, timedelta(days=1)


def due_at(runtime: Runtime, session_id: str, agent_id: str) -> datetime | None:
    """Return when a chat is formed if it stays quiet, or None if it has no messages."""
    newest = next(iter(runtime.store.host.messages(session_id, newest=1)), None)
    if newest is None:
        return None
    formations = runtime.store.formations.list_formations(
        session_id=session_id, agent_id=agent_id, limit=_MOST_PAUSES
    )
    pauses = sum(each.trigger is Trigger.COLD for each in formations)
    first = runtime.settings.server.form_after
    seconds = min(first * 2**pauses, max(first, _LONGEST_SECONDS))
    return newest.created_at + timedelta(seconds=seconds)


def find_recent(runtime: Runtime) -> list[tuple[str, str]]:
    """Return the recent chats, as (session, agent); a stopped server may have left them waiting."""
    since = runtime.clock() - _RECENT
    return [
        (session.id, agent)
        for session in runtime.store.host.sessions(limit=_LATEST)
        if session.imported
        and session.status == STORED
        and session.last_activity is not None
        and session.last_activity >= since
        for agent in session.agents
    ]
