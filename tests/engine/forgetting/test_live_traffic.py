"""Forgetting during live traffic: work in progress must not restore anything."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from edenmem.engine.consolidation.consolidator import Consolidator
from edenmem.engine.erasure.passages import walk_passages
from edenmem.engine.formation.former import Former
from edenmem.models.formation import Trigger
from tests.engine.formation.conftest import fact, facts, reflections
from tests.support.builders import FixedClock
from tests.support.embedder import FakeEmbedder
from tests.support.forgetting import SETTINGS, Town, forgetter, make_town, subject_of
from tests.support.llm import FakeLLM
from tests.support.memory import add_reflection
from tests.support.runtime import make_runtime
from tests.support.stores import SECANTUS_TOO

if TYPE_CHECKING:
    from edenmem.store.protocol.store import Store


@pytest.fixture
def store(request: pytest.FixtureRequest, open_store: Any) -> Store:
    """Return an empty store of the kind in the parameter."""
    made: Store = open_store(request.param)
    return made


@pytest.fixture
def town(store: Store) -> Town:
    return make_town(store)


async def _forget(town: Town) -> None:
    one = forgetter(town.store)
    plan = await one.plan(subject_of(town.store, user="zenobia"))
    report = await one.forget(plan)
    assert report.complete, (report.remains, report.unfinished)


def _texts(store: Store) -> str:
    return "\n".join(passage.text for passage in walk_passages(store))


_KINDS = pytest.mark.parametrize("store", ["sqlite", SECANTUS_TOO], indirect=True)


@_KINDS
@pytest.mark.parametrize("task", ["facts", "reflections"])
def test_a_formation_during_its_model_call(town: Town, task: str) -> None:
    """The claim is withdrawn, so its result is dropped; the next run skips the messages."""
    found = facts("She keeps quince.", fact("Quince is rare.", scope="agent"))
    thought = reflections(user=["Loves quince."], agent=["Some love quince."])
    answers = {"facts": found, "reflections": thought, "dedup": {"decisions": []}}
    llm = FakeLLM(answers)

    async def meanwhile(_: Any) -> Any:
        await _forget(town)
        return answers[task]

    llm.script(task, meanwhile)
    former = Former(
        make_runtime(town.store, SETTINGS, llm=llm, embedder=FakeEmbedder(), clock=FixedClock())
    )
    (report,) = asyncio.run(former.form(town.own, town.eve, trigger=Trigger.FORCED))
    assert report.outcome == "taken"
    assert "uince" not in _texts(town.store)
    (again,) = asyncio.run(former.form(town.own, town.eve, trigger=Trigger.FORCED))
    assert again.outcome == "not_due"
    assert len(llm.requests_for(task)) == 1


@_KINDS
def test_a_consolidation_during_its_model_call(town: Town) -> None:
    for text in ("Likes quince.", "Plants quince.", "Sells quince.", "Eats quince."):
        add_reflection(town.store, town.her(), text)

    async def meanwhile(_: Any) -> Any:
        await _forget(town)
        return {"text": "A friend of quince."}

    llm = FakeLLM({"consolidate": meanwhile})
    consolidator = Consolidator(make_runtime(town.store, SETTINGS, llm=llm, clock=FixedClock()))
    report = asyncio.run(consolidator.consolidate(town.her()))
    assert report.outcome in ("nothing_pending", "not_due", "failed")
    assert "uince" not in _texts(town.store)
