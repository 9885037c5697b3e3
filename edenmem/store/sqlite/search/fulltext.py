"""The text list: facts with the query's words, by FTS5, ranked by `WeighedQuery`.

FTS5 finds the facts of some scopes that have a word. Its `bm25()` is not used, because it weighs
words over the whole store and reads all of it.
"""

# ruff: noqa: S608 - statements are built from constants only; values are bound.

from __future__ import annotations

import json
import sqlite3
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from heapq import nlargest
from typing import Any, NamedTuple, TypeAlias

from edenmem.search.text_ranking import MOST_NEIGHBORS, Term, query_terms, weigh
from edenmem.search.words import is_fuzzy, within_one_edit
from edenmem.store.common.cache import BoundedCache
from edenmem.store.sqlite.core import source_words
from edenmem.store.sqlite.core.part import json_array
from edenmem.store.sqlite.core.scopes import State
from edenmem.store.sqlite.core.words import quote, scope_prefix, scoped_words, without_scope

#: Lookups in scopes of at least this many facts are cached by scope, so that all searches share
#: them. With more large scopes than the maximum, scopes are looked up together: each part costs an
#: index query per word.
_LARGE, _MOST_LARGE = 1000, 4
#: Maximum number of unknown words to look up.
_MOST_FUZZY = 8
#: Edits within this many letters are looked up as words, later edits by their prefix.
_FIRST_LETTERS = 3
#: Maximum number of scopes, counted for each unknown word, in which edits of the first letters are
#: looked up. That takes 0.4 ms in each, thirty times as long as a prefix.
_MOST_HEADS = 256

_ALPHABETS = (
    "abcdefghijklmnopqrstuvwxyz",
    "абвгдеёжзийклмнопрстуфхцчшщъыьэюяіїєґў",
    "αβγδεζηθικλμνξοπρσςτυφχψω",
)


class TextIndex(NamedTuple):
    """A full-text index over facts, and its vocabulary."""

    name: str
    words: str


#: Indexes of the facts and of their source messages.
FACTS = TextIndex("facts_text", "facts_words")
SOURCES = TextIndex(source_words.INDEX, source_words.WORDS)


#: A scope number and its revision.
_Revision = tuple[int, int]


class _Part(NamedTuple):
    """Scopes that are looked up together."""

    scopes: tuple[_Revision, ...]

    @property
    def numbers(self) -> list[int]:
        """Return the scope numbers."""
        return [number for number, _ in self.scopes]


#: Index lookups, valid as long as the scopes do not change. The revisions of the scopes are part of
#: each key and are read in the transaction of the search, so writes of other processes are never
#: missed.
Postings = BoundedCache[Any, Any]
#: The facts that have each term.
_Postings: TypeAlias = "dict[Term, array[int]]"
#: Entries of a cache of lookups, each of up to sixteen bytes.
MOST_POSTINGS = 2_000_000


class _Matches(NamedTuple):
    """The scores of the facts that have a word of a query, and that of a fact with every word."""

    scores: dict[int, float]
    whole: float


