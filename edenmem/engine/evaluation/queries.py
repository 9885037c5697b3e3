"""Labeled queries: the operator's file, and the facts that its labels name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from edenmem.engine.scopes.references import Resolver
from edenmem.engine.scopes.visibility import reader_scopes
from edenmem.engine.sessions.format import read_lines
from edenmem.errors import AmbiguousReference, InputError, NotFoundError
from edenmem.invalid import EMPTY, explain_json, explain_value
from edenmem.models.host import Agent
from edenmem.models.ids import is_id
from edenmem.models.memory import content_hash
from edenmem.models.scope import Scope
from edenmem.store.protocol.store import Store
from edenmem.text import clean, one_line

_EXAMPLE = (
    'a line is such as {"query": "when does the walk start", "agent": "mira", "user": "lena",'
    ' "relevant": ["The walk starts at 17:30."]}'
)


class _Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line of the file."""

    query: str
    agent: str
    relevant: tuple[str, ...]
    user: str | None = None
    group: str | None = None
    shard: str | None = None
    kind: str = ""


class LabeledQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A query, its searched scopes, and the IDs of the facts that answer it.

    ``relevant`` is empty for a query without an answer. ``line`` is the line in the file, ``kind``
    an optional group for the results.
    """

    line: int
    query: str
    scopes: tuple[Scope, ...]
    relevant: frozenset[str]
    kind: str = ""


class UnknownLabel(msgspec.Struct, frozen=True, kw_only=True):
    """A label without a fact that the query's reader may see."""

    line: int
    label: str
    why: str


class LabeledSet(msgspec.Struct, frozen=True, kw_only=True):
    """The queries of a file, and the labels that are unknown.

    Unknown labels are left out of their queries. A query with unknown labels only (``lost``, by
    line) is left out of the set: it is not a query without an answer.
    """

    queries: tuple[LabeledQuery, ...]
    unknown: tuple[UnknownLabel, ...] = ()
    lost: tuple[int, ...] = ()

    @property
    def unanswerable(self) -> int:
        """Return the number of queries labeled as having no answer."""
        return sum(not query.relevant for query in self.queries)


def read_queries(store: Store, lines: Iterable[bytes | str]) -> LabeledSet:
    """Read the queries of a JSON Lines file.

    Each line has ``query``, ``agent`` and ``relevant``: full IDs of facts, or their exact texts.
    Optional are ``user``, ``group`` and ``shard``, as the options of a search, and ``kind``. A text
    means all visible facts with that text.

    Raises:
        InputError: a line is invalid or names an unknown agent, user or shard; or the file is
            empty.
    """
    labels = _Labels(store)
    for number, data in read_lines(lines):
        labels.take(number, _row(number, data))
    return labels.finish()


def _row(number: int, data: bytes) -> _Row:
    try:
        row = msgspec.json.decode(data, type=_Row)
    except msgspec.ValidationError as error:
        raise InputError(explain_value(error), line=number, hint=_EXAMPLE) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(explain_json(data), line=number, hint=_EXAMPLE) from error
    if not clean(row.query).strip():
        raise InputError(f"query {EMPTY}", line=number, hint=_EXAMPLE)
    return row


class _Labels:
    """Turns rows into queries, and looks up each name once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._resolver = Resolver(store)
        self._agents: dict[str, Agent] = {}
        self._scopes: dict[tuple[str, ...], tuple[Scope, ...]] = {}
        self._queries: list[LabeledQuery] = []
        self._unknown: list[UnknownLabel] = []
        self._lost: list[int] = []

    def take(self, number: int, row: _Row) -> None:
        """Add a row, or note its unknown labels."""
        try:
            scopes = self._readable(row)
        except (NotFoundError, AmbiguousReference) as error:
            raise InputError(error.message, line=number, hint=error.hint) from error
        relevant: set[str] = set()
        for label in row.relevant:
            found = self._find_facts(label, scopes)
            if found:
                relevant.update(found)
            else:
                why = self._why_not(label)
                self._unknown.append(UnknownLabel(line=number, label=label, why=why))
        if row.relevant and not relevant:
            self._lost.append(number)
            return
        self._queries.append(
            LabeledQuery(
                line=number,
                query=clean(row.query).strip(),
                scopes=scopes,
                relevant=frozenset(relevant),
                kind=row.kind,
            )
        )

    def finish(self) -> LabeledSet:
        """Return the set of queries.

        Raises:
            InputError: there are no queries.
        """
        if not self._queries and not self._lost:
            raise InputError("no queries in the file", hint=_EXAMPLE)
        return LabeledSet(
            queries=tuple(self._queries), unknown=tuple(self._unknown), lost=tuple(self._lost)
        )

    def _readable(self, row: _Row) -> tuple[Scope, ...]:
        key = (row.agent, row.user or "", row.group or "", row.shard or "")
        if key not in self._scopes:
            if row.agent not in self._agents:
                self._agents[row.agent] = self._resolver.agent(row.agent)
            agent = self._agents[row.agent]
            self._scopes[key] = reader_scopes(
                self._store,
                agent,
                user_id=self._resolver.user_id(row.user, agent_id=agent.id) if row.user else None,
                group_id=self._resolver.group(agent, row.group) if row.group else None,
                shards=[self._resolver.shard(agent, row.shard)] if row.shard else None,
                kinds=None,
            )
        return self._scopes[key]

    def _find_facts(self, label: str, scopes: Sequence[Scope]) -> set[str]:
        """Return the visible facts with this ID or text."""
        if is_id(label.lower()):
            return set(self._store.memory.facts_by_ids(scopes, [label.lower()]))
        digest = content_hash(clean(label).strip())
        found = (self._store.memory.facts_by_hashes(scope, [digest]) for scope in scopes)
        return {fact.id for facts in found for fact in facts.values()}

    def _why_not(self, label: str) -> str:
        if not is_id(label.lower()):
            return f"no searched fact has the text: {one_line(label, 60)!r}"
        if self._store.memory.fact(label.lower()) is None:
            return f"unknown fact: {label}"
        return f"fact is outside the scopes of this line: {label}"
