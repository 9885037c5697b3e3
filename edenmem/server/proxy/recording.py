"""The record of one chat: its session and new messages are found, and stored with the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from datetime import datetime

import msgspec
from fastapi import Request

from edenmem.engine.chats.messages import Said
from edenmem.engine.chats.sessions import Answer, ChatRequest, ChatTurn
from edenmem.engine.runtime.concurrency import in_thread
from edenmem.errors import NotFoundError, StoreUnreachable
from edenmem.models.host import Agent, User
from edenmem.models.ids import utc_now
from edenmem.models.told import Note
from edenmem.server.access import Caller
from edenmem.server.problems import Refused
from edenmem.server.proxy.background import Background
from edenmem.server.proxy.body import ChatBody
from edenmem.server.proxy.frontends import SESSION_HEADERS, USER_HEADERS, named_in
from edenmem.server.proxy.retries import Retries
from edenmem.server.proxy.stages import Stages
from edenmem.server.state import ServerState

_UNKNOWN_USER = "unknown user; use 'edenmem user add NAME', or set server.create_users"


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """What the storage of a chat needs of its request: a chat may wait for the store for long.

    ``only_user`` is the only user of callers without a token, if there is one. ``session_id`` and
    ``asked`` are set once the turn is stored: the answer alone waits then.
    """

    caller: Caller
    agent_name: str
    user_name: str
    only_user: str
    key: str | None
    previous: str
    may_join: bool
    is_retry: bool
    begun: datetime
    said: tuple[Said, ...] = ()
    answer: Answer | None = None
    note: Note | None = None
    session_id: str = ""
    asked: str = ""
    agent_id: str = ""


class Recording:
    """One chat, from the look-up of its session to the storage of its answer.

    Args:
        kept: What the storage needs of the request.
        state: State of the server.
        background: Forms memories of stored chats.
        retries: Chats that wait for the store.
    """

    def __init__(
        self, kept: Kept, state: ServerState, background: Background, retries: Retries
    ) -> None:
        self._kept = kept
        self._caller = kept.caller
        self._state = state
        self._chats = state.service.chats
        self._background = background
        self._retries = retries
        self._turn: ChatTurn | None = None
        self._is_behind = False  # the session was read while earlier chats waited
        self._writing = asyncio.Lock()
        #: The agent and the user, once found, without the messages.
        self.asked: ChatRequest | None = None
        #: Whether the chat was counted as lost.
        self.is_lost = False

    @property
    def lane(self) -> Hashable:
        """Return the key of the chats that must be stored in the order of their arrival."""
        kept = self._kept
        return kept.caller.token_id, kept.agent_name, kept.user_name, kept.key

    def pack(self) -> bytes:
        """Return what the storage needs, for a chat that waits."""
        if not self._kept.session_id:
            self._turn = None  # it is found again, after the chats before it
        return msgspec.msgpack.encode(self._kept)

    # -- look-up -------------------------------------------------------------------------------

    async def find(self, stages: Stages) -> ChatTurn | None:
        """Return the turn of the chat, or None without its agent, user or session.

        Raises:
            Refused: no such agent or user within reach.
        """
        limit = self._state.settings.server.store_timeout_seconds
        self._turn = await stages.run("session", self._look_up(), limit, or_else=None)
        asked = self.asked
        if self._turn is not None and asked is not None and asked.host_user and asked.user is None:
            # Do not reveal to the caller of a token which names exist.
            stages.skip(
                "user", "unknown, so no memory of the user", _UNKNOWN_USER,
                is_told=self._caller.token_id is None,
            )  # fmt: skip
        return self._turn

    async def _look_up(self) -> ChatTurn:
        """Return the turn, after the earlier chats that wait for the store."""
        self._is_behind = not await self._retries.attempt(self.lane)
        self.asked, turn = await in_thread(self._find)
        return turn

    def _find(self, missed_at: datetime | None = None) -> tuple[ChatRequest, ChatTurn]:
        """Find the agent, the user and the turn; blocks.

        Raises:
            Refused: no such agent or user within reach.
            NotFoundError: the token's user was removed.
            StoreError: the store is unavailable.
        """
        agent, (user, host_user) = self._find_agent(), self._find_user()
        asked = ChatRequest(
            agent=agent,
            user=user,
            host_user=host_user,
            key=self._kept.key,
            previous=self._kept.previous,
            may_join=self._kept.may_join,
            own_only=self._caller.user_id is not None,
            is_retry=self._kept.is_retry,
            missed_at=missed_at,
        )
        whole = msgspec.structs.replace(asked, said=self._kept.said)
        return asked, self._chats.find_turn(whole)

    def _find_agent(self) -> Agent:
        name, caller, agent = self._kept.agent_name, self._caller, self._state.agent
        if name:
            agent = self._chats.find_agent(name)
        elif caller.agents is not None and len(caller.agents) == 1:
            agent = self._chats.find_agent(*caller.agents)
        if agent is not None and caller.may_reach_agent(agent.id):
            return agent
        if name:
            raise Refused(404, f"there is no agent {name!r}")
        raise Refused(400, "an agent is required: send the header X-Edenmem-Agent")

    def _find_user(self) -> tuple[User | None, str]:
        """Return the user, and the host's name of the user."""
        caller, given, names = self._caller, self._kept.user_name, self._state.settings.server.users
        name = names.get(given, given) or caller.user_id
        user = self._chats.find_user(name) if name else None
        if caller.user_id is not None:
            if user is None and not given:
                raise NotFoundError("the user of the token was removed")
            if user is None or not caller.may_reach_user(user.id):
                raise Refused(404, f"there is no user {given!r}")
            return user, caller.user_id
        if self._kept.only_user and not self._is_only_user(user, name):
            raise Refused(
                403,
                f"the server is for the user {self._kept.only_user!r}, not for {given!r}:"
                " start it without --user, or map the name in server.users",
            )
        if name and user is None and self._state.settings.server.create_users:
            user = self._chats.add_user(name)
        return user, given

    def _is_only_user(self, user: User | None, name: str | None) -> bool:
        """Return whether the chat is of the server's only user, by any account."""
        only = self._kept.only_user
        only = self._state.settings.server.users.get(only, only)
        if name == only:
            return True
        wanted = self._chats.find_user(only)
        return user is not None and wanted is not None and user.person_id == wanted.person_id

    # -- storage -------------------------------------------------------------------------------

    @property
    def expects_answer(self) -> bool:
        """Return whether the answer is to be stored, as far as is known."""
        return self._turn is None or bool(self._turn.asked)

    def tell(self, note: Note | None) -> None:
        """Store with the chat the note of its memory."""
        self._kept = msgspec.structs.replace(self._kept, note=note)

    async def store_answer(self, answer: Answer) -> None:
        """Store the answer, after the chat.

        Raises:
            Exception: see `store`.
        """
        answer = msgspec.structs.replace(answer, at=utc_now())
        self._kept = msgspec.structs.replace(self._kept, answer=answer)
        await self.store()

    async def store(self) -> None:
        """Store the known parts of the chat, or add it to the chats that wait for the store.

        Raises:
            Exception: the store failed; the chat waits.
        """
        async with self._writing:
            if self._turn is None and not self._kept.session_id:
                self._retries.add(self)
                return
            try:
                if self._is_behind and not self._kept.session_id:
                    raise StoreUnreachable("earlier messages of the chat wait for the store")
                await self._write()
            except Exception:
                self._retries.add(self)
                raise

    def wait_if_late(self) -> None:
        """Let later chats of the conversation wait for a write that is still in progress."""
        if self._writing.locked():
            self._retries.add(self)

    async def store_late(self) -> None:
        """Store a chat that waited; the session is found again, after the chats before it.

        Raises:
            Refused: no such agent or user within reach.
            NotFoundError: the user or the session was removed, or one of all three forgotten.
            EdenmemError: the store failed.
        """
        async with self._writing:
            kept = self._kept
            name = kept.user_name  # before a look-up creates the user again
            await self._check_remembered(name, self._state.settings.server.users.get(name, name))
            if not kept.session_id:
                asked, turn = await in_thread(self._find, kept.begun)
                self.asked, self._turn = asked, turn
                user_id = asked.user.id if asked.user else ""
                await self._check_remembered(turn.session.id, asked.agent.id, user_id)
            else:
                await self._check_remembered(kept.session_id, kept.agent_id)
            await self._write()

    async def _check_remembered(self, *names: str) -> None:
        """Check that no agent, user or session of these names was forgotten meanwhile.

        Raises:
            NotFoundError: one was.
        """
        if await in_thread(self._chats.is_forgotten, names, self._kept.begun):
            raise NotFoundError("the agent, user or session was forgotten meanwhile")

    async def _write(self) -> None:
        """Write the turn, and the answer if there is one; each is written once."""
        if self._turn is not None and self.asked is not None and not self._kept.session_id:
            agent_id = self.asked.agent.id
            turn = msgspec.structs.replace(self._turn, note=self._kept.note)
            await in_thread(self._chats.store_turn, turn)
            self._kept = msgspec.structs.replace(
                self._kept,
                session_id=turn.session.id,
                asked=turn.asked,
                agent_id=agent_id,
                note=None,
                said=(),
            )
            self._turn = msgspec.structs.replace(turn, messages=())
            self._retries.stored += 1
            if turn.messages:
                self._background.form_later(turn.session.id, agent_id, is_answered=False)
        kept = self._kept
        if kept.answer is not None and kept.asked:
            await in_thread(
                self._chats.store_answer, kept.session_id, kept.agent_id, kept.asked, kept.answer
            )
            self._kept = msgspec.structs.replace(kept, answer=None)
            self._background.form_later(kept.session_id, kept.agent_id)


