"""Find the messages that support an item, and check what they say about it.

Items that only an agent supports are rejected, and those that their sources deny, do not mean, or
say about another person.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from edenmem.acceptance.conversation import Part, SourceMessage, is_negated, is_yes
from edenmem.acceptance.evidence import Evidence
from edenmem.acceptance.item import Doubt, Item
from edenmem.acceptance.reading import words
from edenmem.acceptance.reading.words import ascii_digits, base_of
from edenmem.acceptance.tables import language_pattern, pattern

#: Minimum share of an item's known words that the cited sources must contain.
_HELD = 0.5
#: Minimum share that a person, or a tool for a person, must have said or confirmed.
_BY_A_PERSON = 0.4
#: The same if the model itself cites only an agent's messages.
_BY_PEOPLE_ELSEWHERE = 0.8
#: Share said only by an agent whom a person denied, above which an item is denied.
_DENIED = 0.5
_MOST_SOURCES = 3
_ALONE = "was said only by the agent; keep what a person said or confirmed"
#: Maximum distance of a cited message without a word of the item from supporting messages.
_ADJACENT = 2


def check_sources(item: Item) -> tuple[tuple[int, ...], str | Doubt | None]:
    """Return the messages that support an item, and the objection to them, if any."""
    sources, reason = _find_sources(item)
    if reason == _ALONE and not _is_agents_alone(item):
        return sources, Doubt(reason)  # a person's words, perhaps in others
    if reason is None:
        places = [item.evidence.talk.places[number] for number in sources]
        places += [place - 1 for place in places if item.is_answer(place)]
        places = list(dict.fromkeys(places))
        if other := find_other_person(item, places):
            reason = f"is about another person than its sources, which are about {other}"
        elif meant := find_unmeant(item, places):
            reason = f"was said as {meant}; say so, or leave it out"
            return sources, reason if meant == JOKE else Doubt(reason)
        elif is_opposite(item, places):
            return sources, Doubt("says the opposite of its sources")
        elif denied := find_denied(item, places):
            return sources, Doubt(f"says '{denied}', which a person denied")
    return sources, reason


def _find_sources(item: Item) -> tuple[tuple[int, ...], str | None]:
    """Return the messages that support an item, and the objection to them, if any.

    Unknown numbers are dropped. If the remaining citations contain too little of the item and other
    messages contain more, those become its sources.
    """
    evidence = item.evidence
    named = [
        evidence.talk.places[number]
        for number in item.candidate.sources
        if number in evidence.talk.places
    ]
    named = list(dict.fromkeys(named))
    if not evidence.talk.messages:
        return (), "comes from no message"
    named += [place + 1 for place in named if _is_confirmed(item, place)]
    total = sum(weight for _, weight in item.hits)
    if total and (not named or _held(item, _with_asked(evidence, named)) < _HELD * total):
        found = _ground(item, range(len(evidence.talk.messages)), named)
        named = sorted({*found, *(one for one in named if _is_adjacent(item, one, found))})
    if not named:
        return (), "cites no message that was read; cite the messages that support it"
    if _is_denied(item):
        return _numbers(evidence, named), "was said by the agent, and a person said no to it"
    if _is_by_a_person(item, named, total):
        return _numbers(evidence, named), None
    people = sorted(evidence.talk.bearing)
    found = _ground(item, people, [])
    if _is_agents_alone(item):  # so the model says itself: then one message has to say it all
        best = max(people, key=lambda place: _held(item, [place]), default=None)
        if (
            best is not None
            and total
            and _held(item, [best]) >= _BY_PEOPLE_ELSEWHERE * total
            and not is_opposite(item, [best], least=1)
        ):
            return _numbers(evidence, [best]), None
    elif found and total and _is_by_a_person(item, found, total):
        kept = (one for one in named if one in people and _is_adjacent(item, one, found))
        return _numbers(evidence, {*found, *kept}), None
    return _numbers(evidence, named), _ALONE


def _is_confirmed(item: Item, place: int) -> bool:
    """Return whether an agent's question contains most of an item and is answered "yes" at once."""
    messages = item.evidence.talk.messages
    if messages[place].author != "agent" or place + 1 >= len(messages):
        return False
    reply = messages[place + 1]
    if reply.author != "person" or not is_yes(reply.text):
        return False
    asked = said = 0
    for sentence in item.evidence.talk.sentences[place]:
        share = item.count_shared(sentence)
        if sentence.is_question:
            asked = max(asked, share)
        else:
            said = max(said, share)
    return asked > said


def _is_adjacent(item: Item, place: int, found: Iterable[int]) -> bool:
    """Return whether a cited message may add to the supporting ones: a correction, a "yes"."""
    return _held(item, [place]) > 0 or any(abs(place - one) <= _ADJACENT for one in found)


def _numbers(evidence: Evidence, places: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted({evidence.talk.messages[place].number for place in places}))


def _with_asked(evidence: Evidence, places: Iterable[int]) -> set[int]:
    """Return the places, each with the message before it: the question."""
    return {near for place in places for near in (place, place - 1) if near >= 0}


def _held(item: Item, places: Iterable[int]) -> float:
    """Return the weight of what the messages at these places contain of an item."""
    segments = frozenset[int]().union(*map(item.evidence.talk.segments_at.__getitem__, places))
    return sum(weight for held, weight in item.hits if not held.isdisjoint(segments))


