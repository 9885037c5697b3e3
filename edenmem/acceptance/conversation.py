"""The messages that were read, and everything that is found in them."""

from __future__ import annotations

import re
from collections import defaultdict
from datetime import datetime
from functools import cached_property
from typing import Literal

import msgspec

from edenmem.acceptance import secrets, statement
from edenmem.acceptance.reading import dates, numbers, times, words
from edenmem.acceptance.tables import language_pattern, pattern, word_set

Author = Literal["person", "agent", "other agent", "tool", "system"]


class SourceMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message as the model read it.

    Attributes:
        number: Its number in the transcript, from 1.
        id: Its ID in the store.
        author: The kind of speaker.
        speaker: The speaker's name in the transcript.
        sent_at: When it was sent, in the time zone of the transcript.
        text: Its text, with tool calls and results.
    """

    number: int
    id: str
    author: Author
    speaker: str
    sent_at: datetime
    text: str


class Segment(msgspec.Struct, frozen=True):
    """A part of a message by one author; tool results inside an agent's message are separate.

    ``place`` is the index of the message in the range, from 0.
    """

    place: int
    author: Author
    text: str


#: A tool's line inside an agent's message, as only the transcript writes it.
TOOL_LINE = re.compile(r"\s*tool \S.*?->")


#: The boundary of sentences, and the end of a question.
SENTENCE = re.compile(r"(?<=[.!?…؟।])\s|(?<=[。！？])|\n")
QUESTION = re.compile(r"[?？؟]|(?:吗|呢|ですか|ますか|でしょうか)[。]?\s*\Z")


_CLAUSE = re.compile(r"[.,:;!?…](?=\s|\Z)|,(?=[\u3400-\u9fff])|[。、，；！？：؟،\n]|\s[-–—]\s")


def is_no(reply: str) -> bool:
    """Return whether a reply begins with a "no"."""
    return bool(pattern("evidence.no").match(reply))


def is_yes(reply: str) -> bool:
    """Return whether a reply begins with a "yes"."""
    return bool(pattern("evidence.yes").match(reply))


def _is_short(reply: str) -> bool:
    """Return whether the first sentence of a reply is short enough for an answer."""
    first = SENTENCE.split(reply, maxsplit=1)[0]
    return len(words.words_of(first)) + len("".join(words.runs_of(first))) // 3 <= 12


def is_negated(text: str, language: str) -> bool:
    """Return whether a text contains a denial in its language."""
    bare = pattern("evidence.no_denial").sub(" ", text)
    return bool(language_pattern("evidence.negations", language).search(bare))


class Part(msgspec.Struct, frozen=True, dict=True):
    """A clause, a sentence or a whole message."""

    text: str

    @cached_property
    def keys(self) -> frozenset[str]:
        """Return the keys of its words."""
        return words.keys_in(self.text)

    @cached_property
    def runs(self) -> list[str]:
        """Return its unspaced runs."""
        return words.runs_of(self.text)

    @cached_property
    def is_question(self) -> bool:
        """Return whether it is a question."""
        return bool(QUESTION.search(self.text))

    @cached_property
    def normal(self) -> str:
        """Return its words, each between two spaces."""
        return f" {words.normal(self.text)} "


#: Length of a message's start, in characters, whose numbers others are derived from.
_COUNTED_TEXT = 1000


class Conversation(msgspec.Struct, frozen=True, dict=True):
    """The range of messages that was read, in order, with what the rules look for in it.

    Each property is computed once, for any number of items and for all evidence of one formation.
    """

    messages: tuple[SourceMessage, ...] = ()

    @cached_property
    def places(self) -> dict[int, int]:
        """Return the index of each message by its number."""
        return {message.number: place for place, message in enumerate(self.messages)}

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """Return the messages in comparable form."""
        return tuple(Part(message.text) for message in self.messages)

    @cached_property
    def clauses(self) -> tuple[tuple[Part, ...], ...]:
        """Return the clauses of each message."""
        return tuple(
            tuple(Part(clause) for clause in _CLAUSE.split(message.text) if clause.strip())
            for message in self.messages
        )

    @cached_property
    def sentences(self) -> tuple[tuple[Part, ...], ...]:
        """Return the sentences of each message."""
        return tuple(tuple(map(Part, SENTENCE.split(message.text))) for message in self.messages)

    @cached_property
    def replies(self) -> tuple[Literal["yes", "no", "answer", ""], ...]:
        """Return how each message of a person replies to the message before it."""
        found: list[Literal["yes", "no", "answer", ""]] = []
        for place, message in enumerate(self.messages):
            if place == 0 or message.author != "person":
                found.append("")
            elif is_yes(message.text):
                found.append("yes")
            elif _is_short(message.text) and self.parts[place - 1].is_question:
                found.append("no" if is_no(message.text) else "answer")
            else:
                found.append("")
        return tuple(found)

    @cached_property
    def denied(self) -> frozenset[int]:
        """Return the segments of agents that a person denied in the next message."""
        return frozenset(
            at
            for at, segment in enumerate(self.segments)
            if segment.author == "agent"
            and segment.place + 1 < len(self.messages)
            and self.messages[segment.place + 1].author == "person"
            and is_no(self.messages[segment.place + 1].text)
        )

    @cached_property
    def bearing(self) -> frozenset[int]:
        """Return the messages that can support an item: people's, and tool results for them."""
        tools = {segment.place for segment in self.segments if segment.author == "tool"}
        people = [at for at, one in enumerate(self.messages) if one.author == "person"]
        return frozenset(people) | {at for at in tools if people and people[0] < at}

    @cached_property
    def people(self) -> dict[str, frozenset[str]]:
        """Return the parts of each writer's name that no other writer shares."""
        found: dict[str, set[str]] = {}
        for name in {one.speaker for one in self.messages if one.author == "person"}:
            parts = {word.folded for word in words.words_of(name)} - word_set("evidence.titles")
            parts |= {
                run[at] for run in words.runs_of(name) for at in (slice(None, 2), slice(-2, None))
            }
            found[name] = {part for part in parts if len(part) > 1}
        return {
            name: frozenset(parts.difference(*(them for one, them in found.items() if one != name)))
            for name, parts in found.items()
        }

    @cached_property
    def is_about_users(self) -> bool:
        """Return whether people themselves write "the user", as software developers do."""
        return any(
            statement.has_the_user(message.text)
            for message in self.messages
            if message.author == "person"
        )

    @cached_property
    def years(self) -> frozenset[float]:
        """Return the years in which messages were sent, and of the days that they imply."""
        sent = {float(message.sent_at.year) for message in self.messages}
        meant = {
            float(year)
            for all_of_one in self.meant
            for one in all_of_one
            for year in (one.first.year, one.last.year)
        }
        return frozenset(sent | meant)

    @cached_property
    def segments_at(self) -> tuple[frozenset[int], ...]:
        """Return the segments of each message."""
        found: list[set[int]] = [set() for _ in self.messages]
        for at, segment in enumerate(self.segments):
            found[segment.place].add(at)
        return tuple(map(frozenset, found))

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """Return the messages with tool results separated from an agent's own words."""
        found: list[Segment] = []
        for place, message in enumerate(self.messages):
            if message.author not in ("agent", "other agent"):
                found.append(Segment(place, message.author, message.text))
                continue
            own: list[str] = []
            tool: list[str] = []
            for line in message.text.splitlines():
                (tool if TOOL_LINE.match(line) else own).append(line)
            if own:
                found.append(Segment(place, message.author, "\n".join(own)))
            if tool:
                found.append(Segment(place, "tool", "\n".join(tool)))
        return tuple(found)

    @cached_property
    def language(self) -> str:
        """Return the language that people write in the range."""
        people = [message.text for message in self.messages if message.author == "person"]
        text = "\n".join(people)[:20_000]
        return words.language_beyond(text, words.language_of(text), numbers.languages())

    @cached_property
    def is_foreign(self) -> bool:
        """Return whether people write in a language without tables for numbers and dates."""
        return bool(self.messages) and self.language not in numbers.languages()

    @cached_property
    def segments_of_key(self) -> dict[str, set[int]]:
        """Return the segments in which each key of a word or piece occurs."""
        found: defaultdict[str, set[int]] = defaultdict(set)
        for place, segment in enumerate(self.segments):
            for word in words.words_of(segment.text):
                for key in words.keys_of(word.folded):
                    found[key].add(place)
            for run in words.runs_of(segment.text):
                for piece in words.pieces_of(run):
                    found[piece].add(place)
        return dict(found)

    @cached_property
    def folded(self) -> str:
        """Return all messages and speakers, folded, as one text."""
        return words.fold("\n".join(f"{one.speaker}: {one.text}" for one in self.messages))

    @cached_property
    def numbers_of_segments(self) -> tuple[frozenset[float], ...]:
        """Return the numbers in each segment."""
        return tuple(numbers.said_numbers((segment.text,)) for segment in self.segments)

    @cached_property
    def counts(self) -> tuple[frozenset[float], ...]:
        """Return the numbers near the start of each message, each in its likeliest reading."""
        return tuple(
            numbers.count_things(message.text[:_COUNTED_TEXT]) for message in self.messages
        )

    @cached_property
    def units(self) -> tuple[frozenset[str], ...]:
        """Return the words that follow a number in each message."""
        return tuple(
            frozenset(
                unit
                for number in numbers.find_figures(text)
                if (unit := numbers.unit_after(text, number.end))
            )
            for text in (words.ascii_digits(message.text) for message in self.messages)
        )

    @cached_property
    def months(self) -> tuple[frozenset[int], ...]:
        """Return the months in each message, with or without a day."""
        return tuple(dates.said_months(message.text) for message in self.messages)

    @cached_property
    def named_dates(self) -> tuple[tuple[dates.Said, ...], ...]:
        """Return the dates in each message."""
        return tuple(
            tuple(dates.find_dates(message.text, is_lenient=True)) for message in self.messages
        )

    @cached_property
    def weekdays(self) -> tuple[frozenset[int], ...]:
        """Return the weekdays in each message."""
        return tuple(dates.said_weekdays(message.text) for message in self.messages)

    @cached_property
    def day_numbers(self) -> tuple[tuple[frozenset[int], frozenset[int]], ...]:
        """Return each message's numbers that may be days of a month, and those marked as days."""
        return tuple(dates.said_days_of_month(message.text) for message in self.messages)

    @cached_property
    def weeks(self) -> tuple[bool, ...]:
        """Return, for each message, whether it mentions a week."""
        return tuple(dates.names_week(message.text) for message in self.messages)

    @cached_property
    def seasons(self) -> tuple[bool, ...]:
        """Return, for each message, whether it mentions a season."""
        return tuple(times.has_season(message.text) for message in self.messages)

    @cached_property
    def movable_feasts(self) -> tuple[bool, ...]:
        """Return, for each message, whether it mentions a feast without a fixed date."""
        return tuple(dates.has_movable_feast(message.text) for message in self.messages)

    @cached_property
    def hidden_numbers(self) -> tuple[bool, ...]:
        """Return, for each message, whether it may contain a number missing from the tables."""
        return tuple(
            any(
                numbers.has_hidden_number(word, self.language)
                for word in {word.folded for word in words.words_of(message.text)}
            )
            for message in self.messages
        )

    @cached_property
    def spans(self) -> tuple[tuple[tuple[int, str, int], ...], ...]:
        """Return the spans of days or longer in each message."""
        return tuple(tuple(times.find_spans(message.text)) for message in self.messages)

    @cached_property
    def given(self) -> dict[tuple[int, dates.Reading], bool]:
        """Return the cache of answers whether a message gives a date."""
        return {}

    @cached_property
    def meant(self) -> tuple[tuple[dates.Meant, ...], ...]:
        """Return the days that the relative expressions of each message imply."""
        return tuple(
            tuple(dates.meant_days(message.text, message.sent_at, weekdays, spans))
            for message, weekdays, spans in zip(
                self.messages, self.weekdays, self.spans, strict=True
            )
        )

    @cached_property
    def other_days(self) -> tuple[tuple[dates.Meant, ...], ...]:
        """Return the days that each message implies, except the day it was sent on."""
        return tuple(
            tuple(
                one
                for one in meant
                if one.unit == "d" and not one.first <= message.sent_at.date() <= one.last
            )
            for message, meant in zip(self.messages, self.meant, strict=True)
        )

    @cached_property
    def numbers_said(self) -> tuple[frozenset[float], ...]:
        """Return the numbers in each message."""
        found: list[set[float]] = [set() for _ in self.messages]
        for segment, said in zip(self.segments, self.numbers_of_segments, strict=True):
            found[segment.place] |= said
        return tuple(map(frozenset, found))

    @cached_property
    def minutes(self) -> tuple[frozenset[int], ...]:
        """Return the times of day that each message may imply, on a 12-hour clock."""
        return tuple(
            times.said_minutes(message.text, said)
            | {(message.sent_at.hour * 60 + message.sent_at.minute) % 720}
            for message, said in zip(self.messages, self.numbers_said, strict=True)
        )

    @cached_property
    def durations(self) -> tuple[frozenset[int], ...]:
        """Return the durations in each message, in minutes."""
        return tuple(times.said_durations(message.text) for message in self.messages)

    @cached_property
    def secrets(self) -> frozenset[str]:
        """Return the passwords and codes in messages, in the form of `secrets.flatten`."""
        return frozenset(
            value for message in self.messages for value in secrets.said_values(message.text)
        )
