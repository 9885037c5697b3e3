"""The LangGraph store, compared with the framework's own store in memory."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from langgraph.store.base import BaseStore, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore

from edenmem import MemoryService, SyncMemoryService, UsageError
from edenmem.integrations.langgraph import EdenmemStore
from edenmem.models.ids import utc_now
from edenmem.settings.schema import Settings
from edenmem.store.protocol.store import Store
from tests.support.builders import some

pytestmark = pytest.mark.slow

LENA = ("users", "lena")

WRITES: list[tuple[tuple[str, ...], str, dict[str, Any] | None]] = [
    (("docs",), "report", {"text": "Will likes AI.", "size": 3, "by": {"name": "Will"}}),
    (("docs", "v1"), "report", {"text": "Will likes AI.", "size": 5}),
    (("docs", "a/b% c"), "50%/é", {"size": 5, "list": [1, "two", None]}),
    ((*LENA, "prefs"), "food", {"text": "Lena likes tea."}),
    ((*LENA, "v1"), "food", {}),
    (("docs",), "report", {"text": "Will likes birds.", "size": 4, "by": {"name": "Will"}}),
    (("docs",), "gone", {"text": "Soon gone."}),
    (("docs",), "gone", None),
    (("users", "nobody"), "gone", None),
]

SEARCHES: list[dict[str, Any]] = [
    {"namespace_prefix": ("docs",)},
    {"namespace_prefix": ("docs", "v1")},
    {"namespace_prefix": ("docs",), "filter": {"size": {"$gt": 3, "$lte": 5}}},
    {"namespace_prefix": ("docs",), "filter": {"size": 5}},
    {"namespace_prefix": ("docs",), "filter": {"by": {"name": "Will"}, "size": {"$ne": 3}}},
    {"namespace_prefix": LENA},
    {"namespace_prefix": ("users", "nobody")},
]

LISTS: list[dict[str, Any]] = [
    {"prefix": ("docs",)},
    {"prefix": ("docs",), "max_depth": 1},
    {"prefix": ("docs", "*"), "limit": 1, "offset": 1},
    {"prefix": LENA},
    {"prefix": LENA, "suffix": ("v1",)},
    {"prefix": ("docs",), "suffix": ("*",)},
]


def answers(store: BaseStore) -> list[Any]:
    """Return what a store answers after the same writes."""
    for namespace, key, value in WRITES:
        if value is None:
            store.delete(namespace, key)
        else:
            store.put(namespace, key, value)
    got = [store.get(namespace, key) for namespace, key, _ in WRITES]
    found = [
        sorted((each.namespace, each.key, repr(each.value)) for each in store.batch([op])[0])
        for op in (SearchOp(**search) for search in SEARCHES)
    ]
    listed = [store.list_namespaces(**each) for each in LISTS]
    return [[each and (each.namespace, each.key, each.value) for each in got], found, listed]


def test_it_answers_as_the_store_of_the_framework(service: SyncMemoryService) -> None:
    assert answers(EdenmemStore(service, agent="mira")) == answers(InMemoryStore())
    shared = service.memory_for("mira").facts()
    keys = {"docs/report", "docs/v1/report", "docs/a%2Fb%25 c/50%25%2Fé"}
    assert {fact.key for fact in shared} == keys
    own = service.memory_for("mira", user="lena").facts(shared=False)
    assert {fact.content for fact in own} == {"Lena likes tea.", "food"}


def test_items_are_found_by_words_in_their_own_scope(service: SyncMemoryService) -> None:
    store = EdenmemStore(service, agent="mira")
    store.put(LENA, "food", {"text": "Lena likes tea.", "note": "and rain"})
    store.put(("docs",), "menu", {"text": "We serve tea."}, index=["text"])
    store.put(("docs",), "hidden", {"text": "Tea is hidden."}, index=False)
    assert [item.key for item in store.search(LENA, query="tea")] == ["food"]
    (found,) = store.search(("docs",), query="tea")
    assert found.key == "menu"
    assert found.score
    assert store.search(("docs",), query="tea", filter={"text": "no"}) == []
    long = {"text": "word " * 900 + "end"}
    store.put(("docs",), "long", long)
    item = some(store.get(("docs",), "long"))
    assert item.value == long


@pytest.mark.usefixtures("service")
def test_an_item_expires_and_can_be_written_again(store: Store) -> None:
    late = [timedelta()]
    memory = MemoryService(store, Settings(), clock=lambda: utc_now() + late[0])
    with SyncMemoryService(memory) as service:
        items = EdenmemStore(service, agent="mira")
        items.put(("docs",), "menu", {"text": "We serve tea."}, ttl=60)
        assert items.get(("docs",), "menu")
        late[0] = timedelta(hours=2)
        assert items.get(("docs",), "menu") is None
        items.put(("docs",), "menu", {"text": "We serve coffee."})
        assert [item.value for item in items.search(("docs",))] == [{"text": "We serve coffee."}]


def test_writers_at_the_same_time_leave_one_item(service: SyncMemoryService) -> None:
    store = EdenmemStore(service, agent="mira")

    async def write() -> None:
        await asyncio.gather(*(store.aput(("docs",), "n", {"n": n}) for n in range(3)))

    asyncio.run(write())
    assert len(store.search(("docs",))) == 1


def test_graphs_with_await_need_no_facade(service: SyncMemoryService) -> None:
    store = EdenmemStore(service.service, agent="mira", users=("memories",))
    put = PutOp(("memories", "lena"), "tea", {"text": "Lena likes tea."})
    service.run(store.abatch([put]))
    assert len(service.memory_for("mira", user="lena").facts(shared=False)) == 1
    with pytest.raises(UsageError, match="needs a SyncMemoryService"):
        store.get(("docs",), "x")


def test_secrets_are_refused(service: SyncMemoryService) -> None:
    store = EdenmemStore(service, agent="mira")
    with pytest.raises(UsageError, match="must not be remembered"):
        store.put(("docs",), "key", {"token": "sk-proj-" + "a1B2" * 12})
    with pytest.raises(UsageError, match="must not be remembered"):
        store.put(("docs",), "hidden", {"token": "sk-proj-" + "a1B2" * 12}, index=False)
    store.put(("docs",), str(uuid4()), {"text": "An ID is no secret."})
    with pytest.raises(UsageError, match="the limit is 16,384"):
        store.put(("docs",), "big", {"text": "so " * 8_000})
