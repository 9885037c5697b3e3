"""The way back of each kind of change, judged on what there is: no store is needed for it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edenmem.memory.inverse import PastNeeds, past_needs, undo_id
from edenmem.models.changes import (
    EXPIRED,
    AddAgent,
    AddFact,
    AddReflection,
    AuditEntry,
    ChangeSet,
    ChangeStatus,
    RemoveFact,
    RemoveReflection,
    RevertConsolidation,
    ReviseFact,
    ReviseReflection,
    SetPrivacy,
    WritePolicy,
)
from edenmem.models.ids import new_id
from edenmem.models.memory import Fact, FactFields, Reflection
from edenmem.models.scope import Scope
from tests.engine.undoing.days import DEEDS, Day, remembered
from tests.memory.pure import Memory
from tests.support.builders import (
    ACTOR,
    NOW,
    make_agent,
    make_fact,
    make_policy,
    make_reflection,
    removal,
    writing,
)

AGENT = new_id()
SCOPE = Scope.user(AGENT, new_id())
SHARD = Scope.shard(AGENT, "lore")
LATER = NOW + timedelta(hours=1)


@pytest.fixture
def memory() -> Memory:
    return Memory()


def add_fact(memory: Memory, content: str = "one", **fields: Any) -> tuple[Fact, AuditEntry]:
    fact = make_fact(fields.pop("scope", SCOPE), content, **fields)
    return fact, memory.do(AddFact(fact=fact))


def revise(memory: Memory, fact: Fact, content: str, **fields: Any) -> AuditEntry:
    now = memory.state.facts[fact.id]
    assert now is not None
    change = ReviseFact(
        scope=SCOPE,
        fact_id=fact.id,
        expected_version=now.version,
        content=content,
        at=NOW,
        **fields,
    )
    return memory.do(change)


def remove(memory: Memory, fact: Fact) -> AuditEntry:
    return memory.do(removal(fact, scope=SCOPE))


def add_reflection(memory: Memory, content: str, minute: int = 0) -> tuple[Reflection, AuditEntry]:
    made = make_reflection(SCOPE, content, formed_at=NOW + timedelta(minutes=minute))
    return made, memory.do(AddReflection(reflection=made, word_limit=300))


def write(memory: Memory, content: str, version: int, *absorbed: Reflection) -> AuditEntry:
    change = writing(
        SCOPE,
        content,
        expected_version=version,
        absorbed_ids=tuple(each.id for each in absorbed),
        propagate=True,
    )
    return memory.do(change)


# -- fields --------------------------------------------------------------------------------------


def test_text_and_fields_are_undone_apart(memory: Memory) -> None:
    fact, _ = add_fact(memory)
    text = revise(memory, fact, "two")
    fields = revise(memory, fact, "two", fields=FactFields(key="k", tags=("home",)))
    later = revise(memory, fact, "two", fields=FactFields(key="k", tags=("work",)))
    undone = memory.invert(text)
    assert isinstance(undone.change, ReviseFact)
    assert (undone.change.content, undone.change.fields) == (
        "one",
        FactFields(key="k", tags=("work",)),
    )
    assert not undone.differs, "the text is as it was written"
    assert memory.invert(fields).differs, "the tags are not"
    memory.do(cast(Any, memory.invert(later).change))
    memory.do(cast(Any, memory.invert(fields).change))
    assert cast(Any, memory.state.facts[fact.id]).fields == FactFields()


def test_no_key_is_taken_back_from_another_fact(memory: Memory) -> None:
    fact, _ = add_fact(memory, key="k")
    given_up = revise(memory, fact, "one", fields=FactFields())
    gone, _ = add_fact(memory, "two", key="j")
    removed = remove(memory, gone)
    taken = [add_fact(memory, content, key=key)[0] for content, key in (("x", "k"), ("y", "j"))]
    for entry, rival in zip((given_up, removed), taken, strict=True):
        inverse = memory.invert(entry)
        assert inverse.blocked
        assert inverse.rival == rival.id


def test_a_fact_that_had_expired_comes_back_for_good(memory: Memory) -> None:
    fact, _ = add_fact(memory, expires_at=NOW, tags=("home",))
    entry = memory.do(RemoveFact.of(fact, NOW, EXPIRED))
    change = memory.invert(entry).change
    assert isinstance(change, AddFact)
    assert change.fact.fields == FactFields(tags=("home",))


# -- all of it -----------------------------------------------------------------------------------


@settings(max_examples=60)
@given(deeds=st.lists(st.tuples(st.sampled_from(DEEDS), st.integers(0, 10_000)), max_size=14))
def test_whatever_was_done_goes_back_and_comes_again(deeds: list[tuple[str, int]]) -> None:
    memory = Memory()
    agent = make_agent("agent")
    memory.add_agent(agent)
    day = Day(cast(Any, memory), agent, (Scope.user(agent.id, new_id()), Scope.agent(agent.id)))
    day.live([("add fact", 1), ("add reflection", 2), ("add reflection", 3), ("consolidate", 4)])
    day.live([("add reflection", number) for number in range(5, 8)])

    def state() -> dict[str, Any]:
        return remembered(cast(Any, memory), agent, day.scopes)

    def take_back(ids: list[str]) -> list[str]:
        undone = []
        for each in reversed(ids):
            at = day.clock.advance(seconds=1)
            inverse = memory.invert(memory.entries[each], at=at)
            assert not inverse.blocked
            assert not inverse.differs, inverse
            if inverse.change is not None:
                assert (inverse.change.id, inverse.change.undoes) == (undo_id(each), each)
                undone.append(memory.do(inverse.change, at=at).id)
        return undone

    first = state()
    made = day.live(deeds)
    then = state()
    undone = take_back(made)
    assert state() == first
    redone = take_back(undone)
    assert (state(), len(redone)) == (then, len(undone))


# -- facts ---------------------------------------------------------------------------------------


def test_a_fact_that_says_something_else_by_now_is_no_longer_what_was_added(memory: Memory) -> None:
    fact, added = add_fact(memory)
    assert not memory.invert(added).differs
    revise(memory, fact, "two")
    assert memory.invert(added).differs
    revise(memory, fact, "one")  # and back: versions do not count
    assert not memory.invert(added).differs
    memory.do(SetPrivacy(scope=SCOPE, target_type="fact", target_id=fact.id, private=True, at=NOW))
    assert memory.invert(added).differs


def test_a_fact_that_others_said_again_is_theirs_too(memory: Memory) -> None:
    fact, added = add_fact(memory)
    heard = revise(memory, fact, "one", source_message_ids=(new_id(),))
    assert memory.invert(added).differs
    inverse = memory.invert(heard)
    assert isinstance(inverse.change, ReviseFact)
    memory.do(inverse.change)
    assert not memory.invert(added).differs
    again = memory.invert(memory.entries[undo_id(heard.id)])
    assert isinstance(again.change, ReviseFact)
    assert list(again.change.source_message_ids) == heard.after["source_message_ids"][-1:]  # type: ignore[index]


def test_a_fact_comes_back_whole_and_above_its_tombstone(memory: Memory) -> None:
    fact, _ = add_fact(memory, embedding=b"\0\0\x80?", embedding_model="m", version=1)
    removed = remove(memory, fact)
    back = memory.invert(removed, at=LATER).change
    assert isinstance(back, AddFact)
    assert (back.fact.embedding, back.fact.version, back.fact.updated_at) == (
        fact.embedding,
        2,
        LATER,
    )
    rival, _ = add_fact(memory, "one")
    found = memory.invert(removed)
    assert (found.change, found.blocked, found.rival) == (None, True, rival.id)


def test_a_text_that_another_fact_has_can_only_be_had_by_force(memory: Memory) -> None:
    fact, _ = add_fact(memory)
    revised = revise(memory, fact, "two")
    twin, _ = add_fact(memory, "one")
    found = memory.invert(revised)
    assert (found.differs, found.blocked, twin.id in found.why) == (True, False, True)
    assert found.change is not None
    (result,) = memory.apply(ChangeSet(actor=ACTOR, at=NOW, changes=(found.change,)))
    assert (result.status, result.target_id) == (ChangeStatus.DUPLICATE, twin.id)
    assert memory.state.facts[fact.id] is None


# -- reflections ---------------------------------------------------------------------------------


def test_a_reflection_in_a_text_names_the_entry_by_which_it_went_in(memory: Memory) -> None:
    made, added = add_reflection(memory, "a")
    changed = memory.do(
        ReviseReflection(
            scope=SCOPE, reflection_id=made.id, expected_version=1, content="b", at=NOW
        )
    )
    written = write(memory, "T1", 0, made)
    of_adding, of_changing = memory.invert(added), memory.invert(changed)
    assert (of_adding.differs, of_adding.blocked, of_adding.by) == (True, False, (written.id,))
    assert (of_changing.change, of_changing.blocked) == (None, True)
    assert of_changing.by == (written.id,)


def test_a_removed_reflection_waits_again_if_its_text_was_taken_back_meanwhile(
    memory: Memory,
) -> None:
    made, _ = add_reflection(memory, "a")
    written = write(memory, "T1", 0, made)
    removed = memory.do(
        RemoveReflection(scope=SCOPE, reflection_id=made.id, expected_version=1, at=NOW)
    )
    kept = memory.invert(removed).change
    assert kept is not None
    assert kept.reflection.absorbed  # type: ignore[union-attr]
    undo = memory.invert(written).change
    assert undo is not None
    memory.do(undo, at=LATER)
    back = memory.invert(removed).change
    assert back is not None
    assert not back.reflection.absorbed  # type: ignore[union-attr]


def test_the_past_of_a_removed_reflection_is_that_of_its_text(memory: Memory) -> None:
    """Versions of the text and later reverts tell whether it waits again."""

    def removed(made: Reflection) -> AuditEntry:
        return memory.do(
            RemoveReflection(scope=SCOPE, reflection_id=made.id, expected_version=1, at=NOW)
        )

    waiting, _ = add_reflection(memory, "a")
    assert past_needs([removed(waiting)]) == PastNeeds()
    absorbed, _ = add_reflection(memory, "b")
    write(memory, "T1", 0, absorbed)
    needed = past_needs([removed(absorbed)])
    assert (needed.versions, needed.reverts) == ({SCOPE}, {SCOPE: NOW})


# -- texts ---------------------------------------------------------------------------------------


def test_a_text_under_later_ones_takes_them_along_by_force(memory: Memory) -> None:
    """Known failure 16: what is in no text and in no buffer is lost."""
    first, _ = add_reflection(memory, "a", 0)
    second, _ = add_reflection(memory, "b", 1)
    below = write(memory, "T1", 0, first)
    write(memory, "T2", 1, second)
    found = memory.invert(below)
    assert found.differs
    assert isinstance(found.change, RevertConsolidation)
    assert found.change.released_ids == (first.id, second.id)
    assert found.change.reverted_versions == (1, 2)
    memory.do(found.change)
    assert [each.content for each in memory.pending(SCOPE)] == ["a", "b"]
    assert memory.consolidations([SCOPE])[SCOPE].unpropagated_versions == ()


def test_the_first_text_takes_its_limit_along(memory: Memory) -> None:
    """A limit that is stored lasts on the platform, also without a text."""
    memory.do(cast(Any, memory.invert(write(memory, "T1", 0)).change))
    left = memory.consolidations([SCOPE])[SCOPE]
    assert (left.consolidated_content, left.word_limit) == ("", 0)


# -- settings and accounts -----------------------------------------------------------------------


def test_a_shard_with_memory_keeps_its_policy(memory: Memory) -> None:
    made = memory.do(WritePolicy(policy=make_policy(SHARD), expected_version=0, at=NOW))
    assert not memory.invert(made).differs
    _, added = add_fact(memory, scope=SHARD)
    assert memory.invert(made).differs
    gone = memory.invert(added).change
    assert gone is not None
    memory.do(gone)
    assert not memory.invert(made).differs


def test_an_agent_in_use_stays(memory: Memory) -> None:
    agent = make_agent("mira", id=AGENT)
    added = memory.do(AddAgent(agent=agent))
    add_fact(memory)
    found = memory.invert(added)
    assert (found.change, found.blocked, found.why) == (None, True, "the agent has facts")


# -- no way back ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"before": None, "after": None}, "what it changed was erased"),
        ({"action": "repair_buffer"}, "a repair cannot be undone"),
        (
            {"action": "of a later release"},
            "cannot be undone: 'of a later release'",
        ),
    ],
)
def test_what_cannot_be_taken_back_says_why(
    memory: Memory, fields: dict[str, Any], why: str
) -> None:
    _, added = add_fact(memory)
    found = memory.invert(msgspec.structs.replace(added, **fields))
    assert (found.change, found.blocked) == (None, True)
    assert found.why.startswith(why)
