"""Recipes: named ways to search."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edenmem.errors import ConfigError, UsageError
from edenmem.models.search import Candidate, ListName
from edenmem.search.fusion import passing
from edenmem.search.recipes import RECIPES, Stage, best_first, floors_of, fuse, recipe, unite
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


def test_the_words_of_the_source_have_a_weight_of_their_own() -> None:
    found: dict[ListName, list[Candidate]] = {
        "semantic": [Candidate("a", 0.9), Candidate("b", 0.8)],
        "text": [Candidate("a", 4.0)],
        "source": [Candidate("b", 6.0), Candidate("c", 3.0)],
    }
    plan = recipe("convex+source")
    settings = SearchSettings(source_weight=0.5, semantic_floor=0.0)
    model = "all-MiniLM-L6-v2-int8"
    completed: dict[ListName, dict[str, float]] = {"source": {"a": 1.5}}
    pool = fuse(plan, found, settings, depth=9, text_floor=False, model=model, completed=completed)
    scores = {hit.fact_id: hit.score for hit in pool.hits}
    # 0.6, 0.4 and half of 0.4, as parts of 1.2; the shares are measured by the best of each list
    assert scores == pytest.approx(
        {
            "a": (0.6 * 1 + 0.4 * 1 + 0.2 * 0.25) / 1.2,
            "b": (0.6 * 0.6 / 0.8 + 0.2 * 1) / 1.2,
            "c": 0.2 * 0.5 / 1.2,
        }
    )
    first = pool.hits[0].explain
    assert first["source"]["completed"]
    assert first["fusion"]["parts"]["source"] == pytest.approx(0.05 / 1.2)
    plain = fuse(
        recipe("convex"),
        {name: found[name] for name in ("semantic", "text")},
        settings,
        depth=9,
        text_floor=False,
        model=model,
    )
    none = SearchSettings(source_weight=0.0, semantic_floor=0.0)
    weightless = fuse(plan, found, none, depth=9, text_floor=False, model=model)
    assert {hit.fact_id: hit.score for hit in plain.hits}.items() <= {
        hit.fact_id: hit.score for hit in weightless.hits
    }.items()


@pytest.mark.parametrize("name", ["rrf+source", "semantic+source", "semantic+mmr+source"])
def test_a_fusion_without_a_weight_for_words_takes_no_source(name: str) -> None:
    with pytest.raises(UsageError, match="takes no stage 'source'"):
        recipe(name)


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


SEMANTIC = st.dictionaries(st.sampled_from("abcdefghijklmnop"), st.floats(0.4, 1.0), max_size=12)
TEXT = st.dictionaries(st.sampled_from("abcdefghijklmnop"), st.floats(0.1, 30.0), max_size=12)


@given(
    semantic=SEMANTIC,
    text=TEXT,
    source=TEXT,
    base=st.sampled_from([*sorted(RECIPES), "convex+source", "text+source"]),
    weight=st.sampled_from([0.0, 0.1, 0.3, 0.6, 1.0]),
    floor=st.sampled_from([0.0, 0.55, 0.8]),
    depth=st.integers(1, 12),
    rrf_floor=st.sampled_from([0.0, 0.015]),
    text_floor=st.booleans(),
    model=st.sampled_from(["all-MiniLM-L6-v2-int8", "unknown"]),
)
def test_the_order_without_an_explanation_is_that_of_a_search(
    *,
    semantic: dict[str, float],
    text: dict[str, float],
    source: dict[str, float],
    base: str,
    weight: float,
    floor: float,
    depth: int,
    rrf_floor: float,
    text_floor: bool,
    model: str,
) -> None:
    """Evaluation and tuning order by `unite`, `best_first` and `passing`, a search by `fuse`."""
    plan = recipe(base)
    settings = SearchSettings(semantic_weight=weight, semantic_floor=floor, rrf_floor=rrf_floor)
    found: dict[ListName, list[Candidate]] = {
        "semantic": [Candidate(*pair) for pair in semantic.items()],
        "text": [Candidate(*pair) for pair in text.items()],
        "source": [Candidate(*pair) for pair in source.items()],
    }
    lists = {name: found[name] for name in plan.lists}
    completed: dict[ListName, dict[str, float]] = {"semantic": {"a": 0.5}, "text": {"b": 1.0}}
    pool = fuse(
        plan,
        lists,
        settings,
        depth=depth,
        text_floor=text_floor,
        model=model,
        completed=completed,
    )
    entries = unite(plan, lists, depth=depth, model=model, completed=completed)
    floors = floors_of(settings, model=model, text_floor=text_floor)
    kept = passing(entries, floors)
    ordered = [id for id in best_first(plan, entries, settings, floors) if id in kept]
    assert ordered == [hit.fact_id for hit in pool.hits]
