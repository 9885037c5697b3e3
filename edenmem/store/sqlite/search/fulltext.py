"""The text list: facts with the query's words, by FTS5, ranked by edenmem's own BM25.

FTS5 finds the facts of some scopes that have a word. Its `bm25()` is not used, because it weighs
words over the whole store and reads all of it.
"""

# ruff: noqa: S608 - statements are built from constants only; values are bound.

from __future__ import annotations

import json
import re
import sqlite3
import unicodedata
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from edenmem.search.text_ranking import (
    MOST_NEIGHBORS,
    Term,
    WeighedQuery,
    query_terms,
    round_score,
    weigh,
)
from edenmem.search.words import index_words, is_fuzzy, within_one_edit
from edenmem.store.common.cache import BoundedCache
from edenmem.store.sqlite.core import source_words
from edenmem.store.sqlite.core.part import json_array
from edenmem.store.sqlite.core.scopes import State
from edenmem.store.sqlite.core.words import quote, scope_prefix, scoped_words, without_scope

#: Lookups in scopes of at least this many facts are cached by scope, so that all searches share
#: them. With more large scopes than the maximum, scopes are looked up together: each part costs an
#: index query per word.
_LARGE, _MOST_LARGE = 1000, 4
#: Repeated terms are counted for this many facts beyond the limit.
_BEYOND = 30
#: The mean length of a scope is taken over this many of its newest facts: reading all lengths took
#: half of the time of a search, and the mean of a thousand is within 2 %.
_MEASURED = 1000
#: Tolerance for sums that may be equal after rounding.
_ROUNDING = 1e-9
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
    """A full-text index over facts: its tables, and the column with the text of a row.

    FTS5 keeps the number of words of each of its ``columns`` in ``sizes``, for the text first.
    """

    name: str
    content: str
    join: str = ""
    columns: int = 1

    @property
    def sizes(self) -> str:
        """Return the table with the lengths of the rows."""
        return f"{self.name}_docsize"

    @property
    def words(self) -> str:
        """Return the table with the vocabulary."""
        return f"{self.name.removesuffix('_text')}_words"


#: Indexes of the facts and of their source messages.
FACTS = TextIndex("facts_text", "facts.content")
SOURCES = TextIndex(
    source_words.INDEX,
    f"{source_words.TEXTS}.content",
    f" JOIN {source_words.TEXTS} USING (fact_no)",
    columns=2,
)


#: The size of a text in entries of `Postings`, besides its letters; and the maximum for the texts
#: of one part, enough for 12,000 facts.
_TEXT_ENTRIES, _MOST_TEXTS = 20, 500_000


#: A scope number and its revision.
_Revision = tuple[int, int]


class _Part(NamedTuple):
    """Scopes that are looked up together."""

    scopes: tuple[_Revision, ...]

    @property
    def numbers(self) -> list[int]:
        """Return the scope numbers."""
        return [number for number, _ in self.scopes]


class _Size(NamedTuple):
    """The number of searched facts, and of their words."""

    facts: int
    words: float


#: Index lookups, valid as long as the scopes do not change. The revisions of the scopes are part of
#: each key and are read in the transaction of the search, so writes of other processes are never
#: missed.
Postings = BoundedCache[Any, Any]
#: Entries of a cache of lookups, each of up to sixteen bytes.
MOST_POSTINGS = 2_000_000


class _Text(msgspec.Struct, frozen=True, gc=False):
    """The text of a fact, as stored and without case and accents.

    Thousands are cached, so the garbage collector need not visit them.
    """

    number: int
    content: str
    folded: str


class _Texts:
    """Texts of facts by number, with their size in entries of `Postings`."""

    def __init__(self) -> None:
        self.by_number: dict[int, _Text] = {}
        self.size = 0

    def add(self, text: _Text) -> None:
        self.by_number[text.number] = text
        self.size += _TEXT_ENTRIES + len(text.content) // 8


