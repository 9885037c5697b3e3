"""v1 texts that conflict with v2 texts, and later runs after v1 has changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from edenmem.engine.migration.planning import make_plan
from edenmem.engine.migration.reports import RunOptions
from edenmem.models.changes import AddReflection, ReviseReflection, WriteConsolidation, WritePolicy
from edenmem.models.ids import derived_id
from edenmem.models.scope import Scope
from edenmem.models.v1 import V1Item
from edenmem.store.protocol.store import Store
from tests.engine.migration_runs import listed
from tests.engine.migration_runs.conftest import BOTH, Migrate, roll_back
from tests.engine.migration_runs.listed import AGENT, OTHER, USER, ListedPlan, whole_plan
from tests.support.builders import NOW, ago, change_set, make_actor, make_policy, make_reflection
from tests.support.runtime import make_runtime
from tests.support.v1_files import write_dump
from tests.support.v1_plans import plan_of as plan_in
from tests.support.v1_world import LENA, MIRA, TOMAS, at, memory, user_text

pytestmark = pytest.mark.slow

USERS, AGENTS = Scope.user(AGENT, USER), Scope.agent(AGENT)
LORE = Scope.shard(AGENT, "lore")


def write(content: str, expected: int = 0, scope: Scope = USERS, **fields: Any) -> Any:
    change = WriteConsolidation(
        scope=scope, expected_version=expected, content=content, word_limit=300, at=NOW, **fields
    )
    return change_set(change)


def texts(store: Store, scope: Scope = USERS) -> list[str]:
    """Return all versions of a scope's text, oldest first; the last one is current."""
    versions = store.history.versions("consolidation", "", scope=scope)
    found = store.memory.consolidations([scope]).get(scope)
    assert (found.consolidated_content if found else "") == (
        versions[-1].content if versions else ""
    )
    return [each.content for each in versions]


def plan_of(*items: V1Item, absorbed: Sequence[str] = ()) -> ListedPlan:
    return ListedPlan(items, absorbed=absorbed)


def pair(*, versions: tuple[int, int] = (1, 1)) -> V1Item:
    """Return an item with two texts of one agent and user."""
    older = listed.earlier("Older.", versions[0], days=300)
    return listed.text(USERS, "Newer.", version=versions[1], earlier=(older,))


@pytest.mark.parametrize("live_version", [1, 2, 3])
@pytest.mark.parametrize("versions", [(1, 1), (2, 5), (8, 3)])
def test_known_failure_76_a_live_text_is_kept(
    store: Store, migrate: Migrate, live_version: int, versions: tuple[int, int]
) -> None:
    """Known failure 76: an older text of the pair took the number of the live one."""
    for number in range(live_version):
        store.changes.apply(write("Live." if number == live_version - 1 else f"{number}", number))
    before = texts(store)
    report = migrate(plan_of(pair(versions=versions)))
    assert texts(store) == before
    assert report.run.counts == {"kept": 1}


