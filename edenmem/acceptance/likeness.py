"""How much a text reads like an instruction, a note or a fragment instead of a statement.

An instruction may begin with any verb and a note with any noun, so lists of words never end: rules
that knew more of them left each new labeled set where the one before had stood. This is a linear
model over the first words of a text and its form. Its table has one signed byte for each feature,
at the feature's CRC-32, and is fitted to labeled items by ``python -m tests.acceptance.fit``. All
sums are whole numbers: the answer is the same in any process and on any machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import resources
from zlib import crc32

from edenmem.acceptance.evidence import Evidence
from edenmem.acceptance.form import SUBJECT
from edenmem.acceptance.texts import name_stem, named_words, words_of

#: Number of weights, and the units in which they are whole numbers, per unit of log odds.
SIZE, UNITS = 2**13, 40
#: Log odds from which an item is in doubt. None is refused by them: "Bees need water." has 2.9.
DOUBTED = {"fact": 1.0, "reflection": 3.0}
#: How many first words count, and the lengths of their beginnings and endings.
_WORDS, _PARTS = 3, (2, 3, 4)
_MOST_CAPITALS, _MOST_WORDS = 3, 12


def features(text: str, scope: str, evidence: Evidence) -> Iterator[str]:
    """Yield the features of a text: its scope and form, and its first words.

    All names of people and agents are one word, and so are other words that the conversation has
    with a capital letter.
    """
    words = [_masked(word, evidence) for word in words_of(text)]
    capitals = sum(not each.is_first for each in named_words(text))
    last = text.rstrip()[-1:]
    yield from ("", f"scope {scope}", f"end {'' if last.isalnum() else last}")
    yield f"named {'<name>' in words} {'<other>' in words}"
    yield f"capitals {min(capitals, _MOST_CAPITALS)}"
    yield f"words {min(len(words), _MOST_WORDS)}"
    yield f"digits {any(map(str.isdigit, text))}"
    yield f"begins {text[:1].isupper()}"
    kinds = [word if word[:1] == "<" else word[-2:] for word in words[:_WORDS]]
    yield f"kinds {' '.join(kinds[:2])}"
    yield f"kinds {' '.join(kinds)}"
    for place, word in enumerate(words[:_WORDS]):
        yield f"{place} {word}"
        for length in _PARTS:
            yield f"{place} -{word[-length:]}"
            if place == 0:
                yield f"{word[:length]}-"


def _masked(word: str, evidence: Evidence) -> str:
    if word in evidence.names:
        return "<name>"
    is_capital = word in evidence.talk.capitalized and not SUBJECT.fullmatch(word)
    return "<other>" if is_capital or name_stem(word) in evidence.name_stems else word


def places_of(text: str, scope: str, evidence: Evidence) -> set[int]:
    """Return the places of the weights of a text's features in the table."""
    return {crc32(each.encode()) % SIZE for each in features(text, scope, evidence)}


def unlikeness(text: str, scope: str, evidence: Evidence) -> float:
    """Return the log odds that a text is no statement."""
    table = _table()
    return sum(table[place] for place in places_of(text, scope, evidence)) / UNITS


@cache
def _table() -> memoryview:
    weights = resources.files(__package__).joinpath("likeness.bin").read_bytes()
    return memoryview(weights).cast("b")