class _Matches(NamedTuple):
    """A weighed query, the weight of the terms of each matching fact, and the lengths read so far.

    The score of a fact with each of its terms once follows from its weight and length.
    """

    query: WeighedQuery
    weights: dict[int, float]
    lengths: dict[int, int]


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
        self._searched: _Size | None = None

    def best(self, query: str, limit: int) -> dict[int, float]:
        """Return the facts that match any of the query's words best, and all equal to the last."""
        matches = self._match(query)
        head = self._head(matches, limit + _BEYOND)
        scores = self._count_repeated(matches.query, head)
        if len(scores) <= limit:
            return scores
        bar = sorted(scores.values(), reverse=True)[limit - 1]
        return {number: score for number, score in scores.items() if score >= bar}

    def whole(self, query: str) -> float:
        """Return the score of a text with every word of the query; see `WeighedQuery`."""
        return self._match(query).query.whole

    def scores(self, query: str, facts: Iterable[int]) -> dict[int, float]:
        """Return the scores of the given facts that match any of the query's words."""
        matches = self._match(query)
        matching = [number for number in facts if number in matches.weights]
        return self._count_repeated(matches.query, self._score_once(matches, matching))

    def _head(self, matches: _Matches, size: int) -> dict[int, float]:
        """Return the ``size`` best facts with every term counted once, and all equal to the last.

        Reads the lengths of facts with the greatest weights only: a fact with fewer or more common
        terms has a place among them only if it is much shorter.
        """
        weights = matches.weights
        if len(weights) <= size:
            return self._score_once(matches, weights)
        counts = Counter(weights.values())
        least = before = 0.0
        for least in sorted(counts, reverse=True):
            before += counts[least]
            if before >= size:
                break
        scores = self._score_once(matches, [n for n, weight in weights.items() if weight >= least])
        bar = _bar(scores, size) / matches.query.share_of(1.0, length=1)
        short = [n for n, weight in weights.items() if bar <= weight < least]
        scores |= self._score_once(matches, short)
        bar = _bar(scores, size)
        return {number: score for number, score in scores.items() if score >= bar}

    def _score_once(self, matches: _Matches, numbers: Collection[int]) -> dict[int, float]:
        """Return the scores of matching facts, with every term counted once."""
        query, weights, lengths = matches
        if missing := [number for number in numbers if number not in lengths]:
            ((ids, sizes),) = self._db.execute(
                "SELECT json_group_array(d.id), CAST(group_concat(d.sz, '') AS BLOB)"
                f" FROM json_each(?) n CROSS JOIN {self._index.sizes} d ON d.id = n.value",
                (json_array(missing),),
            )
            read = json.loads(ids)
            lengths.update(zip(read, self._lengths(sizes, len(read)), strict=True))
        shares = {length: query.share_of(1.0, length=length) for length in set(lengths.values())}
        return {number: weights[number] * shares[lengths[number]] for number in numbers}

    def _count_repeated(self, query: WeighedQuery, once: Mapping[int, float]) -> dict[int, float]:
        """Return the exact scores of facts.

        Counts the words of a text only if it may have a term more than once.
        """
        beginnings = {_beginning(term[0]) for term in query.weights}
        scores = {number: round_score(score) for number, score in once.items()}
        repeated = {
            text.number: text.content
            for text in self._texts(once)
            if max(map(text.folded.count, beginnings), default=0) > 1
        }
        if repeated:
            words = zip(repeated, index_words(repeated.values()), strict=True)
            scores |= {number: query.score(each) for number, each in words}
        return scores

    def _texts(self, numbers: Iterable[int]) -> list[_Text]:
        """Return the texts of facts; cached by part, since searches often read the same."""
        keys = [("texts", self._index.name, part) for part in self._parts]
        known: list[_Texts] = [self._known.get(key) or _Texts() for key in keys]
        found: list[_Text] = []
        missing: list[int] = []
        for number in numbers:
            for texts in known:
                if (text := texts.by_number.get(number)) is not None:
                    found.append(text)
                    break
            else:
                missing.append(number)
        if not missing:
            return found
        place_of = {
            scope: place for place, part in enumerate(self._parts) for scope in part.numbers
        }
        for scope, text in self._read(missing):
            known[place_of[scope]].add(text)
            found.append(text)
        for key, texts in zip(keys, known, strict=True):
            kept = texts if texts.size <= _MOST_TEXTS else _Texts()
            self._known.put(key, kept, kept.size)
        return found

    def _read(self, numbers: Sequence[int]) -> list[tuple[int, _Text]]:
        """Read the texts of facts, each with the number of its scope."""
        rows = self._db.execute(
            f"SELECT facts.scope_id, fact_no, {self._index.content} FROM facts"
            f"{self._index.join} WHERE fact_no IN (SELECT value FROM json_each(?))",
            (json_array(numbers),),
        )
        return [(scope, _Text(number, content, _fold(content))) for scope, number, content in rows]

    # -- what matches ------------------------------------------------------------------------

    def _match(self, query: str) -> _Matches:
        known: _Matches | None = self._known.get((self._key, query))
        if known is None:
            known = self._look_up(query)
            self._known.put((self._key, query), known, len(known.weights))
        return known

    def _look_up(self, query: str) -> _Matches:
        words = self._words(query)
        terms = dict.fromkeys(term for of_word in words for term in of_word)
        having = {term: self._having(term) for term in terms}
        size = self._size()
        mean = size.words / size.facts if size.facts else 1.0
        weighed = weigh(words, having, total=size.facts, mean_length=mean)
        weights: dict[int, float] = {}
        for term, weight in weighed.weights.items():
            of_term: dict[int, float] = {}
            for part in self._parts:
                of_term |= dict.fromkeys(self._posting(part, term), weight)
            for number in weights.keys() & of_term.keys():
                of_term[number] += weights[number]
            weights |= of_term
        return _Matches(weighed, weights, {})

    def _size(self) -> _Size:
        """Return the number of searched facts, and an estimate of their words; cached by scope."""
        if self._searched is None:
            each = [self._size_of(scope) for scope in self._revisions]
            self._searched = _Size(sum(one.facts for one in each), sum(one.words for one in each))
        return self._searched

    def _size_of(self, scope: _Revision) -> _Size:
        key = ("size", self._index.name, scope, *self._narrowing)
        known: _Size | None = self._known.get(key)
        if known is None:
            known = self._count_words(scope[0])
            self._known.put(key, known, 1)
        return known

    def _count_words(self, scope_id: int) -> _Size:
        within = f"FROM facts f WHERE f.scope_id = ?{self._conditions}"
        values = (scope_id, *self._values)
        (facts,) = self._db.execute(f"SELECT count(*) {within}", values).fetchone()
        if not facts:
            return _Size(0, 0.0)
        rows = self._db.execute(
            "SELECT count(*), CAST(group_concat(d.sz, '') AS BLOB) FROM"
            f" (SELECT f.fact_no {within} ORDER BY f.recent_at DESC, f.id LIMIT ?)"
            f" JOIN {self._index.sizes} d ON d.id = fact_no",
            (*values, _MEASURED),
        )
        ((count, sizes),) = rows
        return _Size(facts, facts * sum(self._lengths(sizes, count)) / max(count, 1))

    def _lengths(self, sizes: bytes | None, count: int) -> Sequence[int]:
        """Return the numbers of words of ``count`` texts, from records of sizes."""
        columns = self._index.columns
        return _numbers(sizes or b"", count * columns)[::columns]

    def _having(self, term: Term) -> int:
        """Count the searched facts that have a term."""
        return sum(len(self._posting(part, term)) for part in self._parts)

    def _posting(self, part: _Part, term: Term) -> array[int]:
        """Return the facts of some scopes that have a term."""
        key = (self._index.name, part, *self._narrowing, term)
        posting: array[int] | None = self._known.get(key)
        if posting is None:
            posting = array("q", self._ask(part, term))
            self._known.put(key, posting, len(posting) + 1)
        return posting

    def _ask(self, part: _Part, term: Term) -> list[int]:
        """Query the index for the facts of some scopes that have a term."""
        name = self._index.name
        join = " JOIN facts f ON f.fact_no = t.rowid" if self._conditions else ""
        phrases = (quote(scoped_words(number, term)) for number in part.numbers)
        # One row: thousands of rows cost more than their lookup.
        ((numbers,),) = self._db.execute(
            f"SELECT json_group_array(t.rowid) FROM json_each(?) p CROSS JOIN {name} t{join}"
            f" WHERE {name} MATCH p.value{self._conditions}",
            (json_array(f"content : {phrase}" for phrase in phrases), *self._values),
        )
        found: list[int] = json.loads(numbers)
        return found

    # -- misspellings ------------------------------------------------------------------------

    def _words(self, query: str) -> list[list[Term]]:
        """Return the terms of each word of a query.

        A word that no searched fact has is replaced by similar words, if there are any.
        """
        found: list[list[Term]] = []
        fuzzy = 0
        for word, term in query_terms(query):
            if not is_fuzzy(word) or fuzzy == _MOST_FUZZY or self._having(term):
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
        having = {term: self._having(term) for term in near}
        ranked = sorted(having, key=lambda term: (-having[term], term))
        return [term for term in ranked[:MOST_NEIGHBORS] if having[term]]


