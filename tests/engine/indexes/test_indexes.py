"""Index operations, waiting, and the test of a cluster, on a simulated Atlas."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from edenmem.engine.indexes import IndexKeeper, poll
from edenmem.errors import ConfigError, NotFoundError, StoreError
from edenmem.models.indexes import SearchTrial
from edenmem.store.mongo import MongoStore
from edenmem.store.mongo.core.collections import TEXT_INDEX, VECTOR_INDEX
from edenmem.store.protocol.store import Store
from tests.support.atlas_server import AtlasServer
from tests.support.embedder import FakeEmbedder
from tests.support.runtime import make_runtime
from tests.support.stores import secantus_store

pytestmark = pytest.mark.slow


class Time:
    """A clock that advances only by sleeping."""

    def __init__(self) -> None:
        self.now = 0.0
        self.naps: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.naps.append(seconds)


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def store(atlas: AtlasServer) -> Iterator[MongoStore]:
    with secantus_store(atlas.uri) as store:
        yield store


@pytest.fixture
def keeper(store: MongoStore, embedder: FakeEmbedder, time: Time) -> IndexKeeper:
    return IndexKeeper(make_runtime(store, embedder=embedder), clock=time, sleep=time.sleep)


# -- waiting -------------------------------------------------------------------------------------


def test_polls_slow_down_until_the_timeout(time: Time) -> None:
    assert not poll(lambda: False, timeout=60, clock=time, sleep=time.sleep)
    assert sum(time.naps) == pytest.approx(60)
    assert time.naps[0] < 1
    assert max(time.naps) == 5
    assert time.naps[:-1] == sorted(time.naps[:-1])


def test_polls_happen_at_least_once(time: Time) -> None:
    assert poll(lambda: True, timeout=0, clock=time, sleep=time.sleep)
    assert not poll(lambda: False, timeout=0, clock=time, sleep=time.sleep)
    assert time.naps == []


# -- the keeper ----------------------------------------------------------------------------------


def test_all_indexes_are_created_and_awaited(
    keeper: IndexKeeper, atlas: AtlasServer, time: Time
) -> None:
    atlas.build_steps = 20
    actions = {action.name: action for action in keeper.create()}
    assert actions[TEXT_INDEX].outcome == actions[VECTOR_INDEX].outcome == "made"
    assert {a.outcome for a in actions.values() if a.state.kind == "ordinary"} == {"there"}
    looks: list[list[str]] = []

    def progress(states: object) -> None:
        assert isinstance(states, list)
        looks.append([one.status for one in states])

    states = keeper.wait([VECTOR_INDEX, TEXT_INDEX], timeout=600, progress=progress)
    assert {one.status for one in states} == {"ready"}
    assert looks[0] == ["building", "building"]
    assert len(time.naps) == len(looks) - 1
    again = keeper.create(["search"])
    assert [action.outcome for action in again] == ["there", "there"]


def test_waiting_ends_at_the_timeout(keeper: IndexKeeper, atlas: AtlasServer, time: Time) -> None:
    """Known failure 32: a search against an index that is still building hung."""
    atlas.build_steps = 10_000
    keeper.create(["text"])
    (state,) = keeper.wait([TEXT_INDEX], timeout=90)
    assert state.status == "building"
    assert time.now == pytest.approx(90)


def test_a_failed_index_is_not_awaited(keeper: IndexKeeper, atlas: AtlasServer, time: Time) -> None:
    keeper.create(["text"])
    atlas.failure = "no room"
    (state,) = keeper.wait([TEXT_INDEX], timeout=90)
    assert (state.status, state.note, time.now) == ("failed", "no room", 0)


def test_an_update_ends_when_the_new_definition_is_in_use(
    store: MongoStore, keeper: IndexKeeper, atlas: AtlasServer, time: Time
) -> None:
    """Known failure 32: the old index stays queryable during an update."""
    keeper.create(["search"])
    keeper.wait([VECTOR_INDEX, TEXT_INDEX], timeout=90)
    other = IndexKeeper(
        make_runtime(store, embedder=FakeEmbedder(dimensions=24)), clock=time, sleep=time.sleep
    )
    (action,) = (a for a in other.create() if a.outcome == "different")
    assert action.name == VECTOR_INDEX
    assert action.state.differences == ("embedding.numDimensions: is 128, expected 24",)
    assert [a.outcome for a in other.update(other.states(), dry_run=True)].count(
        "would_update"
    ) == 1
    assert other.states([VECTOR_INDEX])[0].status == "different"
    atlas.build_steps = 4
    (updated,) = (a for a in other.update(other.states()) if a.outcome == "updated")
    assert "embed backfill" in updated.note
    (state,) = other.wait([VECTOR_INDEX], timeout=90)
    assert state.status == "ready"
    assert time.naps


def test_indexes_are_selected_by_name_or_kind(keeper: IndexKeeper) -> None:
    def names(*words: str) -> list[str]:
        return [state.name for state in keeper.states(words)]

    assert names("search") == names("vector", "text") == [VECTOR_INDEX, TEXT_INDEX]
    assert names(TEXT_INDEX) == [TEXT_INDEX]
    assert names("all") == names()
    assert set(names("ordinary")) == set(names()) - {VECTOR_INDEX, TEXT_INDEX}
    with pytest.raises(NotFoundError, match="nonsense"):
        keeper.states(["search", "nonsense"])


def test_unknown_dimensions_skip_the_vector_index(store: MongoStore) -> None:
    class Unknown(FakeEmbedder):
        @property
        def dimensions(self) -> int:
            raise ConfigError("how many dimensions is not known", hint="set embedding.dimensions")

    keeper = IndexKeeper(make_runtime(store, embedder=Unknown()))
    (notice,) = keeper.notices
    assert "set embedding.dimensions" in notice
    assert {a.name: a.outcome for a in keeper.create()}[VECTOR_INDEX] == "left_out"
    with pytest.raises(StoreError, match="dimensions"):
        keeper.create(["vector"])


def test_dry_runs_change_nothing(keeper: IndexKeeper) -> None:
    made = keeper.create(dry_run=True)
    assert [a.name for a in made if a.outcome == "would_make"] == [VECTOR_INDEX, TEXT_INDEX]
    dropped = keeper.drop(["edenmem_usage_time"], dry_run=True)
    assert [a.outcome for a in dropped] == ["would_drop"]
    assert {s.status for s in keeper.states(["search"])} == {"missing"}
    assert keeper.states(["edenmem_usage_time"])[0].status == "ready"


@pytest.mark.parametrize("kind", ["sqlite", "secantus"])
def test_other_stores_need_no_indexes(open_store: object, kind: str) -> None:
    assert callable(open_store)
    store: Store = open_store(kind)
    actions = IndexKeeper(make_runtime(store, embedder=FakeEmbedder())).create()
    assert {a.outcome for a in actions} <= {"there", "left_out"}


# -- the check of a cluster ----------------------------------------------------------------------


def check(store: Store, time: Time, timeout: float = 60) -> SearchTrial:
    wait = partial(poll, timeout=timeout, clock=time, sleep=time.sleep)
    return store.indexes.try_search("lucene.english", wait, lambda name: None)


def outcomes(report: SearchTrial) -> dict[str, str]:
    return {step.name: step.outcome for step in report.steps}


def trials(store: MongoStore) -> list[str]:
    return [
        n
        for n in store.connection.database.list_collection_names()
        if n.startswith("edenmem_trial")
    ]


@pytest.mark.parametrize("lag", [0, 7])
def test_a_documented_cluster_passes(
    store: MongoStore, atlas: AtlasServer, time: Time, lag: int
) -> None:
    atlas.lag = lag
    report = check(store, time)
    assert report.passed, [step for step in report.steps if step.outcome != "passed"]
    assert len(report.steps) == 15
    assert trials(store) == []


def test_a_failed_build_skips_the_rest_and_cleans_up(
    store: MongoStore, atlas: AtlasServer, time: Time
) -> None:
    atlas.build_steps = 100_000
    report = check(store, time)
    seen = outcomes(report)
    assert not report.passed
    assert seen["indexes become queryable"] == "failed"
    assert seen["exact vector search"] == "skipped"
    assert seen["scratch collection is removed"] == "passed"
    assert trials(store) == []


def test_documents_never_found_are_a_failure(
    store: MongoStore, atlas: AtlasServer, time: Time
) -> None:
    """Known failure 32: an unsearchable new document went unnoticed."""
    atlas.lag = 100_000
    seen = outcomes(check(store, time))
    assert seen["vectors as arrays are found"] == "failed"
    assert trials(store) == []


def test_wrong_answers_of_a_server_are_detected(
    store: MongoStore, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.support import atlas_filters, atlas_query

    monkeypatch.setattr(atlas_query, "_similarity", lambda kind, one, other: 0.5)
    monkeypatch.setattr(atlas_query, "mql", lambda filter, paths: atlas_filters.mql({}, paths))
    seen = outcomes(check(store, time))
    for name in ("vector scores are (1 + cosine) / 2", "vector filters"):
        assert seen[name] == "failed", seen
    assert seen["text filters"] == "passed"
    assert trials(store) == []


def test_an_interrupted_check_cleans_up(store: MongoStore, time: Time) -> None:
    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.indexes.try_search(
            "lucene.english",
            partial(poll, timeout=60, clock=time, sleep=interrupt),
            lambda name: None,
        )
    assert trials(store) == []


def test_a_database_without_search_commands_is_reported(sqlite_store: Store, time: Time) -> None:
    with pytest.raises(StoreError, match="no search commands"):
        check(sqlite_store, time)
