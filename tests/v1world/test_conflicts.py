"""Where a store has texts of its own: kept or replaced, once, as the plan says."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.exhaustive import spared
from tests.v1world.comparer import compare, with_live
from tests.v1world.conftest import NewPlace
from tests.v1world.expected import Options, expect
from tests.v1world.live import write_text
from tests.v1world.memory import Memory, Scope
from tests.v1world.places import Place, init, last_run, migrate
from tests.v1world.world import World, write_dump

pytestmark = pytest.mark.slow

#: Each has a text of v1 for at least one scope; all of these scopes have a live text.
CASES = (
    "user_text_with_version",
    "texts_of_two_users",
    "two_texts_for_one_pair",
    "two_texts_for_one_pair_with_versions_that_go_back",
    "the_same_text_twice_for_one_pair",
    "three_texts_for_one_pair",
    "a_newer_text_that_is_empty",
    "two_accounts_of_one_person",
    "text_of_a_second_account",
    "fully_formed_memory_only",
    "several_active_shards",
    "active_and_paused_shards",
    "pending_directives_in_order",
)
#: The live text is one that v1 has, too.
SAME = "user_text_without_version"

#: How the run is asked → how the plan calls what it does.
HOW = {"keep": "kept", "replace": "replaced"}


@dataclass
class Run:
    """A run over a store with texts of its own, and another one."""

    world: World
    plan: str
    differences: dict[str, list[str]]
    once: Memory
    twice: Memory
    verified: int


def _run(place: Place, dump: Path, how: str) -> Run:
    world = World([*CASES, SAME])
    options = Options(own_accounts=place.own_accounts)
    wanted = expect(world.database, options)
    init(place, world.database)
    same = str(world.cases[SAME].agent)
    for text in wanted.texts:
        is_same = text.scope.agent == same
        write_text(place, text.scope, text.content if is_same else _live(text.scope))
    live = place.read()
    write_dump(dump, world.database)
    given = ("migrate", "v1", "--from", str(dump), "--on-conflict", how)
    plan = place.cli(*given, "--dry-run", "--format", "json").ok().out
    assert compare(live, place.read()) == []
    migrate(place, dump, options, "--on-conflict", how).ok()
    once = place.read()
    verified = place.cli("migrate", "verify", last_run(place)).code
    differences: dict[str, list[str]] = {}
    for each in compare(with_live(wanted, live, how), once):
        if not each.name.endswith(("related users", "user missing")):
            case = world.case_of.get(each.scope.agent, "nobody's")
            differences.setdefault(case, []).append(str(each))
    migrate(place, dump, options, "--on-conflict", how).ok()
    return Run(world, plan, differences, once, place.read(), verified)


def _live(scope: Scope) -> str:
    return f"A live text of {scope}."


@pytest.mark.parametrize(
    ("store", "how"),
    [
        *(("sqlite", how) for how in HOW),
        pytest.param("mongodb", "keep", marks=pytest.mark.slow),
        spared("mongodb", "replace"),
    ],
)
def test_conflicts_end_as_they_were_asked_for(
    store: str, how: str, new_place: NewPlace, tmp_path: Path
) -> None:
    run = _run(new_place(store), tmp_path / "dump", how)
    assert run.differences == {}
    assert [str(each) for each in compare(run.once, run.twice)] == []
    assert run.verified == 0
    (plan,) = json.loads(run.plan)
    named = [json.dumps(each) for each in plan.get("conflicts", ())]
    texts = [text.scope for text in run.once.texts]
    same = str(run.world.cases[SAME].agent)
    for scope in texts:
        of_scope = [each for each in named if str(scope) in each]
        assert len(of_scope) == (scope.agent != same), scope
        assert all(HOW[how] in each for each in of_scope), of_scope
