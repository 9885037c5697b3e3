"""The context of a prompt: as it is kept, and rebuilt."""

from __future__ import annotations

import asyncio
import statistics
import time
from datetime import timedelta
from threading import Timer

from edenmem.engine.service import MemoryService
from edenmem.models import told
from edenmem.models.told import Note, make_note, pack, unpack
from edenmem.settings.schema import Settings
from edenmem.store.sqlite import SqliteStore
from tests.benchmarks import data, plain
from tests.benchmarks.measure import Bench, Row, Target, milliseconds, p95
from tests.benchmarks.world import World

_PLAIN = "three plain SELECTs, joined"


def measure(bench: Bench) -> list[Row]:
    """On the world of the other subjects, and on a larger one without vectors if asked for."""
    rows = _of(bench, bench.world)
    if bench.context_size > bench.size:
        larger = World(bench.folder / "larger", bench.context_size, with_vectors=False)
        rows += _of(bench, larger)
    return rows


def _of(bench: Bench, world: World) -> list[Row]:
    store = SqliteStore(world.edenmem)
    hand = plain.connect(world.plain)
    since = int((data.NOW - timedelta(days=7)).timestamp() * 1000)
    taken: dict[str, list[float]] = {"plain": [], "kept": [], "anew": []}
    agrees = True
    with asyncio.Runner() as runner:
        service = MemoryService(store, Settings(), actor=data.ACTOR, clock=data.clock)
        waiting = service._runtime.told
        waiting._timer = Timer(0, waiting.flush)  # never started, so that the notes stay
        for turn in range(-2, bench.times(300)):
            agent, user = turn % data.AGENTS, turn // data.AGENTS % data.USERS
            session = data.session_id(agent, user)
            scopes = data.seen_by(agent, user)
            texts = ["", ""]

            def build(place: int, session: str = session, texts: list[str] = texts) -> None:
                work = service.get_memory_context(session, force_refresh=place == 0)
                texts[place] = runner.run(work)

            keys = [*(scope.key for scope in scopes), f"session:{data.agent_id(agent)}:{session}"]

            def read(keys: list[str] = keys) -> None:
                plain.context(hand, keys, since)

            once = {
                "plain": milliseconds(read),
                "anew": milliseconds(lambda: build(0)),
                "kept": milliseconds(lambda: build(1)),
            }
            agrees = agrees and texts[0] == texts[1] and "<Facts>" in texts[0]
            if turn >= 0:
                for name, ms in once.items():
                    taken[name].append(ms)
        notes = list(waiting._waiting)
    hand.close()
    baseline = p95(taken["plain"])
    name = f"context of a prompt, {world.size:,} facts"
    bound = Target("figure", 3 if world.size <= 100_000 else 10)
    rows = [
        Row(f"{name}, kept", "ms p95", p95(taken["kept"]), _PLAIN, baseline, bound, agrees),
        Row(f"{name}, rebuilt", "ms p95", p95(taken["anew"]), _PLAIN, baseline, bound, agrees),
        _noted(name, store, notes),
    ]
    store.database.close()
    return rows


def _noted(name: str, store: SqliteStore, notes: list[Note]) -> Row:
    """The processor time of the note of a new context, written with those of others."""
    lists = [(note.reply, unpack(packed)) for note in notes for packed in note.lists.values()]
    told._list_id.cache_clear()
    store.told.prune(data.NOW + timedelta(days=9))
    began = time.process_time()
    made = [make_note(reply, pack(items)) for reply, items in lists]
    store.told.add([note for note in made if note])
    spent = (time.process_time() - began) * 1000 / len(lists)
    size = statistics.mean(len(items) for _, items in lists)
    agrees = len(store.told.replies()) == len(lists)
    figures = (spent, f"a target for {size:.0f} items", 1.0, Target("figure", 1), agrees)
    return Row(f"{name}, its note", "ms of processor", *figures)
