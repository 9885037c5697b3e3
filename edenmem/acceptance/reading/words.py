"""Words as the rules compare them: folded, without stop words, in any script.

Two words match if they are equal or share their first four letters. For most inflection that
equals a stemmer and needs no language. Scripts without spaces are compared by character runs.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Container, Iterable, Iterator
from functools import cache, lru_cache

import msgspec

from edenmem.acceptance.tables import pattern, table

#: Vowel signs, points and accents: inside words, but not letters for ``\\w``.
_SIGNS = "\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0670\u0900-\u0963\u0966-\u0dff"
_WORD = re.compile(rf"[^\W_](?:[^\W_]|[{_SIGNS}])*(?:['’ʼ](?:[^\W_]|[{_SIGNS}])+)*")
#: Scripts without spaces between words: Han, kana, Thai, Lao, Myanmar, Khmer.
_UNSPACED = re.compile(
    "[\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u3041-\u30ff\u31f0-\u31ff"
    "\uff66-\uff9f\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff\U00020000-\U0003ffff]+"
)
_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff]")
_HANGUL = re.compile("[\uac00-\ud7a3]")
_CYRILLIC = re.compile("[\u0400-\u04ff]")
#: The article and other joined prefixes, if a word remains.
_ARABIC_PREFIX = re.compile("^(?:[وبكف]?ال|لل|[وبلف](?=\\w{3}))(?=\\w{2})")
_DEVANAGARI = re.compile("[\u0900-\u097f]")
_ARABIC = re.compile("[\u0600-\u06ff]")
#: Vowel signs that distinguish words, like letters: "ने" and "नौ".
_VOWEL = re.compile("[\u093e-\u094c\u0962\u0963]")
_THAI = re.compile("[\u0e01-\u0eff]")
_KANA = re.compile("[\u3041-\u30ff]")
_SPECIAL = str.maketrans({"ß": "ss", "ø": "o", "ł": "l", "đ": "d", "æ": "ae", "œ": "oe", "ı": "i"})

#: Quoted text, and code: each pattern excludes its own opening mark inside, so that a text of
#: nothing but opening marks is read once.
_QUOTED = re.compile(
    '"[^"]*"|“[^“”]*”|„[^„“”"]*[“”"]|«[^«»]*»|»[^«»]*«|「[^「」]*」|『[^『』]*』|《[^《》]*》'
    r"|‹[^‹›]*›|‚[^‚‘’]*[‘’]|(?<!\w)'[^']*'(?!\w)|(?<!\w)‘[^‘’]*’(?!\w)|`[^`]*`"
)

_OPENING_MARK = re.compile("[\"“„«»「『《‹‚'‘`]")

#: Inflectional endings of words with three letters.
_ENDINGS = frozenset({"s", "es", "ed", "d", "n", "en", "e", "er", "a", "y", "t"})


def fold(text: str) -> str:
    """Return ``text`` in lower case without accents and vowel signs, for comparison."""
    if text.isascii():
        return text.lower()
    bare = unicodedata.normalize("NFD", text.translate(_SPECIAL))
    kept = "".join(
        sign for sign in bare if unicodedata.category(sign)[0] != "M" or _VOWEL.match(sign)
    )
    return unicodedata.normalize("NFKC", kept).casefold().translate(_SPECIAL)


_HALF_AFTER = re.compile(r"\d½")


@lru_cache(maxsize=20_000)
def _fold_sign(sign: str) -> str:
    return folded[0] if (folded := fold(sign)) else sign


def fold_in_place(text: str) -> str:
    """Return ``text`` in lower case without accents, with every character at its index."""
    return text.lower() if text.isascii() else "".join(map(_fold_sign, text))


def ascii_digits(text: str) -> str:
    """Return ``text`` with the digits of every script as 0 to 9, and plain spaces."""
    if text.isascii():
        return text
    text = text.replace("½", ".5") if _HALF_AFTER.search(text) else text
    return _DIGIT_OR_SPACE.sub(_ascii_sign, unicodedata.normalize("NFKC", text))


#: Digits of other scripts, and spaces that join a number.
_DIGIT_OR_SPACE = re.compile("(?![0-9])\\d|[\u00a0\u202f\u2009]")


def _ascii_sign(match: re.Match[str]) -> str:
    sign = match.group()
    return str(unicodedata.decimal(sign)) if sign.isdecimal() else " "


def normal(text: str) -> str:
    """Return the words of ``text`` in lower case, for comparing whole texts."""
    return " ".join(re.findall(r"\w+", text.casefold()))


def without_quotes(text: str) -> str:
    """Return ``text`` with an ellipsis for each quotation, quoted title or piece of code."""
    if not _OPENING_MARK.search(text):
        return text
    return _QUOTED.sub(" … ", text)


def _blank(run: re.Match[str]) -> str:
    return " " * len(run.group())


class Word(msgspec.Struct, frozen=True):
    """A word of a text: as written, folded, and its start index."""

    written: str
    folded: str
    start: int

    @property
    def end(self) -> int:
        """Return the index after the word."""
        return self.start + len(self.written)


def words_of(text: str) -> tuple[Word, ...]:
    """Return the words in scripts with spaces, without possessive endings, in order."""
    return _known_words_of(text) if len(text) <= _MESSAGE else _find_words(text)


#: The maximum length of a text whose words are kept: most rules ask for those of each message.
_MESSAGE = 1000


def _find_words(text: str) -> tuple[Word, ...]:
    spaced = text if text.isascii() else _UNSPACED.sub(_blank, text)
    found = [
        Word(written, folded, match.start())
        for match in _WORD.finditer(spaced)
        if (folded := base_of(written := match.group()))
    ]
    return tuple(found)


_known_words_of = lru_cache(maxsize=1000)(_find_words)


@lru_cache(maxsize=20_000)
def base_of(written: str) -> str:
    """Return a word folded, without possessive ending, elided article or Arabic article."""
    folded = fold(written).replace("’", "'").replace("ʼ", "'")
    if _ARABIC.match(folded):
        return _ARABIC_PREFIX.sub("", folded)
    head, mark, tail = folded.partition("'")
    if not mark:
        return folded
    if tail in ("s", "", "ll", "re", "ve", "d", "m") or len(tail) <= 1:
        return head
    return tail if len(head) <= 2 else head  # l'école, d'Anna, dell'acqua


def runs_of(text: str) -> list[str]:
    """Return the runs of a text in scripts without spaces, folded."""
    return [] if text.isascii() else [fold(run) for run in _UNSPACED.findall(text)]


def keys_of(word: str) -> tuple[str, ...]:
    """Return the keys of a folded word; two words match if they share one."""
    if "\uac00" <= word[:1] <= "\ud7a3":  # Hangul: a sign is a syllable
        return (word[:2],)
    if len(word) < 4:
        return (word,)
    if len(word) <= 5 and word[3:] in _ENDINGS:
        return word[:4], word[:3]
    return (word[:4],)


def keys_in(text: str) -> frozenset[str]:
    """Return the keys of all words of a text."""
    return frozenset(key for word in words_of(text) for key in keys_of(word.folded))


def pieces_of(run: str) -> Iterator[str]:
    """Return the pieces of `placed_pieces_of` without their indexes."""
    return (piece for _, piece in placed_pieces_of(run))


def placed_pieces_of(run: str) -> Iterator[tuple[int, str]]:
    """Yield the overlapping pieces of an unspaced run, with their indexes.

    A piece has three characters, or two with an ideograph, because most ideographic words have two.
    Japanese text in hiragana alone is mostly grammar and is left out, like stop words.
    """
    for at in range(len(run)):
        pair, three = run[at : at + 2], run[at : at + 3]
        if _HAN.search(pair):
            if len(pair) == 2 or len(run) == 1:
                yield at, pair
        elif len(three) == 3 and not _HAN.search(three) and not _GRAMMAR.fullmatch(three):
            yield at, three


def coverage(run: str, is_known: Callable[[str], bool]) -> tuple[int, int]:
    """Return how many characters of a run count, and how many of them lie in a known piece.

    Only characters inside a piece count, without stop words.
    """
    stops = stop_words("zh") | stop_words("ja")
    counts, known = bytearray(len(run)), bytearray(len(run))
    for at, piece in placed_pieces_of(run):
        if piece in stops:
            continue
        end = at + len(piece)
        counts[at:end] = b"\x01" * len(piece)
        if is_known(piece):
            known[at:end] = b"\x01" * len(piece)
    return sum(counts), sum(known)


#: Hiragana: mostly grammar.
_GRAMMAR = re.compile("[\u3041-\u309f]+")


@cache
def stop_words(language: str) -> frozenset[str]:
    """Return the folded stop words of a language; empty without a list for it."""
    import stopwordsiso  # here: only a formation pays for reading the lists

    if language not in stopwordsiso.langs():
        return frozenset()
    return frozenset(map(base_of, stopwordsiso.stopwords(language)))


@cache
def _common_words() -> dict[str, frozenset[str]]:
    """Return the stop words of all languages with a list, as written."""
    import stopwordsiso

    return {
        language: frozenset(stopwordsiso.stopwords(language)) for language in stopwordsiso.langs()
    }


def language_beyond(text: str, language: str, known: Container[str]) -> str:
    """Return the language of a text, even beyond the ``known`` ones, or the guess ``language``."""
    if language and language not in known:
        return language
    found = {match.group() for match in _WORD.finditer(text.casefold())}
    hits = {name: len(found & common) for name, common in _common_words().items()}
    own = max((count for name, count in hits.items() if name in known), default=0)
    best = max(hits, key=lambda name: (hits[name], name in known))
    if language and hits[best] <= own:
        return language
    return best if hits[best] else language


@cache
def stop_signs() -> frozenset[str]:
    """Return the ideographs in Chinese and Japanese stop words."""
    return frozenset("".join((*stop_words("zh"), *stop_words("ja"))))


@cache
def _markers() -> dict[str, frozenset[str]]:
    return {
        language: frozenset(map(fold, words.split()))
        for language, words in table("words.markers").items()
    }


def language_of(text: str, usual: str = "") -> str:
    """Return the language of a text (ISO 639-1) by script, letters and frequent words.

    Without any evidence, return ``usual``.
    """
    if script := _language_of_script(text):
        return script
    found = {word.folded for word in words_of(text)}
    hits = {language: len(found & markers) for language, markers in _markers().items()}
    for language in () if text.isascii() else table("words.letters"):
        hits[language] += 2 * bool(pattern(f"words.letters.{language}").search(text))
    if usual in hits:
        hits[usual] += 1  # the conversation's language breaks ties
    best = max(hits.values())
    if best == 0:
        return usual
    first = [language for language, count in hits.items() if count == best]
    return usual if usual in first else first[0]


def is_latin(text: str) -> bool:
    """Return whether most letters of a text are Latin."""
    letters = [sign for sign in text if sign.isalpha()]
    return 2 * sum(sign < "\u0250" for sign in letters) >= len(letters)


def _language_of_script(text: str) -> str:
    if text.isascii():
        return ""
    half = len(text) / 3
    for script, language in (
        (_KANA, "ja"),
        (_HAN, "zh"),
        (_HANGUL, "ko"),
        (_THAI, "th"),
        (_CYRILLIC, "ru"),
        (_ARABIC, "ar"),
        (_DEVANAGARI, "hi"),
    ):
        count = len(script.findall(text))
        if count > half or (language == "ja" and count > 2):
            if language == "ru" and re.search("[іїєґ]", text, re.IGNORECASE):
                return "uk"
            return language
    return ""


def content_words(found: Iterable[Word], languages: Iterable[str]) -> list[str]:
    """Return the folded words that carry meaning: no stop words, no numbers."""
    stops = [stop_words(language) for language in languages]
    return [
        word.folded
        for word in found
        if len(word.folded) > 1
        and not word.folded[0].isdigit()
        and not any(word.folded in stop for stop in stops)
    ]
