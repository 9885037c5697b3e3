"""A store that lets a test intercept calls."""

from __future__ import annotations

from typing import Any

from edenmem.errors import StoreError

PARTS = frozenset(
    {
        "changes",
        "cold",
        "contexts",
        "database",
        "erasure",
        "formations",
        "history",
        "host",
        "indexes",
        "log",
        "memory",
        "migrations",
        "search",
        "statistics",
        "switches",
        "told",
        "usage",
        "vectors",
        "walk",
    }
)


class InterposedStore:
    """Forward all calls to a store through `wrap`, which a test overrides."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def wrap(self, name: str, method: Any) -> Any:
        """Return the replacement of a method of any part; by default the method."""
        return method

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return _InterposedPart(self, found) if name in PARTS else found


class Crashing(InterposedStore):
    """Fail at each call of a method: before it takes effect, or after."""

    def __init__(self, store: Any, method: str, *, after: bool = False) -> None:
        super().__init__(store)
        self._method, self._after = method, after

    def wrap(self, name: str, method: Any) -> Any:
        """Return the method, or one that fails."""

        def crash(*args: Any, **kwargs: Any) -> Any:
            if self._after:
                method(*args, **kwargs)
            raise StoreError("the machine lost power")

        return crash if name == self._method else method


class _InterposedPart:
    def __init__(self, owner: InterposedStore, part: Any) -> None:
        self._owner = owner
        self._part = part

    def __getattr__(self, name: str) -> Any:
        return self._owner.wrap(name, getattr(self._part, name))
