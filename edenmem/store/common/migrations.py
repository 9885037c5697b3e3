"""Numbered steps that bring a database's schema from one version to the next.

A migration is a file ``NNNN_name.py``, in the checkout's ``migrations/`` or in the wheel's
``edenmem/_migrations``. It is frozen: it imports nothing of edenmem, and once released it is not
edited. It defines ``up_sqlite(connection)`` and ``up_mongo(database)``, which may be run again
without harm, and either ``down_sqlite`` and ``down_mongo`` or ``NO_WAY_BACK``, a sentence that
says why there are none.

The engine only finds, loads and orders them. Each store keeps the ledger of those it has had and
decides what is one transaction.
"""

from __future__ import annotations

import importlib.util
import itertools
import re
from collections.abc import Callable, Collection
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import msgspec

from edenmem.errors import StoreError

StoreKind = Literal["sqlite", "mongo"]

_NAME = re.compile(r"(\d{4})_[a-z0-9_]+\Z")


class Migration(msgspec.Struct, frozen=True, order=True):
    """One step: its number, its whole name (``0001_initial``) and its file."""

    number: int
    name: str
    path: Path

    def load(self) -> ModuleType:
        """The migration's code.

        Raises:
            StoreError: it cannot be read, or lacks a function that it must have.
        """
        spec = importlib.util.spec_from_file_location(f"edenmem_migration_{self.name}", self.path)
        if spec is None or spec.loader is None:
            raise StoreError(f"the migration {self.path} cannot be loaded")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for kind in ("sqlite", "mongo"):
            if not callable(getattr(module, f"up_{kind}", None)):
                raise StoreError(f"the migration {self.name} has no up_{kind}()")
            back = getattr(module, f"down_{kind}", None)
            if not callable(back) and not getattr(module, "NO_WAY_BACK", ""):
                raise StoreError(f"the migration {self.name} does not say whether it can go back")
        return module

    def up(self, kind: StoreKind, handle: Any) -> None:
        """Run it on a database: a ``sqlite3.Connection`` in a transaction, or a pymongo one."""
        step: Callable[[Any], None] = getattr(self.load(), f"up_{kind}")
        step(handle)

    def down(self, kind: StoreKind, handle: Any) -> None:
        """Take it back; only where `no_way_back` is empty."""
        step: Callable[[Any], None] = getattr(self.load(), f"down_{kind}")
        step(handle)

    def no_way_back(self) -> str:
        """Why it cannot be taken back; empty if it can."""
        return str(getattr(self.load(), "NO_WAY_BACK", ""))


def folder() -> Path:
    """Where the migrations are: in the installed package, or in the checkout it runs from.

    Raises:
        StoreError: they are in neither place, so the installation is damaged.
    """
    package = Path(__file__).resolve().parents[2]
    for place in (package / "_migrations", package.parent / "migrations"):
        if place.is_dir():
            return place
    raise StoreError("the migrations are missing", hint="install edenmem again")


def migrations(place: Path | None = None) -> tuple[Migration, ...]:
    """All migrations in order of their numbers; ``place`` is for tests.

    Raises:
        StoreError: two have the same number.
    """
    found = sorted(
        Migration(int(match[1]), path.stem, path)
        for path in (place or folder()).glob("*.py")
        if (match := _NAME.match(path.stem))
    )
    for one, next_one in itertools.pairwise(found):
        if one.number == next_one.number:
            raise StoreError(f"two migrations have one number: {one.name} and {next_one.name}")
    return tuple(found)


def newest() -> int:
    """The number of the last migration: the schema that this edenmem needs. Loads none of them."""
    return migrations()[-1].number


def pending(applied: Collection[str], place: Path | None = None) -> tuple[Migration, ...]:
    """Those that a ledger with these names does not have yet, in order."""
    return tuple(one for one in migrations(place) if one.name not in applied)
