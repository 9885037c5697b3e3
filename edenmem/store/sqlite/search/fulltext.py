"""The text list: facts that have the query's words, by FTS5, ranked by our own BM25.

FTS5 finds which facts of some scopes have a word. Its `bm25()` is not used: it weighs words by
the whole store, and goes through all of it to do so.
"""

# ruff: noqa: S608 - what is put into statements here are our own constants; values are bound.

from __future__ import annotations

import re
import sqlite3
import threading
import unicodedata
from array import array
from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from edenmem.models.search import Candidate
from edenmem.search.text_ranking import (
    MANY,
    MOST_NEIGHBOURS,
    Term,
    WeighedQuery,
    query_terms,
    weigh,
)
from edenmem.search.words import index_words, is_fuzzy, within_one_edit
from edenmem.store.sqlite.core import source_words
from edenmem.store.sqlite.core.connections import map_file
from edenmem.store.sqlite.core.part import json_array
from edenmem.store.sqlite.core.words import quote, scope_word

#: More scopes than this are joined instead of being words of the query.
_MOST_SCOPE_WORDS = 32
#: What a scope of so many facts has is kept by itself, so that all who search in it share that; of
#: more such scopes than so many, together: each costs a query of the index for each word.
_LARGE, _MOST_LARGE = 1000, 4
#: How often a fact has a word is looked up for so many of the best, at least for so many.
_HEAD, _LEAST_HEAD = 4, 100
#: The mean length of a scope's facts is that of so many of its newest: to read the lengths of all
#: took half of the time of a search, and a mean of a thousand is within two in a hundred.
_MEASURED = 1000
#: Sums that differ by less may be equal once they are rounded.
_ROUNDING = 1e-9
#: How many unknown words of a query are looked up.
_MOST_FUZZY = 8
#: A misspelling in the first letters is looked up word by word, one in the rest by their beginning.
_FIRST_LETTERS = 3

_ALPHABETS = (
    "abcdefghijklmnopqrstuvwxyz",
    "абвгдеёжзийклмнопрстуфхцчшщъыьэюяіїєґў",
    "αβγδεζηθικλμνξοπρσςτυφχψω",
)


class TextIndex(NamedTuple):
    """A full-text index over facts: its tables, and where a statement finds the text of a row.

    FTS5 keeps the number of words of each column in ``sizes``, as numbers of its own; the first is
    the one of the scope.
    """

    name: str
    content: str
    join: str = ""

    @property
    def sizes(self) -> str:
        """Return the table with the lengths of the rows."""
        return f"{self.name}_docsize"

    @property
    def words(self) -> str:
        """Return the table with the vocabulary."""
        return f"{self.name.removesuffix('_text')}_words"


#: The words of the facts themselves, and those of the messages that facts were formed from.
FACTS = TextIndex("facts_text", "content")
SOURCES = TextIndex(
    source_words.INDEX, "c1", f" JOIN {source_words.INDEX}_content w ON w.id = fact_no"
)


#: A scope's number and its revision.
_Revision = tuple[int, int]


class Posting(NamedTuple):
    """The facts that have a term: their numbers, and how many words each has."""

    facts: array[int]
    lengths: array[int]


class _Part(NamedTuple):
    """Some of the scopes, which the index is asked about together."""

    scopes: tuple[_Revision, ...]

    @property
    def numbers(self) -> list[int]:
        """The scopes by their numbers alone."""
        return [number for number, _ in self.scopes]


class _Size(NamedTuple):
    """Facts that are searched, and words in all of them."""

    facts: int
    words: float


