"""How messages speak of an item: about whom, whether they deny it, and whether they mean it."""

from __future__ import annotations

import re
from collections.abc import Collection

from edenmem.acceptance import words
from edenmem.acceptance.evidence import Part, is_negated
from edenmem.acceptance.item import Item
from edenmem.acceptance.tables import language_pattern, pattern
from edenmem.acceptance.words import ascii_digits, base_of

# -- denials -------------------------------------------------------------------------------------

#: Minimum share of an item, and minimum number of words, that a clause must contain.
_COMPARED = 0.5
_LEAST = 2


def is_opposite(item: Item, places: Collection[int], least: int = _LEAST) -> bool:
    """Return whether an item omits the denial of the clause that contains most of it.

    The clause has to contain ``least`` words of the item.
    """
    if item.is_negated:
        return False
    evidence = item.evidence
    best, negated = 0, list[bool]()
    for place in places:
        for clause in evidence.clauses[place]:
            held = item.count_shared(clause)
            if held > best:
                best, negated = held, []
            if held == best:
                negated.append(is_negated(clause.text, evidence.language))
    return best >= max(least, _COMPARED * item.size) and all(negated)


#: Maximum number of messages between a statement and its correction.
_LATER = 4


def find_denied(item: Item, places: Collection[int]) -> str | None:
    """Return a number or name of an item that its sources, or a person soon after, deny."""
    if item.is_negated:
        return None
    evidence = item.evidence
    told = {re.sub(r"\D", "", number.written) for number in item.figures}
    told |= {str(reading[2]) for said in item.days for reading in said.readings if reading[2]}
    names = {word.folded for word in item.tokens[1:] if word.written[0].isupper()}
    last = len(evidence.messages)
    near = sorted({at for place in places for at in range(place, min(place + _LATER, last))})
    for place in near:
        message = evidence.messages[place]
        for match in (
            pattern("speech.denied").finditer(message.text) if message.author == "person" else ()
        ):
            what = match["what"] or match["before"] or match["han"]
            digits = re.match(r"\d+", ascii_digits(what))
            if (digits and digits.group() in told - {""}) or base_of(what) in names:
                return what
    return None


# -- jokes, conditions and guesses ---------------------------------------------------------------


#: What `find_unmeant` returns for a joke.
JOKE = "a joke"


def find_unmeant(item: Item, places: Collection[int]) -> str | None:
    """Return how the sentences with most of an item were meant: a joke, a condition, a guess."""
    evidence = item.evidence
    if len(places) > 1:
        return None  # others may have agreed
    best, unmeant = 0, list[str | None]()
    for place in places:
        for sentence in evidence.sentences[place]:
            held = item.count_shared(sentence)
            if held > best:
                best, unmeant = held, []
            if held == best:  # a question may be answered
                is_asked = sentence.is_question
                unmeant.append(None if is_asked else _meaning(sentence.text, evidence.language))
    if best < max(_LEAST, _COMPARED * item.size) or _meaning(item.content, item.languages[0]):
        return None
    return unmeant[0] if unmeant and all(unmeant) else None


def _meaning(sentence: str, language: str) -> str | None:
    if pattern("speech.jokes").search(sentence):
        return JOKE
    is_open = language_pattern("speech.open", language).search(sentence)
    return "a condition or a guess" if is_open else None


# -- people --------------------------------------------------------------------------------------

_VOCATIVE = re.compile(r"(?<!\w)يا \w+")


def find_other_person(item: Item, places: Collection[int]) -> str | None:
    """Return the person whom the sources are about, if the item is about someone else.

    The clauses with most of the item decide. A clause is about the people that it names, and about
    its writer if it contains "I". A clause with neither decides nothing. In any case, an item must
    be about a person who wrote its sources, or is named in them or in the messages before them.
    """
    people = item.evidence.people
    subjects = _named(item.part, people) if len(people) > 1 else None
    if not subjects:
        return None
    if other := _find_relative(item, places, people, subjects):
        return other
    if writer := _find_stranger(item, places, people, subjects):
        return writer
    best, referred = 0, list[set[str]]()
    for place in places:
        message = item.evidence.messages[place]
        for clause in item.evidence.clauses[place]:
            score = item.count_shared(clause)
            if score < max(best, 1):
                continue
            referred = referred if score == best else []
            best = score
            about = _named(_without_vocatives(clause), people)
            own_words = language_pattern("speech.self", item.evidence.language)
            if message.author == "person" and own_words.search(clause.text):
                about.add(message.speaker)
            referred.append(about)
    if not referred or any(not about or about & subjects for about in referred):
        return None
    return min(referred[0])


def _find_relative(
    item: Item, places: Collection[int], people: dict[str, frozenset[str]], subjects: set[str]
) -> str | None:
    """Return the subject of the clause with most of an item, if it opens with "he" or "my father".

    Only for an item that is about the writer alone.
    """
    evidence = item.evidence
    named = [place for place in places if evidence.messages[place].number in item.candidate.sources]
    if len(named) != 1 or pattern("speech.kin").search(item.content):
        return None
    message = evidence.messages[named[0]]
    if message.author != "person" or subjects != {message.speaker}:
        return None
    best, about = 0, list[str | None]()
    opens = language_pattern("speech.third", evidence.language)
    for part in evidence.clauses[named[0]]:
        score = item.count_shared(part)
        if score > best:
            best, about = score, []
        if score == best:
            clause = part.text
            head = " ".join(clause.split()[:2])
            match = opens.match(clause) or pattern("speech.kin").search(head)
            rest = clause.strip().removeprefix(head) if match else clause  # after "my sister"
            own = language_pattern("speech.self", evidence.language).search(rest)
            about.append(match.group().strip() if match and not own else None)
    if best < max(1, 0.5 * item.size) or not all(about):
        return None
    return about[0]


def _find_stranger(
    item: Item, places: Collection[int], people: dict[str, frozenset[str]], subjects: set[str]
) -> str | None:
    """Return the writer of the sources, if the sources are unrelated to the item's people."""
    messages = item.evidence.messages
    writers, named = set[str](), set[str]()
    for place in places:
        if messages[place].author != "person":
            return None
        writers.add(messages[place].speaker)
        for near in range(max(place - 2, 0), place + 1):
            named |= _named(item.evidence.parts[near], people)
    if not writers or (writers | named) & subjects:
        return None
    last = max(places)
    if any(
        one.speaker in writers and pattern("speech.kin").search(one.text)
        for one in messages[: last + 1]
    ):
        return None
    return min(writers)


def _without_vocatives(part: Part) -> Part:
    bare = _VOCATIVE.sub(" ", part.text)
    return part if bare == part.text else Part(bare)


def _named(part: Part, people: dict[str, frozenset[str]]) -> set[str]:
    """Return the people named in a text."""
    return {
        name
        for name, parts in people.items()
        if any(
            not part.keys.isdisjoint(words.keys_of(one)) or any(one in run for run in part.runs)
            for one in parts
        )
    }
