"""Fixtures and rules of all tests: no network, no settings of the user, and stores."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Set
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings

from tests.support.builders import FixedClock
from tests.support.exhaustive import EXHAUSTIVE
from tests.support.names import stable
from tests.support.network import forbid_network

if TYPE_CHECKING:
    from secantus import SecantusDBServer

    from edenmem.store.protocol.store import Store
    from tests.support.atlas_server import AtlasServer
    from tests.support.embedder import FakeEmbedder
    from tests.support.llm import FakeLLM

pytest.register_assert_rewrite(
    "tests.support.llm", "tests.support.embedder", "tests.faults.days", "tests.faults.invariants"
)
forbid_network()

#: Read on import: fixtures clear the environment.
_MORE = os.environ.get("EDENMEM_HYPOTHESIS") == "more"
settings.register_profile(
    "edenmem",
    deadline=None,  # slow machines must not fail
    derandomize=not _MORE,  # repeatable, unless EDENMEM_HYPOTHESIS=more
    max_examples=1000 if _MORE else 30,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    print_blob=True,
)
settings.load_profile("edenmem")


#: A folder in memory for stores that are only read and written, if there is one.
_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None

#: Files whose tests share slow fixtures; one worker runs all tests of a file.
_TOGETHER = {"tests/hostile/test_hostile_conversations.py", "tests/test_architecture.py"}
#: Files whose tests look at one migration for each store.
_TOGETHER_BY_STORE = {f"tests/v1world/test_{name}.py" for name in ("again", "cases", "conflicts")}


#: Lines of files whose tests are all slow, or all exhaustive.
_ALL_SLOW = "pytestmark = pytest.mark.slow\n"
_ALL_EXHAUSTIVE = "pytestmark = pytest.mark.exhaustive\n"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import a file of which no test will run: every worker imports all others."""
    if not collection_path.name.startswith("test_"):
        return None
    text = collection_path.read_text("utf-8")
    is_slow = _ALL_SLOW in text and config.option.markexpr == "not slow"
    return is_slow or (_ALL_EXHAUSTIVE in text and not EXHAUSTIVE) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out exhaustive tests and most second rounds, unless all are asked for."""
    names = {item.nodeid for item in items}
    spared = [] if EXHAUSTIVE else [item for item in items if _is_spared(item, names)]
    if spared:
        config.hook.pytest_deselected(items=spared)
        left_out = set(spared)
        items[:] = [item for item in items if item not in left_out]


def _is_spared(item: pytest.Item, names: Set[str]) -> bool:
    """Return whether a test is exhaustive, or most likely shows nothing of its own.

    The contract shows that both stores do the same, and the engine does not know which one it has:
    of what SQLite shows of the engine, every eighth test is run again on MongoDB.
    """
    if item.get_closest_marker("exhaustive"):
        return True
    name = item.nodeid
    is_second = name.startswith("tests/engine/") and "secantus" in name
    return (
        is_second and name.replace("secantus", "sqlite") in names and crc32(name.encode()) % 8 > 0
    )


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Schedule tests one by one, except for files with shared fixtures.

    (The mark ``xdist_group`` has no effect since pytest 9.2: tests can no longer be renamed.)
    """
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            if file in _TOGETHER_BY_STORE:
                return f"{file} on {'mongodb' if 'mongodb' in nodeid else 'sqlite'}"
            return file if file in _TOGETHER else nodeid

    return Scheduling(config, log)


def pytest_xdist_auto_num_workers() -> int:
    """Return one more than processors: many tests wait for a process, a server or a disk."""
    return len(os.sched_getaffinity(0)) + 1


#: Variables of a user's shell that affect tests.
_FOREIGN = re.compile(
    r"EDENMEM_.*|OPENAI_.*|.*_PROXY|XDG_.*|NO_COLOR|FORCE_COLOR|CLICOLOR.*|COLUMNS|LINES|EDITOR"
    r"|VISUAL|PAGER|_TYPER_.*|TTY_.*",
    re.IGNORECASE,
)


