"""Recipes: named ways to search."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edenmem.errors import ConfigError, UsageError
from edenmem.models.search import Candidate
from edenmem.search.recipes import RECIPES, Stage, fuse, recipe
from edenmem.settings import keys
from edenmem.settings.schema import SearchSettings

SETTINGS = SearchSettings()


NAMES = st.builds(
    lambda base, stages: "+".join([base, *stages]),
    st.sampled_from([*RECIPES, "magic", ""]),
    st.lists(st.sampled_from([*Stage, "rank", ""])),
)


@given(NAMES)
def test_settings_may_name_the_recipes_that_there_are(name: str) -> None:
    def allowed() -> bool:
        try:
            keys.convert("search.recipe", name, "flag", text=True)
        except ConfigError:
            return False
        return True

    def known() -> bool:
        try:
            recipe(name)
        except UsageError:
            return False
        return True

    assert allowed() == known()


def test_an_unknown_recipe_lists_those_there_are() -> None:
    with pytest.raises(UsageError, match="'magic'") as caught:
        recipe("magic")
    assert caught.value.hint is not None
    assert all(name in caught.value.hint for name in (*RECIPES, *Stage))


def test_stages_come_in_their_own_order() -> None:
    plan = recipe("rrf+mmr", stages={Stage.RECENCY: True, Stage.RERANK: True})
    assert plan.stages == (Stage.RERANK, Stage.RECENCY, Stage.MMR)
    assert plan.name == "rrf+rerank+recency+mmr"
    assert recipe(plan.name) == plan


def test_a_stage_of_the_name_can_be_left_out() -> None:
    plan = recipe("convex+rerank+mmr", stages={Stage.RERANK: False, Stage.RECENCY: None})
    assert plan.name == "convex+mmr"


@pytest.mark.parametrize(
    ("name", "depth"),
    [
        ("convex", 50),
        ("rrf", 20),
        ("semantic", 10),
        ("text", 10),
        ("text+recency", 50),
        ("rrf+mmr", 20),
        ("rrf+rerank", 50),
    ],
)
def test_depth(name: str, depth: int) -> None:
    assert recipe(name).depth(SETTINGS, 10) == depth


def test_lucenes_floor_holds_only_where_scores_are_lucenes() -> None:
    """Known failure 25's kin: a floor of another scale would cut nearly everything."""
    lists = {"text": [Candidate("a", 1.2), Candidate("b", 3.0)]}
    text = recipe("text")
    elsewhere = fuse(text, lists, SETTINGS, depth=10, text_floor=False)
    on_atlas = fuse(text, lists, SETTINGS, depth=10, text_floor=True)
    assert [hit.fact_id for hit in elsewhere.hits] == ["b", "a"]
    assert [hit.fact_id for hit in on_atlas.hits] == ["b"]
    assert "1.5" in on_atlas.cuts[0].why


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_every_recipe_fuses(name: str) -> None:
    lists = {
        "semantic": [Candidate("a", 0.9), Candidate("b", 0.7)],
        "text": [Candidate("b", 4.0), Candidate("c", 2.0)],
    }
    plan = recipe(name)
    wanted = {key: value for key, value in lists.items() if key in plan.lists}
    pool = fuse(plan, wanted, SETTINGS, depth=100, text_floor=False)
    assert {hit.fact_id for hit in pool.hits} == {c.fact_id for of in wanted.values() for c in of}
    assert all(hit.explain["fusion"]["recipe"] == name for hit in pool.hits)
