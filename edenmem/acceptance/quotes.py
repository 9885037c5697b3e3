"""Find the quote of an item in the messages that it cites, or in another one."""

from __future__ import annotations

import re

from edenmem.acceptance.conversation import Conversation, SourceMessage
from edenmem.acceptance.texts import contains, fold

#: What models write where they leave out a part of a quote.
_GAP = re.compile(r"\s*(?:\.\.\.|…|\[…\]|\[\.\.\.\])\s*")


def locate(quote: str, cited: tuple[int, ...], talk: Conversation) -> tuple[int, ...]:
    """Return the numbers of the messages to cite: those cited, and the message with the quote.

    A cited message is preferred to another one. Empty if no offered message has the quote.
    """
    parts = [folded for part in _GAP.split(quote) if (folded := fold(part))]
    if not parts:
        return ()
    known = tuple(number for number in cited if number in talk.by_number)
    if any(_has(talk.by_number[number], parts) for number in known):
        return known
    for message in talk.messages:
        if _has(message, parts):
            return tuple(sorted({*known, message.number}))
    return ()


def _has(message: SourceMessage, parts: list[str]) -> bool:
    return all(contains(message.folded, part) for part in parts)