def keep(request: Request, caller: Caller, state: ServerState, body: ChatBody) -> Kept:
    """Return what the storage needs of a request.

    Raises:
        Refused: a name has a template that was not filled in.
    """
    settings, theirs = state.settings.server, ("", "")
    if caller.user_id is None:
        theirs = (
            named_in(request.headers, settings.user_headers, USER_HEADERS),
            named_in(request.headers, settings.session_headers, SESSION_HEADERS),
        )
    only_user = settings.user if caller.token_id is None else ""
    named = header(request, "session")
    kept = Kept(
        caller=caller,
        agent_name=header(request, "agent"),
        user_name=header(request, "user") or theirs[0] or body.user or only_user,
        only_user=only_user,
        key=named or theirs[1] or body.memory.memory_id or body.conversation or None,
        previous=body.previous,
        may_join=bool(named) and caller.user_id is None,
        is_retry=request.headers.get("x-stainless-retry-count", "0") != "0",
        begun=utc_now(),
        said=body.said,
    )
    for name in (kept.user_name, kept.key or ""):
        if "{{" in name:
            raise Refused(400, f"the front end did not fill in a template: {name[:60]!r}")
    return kept


def unpack(data: bytes, state: ServerState, background: Background, retries: Retries) -> Recording:
    """Return a chat that waited on disk.

    Raises:
        DecodeError: the data is damaged.
    """
    return Recording(msgspec.msgpack.decode(data, type=Kept), state, background, retries)


def header(request: Request, name: str) -> str:
    """Return a header of edenmem, or ""."""
    return request.headers.get(f"x-edenmem-{name}", "").strip()[:200]
