"""What an item is checked against: the messages that were read, and what surrounded them."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

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
        is_weak: Whether it may be kept, but few of its words were said (between the two limits).
    """

    content: str
    sources: tuple[int, ...] = ()
    violations: tuple[Violation, ...] = ()
    is_weak: bool = False
