"""What is known of memory while a page of entries is taken back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from edenmem.memory import Needs, State, fold, needs
from edenmem.memory.effect import Effect
from edenmem.memory.inverse import (
    Past,
    inverse_needs,
    invert,
    past_needs,
    versions_needed,
)
from edenmem.models.changes import AuditEntry, Change
from edenmem.models.memory import Fact
from edenmem.models.records import HistoryEntry
from edenmem.models.scope import Scope
from edenmem.models.search import FactFilter
from edenmem.store.protocol.store import Store

_MISSING = object()


class UndoState:
    """The state and the past of one page; with ``keep``, of a dry run, which writes nothing.

    A dry run of a million entries must not hold all of their documents: of what it would have
    removed only the ids stay when a page is done.
    """

    def __init__(self, store: Store, *, keep: bool) -> None:
        self._store = store
        self._keep = keep
        self._folded = State()
        self._grown: dict[Scope, int] = {}
        self._versions: dict[Scope, tuple[HistoryEntry, ...]] = {}
        self.state = State()
        self.past = Past()
        self._expected: dict[str, Change] = {}

    def load(self, entries: Sequence[AuditEntry], at: datetime) -> None:
        """Load what a page needs: to invert its entries, and to plan what takes them back."""
        self.state, self.past = State(), Past(grown=self._grown if self._keep else {})
        self._load_past(entries)
        self._load_state(inverse_needs(entries, self.past), at)
        self._load_versions(versions_needed(entries, self.state))
        found = (invert(entry, self.state, self.past, at=at).change for entry in entries)
        self._expected = {change.id: change for change in found if change is not None}
        self._load_state(needs(self._expected.values()), at)

    def load_for(self, change: Change, at: datetime) -> None:
        """Load what else a change needs, if earlier ones of the page made it another one."""
        if self._expected.get(change.id) != change:
            self._load_state(needs([change]), at)

    def fold(self, effect: Effect) -> None:
        """Let the next entry see what an effect does."""
        fold(self.state, effect)
        self.past.fold(effect)
        if self._keep:
            self._remember(effect)

    def _load_state(self, wanted: Needs, at: datetime) -> None:
        left = self.state.missing(wanted)
        if not left:
            return
        if self._keep:
            self.state.take(_part(self._folded, left))
            left = self.state.missing(left)
        loaded = self._store.load_state(left, at=at)
        for (scope, digest), fact_id in loaded.owners.items():
            folded = self._folded.facts.get(fact_id or "", _MISSING)
            if folded is None or (
                isinstance(folded, Fact) and (folded.home, folded.hash) != (scope, digest)
            ):
                loaded.owners[scope, digest] = None
        self.state.take(loaded)

    def _remember(self, effect: Effect) -> None:
        """Keep of an effect what later pages can meet with."""
        folded = self._folded
        fold(folded, effect)
        folded.answers.clear()  # no entry of a run is taken back twice
        for version in effect.versions:
            if version.target_type == "fact" and version.action == "delete" and version.version < 2:
                folded.heads.pop(("fact", version.target_id), None)  # it has no earlier life
            elif version.absorbed_ids:
                self._versions[version.scope] = (*self._versions.get(version.scope, ()), version)
        for write in effect.writes:
            if isinstance(write.old, Fact):  # that its text is free follows from ``facts``
                key = (write.old.home, write.old.hash)
                if folded.owners.get(key, _MISSING) is None:
                    del folded.owners[key]

    # -- the past ----------------------------------------------------------------------------

    def _load_past(self, entries: Sequence[AuditEntry]) -> None:
        wanted = past_needs(entries)
        for entry in wanted.snapshots:
            assert entry.scope is not None
            history = self._store.history("fact", entry.target_id, scope=entry.scope)
            snapshots = [each for each in history if each.snapshot is not None]
            own = [each for each in snapshots if each.change_id == entry.id] or snapshots
            if own and own[-1].snapshot is not None:
                self.past.snapshots[entry.id] = own[-1].snapshot
        self._load_versions(wanted.versions)
        for scope, since in wanted.reverts.items():
            self.past.reverts[scope] = self._reverts(scope, since)
        for scope in wanted.contents:
            self.past.contents[scope] = self._count(scope)

    def _load_versions(self, scopes: set[Scope]) -> None:
        for scope in scopes - self.past.versions.keys():
            history = self._store.history("consolidation", "", scope=scope)
            self.past.versions[scope] = (*history, *self._versions.get(scope, ()))

    def _reverts(self, scope: Scope, since: datetime) -> tuple[tuple[datetime, int], ...]:
        """When versions of a scope's text were taken back, and which."""
        reverts = [
            entry
            for entry in self._store.audit(
                scope=scope, actions=["revert_consolidation"], since=since
            )
            if entry.undoes
        ]
        undone = self._store.audit_entries([each.undoes for each in reverts if each.undoes])
        return tuple(
            (each.at, int((undone[each.undoes].after or {}).get("version", 0)))
            for each in reverts
            if each.undoes in undone and undone[each.undoes].action == "write_consolidation"
        )

    def _count(self, scope: Scope) -> int:
        """How many facts and reflections a scope has."""
        facts = self._store.facts(FactFilter(scopes=(scope,)))
        return sum(1 for _ in facts) + sum(1 for _ in self._store.reflections([scope]))


def _part(state: State, wanted: Needs) -> State:
    """What a state knows of what is wanted, in containers of its own."""
    found = State()
    for name in wanted.__struct_fields__:
        known, mine = getattr(state, name), getattr(found, name)
        for key in getattr(wanted, name):
            if key in known:
                mine[key] = known[key]
    for key in wanted.heads:
        if key in state.origins:
            found.origins[key] = state.origins[key]
    for scope in wanted.buffers | wanted.texts:
        if scope in state.moved:
            found.moved[scope] = dict(state.moved[scope])
    for key in wanted.used:
        if key in state.grown:
            found.grown[key] = dict(state.grown[key])
    return found
