"""The session of a chat request, and the storing of what was said in it. Everything here blocks.

No step is stored that another one must follow: ids are derived from what they are for, so that a
request that is sent again, to whatever server, finds or makes the same session and messages.

- With a key (``memory_id``, or a name in a header) the session is that of (agent, user, key).
- Without one, the session is found by its messages. The id of the k-th message that no agent wrote
  is derived from agent, user and the rolling hash of all such messages up to it, so that the
  longest known beginning of a request is one look-up by ids. If its session ends there, it goes
  on; if it has gone on in another way, a new session begins, which has the place of divergence in
  its id and holds what is said from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import msgspec

from edenmem.engine.chats.messages import Said, chain, find_news, with_answers
from edenmem.engine.runtime.runtime import Runtime
from edenmem.engine.scopes.lookups import add_messages
from edenmem.engine.scopes.visibility import SessionView, current_view
from edenmem.errors import UsageError
from edenmem.models.host import STORED, Agent, Message, Session, ToolCall, User, owner_of
from edenmem.models.ids import derived_id, is_id

_STEP = timedelta(milliseconds=1)
#: Of the stored messages so many more than the request has are compared with it.
_MARGIN = 64


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for an answer.

    Attributes:
        agent: Who answers.
        user: Who asks; None: nobody is known.
        host_user: What the host calls the user, known here or not.
        key: The name of the session; None: it is found by its messages.
        may_join: Whether ``key`` may be the id of a session of the agent that was begun elsewhere.
        said: The messages, without instructions.
        is_retry: The client says that it sends the request again.
    """

    agent: Agent
    user: User | None = None
    host_user: str = ""
    key: str | None = None
    may_join: bool = False
    said: tuple[Said, ...] = ()
    is_retry: bool = False

    @property
    def owner_key(self) -> tuple[str, str]:
        """What sessions of the same agent and user have in common."""
        name = self.user.person_id if self.user else f"?{self.host_user}"
        return self.agent.id, name


class ChatTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A request in its session, before it is stored.

    Attributes:
        session: The session; not stored yet if ``is_new``.
        view: What the agent may read in the session, the user counted among its people.
        is_new: Whether the session is to be made.
        joins: Whether the user is to join the stored session.
        parent: The session from which a new one diverged.
        messages: What is new, in order.
        asked: The id of the message that the answer replies to; "": nothing was said.
    """

    session: Session
    view: SessionView
    is_new: bool
    joins: bool = False
    parent: str | None = None
    messages: tuple[Message, ...]
    asked: str


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent answered, as far as it arrived."""

    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()


def find_turn(runtime: Runtime, request: ChatRequest) -> ChatTurn:
    """Find the session of a request, and what of it is new. Reads only.

    Raises:
        UsageError: the store cannot have such a session, as one without owner on MongoDB.
        StoreError: the store cannot be used.
    """
    if request.key is not None:
        return _keyed(runtime, request, request.key)
    return _by_messages(runtime, request)


def store_turn(runtime: Runtime, turn: ChatTurn) -> None:
    """Store what is new; to do it again changes nothing.

    Raises:
        StoreError: the store cannot be used.
    """
    host = runtime.store.host
    if turn.is_new or turn.joins:
        host.put_session(turn.session)
    if turn.messages:
        add_messages(runtime.store, turn.session.id, turn.messages)


def store_answer(runtime: Runtime, turn: ChatTurn, answer: Answer) -> None:
    """Store the answer to a turn, in place of an earlier one to the same message.

    Raises:
        StoreError: the store cannot be used.
    """
    if not turn.asked or not (answer.content or answer.tool_calls):
        return
    asked = runtime.store.host.messages_by_ids([turn.asked])
    after = asked[0].created_at + _STEP if asked else runtime.clock()
    message = Message(
        id=_answer_id(turn.asked, 0),
        session_id=turn.session.id,
        role="assistant",
        content=answer.content,
        created_at=max(runtime.clock(), after),
        sender=turn.session.agents[0],
        tool_calls=answer.tool_calls,
    )
    runtime.store.host.put_message(message)


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
    stored: list[Message] = []
    if session is not None:
        stored = list(host.messages(session_id, newest=2 * len(request.said) + _MARGIN))
    places = find_news(stored, request.said, is_retry=request.is_retry)
    asked = [message.id for message in stored if message.role in ("user", "tool")]
    ids: dict[int, str] = {}
    last = asked[-1] if asked else ""
    for place in places:
        said = request.said[place]
        if said.role != "assistant":
            last = ids[place] = derived_id("chat message", session_id, last, said.key)
    made = session or _new_session(request, session_id, name=key)
    return _turn(runtime, request, made, session is None, None, stored, places, ids, last)