class TextQuery:
    """A text search within scopes and a filter, in one read transaction. Facts are numbers."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        states: Collection[State],
        conditions: str,
        values: Sequence[Any],
        known: Postings,
        index: TextIndex = FACTS,
    ) -> None:
        self._db = connection
        self._index = index
        self._conditions, self._values = conditions, list(values)
        self._known = known
        ordered = sorted(states)
        self._revisions: tuple[_Revision, ...] = tuple(
            (one.number, one.revision) for one in ordered
        )
        large = {one.number for one in ordered if one.facts >= _LARGE}
        self._parts = _split(self._revisions, large if len(large) <= _MOST_LARGE else set())
        self._narrowing = (conditions, tuple(values))
        self._key = (index.name, self._revisions, *self._narrowing)
        self._facts = None if conditions else sum(one.facts for one in ordered)

    def best(self, query: str, limit: int) -> dict[int, float]:
        """Return the facts with the highest scores, best first, of equal scores the newest."""
        scores = self._match(query).scores
        bar = min(nlargest(limit, scores.values()), default=0.0)
        ranked = sorted(
            ((score, number) for number, score in scores.items() if score >= bar), reverse=True
        )
        return {number: score for score, number in ranked[:limit]}

    def whole(self, query: str) -> float:
        """Return the score of a text with every word of the query; see `WeighedQuery`."""
        return self._match(query).whole

    def scores(self, query: str, facts: Iterable[int]) -> dict[int, float]:
        """Return the scores of the given facts that match any of the query's words."""
        scores = self._match(query).scores
        return {number: scores[number] for number in facts if number in scores}

    # -- what matches ------------------------------------------------------------------------

    def _match(self, query: str) -> _Matches:
        known: _Matches | None = self._known.get((self._key, query))
        if known is None:
            known = self._look_up(query)
            self._known.put((self._key, query), known, len(known.scores))
        return known

    def _look_up(self, query: str) -> _Matches:
        words = self._words(query)
        terms = dict.fromkeys(term for of_word in words for term in of_word)
        found = self._find(terms)
        having = _sizes(found)
        weighed = weigh(words, having, total=self._count())
        scores: dict[int, float] = {}
        for term, weight in weighed.weights.items():
            of_term: dict[int, float] = {}
            for of_part in found:
                of_term |= dict.fromkeys(of_part[term], weight)
            for number in scores.keys() & of_term.keys():
                of_term[number] += scores[number]
            scores |= of_term
        return _Matches(scores, weighed.whole)

    def _count(self) -> int:
        """Return the number of searched facts."""
        if self._facts is None:
            known: int | None = self._known.get(self._key)
            if known is None:
                numbers = json_array(number for number, _ in self._revisions)
                (known,) = self._db.execute(
                    "SELECT count(*) FROM facts f WHERE f.scope_id IN"
                    f" (SELECT value FROM json_each(?)){self._conditions}",
                    (numbers, *self._values),
                ).fetchone()
                self._known.put(self._key, known)
            self._facts = known
        return self._facts

    def _find(self, terms: Collection[Term]) -> list[_Postings]:
        """Return the searched facts that have each term, by parts."""
        return [self._postings(part, terms) for part in self._parts]

    def _postings(self, part: _Part, terms: Collection[Term]) -> _Postings:
        """Return the facts of some scopes that have each term, with one query of the index."""
        keys = {term: (self._index.name, part, *self._narrowing, term) for term in terms}
        found: dict[Term, Any] = {term: self._known.get(key) for term, key in keys.items()}
        if missing := [term for term, posting in found.items() if posting is None]:
            for term, numbers in zip(missing, self._ask(part, missing), strict=True):
                posting = found[term] = array("q", numbers)
                self._known.put(keys[term], posting, len(posting) + 1)
        return found

    def _ask(self, part: _Part, terms: Sequence[Term]) -> Iterator[list[int]]:
        """Query the index for the facts of some scopes that have each term."""
        name = self._index.name
        join = " JOIN facts f ON f.fact_no = t.rowid" if self._conditions else ""
        phrases = [
            [f"content : {quote(scoped_words(number, term))}" for number in part.numbers]
            for term in terms
        ]
        # One row for a term: thousands of rows cost more than their lookup.
        rows = self._db.execute(
            f"SELECT (SELECT json_group_array(t.rowid) FROM json_each(q.value) p"
            f" CROSS JOIN {name} t{join} WHERE {name} MATCH p.value{self._conditions})"
            " FROM json_each(?) q ORDER BY q.key",
            (*self._values, json.dumps(phrases)),
        )
        return (json.loads(numbers) for (numbers,) in rows)

    # -- misspellings ------------------------------------------------------------------------

    def _words(self, query: str) -> list[list[Term]]:
        """Return the terms of each word of a query.

        A word that no searched fact has is replaced by similar words, if there are any.
        """
        found: list[list[Term]] = []
        fuzzy = 0
        asked = query_terms(query)
        having = _sizes(self._find([term for _, term in asked]))
        for word, term in asked:
            if not is_fuzzy(word) or fuzzy == _MOST_FUZZY or having[term]:
                found.append([term])
                continue
            fuzzy += 1
            is_affordable = fuzzy * len(self._revisions) <= _MOST_HEADS
            found.append(self._neighbors(term[0], with_head=is_affordable) or [term])
        return found

    def _neighbors(self, stem: str, *, with_head: bool) -> list[Term]:
        """Return the words of the searched facts that are one edit away, most frequent first.

        Without ``with_head`` the first letters must be the same.
        """
        scopes = [scope_prefix(number) for number, _ in self._revisions]
        edits = _edits_of_head(stem) if with_head else ()
        rows = self._db.execute(
            f"SELECT term FROM {self._index.words} WHERE term IN (SELECT value FROM json_each(?))",
            (json_array(scope + edit for scope in scopes for edit in edits),),
        ).fetchall()
        rows += self._db.execute(
            f"SELECT term FROM json_each(?) head CROSS JOIN {self._index.words}"
            " WHERE term >= head.value AND term < head.value || ?",
            (json_array(scope + stem[:_FIRST_LETTERS] for scope in scopes), "\U0010ffff"),
        ).fetchall()
        words = {without_scope(word) for (word,) in rows}
        near = [(word,) for word in words if within_one_edit(stem, word)]
        having = _sizes(self._find(near))
        ranked = sorted(near, key=lambda term: (-having[term], term))
        return [term for term in ranked[:MOST_NEIGHBORS] if having[term]]


def _sizes(found: Iterable[_Postings]) -> Counter[Term]:
    """Count the facts that have each term."""
    sizes = Counter[Term]()
    for postings in found:
        sizes.update({term: len(facts) for term, facts in postings.items()})
    return sizes


def _split(scopes: Sequence[_Revision], alone: Collection[int]) -> list[_Part]:
    """Split scopes into parts: large scopes alone, all others together."""
    parts = [_Part((scope,)) for scope in scopes if scope[0] in alone]
    others = tuple(scope for scope in scopes if scope[0] not in alone)
    return [*parts, _Part(others)] if others else parts


def _edits_of_head(word: str) -> set[str]:
    """Return all words that differ by one edit in the first letters."""
    letters = "".join(a for a in _ALPHABETS if not set(word).isdisjoint(a))
    splits = [(word[:i], word[i:]) for i in range(min(_FIRST_LETTERS, len(word)))]
    edits = {a + b[1:] for a, b in splits}
    edits |= {a + b[1] + b[0] + b[2:] for a, b in splits if len(b) > 1}
    edits |= {a + c + b[1:] for a, b in splits for c in letters}
    edits |= {a + c + b for a, b in splits for c in letters}
    return edits