def _ground(item: Item, places: Iterable[int], named: list[int]) -> list[int]:
    """Return the few messages that contain most of an item, people's first; else the cited ones."""
    total = sum(weight for _, weight in item.hits)
    left = set(places)
    found: list[int] = []
    held = 0.0
    while left and len(found) < _MOST_SOURCES and held < 0.9 * total:
        gains = {
            place: (_held(item, [*found, place]) - held)
            * _trust(item.evidence.talk.messages[place])
            for place in left
        }
        best = min(left, key=lambda place: (-gains[place], place not in named, place))
        if gains[best] < 0.15 * total:
            break
        found.append(best)
        left.remove(best)
        held = _held(item, found)
    return sorted(found) or named


def _trust(message: SourceMessage) -> float:
    return {"person": 1.0, "tool": 0.9}.get(message.author, 0.6)


def _is_agents_alone(item: Item) -> bool:
    """Return whether all cited messages are an agent's."""
    evidence = item.evidence
    named = [
        evidence.talk.places[one] for one in item.candidate.sources if one in evidence.talk.places
    ]
    return bool(named) and not any(place in evidence.talk.bearing for place in named)


def _is_by_a_person(item: Item, places: list[int], total: float) -> bool:
    evidence = item.evidence
    bearing = [place for place in places if place in evidence.talk.bearing]
    if not bearing:
        return False
    if not total:
        return True  # nothing to compare: the rule about words has its say
    segments: set[int] = set()
    for place in bearing:
        answered = place - 1 if item.is_answer(place) else -1
        for at, segment in enumerate(evidence.talk.segments):
            if (segment.place == place and segment.author in ("person", "tool")) or (
                segment.place == answered
            ):
                segments.add(at)
    said = sum(weight for held, weight in item.hits if not held.isdisjoint(segments))
    return said >= _BY_A_PERSON * total or _are_figures_held(item, bearing)


def _are_figures_held(item: Item, places: list[int]) -> bool:
    """Return whether a tool result contains all numbers, even if the agent reworded the rest."""
    tools = {
        at
        for at, segment in enumerate(item.evidence.talk.segments)
        if segment.place in places and segment.author == "tool"
    }
    said = item.evidence.talk.numbers_of_segments
    return bool(item.figures) and any(
        all(not number.readings.isdisjoint(said[at]) for number in item.figures) for at in tools
    )


def _is_denied(item: Item) -> bool:
    """Return whether the item comes mostly from an agent's message that a person denied at once."""
    if item.is_denial:
        return False
    only = sum(weight for held, weight in item.hits if held <= item.evidence.talk.denied)
    return only > _DENIED * sum(weight for _, weight in item.hits)


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
        for clause in evidence.talk.clauses[place]:
            held = item.count_shared(clause)
            if held > best:
                best, negated = held, []
            if held == best:
                negated.append(is_negated(clause.text, evidence.talk.language))
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
    last = len(evidence.talk.messages)
    near = sorted({at for place in places for at in range(place, min(place + _LATER, last))})
    for place in near:
        message = evidence.talk.messages[place]
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
        for sentence in evidence.talk.sentences[place]:
            held = item.count_shared(sentence)
            if held > best:
                best, unmeant = held, []
            if held == best:  # a question may be answered
                is_asked = sentence.is_question
                unmeant.append(
                    None if is_asked else _meaning(sentence.text, evidence.talk.language)
                )
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
    people = item.evidence.talk.people
    subjects = _named(item.part, people) if len(people) > 1 else None
    if not subjects:
        return None
    if other := _find_relative(item, places, people, subjects):
        return other
    if writer := _find_stranger(item, places, people, subjects):
        return writer
    best, referred = 0, list[set[str]]()
    for place in places:
        message = item.evidence.talk.messages[place]
        for clause in item.evidence.talk.clauses[place]:
            score = item.count_shared(clause)
            if score < max(best, 1):
                continue
            referred = referred if score == best else []
            best = score
            about = _named(_without_vocatives(clause), people)
            own_words = language_pattern("speech.self", item.evidence.talk.language)
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
    named = [
        place for place in places if evidence.talk.messages[place].number in item.candidate.sources
    ]
    if len(named) != 1 or pattern("speech.kin").search(item.content):
        return None
    message = evidence.talk.messages[named[0]]
    if message.author != "person" or subjects != {message.speaker}:
        return None
    best, about = 0, list[str | None]()
    opens = language_pattern("speech.third", evidence.talk.language)
    for part in evidence.talk.clauses[named[0]]:
        score = item.count_shared(part)
        if score > best:
            best, about = score, []
        if score == best:
            clause = part.text
            head = " ".join(clause.split()[:2])
            match = opens.match(clause) or pattern("speech.kin").search(head)
            rest = clause.strip().removeprefix(head) if match else clause  # after "my sister"
            own = language_pattern("speech.self", evidence.talk.language).search(rest)
            about.append(match.group().strip() if match and not own else None)
    if best < max(1, 0.5 * item.size) or not all(about):
        return None
    return about[0]


def _find_stranger(
    item: Item, places: Collection[int], people: dict[str, frozenset[str]], subjects: set[str]
) -> str | None:
    """Return the writer of the sources, if the sources are unrelated to the item's people."""
    messages = item.evidence.talk.messages
    writers, named = set[str](), set[str]()
    for place in places:
        if messages[place].author != "person":
            return None
        writers.add(messages[place].speaker)
        for near in range(max(place - 2, 0), place + 1):
            named |= _named(item.evidence.talk.parts[near], people)
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