class Postings:
    """What was looked up in the index, as long as no scope of it changes; bounded, each entry to
    sixteen bytes.

    The revisions of the scopes are part of each key, and are read in the transaction of the
    search, so that what another process wrote is never missed.
    """

    def __init__(self, limit: int = 1_000_000) -> None:
        self._limit = limit
        self._held = 0
        self._known: OrderedDict[Any, tuple[int, Any]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Any) -> Any:
        """What is known under a key, or None."""
        with self._lock:
            if key not in self._known:
                return None
            self._known.move_to_end(key)
            return self._known[key][1]

    def put(self, key: Any, value: Any, size: int) -> None:
        """Keep ``value``, which has ``size`` entries."""
        if size > self._limit:
            return
        with self._lock:
            self._held -= self._known.pop(key, (0, None))[0]
            self._known[key] = (size, value)
            self._held += size
            while self._held > self._limit:
                self._held -= self._known.popitem(last=False)[1][0]


class _Matches(NamedTuple):
    """A query with its weights, and the score of each fact that has any of its terms, counted as if
    no fact had a term twice."""

    query: WeighedQuery
    scores: dict[int, float]


class TextQuery:
    """Text search within some scopes and a narrowing, in one read transaction."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        numbers: Sequence[int],
        conditions: str,
        values: Sequence[Any],
        known: Postings,
        index: TextIndex = FACTS,
    ) -> None:
        self._db = connection
        self._index = index
        map_file(connection)
        self._conditions, self._values = conditions, list(values)
        self._known = known
        self._scopes = json_array(numbers)
        rows = connection.execute(
            "SELECT scope_id, revision, facts FROM scopes"
            " WHERE scope_id IN (SELECT value FROM json_each(?)) ORDER BY scope_id",
            (self._scopes,),
        ).fetchall()
        self._revisions: tuple[_Revision, ...] = tuple((row[0], row[1]) for row in rows)
        large = {row[0] for row in rows if row[2] >= _LARGE}
        self._parts = _split(self._revisions, large if len(large) <= _MOST_LARGE else set())
        self._narrowing = (conditions, tuple(values))
        self._key = (index.name, self._revisions, *self._narrowing)
        self._searched: _Size | None = None

    def best(self, query: str, limit: int) -> list[Candidate]:
        """The facts that match any of the query's words, best first, equal ones by id."""
        matches = self._match(query)
        head: Iterable[int] = matches.scores
        size = max(_HEAD * limit, _LEAST_HEAD)
        if len(matches.scores) > size:  # with all that are equal to the last one
            bar = sorted(matches.scores.values(), reverse=True)[size - 1] - _ROUNDING
            head = (number for number, score in matches.scores.items() if score >= bar)
        scored = self._score_exactly(matches, "fact_no", json_array(head))
        found = [Candidate(fact_id, score) for fact_id, score in scored.items()]
        return sorted(found, key=lambda one: (-one.score, one.fact_id))[:limit]

    def reach(self, query: str) -> float:
        """What a match is to be measured by; see `WeighedQuery`."""
        return self._match(query).query.reach

    def scores(self, query: str, fact_ids: Sequence[str]) -> dict[str, float]:
        """The scores of some facts, of those that match any of the query's words."""
        if not fact_ids:
            return {}
        return self._score_exactly(self._match(query), "id", json_array(fact_ids))

    def _score_exactly(self, matches: _Matches, column: str, among: str) -> dict[str, float]:
        """The scores of those facts of a list that match, by id.

        Where a fact may have a term more than once, its text is looked at.
        """
        query, scores = matches
        rows = self._db.execute(
            f"SELECT fact_no, facts.id, {self._index.content} FROM facts{self._index.join}"
            f" WHERE facts.{column} IN"
            " (SELECT value FROM json_each(?)) AND scope_id IN (SELECT value FROM json_each(?))",
            (among, self._scopes),
        )
        beginnings = {_beginning(term[0]) for term in query.weights}
        found: dict[str, float] = {}
        repeated: dict[str, str] = {}
        for number, fact_id, content in rows:
            if number in scores:
                found[fact_id] = query.sum_up((scores[number],))
                if _may_repeat(content, beginnings):
                    repeated[fact_id] = content
        if repeated:
            words = zip(repeated, index_words(repeated.values()), strict=True)
            found |= {fact_id: query.score(each) for fact_id, each in words}
        return found

    # -- what matches ------------------------------------------------------------------------

    def _match(self, query: str) -> _Matches:
        known: _Matches | None = self._known.get((self._key, query))
        if known is None:
            known = self._look_up(query)
            self._known.put((self._key, query), known, len(known.scores))
        return known

    def _look_up(self, query: str) -> _Matches:
        words = self._words(query)
        terms = {term: written for of_word in words for term, written in of_word.items()}
        having = {term: self._having(term, written) for term, written in terms.items()}
        size = self._size()
        mean = size.words / size.facts if size.facts else 1.0
        weighed = weigh([*map(tuple, words)], having, total=size.facts, mean_length=mean)
        scores: dict[int, float] = {}
        for term in weighed.weights:
            of_term: dict[int, float] = {}
            for part in self._parts:
                facts, lengths = self._posting(part, term, terms[term])
                shares = {length: weighed.share(term, 1, length) for length in set(lengths)}
                of_term.update(zip(facts, map(shares.__getitem__, lengths), strict=True))
            for number in scores.keys() & of_term.keys():
                of_term[number] += scores[number]
            scores |= of_term
        return _Matches(weighed, scores)

    def _size(self) -> _Size:
        """How many facts are searched, and about how many words they have; kept by scope."""
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
            f"SELECT d.sz FROM (SELECT f.fact_no {within} ORDER BY f.recent_at DESC, f.id LIMIT ?)"
            f" JOIN {self._index.sizes} d ON d.id = fact_no",
            (*values, _MEASURED),
        )
        lengths = [_LENGTHS[sizes] for (sizes,) in rows]
        return _Size(facts, facts * sum(lengths) / max(len(lengths), 1))

    def _having(self, term: Term, written: str) -> int:
        """How many of the facts in question have a term."""
        if self._size().facts <= MANY:
            return sum(len(self._posting(part, term, written).facts) for part in self._parts)
        return sum(self._count(part, term, written) for part in self._parts)

    def _count(self, part: _Part, term: Term, written: str) -> int:
        key = (self._index.name, part, *self._narrowing, term, "count")
        count: int | None = self._known.get(key)
        if count is None:
            ((count,),) = self._ask(part, "count(*)", "", written)
            assert count is not None
            self._known.put(key, count, 1)
        return count

    def _posting(self, part: _Part, term: Term, written: str) -> Posting:
        """The facts of some scopes that have a term."""
        key = (self._index.name, part, *self._narrowing, term)
        posting: Posting | None = self._known.get(key)
        if posting is None:
            join = f"JOIN {self._index.sizes} d ON d.id = t.rowid"
            rows = self._ask(part, "t.rowid, d.sz", join, written)
            numbers, sizes = zip(*rows, strict=True) if rows else ((), ())
            posting = Posting(array("q", numbers), array("L", map(_LENGTHS.__getitem__, sizes)))
            self._known.put(key, posting, len(rows) + 1)
        return posting

    def _ask(self, part: _Part, columns: str, join: str, written: str) -> list[Any]:
        """Rows of the index for the facts of some scopes that have a word or phrase."""
        values: list[Any] = []
        within = ""
        if len(part.scopes) <= _MOST_SCOPE_WORDS:
            within = f"scope : ({' OR '.join(map(scope_word, part.numbers))}) AND "
        if self._conditions or not within:
            join += (
                " JOIN facts f ON f.fact_no = t.rowid AND f.scope_id IN"
                " (SELECT value FROM json_each(?))"
            )
            values.append(json_array(part.numbers))
        rows = self._db.execute(
            f"SELECT {columns} FROM {self._index.name} t {join}"
            f" WHERE {self._index.name} MATCH ?{self._conditions}",
            (*values, f"{within}content : {quote(written)}", *self._values),
        )
        return rows.fetchall()

    # -- misspellings ------------------------------------------------------------------------

    def _words(self, query: str) -> list[dict[Term, str]]:
        """For each word of a query its term and how to ask for it; one that no fact in question has
        is replaced by its neighbours, if there are any."""
        found: list[dict[Term, str]] = []
        fuzzy = 0
        for word, term in query_terms(query):
            if not is_fuzzy(word) or fuzzy == _MOST_FUZZY or self._having(term, word):
                found.append({term: word})
                continue
            fuzzy += 1
            found.append(self._neighbours(term[0]) or {term: word})
        return found

    def _neighbours(self, stem: str) -> dict[Term, str]:
        """Words of the facts in question that are one edit away, the commonest first."""
        head = stem[:_FIRST_LETTERS]
        rows = self._db.execute(
            f"SELECT term FROM {self._index.words} WHERE term IN (SELECT value FROM json_each(?))",
            (json_array(_edits_of_head(stem)),),
        ).fetchall()
        rows += self._db.execute(
            f"SELECT term FROM {self._index.words} WHERE term >= ? AND term < ?"
            " AND length(term) BETWEEN ? AND ?",
            (head, head + "\U0010ffff", len(stem) - 1, len(stem) + 1),
        ).fetchall()
        near = {term for (term,) in rows if within_one_edit(stem, term)}
        written = _written_forms(sorted(near))
        having = {term: self._having(term, form) for term, form in written.items()}
        ranked = sorted(having, key=lambda term: (-having[term], term))
        return {term: written[term] for term in ranked[:MOST_NEIGHBOURS] if having[term]}


