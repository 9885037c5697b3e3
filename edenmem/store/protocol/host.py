"""Protocols for the platform's data, cached contexts, and access tokens of the server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

if TYPE_CHECKING:
    from edenmem.models.access import AccessToken, DailyUse
    from edenmem.models.backup import StoredUser
    from edenmem.models.forgetting import Passage
    from edenmem.models.host import Agent, CachedContext, Message, Session, User
    from edenmem.models.integrity import Finding
    from edenmem.models.records import AuditEntry
    from edenmem.models.told import Note


ReferenceKind = Literal["agent", "user", "session", "fact", "reflection", "formation"]


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate for a typed name or prefix; ``label`` is its readable name."""

    id: str
    label: str


class Host(Protocol):
    """The platform's data: agents, accounts, sessions and messages."""

    def refusal(self, record: msgspec.Struct) -> str:
        """Return why the store cannot hold a record of a backup; empty if it can.

        On MongoDB, agents and sessions need an owner, and documents have a maximum size.
        """

    def agents(self) -> Iterator[Agent]:
        """Yield all agents that are not deleted, by username."""

    def agent(self, agent_id: str) -> Agent | None:
        """Return the agent with this ID, unless it is deleted."""

    def find_agent_ids(self) -> list[str]:
        """List the IDs of all agents that the host knows or that have stored data."""

    def add_agent(self, agent: Agent) -> bool:
        """Insert an agent; return False if the ID or the username is taken."""

    def users(self) -> Iterator[User]:
        """Yield all users that are not deleted, by username."""

    def user(self, user_id: str) -> User | None:
        """Return the account with this ID, unless it is deleted."""

    def users_named(self, username: str) -> list[User]:
        """Return the accounts with exactly this username that are not deleted, by ID."""

    def users_by_ids(self, user_ids: Sequence[str]) -> dict[str, User]:
        """Return the existing accounts among these IDs, deleted ones included."""

    def accounts_of(self, person_id: str) -> list[StoredUser]:
        """Return the account with this ID and those linked to it by ``eden_user_id``, by ID.

        Deleted accounts are included. The account with this ID may itself be linked to another.
        """

    def add_user(self, user: User) -> bool:
        """Insert a user; return False if the ID or the username is taken."""

    def sessions(
        self,
        *,
        agent_id: str | None = None,
        user_id: str | None = None,
        group_id: str | None = None,
        limit: int | None = None,
    ) -> Iterator[Session]:
        """Yield sessions that match all filters and are not deleted, latest activity first."""

    def session(self, session_id: str) -> Session | None:
        """Return the session with this ID, unless it is deleted."""

    def sessions_by_ids(self, session_ids: Sequence[str]) -> dict[str, Session]:
        """Return the sessions with these IDs that are not deleted."""

    def sessions_of(
        self, *, accounts: Sequence[str] = (), agent_id: str | None = None, group_id: str = ""
    ) -> Iterator[Session]:
        """Yield the sessions of any of these accounts, of this agent or of this group, each once.

        Deleted sessions are included, and sessions in which an account wrote.
        """

    def people_of(self, session_ids: Sequence[str]) -> dict[str, frozenset[str]]:
        """Map each existing session to the canonical IDs of its users; deleted ones included."""

    def put_session(self, session: Session) -> bool:
        """Insert a session, or add agents and users to the existing one; return True if it is new.

        Removes nothing and leaves unrelated fields alone. An ``imported`` session is marked as
        imported, and if it was active it gets the new status.
        """

    def add_messages(
        self, session_id: str, messages: Sequence[Message], *, note: Note | None = None
    ) -> int:
        """Insert messages with new IDs, atomically where the store can; return how many were new.

        Also moves the session's last activity forward. With messages, ``note`` is stored at the
        same time, without another round trip.
        """

    def put_message(self, message: Message) -> None:
        """Insert a message into an existing session, or overwrite its content.

        An existing message is changed only if it belongs to the session; its time and position
        stay. Also moves the session's last activity forward.
        """

    def messages(
        self, session_id: str, *, newest: int | None = None, ids: Sequence[str] | None = None
    ) -> Iterator[Message]:
        """Yield messages of a session by (``createdAt``, ``id``).

        All of them, the ``newest``, or those with the given ``ids``.
        """

    def messages_by_ids(self, message_ids: Sequence[str]) -> list[Message]:
        """Return the stored messages with these IDs, from any session, in order.

        A message in several sessions is assigned to the first.
        """

    def senders(self, session_id: str) -> tuple[str, ...]:
        """Return the accounts that wrote in the session as a person, by ID.

        Messages have role ``user`` and are not triggers of the platform. Served from an index.
        """

    def find_message_ids(
        self, accounts: Sequence[str], session_ids: Sequence[str]
    ) -> Iterator[str]:
        """Yield the IDs of the messages that the accounts wrote in these sessions."""

    def display_names(self, accounts: Sequence[str], session_ids: Sequence[str]) -> list[str]:
        """Return the display names of the accounts in messages of these sessions."""

    def find(self, kind: ReferenceKind, text: str, *, limit: int = 20) -> Sequence[Reference]:
        """Find matches for an ID, username or session name.

        An exact match is returned alone; otherwise up to ``limit`` matches by ID prefix (at least 4
        hex digits). Names match exactly before they match without regard to case. Sessions also
        match by title.
        """

    def find_by_prefix(self, kind: ReferenceKind, text: str, *, limit: int) -> Sequence[Reference]:
        """Find matches by name prefix, ordered by name, then by ID prefix, newest first.

        For completion while typing: reads only indexes. Names match without regard to case where
        the store's index can do so.
        """

    def find_lost_progress(
        self, *, agent_id: str | None = None, since: datetime | None = None
    ) -> Iterator[Finding]:
        """Yield sessions in which the platform reset progress behind formed or forgotten messages.

        This happens when the platform writes back an older copy of a session. `advance_cursor`
        repairs it. ``since`` limits the search to sessions active since then.
        """


