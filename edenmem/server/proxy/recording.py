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
from edenmem.server.access import Caller
from edenmem.server.problems import Refused
from edenmem.server.proxy.background import Background
from edenmem.server.proxy.body import Body
from edenmem.server.proxy.frontends import SESSION_HEADERS, USER_HEADERS, named_in
from edenmem.server.proxy.retries import Retries
from edenmem.server.proxy.stages import Stages, Unlimited
from edenmem.server.state import ServerState

_UNKNOWN_USER = "unknown user; use 'edenmem user add NAME', or set server.create_users"
_SAID = msgspec.msgpack.Decoder(tuple[Said, ...])


class Recording:
    """One chat, from the look-up of its session to the storage of its answer.

    It keeps no more of the request than this needs: a chat may wait for the store for long.

    Args:
        request: The request.
        caller: The caller.
        state: State of the server.
        background: Forms memories of stored chats.
        retries: Chats that wait for the store.
        body: The body of the request.
    """

    def __init__(
        self,
        request: Request,
        caller: Caller,
        state: ServerState,
        background: Background,
        retries: Retries,
        body: Body,
    ) -> None:
        self._caller = caller
        self._state = state
        self._chats = state.service.chats
        self._background = background
        self._retries = retries
        self._agent_name = header(request, "agent")
        settings, theirs = state.settings.server, ("", "")
        if caller.user_id is None:
            theirs = (
                named_in(request.headers, settings.user_headers, USER_HEADERS),
                named_in(request.headers, settings.session_headers, SESSION_HEADERS),
            )
        #: The only user of callers without a token, if there is one.
        self._only_user = settings.user if caller.token_id is None else ""
        self._user_name = header(request, "user") or theirs[0] or body.user or self._only_user
        named = header(request, "session")
        self._key = named or theirs[1] or body.memory.memory_id or body.conversation or None
        self._previous = body.previous
        for name in (self._user_name, self._key or ""):
            if "{{" in name:
                raise Refused(400, f"the front end did not fill in a template: {name[:60]!r}")
        self._may_join = bool(named) and caller.user_id is None
        self._is_retry = request.headers.get("x-stainless-retry-count", "0") != "0"
        self._said: tuple[Said, ...] | bytes = body.said
        self._begun = utc_now()
        self._turn: ChatTurn | None = None
        self._is_turn_stored = False
        self._is_behind = False  # the session was read while earlier chats waited
        self._answer: Answer | None = None
        self._writing = asyncio.Lock()
        #: The agent and the user, once found, without the messages.
        self.asked: ChatRequest | None = None
        #: Whether the chat was counted as lost.
        self.is_lost = False

    @property
    def lane(self) -> Hashable:
        """Return the key of the chats that must be stored in the order of their arrival."""
        return self._caller.token_id, self._agent_name, self._user_name, self._key

    def pack(self) -> int:
        """Keep only what the storage needs, and return its size in bytes."""
        if not self._is_turn_stored:
            self._turn = None  # it is found again, after the chats before it
        if not isinstance(self._said, bytes):
            self._said = msgspec.msgpack.encode(self._said)
        return len(self._said) + len(msgspec.msgpack.encode(self._answer))

    # -- look-up -------------------------------------------------------------------------------

    async def find(self, stages: Stages) -> ChatTurn | None:
        """Return the turn of the chat, or None without its agent, user or session.

        Raises:
            Refused: no such agent or user within reach.
        """
        self._turn = await self._find(stages)
        return self._turn

    async def _find(self, stages: Stages, missed_at: datetime | None = None) -> ChatTurn | None:
        agent, user, host_user = await self._who(stages)
        if agent is None:
            return None
        self.asked = ChatRequest(
            agent=agent,
            user=user,
            host_user=host_user,
            key=self._key,
            previous=self._previous,
            may_join=self._may_join,
            own_only=self._caller.user_id is not None,
            is_retry=self._is_retry,
            missed_at=missed_at,
        )
        return await stages.run(
            "session",
            self._look_up(self.asked),
            self._state.settings.server.store_timeout_seconds,
            or_else=None,
        )

    async def _look_up(self, asked: ChatRequest) -> ChatTurn:
        """Return the turn of a request, after the earlier chats that wait for the store."""
        if asked.missed_at is None:
            self._is_behind = not await self._retries.attempt(self.lane)
        said = self._said
        said = _SAID.decode(said) if isinstance(said, bytes) else said
        return await in_thread(self._chats.find_turn, msgspec.structs.replace(asked, said=said))

    async def _who(self, stages: Stages) -> tuple[Agent | None, User | None, str]:
        """Return the agent, the user and the host's name of the user; no agent means no memory.

        Raises:
            Refused: no such agent or user within reach.
        """
        limit = self._state.settings.server.store_timeout_seconds
        name = self._agent_name
        agent = self._state.agent
        if name:
            agent = await stages.run(
                "agent", in_thread(self._chats.find_agent, name), limit, or_else=None
            )
        elif self._caller.agents is not None and len(self._caller.agents) == 1:
            (only,) = self._caller.agents
            agent = await stages.run(
                "agent", in_thread(self._chats.find_agent, only), limit, or_else=None
            )
        if agent is not None and not self._caller.may_reach_agent(agent.id):
            agent = None
        if agent is None and "agent" not in stages.left_out:
            if name:
                raise Refused(404, f"there is no agent {name!r}")
            raise Refused(400, "an agent is required: send the header X-Edenmem-Agent")
        host_user = self._user_name
        if self._caller.user_id is not None:
            user = await self._find_user(stages, host_user or self._caller.user_id)
            if user is None and (_is_user_late(stages) or not host_user):
                return _without_user(stages)
            if user is None or not self._caller.may_reach_user(user.id):
                raise Refused(404, f"there is no user {host_user!r}")
            return agent, user, self._caller.user_id
        if self._only_user and not await self._is_only_user(stages):
            raise Refused(
                403,
                f"the server is for the user {self._only_user!r}, not for {host_user!r}: start it"
                " without --user, or map the name in server.users",
            )
        user = await self._find_user(stages, host_user) if host_user else None
        if host_user and user is None:
            if _is_user_late(stages):
                return _without_user(stages)
            # Do not reveal to the caller of a token which names exist.
            stages.skip(
                "user", "unknown, so no memory of the user", _UNKNOWN_USER,
                is_told=self._caller.token_id is None,
            )  # fmt: skip
        return agent, user, host_user

    async def _is_only_user(self, stages: Stages) -> bool:
        """Return whether the chat is of the server's only user, by any account."""
        names = self._state.settings.server.users
        wanted, given = (names.get(each, each) for each in (self._only_user, self._user_name))
        if given == wanted:
            return True
        limit = self._state.settings.server.store_timeout_seconds
        find = self._chats.find_user
        found = [
            await stages.run("user", in_thread(find, name), limit, or_else=None)
            for name in (wanted, given)
        ]
        return None not in found and len({user.person_id for user in found if user}) == 1

    async def _find_user(self, stages: Stages, host_user: str) -> User | None:
        settings = self._state.settings.server
        name, limit = settings.users.get(host_user, host_user), settings.store_timeout_seconds
        user = await stages.run("user", in_thread(self._chats.find_user, name), limit, or_else=None)
        if user is None and settings.create_users and self._caller.user_id is None:
            user = await stages.run(
                "user", in_thread(self._chats.add_user, name), limit, or_else=None
            )
        return user

    # -- storage -------------------------------------------------------------------------------

    @property
    def expects_answer(self) -> bool:
        """Return whether the answer is to be stored, as far as is known."""
        return self._turn is None or bool(self._turn.asked)

    async def store_answer(self, answer: Answer) -> None:
        """Store the answer, after the chat.

        Raises:
            Exception: see `store`.
        """
        self._answer = msgspec.structs.replace(answer, at=utc_now())
        await self.store()

    async def store(self) -> None:
        """Store the known parts of the chat, or add it to the chats that wait for the store.

        Raises:
            Exception: the store failed; the chat waits.
        """
        async with self._writing:
            if self._turn is None:
                self._retries.add(self)
                return
            try:
                if self._is_behind and not self._is_turn_stored:
                    raise StoreUnreachable("earlier messages of the chat wait for the store")
                await self._write(self._turn)
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
            name = self._user_name  # before a look-up creates the user again
            await self._check_remembered(name, self._state.settings.server.users.get(name, name))
            turn = self._turn
            if not self._is_turn_stored:
                stages = Unlimited(self._background, self._state.metrics)
                turn = await self._find(stages, missed_at=self._begun)
            if turn is None or self.asked is None:
                raise NotFoundError("the user was removed meanwhile")
            user_id = self.asked.user.id if self.asked.user else ""
            await self._check_remembered(turn.session.id, self.asked.agent.id, user_id)
            await self._write(turn)

    async def _check_remembered(self, *names: str) -> None:
        """Check that no agent, user or session of these names was forgotten meanwhile.

        Raises:
            NotFoundError: one was.
        """
        if await in_thread(self._chats.is_forgotten, names, self._begun):
            raise NotFoundError("the agent, user or session was forgotten meanwhile")

    async def _write(self, turn: ChatTurn) -> None:
        """Write the turn, and the answer if there is one; each is written once."""
        if not self._is_turn_stored:
            await in_thread(self._chats.store_turn, turn)
            self._turn, self._is_turn_stored = msgspec.structs.replace(turn, messages=()), True
            self._retries.stored += 1
            if turn.messages and self.asked is not None:
                agent_id = self.asked.agent.id
                self._background.form_later(turn.session.id, agent_id, is_answered=False)
        if self._answer is not None and turn.asked and self.asked is not None:
            await in_thread(self._chats.store_answer, turn, self._answer)
            self._answer = None
            self._background.form_later(turn.session.id, self.asked.agent.id)


def header(request: Request, name: str) -> str:
    """Return a header of edenmem, or ""."""
    return request.headers.get(f"x-edenmem-{name}", "").strip()[:200]


def _is_user_late(stages: Stages) -> bool:
    """Return whether the user look-up was late or failed."""
    return "user" in stages.left_out


def _without_user(stages: Stages) -> tuple[None, None, str]:
    """Leave memory out: the chat must not be stored in a session without its user."""
    stages.skip("session", "the user was not found, so nothing is stored yet")
    return None, None, ""
