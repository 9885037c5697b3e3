"""Find the messages that support an item, and reject items that only an agent supports."""

from __future__ import annotations

from collections.abc import Iterable

from edenmem.acceptance.evidence import Evidence, SourceMessage, is_yes
from edenmem.acceptance.item import Doubt, Item
from edenmem.acceptance.speech import (
    JOKE,
    find_denied,
    find_other_person,
    find_unmeant,
    is_opposite,
)

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
        places = [item.evidence.places[number] for number in sources]
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
        evidence.places[number] for number in item.candidate.sources if number in evidence.places
    ]
    named = list(dict.fromkeys(named))
    if not evidence.messages:
        return (), "comes from no message"
    named += [place + 1 for place in named if _is_confirmed(item, place)]
    total = sum(weight for _, weight in item.hits)
    if total and (not named or _held(item, _with_asked(evidence, named)) < _HELD * total):
        found = _ground(item, range(len(evidence.messages)), named)
        named = sorted({*found, *(one for one in named if _is_adjacent(item, one, found))})
    if not named:
        return (), "cites no message that was read; cite the messages that support it"
    if _is_denied(item):
        return _numbers(evidence, named), "was said by the agent, and a person said no to it"
    if _is_by_a_person(item, named, total):
        return _numbers(evidence, named), None
    people = sorted(evidence.bearing)
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
    messages = item.evidence.messages
    if messages[place].author != "agent" or place + 1 >= len(messages):
        return False
    reply = messages[place + 1]
    if reply.author != "person" or not is_yes(reply.text):
        return False
    asked = said = 0
    for sentence in item.evidence.sentences[place]:
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
    return tuple(sorted({evidence.messages[place].number for place in places}))


def _with_asked(evidence: Evidence, places: Iterable[int]) -> set[int]:
    """Return the places, each with the message before it: the question."""
    return {near for place in places for near in (place, place - 1) if near >= 0}


def _held(item: Item, places: Iterable[int]) -> float:
    """Return the weight of what the messages at these places contain of an item."""
    segments = frozenset[int]().union(*map(item.evidence.segments_at.__getitem__, places))
    return sum(weight for held, weight in item.hits if not held.isdisjoint(segments))


def _ground(item: Item, places: Iterable[int], named: list[int]) -> list[int]:
    """Return the few messages that contain most of an item, people's first; else the cited ones."""
    total = sum(weight for _, weight in item.hits)
    left = set(places)
    found: list[int] = []
    held = 0.0
    while left and len(found) < _MOST_SOURCES and held < 0.9 * total:
        gains = {
            place: (_held(item, [*found, place]) - held) * _trust(item.evidence.messages[place])
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
    named = [evidence.places[one] for one in item.candidate.sources if one in evidence.places]
    return bool(named) and not any(place in evidence.bearing for place in named)


def _is_by_a_person(item: Item, places: list[int], total: float) -> bool:
    evidence = item.evidence
    bearing = [place for place in places if place in evidence.bearing]
    if not bearing:
        return False
    if not total:
        return True  # nothing to compare: the rule about words has its say
    segments: set[int] = set()
    for place in bearing:
        answered = place - 1 if item.is_answer(place) else -1
        for at, segment in enumerate(evidence.segments):
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
        for at, segment in enumerate(item.evidence.segments)
        if segment.place in places and segment.author == "tool"
    }
    said = item.evidence.numbers_of_segments
    return bool(item.figures) and any(
        all(not number.readings.isdisjoint(said[at]) for number in item.figures) for at in tools
    )


def _is_denied(item: Item) -> bool:
    """Return whether the item comes mostly from an agent's message that a person denied at once."""
    if item.is_denial:
        return False
    only = sum(weight for held, weight in item.hits if held <= item.evidence.denied)
    return only > _DENIED * sum(weight for _, weight in item.hits)
