"""Texts in comparable form: folded words, names, numbers. For any script, without tables."""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Iterator
from functools import cache, lru_cache
from importlib import resources

import msgspec

_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
_NOT_WORD = re.compile(r"[\W_]+")
_ASCII_WORDS = {code: " " for code in range(128) if not chr(code).isalnum()}
_WORD = re.compile(r"[^\W_]+(?:['’ʼ.-][^\W_]+)*")
_SENTENCE_END = re.compile(r"(?:\A|[.!?…:;\n•*–—(\[\"“”„«»‹›‘-]\s*|^\s*\d+[.)]\s*)\Z", re.MULTILINE)
#: Scripts without spaces between words: Han, kana, Thai, Lao, Myanmar, Khmer.
_UNSPACED = (
    "\u3005-\u3007\u3041-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\uff66-\uff9f\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff\U00020000-\U0003ffff"
)
_UNSTOPPED = re.compile("[\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff]")
_UNSPACED_SIGN = re.compile(f"[{_UNSPACED}]")
_DIGITS = re.compile(r"[0-9]+")
_NUMBER = re.compile(r"\d+(?:[.,:’'\u00a0\u202f ](?=\d)\d+)*")
#: Quoted text and code. Each pattern excludes its own opening mark inside, so that a text of
#: nothing but opening marks is read once, and begins with it, since `re` finds such a mark quickly.
_QUOTED = re.compile(
    '"[^"]*"|“[^“”]*”|„[^„“”"]*[“”"]|«[^«»]*»|»[^«»]*«|「[^「」]*」|『[^『』]*』|《[^《》]*》'
    r"|‹[^‹›]*›|'(?<!\w')[^']*'(?!\w)|‘(?<!\w‘)[^‘’]*’(?!\w)|`[^`]*`"
)


def fold(text: str) -> str:
    """Return the words of ``text`` in lower case, without accents, between single spaces.

    Texts that differ in case, typography, white space or compatibility characters (NFKC) are equal.
    """
    return unmark(text).casefold()


def lower(text: str) -> str:
    """Return a text in lower case, of the same length: "İ" has two signs otherwise."""
    return text.replace("İ", "i").lower()


def unmark(text: str) -> str:
    """Return the words of ``text`` without accents, between single spaces."""
    return _unmark(text) if len(text) <= _KEPT_CHARACTERS else _unmark.__wrapped__(text)


#: Texts of which the last results are kept: long ones are rare, and would fill the memory.
_KEPT_CHARACTERS, _KEPT_TEXTS = 500, 256


@lru_cache(maxsize=_KEPT_TEXTS)
def _unmark(text: str) -> str:
    if text.isascii():  # by far the most frequent case, and four times as fast this way
        return " ".join(text.translate(_ASCII_WORDS).split())
    text = _NOT_ASCII.sub(_without_marks, unicodedata.normalize("NFKD", text))
    return _NOT_WORD.sub(" ", text).strip()


def _without_marks(signs: re.Match[str]) -> str:
    return "".join(sign for sign in signs.group() if unicodedata.category(sign)[0] != "M")


def words_of(text: str) -> list[str]:
    """Return the folded words of a text, in order."""
    return fold(text).split()


def contains(folded: str, passage: str) -> bool:
    """Check whether a folded text contains a folded passage of whole words."""
    if is_unspaced(passage):
        return passage.replace(" ", "") in folded.replace(" ", "")
    return f" {passage} " in f" {folded} "


def is_unspaced(text: str) -> bool:
    """Check whether a text has signs of a script without spaces between words."""
    return not text.isascii() and bool(_UNSPACED_SIGN.search(text))


def is_unstopped(text: str) -> bool:
    """Check whether a text is in a script without full stops: Thai, Lao, Myanmar, Khmer."""
    return not text.isascii() and bool(_UNSTOPPED.search(text))


def without_quotes(text: str) -> str:
    """Return ``text`` with an ellipsis for each quotation, quoted title or piece of code."""
    return _QUOTED.sub(" … ", text)


class NamedWord(msgspec.Struct, frozen=True):
    """A word with a capital letter, as written and folded, and its place in its sentence."""

    written: str
    folded: str
    is_first: bool
    follows_number: bool