def _may_join(runtime: Runtime, request: ChatRequest, session: Session) -> bool:
    """Return whether a session may go on with a request: of the agent, and with the user that is
    named, by any account, or with nobody yet."""
    if request.agent.id not in session.agents:
        return False
    if not session.users:
        return True
    if request.user is None:
        return not request.host_user
    people = {user.person_id for user in runtime.store.host.users_by_ids(session.users).values()}
    return request.user.id in session.users or request.user.person_id in people


# -- sessions that are found by their messages -----------------------------------------------------


def _by_messages(runtime: Runtime, request: ChatRequest) -> ChatTurn:
    host = runtime.store.host
    places = [place for place, said in enumerate(request.said) if said.role != "assistant"]
    hashes = chain([request.said[place].key for place in places])
    primary = [derived_id("chat message", *request.owner_key, each) for each in hashes]
    found = {message.id: message.session_id for message in host.messages_by_ids(primary)}
    known = max((index + 1 for index, each in enumerate(primary) if each in found), default=0)
    if not places:
        session = _new_session(request, derived_id("chat", *request.owner_key, "", "0"))
        view = _view(runtime, request, session)
        return ChatTurn(session=session, view=view, is_new=True, messages=(), asked="")
    if not known:
        session_id = derived_id("chat", *request.owner_key, "", hashes[0], "0")
        session = host.session(session_id) or _new_session(request, session_id)
        ids = dict(zip(places, primary, strict=True))
        new = with_answers(request.said, places, is_answered=False)
        return _turn(runtime, request, session, True, None, (), new, ids, primary[-1])

    shared = hashes[known - 1]
    branches = _branches(runtime, request, shared)
    candidates = [*branches[-1:], found[primary[known - 1]]]
    for session_id in candidates:
        copy = derived_id("chat message", session_id, shared)
        session_or_none = host.session(session_id)
        stored = list(host.messages(session_id, newest=_MARGIN))
        asked = [message.id for message in stored if message.role in ("user", "tool")]
        if session_or_none is not None and asked and asked[-1] in (primary[known - 1], copy):
            ids = dict(zip(places[known:], primary[known:], strict=True))
            new = with_answers(
                request.said, places[known:], is_answered=stored[-1].role == "assistant"
            )
            last = primary[-1] if known < len(places) else asked[-1]
            return _turn(runtime, request, session_or_none, False, None, stored, new, ids, last)
    if branches and not any(host.messages(branches[-1], newest=1)):
        branches.pop()  # it was begun, and its server killed before anything was stored in it
    number = str(len(branches) + 1)
    branch_id = derived_id("chat", *request.owner_key, "", shared, number)
    ids = dict(zip(places[known:], primary[known:], strict=True))
    if known == len(places):  # the same is asked again, after the conversation went on
        ids = {places[-1]: derived_id("chat message", branch_id, shared)}
    new = with_answers(request.said, sorted(ids), is_answered=True)
    parent = branches[-1] if branches else candidates[-1]
    branch = _new_session(request, branch_id, parent=parent)
    return _turn(runtime, request, branch, True, parent, (), new, ids, ids[max(ids)])


def _branches(runtime: Runtime, request: ChatRequest, shared: str) -> list[str]:
    """Return the ids of the sessions that diverged after the same beginning; of many only the
    last is looked up, the others are taken to be there."""

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
    """Make the messages at these places, each later than the one before."""
    now = runtime.clock()
    if is_new:
        session = msgspec.structs.replace(session, created_at=session.created_at or now)
        if reason := runtime.store.host.refusal(session):
            raise UsageError(reason, hint="give the agent an owner, or name the user")
    joins = request.user is not None and request.user.id not in session.users
    if request.user is not None and joins:
        session = msgspec.structs.replace(session, users=(*session.users, request.user.id))
    at = max(now, stored[-1].created_at + _STEP) if stored else now
    before = next((m.id for m in reversed(stored) if m.role in ("user", "tool")), session.id)
    count = 0
    messages: list[Message] = []
    for number, place in enumerate(places):
        said = request.said[place]
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
                sender=_sender(request, said),
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
    return current_view(runtime.store, session, request.agent, speaker=speaker)


def _sender(request: ChatRequest, said: Said) -> str | None:
    if said.role == "assistant":
        return request.agent.id
    return request.user.id if said.role == "user" and request.user else None


def _answer_id(asked: str, number: int) -> str:
    return derived_id("chat answer", asked, str(number))
