"""The context of a prompt: as it is kept, and rebuilt."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from edenmem.engine.service import MemoryService
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
        runner.run(service.close())
    hand.close()
    baseline = p95(taken["plain"])
    name = f"context of a prompt, {world.size:,} facts"
    bound = Target("figure", 3 if world.size <= 100_000 else 10)
    return [
        Row(f"{name}, kept", "ms p95", p95(taken["kept"]), _PLAIN, baseline, bound, agrees),
        Row(f"{name}, rebuilt", "ms p95", p95(taken["anew"]), _PLAIN, baseline, bound, agrees),
    ]