@BOTH
def test_known_failure_76_a_concurrent_text_is_kept(
    store: Store, migrate: Migrate, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = store.changes.apply

    def late(changes: Any) -> Any:
        monkeypatch.undo()
        original(write("Live."))
        return original(changes)

    monkeypatch.setattr(store.changes, "apply", late)
    report = migrate(plan_of(pair()))
    assert texts(store) == ["Live."]
    assert "changed concurrently" in report.run.problems[0].reason


@BOTH
@pytest.mark.parametrize("on_conflict", ["keep", "replace"])
def test_a_plan_matches_its_run(store: Store, migrate: Migrate, on_conflict: Any) -> None:
    """Also after changes in v1, and for memory edited, moved or begun here."""
    options = {"on_conflict": on_conflict}
    store.changes.apply(write("Live.", scope=AGENTS))
    store.changes.apply(
        change_set(WritePolicy(policy=make_policy(LORE), expected_version=0, at=NOW))
    )
    stranger = listed.toggles(enabled=True)
    other = Scope.user(AGENT, OTHER)
    worlds = [
        [*whole_plan().listed, pair_of(other, "First.")],
        [pair_of(other, "Second."), listed.text(USERS, "Anna sails.", at=ago(days=1)), stranger],
        whole_plan().listed,
    ]
    told = set()
    for items in worlds:
        plan = ListedPlan(items)
        foretold = make_plan(make_runtime(store), plan, RunOptions(**options))
        report = migrate(plan, **options)
        assert foretold.outcomes == dict(sorted(report.run.counts.items()))
        kept = [each.reason for each in foretold.conflicts if each.treatment == "kept"]
        assert kept == [
            problem.reason for problem in report.run.problems if "v2 has" in problem.reason
        ]
        told |= {(each.scope, each.treatment) for each in foretold.conflicts}
    treatment = {"keep": "kept", "replace": "replaced"}[on_conflict]
    assert told == {
        (AGENTS.key, treatment),
        (LORE.key, "kept"),
        (USERS.key, "followed"),
        (other.key, "followed"),
    }


def pair_of(scope: Scope, content: str) -> V1Item:
    older = listed.earlier(f"Before {content}", 1, days=300)
    return listed.text(scope, content, version=2, earlier=(older,))


@pytest.mark.parametrize(
    ("on_conflict", "first", "second"),
    [
        ("keep", ["Live."], ["Live."]),
        ("replace", ["Live.", "One."], ["Live.", "One.", "Two."]),
    ],
)
def test_a_conflict_is_resolved_once_and_then_v1_is_followed(
    store: Store, migrate: Migrate, on_conflict: str, first: list[str], second: list[str]
) -> None:
    store.changes.apply(write("Live."))
    one, two = listed.text(USERS, "One."), listed.text(USERS, "Two.", at=ago(days=2))
    for plan, wanted in ((one, first), (one, first), (two, second), (two, second), (one, second)):
        migrate(plan_of(plan), on_conflict=on_conflict)
        assert texts(store) == wanted


@pytest.mark.parametrize("on_conflict", ["keep", "replace"])
def test_an_edited_text_is_kept_and_listed(
    store: Store, migrate: Migrate, on_conflict: str
) -> None:
    migrate(plan_of(listed.text(USERS, "One.")))
    store.changes.apply(write("One, and more.", 1))
    newer = plan_of(listed.text(USERS, "Two.", at=ago(days=2)))
    report = migrate(newer, on_conflict=on_conflict)
    assert texts(store) == ["One.", "One, and more."]
    assert report.run.counts == {"kept": 1}
    (problem,) = report.run.problems
    assert "edited since its migration" in problem.reason
    # Only its pending list is new, so there is no conflict.
    touched = listed.text(USERS, "One.", sources=(listed.ref("memory_user", "touched"),))
    assert migrate(plan_of(touched), on_conflict=on_conflict).run.counts == {"already": 1}


def test_an_older_v1_text_does_not_return(store: Store, migrate: Migrate) -> None:
    migrate(plan_of(listed.text(USERS, "Newer.")))
    report = migrate(plan_of(listed.text(USERS, "Older.", at=ago(days=200))))
    assert texts(store) == ["Newer."]
    assert "newer v1 text" in report.run.problems[0].reason


def test_reverted_runs_do_not_count(store: Store, migrate: Migrate) -> None:
    store.changes.apply(write("Live."))
    run = migrate(plan_of(listed.text(USERS, "One.")), on_conflict="replace").run
    runtime = make_runtime(store, actor=make_actor("migrate rollback"))
    roll_back(runtime, run.id)
    newer = plan_of(listed.text(USERS, "Two.", at=ago(days=2)))
    assert migrate(newer).run.counts == {"kept": 1}
    migrate(newer, on_conflict="replace")
    assert texts(store)[-1] == "Two."


class Killed(BaseException):
    """The process is killed."""


def test_a_replacement_survives_a_kill(
    store: Store, migrate: Migrate, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.changes.apply(write("Live."))
    original = store.changes.apply

    def dying(changes: Any) -> Any:
        found = original(changes)
        if any(change.at == ago(days=300) for change in changes.changes):
            raise Killed
        return found

    with monkeypatch.context() as patch:
        patch.setattr(store.changes, "apply", dying)
        with pytest.raises(Killed):
            migrate(plan_of(pair()), on_conflict="replace")
    for _ in range(2):  # the texts of a pair come together
        assert texts(store) == ["Live.", "Older.", "Newer."]
        migrate(plan_of(pair()), on_conflict="replace")


@BOTH
def test_reflections_absorbed_by_v1_are_absorbed_here(store: Store, migrate: Migrate) -> None:
    """Edited and live reflections, and those pending in v1 too, stay pending."""
    waiting = [listed.reflection(USERS, name, place=place) for place, name in enumerate("abcd")]
    ids = {name: derived_id("reflection", USERS.key, name) for name in "abcd"}
    migrate(plan_of(*waiting))
    live = make_reflection(USERS, "live")
    edit = ReviseReflection(
        scope=USERS, reflection_id=ids["c"], expected_version=1, content="c, edited", at=NOW
    )
    store.changes.apply(change_set(AddReflection(reflection=live, word_limit=300), edit))
    (_, _, edited, left) = waiting
    gone = [source.id for item in waiting[:3] for source in item.sources]
    text = listed.text(USERS, "a and b and c.", at=ago(days=1))
    later = plan_of(text, left, absorbed=gone)
    assert make_plan(make_runtime(store), later, RunOptions()).outcomes == {
        "already": 1,
        "migrated": 1,
    }
    migrate(later)
    assert [each.content for each in store.memory.pending(USERS)] == ["c, edited", "d", "live"]
    absorbed = store.memory.reflections([USERS], absorbed=True)
    found = {each.content: each for each in absorbed}
    assert found.keys() == {"a", "b"}
    assert found["a"].absorbed_at == ago(days=1)
    migrate(later)
    assert len(texts(store)) == 1
    assert edited.reflection is not None


def test_reflections_of_a_rejected_text_stay_pending(store: Store, migrate: Migrate) -> None:
    item = listed.reflection(USERS, "a")
    migrate(plan_of(listed.text(USERS, "One."), item))
    store.changes.apply(write("Mine.", 1))
    text = listed.text(USERS, "One and a.", at=ago(days=1))
    migrate(plan_of(text, absorbed=[item.sources[0].id]))
    assert [each.content for each in store.memory.pending(USERS)] == ["a"]


def test_run_again_after_v1_consolidated(store: Store, migrate: Migrate, tmp_path: Any) -> None:
    """A directive of two people is absorbed only for the one whose text has it."""
    lena, tomas = LENA, TOMAS
    said = [memory(n, "directive", f"directive {n}", users=[lena]) for n in (101, 102, 104)]
    shared = memory(103, "directive", "directive 103", users=[lena, tomas])
    first, second, later = (each["_id"] for each in said)

    def database(content: str, lists: Any, **fields: Any) -> Any:
        return {
            "memory_sessions": [*said, shared],
            "memory_user": [
                user_text(1, lena, content, unabsorbed_memory_ids=lists, **fields),
                user_text(2, tomas, "", unabsorbed_memory_ids=[shared["_id"]]),
            ],
            "memory_agent": [],
        }

    before = database("", [first, second, shared["_id"]], fully_formed_memory=None)
    after = database("101, 102 and 103.", [later], last_updated_at=at(50))
    scopes = [Scope.user(str(MIRA), str(user)) for user in (lena, tomas)]
    for name, world in (("before", before), ("after", after), ("again", after)):
        with plan_in(write_dump(tmp_path / name, world)) as plan:
            foretold = make_plan(make_runtime(store), plan, RunOptions())
            report = migrate(plan)
        assert foretold.outcomes == dict(sorted(report.run.counts.items()))
    waiting = [[each.content for each in store.memory.pending(scope)] for scope in scopes]
    assert waiting == [["directive 104"], ["directive 103"]]
    absorbed = store.memory.reflections(scopes, absorbed=True)
    assert {each.content for each in absorbed} == {f"directive {n}" for n in (101, 102, 103)}
    assert texts(store, scopes[0]) == ["101, 102 and 103."]
