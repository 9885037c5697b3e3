"""The labeled conversations are sound, and the benchmark counts what it says it counts."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from tests.benchmarks import extracting
from tests.benchmarks.extracting import Conversation, Extraction, is_grounded, normalize, score
from tests.support.intervals import wilson

ALL = extracting.read_conversations()
NAMES = [each.session for each in ALL]


class TestTheLabels:
    def test_it_is_as_large_and_as_varied_as_it_is_said_to_be(self) -> None:
        assert len(ALL) == len(set(NAMES)) == 12
        assert Counter(each.language for each in ALL) == {"en": 9, "de": 1, "es": 1, "ja": 1}
        assert sum(len(each.expected) for each in ALL) == 71
        kinds = {label.why for each in ALL for label in each.never}
        assert {"secret", "order", "joke", "agent's guess", "corrected", "relative date"} <= kinds

    @pytest.mark.parametrize("conversation", ALL, ids=NAMES)
    def test_a_label_finds_its_own_fact_and_no_forbidden_one_does(
        self, conversation: Conversation
    ) -> None:
        facts = [label.fact for label in conversation.expected]
        for label in conversation.expected:
            assert label.is_in(normalize(label.fact)), label
        for forbidden in conversation.never:
            assert not any(forbidden.is_in(normalize(fact)) for fact in facts), forbidden

    @pytest.mark.parametrize("conversation", ALL, ids=NAMES)
    def test_numbers_of_a_fact_were_said_or_are_dates(self, conversation: Conversation) -> None:
        dates = r"\d{4}-\d\d-\d\d|\d{1,2}(\.| de)? ?[a-zäé]+ (de )?\d{4}|\d{4}年\d+月\d+日"
        for label in conversation.expected:
            undated = re.sub(dates, "", normalize(label.fact))
            for number in re.findall(r"\d+", undated):
                assert number in conversation.text or number in ("2026", "2027"), (label, number)


class TestTheScore:
    kitchen = ALL[NAMES.index("kitchen")]

    def test_counts_what_was_found_what_is_right_and_what_does_harm(self) -> None:
        made = Extraction(
            [
                "Leela, Priya's sister, keeps the spare key.",
                "Leela has the key of the house.",
                "The worktop will be oak.",
                "Owen Marsh starts on Tuesday 10 March 2026.",
            ],
            tokens=10,
            calls=2,
        )
        counts = score(self.kitchen, made)
        assert (counts.expected, counts.found) == (6, 2)
        assert (counts.facts, counts.right, counts.harmful) == (4, 3, 1)

    @pytest.mark.parametrize(
        ("fact", "grounded"),
        [
            ("The quote is 6,400 pounds, without the oven.", True),
            ("The quote is 6,500 pounds, without the oven.", False),
            ("Zebras graze quietly beneath distant volcanoes.", False),
            ("Owen Marsh starts on 2026-03-10.", True),
        ],
    )
    def test_grounded_are_numbers_and_words_that_were_said(self, fact: str, grounded: bool) -> None:
        assert is_grounded(fact, self.kitchen.text) is grounded

    def test_reads_whatever_form_another_system_answers_in(self) -> None:
        answers = (
            {"facts": ["a", "b"]},
            [{"content": "a"}, {"memory": "b"}],
            {"x": {"y": ["a", "b"]}},
        )
        assert [list(extracting._strings(each)) for each in answers] == [["a", "b"]] * 3

    def test_the_interval_holds_the_share_and_stays_within_its_bounds(self) -> None:
        assert wilson(0, 0) == (0.0, 1.0)
        low, high = wilson(90, 100)
        assert (round(low, 3), round(high, 3)) == (0.826, 0.945)
