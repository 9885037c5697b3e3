"""Making the store, or what is missing in it. Blocks."""

from __future__ import annotations

from edenmem.models.indexes import IndexWish
from edenmem.settings.schema import Settings
from edenmem.store.protocol.store import Store


class Setup:
    """Where the store is, whether it is there, and what it takes to make it."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._settings = settings
        self.plan = store.database.preparation

    @property
    def location(self) -> str:
        """Where memory is, without secrets."""
        return self._store.database.info().location

    @property
    def is_embedded(self) -> bool:
        """Whether the store is a file of this machine."""
        return self._store.database.info().kind == "sqlite"

    @property
    def is_made(self) -> bool:
        """Whether the store is there."""
        return self._store.database.info().initialised

    def make(self) -> list[str]:
        """Make what is missing; what was made, in words."""
        return list(self._store.database.initialise())

    def lacks_search_indexes(self) -> bool:
        """Return whether search needs indexes that `make` does not: on Atlas they take a while,
        and are made when asked for."""
        if self._store.search.search_ability().kind != "atlas":
            return False
        wish = IndexWish(analyzer=self._settings.search.analyzer)
        return any(
            state.kind == "text" and not state.queryable
            for state in self._store.indexes.list_indexes(wish)
        )
