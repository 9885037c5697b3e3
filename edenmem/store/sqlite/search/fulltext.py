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
from collections.abc import Iterable, Sequence
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
from edenmem.store.sqlite.core.part import json_array
from edenmem.store.sqlite.core.words import quote, scope_word

#: More scopes than this are joined instead of being words of the query.
_MOST_SCOPE_WORDS = 32
#: How often a fact has a word is looked up for so many of the best, at least for so many.
_HEAD, _LEAST_HEAD = 4, 100
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

#: FTS5 keeps how many words each column has, as numbers of its own; the first is the scope's one.
_SIZES = "facts_text_docsize"


#: A scope's number and its revision.
_Revision = tuple[int, int]


class Posting(NamedTuple):
    """The facts that have a term: their numbers, and how many words each has."""

    facts: array[int]
    lengths: array[int]


class _Size(NamedTuple):
    """Facts that are searched, and words in all of them."""

    facts: int
    words: int


class Postings:
    """What was looked up in the index, as long as no scope of it changes; bounded.

    The revisions of the scopes are part of each key, and are read in the transaction of the
    search, so that what another process wrote is never missed.
    """

    def __init__(self, limit: int = 300_000) -> None:
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
    ) -> None:
        self._db = connection
        self._within = ""
        self._conditions, self._values = conditions, list(values)
        self._known = known
        self._scopes = json_array(numbers)
        self._revisions: tuple[_Revision, ...] = tuple(
            connection.execute(
                "SELECT scope_id, revision FROM scopes"
                " WHERE scope_id IN (SELECT value FROM json_each(?)) ORDER BY scope_id",
                (self._scopes,),
            ).fetchall()
        )
        self._narrowing = (conditions, tuple(values))
        self._key = (self._revisions, *self._narrowing)
        self._searched: _Size | None = None
        if len(numbers) <= _MOST_SCOPE_WORDS:
            words = " OR ".join(scope_word(number) for number in numbers)
            self._within = f"scope : ({words}) AND "

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
            f"SELECT fact_no, id, content FROM facts WHERE {column} IN"
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
        terms = self._terms(query)
        having = {term: self._having(term, written) for term, written in terms.items()}
        size = self._size()
        mean = size.words / size.facts if size.facts else 1.0
        weighed = weigh(having, total=size.facts, mean_length=mean)
        scores: dict[int, float] = {}
        for term in weighed.weights:
            facts, lengths = self._posting(term, terms[term])
            shares = {length: weighed.share(term, 1, length) for length in set(lengths)}
            for number, length in zip(facts, lengths, strict=True):
                scores[number] = scores.get(number, 0.0) + shares[length]
        return _Matches(weighed, scores)

    def _size(self) -> _Size:
        """How many facts are searched, and how many words they have; kept by scope."""
        if self._searched is None:
            keys = {scope: ("size", scope, *self._narrowing) for scope in self._revisions}
            sizes: dict[_Revision, _Size | None]
            sizes = {scope: self._known.get(key) for scope, key in keys.items()}
            unknown = [scope for scope, size in sizes.items() if size is None]
            counted = self._count_words([number for number, _ in unknown]) if unknown else {}
            for scope in unknown:
                sizes[scope] = counted.get(scope[0], _Size(0, 0))
                self._known.put(keys[scope], sizes[scope], 1)
            each = [size for size in sizes.values() if size]
            self._searched = _Size(sum(one.facts for one in each), sum(one.words for one in each))
        return self._searched

    def _count_words(self, numbers: Sequence[int]) -> dict[int, _Size]:
        rows = self._db.execute(
            f"SELECT f.scope_id, d.sz, count(*) FROM facts f JOIN {_SIZES} d ON d.id = f.fact_no"
            f" WHERE f.scope_id IN (SELECT value FROM json_each(?)){self._conditions}"
            " GROUP BY f.scope_id, d.sz",
            (json_array(numbers), *self._values),
        )
        found: dict[int, _Size] = {}
        for scope, sizes, count in rows:
            known = found.get(scope, _Size(0, 0))
            found[scope] = _Size(known.facts + count, known.words + _LENGTHS[sizes] * count)
        return found

    def _having(self, term: Term, written: str) -> int:
        """How many of the facts in question have a term."""
        if self._size().facts <= MANY:
            return len(self._posting(term, written).facts)
        count: int | None = self._known.get((self._key, term, "count"))
        if count is None:
            count = self._ask("count(*)", "", written)[0][0]
            assert count is not None
            self._known.put((self._key, term, "count"), count, 1)
        return count

    def _posting(self, term: Term, written: str) -> Posting:
        """The facts in question that have a term."""
        posting: Posting | None = self._known.get((self._key, term))
        if posting is None:
            rows = self._ask("t.rowid, d.sz", f"JOIN {_SIZES} d ON d.id = t.rowid", written)
            posting = Posting(
                array("q", [number for number, _ in rows]),
                array("L", [_LENGTHS[sizes] for _, sizes in rows]),
            )
            self._known.put((self._key, term), posting, len(rows) + 1)
        return posting

    def _ask(self, columns: str, join: str, written: str) -> list[Any]:
        """Rows of the index for the facts in question that have a word or phrase."""
        values: list[Any] = []
        if self._conditions or not self._within:
            join += (
                " JOIN facts f ON f.fact_no = t.rowid AND f.scope_id IN"
                " (SELECT value FROM json_each(?))"
            )
            values.append(self._scopes)
        rows = self._db.execute(
            f"SELECT {columns} FROM facts_text t {join} WHERE facts_text MATCH ?{self._conditions}",
            (*values, f"{self._within}content : {quote(written)}", *self._values),
        )
        return rows.fetchall()

    # -- misspellings ------------------------------------------------------------------------

    def _terms(self, query: str) -> dict[Term, str]:
        """The terms of a query and how to ask for them; those that no fact in question has are
        replaced by their neighbours."""
        found: dict[Term, str] = {}
        fuzzy = 0
        for word, term in query_terms(query):
            if not is_fuzzy(word) or fuzzy == _MOST_FUZZY or self._having(term, word):
                found.setdefault(term, word)
                continue
            fuzzy += 1
            for near, written in self._neighbours(term[0]).items():
                found.setdefault(near, written)
        return found

    def _neighbours(self, stem: str) -> dict[Term, str]:
        """Words of the facts in question that are one edit away, the commonest first."""
        head = stem[:_FIRST_LETTERS]
        rows = self._db.execute(
            "SELECT term FROM facts_words WHERE term IN (SELECT value FROM json_each(?))",
            (json_array(_edits_of_head(stem)),),
        ).fetchall()
        rows += self._db.execute(
            "SELECT term FROM facts_words WHERE term >= ? AND term < ?"
            " AND length(term) BETWEEN ? AND ?",
            (head, head + "\U0010ffff", len(stem) - 1, len(stem) + 1),
        ).fetchall()
        near = {term for (term,) in rows if within_one_edit(stem, term)}
        written = _written_forms(sorted(near))
        having = {term: self._having(term, form) for term, form in written.items()}
        ranked = sorted(having, key=lambda term: (-having[term], term))
        return {term: written[term] for term in ranked[:MOST_NEIGHBOURS] if having[term]}


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
    return any(folded.count(each) > 1 for each in beginnings)


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
