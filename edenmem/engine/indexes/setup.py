"""Create the store, or missing parts of it. Blocks."""

from __future__ import annotations

from edenmem.models.indexes import IndexWish
from edenmem.settings.schema import Settings
from edenmem.store.protocol.store import Store


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
