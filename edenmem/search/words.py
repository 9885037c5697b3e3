"""The words of texts and queries, in the form of the full-text index.

FTS5 splits, folds and stems: in the index of a file, or in memory. Two more steps are taken here,
for facts and queries: compatibility normalization (NFKC), and segmentation of scripts without
spaces. There each character is a word of the index, and a query is split into overlapping pairs
(Han, kana, Hangul) or threes (Thai, Lao, Burmese, Khmer).
"""

from __future__ import annotations

import re
import sqlite3
import threading
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from functools import cache

_PAIRS = (
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
_THREES = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\ua9e0-\ua9ff\uaa60-\uaa7f"

#: Splits, folds and stems. A change needs a migration of SQLite files.
_TOKENIZER = "porter unicode61 remove_diacritics 2 categories 'L* N* Co Mn Mc'"

#: Shorter words have too many neighbors ("cat", "car"); longer ones are not misspellings.
_SHORTEST_FUZZY, _LONGEST_FUZZY = 4, 32

_POSSESSIVE = re.compile("['\u2019]s\\W*$")
_PUNCTUATION = ".,;:!?\"'()[]{}\u2018\u2019\u201c\u201d\u2026@"

#: Maximum number of different words in a query.
MOST_WORDS = 64

_STOP_WORDS = """
a about after all also am an and any are as at be because been before being but by can could d
did do does doing don down during each few for from further had has have having he her here hers
him his how i if in into is it its itself just ll m me more most my of off on once only or other
our ours out over own re s same she should so some such t than that the their theirs them then
there these they this those through to too under until up us ve very was we were what when where
which while who whom whose why will with would you your yours
"""
#: English words without meaning for search, including question words.
STOP_WORDS = frozenset(_STOP_WORDS.split())


@cache  # compiled on first use: takes milliseconds, and most commands need no patterns
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return the patterns for one unspaced character, and for a run by its window size."""
    return (
        re.compile(f"[{_PAIRS}{_THREES}]"),
        re.compile(f"([{_PAIRS}]+)|([{_THREES}]+)"),
    )


#: A fact that names more messages was formed from a range, not from single messages.
MOST_SOURCES = 3
#: Longer messages are indexed up to here: a pasted document says little about one fact.
_MOST_CHARACTERS = 4000


def source_text(contents: Iterable[str]) -> str:
    """Join the source messages of a fact into the text that search reads."""
    return "\n".join(content[:_MOST_CHARACTERS] for content in contents if content)


def normalize_for_index(text: str) -> str:
    """Prepare a text for the index.

    A change needs a migration: the index can only remove the exact words that were added.
    """
    if text.isascii():
        return text
    return _patterns()[0].sub(r" \g<0> ", unicodedata.normalize("NFKC", text))


def _is_unspaced(text: str) -> bool:
    return not text.isascii() and _patterns()[0].search(text) is not None


_ASCII_WORD = re.compile("[0-9a-z]+")


def _is_word_character(character: str) -> bool:
    category = unicodedata.category(character)
    return category[0] in "LN" or category in ("Mn", "Mc", "Co")


def _pieces(text: str) -> list[str]:
    """Split a text without unspaced scripts into lower-case words."""
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    spaced = "".join(c if _is_word_character(c) else " " for c in text.lower())
    return spaced.split()


def _windows(run: str, size: int) -> list[str]:
    """Return overlapping runs of ``size`` characters, each as a phrase of one-character words."""
    size = min(size, len(run))
    return [" ".join(run[i : i + size]) for i in range(len(run) - size + 1)]


def query_words(query: str) -> list[str]:
    """Split a query into distinct words, and phrases of single characters.

    Stop words are left out, unless there is nothing else.
    """
    text = unicodedata.normalize("NFKC", query)
    found: list[str] = []
    end = 0
    for run in _patterns()[1].finditer(text) if _is_unspaced(text) else ():
        found += _pieces(text[end : run.start()])
        found += _windows(run[1], 2) if run[1] else _windows(run[2], 3)
        end = run.end()
    found += _pieces(text[end:])
    words = list(dict.fromkeys(found))
    return ([word for word in words if word not in STOP_WORDS] or words)[:MOST_WORDS]


def leave_out_names(query: str, names: Iterable[str]) -> str:
    """Remove names from a query, unless only stop words would remain.

    For names that occur in all searched texts. A name of several words is removed only as a whole:
    with the name "Harbour Guide", "harbour" alone stays.
    """
    words = query.split()
    plain = [_POSSESSIVE.sub("", word.casefold()).strip(_PUNCTUATION) for word in words]
    kept = [True] * len(words)
    for name in names:
        parts = name.casefold().split()
        for start in range(len(plain) - len(parts) + 1):
            if parts and plain[start : start + len(parts)] == parts:
                kept[start : start + len(parts)] = [False] * len(parts)
    rest = " ".join(word for word, keeps in zip(words, kept, strict=True) if keeps)
    return query if STOP_WORDS.issuperset(query_words(rest)) else rest


def is_fuzzy(word: str) -> bool:
    """Return whether an unknown word may be a misspelling."""
    return word.isalpha() and _SHORTEST_FUZZY <= len(word) <= _LONGEST_FUZZY


def within_one_edit(one: str, other: str) -> bool:
    """Return whether two words differ by one insertion, deletion, replacement or swap."""
    if abs(len(one) - len(other)) > 1:
        return False
    start = 0
    while start < min(len(one), len(other)) and one[start] == other[start]:
        start += 1
    rest, others = one[start:], other[start:]
    swapped = rest[:2] == others[1::-1] if len(others) > 1 else False
    return (
        rest[1:] == others[1:]
        or rest[1:] == others
        or rest == others[1:]
        or (swapped and rest[2:] == others[2:])
    )


#: Index words of the pieces of texts. Replaced at `_MOST_PIECES`, because other threads read it.
_known: dict[str, tuple[str, ...]] = {}
_MOST_PIECES, _LONGEST_PIECE = 50_000, 64
#: Bytes of a word. FTS5 cuts at 32,768, and the indexes of a file add the scope to a word.
_LONGEST_WORD = 32_000
#: The text between two ASCII characters that are in no word.
_PIECE = re.compile(r"[^\x00-/:-@\[-`{-\x7f]+")


def index_words(texts: Iterable[str]) -> list[list[str]]:
    """Split texts into the words of the index: in order, folded and stemmed."""
    split = [
        _PIECE.findall(text.lower() if text.isascii() else normalize_for_index(text))
        for text in texts
    ]
    words = known = _known
    if unknown := {piece for pieces in split for piece in pieces if piece not in known}:
        words = {piece: known[piece] for pieces in split for piece in pieces if piece in known}
        words |= _learn(unknown)
    return [[word for piece in pieces for word in words[piece]] for pieces in split]


def _learn(unknown: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Return the index words of unknown pieces, and keep those of the short ones."""
    global _known
    short = {piece for piece in unknown if len(piece) <= _LONGEST_PIECE}
    numbers = {piece for piece in short if piece.isascii() and piece.isdigit()}
    others = [piece for piece in unknown if piece not in numbers]
    words = _split_and_stem(others)
    made: dict[str, tuple[str, ...]] = {piece: (piece,) for piece in numbers}  # no other form
    made |= {piece: tuple(each) for piece, each in zip(others, words, strict=True)}
    if len(_known) > _MOST_PIECES:
        _known = {}
    _known.update((piece, made[piece]) for piece in short)
    return made


def _split_and_stem(texts: Sequence[str]) -> list[list[str]]:
    """Split texts by a scratch index."""
    if not texts:
        return []
    placed: list[list[tuple[int, str]]] = [[] for _ in texts]
    scratch = _scratch()
    scratch.execute("BEGIN")
    try:
        rows = enumerate(map(normalize_for_index, texts))
        scratch.executemany("INSERT INTO t (rowid, w) VALUES (?, ?)", rows)
        for number, offset, word in scratch.execute('SELECT doc, "offset", term FROM v'):
            if word:  # a lone accent leaves an empty word
                placed[number].append((offset, word))
    finally:
        scratch.execute("ROLLBACK")
    return [[word for _, word in sorted(words)] for words in placed]


def match_spans(text: str, queries: Iterable[str]) -> list[tuple[int, int]]:
    """Find the words of queries in a text, without stop words: start and end of each, in order.

    Words match by their stem, as in the index. Scripts without spaces match by pairs or threes of
    characters.
    """
    words = {word for query in queries for word in query_words(query)}
    runs = {word.replace(" ", "") for word in words if _is_unspaced(word)}
    stems = {stem for found in index_words(w for w in words if w not in runs) for stem in found}
    pieces = list(re.finditer(r"\w+", text))
    spans = [
        piece.span()
        for piece, found in zip(pieces, index_words(piece[0] for piece in pieces), strict=True)
        if not _is_unspaced(piece[0]) and not stems.isdisjoint(found)
    ]
    for run in runs:
        starts = (found.start() for found in re.finditer(f"(?={re.escape(run)})", text))
        spans += [(start, start + len(run)) for start in starts]
    return _merge(spans)


def _merge(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sort the spans and merge those that touch or overlap."""
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged


def _decode(word: bytes) -> str:
    """Return an index word as text.

    FTS5 cuts words by bytes: long ones, and one of two equal bytes before "-ed" or "-ing". A
    character may lose its end, and is left out.
    """
    return word[:_LONGEST_WORD].decode(errors="ignore")


_of_thread = threading.local()


def _scratch() -> sqlite3.Connection:
    """Return the empty in-memory index of this thread."""
    scratch: sqlite3.Connection | None = getattr(_of_thread, "scratch", None)
    if scratch is None:
        scratch = _of_thread.scratch = sqlite3.connect(":memory:", isolation_level=None)
        scratch.text_factory = _decode
        scratch.execute(
            f"CREATE VIRTUAL TABLE t USING fts5 (w, content = '', tokenize = \"{_TOKENIZER}\")"
        )
        scratch.execute("CREATE VIRTUAL TABLE v USING fts5vocab (t, 'instance')")
    return scratch
