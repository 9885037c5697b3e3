"""Reflections, their buffers, and consolidation in one atomic step."""

from __future__ import annotations

from datetime import timedelta

import pytest

from edenmem.models.changes import AddReflection, ChangeStatus
from edenmem.models.ids import new_id
from edenmem.models.memory import Reflection
from edenmem.models.scope import Scope
from edenmem.store.protocol.store import Store
from tests.support.builders import NOW, make_reflection
from tests.support.memory import applied, at_once, consolidate

LATER = NOW + timedelta(hours=1)
AGENT = new_id()
USER = new_id()
SCOPE = Scope.user(AGENT, USER)
OTHER = Scope.user(AGENT, new_id())
EVERY_SCOPE = (
    Scope.agent(AGENT),
    Scope.shard(AGENT, "garden: lore/2 🌱"),
    Scope.group(AGENT, new_id()),
    SCOPE,
    Scope.session(AGENT, new_id()),
)


def pending_ids(store: Store, scope: Scope) -> list[str]:
    """The IDs in the buffer; the document and the reflections must agree."""
    pending = [reflection.id for reflection in store.memory.pending(scope)]
    text = store.memory.consolidations([scope]).get(scope)
    assert sorted(text.unabsorbed_ids if text else ()) == sorted(pending)
    waiting = [r.id for r in store.memory.reflections([scope], absorbed=False)]
    assert sorted(waiting) == sorted(pending)
    return pending


def add_series(store: Store, scope: Scope, count: int) -> list[Reflection]:
    """Reflections a minute apart, in one set, oldest first."""
    series = [
        make_reflection(scope, f"Thought {n}.", formed_at=NOW + timedelta(minutes=n))
        for n in range(count)
    ]
    applied(store, *(AddReflection(reflection=r, word_limit=300) for r in series))
    return series


# -- adding and reading --------------------------------------------------------------------------


@pytest.mark.parametrize("scope", EVERY_SCOPE, ids=lambda scope: scope.kind)
def test_a_reflection_is_stored_and_pending(store: Store, scope: Scope) -> None:
    reflection = make_reflection(
        scope,
        source_message_ids=(new_id(), new_id()),
        private=True,
        formation_id=new_id(),
        propagated_from=(new_id(),),
        **({} if scope.session_id else {"session_id": new_id()}),
    )
    applied(store, AddReflection(reflection=reflection, word_limit=123))
    assert store.memory.reflection(reflection.id) == reflection
    assert store.memory.pending(scope) == [reflection]
    assert list(store.memory.reflections([scope])) == [reflection]
    text = store.memory.consolidations([scope])[scope]
    assert text.home == scope
    assert (text.version, text.consolidated_content, text.word_limit) == (0, "", 123)
    assert text.unabsorbed_ids == (reflection.id,)
    assert store.memory.reflection(new_id()) is None


def test_reflections_are_listed_newest_first_and_pending_oldest_first(store: Store) -> None:
    """Known failure 36: the "recent" reflections were the oldest twenty."""
    series = add_series(store, SCOPE, 30)
    ids = [reflection.id for reflection in series]
    assert store.memory.consolidations([SCOPE])[SCOPE].unabsorbed_ids == tuple(ids)
    assert [r.id for r in store.memory.reflections([SCOPE])] == ids[::-1]
    assert [r.id for r in store.memory.reflections([SCOPE], limit=20)] == ids[:9:-1]
    before = store.memory.reflections([SCOPE], before=series[5].formed_at, limit=2)
    assert [r.id for r in before] == [ids[4], ids[3]]
    between = {"since": series[3].formed_at, "before": series[5].formed_at}
    assert [r.id for r in store.memory.reflections([SCOPE], **between)] == [ids[4], ids[3]]
    assert pending_ids(store, SCOPE) == ids
    assert list(store.memory.reflections([])) == []
    assert store.memory.pending(OTHER) == []


def test_a_first_reflection_from_many_threads_starts_one_buffer(store: Store) -> None:
    """Known failure 17: get-or-create was a find and an insert; a race lost a reflection."""
    reflections = [make_reflection(SCOPE, f"Thought {n}.") for n in range(8)]
    at_once(8, lambda n: applied(store, AddReflection(reflection=reflections[n], word_limit=300)))
    assert set(pending_ids(store, SCOPE)) == {reflection.id for reflection in reflections}


