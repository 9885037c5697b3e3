"""All model calls are recorded, with a formation or separately, including failed ones."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from edenmem.engine.service import MemoryService
from edenmem.errors import ProviderAnswerInvalid, ProviderError, ProviderTimeout
from edenmem.models.formation import CallUsage, FormationStatus, Trigger
from edenmem.models.statistics import sum_by_model
from tests.engine.policies.conftest import SETTINGS, Governed
from tests.support.builders import ACTOR
from tests.support.formations import Steps
from tests.support.memory import add_reflection


def paid(kind: type[ProviderError], task: str, tokens: int) -> ProviderError:
    error = kind("it failed")
    error.usage = (CallUsage(task=task, model="m", input_tokens=tokens, cost=0.25),)
    return error


class FailingEmbedder:
    """An embedder that fails after a billed call."""

    model, dimensions = "fake", 8

    async def embed(self, texts: Any, *, role: Any) -> Any:
        raise paid(ProviderTimeout, "embed", 5)

    async def close(self) -> None:
        """Do nothing."""


def totals(governed: Governed) -> dict[str, tuple[int, int]]:
    return {
        t.model: (t.calls, t.input_tokens)
        for t in sum_by_model(governed.store.usage.usage_by_day())
    }


async def test_failed_attempts_stay_in_the_formation(governed_anywhere: Governed) -> None:
    governed = governed_anywhere
    governed.say("I keep a bell.")
    governed.llm.script("facts", [paid(ProviderAnswerInvalid, "facts", 3)])
    report = await governed.form_one()
    assert report.outcome == "waiting"
    assert [call.input_tokens for call in report.usage] == [3]
    [released] = governed.formations()
    assert [(call.task, call.input_tokens) for call in released.usage] == [("facts", 3)]

    governed.clock.advance(hours=1)
    governed.learn("Anna keeps a bell.")
    await governed.form_one(trigger=Trigger.FORCED)
    applied = governed.formation(FormationStatus.APPLIED)
    assert [call.task for call in applied.usage] == ["facts", "facts", "embed", "reflections"]
    assert totals(governed)["m"] == (1, 3)
    assert sum(calls for calls, _ in totals(governed).values()) == 4


async def test_usage_of_a_failed_embedding_is_recorded(governed: Governed) -> None:
    governed.say("I keep a bell.")
    governed.learn("Anna keeps a bell.")
    with pytest.raises(ProviderTimeout):
        await governed.form_one(embedder=FailingEmbedder())
    [released] = governed.formations()
    assert [(c.task, c.input_tokens) for c in released.usage][-1] == ("embed", 5)
    assert released.attempts == 0


async def test_usage_of_a_failed_comparison_is_recorded(governed: Governed) -> None:
    for number in range(2):
        governed.say(f"message {number}")
        governed.learn(f"Anna keeps the great bell number {number} in the tower.")
        governed.llm.script("dedup", paid(ProviderAnswerInvalid, "dedup", 11))
        await governed.form_one()
    assert totals(governed)["m"] == (1, 11)


async def test_usage_of_a_lost_claim_is_recorded(governed: Governed) -> None:
    governed.say("I keep a bell.")

    def lose(request: Any) -> Any:
        """Let the lease expire during the call, and another worker take the range."""
        [claimed] = governed.formations()
        now = governed.clock.advance(hours=1)
        assert Steps(governed.store).claim(
            claimed.id, worker="thief", now=now, lease_until=now + timedelta(minutes=5)
        )
        return {"facts": []}

    governed.llm.script("facts", [lose])
    report = await governed.form_one()
    assert report.outcome == "taken"
    assert sum(calls for calls, _ in totals(governed).values()) == len(report.usage) > 0


async def test_usage_of_consolidations_is_recorded_even_if_not_written(
    governed_anywhere: Governed,
) -> None:
    governed = governed_anywhere
    scope = governed.cast.anna_scope
    add_reflection(governed.store, scope, "Anna likes teal.")
    service = governed.service()
    governed.llm.script("consolidate", [paid(ProviderAnswerInvalid, "consolidate", 2)])
    assert (await service.consolidate(scope, force=True)).outcome == "failed"
    governed.llm.script("consolidate", [{"text": "  "}])  # rejected: blank
    assert (await service.consolidate(scope, force=True)).outcome == "failed"
    governed.llm.script("consolidate", [{"text": "A text."}])
    report = await service.consolidate(scope, force=True)
    assert (report.outcome, len(report.usage)) == ("written", 1)
    model = SETTINGS.llm.slow_model
    found = totals(governed)
    assert found["m"] == (1, 2)
    assert found[model][0] == 2
    calls = [
        t.calls
        for t in sum_by_model(governed.store.usage.usage_by_day(agent_id=governed.cast.eve.id))
    ]
    assert sum(calls) == 3


async def test_usage_of_a_conflicting_attempt_is_recorded(governed: Governed) -> None:
    from tests.support.memory import consolidate

    scope = governed.cast.anna_scope
    add_reflection(governed.store, scope, "Anna likes teal.")

    def late(request: Any) -> Any:
        consolidate(governed.store, scope, "Another was first.", expected_version=0)
        return {"text": "Too late."}

    governed.llm.script("consolidate", [late, {"text": "In time."}])
    report = await governed.service().consolidate(scope, force=True)
    assert (report.outcome, len(report.usage)) == ("written", 2)
    assert totals(governed)[SETTINGS.llm.slow_model][0] == 2


@pytest.mark.parametrize("fails", [False, True])
async def test_usage_of_recall_is_recorded(governed: Governed, fails: bool) -> None:
    answer: Any = paid(ProviderAnswerInvalid, "recall", 6) if fails else {"queries": []}
    governed.llm.script("recall", answer)
    service = MemoryService(
        governed.store, SETTINGS, llm=governed.llm, actor=ACTOR, clock=governed.clock
    )
    await service.assemble_context(governed.cast.session.id, message="Which bell?", recall="llm")
    [(calls, tokens)] = totals(governed).values()
    assert calls == 1
    assert tokens == 6 if fails else tokens > 0
