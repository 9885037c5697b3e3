"""What an item is judged by, and the outcome."""

from __future__ import annotations

from functools import cached_property
from typing import Literal

import msgspec

from edenmem.acceptance.conversation import Conversation
from edenmem.acceptance.texts import (
    name_stem,
    named_words,
    numbers_in,
    runs_of_three,
    stems_of,
    words_of,
)


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
    def people_stems(self) -> tuple[str, ...]:
        """Return the beginnings of the words of these names, which endings do not change."""
        return tuple(name[: max(3, len(name) - 2)] for name in self.names)

    @cached_property
    def name_stems(self) -> frozenset[str]:
        """Return the stems of names: of people, and of words with a capital inside a sentence."""
        texts = (*(each.text for each in self.talk.messages), self.background)
        named = (each for text in texts for each in named_words(text))
        inner = (each.folded for each in named if not each.is_first)
        return frozenset(map(name_stem, (*self.names, *inner)))

    @cached_property
    def background_stems(self) -> frozenset[str]:
        """Return the stems of the words of the background."""
        return stems_of(words_of(self.background))

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