def _split(scopes: Sequence[_Revision], alone: Collection[int]) -> list[_Part]:
    """Split scopes into parts: large scopes alone, all others together."""
    parts = [_Part((scope,)) for scope in scopes if scope[0] in alone]
    others = tuple(scope for scope in scopes if scope[0] not in alone)
    return [*parts, _Part(others)] if others else parts


def _numbers(encoded: bytes, count: int) -> array[int]:
    """Decode ``count`` numbers of FTS5.

    A number has seven bits per byte, highest first, and the highest bit is set in all bytes but the
    last.
    """
    if len(encoded) == count:
        return array("L", list(encoded))
    numbers = array("L")
    number = 0
    for byte in encoded:
        number |= byte & 0x7F
        if byte & 0x80:
            number <<= 7
        else:
            numbers.append(number)
            number = 0
    return numbers


def _bar(scores: Mapping[int, float], size: int) -> float:
    """Return the lowest of the ``size`` best scores, or slightly less because of rounding."""
    return sorted(scores.values(), reverse=True)[size - 1] - _ROUNDING


def _beginning(stem: str) -> str:
    """Return the common prefix of all forms of a stem.

    The last letter of a stem may be an "i" for a "y", or be missing in a form.
    """
    return stem[: max(1, len(stem) - 1)]


#: Accents, which the index ignores.
_MARKS = "[\u0300-\u036f]"


def _fold(content: str) -> str:
    """Return a text without case and accents, to look for repeated words."""
    folded = content.lower()
    if not folded.isascii():
        folded = re.sub(_MARKS, "", unicodedata.normalize("NFKD", folded))
    return folded


def _edits_of_head(word: str) -> set[str]:
    """Return all words that differ by one edit in the first letters."""
    letters = "".join(a for a in _ALPHABETS if not set(word).isdisjoint(a))
    splits = [(word[:i], word[i:]) for i in range(min(_FIRST_LETTERS, len(word)))]
    edits = {a + b[1:] for a, b in splits}
    edits |= {a + b[1] + b[0] + b[2:] for a, b in splits if len(b) > 1}
    edits |= {a + c + b[1:] for a, b in splits for c in letters}
    edits |= {a + c + b for a, b in splits for c in letters}
    return edits
