"""The parts of the SQLite store, which are loaded by name, match their protocols."""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path
from typing import get_type_hints

import edenmem.store.protocol as protocols
from edenmem.store.protocol.store import Store
from edenmem.store.sqlite import SqliteStore


def test_the_parts_have_the_methods_and_parameters_of_their_protocols(tmp_path: Path) -> None:
    """For MongoDB the type checker sees it."""
    known = {}
    for file in Path(protocols.__file__).parent.glob("*.py"):
        known |= vars(import_module(f"{protocols.__name__}.{file.stem}"))
    store = SqliteStore(tmp_path / "memory.db")
    for name, protocol in get_type_hints(Store, globalns=known).items():
        for method, wanted in inspect.getmembers(protocol, inspect.isfunction):
            if not method.startswith("_"):
                found = inspect.signature(getattr(type(getattr(store, name)), method))
                shape, expected = (
                    [(each.name.rstrip("_"), each.kind, each.default) for each in parameters]
                    for parameters in (
                        found.parameters.values(),
                        inspect.signature(wanted).parameters.values(),
                    )
                )
                assert shape == expected, f"{name}.{method}"
