"""What the platform owns, and the contexts that are cached beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, Protocol

import msgspec

from edenmem.models.backup import StoredUser
from edenmem.models.forgetting import Passage
from edenmem.models.host import Agent, CachedContext, Message, Session, User
from edenmem.models.integrity import Finding

ReferenceKind = Literal["agent", "user", "session", "fact", "reflection", "formation"]


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """A thing that a typed name or prefix may mean; ``label`` is what a person knows it by."""

    id: str
    label: str


class Host(Protocol):
    """What the platform owns: agents, accounts, sessions and messages."""

    def refusal(self, record: msgspec.Struct) -> str:
        """Why the store cannot have an agent, a session, a message or another record of a backup;
        empty if it can. On MongoDB agents and sessions need an owner, and a document has a limit.
        """

    def agents(self) -> Iterator[Agent]:
        """All agents that are not deleted, by username."""

    def agent(self, agent_id: str) -> Agent | None:
        """The agent with this id, unless it is deleted."""

    def find_agent_ids(self) -> list[str]:
        """The ids of all agents that the host knows, or of which anything is stored."""

    def add_agent(self, agent: Agent) -> bool:
        """Insert; False if the id or the username is taken."""

    def users(self) -> Iterator[User]:
        """All people that are not deleted, by username."""

    def user(self, user_id: str) -> User | None:
        """The account with this id, unless it is deleted."""

    def users_named(self, username: str) -> list[User]:
        """The accounts with exactly this username that are not deleted, by id."""

    def users_by_ids(self, user_ids: Sequence[str]) -> dict[str, User]:
        """The accounts among these ids that exist, also deleted ones (names in old sessions)."""

    def accounts_of(self, person_id: str) -> list[StoredUser]:
        """The account with this id and all whose ``eden_user_id`` it is, by id; deleted ones too.

        The account with this id may itself be linked to another one.
        """

    def add_user(self, user: User) -> bool:
        """Insert; False if the id or the username is taken."""

    def sessions(
        self,
        *,
        agent_id: str | None = None,
        user_id: str | None = None,
        group_id: str | None = None,
        limit: int | None = None,
    ) -> Iterator[Session]:
        """Sessions that are not deleted, latest activity first, of all who are named."""

    def session(self, session_id: str) -> Session | None:
        """The session with this id, unless it is deleted."""

    def sessions_of(
        self, *, accounts: Sequence[str] = (), agent_id: str | None = None, group_id: str = ""
    ) -> Iterator[Session]:
        """The sessions of any of these accounts, of this agent or of this group, deleted ones too,
        each once. Those in which an account wrote are its sessions too."""

    def people_of(self, session_ids: Sequence[str]) -> dict[str, frozenset[str]]:
        """Session → the canonical ids of its people; deleted sessions too, those that are not
        there left out."""

    def put_session(self, session: Session) -> bool:
        """Insert a session, or add agents and users to the one with this id; True if it is new.

        Never takes anything away and never touches fields it is not about. An ``imported`` session
        is marked as one if it was not, and if it was active it gets the status given here.
        """

    def set_session_status(self, session_id: str, status: str) -> None:
        """Write the session's status."""

    def add_messages(self, session_id: str, messages: Sequence[Message]) -> int:
        """Insert those whose ids are new, in one step if the store can; how many were new.

        Also moves the session's last activity forward.
        """

    def put_message(self, message: Message) -> None:
        """Insert a message of a session that is there, or let the stored one with its id, if it is
        of this session, say what this one says; its time and place stay.

        Also moves the session's last activity forward.
        """

    def messages(
        self, session_id: str, *, newest: int | None = None, ids: Sequence[str] | None = None
    ) -> Iterator[Message]:
        """A session's messages in order (``createdAt``, ``id``): all, the ``newest``, or those."""

    def messages_by_ids(self, message_ids: Sequence[str]) -> list[Message]:
        """Those of these messages that are stored, of whatever session, in order. One that is in
        several sessions is of the first."""

    def senders(self, session_id: str) -> tuple[str, ...]:
        """The accounts that ever wrote in the session as a person (role ``user``, not a trigger of
        the platform), each once, by id; from an index, however long the session is."""

    def authors(self, message_ids: Sequence[str]) -> dict[str, str]:
        """Who wrote each of these messages; empty for one that no person wrote. Messages that are
        not stored are left out."""

    def find_message_ids(
        self, accounts: Sequence[str], session_ids: Sequence[str]
    ) -> Iterator[str]:
        """The ids of the messages that the accounts wrote in these sessions."""

    def display_names(self, accounts: Sequence[str], session_ids: Sequence[str]) -> list[str]:
        """The names under which the accounts appear in messages of these sessions."""

    def find(self, kind: ReferenceKind, text: str, *, limit: int = 20) -> Sequence[Reference]:
        """What ``text`` may mean: an exact id or username or session name alone if there is one,
        else everything whose id begins with it (from 4 hex digits on), up to ``limit``.

        Matching of names ignores case if no exact one exists. A session is also found by title.
        """

    def find_by_prefix(self, kind: ReferenceKind, text: str, *, limit: int) -> Sequence[Reference]:
        """The things whose name begins with ``text``, in whatever case where the store can ask
        that of an index, by name; after them those whose id does, newest first. For completion
        while somebody types: from indexes alone, at most ``limit``."""

    def find_lost_progress(self, *, agent_id: str | None = None) -> Iterator[Finding]:
        """Sessions in which the platform's progress is before messages that were formed for its
        first agent, or forgotten: the platform wrote an older copy of the session back."""


class Contexts(Protocol):
    """Contexts that are cached with their sessions."""

    def find_context(self, session_id: str, agent_id: str) -> CachedContext | None:
        """The context last built for this session and agent."""

    def cache_context(
        self, session_id: str, agent_id: str, context: CachedContext, *, shared: bool = True
    ) -> None:
        """Cache a context for `find_context`.

        ``shared``: any account of the session may be served it. Only such a context, and only of
        a session with one agent, goes into the platform's own fields, which the platform serves
        to the next account for the next agent.
        """

    def cached_texts(self) -> Iterator[Passage]:
        """Every cached context as a text, in pages without a cursor between them."""

    def stray_contexts(self) -> Iterator[Finding]:
        """Cached contexts of sessions that are gone, or of agents (``related``) not in them."""

    def drop_contexts(self, pairs: Sequence[tuple[str, str]]) -> int:
        """Drop cached contexts of (session, agent); how many."""
