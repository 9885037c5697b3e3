"""The text list: BM25 over FTS5, within scopes, with one edit for words that are not there."""

# ruff: noqa: S608 - what is put into statements here are our own constants; values are bound.

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any

from edenmem.models.search import Candidate
from edenmem.store.sqlite.part import json_array
from edenmem.store.sqlite.words import query_words, quoted, scope_word

#: More scopes than this are joined instead of being words of the query.
_MOST_SCOPE_WORDS = 32
#: So many times the limit are read, so that equal scores seldom go on beyond what was read.
_TIES = 4
#: Words with fewer letters are near to too many others.
_SHORTEST_FUZZY = 4
#: A word longer than this is no misspelling of anything.
_LONGEST_FUZZY = 32
#: How many unknown words of a query are looked up, and how many neighbours each may have.
_MOST_FUZZY = 8
_MOST_NEIGHBOURS = 10

#: A misspelling in the first letters is looked up word by word, one in the rest by their beginning.
_HEAD = 3

_ALPHABETS = (
    "abcdefghijklmnopqrstuvwxyz",
    "абвгдеёжзийклмнопрстуфхцчшщъыьэюяіїєґў",
    "αβγδεζηθικλμνξοπρσςτυφχψω",
)

_TOKENIZER = "porter unicode61 remove_diacritics 2 categories 'L* N* Co Mn Mc'"

# Both weigh the words of `content` alone: the scope's word decides, it does not count.
_BM25 = "bm25(facts_text, 0.0, 1.0)"


class TextQuery:
    """Text search within some scopes and a narrowing, in one read transaction."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        numbers: Sequence[int],
        conditions: str,
        values: Sequence[Any],
    ) -> None:
        self._db = connection
        self._within = ""
        self._conditions, self._values = conditions, list(values)
        if len(numbers) <= _MOST_SCOPE_WORDS:
            words = " OR ".join(scope_word(number) for number in numbers)
            self._within = f"scope : ({words}) AND "
        else:
            self._conditions += " AND f.scope_id IN (SELECT value FROM json_each(?))"
            self._values.append(json_array(numbers))

    def best(self, query: str, limit: int) -> list[Candidate]:
        """The facts that match any of the query's words, best first, equal ones by id."""
        words = self._known_words(query_words(query))
        if not words:
            return []
        match = self._match(words)
        if self._conditions:
            return self._candidates(
                f"SELECT f.id, -{_BM25} AS score FROM facts_text"
                " JOIN facts f ON f.fact_no = facts_text.rowid"
                f" WHERE facts_text MATCH ?{self._conditions}"
                " ORDER BY score DESC, f.id LIMIT ?",
                (match, *self._values, limit),
            )
        # Ids are read for the best alone, and for those whose scores equal the last one's.
        for most in (_TIES * limit, -1):
            top = self._db.execute(
                f"SELECT rowid, -{_BM25} AS score FROM facts_text WHERE facts_text MATCH ?"
                " ORDER BY score DESC LIMIT ?",
                (match, most),
            ).fetchall()
            if len(top) != most or top[-1][1] < top[limit - 1][1]:
                break
        bar = top[limit - 1][1] if len(top) > limit else -math.inf
        scores = {number: score for number, score in top if score >= bar}
        ids = self._db.execute(
            "SELECT f.id, f.fact_no FROM facts f"
            " WHERE f.fact_no IN (SELECT value FROM json_each(?))",
            (json_array(scores),),
        )
        found = [Candidate(fact_id, scores[number]) for fact_id, number in ids]
        return sorted(found, key=lambda one: (-one.score, one.fact_id))[:limit]

    def _candidates(self, statement: str, values: tuple[Any, ...]) -> list[Candidate]:
        return [Candidate(*row) for row in self._db.execute(statement, values)]

    def _match(self, words: Sequence[str]) -> str:
        return f"{self._within}content : ({' OR '.join(map(quoted, words))})"

    # -- misspellings ------------------------------------------------------------------------

    def _known_words(self, words: Sequence[str]) -> list[str]:
        """The words, with those that the vocabulary lacks replaced by their neighbours."""
        known: list[str] = []
        unknown: list[str] = []
        for word in words:
            (known if self._occurs(word) else unknown).append(word)
        fuzzy = [
            word
            for word in unknown
            if word.isalpha() and _SHORTEST_FUZZY <= len(word) <= _LONGEST_FUZZY
        ]
        if fuzzy:
            for stem in _stems(fuzzy[:_MOST_FUZZY]):
                known += self._neighbours(stem)
        return list(dict.fromkeys(known))

    def _occurs(self, word: str) -> bool:
        row = self._db.execute(
            "SELECT 1 FROM facts_text WHERE facts_text MATCH ? LIMIT 1",
            (f"content : {quoted(word)}",),
        ).fetchone()
        return row is not None

    def _neighbours(self, stem: str) -> list[str]:
        """Words of the index one edit away, the commonest first."""
        head = stem[:_HEAD]
        rows = self._db.execute(
            "SELECT term, doc FROM facts_words WHERE term IN (SELECT value FROM json_each(?))",
            (json_array(_edits_of_head(stem)),),
        ).fetchall()
        rows += self._db.execute(
            "SELECT term, doc FROM facts_words WHERE term >= ? AND term < ?"
            " AND length(term) BETWEEN ? AND ?",
            (head, head + "\U0010ffff", len(stem) - 1, len(stem) + 1),
        ).fetchall()
        near = {term: doc for term, doc in rows if _is_one_edit(stem, term)}
        return sorted(near, key=lambda term: (-near[term], term))[:_MOST_NEIGHBOURS]


def _stems(words: Sequence[str]) -> Iterator[str]:
    """What the index would make of the words: asked of a small index with the same tokenizer."""
    scratch = sqlite3.connect(":memory:", isolation_level=None)
    try:
        scratch.execute(f'CREATE VIRTUAL TABLE t USING fts5 (w, tokenize = "{_TOKENIZER}")')
        scratch.execute("CREATE VIRTUAL TABLE v USING fts5vocab (t, 'row')")
        scratch.executemany("INSERT INTO t VALUES (?)", [(word,) for word in words])
        yield from (term for (term,) in scratch.execute("SELECT term FROM v").fetchall())
    finally:
        scratch.close()


def _edits_of_head(word: str) -> set[str]:
    """What a deletion, a swap of neighbours, a change or an insertion in the first letters makes of
    a word."""
    letters = "".join(a for a in _ALPHABETS if not set(word).isdisjoint(a))
    splits = [(word[:i], word[i:]) for i in range(min(_HEAD, len(word)))]
    edits = {a + b[1:] for a, b in splits}
    edits |= {a + b[1] + b[0] + b[2:] for a, b in splits if len(b) > 1}
    edits |= {a + c + b[1:] for a, b in splits for c in letters}
    edits |= {a + c + b for a, b in splits for c in letters}
    return edits


def _is_one_edit(one: str, other: str) -> bool:
    """Whether a deletion, a swap of neighbours, a change or an insertion makes one of the other."""
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
    a, b = one[same:], other[same:]
    return bool(a or b) and (
        a[1:] == b[1:] or a[1:] == b or a == b[1:] or (a[:2] == b[1::-1] and a[2:] == b[2:])
    )
