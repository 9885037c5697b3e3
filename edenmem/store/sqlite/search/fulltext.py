"""The text list: BM25 over FTS5, within scopes, with one edit for words that are not there."""

# ruff: noqa: S608 - what is put into statements here are our own constants; values are bound.

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any

from edenmem.models.search import Candidate
from edenmem.store.sqlite.core.part import json_array
from edenmem.store.sqlite.core.words import query_words, quote, scope_word

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

# The words of `content` alone are weighed: the scope's word decides, it does not count.
_BM25 = "bm25(facts_text, 0.0, 1.0)"
_ALL_AT_ONCE = (
    f"SELECT rowid AS fact_no, -{_BM25} AS score FROM facts_text WHERE facts_text MATCH ?"
)
_ONE_WORD = (
    f"SELECT rowid AS fact_no, -{_BM25} * ? AS score FROM facts_text WHERE facts_text MATCH ?"
)

#: In a store of up to so many facts each word is weighed as Lucene weighs it, ln(1 + odds), which
#: is never zero. FTS5 takes ln(odds), and next to nothing (`_LEAST_WEIGHT`) for a word that half
#: of the facts have: that is most words of a young memory. The two agree the better the rarer a
#: word is, and where there are many facts, one of them that half of the facts have says little.
_MOST_WEIGHED = 10_000
_LEAST_WEIGHT = 1e-6
#: Sums of the same weights in another order shall be equal.
_DIGITS = 12


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
        words = self._correct_words(query_words(query))
        if not words:
            return []
        ranked, values = self._build_ranking(words)
        if self._conditions:
            return self._candidates(
                f"SELECT f.id, ranked.score FROM ({ranked}) ranked JOIN facts f USING (fact_no)"
                f" WHERE TRUE{self._conditions} ORDER BY ranked.score DESC, f.id LIMIT ?",
                (*values, *self._values, limit),
            )
        # Ids are read for the best alone, and for those whose scores equal the last one's.
        for most in (_TIES * limit, -1):
            top = self._db.execute(
                f"{ranked} ORDER BY score DESC LIMIT ?", (*values, most)
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

    def _build_ranking(self, words: Sequence[str]) -> tuple[str, list[Any]]:
        """A statement for ``fact_no`` and ``score`` of what matches, and its values."""
        total = self._total()
        if total is None:
            return _ALL_AT_ONCE, [self._match(words)]
        values: list[Any] = []
        for word in words:
            odds = _odds(total, self._occurrences(word))
            weight = math.log1p(odds) / max(math.log(odds), _LEAST_WEIGHT)
            values += [weight, self._match([word])]
        if len(words) == 1:
            return _ONE_WORD, values
        each = " UNION ALL ".join([_ONE_WORD] * len(words))
        return (
            f"SELECT fact_no, round(sum(score), {_DIGITS}) AS score FROM ({each}) GROUP BY fact_no",
            values,
        )

    def _total(self) -> int | None:
        """How many facts there are, or None if they are too many to weigh each word."""
        (last,) = self._db.execute("SELECT max(fact_no) FROM facts").fetchone()
        if last is None or last > _MOST_WEIGHED:
            return None
        total: int = self._db.execute("SELECT count(*) FROM facts").fetchone()[0]
        return total

    def _occurrences(self, word: str) -> int:
        count: int = self._db.execute(
            "SELECT count(*) FROM facts_text WHERE facts_text MATCH ?",
            (f"content : {quote(word)}",),
        ).fetchone()[0]
        return count

    def _match(self, words: Sequence[str]) -> str:
        return f"{self._within}content : ({' OR '.join(map(quote, words))})"

    # -- misspellings ------------------------------------------------------------------------

    def _correct_words(self, words: Sequence[str]) -> list[str]:
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
            (f"content : {quote(word)}",),
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


def _odds(total: int, having: int) -> float:
    """How much likelier it is that a fact lacks a word than that it has it."""
    return (total - having + 0.5) / (having + 0.5)


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
