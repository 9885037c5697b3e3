"""Recipes: named ways to search."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edenmem.errors import ConfigError, UsageError
from edenmem.models.embeddings import SCALES
from edenmem.search.recipes import RECIPES, Stage, effective, recipe, rules_of
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
            keys.convert("search.recipe", name, "--set", text=True)
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
    assert caught.value.hint is None
    with pytest.raises(UsageError) as near:
        recipe("convx+mmr")
    assert near.value.hint == "did you mean 'convex'?"
    assert all(name in caught.value.message for name in (*RECIPES, *Stage))


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
        ("text", 50),
        ("rrf+mmr", 20),
        ("rrf+rerank", 50),
    ],
)
def test_depth(name: str, depth: int) -> None:
    assert recipe(name).depth(SETTINGS, 10) == depth


def test_lucenes_floor_holds_only_where_scores_are_lucenes() -> None:
    """Known failure 25's kin: a floor of another scale would cut nearly everything."""
    for on_atlas, floor in ((True, 1.5), (False, None)):
        rules = rules_of(recipe("text"), SETTINGS, model="", top_k=10, text_floor=on_atlas)
        assert rules.floors["text"] == floor


def test_the_words_of_the_source_have_a_weight_of_their_own() -> None:
    settings = SearchSettings(semantic_weight=0.6, source_weight=0.5)
    for name, weights in (
        ("convex", (0.6, 0.4, 0)),
        ("convex+source", (0.6, 0.4, 0.2)),
        ("text+source", (0, 1, 0.5)),
        ("semantic", (1, 0, 0)),
    ):
        rules = rules_of(recipe(name), settings, model="m", top_k=10, text_floor=False)
        assert tuple(rules.weights.values()) == pytest.approx(weights), name


def test_what_is_not_set_follows_from_the_model() -> None:
    for model, scale in SCALES.items():
        values = effective(SETTINGS, model)
        assert values["semantic_floor"] == scale.floor_score
        assert values["min_score"] == scale.min_score
    own = SearchSettings(semantic_floor=0.0, min_score=0.3)
    assert set(effective(own, "all-MiniLM-L6-v2-int8").values()) == {0.0, 0.3}


def test_only_convex_and_text_have_a_minimum() -> None:
    settings = SearchSettings(min_score=0.3, text_min_score=0.1)
    for name, minimum in (("convex", 0.3), ("text", 0.1), ("rrf", 0), ("semantic", 0)):
        rules = rules_of(recipe(name), settings, model="m", top_k=10, text_floor=False)
        assert rules.min_score == minimum


@pytest.mark.parametrize("name", ["rrf+source", "semantic+source", "semantic+mmr+source"])
def test_a_fusion_without_a_weight_for_words_takes_no_source(name: str) -> None:
    with pytest.raises(UsageError, match="takes no stage 'source'"):
        recipe(name)
