"""The words of texts, as the full-text index of SQLite has them."""

from __future__ import annotations

import sqlite3
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edenmem.search import words
from edenmem.search.words import index_words, normalize_for_index

#: FTS5 by itself, for whole texts.
_TOKENIZER = "porter unicode61 remove_diacritics 2 categories 'L* N* Co Mn Mc'"
TEXT = st.lists(
    st.one_of(
        st.text(max_size=6),
        st.sampled_from(
            ["universities", "hop", "Kraków", "ﬁne", "½", "東京タワー", "กาแฟ", "İ", "ß"]
        ),
        st.sampled_from([" ", "/", "'s ", "\u0338", "\u0304", "\ue000", "a" * 70, "42", "\0"]),
    ),
    max_size=8,
).map("".join)


def split_by_fts(text: str) -> list[str]:
    connection = sqlite3.connect(":memory:")
    connection.execute(
        f"CREATE VIRTUAL TABLE t USING fts5 (w, content = '', tokenize = \"{_TOKENIZER}\")"
    )
    connection.execute("CREATE VIRTUAL TABLE v USING fts5vocab (t, 'instance')")
    connection.execute("INSERT INTO t (w) VALUES (?)", (normalize_for_index(text),))
    found = connection.execute('SELECT "offset", term FROM v').fetchall()
    connection.close()
    return [word for _, word in sorted(found, key=lambda row: row[0]) if word]


@given(st.lists(TEXT, max_size=4))
def test_texts_split_in_pieces_have_the_words_of_whole_texts(texts: list[str]) -> None:
    assert index_words(texts) == [split_by_fts(text) for text in texts]


def test_more_pieces_than_are_kept_have_their_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "_MOST_PIECES", 50)
    monkeypatch.setattr(words, "_known", {})
    texts = [f"boats{n // 3} and harbours{n}" for n in range(300)]
    expected = [[f"boats{n // 3}", "and", f"harbours{n}"] for n in range(300)]
    wrong: list[int] = []

    def split() -> None:
        for n, text in enumerate(texts):
            if index_words([text]) != [expected[n]]:
                wrong.append(n)

    threads = [threading.Thread(target=split) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert index_words(texts) == expected


@pytest.mark.parametrize("word", ["haለed", "haለing"])
def test_character_that_fts_cuts_is_left_out(word: str) -> None:
    assert index_words([word, f"{word} of the harbour"]) == [["ha"], ["ha", "of", "the", "harbour"]]


@pytest.mark.parametrize("letter", ["7", "x", "я", "\U00010400"])
def test_long_word_is_shorter_than_fts_cuts_it_with_its_scope(letter: str) -> None:
    ((word,),) = index_words([letter * 40_000])
    assert 31_000 < len(word.encode()) <= 32_000
    assert len(set(word)) == 1
