"""What changes to facts do, on memory that is a few dictionaries."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec
import pytest

from edenmem.memory import Effect, State, fold, plan, plan_all
from edenmem.models.changes import AddFact, Change, ChangeStatus, RemoveFact, ReviseFact, SetPrivacy
from edenmem.models.forgetting import block
from edenmem.models.memory import Fact, FactFields, content_hash
from edenmem.models.scope import Scope
from tests.support.builders import ACTOR, NOW, change_set, make_actor, make_fact, removal

SCOPE = Scope.user("a" * 24, "b" * 24)
OTHER = Scope.agent("a" * 24)
LATER = NOW + timedelta(hours=1)


def play(state: State, *changes: Change, command: str = "test") -> list[Effect]:
    return plan_all(change_set(*changes, at=LATER, actor=make_actor(command)), state)


def holding(*facts: Fact) -> State:
    state = State()
    play(state, *(AddFact(fact=fact) for fact in facts))
    return state


def revise(fact: Fact, content: str, version: int = 1, **fields: object) -> ReviseFact:
    return ReviseFact(
        scope=fact.home,
        fact_id=fact.id,
        expected_version=version,
        content=content,
        at=LATER,
        **fields,
    )


def remove(fact: Fact, version: int = 1) -> RemoveFact:
    return removal(fact, expected_version=version, at=LATER)


def versions(effect: Effect) -> list[tuple[int, str, str]]:
    return [(each.version, each.action, each.content) for each in effect.versions]


def test_a_new_fact_is_written_with_its_audit_entry_and_no_history() -> None:
    fact = make_fact(SCOPE, embedding=b"1234", embedding_model="m")
    (effect,) = play(State(), AddFact(fact=fact))
    (write,) = effect.writes
    assert (write.old, write.new, write.kind) == (None, fact, "fact")
    assert effect.versions == ()
    assert effect.entry is not None
    assert effect.entry.before is None
    assert effect.entry.after is not None
    assert effect.entry.after["content"] == fact.content
    assert "embedding" not in effect.entry.after
    assert [(each.scope, each.facts) for each in effect.touches] == [(SCOPE, 1)]


def test_history_gets_the_replaced_version_once() -> None:
    fact = make_fact(SCOPE, "one")
    state = State()
    (added,) = play(state, AddFact(fact=fact), command="fact add")
    first, second = play(state, revise(fact, "two"), revise(fact, "three", 2))
    assert versions(first) == [(1, "add", "one"), (2, "edit", "two")]
    assert [each.change_id for each in first.versions] == [added.change.id, first.change.id]
    assert versions(second) == [(3, "edit", "three")]


def test_a_removal_leaves_a_tombstone_with_the_whole_fact_and_a_return_goes_on_from_it() -> None:
    fact = make_fact(SCOPE, "one", embedding=b"1234", embedding_model="m")
    state = holding(fact)
    again = AddFact(fact=msgspec.structs.replace(fact, version=1))
    revised, removed, back = play(state, revise(fact, "two"), remove(fact, 2), again)
    assert versions(removed) == [(2, "delete", "two")]
    gone = removed.versions[-1].snapshot
    assert gone is not None
    assert gone == revised.writes[0].new
    (write,) = back.writes
    assert isinstance(write.new, Fact)
    assert write.new.version == 2  # never lower than what was removed
    assert versions(back) == [(2, "restore", "one")]
    assert (removed.life, back.life) == (0, 1)
    ids = [each.id for effect in (revised, removed, back) for each in effect.versions]
    assert len(set(ids)) == len(ids)


def test_a_revision_for_its_sources_keeps_the_vector_and_a_new_text_does_not() -> None:
    fact = make_fact(SCOPE, "one", embedding=b"1234", embedding_model="m")
    state = holding(fact)
    same, other = play(state, revise(fact, "one"), revise(fact, "two", 2))
    kept, dropped = same.writes[0], other.writes[0]
    assert isinstance(kept.new, Fact)
    assert isinstance(dropped.new, Fact)
    assert kept.new.embedding is fact.embedding
    assert (dropped.new.embedding, dropped.new.embedding_model) == (None, None)


def test_a_new_text_replaces_vector_and_hash_and_keeps_the_rest() -> None:
    """Known failure 19: changed text kept the old vector."""
    old = make_fact(SCOPE, "one", private=True, embedding=b"1234", embedding_model="m")
    change = revise(
        old, "two", embedding=b"5678", embedding_model="n", source_message_ids=("c" * 24,)
    )
    (effect,) = play(holding(old), change)
    assert effect.writes[0].new == msgspec.structs.replace(
        old,
        content="two",
        hash=content_hash("two"),
        version=2,
        previous_content="one",
        updated_at=LATER,
        embedding=b"5678",
        embedding_model="n",
        source_message_ids=(*old.source_message_ids, "c" * 24),
    )


def test_a_twin_makes_an_addition_a_duplicate_for_ever() -> None:
    fact, twin = make_fact(SCOPE, "one"), make_fact(SCOPE, "one")
    state, change = holding(fact), AddFact(fact=twin)
    found, _, again = play(state, change, remove(fact), change)
    for effect in (found, again):
        assert effect.result.status is ChangeStatus.DUPLICATE
        assert effect.result.target_id == fact.id
        assert effect.writes == ()
    assert found.entry is not None
    assert (found.entry.status, found.entry.target_id) == ("void", fact.id)
    assert again.entry is None


def test_a_revision_to_the_text_of_a_twin_removes_its_target() -> None:
    fact, twin = make_fact(SCOPE, "one"), make_fact(SCOPE, "two")
    (effect,) = play(holding(fact, twin), revise(fact, "two"))
    assert (effect.result.status, effect.result.target_id) == (ChangeStatus.DUPLICATE, twin.id)
    assert [write.new for write in effect.writes] == [None]
    assert versions(effect) == [(1, "add", "one"), (1, "delete", "one")]


def test_later_changes_see_earlier_ones() -> None:
    fact, second = make_fact(SCOPE, "one"), make_fact(SCOPE, "one")
    changes = (
        AddFact(fact=fact),
        AddFact(fact=second),
        remove(fact),
        AddFact(fact=msgspec.structs.replace(second, private=True)),
        revise(fact, "two"),
    )
    found = [effect.result.status.value for effect in play(State(), *changes)]
    assert found == ["applied", "duplicate", "applied", "applied", "missing"]


OLD = make_fact(SCOPE, "one")
TAKEN = make_fact(OTHER, "other", id=OLD.id)
NOWHERE = msgspec.structs.replace(make_fact(SCOPE, "no owner"), user_id=None)
ELSEWHERE = msgspec.structs.replace(revise(OLD, "two"), scope=OTHER)
STALE = "changed in the meantime: version 1, expected 7"
GONE = "not found in this scope"


@pytest.mark.parametrize(
    ("change", "status", "detail"),
    [
        (AddFact(fact=TAKEN), "conflict", "another fact has this id"),
        (AddFact(fact=NOWHERE), "conflict", "a user scope needs a user"),
        (revise(OLD, "two", 7), "conflict", STALE),
        (remove(OLD, 7), "conflict", STALE),
        (ELSEWHERE, "missing", GONE),
        (msgspec.structs.replace(remove(OLD), scope=OTHER), "missing", GONE),
        (revise(OLD, "two", 7, or_add=make_fact(SCOPE, "new")), "added_instead", ""),
        (revise(make_fact(SCOPE), "x", or_add=make_fact(SCOPE, "new")), "added_instead", ""),
        (revise(OLD, "x", 7, or_add=make_fact(SCOPE, "one")), "duplicate", "the scope has the"),
        (
            SetPrivacy(scope=OTHER, target_type="fact", target_id=OLD.id, private=True, at=NOW),
            "missing",
            GONE,
        ),
        (
            SetPrivacy(scope=SCOPE, target_type="policy", target_id=OLD.id, private=True, at=NOW),
            "conflict",
            "a policy cannot be marked as private",
        ),
    ],
)
def test_what_a_change_meets_with(change: Change, status: str, detail: str) -> None:
    (effect,) = play(holding(OLD), change)
    assert effect.result.status == status
    assert effect.result.detail.startswith(detail)
    if not effect.result.ok:
        assert (effect.writes, effect.versions, effect.entry, effect.touches) == ((), (), None, ())


def test_what_was_forgotten_does_not_come_back() -> None:
    key = block("session", "s" * 24)
    state = State(blocks={key: True})
    refused, added = play(
        state,
        AddFact(fact=make_fact(SCOPE, "one", session_id="s" * 24)),
        AddFact(fact=make_fact(SCOPE, "two")),
    )
    assert refused.result.detail == "it or its owner was erased while this was in progress"
    assert added.result.ok


def test_a_change_that_was_applied_needs_nothing_more_and_a_plan_is_the_same_each_time() -> None:
    state, change = State(), AddFact(fact=make_fact(SCOPE))
    context = change_set(change)
    first = plan(change, state, context)
    assert plan(change, state, context) == first
    fold(state, first)
    again = plan(change, state, context)
    assert again.result.status is ChangeStatus.ALREADY
    assert again.entry is None


def test_how_a_version_came_to_be_follows_its_command() -> None:
    assert ACTOR.command == "test"
    formed = make_fact(SCOPE, "one", formation_id="f" * 24)
    for command, action in (("form", "form"), ("undo x", "restore"), ("migrate run", "migrate")):
        (effect,) = play(State(), AddFact(fact=formed), command=command)
        assert effect.origin is not None
        assert effect.origin.action == action


def test_a_whole_set_is_made_or_refused_together() -> None:
    kept, moved = make_fact(SCOPE), make_fact(SCOPE, "Anna has a boat.")
    state = holding(kept, moved)
    changes = (remove(kept), remove(moved, version=7))
    context = msgspec.structs.replace(change_set(*changes, at=LATER), whole=True)
    effects = plan_all(context, state)
    assert [each.result.status for each in effects] == [ChangeStatus.CONFLICT] * 2
    assert {each.result.detail for each in effects} == {effects[1].result.detail}
    assert [each.writes for each in effects] == [(), ()]
    context = msgspec.structs.replace(change_set(remove(kept)), whole=True)
    (effect,) = plan_all(context, holding(kept))
    assert effect.result.ok


@pytest.mark.parametrize("content", ["Anna lives in Lisbon.", "Anna lives in Faro."])
def test_a_doubt_goes_with_its_text_unless_it_is_named(content: str) -> None:
    fact = make_fact(SCOPE, "Anna lives in Lisbon.", unconfirmed="no quote", quote="in Lisbon")
    is_same = content == fact.content
    for given, expected in ((None, "no quote" if is_same else ""), ("", ""), ("why", "why")):
        assert revise(fact, content, unconfirmed=given).revise(fact).unconfirmed == expected


KEYED = FactFields(key="mem0/1", tags=("home",), metadata={"by": "mem0"}, value={"n": [1]})


def test_a_key_belongs_to_one_fact_of_its_scope() -> None:
    one = make_fact(SCOPE, "one", key="k")
    state = holding(one, make_fact(OTHER, "elsewhere", key="k"), other := make_fact(SCOPE, "one"))
    assert other.hash != one.hash, "the same sentence, with and without a key"
    again, taken = play(
        state,
        AddFact(fact=make_fact(SCOPE, "one", key="k")),
        AddFact(fact=make_fact(SCOPE, "two", key="k")),
    )
    assert (again.result.status, again.result.target_id) == (ChangeStatus.DUPLICATE, one.id)
    assert taken.result.status is ChangeStatus.CONFLICT
    assert one.id in taken.result.detail
    wanted = revise(other, "two", fields=FactFields(key="k"))
    again = msgspec.structs.replace(wanted, id="f" * 24)
    given_up = revise(one, "three", fields=FactFields())
    refused, freed, moved = play(state, wanted, given_up, again)
    assert refused.result.status is ChangeStatus.CONFLICT
    assert freed.result.ok
    assert moved.result.ok


def test_fields_have_versions_and_a_new_text_keeps_them() -> None:
    fact = make_fact(SCOPE, "one", embedding=b"1234", embedding_model="m")
    state = holding(fact)
    first, second = play(state, revise(fact, "one", fields=KEYED), revise(fact, "two", 2))
    assert [each.fields for each in first.versions] == [FactFields(), KEYED]
    assert [each.fields for each in second.versions] == [KEYED]
    assert first.writes[0].new == msgspec.structs.replace(
        fact.with_fields(KEYED), version=2, updated_at=LATER
    )
    assert first.entry is not None
    assert first.entry.before is not None
    assert "key" not in first.entry.before, "most facts have none"


@pytest.mark.parametrize(("days", "lasts"), [(None, None), (9, 9), (1, 2)])
def test_a_sentence_that_is_repeated_lasts_longer(days: int | None, lasts: int | None) -> None:
    def end(days: int | None) -> datetime | None:
        return None if days is None else LATER + timedelta(days=days)

    known = make_fact(SCOPE, "one", expires_at=end(2), tags=("home",))
    state = holding(known)
    (again,) = play(state, AddFact(fact=make_fact(SCOPE, "one", expires_at=end(days))))
    assert (again.result.status, again.result.target_id) == (ChangeStatus.DUPLICATE, known.id)
    now = state.facts[known.id]
    assert now is not None
    assert now.fields == known.fields.until(end(lasts))
    assert bool(again.writes) is (lasts != 2)