def named_words(text: str) -> tuple[NamedWord, ...]:
    """Return the words with a capital letter, in order."""
    kept = len(text) <= _KEPT_CHARACTERS
    return _named_words(text) if kept else _named_words.__wrapped__(text)


@lru_cache(maxsize=_KEPT_TEXTS)
def _named_words(text: str) -> tuple[NamedWord, ...]:
    found, end = [], 0
    for match in _WORD.finditer(text):
        written = match.group()
        if written[0].isupper() or (written[-1].isupper() and written[0].isalpha()):
            # Only the text since the word before is read, so that the time is linear.
            between = text[max(end - 1, 0) : match.start()]
            is_first = not end or bool(_SENTENCE_END.search(between))
            before = between.rstrip(" .")[-1:]
            found.append(NamedWord(written, fold(written), is_first, before.isdigit()))
        end = match.end()
    return tuple(found)


def numbers_in(text: str) -> Iterator[str]:
    """Yield the numbers of a text in digits, each whole and in its parts.

    Digits of all scripts are read as 0 to 9: "3,850" yields 3850, 3 and 850, "07:30" also 7 and 30.
    """
    for match in _NUMBER.finditer(unicodedata.normalize("NFKC", text)):
        yield from number_forms(match.group())


def number_forms(written: str) -> tuple[str, ...]:
    """Return a number without separators, and its parts, without leading zeros."""
    if not written.isascii():
        written = "".join(
            str(unicodedata.decimal(sign)) if sign.isdecimal() else " " for sign in written
        )
    parts = _DIGITS.findall(written)
    whole = "".join(parts)
    return tuple(part.lstrip("0") or "0" for part in dict.fromkeys((whole, *parts)))


def find_numbers(text: str) -> list[tuple[str, ...]]:
    """Return the forms of each number of a text."""
    normal = unicodedata.normalize("NFKC", text)
    return [number_forms(match.group()) for match in _NUMBER.finditer(normal)]


def stem_of(word: str) -> str:
    """Return the start of a folded word that its inflected forms share."""
    return word[: 4 if len(word) > 4 else 3]


_UNITS = [
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen"),
    "nineteen",
]
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]


def numbers_spelled(text: str) -> set[str]:
    """Return the numbers up to 99 that a text spells out in English, in digits."""
    words, found, at = words_of(text), set(), 0
    while at < len(words):
        word, at = words[at], at + 1
        if word in _TENS:
            value = 10 * (_TENS.index(word) + 2)
            if words[at : at + 1] and words[at] in _UNITS[1:10]:
                value, at = value + _UNITS.index(words[at]), at + 1
            found.add(str(value))
        elif word in _UNITS:
            found.add(str(_UNITS.index(word)))
    return found


def runs_of_three(text: str) -> frozenset[str]:
    """Return the three-word runs of a text that have no digits."""
    return _runs(text) if len(text) <= _KEPT_CHARACTERS else _runs.__wrapped__(text)


@lru_cache(maxsize=_KEPT_TEXTS)
def _runs(text: str) -> frozenset[str]:
    words = words_of(text)
    plain = [word.isalpha() or not any(map(str.isdigit, word)) for word in words]
    return frozenset(
        " ".join(words[at : at + 3]) for at in range(len(words) - 2) if all(plain[at : at + 3])
    )


@cache
def _tables() -> dict[str, dict[str, str]]:
    return tomllib.loads(resources.files(__package__).joinpath("words.toml").read_text("utf-8"))


def text_of(name: str) -> str:
    """Return the text of an entry, such as ``form.pronoun``, without its line breaks."""
    table, _, key = name.partition(".")
    return _tables()[table][key].replace("\n", "")


def pattern(name: str, flags: re.RegexFlag = re.IGNORECASE) -> re.Pattern[str]:
    """Return an entry as a pattern, by default one that ignores case.

    For texts in `lower` case (``re.NOFLAG``) a search takes half the time.
    """
    return re.compile(text_of(name), flags)


def word_set(name: str) -> frozenset[str]:
    """Return an entry as a set of words."""
    table, _, key = name.partition(".")
    return frozenset(_tables()[table][key].split())
