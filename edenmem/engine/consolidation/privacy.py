"""What must not reach people whom it was not told: checks of a text before it moves to them.

No model is trusted with this. The checks are pure and strict: they would rather keep back what is
harmless than let through what was told in confidence.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

#: So many words in a row that a text shares with a private one are a quotation.
RUN = 4
#: So large a share of the telling words of one in the other is a paraphrase.
SHARE = 0.6
#: Words from this length on tell something; shorter ones are mostly "the" and "with".
TELLING = 4
#: Parts of a name from this length on are looked for by themselves.
NAME_PART = 3

#: Scripts that put no spaces between words: each character stands for itself.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
_UNSPACED_CHARACTER = re.compile(f"[{_UNSPACED}]")
_WORD = re.compile(rf"[{_UNSPACED}]|(?:(?![{_UNSPACED}])\w)+")

_EMAIL = re.compile(r"[^\s@<>()]+@[^\s@<>()]+\.\w{2,}")
_HANDLE = re.compile(r"(?<![\w.])@\w{2,}")
_DATE = re.compile(r"\b(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{4})\b")
_NUMBER = re.compile(r"(?<!\w)\+?\(?\d[\d\s().\-/]{5,}\d(?!\w)")
#: A telephone number has at least so many digits.
_DIGITS = 7


def _plain(text: str) -> str:
    """``text`` without what makes equal words look different to a program alone."""
    if text.isascii():
        return text
    shown = unicodedata.normalize("NFKC", text)
    return "".join(char for char in shown if unicodedata.category(char) != "Cf")


def words(text: str) -> list[str]:
    """The words of a text as they are compared; of scripts without spaces, the characters."""
    return _WORD.findall(_plain(text).casefold())


class Confidences:
    """Private texts, against which others are held."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._runs: set[tuple[str, ...]] = set()
        self._telling: list[frozenset[str]] = []
        for text in texts:
            said = words(text)
            if said:
                self._runs.update(_runs(said))
                self._telling.append(_telling(said))

    def reveals(self, text: str) -> bool:
        """Whether ``text`` quotes or paraphrases one of them."""
        said = words(text)
        if any(tuple(said[start:end]) in self._runs for start, end in _spans(len(said))):
            return True
        own = _telling(said)
        return any(_alike(own, other) for other in self._telling)


def _spans(length: int) -> Iterable[tuple[int, int]]:
    """Every place of a run, and of the shorter ones that short private texts are."""
    for size in range(1, RUN + 1):
        for start in range(length - size + 1):
            yield start, start + size


def _runs(said: list[str]) -> Iterable[tuple[str, ...]]:
    if len(said) <= RUN:
        return [tuple(said)]
    return [tuple(said[start : start + RUN]) for start in range(len(said) - RUN + 1)]


def _telling(said: Iterable[str]) -> frozenset[str]:
    return frozenset(word for word in said if len(word) >= TELLING or not _is_small(word))


def _is_small(word: str) -> bool:
    """Whether a short word is one of those that tell nothing: no number, no character of a script
    in which it may be a whole word."""
    return not word[0].isdigit() and _UNSPACED_CHARACTER.match(word) is None


def _alike(one: frozenset[str], other: frozenset[str]) -> bool:
    common = len(one & other)
    return common >= 2 and common >= SHARE * min(len(one), len(other))


def has_contact(text: str) -> bool:
    """Whether there is an e-mail address, a handle or a telephone number in it."""
    shown = _plain(text)
    if _EMAIL.search(shown) or _HANDLE.search(shown):
        return True
    numbers = _NUMBER.findall(_DATE.sub(" ", shown))
    return any(sum(char.isdigit() for char in number) >= _DIGITS for number in numbers)


def find_name(text: str, names: Iterable[str]) -> str | None:
    """The first of the people's names that is in the text, if one is.

    A whole name is found in any case and spelling; a part of one ("Anna" of "Anna Lind") where it
    begins with a capital, since many a part is a word of its own.
    """
    said = words(text)
    whole = f" {' '.join(said)} "
    capitalised = {word.casefold() for word in _WORD.findall(_plain(text)) if not word[0].islower()}
    for name in names:
        parts = words(name)
        if not parts:
            continue
        if f" {' '.join(parts)} " in whole:
            return name
        if any(
            len(part) >= NAME_PART and not part.isdigit() and part in capitalised for part in parts
        ):
            return name
    return None


def plain(text: str) -> str:
    """``text`` as it is compared, before it is taken apart into `words`."""
    return _plain(text)


def locate_words(shown: str) -> list[tuple[str, int, int]]:
    """The `words` of a `plain` text, each with the place where it stands."""
    return [(m.group().casefold(), m.start(), m.end()) for m in _WORD.finditer(shown)]