class Contexts(Protocol):
    """Contexts that are cached with their sessions."""

    def find_context(self, session_id: str, agent_id: str) -> CachedContext | None:
        """Return the context last built for this session and agent."""

    def cache_context(
        self, session_id: str, agent_id: str, context: CachedContext, *, shared: bool = True
    ) -> None:
        """Cache a context for `find_context`.

        ``shared``: the context may be served to any account of the session. Only a shared context
        of a session with one agent goes into the platform's own fields, because the platform serves
        these to the next account for the next agent.
        """

    def cached_texts(self) -> Iterator[Passage]:
        """Yield every cached context as text, in pages without a cursor in between."""


class Tokens(Protocol):
    """Access tokens of the server. Only digests of secrets are stored."""

    def add(self, token: AccessToken, entry: AuditEntry) -> bool:
        """Store a new token and its audit entry; return False if the name is taken."""

    def tokens(self) -> list[AccessToken]:
        """Return all tokens, ordered by name."""

    def token(self, token_id: str) -> AccessToken | None:
        """Return the token with this ID."""

    def move(
        self, before: AccessToken, after: AccessToken, entry: AuditEntry | None = None
    ) -> bool:
        """Write what differs between two states of a token, with an audit entry, in one change.

        Returns:
            Whether the token still had the digest of ``before``.
        """

    def remove(self, token_id: str, entry: AuditEntry) -> bool:
        """Remove a token, so that its name may be used again; return whether there was one."""

    def add_use(self, holder: str, day: str, use: DailyUse) -> None:
        """Add to the usage of ``holder`` on a day (ISO 8601).

        Counts older than the previous day are dropped.
        """

    def daily_use(self, holder: str, day: str) -> DailyUse:
        """Return the usage of ``holder`` on a day (ISO 8601)."""
