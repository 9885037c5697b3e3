"""The stage of a migration: memory stays flat, whatever is laid out."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from edenmem.models.v1 import V1Account, V1Memory, V1Read, V1UserText
from edenmem.store.sqlite.v1.staging import SqliteV1Stage

pytestmark = pytest.mark.slow

AT = datetime(2025, 8, 1, tzinfo=UTC)
AGENT = "a" * 24


@pytest.fixture
def stage() -> Iterator[SqliteV1Stage]:
    made = SqliteV1Stage()
    yield made
    made.close()


def _account(number: int, **more: Any) -> V1Account:
    own = f"{number:024x}"
    return V1Account(id=own, **more)


def test_accounts_of_the_source_go_before_people_known_elsewhere(stage: SqliteV1Stage) -> None:
    one, two, three = (f"{number:024x}" for number in (1, 2, 3))
    stage.add_accounts([_account(1, eden_user_id="b" * 24), _account(2)])
    stage.add_people([(one, "c" * 24), (two, "d" * 24), (three, "e" * 24)])
    assert [stage.canonical(each) for each in (one, two, three, "f")] == [
        "b" * 24,
        "d" * 24,
        "e" * 24,
        "f",
    ]
    assert [each.id for each in stage.accounts("of_user", "b" * 24)] == [one]


def _memories(count: int, content: str) -> Iterator[V1Read]:
    for number in range(count):
        document = V1Memory(
            id=f"{number:024x}",
            agent_id=AGENT,
            created_at=AT,
            memory_type="episode",
            content=f"{content}{number}",
            extra=f'{{"field {number}":1}}',
        )
        yield V1Read(collection="memory_sessions", id=document.id, document=document)


def _peak(stage: SqliteV1Stage, reads: Iterator[V1Read]) -> int:
    tracemalloc.start()
    try:
        stage.add(reads)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_documents_or_their_size(stage: SqliteV1Stage) -> None:
    """Batches end by bytes, and names of unknown fields are not collected without end."""
    million = "x" * 1_000_000
    assert _peak(stage, _memories(60, million)) < 30_000_000
    assert _peak(stage, _memories(12_000, "y")) < 8_000_000
    assert len(stage.unknown_fields()) == 1000


def test_what_is_missing_is_counted_and_the_first_are_named(stage: SqliteV1Stage) -> None:
    twice = [read for read in _memories(15, "x") for _ in range(2)]
    lists = tuple(f"{number:024x}" for number in range(10, 20))
    text = V1UserText(
        id="1" * 24, agent_id=AGENT, created_at=AT, user_id="b" * 24, content="x", pending=lists
    )
    stage.add([*twice, V1Read(collection="memory_user", id=text.id, document=text)])
    stage.settle(merge=True)
    repeated, missing = stage.damage({each: each for each in ("memory_user", "memory_agent")})
    assert (repeated.kind, repeated.documents, len(repeated.places)) == ("duplicate_id", 15, 10)
    assert (missing.kind, missing.where, missing.documents) == (
        "no_collection",
        "memory_sessions",
        5,
    )


_WATCHED = """
import sys
from edenmem.engine.factory import open_v1_plan
from edenmem.models.v1 import V1Options
from edenmem.settings.schema import Settings

with open_v1_plan(Settings(), sys.argv[1], V1Options()) as plan:
    print(sum(1 for _ in plan.items()))
for line in open("/proc/self/status"):
    if line.startswith("VmHWM:"):
        print(int(line.split()[1]) // 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel tells the most that was resident")
@pytest.mark.parametrize(("count", "size", "most"), [(20_000, 10, 130), (80, 1_000_000, 150)])
def test_reading_a_dump_takes_little_memory(
    tmp_path: Path, count: int, size: int, most: int
) -> None:
    import bson
    from bson import ObjectId

    with (tmp_path / "memory_sessions.bson").open("wb") as file:
        for number in range(count):
            document = {
                "_id": ObjectId(f"{number:024x}"),
                "agent_id": ObjectId(AGENT),
                "memory_type": "episode",
                "content": "lamp " * (size // 5) + str(number),
                "createdAt": AT,
            }
            file.write(bson.encode(document))
    done = subprocess.run(
        [sys.executable, "-c", _WATCHED, str(tmp_path)], capture_output=True, text=True, check=True
    )
    items, resident = map(int, done.stdout.split())
    assert items == count
    assert resident < most
