"""Indexes: making, comparing, changing and dropping them, and waiting until they answer.

What an index should be comes from the store's own definitions and from the configured embedding
model and analyzer; nothing is changed here that was not asked for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from edenmem.embed.protocol import Embedder
from edenmem.engine.runtime.runtime import Runtime
from edenmem.errors import (
    ConfigError,
    ConflictError,
    NotFoundError,
    StoreError,
    StoreUnreachable,
)
from edenmem.models.indexes import IndexState, IndexWish

#: Seconds between looks: short at first, for small indexes, then longer.
_FIRST, _LONGEST, _GROWTH = 0.2, 5.0, 1.5

Clock = Callable[[], float]
Sleep = Callable[[float], None]


def poll(
    done: Callable[[], bool],
    *,
    timeout: float,
    clock: Clock = time.monotonic,
    sleep: Sleep = time.sleep,
) -> bool:
    """Look until ``done``, for ``timeout`` seconds; whether it was. It is looked once at least."""
    deadline = clock() + timeout
    pause = _FIRST
    while not done():
        left = deadline - clock()
        if left <= 0:
            return False
        sleep(min(pause, left))
        pause = min(pause * _GROWTH, _LONGEST)
    return True


def wait_for_indexes(
    look: Callable[[], Sequence[IndexState]],
    *,
    timeout: float,
    tell: Callable[[Sequence[IndexState]], None] = lambda states: None,
    clock: Clock = time.monotonic,
    sleep: Sleep = time.sleep,
) -> Sequence[IndexState]:
    """Look until none is building any more, or the time is over; how they were at the last look.

    An index that failed, or turned out otherwise than wanted, is waited for no longer.
    """
    seen: Sequence[IndexState] = ()

    def is_settled() -> bool:
        nonlocal seen
        seen = look()
        tell(seen)
        return all(state.status != "building" for state in seen)

    poll(is_settled, timeout=timeout, clock=clock, sleep=sleep)
    return seen


#: Words that stand for several indexes.
_GROUPS = {
    "ordinary": ("ordinary",),
    "vector": ("vector",),
    "text": ("text",),
    "search": ("vector", "text"),
    "all": ("ordinary", "vector", "text"),
}


class IndexAction(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one index: "made", "there", "different" and "to_replace" (left as it is),
    "left_out" (it cannot be had), "updated", "dropped", "replaced", or with ``dry_run``
    "would_…". ``state`` is how the index is afterwards."""

    name: str
    outcome: str
    state: IndexState
    note: str = ""