def _split(scopes: Sequence[_Revision], alone: Collection[int]) -> list[_Part]:
    """Parts: each of the scopes that are to be alone, and all others together."""
    parts = [_Part((scope,)) for scope in scopes if scope[0] in alone]
    others = tuple(scope for scope in scopes if scope[0] not in alone)
    return [*parts, _Part(others)] if others else parts


#: Endings of words whose stem is not its own stem: "univers" is that of "universe" alone.
_ENDINGS = ("", "e", "s", "al", "ing", "ity")


def _written_forms(stems: Sequence[str]) -> dict[Term, str]:
    """For each stem a word that the index makes it of: to ask for the stem would stem it again."""
    forms = [stem + ending for stem in stems for ending in _ENDINGS]
    made = zip(forms, index_words(forms), strict=True)
    written: dict[Term, str] = {}
    for form, words in made:
        written.setdefault(tuple(words), form)
    return {(stem,): written[(stem,)] for stem in stems if (stem,) in written}


class _Lengths(dict[bytes, int]):
    """The second number in FTS5's record of sizes: seven bits a byte, the highest first, and the
    first number is one byte."""

    def __missing__(self, sizes: bytes) -> int:
        length = 0
        for byte in sizes[1:]:
            length = length << 7 | byte & 0x7F
        self[sizes] = length
        return length


