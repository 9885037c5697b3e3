"""The text list: BM25 over FTS5, within scopes, with one edit for words that are not there."""

# ruff: noqa: S608 - what is put into statements here are our own constants; values are bound.

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

from edenmem.models.search import Candidate
from edenmem.store.sqlite.part import json_array
from edenmem.store.sqlite.words import query_words, quoted, scope_word

#: More scopes than this are joined instead of being words of the query.
_MOST_SCOPE_WORDS = 32
#: Words with fewer letters are near to too many others.
_SHORTEST_FUZZY = 4
#: A word longer than this is no misspelling of anything.
_LONGEST_FUZZY = 32
#: How many unknown words of a query are looked up, and how many neighbours each may have.
_MOST_FUZZY = 8
_MOST_NEIGHBOURS = 10

_ALPHABETS = (
    "abcdefghijklmnopqrstuvwxyz0123456789",
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
        # Ids are read for the best alone, unless equal scores go on beyond the limit.
        top = self._db.execute(
            f"SELECT rowid, -{_BM25} AS score FROM facts_text WHERE facts_text MATCH ?"
            " ORDER BY score DESC LIMIT ?",
            (match, limit + 1),
        ).fetchall()
        if len(top) > limit and top[limit - 1][1] == top[limit][1]:
            return self._candidates(
                f"SELECT f.id, -{_BM25} AS score FROM facts_text"
                " JOIN facts f ON f.fact_no = facts_text.rowid WHERE facts_text MATCH ?"
                " ORDER BY score DESC, f.id LIMIT ?",
                (match, limit),
            )
        scores = dict(top[:limit])
        ids = self._db.execute(
            "SELECT f.id, f.fact_no FROM facts f"
            " WHERE f.fact_no IN (SELECT value FROM json_each(?))",
            (json_array(scores),),
        )
        found = [Candidate(fact_id, scores[number]) for fact_id, number in ids]
        return sorted(found, key=lambda one: (-one.score, one.fact_id))

    def _candidates(self, statement: str, values: tuple[Any, ...]) -> list[Candidate]:
        return [Candidate(*row) for row in self._db.execute(statement, values)]

    def _match(self, words: Sequence[str]) -> str:
        return f"{self._within}content : ({' OR '.join(map(quoted, words))})"

    # -- misspellings ------------------------------------------------------------------------

    def _known_words(self, words: Sequence[str]) -> list[str]:
        """The words, with those that no fact in sight has replaced by their neighbours."""
        known: list[str] = []
        unknown: list[str] = []
        for word in words:
            (known if self._occurs(word) else unknown).append(word)
        fuzzy = [
            word
            for word in unknown
            if " " not in word and _SHORTEST_FUZZY <= len(word) <= _LONGEST_FUZZY
        ]
        if fuzzy:
            for stem in _stems(fuzzy[:_MOST_FUZZY]):
                known += self._neighbours(stem)
        return list(dict.fromkeys(known))

    def _occurs(self, word: str) -> bool:
        row = self._db.execute(
            "SELECT 1 FROM facts_text WHERE facts_text MATCH ? LIMIT 1", (self._match([word]),)
        ).fetchone()
        return row is not None

    def _neighbours(self, stem: str) -> list[str]:
        """Words of the index one edit away, the commonest first."""
        rows = self._db.execute(
            "SELECT term FROM facts_words WHERE term IN (SELECT value FROM json_each(?))"
            " ORDER BY doc DESC, term LIMIT ?",
            (json_array(_one_edit(stem)), _MOST_NEIGHBOURS),
        )
        return [term for (term,) in rows]


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


def _one_edit(word: str) -> set[str]:
    """Every word that a deletion, a swap of neighbours, a change or an insertion makes of it."""
    letters = "".join(alphabet for alphabet in _ALPHABETS if not set(word).isdisjoint(alphabet))
    splits = [(word[:i], word[i:]) for i in range(len(word) + 1)]
    edits = {a + b[1:] for a, b in splits if b}
    edits |= {a + b[1] + b[0] + b[2:] for a, b in splits if len(b) > 1}
    edits |= {a + c + b[1:] for a, b in splits if b for c in letters}
    edits |= {a + c + b for a, b in splits for c in letters}
    return edits - {word}
