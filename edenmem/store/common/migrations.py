"""Find, load and order the numbered steps of the database schema.

A migration is a file ``NNNN_name.py`` in the checkout's ``migrations/`` or the wheel's
``edenmem/_migrations``. It is frozen: it imports nothing of edenmem, and is not edited after its
release. It defines ``up_sqlite(connection)`` and ``up_mongo(database)``, which are idempotent, and
either ``down_sqlite`` and ``down_mongo`` or ``NO_WAY_BACK``, the reason why it is irreversible.

Each store keeps the ledger of its applied steps, and decides on transactions.
"""

from __future__ import annotations

import importlib.util
import itertools
import re
import zlib
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from edenmem.errors import ConflictError, StoreError

if TYPE_CHECKING:
    from edenmem.models.migration import SchemaStep

StoreKind = Literal["sqlite", "mongo"]

_NAME = re.compile(r"(\d{4})_[a-z0-9_]+\Z")


class Migration(msgspec.Struct, frozen=True, order=True):
    """A schema step: its number, its full name (``0001_initial``) and its file."""

    number: int
    name: str
    path: Path

    @property
    def digest(self) -> str:
        """Return the CRC-32 of the file, which tells versions of a step apart."""
        return f"{zlib.crc32(self.path.read_bytes()):08x}"

    def load(self) -> ModuleType:
        """Load the migration's module.

        Raises:
            StoreError: it cannot be loaded, or lacks a required function.
        """
        spec = importlib.util.spec_from_file_location(f"edenmem_migration_{self.name}", self.path)
        if spec is None or spec.loader is None:
            raise StoreError(f"migration cannot be loaded: {self.path}")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for kind in ("sqlite", "mongo"):
            if not callable(getattr(module, f"up_{kind}", None)):
                raise StoreError(f"migration has no up_{kind}(): {self.name}")
            back = getattr(module, f"down_{kind}", None)
            if not callable(back) and not getattr(module, "NO_WAY_BACK", ""):
                raise StoreError(
                    f"migration has neither down_{kind}() nor NO_WAY_BACK: {self.name}"
                )
        return module

    def up(self, kind: StoreKind, handle: Any) -> None:
        """Apply the step with a ``sqlite3.Connection`` in a transaction, or a pymongo database."""
        step: Callable[[Any], None] = getattr(self.load(), f"up_{kind}")
        step(handle)

    def down(self, kind: StoreKind, handle: Any) -> None:
        """Revert the step; only if `no_way_back` is empty."""
        step: Callable[[Any], None] = getattr(self.load(), f"down_{kind}")
        step(handle)

    def no_way_back(self) -> str:
        """Return why the step is irreversible; empty if it is reversible."""
        return str(getattr(self.load(), "NO_WAY_BACK", ""))


def folder() -> Path:
    """Return the folder of migrations, in the installed package or the checkout.

    Raises:
        StoreError: both are missing, so the installation is damaged.
    """
    package = Path(__file__).resolve().parents[2]
    for path in (package / "_migrations", package.parent / "migrations"):
        if path.is_dir():
            return path
    raise StoreError("migrations are missing from this installation", hint="reinstall edenmem")


def migrations(path: Path | None = None) -> tuple[Migration, ...]:
    """Return all migrations by number; ``path`` is a folder for tests.

    Raises:
        StoreError: two have the same number.
    """
    found = sorted(
        Migration(int(match[1]), file.stem, file)
        for file in (path or folder()).glob("*.py")
        if (match := _NAME.match(file.stem))
    )
    for one, next_one in itertools.pairwise(found):
        if one.number == next_one.number:
            raise StoreError(f"migrations have the same number: {one.name}, {next_one.name}")
    return tuple(found)


def newest() -> int:
    """Return the number of the last migration, which this version needs, without loading it."""
    return migrations()[-1].number


def require_first(digest: str | None, location: str) -> None:
    """Check that a store was made by this version's first step.

    Raises:
        StoreError: it was made by another one, before the first release.
    """
    if digest != migrations()[0].digest:
        raise StoreError(
            f"{location} was made by an unreleased edenmem with a different schema",
            hint="create a new store; the present one was not changed",
        )


def pending(applied: Collection[str], path: Path | None = None) -> tuple[Migration, ...]:
    """Return the migrations that are not in a ledger with these names, in order."""
    return tuple(one for one in migrations(path) if one.name not in applied)


def list_steps(applied: Mapping[str, datetime]) -> list[SchemaStep]:
    """List every step of this version by number, with the time it was applied."""
    from edenmem.models.migration import SchemaStep  # every command loads this module

    return [
        SchemaStep(
            number=step.number,
            name=step.name,
            applied_at=applied.get(step.name),
            no_way_back=step.no_way_back(),
        )
        for step in migrations()
    ]


def reversible(applied: Collection[str], to: int) -> list[Migration]:
    """Return the applied steps after number ``to``, newest first.

    Raises:
        ConflictError: a step is irreversible.
    """
    steps = [step for step in migrations() if step.number > to and step.name in applied]
    for step in steps:
        if reason := step.no_way_back():
            raise ConflictError(f"migration is irreversible: {step.name} ({reason})")
    return steps[::-1]
