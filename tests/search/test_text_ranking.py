"""Words and their weights among a few texts."""

from __future__ import annotations

from math import log

import pytest

from edenmem.search.text_ranking import Corpus

TEXTS = Corpus([("a", "anna keeps bees"), ("b", "ben paints boats"), ("c", "carla keeps goats")])


def test_a_whole_match_counts_words_that_no_text_has_and_the_best_reading_of_a_misspelling() -> (
    None
):
    unknown, once, twice = (log(1 + (3 - n + 0.5) / (n + 0.5)) for n in (0, 1, 2))
    assert TEXTS.weigh("bees").whole == pytest.approx(once)
    assert TEXTS.weigh("bees keeps").whole == pytest.approx(once + twice)
    assert TEXTS.weigh("bees zeppelin").whole == pytest.approx(once + unknown)
    assert TEXTS.weigh("boats bees boat").whole == pytest.approx(2 * once)
    either = TEXTS.weigh("oats")  # "boats" or "goats"
    assert len(either.weights) == 2
    assert either.whole == pytest.approx(once)


def test_a_text_with_every_word_is_a_whole_match() -> None:
    query = TEXTS.weigh("anna keeps bees")
    ((_, score),) = TEXTS.best(query, 1)
    assert score == pytest.approx(query.whole)
