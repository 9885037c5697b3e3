"""Private content is recognized in any form."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edenmem.engine.consolidation.propagation import RUN, Confidences, find_name, has_contact, words

SECRET = "Anna has applied for a post at the observatory in Bergen and has told nobody."
CONFIDENCES = Confidences([SECRET, "Diabetes.", "安娜正在找新的工作"])


@pytest.mark.parametrize(
    "text",
    [
        SECRET,
        SECRET.upper(),
        "One should know: anna has applied for a POST at the observatory.",
        "Somebody has told nobody about it; told nobody. And has told nobody.",
        "Applied: a post at the observatory, Bergen; nobody told.",
        "An application to the observatory in Bergen by Anna, of which nobody was told",
        "Anna\u200b has\u200b applied for a post",
        "".join(chr(ord(char) + 0xFEE0) if char != " " else char for char in SECRET),  # wide
        "The reason is diabetes",
        "大家都知道安娜正在找新的工作了",
    ],
)
def test_quotations_and_paraphrases_are_recognized(text: str) -> None:
    assert CONFIDENCES.reveals(text)


@pytest.mark.parametrize(
    "text",
    [
        "The festival begins on 12 June 2026 in Lisbon.",
        "The team meets on Mondays at the harbour.",
        "节日于六月开始",
        "",
        "…",
    ],
)
def test_other_texts_pass(text: str) -> None:
    assert not CONFIDENCES.reveals(text)
    assert not Confidences([]).reveals(SECRET)
    assert not Confidences(["", "  ", "!"]).reveals(text)


@given(
    st.lists(st.text("abcdefgh", min_size=1, max_size=8), min_size=1, max_size=12),
    st.text(max_size=40),
    st.text(max_size=40),
    st.data(),
)
def test_quotations_of_a_private_text_are_rejected(
    private: list[str], before: str, after: str, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, max(len(private) - RUN, 0)))
    run = " ".join(private[start : start + RUN])
    text = f"{before} {run} {after}"
    assert Confidences([" ".join(private)]).reveals(text)
    assert Confidences(["Something else entirely.", " ".join(private)]).reveals(text.upper())


@given(st.text(max_size=60))
def test_any_text_with_words_reveals_itself(text: str) -> None:
    assert Confidences([text]).reveals(text) == bool(words(text))


@pytest.mark.parametrize(
    "text",
    [
        "Write to anna@example.org for tickets.",
        "Write to anna＠example.org",
        "Her handle is @anna_l on Discord.",
        "Call +47 912 34 567.",
        "Call 0171/1234567 in the evening",
        "Telephone (0)30 901820-12",
    ],
)
def test_contacts_are_recognized(text: str) -> None:
    assert has_contact(text)


@pytest.mark.parametrize(
    "text",
    [
        "The deadline is 2026-06-12.",
        "From 12.06.2026 to 14.06.2026 the hall is closed.",
        "The budget is 1,500,000 krones for 350 guests.",
        "Room 4711, third floor, at 18:30.",
        "Version 1.2.3 of the tool",
    ],
)
def test_dates_and_amounts_are_not_contacts(text: str) -> None:
    assert not has_contact(text)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("The idea is from anna.", ["anna"]),
        ("The idea is Anna's.", ["anna"]),
        ("ask ANNA LIND about it", ["Anna Lind"]),
        ("Lind prefers mornings.", ["Anna Lind"]),
        ("Anna prefers mornings.", ["anna#1234"]),
        ("安娜喜欢早上", ["安娜"]),
        ("night_owl_7 found the bug", ["zoe", "night_owl_7"]),
    ],
)
def test_people_are_recognized_by_their_names(text: str, names: list[str]) -> None:
    assert find_name(text, names) == names[-1]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("The festival begins in June.", ["anna", "Bruno Berg"]),
        ("We will meet, may it rain or not.", ["Will May Smith"]),
        ("Annals of the society", ["Anna"]),
        ("The festival begins.", ["", "  ", "!"]),
    ],
)
def test_other_words_are_not_names(text: str, names: list[str]) -> None:
    assert find_name(text, names) is None
