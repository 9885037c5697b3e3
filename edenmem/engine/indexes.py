"""Create, compare, update and drop indexes, and wait until they are ready.

The expected definitions come from the store, the configured embedding model and the analyzer.
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
from edenmem.settings.schema import Settings
from edenmem.store.protocol.store import Store

#: Seconds between polls: short at first, for small indexes, then longer.
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
    """Poll until ``done``, at least once and for ``timeout`` seconds; return whether it was."""
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
    progress: Callable[[Sequence[IndexState]], None] = lambda states: None,
    clock: Clock = time.monotonic,
    sleep: Sleep = time.sleep,
) -> Sequence[IndexState]:
    """Wait until no index is building, or until the timeout; return the last states.

    Failed indexes and those with another definition are not waited for.
    """
    seen: Sequence[IndexState] = ()

    def is_settled() -> bool:
        nonlocal seen
        seen = look()
        progress(seen)
        return all(state.status != "building" for state in seen)

    poll(is_settled, timeout=timeout, clock=clock, sleep=sleep)
    return seen


#: Names for groups of indexes, by kind.
_GROUPS = {
    "ordinary": ("ordinary",),
    "vector": ("vector",),
    "text": ("text",),
    "search": ("vector", "text"),
    "all": ("ordinary", "vector", "text"),
}


class IndexAction(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an operation on an index.

    ``outcome`` is "made", "there", "different" or "to_replace" (both unchanged), "left_out"
    (unavailable), "updated", "dropped", "replaced", or "would_…" in a dry run. ``state`` is the
    state of the index afterwards.
    """

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

    # -- reading -----------------------------------------------------------------------------

    @property
    def follow_later(self) -> bool:
        """Return whether search finds a fact only some time after its write."""
        return self._store.search.search_ability().kind == "atlas"

    def await_fact(self, fact_id: str, *, timeout: float) -> bool:
        """Wait up to ``timeout`` seconds until search finds a fact; return whether it does."""
        return poll(
            lambda: self._store.search.is_searchable(fact_id),
            timeout=timeout,
            clock=self._clock,
            sleep=self._sleep,
        )

    def states(self, named: Sequence[str] = ()) -> list[IndexState]:
        """Return the states of all indexes, or of those with a name or kind.

        The kind "search" includes "vector" and "text".

        Raises:
            NotFoundError: an index is unknown.
        """
        every = self._store.indexes.list_indexes(self.wish)
        if not named:
            return every
        wanted: set[str] = set()
        for word in named:
            found = [s.name for s in every if s.name == word or s.kind in _GROUPS.get(word, ())]
            if not found:
                raise NotFoundError(
                    f"unknown index: {word!r}",
                    hint=f"use a name from 'edenmem index list', or {', '.join(_GROUPS)}",
                )
            wanted.update(found)
        return [state for state in every if state.name in wanted]

    def wait(
        self,
        names: Sequence[str],
        *,
        timeout: float,
        progress: Callable[[Sequence[IndexState]], None] = lambda states: None,
    ) -> Sequence[IndexState]:
        """Wait up to ``timeout`` seconds until none of these is building; return the states."""
        if not names:  # which means all of them elsewhere
            return ()
        return wait_for_indexes(
            lambda: self.states(names),
            timeout=timeout,
            progress=progress,
            clock=self._clock,
            sleep=self._sleep,
        )

    # -- writing -----------------------------------------------------------------------------

    def create(self, named: Sequence[str] = (), *, dry_run: bool = False) -> list[IndexAction]:
        """Create missing indexes; those with another definition stay unchanged.

        Raises:
            StoreError: a named index cannot be created; earlier ones were.
        """
        return [self._create(state, named, dry_run) for state in self.states(named)]

    def _create(self, state: IndexState, named: Sequence[str], dry_run: bool) -> IndexAction:
        if state.replaces:
            return _action(state, "to_replace", state.note)
        # An unneeded index has to be given by name: its kind is not enough.
        described = state.status == "unwanted" and state.wanted is not None
        asked_for = state.name in named if described else bool(named) or state.kind == "ordinary"
        if state.status in ("unwanted", "unavailable") and not asked_for:
            return _action(state, "left_out", state.note)
        if state.status not in ("missing", "unwanted", "unavailable"):
            return _action(state, "different" if state.status == "different" else "there")
        if dry_run:
            return _action(state, "would_make")
        self._store.indexes.create_index(state.name, self.wish)
        return self._after(state.name, "made")

    def to_replace(self) -> list[IndexState]:
        """Return the indexes that replace older ones."""
        return [state for state in self.states() if state.replaces]

    def replace(self, states: Sequence[IndexState], *, dry_run: bool = False) -> list[IndexAction]:
        """Replace older indexes by these; can be interrupted and repeated.

        Raises:
            ConflictError: another process migrates the database, or recreates an older index.
            StoreError: stored data prevent the creation of an index; none was dropped.
        """
        if dry_run:
            return [_action(state, "would_replace", _change(state)) for state in states]
        for state in states:
            self._store.indexes.replace_index(state.name)
        return [self._after(each.name, "replaced", note=_change(each)) for each in states]

    def update(
        self, states: Sequence[IndexState], *, rebuild: bool = False, dry_run: bool = False
    ) -> list[IndexAction]:
        """Update the indexes that differ from their definition; ``rebuild``: all of them."""
        return [self._update(state, rebuild, dry_run) for state in states]

    def _update(self, state: IndexState, rebuild: bool, dry_run: bool) -> IndexAction:
        if state.status in ("missing", "unwanted", "unavailable", "foreign"):
            return _action(state, "left_out")
        if state.replaces:
            return _action(state, "to_replace", state.note)
        if state.status != "different" and not rebuild:
            return _action(state, "there")
        if dry_run:
            return _action(state, "would_update")
        self._store.indexes.update_index(state.name, self.wish)
        return self._after(state.name, "updated", note=_of_old_vectors(state))

    def drop(self, named: Sequence[str], *, dry_run: bool = False) -> list[IndexAction]:
        """Drop indexes, given as for `states`; of a kind, only those that exist and may be dropped.

        Raises:
            NotFoundError: an index is unknown.
            ConflictError: a named index, or every index of a kind, protects uniqueness, is used by
                the platform, or is part of the store. Nothing was dropped.
        """
        actions: list[IndexAction] = []
        refused: list[Exception] = []
        for state in self.states(named):
            try:
                self._store.indexes.drop_index(state.name, dry_run=True)
            except (ConflictError, NotFoundError, StoreError) as error:
                if state.name in named or isinstance(error, StoreUnreachable):
                    raise
                refused.append(error)
                actions.append(_action(state, "left_out", error.message))
            else:
                actions.append(_action(state, "would_drop"))
        if refused and len(refused) == len(actions):
            raise refused[0]
        if dry_run:
            return actions
        dropped = [action.name for action in actions if action.outcome == "would_drop"]
        for name in dropped:
            self._store.indexes.drop_index(name)
        left = {state.name: state for state in self.states()}  # without those of other programs
        return [
            _action(left.get(each.name, each.state), "dropped") if each.name in dropped else each
            for each in actions
        ]

    def _after(self, name: str, outcome: str, *, note: str = "") -> IndexAction:
        (state,) = self.states([name])
        return _action(state, outcome, note)