class IndexKeeper:
    """The indexes of one store."""

    def __init__(
        self, runtime: Runtime, *, clock: Clock = time.monotonic, sleep: Sleep = time.sleep
    ) -> None:
        self._store = runtime.store
        self.conflicts = runtime.store.indexes.platform_conflicts
        self._clock = clock
        self._sleep = sleep
        self.notices: list[str] = []
        self.wish = IndexWish(
            dimensions=self._dimensions(runtime.embedder), analyzer=runtime.settings.search.analyzer
        )

    def _dimensions(self, embedder: Embedder | None) -> int | None:
        if embedder is None:
            return None
        try:
            return embedder.dimensions
        except ConfigError as error:
            hint = f"; {error.hint}" if error.hint else ""
            self.notices.append(f"the vector index is skipped: {error.message}{hint}")
            return None

    # -- looking -----------------------------------------------------------------------------

    @property
    def follow_later(self) -> bool:
        """Whether search finds a fact only some time after it was written."""
        return self._store.search.search_ability().kind == "atlas"

    def await_fact(self, fact_id: str, *, timeout: float) -> bool:
        """Wait until search finds a fact, for ``timeout`` seconds; whether it does."""
        return poll(
            lambda: self._store.search.is_searchable(fact_id),
            timeout=timeout,
            clock=self._clock,
            sleep=self._sleep,
        )

    def states(self, named: Sequence[str] = ()) -> list[IndexState]:
        """How indexes are: all, or those that are named, by name or by kind ("search": vector and
        text).

        Raises:
            NotFoundError: there is none of a name.
        """
        every = self._store.indexes.list_indexes(self.wish)
        if not named:
            return every
        wanted: set[str] = set()
        for word in named:
            found = [s.name for s in every if s.name == word or s.kind in _GROUPS.get(word, ())]
            if not found:
                raise NotFoundError(
                    f"there is no index {word!r}",
                    hint=f"it is a name that 'edenmem index list' shows, or {', '.join(_GROUPS)}",
                )
            wanted.update(found)
        return [state for state in every if state.name in wanted]

    def wait(
        self,
        names: Sequence[str],
        *,
        timeout: float,
        tell: Callable[[Sequence[IndexState]], None] = lambda states: None,
    ) -> Sequence[IndexState]:
        """Look until none of these is building, or for ``timeout`` seconds; how they are then."""
        if not names:
            return ()
        return wait_for_indexes(
            lambda: self.states(names),
            timeout=timeout,
            tell=tell,
            clock=self._clock,
            sleep=self._sleep,
        )

    # -- changing ----------------------------------------------------------------------------

    def create(self, named: Sequence[str] = (), *, dry_run: bool = False) -> list[IndexAction]:
        """Begin to make the indexes that are missing. One that is otherwise than wanted stays.

        Raises:
            StoreError: one that was named cannot be made; what could be made before it was.
        """
        return [self._create(state, named, dry_run) for state in self.states(named)]

    def _create(self, state: IndexState, named: Sequence[str], dry_run: bool) -> IndexAction:
        if state.replaces:
            return IndexAction(name=state.name, outcome="to_replace", state=state, note=state.note)
        # Of an index that is not needed its kind is not enough: it has to be named.
        described = state.status == "unwanted" and state.wanted is not None
        asked_for = state.name in named if described else bool(named) or state.kind == "ordinary"
        if state.status in ("unwanted", "unavailable") and not asked_for:
            return IndexAction(name=state.name, outcome="left_out", state=state, note=state.note)
        if state.status not in ("missing", "unwanted", "unavailable"):
            outcome = "different" if state.status == "different" else "there"
            return IndexAction(name=state.name, outcome=outcome, state=state)
        if dry_run:
            return IndexAction(name=state.name, outcome="would_make", state=state)
        self._store.indexes.create_index(state.name, self.wish)
        return self._after(state.name, "made")

    def to_replace(self) -> list[IndexState]:
        """The indexes that replace older ones."""
        return [state for state in self.states() if state.replaces]

    def replace(self, states: Sequence[IndexState], *, dry_run: bool = False) -> list[IndexAction]:
        """Replace older indexes by these; can be killed at any moment and repeated.

        Raises:
            ConflictError: another process migrates the database, or recreates an older index.
            StoreError: stored data keep an index from being created; none was dropped then.
        """
        actions = []
        for state in states:
            note = _change(state)
            if dry_run:
                action = IndexAction(
                    name=state.name, outcome="would_replace", state=state, note=note
                )
            else:
                self._store.indexes.replace_index(state.name)
                action = self._after(state.name, "replaced", note=note)
            actions.append(action)
        return actions

    def update(
        self, states: Sequence[IndexState], *, anew: bool = False, dry_run: bool = False
    ) -> list[IndexAction]:
        """Begin to change the indexes that are otherwise than wanted; ``anew``: all of them."""
        actions = []
        for state in states:
            if state.status in ("missing", "unwanted", "unavailable", "foreign"):
                action = IndexAction(name=state.name, outcome="left_out", state=state)
            elif state.replaces:
                action = IndexAction(
                    name=state.name, outcome="to_replace", state=state, note=state.note
                )
            elif state.status != "different" and not anew:
                action = IndexAction(name=state.name, outcome="there", state=state)
            elif dry_run:
                action = IndexAction(name=state.name, outcome="would_update", state=state)
            else:
                self._store.indexes.update_index(state.name, self.wish)
                action = self._after(state.name, "updated", note=_of_old_vectors(state))
            actions.append(action)
        return actions

    def drop(self, named: Sequence[str], *, dry_run: bool = False) -> list[IndexAction]:
        """Drop indexes, named as `states` takes them. Of a kind those are left out that are not
        there or have to stay.

        Raises:
            NotFoundError: there is none of a name.
            ConflictError: one that was named, or each of a kind, protects uniqueness, is the
                platform's too, or is a part of the store. Nothing was dropped.
        """
        actions: list[IndexAction] = []
        refused: list[ConflictError | NotFoundError | StoreError] = []
        for state in self.states(named):
            try:
                self._store.indexes.drop_index(state.name, dry_run=True)
            except (ConflictError, NotFoundError, StoreError) as error:
                if state.name in named or isinstance(error, StoreUnreachable):
                    raise
                refused.append(error)
                action = IndexAction(
                    name=state.name, outcome="left_out", state=state, note=error.message
                )
            else:
                action = IndexAction(name=state.name, outcome="would_drop", state=state)
            actions.append(action)
        if refused and len(refused) == len(actions):
            raise refused[0]
        return actions if dry_run else [self._drop(action) for action in actions]

    def _drop(self, planned: IndexAction) -> IndexAction:
        if planned.outcome != "would_drop":
            return planned
        self._store.indexes.drop_index(planned.name)
        # A foreign one is not listed any more.
        left = [state for state in self.states() if state.name == planned.name]
        state = left[0] if left else planned.state
        return IndexAction(name=planned.name, outcome="dropped", state=state)

    def _after(self, name: str, outcome: str, *, note: str = "") -> IndexAction:
        (state,) = self.states([name])
        return IndexAction(name=name, outcome=outcome, state=state, note=note)


def _change(state: IndexState) -> str:
    """The keys of the older index and those that replace them."""
    before, after = _keys(state.found, state.wanted), _keys(state.wanted, state.found)
    older = "" if state.replaces == (state.name,) else f"{', '.join(state.replaces)} "
    return f"{older}{before} \N{RIGHTWARDS ARROW} {after}"


def _keys(one: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> str:
    """The keys of an index; whether it is unique only where the other differs in that."""
    mine, others = one or {}, other or {}
    differs = mine.get("unique") != others.get("unique")
    kind = ("unique " if mine.get("unique") else "not unique ") if differs else ""
    return f"{kind}({', '.join(mine.get('keys', ()))})"


def _of_old_vectors(state: IndexState) -> str:
    """A word on the vectors that an index of other dimensions does not take up."""
    if state.kind != "vector" or not any("numDimensions" in one for one in state.differences):
        return ""
    return (
        "vectors of another length are not in it; 'edenmem embed backfill' makes those of the "
        "configured model"
    )
