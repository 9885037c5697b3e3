"""A switch to another embedding model breaks no search and loses nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any

import msgspec
import pytest

from edenmem.embed.protocol import Embedding, Role
from edenmem.engine.embeddings.status import switch_status
from edenmem.engine.embeddings.switch import ModelSwitcher, SwitchEnder, count_missing
from edenmem.engine.search.searcher import Searcher
from edenmem.errors import (
    BudgetExceeded,
    ConfigError,
    ConflictError,
    EmbeddingModelMismatch,
    NotFoundError,
    ProviderTimeout,
    StoreError,
    UsageError,
)
from edenmem.models.memory import Fact
from edenmem.models.scope import Scope
from edenmem.settings.schema import SearchSettings, Settings
from edenmem.store.mongo.search import switches as mongo_switches
from edenmem.store.protocol.store import Store
from edenmem.store.sqlite.search import switches as sqlite_switches
from tests.support.atlas_server import AtlasServer
from tests.support.builders import make_fact, revision, some
from tests.support.embedder import FakeEmbedder
from tests.support.interposed import InterposedStore
from tests.support.memory import add_fact, add_facts, applied
from tests.support.runtime import make_runtime
from tests.support.stores import ATLAS_TOO, SECANTUS_TOO
from tests.support.vectors import count_models

SETTINGS = Settings(search=SearchSettings(semantic_floor=0.5))
MIRA, OTTO = Scope.agent("a" * 24), Scope.agent("b" * 24)
OLD = FakeEmbedder(model="old", dimensions=32)
CAT = "Miso is a grey cat."


def new_model() -> FakeEmbedder:
    return FakeEmbedder(model="new", dimensions=48)


def known(text: str, scope: Scope = MIRA, embedder: FakeEmbedder = OLD) -> Fact:
    return make_fact(scope, text, embedding=embedder.vector(text), embedding_model=embedder.model)


@pytest.fixture(params=["sqlite", SECANTUS_TOO, ATLAS_TOO])
def store(request: pytest.FixtureRequest, open_store: Callable[[str], Store]) -> Store:
    """Return facts of two agents with vectors of the old model."""
    store = open_store(request.param)
    add_facts(store, known(CAT), *(known(f"number {n}") for n in range(7)), known("of otto", OTTO))
    return store


@pytest.fixture
def sqlite(sqlite_store: Store) -> Store:
    """Return the same facts in a file."""
    add_facts(sqlite_store, known(CAT), *(known(f"number {n}") for n in range(7)))
    return sqlite_store


def switcher(store: Store, embedder: FakeEmbedder | None = None) -> ModelSwitcher:
    return ModelSwitcher(
        make_runtime(store, SETTINGS, embedder=embedder or new_model()), sleep=lambda seconds: None
    )


def ender(store: Store) -> SwitchEnder:
    return SwitchEnder(make_runtime(store, SETTINGS), sleep=lambda seconds: None)


async def found(store: Store, embedder: FakeEmbedder, text: str = CAT) -> list[str]:
    searcher = Searcher(make_runtime(store, SETTINGS, embedder=embedder))
    report = await searcher.search([text], [MIRA], recipe="semantic", track=False)
    return [hit.fact.content for hit in report.hits]


async def filled(store: Store) -> None:
    at_work = switcher(store)
    report = await at_work.fill(await at_work.plan())
    assert not report.failed


class Always:
    """Search continuously in a thread, and collect errors."""

    def __init__(self, store: Store, embedder: FakeEmbedder) -> None:
        self.wrong: list[object] = []
        self.searches = 0
        self._stop = threading.Event()
        self._at_work = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(store, embedder))

    def __enter__(self) -> Always:
        self._thread.start()
        assert self._at_work.wait(60)
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self, store: Store, embedder: FakeEmbedder) -> None:
        while not self._stop.is_set():
            try:
                first = asyncio.run(found(store, embedder))[:1]
            except Exception as error:  # noqa: BLE001 - reported by the test
                self.wrong.append(error)
            else:
                self.wrong += [] if first == [CAT] else [first]
            self.searches += 1
            self._at_work.set()


async def test_searches_never_fail_during_a_switch(store: Store) -> None:
    """Known failure 37: a changed model led to dimension errors or wrong results."""
    before = await found(store, OLD)
    assert before[0] == CAT
    with Always(store, OLD) as reader:
        await filled(store)
        assert await found(store, OLD) == before
        report = await switcher(store).commit()
        assert report.embedded == 0
        assert await found(store, OLD) == before
    assert reader.wrong == []
    new = new_model()
    with Always(store, new) as reader:
        ending = await asyncio.to_thread(ender(store).drop_old)
    assert reader.wrong == []
    assert (ending.in_force, ending.facts) == ("new", 9)
    assert store.switches.vector_switch() is None
    assert (await found(store, new))[0] == CAT
    assert count_models(store) == {"new": 9}


async def test_concurrent_changes_are_embedded(store: Store) -> None:
    class Busy(FakeEmbedder):
        """A model that adds and edits facts while it embeds others."""

        async def embed(self, texts: Sequence[str], *, role: Role = "passage") -> Embedding:
            answer = await super().embed(texts, role=role)
            if len(self.calls) == 1:
                add_facts(store, known("learned meanwhile"))
                applied(
                    store,
                    revision(
                        changed,
                        "changed meanwhile",
                        scope=MIRA,
                        embedding=OLD.vector("changed meanwhile"),
                        embedding_model="old",
                    ),
                )
            return answer

    changed = add_fact(store, MIRA, "to change", embedding=OLD.vector("x"), embedding_model="old")
    busy = Busy(model="new", dimensions=48)
    await switcher(store, busy).commit()
    assert not list(store.vectors.stale_facts("new", dimensions=48))
    for text in ("learned meanwhile", "changed meanwhile"):
        assert (await found(store, new_model(), text))[0] == text


@pytest.mark.slow
async def test_a_switch_waits_for_atlas(
    open_store: Callable[[str], Store], atlas: AtlasServer
) -> None:
    """Known failure 31: recent writes were silently missing from search."""
    store = open_store("atlas")
    add_facts(store, known(CAT))
    atlas.lag = 3
    looked: list[str] = []
    await filled(store)
    await asyncio.to_thread(switcher(store).wait, 60, looked.append)
    assert any("is being built" in why for why in looked)
    await switcher(store).commit()
    assert await found(store, new_model()) == [CAT]


# -- before the switch ---------------------------------------------------------------------------


async def test_the_plan_shows_the_phase_and_a_second_run_resumes(sqlite: Store) -> None:
    plan = await switcher(sqlite).plan()
    assert (plan.begun, plan.backfill.facts, plan.switch.previous) == (False, 8, "old")
    assert plan.backfill.tokens > 0
    assert sqlite.switches.vector_switch() is None
    new = new_model()
    new.failures = [BudgetExceeded("enough")]
    report = await switcher(sqlite, new).fill(plan)
    assert report.stopped_early == "enough"
    with pytest.raises(EmbeddingModelMismatch) as caught:
        await found(sqlite, new_model())
    assert (caught.value.stored, caught.value.current) == ("old", "new")
    again = await switcher(sqlite).plan()
    assert again.begun
    assert (await switcher(sqlite).fill(again)).embedded == 8
    status = some(switch_status(sqlite))
    assert (status[0].phase, status[1].total.current, status[1].total.stale) == ("filling", 8, 0)


async def test_missing_vectors_keep_the_old_model_in_force(sqlite: Store) -> None:
    new = new_model()
    new.failures = [ProviderTimeout("slow"), ProviderTimeout("slow")]
    with pytest.raises(ConflictError, match="8 facts have no vector"):
        await switcher(sqlite, new).commit()
    assert (await found(sqlite, OLD))[0] == CAT
    add_fact(sqlite, MIRA, " ")  # blank facts have no vector, and do not block the switch
    report = await switcher(sqlite).commit()
    assert count_missing(report) == 0
    assert [batch.blank for batch in report.failed] == [True]


async def test_a_switch_needs_two_models(sqlite_store: Store) -> None:
    with pytest.raises(UsageError, match="no fact has a vector of another model"):
        await switcher(sqlite_store).plan()
    add_facts(sqlite_store, known(CAT, embedder=new_model()))
    with pytest.raises(UsageError, match="no fact has a vector of another model"):
        await switcher(sqlite_store).plan()
    add_facts(sqlite_store, known("more"))
    await filled(sqlite_store)
    other = FakeEmbedder(model="third", dimensions=48)
    with pytest.raises(ConflictError, match="to 'new'") as caught:
        await switcher(sqlite_store, other).plan()
    assert "abandon" in (caught.value.hint or "")


async def test_unknown_dimensions_are_determined(sqlite: Store) -> None:
    class Silent(FakeEmbedder):
        @property
        def dimensions(self) -> int:
            raise ConfigError("nobody knows")

    plan = await switcher(sqlite, Silent(model="new", dimensions=48)).plan()
    assert plan.switch.dimensions == 48


# -- after it --------------------------------------------------------------------------------------


async def test_back_and_forth(store: Store) -> None:
    await switcher(store).commit()
    add_facts(store, known("learned by the new", embedder=new_model()))
    searcher = Searcher(make_runtime(store, SETTINGS, embedder=OLD))
    report = await searcher.search([CAT], [MIRA])
    assert any("memory was switched to 'new'" in notice for notice in report.notices)
    ending = ender(store).back()
    assert (ending.in_force, ending.stale) == ("old", 1)
    assert (await found(store, OLD))[0] == CAT
    with pytest.raises(EmbeddingModelMismatch):
        await found(store, new_model())
    await switcher(store).commit()
    assert (await found(store, new_model(), "learned by the new"))[0] == "learned by the new"


async def test_an_abandoned_switch_keeps_the_old_model(store: Store) -> None:
    before = await found(store, OLD)
    await filled(store)
    ending = ender(store).abandon()
    assert (ending.in_force, ending.facts) == ("old", 9)
    assert await found(store, OLD) == before
    assert store.switches.vector_switch() is None
    await filled(store)  # and it may begin again


async def test_vectors_without_a_replacement_are_not_dropped(sqlite: Store) -> None:
    with pytest.raises(NotFoundError, match="no switch"):
        ender(sqlite).drop_old()
    await filled(sqlite)
    with pytest.raises(ConflictError, match="filling"):
        ender(sqlite).back()
    with pytest.raises(ConflictError, match="filling"):
        ender(sqlite).drop_old()
    await switcher(sqlite).commit()
    with pytest.raises(ConflictError, match="switched"):
        ender(sqlite).abandon()
    add_facts(sqlite, known("of an old process"))
    with pytest.raises(ConflictError, match="would lose"):
        ender(sqlite).drop_old()
    await switcher(sqlite).commit()
    assert ender(sqlite).drop_old().facts == 9


async def test_why_not_and_diversity_use_the_configured_model(sqlite: Store) -> None:
    from edenmem.engine.search.why_not import MissExplainer

    add_facts(sqlite, known("Miso is a cat, grey."), known("A grey cat named Miso."))
    await switcher(sqlite).commit()
    new = new_model()
    finder = MissExplainer(make_runtime(sqlite, SETTINGS, embedder=new))
    (fact,) = [
        f for f in sqlite.vectors.stale_facts("neither", dimensions=None) if f.content == CAT
    ]
    answer = await finder.why_not(fact.id, "grey cat", [MIRA])
    assert answer.vector.startswith("new")
    searcher = Searcher(make_runtime(sqlite, SETTINGS, embedder=new))
    report = await searcher.search(["grey cat"], [MIRA], mmr=True, top_k=3, explain=True)
    assert len(report.hits) > 1
    assert all("redundancy" in hit.explain["mmr"] for hit in report.hits)


# -- killed at every write -------------------------------------------------------------------------

_WRITES = ("set_vectors", "move_switch", "create_index")
_STEPS = ("settle_vectors", "clear_staged")


class Killed(BaseException):
    """An exception that no code of ours catches."""


class Fragile(InterposedStore):
    """A store that is killed before or after its ``nth`` write."""

    def __init__(self, store: Store, nth: int, *, after: bool) -> None:
        super().__init__(store)
        self._nth = nth
        self._after = after
        self.writes = 0

    def wrap(self, name: str, method: Any) -> Any:
        if name in _STEPS:
            return lambda: self._pages(method())
        if name not in _WRITES:
            return method

        def write(*args: object, **options: object) -> object:
            self._strike(after=False)
            answer = method(*args, **options)
            self._strike(after=True)
            return answer

        return write

    def _pages(self, pages: Iterator[int]) -> Iterator[int]:
        while True:
            self._strike(after=False)
            page = next(pages, None)
            if page is None:
                return
            self._strike(after=True)
            yield page

    def _strike(self, *, after: bool) -> None:
        self.writes += not after
        if self.writes == self._nth and after is self._after:
            self._nth = -1
            raise Killed


async def whole_road(store: Store) -> None:
    at_work = switcher(store)
    switch = store.switches.vector_switch()
    if switch is None or switch.phase in ("filling", "switched"):
        await at_work.fill(await at_work.plan(), concurrency=1)
        await at_work.commit(concurrency=1)
    ender(store).drop_old()


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("kind", ["sqlite", SECANTUS_TOO])
async def test_a_switch_killed_at_any_write_resumes(
    open_store: Callable[[str], Store], kind: str, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (sqlite_switches, mongo_switches):
        monkeypatch.setattr(module, "_PAGE", 1)
    for nth in count(1, 1 if kind == "sqlite" else 6):  # slow with a server
        store = open_store(kind)
        add_facts(store, known(CAT), known("more", OTTO))
        fragile = Fragile(store, nth, after=after)
        try:
            await whole_road(fragile)  # type: ignore[arg-type]
        except Killed:
            switch = store.switches.vector_switch()
            if switch is not None:
                in_force = OLD if switch.in_force == "old" else new_model()
                assert await found(store, in_force) == [CAT]
            if switch is not None or "old" in count_models(store):
                await whole_road(store)
        assert store.switches.vector_switch() is None
        assert count_models(store) == {"new": 2}
        assert await found(store, new_model()) == [CAT]
        if fragile.writes < nth:
            break
    assert nth > 10


async def test_a_failed_index_is_reported(sqlite: Store) -> None:
    from edenmem.models.indexes import IndexState

    state = IndexState(name="staged", kind="vector", collection="facts", status="building")

    class Slow(InterposedStore):
        def wrap(self, name: str, method: Any) -> Any:
            return (lambda: state) if name == "switch_index" else method

    ticks = iter(range(0, 10_000, 100))
    slow = ModelSwitcher(
        make_runtime(Slow(sqlite), SETTINGS, embedder=new_model()),
        monotonic=lambda: float(next(ticks)),
        sleep=lambda seconds: None,
    )
    with pytest.raises(StoreError, match="staged is being built"):
        slow.wait(250)
    state = msgspec.structs.replace(state, status="failed", note="no room")
    with pytest.raises(StoreError, match="no room"):
        slow.wait(250)
