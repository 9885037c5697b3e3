"""What changes to reflections, texts, settings and accounts do."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from edenmem.memory import Disorder, Effect, State, plan_all
from edenmem.models.changes import (
    AddAgent,
    AddFact,
    AddReflection,
    AddUser,
    Change,
    HoldItem,
    RemoveAgent,
    RemoveFact,
    RemoveHeld,
    RemovePolicy,
    RemoveReflection,
    RemoveUser,
    RepairBuffer,
    RestoreReflection,
    RevertConsolidation,
    ReviseReflection,
    SetAgentToggles,
    SetPrivacy,
    WriteConsolidation,
    WritePolicy,
)
from edenmem.models.memory import Consolidation, Reflection
from edenmem.models.records import HistoryEntry
from edenmem.models.scope import Scope
from tests.support.builders import (
    NOW,
    change_set,
    make_agent,
    make_fact,
    make_held,
    make_policy,
    make_reflection,
    make_user,
)

AGENT, USER = make_agent(), make_user()
SCOPE = Scope.user(AGENT.id, USER.id)
OTHER = Scope.agent(AGENT.id)
LATER = NOW + timedelta(hours=1)
STALE = "changed in the meantime: version 1, expected 7"


def play(state: State, *changes: Change) -> list[Effect]:
    return plan_all(change_set(*changes, at=LATER), state)


def answers(state: State, *changes: Change) -> list[tuple[str, str]]:
    return [(effect.result.status.value, effect.result.detail) for effect in play(state, *changes)]


def add(reflection: Reflection) -> AddReflection:
    return AddReflection(reflection=reflection, word_limit=300)


def write(version: int, *absorbed: Reflection, **fields: object) -> WriteConsolidation:
    return WriteConsolidation(
        scope=SCOPE,
        expected_version=version,
        content=f"text {version + 1}",
        word_limit=100,
        at=LATER,
        absorbed_ids=tuple(each.id for each in absorbed),
        **fields,
    )


def revert(version: int, *released: Reflection) -> RevertConsolidation:
    return RevertConsolidation(
        scope=SCOPE,
        expected_version=version,
        content="",
        word_limit=100,
        at=LATER,
        released_ids=tuple(each.id for each in released),
        reverted_versions=(version,),
    )


def text_of(effect: Effect) -> Consolidation:
    (found,) = [each.new for each in effect.writes if isinstance(each.new, Consolidation)]
    return found


def flags(effect: Effect) -> list[tuple[str, bool]]:
    found = [each.new for each in effect.writes]
    return [(each.id, each.absorbed) for each in found if isinstance(each, Reflection)]


# -- reflections ---------------------------------------------------------------------------------


def test_the_first_reflection_of_a_scope_makes_its_document() -> None:
    first, second = make_reflection(SCOPE, "one"), make_reflection(SCOPE, "two")
    one, two = play(State(), add(first), add(second))
    assert (text_of(one).version, text_of(one).word_limit) == (0, 300)
    assert [each.kind for each in two.writes] == ["reflection"]
    assert [(each.reflections, each.pending) for each in one.touches] == [(1, 1)]
    (again,) = play(State(), one.change)
    assert again.writes == one.writes  # the document's id too: two stores, and a retry, agree


def test_a_reflection_that_is_absorbed_does_not_wait() -> None:
    (effect,) = play(State(), add(make_reflection(SCOPE, absorbed=True)))
    assert [each.kind for each in effect.writes] == ["reflection"]
    assert [(each.reflections, each.pending) for each in effect.touches] == [(1, 0)]


def test_what_changes_to_reflections_meet_with() -> None:
    known, done = make_reflection(SCOPE, "known"), make_reflection(SCOPE, "done", absorbed=True)
    state = State()
    play(state, add(known), add(done))
    same = {"scope": SCOPE, "reflection_id": known.id, "at": LATER}
    other = msgspec.structs.replace(known, content="other")
    nowhere = msgspec.structs.replace(make_reflection(SCOPE), user_id=None)
    revise = ReviseReflection(**same, expected_version=7, content="x")
    assert answers(
        state,
        add(known),
        RestoreReflection(reflection=other, word_limit=0),
        add(nowhere),
        revise,
        msgspec.structs.replace(revise, reflection_id=done.id),
        msgspec.structs.replace(revise, scope=OTHER),
        RemoveReflection(**{**same, "scope": OTHER}, expected_version=1),
        SetPrivacy(
            scope=OTHER, target_type="reflection", target_id=known.id, private=True, at=LATER
        ),
        RemoveReflection(**same, expected_version=7),
        RemoveReflection(**same, expected_version=1),
        RemoveReflection(**same, expected_version=1),
    ) == [
        ("duplicate", "it already exists"),
        ("conflict", "another reflection has this id"),
        ("conflict", "a user scope needs a user"),
        ("conflict", STALE),
        ("conflict", "it has already been consolidated"),
        ("missing", "not found in this scope"),
        ("missing", "not found in this scope"),
        ("missing", "not found in this scope"),
        ("conflict", STALE),
        ("applied", ""),
        ("missing", "not found in this scope"),
    ]


def test_an_item_is_held_once_and_removed_from_its_own_scope() -> None:
    state, item = State(), make_held(SCOPE)
    hold, gone = HoldItem(held=item), RemoveHeld(scope=SCOPE, held_id=item.id)
    elsewhere = RemoveHeld(scope=OTHER, held_id=item.id)
    nowhere = HoldItem(held=msgspec.structs.replace(make_held(SCOPE), user_id=None))
    again = HoldItem(held=item)
    assert answers(state, hold, hold, again, nowhere, elsewhere, gone) == [
        ("applied", ""),
        ("already", ""),
        ("duplicate", "it already waits for review"),
        ("conflict", "a user scope needs a user"),
        ("missing", "not found in this scope"),
        ("applied", ""),
    ]
    assert state.held[item.id] is None


# -- texts ---------------------------------------------------------------------------------------


def test_a_text_absorbs_and_its_reverting_releases_in_order_of_time() -> None:
    late = make_reflection(SCOPE, "late")
    early = make_reflection(SCOPE, "early", formed_at=NOW - timedelta(days=1))
    state = State()
    *_, written = play(state, add(late), add(early), write(0, early, propagate=True))
    text = text_of(written)
    assert (text.version, text.absorbed_ids) == (1, (early.id,))
    assert (text.unabsorbed_ids, text.unpropagated_versions) == ((late.id,), (1,))
    assert (text.word_limit, text.last_consolidated_at) == (100, LATER)
    assert flags(written) == [(early.id, True)]
    (absorbed,) = [each.new for each in written.writes if isinstance(each.new, Reflection)]
    assert (absorbed.absorbed_at, absorbed.consolidated_into) == (LATER, text.id)
    assert [(each.version, each.action) for each in written.versions] == [(1, "consolidate")]
    assert [each.pending for each in written.touches] == [-1]
    (reverted,) = play(state, revert(1, early))
    text = text_of(reverted)
    assert (text.version, text.consolidated_content) == (2, "")
    assert (text.unabsorbed_ids, text.unpropagated_versions) == ((early.id, late.id), ())
    assert flags(reverted) == [(early.id, False)]
    assert reverted.entry is not None
    assert reverted.entry.released_ids == (early.id,)
    assert [(each.version, each.action) for each in reverted.versions] == [(2, "restore")]


def test_a_text_that_others_wrote_goes_to_history_before_it_is_replaced() -> None:
    text = text_of(play(State(), write(0))[0])
    theirs = msgspec.structs.replace(text, version=4, consolidated_content="theirs")
    (effect,) = play(State(texts={SCOPE: theirs}), write(4))
    kept: list[HistoryEntry] = list(effect.versions)
    assert [(each.version, each.content) for each in kept] == [(4, "theirs"), (5, "text 5")]


def test_what_changes_to_texts_meet_with() -> None:
    waiting, foreign = make_reflection(SCOPE, "a"), make_reflection(OTHER, "b")
    state = State()
    play(state, add(waiting), add(foreign))
    gone = "1 of the reflections are no longer in the buffer"
    not_absorbed = "1 of the reflections are not consolidated or no longer exist"
    assert answers(
        state,
        revert(7),
        write(7, waiting),
        write(0, foreign),
        write(0, waiting),
        write(0, waiting),
        write(1, waiting),
        revert(1, foreign),
        revert(1, waiting),
        write(2, waiting, as_version=9),
        write(9, as_version=2, propagate=True),  # never backwards
        write(10),
        write(11, propagate=True),
    ) == [
        ("conflict", "changed in the meantime: version 0, expected 7"),
        ("conflict", "changed in the meantime: version 0, expected 7"),
        ("conflict", gone),
        ("applied", ""),
        ("conflict", "changed in the meantime: version 1, expected 0"),
        ("conflict", gone),
        ("conflict", not_absorbed),
        *[("applied", "")] * 5,
    ]
    assert state.texts[SCOPE] is not None
    assert state.texts[SCOPE].version == 12
    assert state.texts[SCOPE].unpropagated_versions == (10, 12)
    assert answers(State(), revert(0)) == [("conflict", "the scope has no text")]


def test_a_buffer_is_repaired_once_and_only_where_the_store_says_so() -> None:
    disorder = Disorder(before={"pending": 3}, after={"pending": 1})
    state = State(repairs={SCOPE: disorder})
    repair = RepairBuffer(scope=SCOPE, at=NOW)
    done, again = play(state, repair, RepairBuffer(scope=SCOPE, at=NOW))
    assert done.repairs == SCOPE
    assert done.entry is not None
    assert done.entry.before == {"pending": 3, "id": text_of(done).id}
    assert (again.result.status, again.result.detail) == ("already", "the buffer is in order")


# -- settings and accounts -----------------------------------------------------------------------


def test_a_policy_is_written_and_removed_by_its_version() -> None:
    state, policy = State(), make_policy(SCOPE)
    same = {"expected_version": 0, "at": LATER}
    removal = RemovePolicy(scope=SCOPE, expected_version=1, at=LATER)
    assert answers(
        state,
        removal,
        WritePolicy(policy=policy, **same),
        WritePolicy(policy=make_policy(SCOPE), expected_version=7, at=LATER),
        msgspec.structs.replace(removal, id="1" * 24, expected_version=7),
        msgspec.structs.replace(removal, id="2" * 24),
        WritePolicy(policy=msgspec.structs.replace(policy, user_id=None), **same),
    ) == [
        ("missing", "the scope has no policy"),
        ("applied", ""),
        ("conflict", STALE),
        ("conflict", STALE),
        ("applied", ""),
        ("conflict", "a user scope needs a user"),
    ]


def test_toggles_change_what_they_name() -> None:
    state = State()
    toggles = SetAgentToggles(agent_id=AGENT.id, at=LATER, user_memory_enabled=False)
    missing, _, effect = play(
        state, toggles, AddAgent(agent=AGENT), msgspec.structs.replace(toggles, id="1" * 24)
    )
    assert missing.result.detail == "there is no such agent"
    after = msgspec.structs.replace(AGENT, user_memory_enabled=False)
    assert [each.new for each in effect.writes] == [after]


@pytest.mark.parametrize(
    ("use", "words"),
    [
        ({}, ""),
        ({"policies": 1, "facts": 2}, "has facts"),
        ({"sessions": 1}, "has sessions"),
        ({"has more in the host's collection: x": 1}, "has more in the host's"),
    ],
)
def test_who_is_used_stays(use: dict[str, int], words: str) -> None:
    state = State(agents={AGENT.id: AGENT}, used={("agent", AGENT.id): use})
    (effect,) = play(state, RemoveAgent(agent_id=AGENT.id))
    assert effect.result.ok is not bool(words)
    assert words in effect.result.detail


def test_what_a_set_brings_and_takes_counts_as_use() -> None:
    fact, state = make_fact(SCOPE), State()
    away = RemoveUser(user_id=USER.id), RemoveAgent(agent_id=AGENT.id)
    gone = RemoveFact(scope=SCOPE, fact_id=fact.id, expected_version=1, at=LATER)
    assert answers(
        state,
        AddAgent(agent=AGENT),
        AddUser(user=USER),
        AddUser(user=make_user(USER.username)),
        AddAgent(agent=make_agent(id=USER.id)),
        AddFact(fact=fact),
        *away,
        gone,
        *(msgspec.structs.replace(each, id=f"{place}" * 24) for place, each in enumerate(away)),
    ) == [
        ("applied", ""),
        ("applied", ""),
        ("conflict", f"ID or username already in use: {USER.username!r}"),
        ("conflict", f"ID or username already in use: 'agent-{USER.id}'"),
        ("applied", ""),
        ("conflict", f"{USER.username!r} has facts"),
        ("conflict", f"{AGENT.username!r} has facts"),
        ("applied", ""),
        ("applied", ""),
        ("applied", ""),
    ]
