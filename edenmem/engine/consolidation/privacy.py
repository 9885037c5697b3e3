"""Check a text for private content before other people can read it.

The checks are pure, use no model, and prefer to hold back harmless text over revealing a secret.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

#: Number of consecutive words shared with a private text that count as a quotation.
RUN = 4
#: Share of common significant words that counts as a paraphrase.
SHARE = 0.6
#: Minimum length of significant words; shorter ones are mostly like "the" and "with".
SIGNIFICANT = 4
#: Minimum length of a part of a name that is searched by itself.
NAME_PART = 3

#: Scripts without spaces between words: each character counts as a word.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
_UNSPACED_CHARACTER = re.compile(f"[{_UNSPACED}]")
_WORD = re.compile(rf"[{_UNSPACED}]|(?:(?![{_UNSPACED}])\w)+")

_EMAIL = re.compile(r"[^\s@<>()]+@[^\s@<>()]+\.\w{2,}")
_HANDLE = re.compile(r"(?<![\w.])@\w{2,}")
_DATE = re.compile(r"\b(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{4})\b")
_NUMBER = re.compile(r"(?<!\w)\+?\(?\d[\d\s().\-/]{5,}\d(?!\w)")
#: Minimum number of digits of a telephone number.
_DIGITS = 7


def plain(text: str) -> str:
    """Normalize a text for comparison: NFKC, without invisible format characters."""
    if text.isascii():
        return text
    shown = unicodedata.normalize("NFKC", text)
    return "".join(char for char in shown if unicodedata.category(char) != "Cf")


def words(text: str) -> list[str]:
    """Return the words of a text for comparison; characters in scripts without spaces."""
    return _WORD.findall(plain(text).casefold())


class Confidences:
    """Private texts to compare others with."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._runs: set[tuple[str, ...]] = set()
        self._significant: list[frozenset[str]] = []
        for text in texts:
            tokens = words(text)
            if tokens:
                self._runs.update(_runs(tokens))
                self._significant.append(_significant(tokens))

    def reveals(self, text: str) -> bool:
        """Return whether a text quotes or paraphrases a private one."""
        tokens = words(text)
        if any(tuple(tokens[start:end]) in self._runs for start, end in _spans(len(tokens))):
            return True
        own = _significant(tokens)
        common = ((len(own & other), min(len(own), len(other))) for other in self._significant)
        return any(count >= 2 and count >= SHARE * length for count, length in common)


def _spans(length: int) -> Iterable[tuple[int, int]]:
    """Yield all spans of up to `RUN` words: short private texts have fewer words."""
    for size in range(1, RUN + 1):
        for start in range(length - size + 1):
            yield start, start + size


def _runs(tokens: list[str]) -> Iterable[tuple[str, ...]]:
    if len(tokens) <= RUN:
        return [tuple(tokens)]
    return [tuple(tokens[start : start + RUN]) for start in range(len(tokens) - RUN + 1)]


def _significant(tokens: Iterable[str]) -> frozenset[str]:
    return frozenset(
        word
        for word in tokens
        if len(word) >= SIGNIFICANT or word[0].isdigit() or _UNSPACED_CHARACTER.match(word)
    )


def has_contact(text: str) -> bool:
    """Return whether a text contains an e-mail address, a handle or a telephone number."""
    shown = plain(text)
    if _EMAIL.search(shown) or _HANDLE.search(shown):
        return True
    numbers = _NUMBER.findall(_DATE.sub(" ", shown))
    return any(sum(char.isdigit() for char in number) >= _DIGITS for number in numbers)


def find_name(text: str, names: Iterable[str]) -> str | None:
    """Return the first of these names that a text contains, or None.

    A whole name matches in any case; a part of one ("Anna" of "Anna Lind") only if capitalized,
    since many parts are also common words.
    """
    tokens = words(text)
    whole = f" {' '.join(tokens)} "
    capitalized = {word.casefold() for word in _WORD.findall(plain(text)) if not word[0].islower()}
    for name in names:
        parts = words(name)
        if not parts:
            continue
        if f" {' '.join(parts)} " in whole:
            return name
        if any(
            len(part) >= NAME_PART and not part.isdigit() and part in capitalized for part in parts
        ):
            return name
    return None


def locate_words(shown: str) -> list[tuple[str, int, int]]:
    """Return the `words` of a `plain` text with their start and end positions."""
    return [(m.group().casefold(), m.start(), m.end()) for m in _WORD.finditer(shown)]
