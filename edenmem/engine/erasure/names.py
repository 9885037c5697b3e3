"""Where a text names somebody: by an id, by a whole name, or by a telling part of one.

Words are compared as people see them: whatever the case, the Unicode form or invisible characters
in between, and only as whole words (of scripts without spaces, character by character).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from edenmem.engine.consolidation.privacy import NAME_PART, placed_words, plain, words
from edenmem.text import one_line

#: Characters on either side of a name that are shown with it.
_AROUND = 40
#: Places of one text that are shown.
_MOST_SHOWN = 3

_JOINTS = re.compile(r"[\W_]+")
_NUMBER_BEHIND = re.compile(r"\d+\Z")


class Names:
    """What somebody is called.

    A whole name is found in any case; a part of one ("Anna" of "Anna Lind", "anna_lind" or
    "anna92") where it begins with a capital, since many a part is a word of its own.
    """

    def __init__(self, names: Iterable[str]) -> None:
        whole: dict[tuple[str, ...], None] = {}
        parts: set[str] = set()
        for name in names:
            pieces = [piece for piece in _JOINTS.split(name) if piece]
            for form in (tuple(words(name)), tuple(words(" ".join(pieces)))):
                if len("".join(form)) > 1:
                    whole[form] = None
            for word in words(" ".join(pieces)):
                stem = _NUMBER_BEHIND.sub("", word)
                if len(stem) >= NAME_PART and not stem[:1].isdigit():
                    parts.add(stem)
        self._by_first: dict[str, list[tuple[str, ...]]] = {}
        for form in whole:
            self._by_first.setdefault(form[0], []).append(form)
        self._parts = frozenset(parts)
        self._telling = frozenset((*self._by_first, *parts))

    def __bool__(self) -> bool:
        return bool(self._by_first)

    def are_in(self, text: str) -> bool:
        """Whether the text names them."""
        return bool(self._places(text)[1])

    def contexts(self, text: str) -> tuple[str, ...]:
        """The first places where the text names them, each a line with what stands around it."""
        shown, places = self._places(text)
        lines: list[str] = []
        end = -1
        for start, stop in places:
            if start < end:
                continue  # it is in the line before
            begin, end = max(0, start - _AROUND), min(len(shown), stop + _AROUND)
            left, right = "…" if begin else "", "…" if end < len(shown) else ""
            lines.append(f"{left}{one_line(shown[begin:end])}{right}")
        return tuple(lines[:_MOST_SHOWN])

    def _places(self, text: str) -> tuple[str, list[tuple[int, int]]]:
        shown = plain(text)
        folded = shown.casefold()
        if not any(word in folded for word in self._telling):  # most texts name nobody
            return shown, []
        placed = placed_words(shown)
        places: list[tuple[int, int]] = []
        for number, (word, start, stop) in enumerate(placed):
            for form in self._by_first.get(word, ()):
                rest = placed[number : number + len(form)]
                if tuple(each for each, _, _ in rest) == form:
                    places.append((start, rest[-1][2]))
                    break
            else:
                if word in self._parts and not shown[start].islower():
                    places.append((start, stop))
        return shown, places
