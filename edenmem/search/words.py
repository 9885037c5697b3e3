"""The words of a text as the full-text index has them, and the words of a query.

FTS5 splits, folds and stems: in a file's index and, for texts that are in none, in memory. Two
things it cannot do by itself are done here, in the same way for facts and for queries:
compatibility forms are made one (NFKC), and scripts that put no spaces between words are taken
apart, so that each character is a word of the index and a query's runs are looked up as
overlapping pairs (Han, kana, Hangul) or threes (Thai and its neighbours).
"""

from __future__ import annotations

import re
import sqlite3
import threading
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache

_PAIRS = (
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
_THREES = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\ua9e0-\ua9ff\uaa60-\uaa7f"

#: The one of the index in a SQLite file, which cannot be changed without a migration.
TOKENIZER = "porter unicode61 remove_diacritics 2 categories 'L* N* Co Mn Mc'"

#: Shorter words are near to too many others ("cat", "car"); longer ones are no misspelling.
_SHORTEST_FUZZY, _LONGEST_FUZZY = 4, 32

_POSSESSIVE = re.compile("['\u2019]s\\W*$")
_PUNCTUATION = ".,;:!?\"'()[]{}\u2018\u2019\u201c\u201d\u2026@"

#: Longer queries are cut after so many different words.
MOST_WORDS = 64

_STOP_WORDS = """
a about after all also am an and any are as at be because been before being but by can could d
did do does doing don down during each few for from further had has have having he her here hers
him his how i if in into is it its itself just ll m me more most my of off on once only or other
our ours out over own re s same she should so some such t than that the their theirs them then
there these they this those through to too under until up us ve very was we were what when where
which while who whom whose why will with would you your yours
"""
#: English words that say nothing of what a fact is about, question words included.
STOP_WORDS = frozenset(_STOP_WORDS.split())


@cache  # compiled when first needed: it takes milliseconds, and most commands need none of it
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """One unspaced character; a run of them, by the length of its windows."""
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


def normalise_for_index(text: str) -> str:
    """The text as it is given to the index. Never changed without a migration: the index can
    only forget a fact if it is given the very words that it was taught."""
    if text.isascii():
        return text
    return _patterns()[0].sub(r" \g<0> ", unicodedata.normalize("NFKC", text))


def _is_word_character(character: str) -> bool:
    category = unicodedata.category(character)
    return category[0] in "LN" or category in ("Mn", "Mc", "Co")


def _pieces(text: str) -> list[str]:
    """The words of a text without unspaced scripts, in lower case."""
    spaced = "".join(c if _is_word_character(c) else " " for c in text.lower())
    return spaced.split()


def _windows(run: str, size: int) -> list[str]:
    """Overlapping runs of ``size`` characters, each as a phrase of one-character words."""
    size = min(size, len(run))
    return [" ".join(run[i : i + size]) for i in range(len(run) - size + 1)]


def query_words(query: str) -> list[str]:
    """What to look for, each once: words, and phrases of single characters. Stop words are left
    out, unless there is nothing else."""
    text = unicodedata.normalize("NFKC", query)
    found: list[str] = []
    end = 0
    for run in _patterns()[1].finditer(text):
        found += _pieces(text[end : run.start()])
        found += _windows(run[1], 2) if run[1] else _windows(run[2], 3)
        end = run.end()
    found += _pieces(text[end:])
    words = list(dict.fromkeys(found))
    return ([word for word in words if word not in STOP_WORDS] or words)[:MOST_WORDS]


def leave_out_names(query: str, names: Iterable[str]) -> str:
    """The query without these names, where other words than stop words remain; else as it is.

    Meant for names that all of the searched texts have. A name of several words is one only as a
    whole: who is called "Harbour Guide" asks about harbours all the same.
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
    """Whether a word that nobody used may be a misspelling of another one."""
    return word.isalpha() and _SHORTEST_FUZZY <= len(word) <= _LONGEST_FUZZY


def within_one_edit(one: str, other: str) -> bool:
    """Whether one insertion, deletion, replacement, or swap of neighbours makes them equal."""
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


#: Words of plain ASCII texts with what the index makes of each; emptied when it has so many.
_stems: dict[str, str] = {}
_MOST_STEMS = 50_000
_ASCII_WORDS = re.compile("[a-z0-9]+")


def index_words(texts: Iterable[str]) -> list[list[str]]:
    """The words of each text, in order, as the index would have them: folded and stemmed."""
    given = list(texts)
    plain = {text: _ASCII_WORDS.findall(text.lower()) for text in given if text.isascii()}
    stems = _stem({word for words in plain.values() for word in words})
    known = {text: [stems[word] for word in words] for text, words in plain.items()}
    others = [text for text in dict.fromkeys(given) if text not in known]
    known |= dict(zip(others, _split_and_stem(others), strict=True))
    return [known[text] for text in given]


def _stem(words: set[str]) -> dict[str, str]:
    """What the index makes of single words; the scratch index is asked only for new ones."""
    found = {word: _stems[word] for word in words if word in _stems}
    new = [word for word in words if word not in found]
    if new:
        made = _split_and_stem(new)
        found |= {word: stem for word, [stem] in zip(new, made, strict=True)}
        if len(_stems) + len(new) > _MOST_STEMS:
            _stems.clear()
        _stems.update((word, found[word]) for word in new)
    return found


def _split_and_stem(texts: Sequence[str]) -> list[list[str]]:
    """The words of each text, by a scratch index."""
    if not texts:
        return []
    placed: list[list[tuple[int, str]]] = [[] for _ in texts]
    scratch = _scratch()
    scratch.execute("BEGIN")
    try:
        rows = enumerate(map(normalise_for_index, texts))
        scratch.executemany("INSERT INTO t (rowid, w) VALUES (?, ?)", rows)
        for number, offset, word in scratch.execute('SELECT doc, "offset", term FROM v'):
            placed[number].append((offset, word))
    finally:
        scratch.execute("ROLLBACK")
    return [[word for _, word in sorted(words)] for words in placed]


def match_spans(text: str, queries: Iterable[str]) -> list[tuple[int, int]]:
    """Where a text has words of the queries, stop words aside: begin and end of each, in order.

    Words match by their stem, as they do in the index. In scripts without spaces a query's pairs or
    threes of characters are looked for.
    """
    unspaced = _patterns()[0]
    words = {word for query in queries for word in query_words(query)}
    runs = {word.replace(" ", "") for word in words if unspaced.match(word)}
    stems = {stem for found in index_words(w for w in words if w not in runs) for stem in found}
    pieces = list(re.finditer(r"\w+", text))
    spans = [
        piece.span()
        for piece, found in zip(pieces, index_words(piece[0] for piece in pieces), strict=True)
        if not unspaced.search(piece[0]) and not stems.isdisjoint(found)
    ]
    for run in runs:
        starts = (found.start() for found in re.finditer(f"(?={re.escape(run)})", text))
        spans += [(start, start + len(run)) for start in starts]
    return _merge(spans)


def _merge(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The spans in order, those that touch or overlap made one."""
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged


_of_thread = threading.local()


def _scratch() -> sqlite3.Connection:
    """An empty index in memory; each thread has its own."""
    scratch: sqlite3.Connection | None = getattr(_of_thread, "scratch", None)
    if scratch is None:
        scratch = _of_thread.scratch = sqlite3.connect(":memory:", isolation_level=None)
        scratch.execute(
            f"CREATE VIRTUAL TABLE t USING fts5 (w, content = '', tokenize = \"{TOKENIZER}\")"
        )
        scratch.execute("CREATE VIRTUAL TABLE v USING fts5vocab (t, 'instance')")
    return scratch
