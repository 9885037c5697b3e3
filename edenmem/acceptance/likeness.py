"""How much a text reads like an instruction, a note or a fragment instead of a statement.

An instruction may begin with any verb and a note with any noun, so lists of words never end: rules
that knew more of them left each new labeled set where the one before had stood. This is a linear
model over the words of a text and its form. Its table has one signed byte for each feature,
at the feature's CRC-32, and is fitted to labeled items by ``python -m tests.acceptance.fit``. All
sums are whole numbers: the answer is the same in any process and on any machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import resources
from itertools import pairwise
from zlib import crc32

from edenmem.acceptance.evidence import Evidence
from edenmem.acceptance.form import SUBJECT
from edenmem.acceptance.texts import is_unstopped, stem_of, words_of

#: Number of weights, and the units in which they are whole numbers, per unit of log odds.
SIZE, UNITS = 2**15, 40
#: Log odds from which an item is refused, and from which it is in doubt.
REFUSED, DOUBTED = 2.0, 1.0
#: How many first words count by their place, with the lengths of their beginnings and endings; and
#: how many without.
_WORDS, _PARTS, _NEAR_WORDS = 3, (2, 3, 4), 16


def features(text: str, evidence: Evidence) -> Iterator[str]:
    """Yield the features of a text: its words, first of all the first ones, and how it ends.

    All names of people and agents are one word, and so are other words that the conversation has
    with a capital letter. Length and scope do not count: a short statement is a statement.
    """
    words = [_masked(word, evidence) for word in words_of(text)]
    last = "." if is_unstopped(text) else text.rstrip()[-1:]
    yield f"end {'' if last.isalnum() else last}"
    yield f"named {'<name>' in words} {'<other>' in words}"
    kinds = [word if word[:1] == "<" else word[-2:] for word in words[:_WORDS]]
    yield f"kinds {' '.join(kinds[:2])}"
    yield f"kinds {' '.join(kinds)}"
    for place, word in enumerate(words[:_WORDS]):
        yield f"{place} {word}"
        for length in _PARTS:
            yield f"{place} -{word[-length:]}"
            if place == 0:
                yield f"{word[:length]}-"
    near = words[:_NEAR_WORDS]
    yield from near
    yield from map(" ".join, pairwise(near))


def _masked(word: str, evidence: Evidence) -> str:
    if word in evidence.names:
        return "<name>"
    is_name = word in evidence.capitals or (len(word) > 3 and stem_of(word) in evidence.capitals)
    return "<other>" if is_name and not SUBJECT.fullmatch(word) else word


def places_of(text: str, evidence: Evidence) -> set[int]:
    """Return the places of the weights of a text's features in the table."""
    return {crc32(each.encode()) % SIZE for each in features(text, evidence)}


def unlikeness(text: str, evidence: Evidence) -> float:
    """Return the log odds that a text is no statement."""
    table = _table()
    return sum(table[place] for place in places_of(text, evidence)) / UNITS


@cache
def _table() -> memoryview:
    weights = resources.files(__package__).joinpath("likeness.bin").read_bytes()
    return memoryview(weights).cast("b")