_LENGTHS = _Lengths()


def _beginning(stem: str) -> str:
    """What every form of a stem begins with: its last letter may be an "i" for a "y", or an "e"
    that a form has lost."""
    return stem[: max(1, len(stem) - 1)]


#: Accents, which the index leaves out.
_MARKS = re.compile("[\u0300-\u036f]")


def _may_repeat(content: str, beginnings: set[str]) -> bool:
    """Whether a text may have one of the words twice."""
    folded = content.lower()
    if not folded.isascii():
        folded = _MARKS.sub("", unicodedata.normalize("NFKD", folded))
    return max(map(folded.count, beginnings), default=0) > 1


def _edits_of_head(word: str) -> set[str]:
    """What a deletion, a swap of neighbours, a change or an insertion in the first letters makes of
    a word."""
    letters = "".join(a for a in _ALPHABETS if not set(word).isdisjoint(a))
    splits = [(word[:i], word[i:]) for i in range(min(_FIRST_LETTERS, len(word)))]
    edits = {a + b[1:] for a, b in splits}
    edits |= {a + b[1] + b[0] + b[2:] for a, b in splits if len(b) > 1}
    edits |= {a + c + b[1:] for a, b in splits for c in letters}
    edits |= {a + c + b for a, b in splits for c in letters}
    return edits
