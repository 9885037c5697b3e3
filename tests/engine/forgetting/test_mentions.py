"""Names in texts: IDs, full names and distinctive parts, in any case and Unicode form."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edenmem.engine.consolidation.propagation import locate_words
from edenmem.engine.erasure import mentions
from edenmem.engine.erasure.mentions import Names

ID = "6b02543234a24a68fbb8f204"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("lena", "Ask LENA about it."),
        ("lena", "(lena)"),
        ("lena", "Lena's lantern"),
        ("Lena Lind", "It was lena  lind."),
        ("Lena Lind", "Lena was there."),
        ("lena_lind", "lena lind said so"),
        ("lena92", "Lena said so."),
        ("zen#1234", "zen#1234 wrote"),
        (ID, f"see {ID}."),
        ("José", unicodedata.normalize("NFD", "José came.")),
        ("straße", "STRASSE"),
        ("Ольга", "спросить ольга"),
        ("李娜", "昨天李娜来了"),
        ("lena", "le\u200bna came"),
    ],
)
def test_found(name: str, text: str) -> None:
    assert Names([name]).are_in(text)
    assert Names([name]).contexts(text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("lena", "Helena and Lenape"),
        ("Rose Hill", "a rose in the garden"),
        ("Lena Lind", "a soft lind tree"),
        (ID, ID[:12]),
        ("x", "x marks it"),
        ("", "anything"),
        ("#", "# a heading"),
    ],
)
def test_not_found(name: str, text: str) -> None:
    assert not Names([name]).are_in(text)
    assert Names([name]).contexts(text) == ()


def test_texts_without_the_longest_word_are_rejected_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text of a fact mostly begins with "The user", as all others do."""
    read: list[str] = []

    def locate(shown: str) -> list[tuple[str, int, int]]:
        read.append(shown)
        return locate_words(shown)

    monkeypatch.setattr(mentions, "locate_words", locate)
    names = Names(["The user has a sandcastle."], whole_only=True)
    assert not names.are_in("The user has a boat.")
    assert not read
    assert names.are_in("Note: the user has a SANDCASTLE")
    assert len(read) == 1


def test_a_context_is_one_line_with_surrounding_text() -> None:
    text = "word " * 40 + "Lena\nfolds lanterns " + "more " * 40
    (line,) = Names(["lena"]).contexts(text)
    assert line.startswith("…")
    assert line.endswith("…")
    assert "Lena folds lanterns" in line
    assert len(Names(["lena"]).contexts("Lena. " + ("x" * 90 + " Lena. ") * 9)) == 3


@given(st.text(max_size=200), st.lists(st.text(max_size=20), max_size=3))
def test_any_text_can_be_searched(text: str, names: list[str]) -> None:
    found = Names(names)
    assert bool(found.contexts(text)) == found.are_in(text)


@given(st.sampled_from(["lena", "Lena Lind", ID]), st.text(max_size=40), st.text(max_size=40))
def test_a_name_among_other_words_is_found(name: str, before: str, after: str) -> None:
    assert Names([name]).are_in(f"{before} . {name} . {after}")
