"""What an item is checked against: the messages that were read, and what surrounded them."""

from __future__ import annotations

import re
from collections import defaultdict
from datetime import datetime
from functools import cached_property
from typing import Literal

import msgspec

from edenmem.acceptance import dates, numbers, secrets, statement, times, words
from edenmem.acceptance.tables import language_pattern, pattern, word_set

Author = Literal["person", "agent", "other agent", "tool", "system"]


class SourceMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message as the model read it.

    Attributes:
        number: Its number in the transcript, from 1.
        id: Its id in the store.
        author: What kind of speaker wrote it.
        speaker: The speaker's name as the transcript shows it.
        sent_at: When it was sent, in the zone that the transcript's dates are in.
        text: Its text, with what tools were asked and answered.
    """

    number: int
    id: str
    author: Author
    speaker: str
    sent_at: datetime
    text: str


class Segment(msgspec.Struct, frozen=True):
    """A part of a message by one author: what tools answered inside an agent's is a tool's.

    ``place`` is the message's place in the range, from 0.
    """

    place: int
    author: Author
    text: str


#: A tool's line inside an agent's message. The transcript alone writes lines of this form.
TOOL_LINE = re.compile(r"\s*tool \S.*?->")


#: Where one sentence ends and another begins, and what ends a question.
SENTENCE = re.compile(r"(?<=[.!?…؟।])\s|(?<=[。！？])|\n")
QUESTION = re.compile(r"[?？؟]|(?:吗|呢|ですか|ますか|でしょうか)[。]?\s*\Z")


_CLAUSE = re.compile(r"[.,:;!?…](?=\s|\Z)|,(?=[\u3400-\u9fff])|[。、，；！？：؟،\n]|\s[-–—]\s")


def is_no(reply: str) -> bool:
    """Whether a reply begins with "no"."""
    return bool(pattern("evidence.no").match(reply))


def is_yes(reply: str) -> bool:
    """Whether a reply begins with "yes"."""
    return bool(pattern("evidence.yes").match(reply))


def _is_short(reply: str) -> bool:
    """Whether the first sentence of a reply is no longer than an answer to a question."""
    first = SENTENCE.split(reply, maxsplit=1)[0]
    return len(words.words_of(first)) + len("".join(words.runs_of(first))) // 3 <= 12


def is_negated(text: str, language: str) -> bool:
    """Whether a text of a language denies something."""
    bare = pattern("evidence.no_denial").sub(" ", text)
    return bool(language_pattern("evidence.negations", language).search(bare))


class Part(msgspec.Struct, frozen=True, dict=True):
    """A clause, a sentence or the whole of a message."""

    text: str

    @cached_property
    def keys(self) -> frozenset[str]:
        """The keys of its words."""
        return words.keys_in(self.text)

    @cached_property
    def runs(self) -> list[str]:
        """Its runs without spaces."""
        return words.runs_of(self.text)

    @cached_property
    def is_question(self) -> bool:
        """Whether it asks something."""
        return bool(QUESTION.search(self.text))

    @cached_property
    def normal(self) -> str:
        """Its words alone, with a blank before and after each."""
        return f" {words.normal(self.text)} "


#: How much of a message may hold numbers that others are worked out of.
_COUNTED_TEXT = 1000


class Evidence(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """All that a model was shown, by where it came from.

    Attributes:
        messages: The range that was read, in order.
        context: Texts that may lend names and numbers, but nothing else: the session's title, the
            agent's persona, shards' instructions, names of people and agents.
        memory: What is remembered already, where the model was shown it (reflections).
        template: The prompt's own words, with its examples, without any of the above.
        user: The name of the person, where the conversation has only one.
    """

    messages: tuple[SourceMessage, ...]
    context: tuple[str, ...] = ()
    memory: tuple[str, ...] = ()
    template: str = ""
    user: str | None = None

    # What follows is computed once for a range, however many items are checked against it.

    @cached_property
    def places(self) -> dict[int, int]:
        """The place of each message in the range, by its number."""
        return {message.number: place for place, message in enumerate(self.messages)}

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The messages as they are compared."""
        return tuple(Part(message.text) for message in self.messages)

    @cached_property
    def clauses(self) -> tuple[tuple[Part, ...], ...]:
        """The clauses of each message."""
        return tuple(
            tuple(Part(clause) for clause in _CLAUSE.split(message.text) if clause.strip())
            for message in self.messages
        )

    @cached_property
    def sentences(self) -> tuple[tuple[Part, ...], ...]:
        """The sentences of each message."""
        return tuple(tuple(map(Part, SENTENCE.split(message.text))) for message in self.messages)

    @cached_property
    def replies(self) -> tuple[Literal["yes", "no", "answer", ""], ...]:
        """How each message of a person replies to the message before it."""
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
        """The segments of an agent that a person said no to at once."""
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
        """The messages that can bear an item: a person's, or what a tool answered to one."""
        tools = {segment.place for segment in self.segments if segment.author == "tool"}
        people = [at for at, one in enumerate(self.messages) if one.author == "person"]
        return frozenset(people) | {at for at in tools if people and people[0] < at}

    @cached_property
    def people(self) -> dict[str, frozenset[str]]:
        """For each person who writes, the parts of the name that no other person shares."""
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
    def labels(self) -> tuple[str, ...]:
        """The names of those who speak, the longest first."""
        names = {one.speaker for one in self.messages} | {self.user or ""}
        return tuple(sorted(filter(None, names), key=len, reverse=True))

    @cached_property
    def is_about_users(self) -> bool:
        """Whether people themselves speak of "the user", as those who build something do."""
        return any(
            statement.has_the_user(message.text)
            for message in self.messages
            if message.author == "person"
        )

    @cached_property
    def years(self) -> frozenset[float]:
        """The years in which messages were sent, and those of the days that they mean."""
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
        """For each message, its segments."""
        found: list[set[int]] = [set() for _ in self.messages]
        for at, segment in enumerate(self.segments):
            found[segment.place].add(at)
        return tuple(map(frozenset, found))

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """The messages, with what tools answered apart from what an agent says."""
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
        """The language that people write in the range."""
        people = [message.text for message in self.messages if message.author == "person"]
        text = "\n".join(people)[:20_000]
        return words.language_beyond(text, words.language_of(text), numbers.languages())

    @cached_property
    def is_foreign(self) -> bool:
        """Whether people write in a language whose numbers and dates are not known here."""
        return bool(self.messages) and self.language not in numbers.languages()

    @cached_property
    def segments_of_key(self) -> dict[str, set[int]]:
        """The segments (by place among them) in which a key of a word or a piece occurs."""
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
    def memory_keys(self) -> frozenset[str]:
        """The keys of the words and pieces of what is remembered already."""
        return frozenset(
            key
            for text in self.memory
            for key in (
                *(key for word in words.words_of(text) for key in words.keys_of(word.folded)),
                *(piece for run in words.runs_of(text) for piece in words.pieces_of(run)),
            )
        )

    @cached_property
    def folded(self) -> str:
        """All messages and speakers, folded, as one text."""
        return words.fold("\n".join(f"{one.speaker}: {one.text}" for one in self.messages))

    @cached_property
    def everything(self) -> tuple[str, ...]:
        """All texts that may lend names and numbers."""
        said = tuple(f"{message.speaker}: {message.text}" for message in self.messages)
        return (*said, *self.context, *self.memory, self.user or "")

    @cached_property
    def lines(self) -> str:
        """Everything as one text in lower case, with the digits of all scripts as 0 to 9."""
        return words.ascii_digits("\n".join(self.everything)).casefold()

    @cached_property
    def names(self) -> frozenset[str]:
        """All words that may be names, folded."""
        return frozenset(word.folded for text in self.everything for word in words.words_of(text))

    @cached_property
    def name_stems(self) -> frozenset[str]:
        """The beginnings of these words, up to three letters short."""
        return frozenset(
            name[:end] for name in self.names for end in range(max(len(name) - 3, 3), len(name) + 1)
        )

    @cached_property
    def speakers(self) -> frozenset[str]:
        """The words of speakers' names, folded."""
        labels = [message.speaker for message in self.messages]
        return frozenset(
            word.folded for label in (*labels, self.user or "") for word in words.words_of(label)
        )

    @cached_property
    def speaker_keys(self) -> frozenset[str]:
        """The keys of the words of speakers' names."""
        return frozenset(key for word in self.speakers for key in words.keys_of(word))

    @cached_property
    def agents(self) -> tuple[str, ...]:
        """The names of the agents that speak, without what the transcript adds in brackets."""
        labels = {
            message.speaker.partition(" (")[0].strip()
            for message in self.messages
            if message.author in ("agent", "other agent")
        }
        return tuple(sorted(labels - {""}))

    @cached_property
    def numbers_of_segments(self) -> tuple[frozenset[float], ...]:
        """The numbers that each segment names."""
        return tuple(numbers.said_numbers((segment.text,)) for segment in self.segments)

    @cached_property
    def counts(self) -> tuple[frozenset[float], ...]:
        """For each message, the numbers near its beginning, each in its likeliest reading."""
        return tuple(
            numbers.count_things(message.text[:_COUNTED_TEXT]) for message in self.messages
        )

    @cached_property
    def other_numbers(self) -> frozenset[float]:
        """The numbers that surround the messages."""
        labels = [message.speaker for message in self.messages]
        return numbers.said_numbers((*labels, *self.context, *self.memory))

    @cached_property
    def all_numbers(self) -> frozenset[float]:
        """All numbers that were said or shown."""
        return self.other_numbers.union(*self.numbers_of_segments)

    @cached_property
    def long_digits(self) -> str:
        """The digits of each line, without what parts them: phone numbers, account numbers."""
        return "\n".join(re.sub(r"\D", "", line) for line in self.lines.splitlines())

    @cached_property
    def months(self) -> tuple[frozenset[int], ...]:
        """For each message, the months that it names, with or without a day."""
        return tuple(dates.said_months(message.text) for message in self.messages)

    @cached_property
    def named_dates(self) -> tuple[tuple[dates.Said, ...], ...]:
        """For each message, the dates that it names."""
        return tuple(
            tuple(dates.find_dates(message.text, is_lenient=True)) for message in self.messages
        )

    @cached_property
    def weekdays(self) -> tuple[frozenset[int], ...]:
        """For each message, the days of the week that it names."""
        return tuple(dates.said_weekdays(message.text) for message in self.messages)

    @cached_property
    def day_numbers(self) -> tuple[tuple[frozenset[int], frozenset[int]], ...]:
        """For each message, the days of a month that figures may be, and are said to be."""
        return tuple(dates.said_days_of_month(message.text) for message in self.messages)

    @cached_property
    def weeks(self) -> tuple[bool, ...]:
        """For each message, whether it names a week."""
        return tuple(dates.names_week(message.text) for message in self.messages)

    @cached_property
    def seasons(self) -> tuple[bool, ...]:
        """For each message, whether it names a season."""
        return tuple(times.has_season(message.text) for message in self.messages)

    @cached_property
    def movable_feasts(self) -> tuple[bool, ...]:
        """For each message, whether it names a feast whose day is another one each year."""
        return tuple(dates.has_movable_feast(message.text) for message in self.messages)

    @cached_property
    def hidden_numbers(self) -> tuple[bool, ...]:
        """For each message, whether it may write a number in a way that the tables lack."""
        return tuple(
            any(
                numbers.has_hidden_number(word, self.language)
                for word in {word.folded for word in words.words_of(message.text)}
            )
            for message in self.messages
        )

    @cached_property
    def spans(self) -> tuple[tuple[tuple[int, str, int], ...], ...]:
        """For each message, the spans of days and more that it names."""
        return tuple(tuple(times.find_spans(message.text)) for message in self.messages)

    @cached_property
    def given(self) -> dict[tuple[int, dates.Reading], bool]:
        """Whether a message gives a date, as far as it was asked."""
        return {}

    @cached_property
    def other_dates(self) -> tuple[dates.Said, ...]:
        """The dates that surround the messages."""
        texts = (*self.context, *self.memory)
        return tuple(date for text in texts for date in dates.find_dates(text, is_lenient=True))

    @cached_property
    def meant(self) -> tuple[tuple[dates.Meant, ...], ...]:
        """For each message, the days that its relative expressions mean."""
        return tuple(
            tuple(dates.meant_days(message.text, message.sent_at)) for message in self.messages
        )

    @cached_property
    def numbers_said(self) -> tuple[frozenset[float], ...]:
        """The numbers that each message names."""
        found: list[set[float]] = [set() for _ in self.messages]
        for segment, said in zip(self.segments, self.numbers_of_segments, strict=True):
            found[segment.place] |= said
        return tuple(map(frozenset, found))

    @cached_property
    def minutes(self) -> tuple[frozenset[int], ...]:
        """For each message, the times of day that it may mean, in twelve hours."""
        return tuple(
            times.said_minutes(message.text, said)
            | {(message.sent_at.hour * 60 + message.sent_at.minute) % 720}
            for message, said in zip(self.messages, self.numbers_said, strict=True)
        )

    @cached_property
    def durations(self) -> tuple[frozenset[int], ...]:
        """For each message, the minutes and hours that it counts, in minutes."""
        return tuple(times.said_durations(message.text) for message in self.messages)

    @cached_property
    def secrets(self) -> frozenset[str]:
        """What messages call a password, a code or the like, as `secrets.flatten` writes it."""
        return frozenset(
            value for message in self.messages for value in secrets.said_values(message.text)
        )

    @cached_property
    def template_runs(self) -> frozenset[str]:
        """The runs of three words that only the prompt's own text holds."""
        shown = runs_of_three("\n".join(self.everything))
        return runs_of_three(self.template) - shown


