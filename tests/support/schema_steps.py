"""Schema steps of the tests, after those of this version."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from edenmem.store.common import migrations
from edenmem.store.sqlite.core import connections, schema

#: Steps that add a table and a collection.
STEPS = {
    "0002_tea": """
def up_sqlite(connection):
    connection.execute("CREATE TABLE IF NOT EXISTS tea (name TEXT)")
def down_sqlite(connection):
    connection.execute("DROP TABLE IF EXISTS tea")
def up_mongo(database):
    database["tea"].update_one({"_id": 1}, {"$inc": {"times": 1}}, upsert=True)
def down_mongo(database):
    database.drop_collection("tea")
""",
    "0003_cups": """
def up_sqlite(connection):
    connection.execute("CREATE TABLE IF NOT EXISTS cups (size INTEGER)")
def down_sqlite(connection):
    connection.execute("DROP TABLE IF EXISTS cups")
def up_mongo(database):
    database["cups"].update_one({"_id": 1}, {"$inc": {"times": 1}}, upsert=True)
def down_mongo(database):
    database.drop_collection("cups")
""",
}


def add_steps(patch: pytest.MonkeyPatch, folder: Path) -> list[str]:
    """Let this version have `STEPS` too; return their names."""
    first = migrations.migrations()[0].path
    shutil.copy(first, folder)
    for name, code in STEPS.items():
        (folder / f"{name}.py").write_text(code)
    patch.setattr(migrations, "folder", lambda: folder)
    for module in (schema, connections):
        patch.setattr(module, "SCHEMA_VERSION", migrations.newest())
    return list(STEPS)
