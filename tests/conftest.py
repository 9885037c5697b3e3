"""What holds for every test: no network, no settings of whoever runs it, and stores to use."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support.builders import FixedClock
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

#: Read at once: fixtures clear the environment.
_MORE = os.environ.get("EDENMEM_HYPOTHESIS") == "more"
settings.register_profile(
    "edenmem",
    deadline=None,  # a slow machine is no failure
    derandomize=not _MORE,  # what passed once passes again; who looks for more gets other examples
    max_examples=1000 if _MORE else 30,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    print_blob=True,
)
settings.load_profile("edenmem")


#: Files whose tests share what takes long to make. One worker has all of a file.
_TOGETHER = {"tests/hostile/test_hostile_conversations.py", "tests/test_architecture.py"}


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Each test goes to whoever is free, but for those that share something; the slow ones first.

    (The mark ``xdist_group`` does nothing since pytest 9.2: a test can no longer be renamed.)
    """
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return file if file in _TOGETHER else nodeid

    return Scheduling(config, log)


def pytest_xdist_auto_num_workers() -> int:
    """One more than processors: many tests wait for a process, a server or a disk."""
    return len(os.sched_getaffinity(0)) + 1


#: What a person's shell may hold that would change what a test sees.
_FOREIGN = re.compile(
    r"EDENMEM_.*|OPENAI_.*|.*_PROXY|XDG_.*|NO_COLOR|FORCE_COLOR|CLICOLOR.*|COLUMNS|LINES|EDITOR"
    r"|VISUAL|PAGER|_TYPER_.*|TTY_.*",
    re.IGNORECASE,
)


def pytest_make_parametrize_id(config: pytest.Config, val: object, argname: str) -> str | None:
    """All processes that run tests must name a case the same."""
    return name if (name := stable(val)) != str(val) else None


@pytest.fixture(autouse=True, scope="session")
def _private_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An empty home folder and a bare environment, for subprocesses too."""
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


@pytest.fixture
def clock() -> FixedClock:
    """A clock that stands at `builders.NOW` until it is moved."""
    return FixedClock()


@pytest.fixture
def llm() -> FakeLLM:
    """A language model without any script yet; see `FakeLLM.script`."""
    from tests.support.llm import FakeLLM

    return FakeLLM()


@pytest.fixture
def embedder() -> FakeEmbedder:
    """An embedder that knows similar texts by their words."""
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
    """The address of a SecantusDB server over a real socket, one for each worker of the run."""
    return _secantus.uri


@pytest.fixture(scope="session")
def _atlas_server() -> Iterator[AtlasServer]:
    from tests.support.atlas_server import atlas_server

    with atlas_server() as server:
        yield server


@pytest.fixture
def atlas(_atlas_server: AtlasServer) -> AtlasServer:
    """A stand-in for Atlas, one for each worker of the run, as patient as it is at first."""
    _atlas_server.reset()
    return _atlas_server


@pytest.fixture
def open_store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Store]]:
    """A function from a kind of store to a new, empty one, closed after the test."""
    from tests.support import stores

    with ExitStack() as opened:

        def open_one(kind: str) -> Store:
            match kind:
                case "sqlite":
                    context = stores.sqlite_store(tmp_path_factory.mktemp("store"))
                case "mongomock":
                    context = stores.mongomock_store()
                case "secantus":
                    context = stores.used_store(request.getfixturevalue("_secantus").databases)
                case "atlas":
                    context = stores.atlas_store(request.getfixturevalue("atlas"))
                case _:
                    raise ValueError(f"no such kind of store: {kind}")
            return opened.enter_context(context)

        yield open_one


@pytest.fixture(params=["sqlite", "secantus"])
def store(request: pytest.FixtureRequest, open_store: Callable[[str], Store]) -> Store:
    """An empty store, once for each kind.

    A test that needs one kind only says
    ``@pytest.mark.parametrize("store", ["sqlite"], indirect=True)`` or uses `sqlite_store`.
    """
    return open_store(request.param)


@pytest.fixture
def sqlite_store(open_store: Callable[[str], Store]) -> Store:
    """An empty SQLite store."""
    return open_store("sqlite")
