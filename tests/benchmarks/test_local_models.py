"""The sets and figures by which the local models are compared."""

from __future__ import annotations

from collections import Counter

from tests.benchmarks import labels
from tests.benchmarks.local_models import QueryScores, table
from tests.support.intervals import paired_bootstrap

LANGUAGES = labels.languages()


def test_the_set_in_six_languages_is_as_it_is_said_to_be() -> None:
    facts = {fact.id: fact for fact in LANGUAGES.facts}
    assert Counter(fact.user for fact in LANGUAGES.facts) == dict.fromkeys(
        ("de", "fr", "es", "ru", "zh", "ar"), 20
    )
    assert len({fact.content for fact in LANGUAGES.facts}) == len(facts) == 120
    asked = Counter(query.user for query in LANGUAGES.queries)
    assert set(asked.values()) == {12}
    assert Counter(query.kind for query in LANGUAGES.queries) == {
        **dict.fromkeys(asked, 9),
        "cross": 18,
    }
    assert len({query.query for query in LANGUAGES.queries}) == 72
    for query in LANGUAGES.queries:
        assert query.relevant, query
        assert all(query.sees(facts[label]) for label in query.relevant), query


def test_an_interval_holds_what_is_sure_and_is_wider_for_what_varies() -> None:
    assert paired_bootstrap([0.25] * 20) == (0.25, 0.25)
    low, high = paired_bootstrap([1.0, 0.0] * 50)
    assert 0.35 < low < 0.45 < 0.55 < high < 0.65
    wide = paired_bootstrap([1.0, 0.0] * 5)
    assert wide[1] - wide[0] > 2 * (high - low)


def test_rows_are_by_kind_and_then_of_all() -> None:
    old = {
        (kind, recipe): [QueryScores(0.5, 1.0)]
        for kind in ("de", "fr")
        for recipe in ("convex", "semantic")
    }
    new = {key: [QueryScores(0.75, 0.5)] for key in old}
    rows = table("six", old, new, by_kind=True)
    assert (
        rows[2]
        == "| six | convex | 2 | 0.500 | 0.750 | +0.250 (+0.250 to +0.250) | 1.000 | 0.500 |"
    )
    assert [row.split(" | ")[0] for row in rows] == ["| six: de", "| six: fr", "| six"] * 2
