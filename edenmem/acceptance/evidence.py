"""What an item is judged by, and the outcome."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from functools import cached_property
from typing import Literal

import msgspec

from edenmem.acceptance.secrets import named_values
from edenmem.acceptance.texts import (
    contains,
    fold,
    named_words,
    numbers_in,
    runs_of_three,
    stem_of,
    unmark,
    words_of,
)

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
        account: The sending account of a person; None of others.
    """

    number: int
    id: str
    author: Author
    speaker: str
    sent_at: datetime
    text: str
    account: str | None = None

    @cached_property
    def unmarked(self) -> str:
        """Return the words of the text without accents."""
        return unmark(self.text)

    @cached_property
    def folded(self) -> str:
        """Return the text in the form in which quotes are compared."""
        return self.unmarked.casefold()

    @cached_property
    def numbers(self) -> frozenset[str]:
        """Return the numbers in the text."""
        return frozenset(numbers_in(self.text))


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
    def unmarked(self) -> str:
        """Return the words of all messages and of the writers' names without accents."""
        return " ".join((*(each.unmarked for each in self.messages), *map(unmark, self.speakers)))

    @cached_property
    def folded(self) -> str:
        """Return the same in lower case."""
        return self.unmarked.casefold()

    @cached_property
    def capitals(self) -> frozenset[str]:
        """Return the folded words that have a capital letter anywhere, and their stems."""
        return _capitals(self.unmarked)

    @cached_property
    def inner_names(self) -> frozenset[str]:
        """Return the folded words that have a capital letter inside a sentence."""
        words = (word for each in self.messages for word in named_words(each.text))
        return frozenset(word.folded for word in words if not word.is_first)

    @cached_property
    def secrets(self) -> frozenset[str]:
        """Return the values that messages call a password, a code or the like."""
        return frozenset(named_values("\n".join(each.text for each in self.messages)))

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

    def around(self, numbers: Iterable[int], distance: int) -> tuple[SourceMessage, ...]:
        """Return the messages with these numbers and their neighbors up to ``distance`` away."""
        wanted = {number + step for number in numbers for step in range(-distance, distance + 1)}
        return tuple(message for message in self.messages if message.number in wanted)


class Evidence(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Everything that a model was shown, by origin.

    Attributes:
        talk: The messages that were read.
        context: Texts that support names and numbers only: the session's title, the agent's
            persona, the instructions of scopes, names of people and agents.
        memory: Existing memory, if the model was shown it (reflections).
        template: The prompt's own text with its examples, without any of the above.
        agents: The names of the agents that the conversation has.
        users: The names of the session's users, for the rule about the agent's scope.
    """

    talk: Conversation = Conversation()
    context: tuple[str, ...] = ()
    memory: tuple[str, ...] = ()
    template: str = ""
    agents: tuple[str, ...] = ()
    users: tuple[str, ...] = ()

    @cached_property
    def background(self) -> str:
        """Return the texts outside the conversation, as one."""
        return "\n".join((*self.context, *self.memory, *self.users, *self.agents))

    @cached_property
    def names(self) -> frozenset[str]:
        """Return the folded words of people's and agents' names: "Will", "Han", "Ben"."""
        people = (*self.users, *self.talk.speakers, *self.agents)
        return frozenset(word for name in people for word in words_of(name))

    @cached_property
    def folded(self) -> str:
        """Return the folded words of all texts and of the writers' names, each after a space."""
        return f" {self.talk.folded} {fold(self.background)} "

    @cached_property
    def capitals(self) -> frozenset[str]:
        """Return the folded words that have a capital letter anywhere, and their stems."""
        return self.talk.capitals | _capitals(unmark(self.background))

    @cached_property
    def background_numbers(self) -> frozenset[str]:
        """Return the numbers in the background."""
        return frozenset(numbers_in(self.background))

    @cached_property
    def template_runs(self) -> frozenset[str]:
        """Return the three-word runs of the lines of the prompt's own text."""
        return frozenset().union(*map(runs_of_three, self.template.splitlines()))

    @cached_property
    def said_runs(self) -> frozenset[str]:
        """Return the three-word runs of the messages and the background."""
        texts = (*(each.text for each in self.talk.messages), self.background)
        return frozenset().union(*map(runs_of_three, texts))


def _capitals(unmarked: str) -> frozenset[str]:
    words = {each.casefold() for each in unmarked.split() if each[0].isupper()}
    return frozenset(words.union(stem_of(word) for word in words if len(word) > 3))


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """An item that a model proposed.

    Attributes:
        content: The text, on one line.
        kind: A fact needs a quote; a reflection cites messages and needs none.
        sources: Numbers of the cited messages.
        quote: A verbatim passage of one of them.
        scope: The kind of scope that would keep it.
        takes_orders: Whether the scope (a shard) accepts orders to the agent.
        word_limit: The length asked for; 0 without one.
    """

    content: str
    kind: Literal["fact", "reflection"] = "fact"
    sources: tuple[int, ...] = ()
    quote: str = ""
    scope: str = "user"
    takes_orders: bool = False
    word_limit: int = 0


class Finding(msgspec.Struct, frozen=True):
    """A broken rule or a doubt, with a reason that a model and a person understand."""

    rule: str
    reason: str


class Judgment(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome for a candidate.

    Attributes:
        content: The text to keep: "the user" is replaced by the name where one person speaks.
        sources: The messages that support it, corrected where the quote is in another one.
        quote: The passage that the model gave for it.
        violations: The broken rules; an item with one is refused.
        doubts: What code could not confirm; the item is verified, and marked if a doubt remains.
        note: What the verification did.
        failure: The message of the error that prevented a verification.
    """

    content: str
    sources: tuple[int, ...] = ()
    quote: str = ""
    violations: tuple[Finding, ...] = ()
    doubts: tuple[Finding, ...] = ()
    note: str = ""
    failure: str = ""

    @property
    def unconfirmed(self) -> str:
        """Return the remaining doubts as one text; empty without any."""
        return "; ".join(each.reason for each in self.doubts)