def pytest_make_parametrize_id(config: pytest.Config, val: object, argname: str) -> str | None:
    """Return an ID that is the same in all test processes."""
    return name if (name := stable(val)) != str(val) else None


@pytest.fixture(autouse=True, scope="session")
def _private_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Set an empty home folder and a clean environment, also for subprocesses."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if _FOREIGN.fullmatch(name)]:
            patch.delenv(name)
        patch.setenv("HOME", str(home))
        for name, folder in {
            "XDG_DATA_HOME": ".local/share",
            "XDG_CONFIG_HOME": ".config",
            "XDG_CACHE_HOME": ".cache",
            "XDG_STATE_HOME": ".local/state",
        }.items():
            patch.setenv(name, str(home / folder))
        yield home


@pytest.fixture(autouse=True, scope="session")
def _short_waits() -> Iterator[None]:
    """Find out soon that there is no MongoDB: its driver looks again only after half a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pymongo.common.MIN_HEARTBEAT_INTERVAL", 0.01)
        yield


@pytest.fixture(autouse=True)
def _no_late_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write notes of replies when a service is closed, never after the end of a test."""
    monkeypatch.setattr("edenmem.engine.runtime.told.Timer", _NoTimer)


class _NoTimer:
    daemon = False

    def __init__(self, seconds: float, call: Callable[[], None]) -> None:
        self.start = self.cancel = lambda: None


@pytest.fixture
def clock() -> FixedClock:
    """Return a clock with the fixed time `builders.NOW`."""
    return FixedClock()


@pytest.fixture
def llm() -> FakeLLM:
    """Return a language model without a script; see `FakeLLM.script`."""
    from tests.support.llm import FakeLLM

    return FakeLLM()


@pytest.fixture
def embedder() -> FakeEmbedder:
    """Return an embedder that compares texts by their words."""
    from tests.support.embedder import FakeEmbedder

    return FakeEmbedder()


# -- stores --------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def _secantus() -> Iterator[SecantusDBServer]:
    from tests.support.mongo_server import secantus_server

    with secantus_server() as server:
        yield server


@pytest.fixture(scope="session")
def secantus_uri(_secantus: SecantusDBServer) -> str:
    """Return the address of a SecantusDB server over a real socket, one per worker."""
    return _secantus.uri


@pytest.fixture(scope="session")
def _atlas_server() -> Iterator[AtlasServer]:
    from tests.support.atlas_server import atlas_server

    with atlas_server() as server:
        yield server


@pytest.fixture
def atlas(_atlas_server: AtlasServer) -> AtlasServer:
    """Return a fake Atlas server with default settings, one per worker."""
    _atlas_server.reset()
    return _atlas_server


@pytest.fixture
def open_store(request: pytest.FixtureRequest) -> Iterator[Callable[[str], Store]]:
    """Return a function that opens an empty store of a kind, closed after the test."""
    from tests.support import stores

    with ExitStack() as opened:

        def open_one(kind: str) -> Store:
            match kind:
                case "sqlite":
                    # One of 2,000: pytest would keep them all until the end.
                    folder = opened.enter_context(TemporaryDirectory("", "store-", _MEMORY))
                    context = stores.sqlite_store(Path(folder))
                case "mongomock":
                    context = stores.mongomock_store()
                case "secantus":
                    context = stores.used_store(request.getfixturevalue("_secantus").databases)
                case "atlas":
                    context = stores.atlas_store(request.getfixturevalue("atlas"))
                case _:
                    raise ValueError(f"unknown kind of store: {kind}")
            return opened.enter_context(context)

        yield open_one


@pytest.fixture(params=["sqlite", "secantus"])
def store(request: pytest.FixtureRequest, open_store: Callable[[str], Store]) -> Store:
    """Return an empty store, once per kind.

    A test for one kind uses
    ``@pytest.mark.parametrize("store", ["sqlite"], indirect=True)`` or `sqlite_store`.
    """
    return open_store(request.param)


@pytest.fixture
def sqlite_store(open_store: Callable[[str], Store]) -> Store:
    """Return an empty SQLite store."""
    return open_store("sqlite")
