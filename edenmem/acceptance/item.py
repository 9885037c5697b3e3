"""A candidate with its evidence, and what the rules derive from them."""

from __future__ import annotations

import re
from functools import cached_property

import msgspec

from edenmem.acceptance import days
from edenmem.acceptance.conversation import Part, is_negated
from edenmem.acceptance.evidence import Candidate, Evidence
from edenmem.acceptance.reading import dates, numbers, times, words
from edenmem.acceptance.reading.dates import Said
from edenmem.acceptance.reading.times import Time

#: A number with its counter, or a weekday, in scripts without spaces.
COUNTED = re.compile(
    r"[\d.,:]+[^\W\d_a-z]?"
    r"|[一二三四五六七八九十百千万]{1,12}[个個名歳岁枚円元度分点時年月日]|(?:星期|周"
    r"|週)[一二三四五六日天]|[月火水木金土日]曜日?"
)


#: Words that imply a denial.
_REFUSAL = re.compile("allerg|vegan|vegetar|skip", re.IGNORECASE)


#: Maximum number of an item's dates that are searched in messages.
MOST_DAYS = 40


class Doubt(msgspec.Struct, frozen=True):
    """A reason that may be wrong: the evidence contains something the rules cannot read.

    The item is sent back once, then kept as weak.
    """

    reason: str


