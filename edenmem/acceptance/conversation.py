"""The conversation that a model was shown, and the texts derived from it for comparison."""

from __future__ import annotations

import re
from datetime import datetime
from functools import cached_property
from typing import Literal

import msgspec

from edenmem.acceptance.secrets import named_values
from edenmem.acceptance.texts import contains, fold, named_words, numbers_in, stems_of, words_of

Author = Literal["person", "agent", "other agent", "tool"]

#: A tool's line inside an agent's message, as only the transcript writes it.
TOOL_LINE = re.compile(r"\s*tool \S.*?->")
#: What models write where they leave out a part of a quote.
_GAP = re.compile(r"\s*(?:\.\.\.|…|\[…\]|\[\.\.\.\])\s*")


class SourceMessage(msgspec.Struct, frozen=True, dict=True):
    """A message as shown to a model.

    Attributes:
        number: Its number in the transcript, from 1.
        id: Its ID in the store.
        author: The kind of its writer.
        speaker: The writer's name.
        sent_at: When it was sent, in the time zone of the transcript.
        text: Its text, with tool calls and results.
    """

    number: int
    id: str
    author: Author
    speaker: str
    sent_at: datetime
    text: str

    @cached_property
    def folded(self) -> str:
        """Return the text in the form in which quotes are compared."""
        return fold(self.text)

    @cached_property
    def numbers(self) -> frozenset[str]:
        """Return the numbers in the text."""
        return frozenset(numbers_in(self.text))

    @cached_property
    def words(self) -> frozenset[str]:
        """Return the folded words of the text and of the writer's name."""
        return frozenset(words_of(f"{self.speaker} {self.text}"))


class Conversation(msgspec.Struct, frozen=True, dict=True):
    """The range of messages that was read, in order, numbered from 1."""

    messages: tuple[SourceMessage, ...] = ()

    @cached_property
    def by_number(self) -> dict[int, SourceMessage]:
        """Return the messages by their number."""
        return {message.number: message for message in self.messages}

    @cached_property
    def speakers(self) -> tuple[str, ...]:
        """Return the names of the people who wrote, in order of appearance."""
        people = (each.speaker for each in self.messages if each.author == "person")
        return tuple(dict.fromkeys(people))

    @cached_property
    def folded(self) -> str:
        """Return all messages in the form in which quotes are compared."""
        return "\n".join(message.folded for message in self.messages)

    @cached_property
    def words(self) -> frozenset[str]:
        """Return the folded words of all messages and of the writers' names."""
        return frozenset().union(*(message.words for message in self.messages))

    @cached_property
    def capitalized(self) -> frozenset[str]:
        """Return the folded words of all messages that have a capital letter."""
        named = (each for message in self.messages for each in named_words(message.text))
        return frozenset(each.folded for each in named)

    @cached_property
    def stems(self) -> frozenset[str]:
        """Return the stems of all these words."""
        return stems_of(self.words)

    @cached_property
    def secrets(self) -> frozenset[str]:
        """Return the values that messages call a password, a code or the like."""
        return frozenset(value for each in self.messages for value in named_values(each.text))

    def locate(self, quote: str, cited: tuple[int, ...]) -> tuple[int, ...]:
        """Return the numbers of the messages to cite: those cited, and the message with the quote.

        A cited message is preferred to another one. Empty if no offered message has the quote.
        """
        parts = [folded for part in _GAP.split(quote) if (folded := fold(part))]
        known = tuple(number for number in cited if number in self.by_number)
        for message in (*map(self.by_number.__getitem__, known), *self.messages):
            if parts and all(contains(message.folded, part) for part in parts):
                found = () if message.number in known else (message.number,)
                return tuple(sorted((*known, *found))) if found else known
        return ()

    def around(self, numbers: tuple[int, ...], distance: int) -> tuple[SourceMessage, ...]:
        """Return the messages with these numbers and their neighbors up to ``distance`` away."""
        wanted = {number + step for number in numbers for step in range(-distance, distance + 1)}
        return tuple(message for message in self.messages if message.number in wanted)
