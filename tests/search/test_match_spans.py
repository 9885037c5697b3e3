"""Which words of a text a query matches."""

from __future__ import annotations

import pytest

from edenmem.search.words import match_spans


@pytest.mark.parametrize(
    ("text", "query", "matched"),
    [
        ("Whale lanterns are painted.", "lantern paint", ["lanterns", "painted"]),
        ("What is it about?", "what is the glue", []),  # stop words are not marked
        ("Café at 9; cafés later", "cafe", ["Café", "cafés"]),
        ("案内文の締切は20日", "案内文の締切", ["案内文の締切"]),
        ("印刷はミナト印刷", "印刷", ["印刷", "印刷"]),
        ("การประชุมใหญ่", "ประชุม", ["ประชุม"]),
        ("order OP-7731 (paper)", "op-7731", ["OP", "7731"]),
        ("", "glue", []),
    ],
)
def test_words_of_the_query_are_found_by_their_stem(
    text: str, query: str, matched: list[str]
) -> None:
    assert [text[begin:end] for begin, end in match_spans(text, [query])] == matched


def test_spans_of_several_queries_are_in_order_and_apart() -> None:
    spans = match_spans("glue and paste and glue", ["paste", "glue", "glues"])
    assert spans == [(0, 4), (9, 14), (19, 23)]