class Item(msgspec.Struct, kw_only=True, dict=True):
    """A candidate with its evidence, and what the rules derive from them."""

    candidate: Candidate
    evidence: Evidence
    content: str
    sources: tuple[int, ...] = ()

    @cached_property
    def tokens(self) -> tuple[words.Word, ...]:
        """Return the words in scripts with spaces."""
        return words.words_of(self.content)

    @cached_property
    def languages(self) -> tuple[str, ...]:
        """Return the likely languages of the text, most likely first."""
        usual = self.evidence.talk.language
        if self.evidence.talk.is_foreign:
            return (usual,)
        return tuple(dict.fromkeys((words.language_of(self.content, usual), usual)))

    @cached_property
    def bare(self) -> str:
        """Return the text without quotations."""
        return words.without_quotes(self.content)

    @cached_property
    def digits(self) -> str:
        """Return the text with the digits of all scripts as 0 to 9."""
        return words.ascii_digits(self.content)

    @cached_property
    def content_words(self) -> list[str]:
        """Return the folded content words, without months and weekdays."""
        found = words.content_words(self.tokens, self.languages)
        calendar = dates.calendar_words()
        return [word for word in found if word not in calendar]

    @cached_property
    def runs(self) -> list[str]:
        """Return the unspaced runs, without speakers' names, numerals and dates."""
        text = self.digits
        if len(text) == len(self.content):
            for one in self.days:
                text = text[: one.start] + " " * (one.end - one.start) + text[one.end :]
        text = COUNTED.sub(" ", text)
        for name in self.evidence.labels:
            text = text.replace(name, " ")
        return words.runs_of(text)

    @cached_property
    def is_spaced(self) -> bool:
        """Return whether the script puts spaces between words."""
        return not words.runs_of(self.content)

    @cached_property
    def pieces(self) -> list[str]:
        """Return the character pieces of the unspaced runs."""
        return [piece for run in self.runs for piece in words.pieces_of(run)]

    @cached_property
    def days(self) -> list[Said]:
        """Return the dates in the text."""
        return dates.find_dates(self.content)

    @cached_property
    def times(self) -> list[Time]:
        """Return the times of day in the text."""
        return list(times.find_times(self.content))

    @cached_property
    def figures(self) -> list[numbers.Number]:
        """Return the numbers in the text, except those in dates and times."""
        digits = self.digits
        if len(digits) == len(self.content):
            spans = [(one.start, one.end) for one in self.days]
            spans += ((one.start, one.end) for one in self.times)
            for start, end in spans:
                digits = digits[:start] + " " * (end - start) + digits[end:]
        found = list(numbers.find_figures(digits))
        found += numbers.find_number_words(self.content, self.languages[0], self.tokens)
        if self.languages[0] in ("zh", "ja"):
            found += numbers.find_han_numbers(self.content)
        return found

    @cached_property
    def hits(self) -> list[tuple[set[int], float]]:
        """Return the segments and the weight of each word, piece and number that was said.

        A word that occurs in few messages weighs more: it says more about the item's source.
        """
        evidence = self.evidence
        held: list[set[int]] = []
        for word in self.own_words:
            places: set[int] = set()
            for key in words.keys_of(word):
                places |= evidence.talk.segments_of_key.get(key, set())
            held.append(places)
        held += (evidence.talk.segments_of_key.get(piece, set()) for piece in self.own_pieces)
        wanted = [number.readings for number in self.figures]
        wanted += (frozenset(minute / 60 for minute in time.minutes) for time in self.times)
        for readings in wanted:
            said = enumerate(evidence.talk.numbers_of_segments)
            held.append({place for place, some in said if not readings.isdisjoint(some)})
        for day in self.days[:MOST_DAYS]:
            giving = {
                place
                for place in range(len(evidence.talk.messages))
                if any(days.gives(evidence, place, reading) for reading in day.readings)
            }
            held.append(
                {at for at, segment in enumerate(evidence.talk.segments) if segment.place in giving}
            )
        return [(places, 1 / len(places)) for places in held if places]

    @cached_property
    def own_words(self) -> frozenset[str]:
        """Return the content words without the names of speakers."""
        return frozenset(self.content_words) - self.evidence.speakers

    @cached_property
    def own_keys(self) -> list[tuple[str, ...]]:
        """Return the keys of the own words."""
        return [words.keys_of(word) for word in self.own_words]

    @cached_property
    def own_pieces(self) -> frozenset[str]:
        """Return the distinct character pieces."""
        return frozenset(self.pieces)

    @property
    def size(self) -> int:
        """Return the number of own words and pieces."""
        return len(self.own_words) + len(self.own_pieces)

    @cached_property
    def part(self) -> Part:
        """Return the text in the form in which messages are compared with it."""
        return Part(self.content)

    @cached_property
    def is_negated(self) -> bool:
        """Return whether the text contains a denial."""
        return is_negated(self.content, self.languages[0])

    @cached_property
    def is_denial(self) -> bool:
        """Return whether the text denies or refuses something."""
        return self.is_negated or bool(_REFUSAL.search(self.content))

    def is_answer(self, place: int) -> bool:
        """Return whether a person's message confirms or answers the message before it."""
        reply = self.evidence.talk.replies[place]
        return reply in ("yes", "answer") or (reply == "no" and self.is_denial)

    # Only for use after the sources were checked.

    @cached_property
    def places(self) -> list[int]:
        """Return the places of a fact's sources; all messages for a reflection."""
        evidence = self.evidence
        if self.candidate.kind == "reflection":
            return list(range(len(evidence.talk.messages)))
        named = [evidence.talk.places[one] for one in self.sources if one in evidence.talk.places]
        return named or list(range(len(evidence.talk.messages)))

    @cached_property
    def bearing(self) -> list[int]:
        """Return the places of the sources and of the questions that they answer."""
        return [*self.places, *(place - 1 for place in self.places if self.is_answer(place))]

    @cached_property
    def near(self) -> set[int]:
        """Return the places of the sources and of the messages before them."""
        return {near for place in self.bearing for near in (place, max(place - 1, 0))}

    @cached_property
    def near_numbers(self) -> frozenset[float]:
        """Return the numbers in the messages near the sources."""
        return frozenset[float]().union(*(self.evidence.talk.numbers_said[at] for at in self.near))

    def count_shared(self, part: Part) -> int:
        """Return how many own words and pieces a part of a message contains."""
        count = sum(not part.keys.isdisjoint(some) for some in self.own_keys)
        if part.runs:
            count += sum(any(piece in run for run in part.runs) for piece in self.own_pieces)
        return count
