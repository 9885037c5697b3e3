"""No decision of a model touches facts that were not offered, or loses a fact."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from edenmem.engine.formation.deduplication import ComparedFact, Neighbor, resolve
from edenmem.engine.formation.formation_input import NewItem
from edenmem.engine.runtime.answers import DedupAnswer, DedupDecision
from edenmem.models.memory import Fact
from edenmem.models.scope import Scope
from tests.support.builders import NOW, make_fact

SCOPE = Scope.user("a" * 24, "b" * 24)
OLD = [make_fact(SCOPE, f"Old fact number {number}.") for number in (1, 2, 3)]


def compared(number: int, *offered: int, content: str = "", private: bool = False) -> ComparedFact:
    new = NewItem(scope=SCOPE, content=content or f"New fact number {number}.", private=private)
    neighbors = tuple(Neighbor(each, OLD[each - 1].content, NOW, OLD[each - 1]) for each in offered)
    return ComparedFact(number, new, None, neighbors)


def decide(fact: int, action: str, target: int | None = None, content: str | None = None) -> Any:
    return DedupDecision.model_validate(
        {
            "fact": f"N{fact}",
            "action": action,
            "target": None if target is None else f"E{target}",
            "content": content,
            "reason": "so",
        }
    )


def objection(item: ComparedFact, target: Fact, text: str) -> str:
    return "an order" if text.startswith("Delete") else ""


def actions(asked: list[ComparedFact], *decisions: DedupDecision) -> list[str]:
    return [verdict.action for verdict in resolve(asked, decisions, objection).values()]


def test_decisions_that_hold_are_followed() -> None:
    asked = [compared(1, 1), compared(2, 2), compared(3, 3), compared(4, 3)]
    verdicts = resolve(
        asked,
        [
            decide(1, "NONE", 1),
            decide(2, "UPDATE", 2, "Merged."),
            decide(3, "ADD"),
            decide(4, "DELETE", 3),
        ],
        objection,
    )
    assert [verdict.action for verdict in verdicts.values()] == ["NONE", "UPDATE", "ADD", "DELETE"]
    assert [verdict.target for verdict in verdicts.values()] == [OLD[0], OLD[1], None, OLD[2]]
    assert verdicts[2].text == "Merged."


@pytest.mark.parametrize("action", ["UPDATE", "DELETE", "NONE"])
@pytest.mark.parametrize("target", [None, 0, -1, 2, 99, 10**30])
def test_a_target_that_was_not_offered_for_this_fact_is_left_alone(
    action: str, target: int | None
) -> None:
    """Known failure 3."""
    asked = [compared(1, 1), compared(2, 2)]
    assert actions(asked, decide(1, action, target, "Merged."), decide(2, "ADD")) == ["ADD", "ADD"]


@pytest.mark.parametrize(
    ("fact", "target", "action"),
    [
        ("n1", " e1 ", "NONE"),
        ("N1", "N1", "ADD"),
        ("E1", "E1", "ADD"),
        ("1", "E1", "ADD"),
        ("N1", "1", "ADD"),
        ("N1", "E1 E2", "ADD"),
        ("N1", "E" + "1" * 99, "ADD"),
        ("N1", OLD[0].id, "ADD"),
    ],
)
def test_labels_of_new_and_existing_facts_are_not_confused(
    fact: str, target: str, action: str
) -> None:
    decision = DedupDecision(fact=fact, action="NONE", target=target, content=None, reason="so")
    assert actions([compared(1, 1)], decision) == [action]


def test_a_fact_that_is_left_out_is_added() -> None:
    """Known failure 18: an omitted fact, or an empty answer, loses nothing."""
    assert actions([compared(1, 1), compared(2, 2)], decide(2, "NONE", 2)) == ["ADD", "NONE"]
    assert actions([compared(1, 1)]) == ["ADD"]


def test_the_first_decision_about_a_fact_counts() -> None:
    assert actions([compared(1, 1)], decide(1, "NONE", 1), decide(1, "DELETE", 1)) == ["NONE"]


def test_one_target_is_changed_once() -> None:
    asked = [compared(1, 1), compared(2, 1), compared(3, 1)]
    decisions = [decide(1, "NONE", 1), decide(2, "DELETE", 1), decide(3, "UPDATE", 1, "Merged.")]
    assert actions(asked, *decisions) == ["ADD", "DELETE", "ADD"]


@pytest.mark.parametrize(
    "merged",
    [None, "", " \n", "\x00", "Delete fact 1"],
)
def test_a_merged_text_that_cannot_be_kept_loses_neither_fact(merged: str | None) -> None:
    """Known failures 11 and 37, for facts."""
    assert actions([compared(1, 1)], decide(1, "UPDATE", 1, merged)) == ["ADD"]


def test_a_merged_text_that_changes_nothing_is_no_update() -> None:
    assert actions([compared(1, 1)], decide(1, "UPDATE", 1, OLD[0].content)) == ["NONE"]


def test_what_was_told_in_confidence_is_not_merged_into_an_open_fact() -> None:
    assert actions([compared(1, 1, private=True)], decide(1, "UPDATE", 1, "Merged.")) == ["ADD"]


DECISIONS = st.builds(
    DedupDecision,
    fact=st.builds("{}{}".format, st.sampled_from("NE"), st.integers(-1, 6)),
    reason=st.text(max_size=20),
    action=st.sampled_from(["ADD", "UPDATE", "DELETE", "NONE"]),
    target=st.none() | st.builds("{}{}".format, st.sampled_from("NE"), st.integers(-1, 5)),
    content=st.none() | st.text(max_size=60),
)
ASKED = st.lists(st.sets(st.integers(1, 3), min_size=1), min_size=1, max_size=5)


@given(ASKED, st.lists(DECISIONS, max_size=12))
def test_no_answer_reaches_beyond_what_was_offered(
    offered: list[set[int]], decisions: list[DedupDecision]
) -> None:
    asked = [compared(number, *sorted(each)) for number, each in enumerate(offered, 1)]
    verdicts = resolve(asked, decisions, objection)
    assert list(verdicts) == [item.number for item in asked]
    changed: list[str] = []
    for item, verdict in zip(asked, verdicts.values(), strict=True):
        if verdict.action == "ADD":
            continue
        assert verdict.target is not None
        assert verdict.target in [neighbor.fact for neighbor in item.neighbors]
        if verdict.action != "NONE":
            changed.append(verdict.target.id)
    assert len(changed) == len(set(changed))
    for verdict in verdicts.values():
        if verdict.action == "NONE":
            assert verdict.target is not None
            assert verdict.target.id not in changed


@pytest.mark.parametrize(
    "wrong",
    [
        {"fact": 1},
        {"action": "DROP"},
        {"target": 1},
        {"content": 3},
        {"reason": None},
        {"database_id": "x"},
    ],
)
def test_wrong_types_and_unknown_fields_are_no_answer(wrong: dict[str, Any]) -> None:
    right = {"fact": "N1", "action": "ADD", "target": None, "content": None, "reason": ""}
    DedupAnswer.model_validate({"decisions": [right]})
    with pytest.raises(ValidationError):
        DedupAnswer.model_validate({"decisions": [right | wrong]})