def runs_of_three(text: str) -> frozenset[str]:
    """All runs of three words of a text, with every figure as 0."""
    flat = re.sub(r"\d+", "0", words.normal(text)).split()
    return frozenset(" ".join(flat[at : at + 3]) for at in range(len(flat) - 2))


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """An item that a model proposed.

    Attributes:
        content: The item's text, on one line.
        kind: A fact names its sources; a reflection is about the whole range.
        sources: Numbers of the messages that it is said to come from.
        is_shared: Whether others than one person read the scope that it is for.
        takes_orders: Whether the scope's keeper switched the rule about orders off (a shard).
    """

    content: str
    kind: Literal["fact", "reflection"] = "fact"
    sources: tuple[int, ...] = ()
    is_shared: bool = False
    takes_orders: bool = False


class Violation(msgspec.Struct, frozen=True):
    """A rule that an item breaks, and why, in words that a model and a person understand."""

    rule: str
    reason: str


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a candidate.

    Attributes:
        content: The text to keep, with what code can mend mended ("the user" by the name).
        sources: The messages that it comes from, as checked against what they say.
        violations: The rules that it breaks; it may be kept only if there is none.
        is_weak: Whether it may be kept although not all of it could be confirmed.
    """

    content: str
    sources: tuple[int, ...] = ()
    violations: tuple[Violation, ...] = ()
    is_weak: bool = False
