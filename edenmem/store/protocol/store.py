"""What a store does, in the words of the domain.

Two stores implement it (`edenmem.store.sqlite.SqliteStore`, `edenmem.store.mongo.MongoStore`) and
one contract suite holds both to it. All methods block; the engine's async parts call them from
threads, so a store is safe to share between threads. Scopes in arguments are exact: nothing
outside them is read or written. Every list has a defined order. Iterators stream in batches.

Any method may raise `StoreError` if the database cannot be used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Literal, Protocol

import msgspec

from edenmem.models.changes import ChangeResult, ChangeSet, HistoryEntry
from edenmem.models.formation import (
    UsageEntry,
    UsageTotal,
)
from edenmem.models.host import Agent, CachedContext, Message, Session, User
from edenmem.models.memory import Consolidation, Fact, Policy, Reflection, ScopeSummary
from edenmem.models.scope import Scope, ScopeKind
from edenmem.models.search import Candidate, FactFilter, SearchAbility
from edenmem.store.protocol.audit import AuditKey as AuditKey
from edenmem.store.protocol.audit import Audits
from edenmem.store.protocol.backup import Backups
from edenmem.store.protocol.erasure import Erasing
from edenmem.store.protocol.formations import Backlog as Backlog
from edenmem.store.protocol.formations import Formations
from edenmem.store.protocol.indexes import Indexes
from edenmem.store.protocol.indexes import SearchTrial as SearchTrial
from edenmem.store.protocol.integrity import Integrity
from edenmem.store.protocol.migration import Migrations
from edenmem.store.protocol.planning import Planning
from edenmem.store.protocol.statistics import Statistics
from edenmem.store.protocol.vectors import ModelSwitches, Vectors
from edenmem.store.protocol.vectors import VectorCount as VectorCount

ReferenceKind = Literal["agent", "user", "session", "fact", "reflection", "formation"]


class StoreInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What ``status`` tells of a store. ``location`` has no secrets in it; ``counts`` has the same
    keys on every store, and counts what is marked as deleted too. ``write_obstacle`` says why
    nothing can be written, if so."""

    kind: Literal["sqlite", "mongodb"]
    location: str
    initialised: bool
    schema_version: str = ""
    server_version: str = ""
    size_bytes: int | None = None
    counts: dict[str, int] = msgspec.field(default_factory=dict)
    write_obstacle: str = ""


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """A thing that a typed name or prefix may mean; ``label`` is what a person knows it by."""

    id: str
    label: str


class QuietSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session that the cold run has to look at. ``seen`` stands for what was in it before it was
    handed out, and goes back to `Store.settle`."""

    session: Session
    seen: str


class Store(
    Audits,
    Erasing,
    Formations,
    Indexes,
    Integrity,
    Migrations,
    Planning,
    Backups,
    Statistics,
    ModelSwitches,
    Vectors,
    Protocol,
):
    """Memory in a database."""

    # -- the database itself -----------------------------------------------------------------

    def info(self) -> StoreInfo:
        """Where and what the store is, and how many documents of each kind it has."""

    def initialise(self) -> Sequence[str]:
        """Make tables or collections and ordinary indexes that are missing; say what was made.

        Safe to call again. SQLite files are made with mode 0600.
        """

    def close(self) -> None:
        """Let go of files and sockets."""

    # -- what the platform owns --------------------------------------------------------------

    def refusal(self, record: msgspec.Struct) -> str:
        """Why the store cannot have an agent, a session, a message or another record of a backup;
        empty if it can. On MongoDB agents and sessions need an owner, and a document has a limit.
        """

    def agents(self) -> Iterator[Agent]:
        """All agents that are not deleted, by username."""

    def agent(self, agent_id: str) -> Agent | None:
        """The agent with this id, unless it is deleted."""

    def add_agent(self, agent: Agent) -> bool:
        """Insert; False if the id or the username is taken."""

    def users(self) -> Iterator[User]:
        """All people that are not deleted, by username."""

    def user(self, user_id: str) -> User | None:
        """The account with this id, unless it is deleted."""

    def users_by_ids(self, user_ids: Sequence[str]) -> dict[str, User]:
        """The accounts among these ids that exist, also deleted ones (names in old sessions)."""

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

    def messages(
        self, session_id: str, *, newest: int | None = None, ids: Sequence[str] | None = None
    ) -> Iterator[Message]:
        """A session's messages in order (``createdAt``, ``id``): all, the ``newest``, or those."""

    def senders(self, session_id: str) -> tuple[str, ...]:
        """The accounts that ever wrote in the session as a person (role ``user``, not a trigger of
        the platform), each once, by id; from an index, however long the session is."""

    def find(self, kind: ReferenceKind, text: str, *, limit: int = 20) -> Sequence[Reference]:
        """What ``text`` may mean: an exact id or username or session name alone if there is one,
        else everything whose id begins with it (from 4 hex digits on), up to ``limit``.

        Matching of names ignores case if no exact one exists. A session is also found by title.
        """

    def beginning_with(self, kind: ReferenceKind, text: str, *, limit: int) -> Sequence[Reference]:
        """The things whose name begins with ``text``, in whatever case where the store can ask
        that of an index, by name; after them those whose id does, newest first. For completion
        while somebody types: from indexes alone, at most ``limit``."""

    # -- reading memory ----------------------------------------------------------------------

    def facts(
        self,
        filter: FactFilter,
        *,
        limit: int | None = None,
        with_vectors: bool = False,
    ) -> Iterator[Fact]:
        """Facts, most recently made or corrected first, then by id."""

    def recent_facts(self, scopes: Sequence[Scope], *, since: datetime, limit: int) -> list[Fact]:
        """The newest facts made or corrected at or after ``since``, newest first."""

    def fact(self, fact_id: str, *, with_vector: bool = False) -> Fact | None:
        """One fact by its id, for an operator; whoever acts for a reader checks its ``home``."""

    def facts_by_ids(
        self, scopes: Sequence[Scope], fact_ids: Sequence[str], *, with_vectors: bool = False
    ) -> dict[str, Fact]:
        """Those of the ids that are in one of the scopes."""

    def facts_by_hashes(self, scope: Scope, hashes: Sequence[str]) -> dict[str, Fact]:
        """The scope's facts with these content hashes, keyed by hash."""

    def reflections(
        self,
        scopes: Sequence[Scope],
        *,
        absorbed: bool | None = None,
        limit: int | None = None,
        before: datetime | None = None,
    ) -> Iterator[Reflection]:
        """Reflections, newest first, formed before ``before``. ``absorbed`` None: both."""

    def reflection(self, reflection_id: str) -> Reflection | None:
        """One reflection by its id."""

    def pending(self, scope: Scope) -> list[Reflection]:
        """All reflections in the scope's buffer, oldest first, however many."""

    def consolidations(self, scopes: Sequence[Scope]) -> dict[Scope, Consolidation]:
        """The texts and buffers of those scopes that have one, in one round trip."""

    def policies(self, scopes: Sequence[Scope]) -> dict[Scope, Policy]:
        """The policies of those scopes that have one, in one round trip."""

    def shards(self, agent_id: str) -> list[Policy]:
        """The policies of the agent's shards, by name."""

    def scopes(
        self,
        *,
        agent_id: str | None = None,
        kinds: Sequence[ScopeKind] = (),
        user_ids: Sequence[str] | None = None,
        min_pending: int = 0,
    ) -> Iterator[ScopeSummary]:
        """Every scope that has a fact, a reflection, a text or a policy; by agent, kind, owner.
        ``user_ids``: user scopes of these accounts only; an empty list finds nothing."""

    def history(
        self, target_type: str, target_id: str, *, scope: Scope | None = None
    ) -> list[HistoryEntry]:
        """All versions, oldest first, the current one included while the target exists.

        For a consolidated text give its scope; ``target_id`` may then be empty.
        """

    def consolidation_at(self, scope: Scope, moment: datetime) -> HistoryEntry | None:
        """The version of the scope's text that was current at ``moment``."""

    def facts_at(self, scopes: Sequence[Scope], moment: datetime, *, limit: int) -> list[Fact]:
        """The facts as they were at ``moment``, newest first: later ones left out, later edits
        and deletions taken back from history."""

    def pending_at(self, scope: Scope, moment: datetime) -> list[Reflection]:
        """The reflections that were in the buffer at ``moment``, oldest first."""

    # -- changing memory ---------------------------------------------------------------------

    def apply(self, changes: ChangeSet) -> list[ChangeResult]:
        """Apply each change, in order; see `edenmem.models.changes` for what each one means.

        On SQLite the whole set is one transaction. On MongoDB a set that is too large for one is
        several, and one that was interrupted is completed by applying it again. In both cases a
        change that was applied before is answered with ALREADY.
        """

    def track_access(self, fact_ids: Sequence[str], at: datetime) -> None:
        """Count an access to each fact."""

    # -- propagation -------------------------------------------------------------------------

    def find_unpropagated(self, *, agent_id: str | None = None) -> list[Scope]:
        """Scopes with a version that is still to be propagated; by agent, kind, owner."""

    def settle_propagation(self, scope: Scope, version: int) -> None:
        """Note that nothing is left to be propagated of this version. Idempotent."""

    # -- what models cost --------------------------------------------------------------------

    def add_usage(self, entry: UsageEntry) -> None:
        """Keep what work outside of formations cost; an id that is there already is left alone."""

    def usage(
        self, *, agent_id: str | None = None, since: datetime | None = None
    ) -> list[UsageTotal]:
        """The calls of formations that began, and of other work that ended, at or after
        ``since``, added up for each model, by its name; failed tries included."""

    # -- cold sessions -----------------------------------------------------------------------

    def quiet_sessions(self, *, before: datetime, rules: str | None) -> Iterator[QuietSession]:
        """Sessions with no message at or after ``before``, longest quiet first, all of them:
        neither deleted nor incognito, and not settled under the same ``rules``.

        A million settled sessions cost next to nothing. ``rules`` None: all quiet sessions,
        settled or not, and nothing is written. They come in pages, without a cursor or snapshot
        between them, so that one may work on each for as long as it takes; whoever does looks
        again at what is in it.
        """

    def settle(self, session_id: str, *, seen: str, rules: str) -> bool:
        """Note that the session was looked at by these rules and has nothing to do: no agent has
        enough unprocessed messages, and no formation is unfinished.

        The note is refused (False) if the session is not any more as it was ``seen``, and it
        falls with the next message (a late one with an old time included), agent or formation
        of the session, a retry included. Where others write the messages, as on MongoDB, that is
        noticed by their number and the newest one's id; and each session is looked at again from
        time to time, whatever is noted of it.
        """

    # -- the cached context ------------------------------------------------------------------

    def revisions(self, scopes: Sequence[Scope]) -> dict[Scope, int]:
        """A number for each scope that grows with every change that edenmem makes in it."""

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

    # -- candidates for search ---------------------------------------------------------------

    def search_ability(self) -> SearchAbility:
        """How this store searches."""

    def semantic_candidates(
        self,
        filter: FactFilter,
        vectors: Sequence[bytes],
        *,
        model: str,
        limit: int,
        exact: bool = False,
        floor: float = 0.0,
        prepared: bool = False,
    ) -> list[list[Candidate]]:
        """For each vector the nearest facts with vectors of ``model``, best first, at most
        ``limit``, none with a score under ``floor``; the filter holds before the limit. Equal
        scores are ordered by id.
        ``prepared``: also of a model that a switch is being prepared to.

        Raises:
            EmbeddingModelMismatch: the filter's facts have vectors, but none of this model; or
                a switch is under way and the model is not in force yet, or no longer.
        """

    def text_candidates(
        self, filter: FactFilter, queries: Sequence[str], *, limit: int
    ) -> list[list[Candidate]]:
        """For each query the facts that match any of its words, best first, at most ``limit``.
        A query is words, never syntax of the search engine."""


def batched(rows: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """Lists of up to ``size`` of the rows, in order."""
    batch: list[Any] = []
    for row in rows:
        batch.append(row)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch
