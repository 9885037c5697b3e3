"""Evidence for an item: the messages that were read, and their context."""

from __future__ import annotations

import re
from functools import cached_property, lru_cache
from typing import Literal

import msgspec

from edenmem.acceptance.conversation import Conversation
from edenmem.acceptance.reading import dates, numbers, words


class Evidence(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Everything that a model was shown, by origin.

    Attributes:
        talk: The messages that were read.
        context: Texts that support names and numbers only: the session's title, the agent's
            persona, shards' instructions, names of people and agents.
        memory: Existing memory, if the model was shown it (reflections).
        template: The prompt's own text with its examples, without any of the above.
        user: The person's name, if the conversation has only one person.
        agent: The name of the agent that remembers, even if it says nothing in the range.
    """

    talk: Conversation
    context: tuple[str, ...] = ()
    memory: tuple[str, ...] = ()
    template: str = ""
    user: str | None = None
    agent: str = ""

    # Computed once, for any number of items.

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Return the names of all speakers, longest first."""
        names = {one.speaker for one in self.talk.messages} | {self.user or ""}
        return tuple(sorted(filter(None, names), key=len, reverse=True))

    @cached_property
    def memory_keys(self) -> frozenset[str]:
        """Return the keys of the words and pieces of existing memory."""
        return frozenset(
            key
            for text in self.memory
            for key in (
                *(key for word in words.words_of(text) for key in words.keys_of(word.folded)),
                *(piece for run in words.runs_of(text) for piece in words.pieces_of(run)),
            )
        )

    @cached_property
    def everything(self) -> tuple[str, ...]:
        """Return all texts that support names and numbers."""
        said = tuple(f"{message.speaker}: {message.text}" for message in self.talk.messages)
        return (*said, *self.context, *self.memory, self.user or "")

    @cached_property
    def all_words(self) -> tuple[words.Word, ...]:
        """Return the words of all texts that support names."""
        said = (message.text for message in self.talk.messages)
        speakers = {message.speaker for message in self.talk.messages}
        texts = (*said, *speakers, *self.context, *self.memory, self.user or "")
        return tuple(word for text in texts for word in words.words_of(text))

    @cached_property
    def lines(self) -> str:
        """Return all texts as one, in lower case, with the digits of all scripts as 0 to 9."""
        return words.ascii_digits("\n".join(self.everything)).casefold()

    @cached_property
    def names(self) -> frozenset[str]:
        """Return all words that may be names, folded."""
        return frozenset(word.folded for word in self.all_words)

    @cached_property
    def acronyms(self) -> frozenset[str]:
        """Return the abbreviations in capitals, as written."""
        found = {word.written for word in self.all_words}
        return frozenset(one for one in found if one.isupper() and 1 < len(one) < 6)

    @cached_property
    def name_stems(self) -> frozenset[str]:
        """Return the prefixes of these words, up to three letters shorter."""
        return frozenset(
            name[:end] for name in self.names for end in range(max(len(name) - 3, 3), len(name) + 1)
        )

    @cached_property
    def speakers(self) -> frozenset[str]:
        """Return the words of speakers' names, folded."""
        labels = {message.speaker for message in self.talk.messages}
        return frozenset(
            word.folded for label in (*labels, self.user or "") for word in words.words_of(label)
        )

    @cached_property
    def speaker_keys(self) -> frozenset[str]:
        """The keys of the words of speakers' names."""
        return frozenset(key for word in self.speakers for key in words.keys_of(word))

    @cached_property
    def agents(self) -> tuple[str, ...]:
        """Return the names of the agents, without additions in brackets."""
        labels = {
            message.speaker.partition(" (")[0].strip()
            for message in self.talk.messages
            if message.author in ("agent", "other agent")
        }
        return tuple(sorted((labels | {self.agent}) - {""}))

    @cached_property
    def other_numbers(self) -> frozenset[float]:
        """Return the numbers in speakers' names, context and memory."""
        labels = {message.speaker for message in self.talk.messages}
        return numbers.said_numbers((*labels, *self.context, *self.memory))

    @cached_property
    def all_numbers(self) -> frozenset[float]:
        """Return all numbers in messages and context."""
        return self.other_numbers.union(*self.talk.numbers_of_segments)

    @cached_property
    def long_digits(self) -> str:
        """Return the digits of each line without separators: phone and account numbers."""
        return "\n".join(re.sub(r"\D", "", line) for line in self.lines.splitlines())

    @cached_property
    def other_dates(self) -> tuple[dates.Said, ...]:
        """Return the dates in context and memory."""
        texts = (*self.context, *self.memory)
        return tuple(date for text in texts for date in dates.find_dates(text, is_lenient=True))

    @cached_property
    def template_runs(self) -> frozenset[str]:
        """Return the three-word runs that occur only in the prompt's own text."""
        shown = runs_of_three("\n".join(self.everything))
        return _runs_of_template(self.template) - shown


def runs_of_three(text: str) -> frozenset[str]:
    """Return all three-word runs of a text, with every number as 0."""
    flat = re.sub(r"\d+", "0", words.normal(text)).split()
    return frozenset(" ".join(flat[at : at + 3]) for at in range(len(flat) - 2))


#: Templates differ little between formations, and are longer than most conversations.
_runs_of_template = lru_cache(maxsize=16)(runs_of_three)


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """An item that a model proposed.

    Attributes:
        content: The text, on one line.
        kind: A fact cites its sources; a reflection is about the whole range.
        sources: Numbers of the cited messages.
        is_shared: Whether more than one person reads the target scope.
        takes_orders: Whether the scope (a shard) has the rule about orders switched off.
        said: The model's wording, if the speaker's name has replaced its first person.
    """

    content: str
    kind: Literal["fact", "reflection"] = "fact"
    sources: tuple[int, ...] = ()
    is_shared: bool = False
    takes_orders: bool = False
    said: str = ""


class Violation(msgspec.Struct, frozen=True):
    """A rule that an item breaks, and a reason that a model and a person understand."""

    rule: str
    reason: str


class Judgment(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome for a candidate.

    Attributes:
        content: The text to keep, with automatic corrections ("the user" becomes the name).
        sources: The messages that support it, corrected where the citation was wrong.
        violations: The broken rules; the item may be kept only without any.
        is_weak: Whether the item may be kept although parts of it could not be confirmed.
    """

    content: str
    sources: tuple[int, ...] = ()
    violations: tuple[Violation, ...] = ()
    is_weak: bool = False