def _action(state: IndexState, outcome: str, note: str = "") -> IndexAction:
    return IndexAction(name=state.name, outcome=outcome, state=state, note=note)


def _change(state: IndexState) -> str:
    """Return the old and new keys of a replaced index."""
    before, after = _keys(state.found, state.wanted), _keys(state.wanted, state.found)
    older = "" if state.replaces == (state.name,) else f"{', '.join(state.replaces)} "
    return f"{older}{before} \N{RIGHTWARDS ARROW} {after}"


def _keys(one: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> str:
    """Return the keys of an index, and whether it is unique if the other one differs."""
    own, others = one or {}, other or {}
    differs = own.get("unique") != others.get("unique")
    kind = ("unique " if own.get("unique") else "not unique ") if differs else ""
    return f"{kind}({', '.join(own.get('keys', ()))})"


def _of_old_vectors(state: IndexState) -> str:
    """Return a note on vectors of other dimensions, which the index ignores."""
    if state.kind != "vector" or not any("numDimensions" in one for one in state.differences):
        return ""
    return (
        "the index ignores vectors of another length; create those of the configured model with "
        "'edenmem embed backfill'"
    )


class Setup:
    """The location and state of the store, and its creation."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._settings = settings
        self.plan = store.database.preparation

    @property
    def location(self) -> str:
        """Return the location of the store, without secrets."""
        return self._store.database.info().location

    @property
    def is_embedded(self) -> bool:
        """Return whether the store is a local file."""
        return self._store.database.info().kind == "sqlite"

    @property
    def is_made(self) -> bool:
        """Return whether the store is initialized."""
        return self._store.database.info().initialized

    def make(self) -> list[str]:
        """Create missing parts; return descriptions of them."""
        return list(self._store.database.initialize())

    def lacks_search_indexes(self) -> bool:
        """Return whether search indexes are missing: on Atlas, `make` does not create them."""
        if self._store.search.search_ability().kind != "atlas":
            return False
        wish = IndexWish(analyzer=self._settings.search.analyzer)
        return any(
            state.kind == "text" and not state.queryable
            for state in self._store.indexes.list_indexes(wish)
        )
