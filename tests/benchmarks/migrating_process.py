"""One whole migration in a process of its own, which imports nothing that `edenmem` does not."""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.benchmarks.memory import private

#: Seconds between two looks at the memory.
_PACE = 0.02


class _Steps:
    """Time and memory of each step."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.processor: dict[str, float] = {}
        self.resident: dict[str, float] = {}
        self.private: dict[str, float] = {}
        self._begin = time.perf_counter(), time.process_time()
        self._most = 0.0
        self._over = threading.Event()
        self._watch = threading.Thread(target=self._sample, daemon=True)
        self._watch.start()

    def _sample(self) -> None:
        while not self._over.wait(_PACE):
            self._most = max(self._most, private())

    def end(self, step: str) -> None:
        """Note that ``step`` ends here; the next one begins."""
        now = time.perf_counter(), time.process_time()
        self.seconds[step], self.processor[step] = now[0] - self._begin[0], now[1] - self._begin[1]
        self.resident[step] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        self.private[step] = max(self._most, private())
        self._begin, self._most = now, 0.0

    def close(self) -> None:
        """End watching."""
        self._over.set()
        self._watch.join()


def main() -> None:
    """In the child: migrate, verify again, and print time and memory of each step."""
    kind, dump, target = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    if kind == "serve":
        _serve()
        return
    target.mkdir(parents=True)
    if kind == "sqlite":
        result = _migrate(f"sqlite:///{target / 'memory.db'}", dump)
    else:
        with _server() as uri:
            result = _migrate(f"{uri.rstrip('/')}/bench", dump)
    sys.stdout.write(json.dumps(result))


@contextmanager
def _server() -> Iterator[str]:
    command = [sys.executable, "-m", "tests.benchmarks.migrating_process", "serve", "-", "-"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        yield server.stdout.readline().decode().strip()
        server.communicate()


def _serve() -> None:
    """Be a server until standard input ends."""
    from tests.support.mongo_server import secantus_server

    with secantus_server() as server:
        sys.stdout.write(f"{server.uri}\n")
        sys.stdout.flush()
        sys.stdin.read()


def _migrate(uri: str, dump: str) -> dict[str, Any]:
    from edenmem.engine.factory import open_store, open_v1_plan
    from edenmem.engine.migration.reports import RunOptions
    from edenmem.engine.migration.run import V1Runner
    from edenmem.engine.migration.verification import verify
    from edenmem.models.changes import Actor
    from edenmem.settings.schema import Settings, StoreSettings
    from tests.support.runtime import make_runtime

    settings = Settings(store=StoreSettings(uri=uri))
    store = open_store(settings)
    store.database.initialize()
    options = RunOptions()
    actor = Actor(name="bench", host="bench", command="migrate v1")
    moved = threading.Event()
    steps = _Steps()

    def progress(step: str, done: int, total: int) -> None:
        if step != "moving" and not moved.is_set():
            moved.set()
            steps.end("moving")

    with open_v1_plan(settings, dump, options.v1) as plan:
        steps.end("reading")
        runner = V1Runner(make_runtime(store, settings, actor=actor), plan, options)
        report = asyncio.run(runner.run(progress=progress))
    assert report.verification is not None
    steps.end("verifying")
    with open_v1_plan(settings, dump, options.v1) as plan:
        again = verify(store, plan, report.run)
    steps.end("verifying again")
    steps.close()
    store.database.close()
    return {
        "documents": report.verification.documents,
        "complete": report.verification.complete and again.complete,
        "seconds": steps.seconds,
        "processor": steps.processor,
        "resident": steps.resident,
        "private": steps.private,
    }


if __name__ == "__main__":
    main()