# -- consolidation -------------------------------------------------------------------------------


def test_of_many_writers_one_wins(store: Store) -> None:
    """Known failure 15: a version has only one next version."""
    series = add_series(store, SCOPE, 8)
    results = at_once(
        8,
        lambda n: consolidate(
            store, SCOPE, f"text {n}", expected_version=0, absorbed_ids=[series[n].id]
        ),
    )
    winners = [n for n, result in enumerate(results) if result.status is ChangeStatus.APPLIED]
    assert len(winners) == 1
    assert {r.status for r in results} == {ChangeStatus.APPLIED, ChangeStatus.CONFLICT}
    text = store.memory.consolidations([SCOPE])[SCOPE]
    assert (text.version, text.consolidated_content) == (1, f"text {winners[0]}")
    others = [r.id for n, r in enumerate(series) if n != winners[0]]
    assert pending_ids(store, SCOPE) == others


@pytest.mark.slow
def test_more_than_a_hundred_pending_are_all_read_and_absorbed(store: Store) -> None:
    """Known failure 10: only the first hundred were read, and the rest removed as orphans."""
    series = add_series(store, SCOPE, 120)
    ids = [reflection.id for reflection in series]
    assert pending_ids(store, SCOPE) == ids
    consolidate(store, SCOPE, "most", expected_version=0, absorbed_ids=ids[:119])
    assert pending_ids(store, SCOPE) == ids[119:]
    assert len(list(store.memory.reflections([SCOPE], absorbed=True))) == 119
    consolidate(store, SCOPE, "all", expected_version=1, absorbed_ids=ids[119:])
    assert pending_ids(store, SCOPE) == []
    assert len(list(store.memory.reflections([SCOPE]))) == 120


def test_reflections_added_during_consolidation_stay_pending(store: Store) -> None:
    """Known failures 16 and 17: concurrent additions were lost, or absorbed unread."""
    first = [r.id for r in add_series(store, SCOPE, 6)]
    late = [make_reflection(SCOPE, f"Late {n}.", formed_at=LATER) for n in range(7)]

    def work(number: int) -> None:
        if number == 0:
            result = consolidate(store, SCOPE, "text", expected_version=0, absorbed_ids=first)
            assert result.status is ChangeStatus.APPLIED
        else:
            applied(store, AddReflection(reflection=late[number - 1], word_limit=300))

    at_once(8, work)
    assert set(pending_ids(store, SCOPE)) == {reflection.id for reflection in late}
    assert {r.id for r in store.memory.reflections([SCOPE], absorbed=True)} == set(first)
    assert store.memory.consolidations([SCOPE])[SCOPE].version == 1


@pytest.mark.parametrize(
    "content",
    ["VERSION: 99\nMine.", "VERSION: 1", "\n\n  indented \n", "VERSION: x\n\nVERSION: 3\n", "…"],
)
def test_texts_round_trip(store: Store, content: str) -> None:
    """The platform's VERSION line is not shown, and a user's similar line is kept."""
    assert consolidate(store, SCOPE, content, expected_version=0).ok
    text = store.memory.consolidations([SCOPE])[SCOPE]
    assert (text.consolidated_content, text.version) == (content, 1)
    assert consolidate(store, SCOPE, content + "!", expected_version=1).ok
    assert store.memory.consolidations([SCOPE])[SCOPE].version == 2
    history = store.history.versions("consolidation", "", scope=SCOPE)
    assert [entry.content for entry in history] == [content, content + "!"]


def test_consolidations_of_many_scopes_at_once(store: Store) -> None:
    for scope in EVERY_SCOPE:
        assert consolidate(store, scope, f"text of {scope.key}", expected_version=0).ok
    texts = store.memory.consolidations([*EVERY_SCOPE, OTHER])
    assert texts.keys() == set(EVERY_SCOPE)
    for scope, text in texts.items():
        assert text.home == scope
        assert text.consolidated_content == f"text of {scope.key}"
    assert store.memory.consolidations([]) == {}
