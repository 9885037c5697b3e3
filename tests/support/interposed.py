"""A store between whose callers and parts a test stands."""

from __future__ import annotations

from typing import Any

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
        "propagation",
        "search",
        "statistics",
        "switches",
        "usage",
        "vectors",
        "walk",
    }
)


class InterposedStore:
    """Answers as the store does, through `wrap`, which a test overrides."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def wrap(self, name: str, method: Any) -> Any:
        """What is called in place of a method of any part; the method itself unless overridden."""
        return method

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return _InterposedPart(self, found) if name in PARTS else found


class _InterposedPart:
    def __init__(self, owner: InterposedStore, part: Any) -> None:
        self._owner = owner
        self._part = part

    def __getattr__(self, name: str) -> Any:
        return self._owner.wrap(name, getattr(self._part, name))
