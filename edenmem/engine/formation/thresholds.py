"""How much is enough: when a conversation is due, and how much may be taken from it.

Pure functions. Lengths are characters as a model is shown them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from edenmem.models.formation import Trigger
from edenmem.models.host import Message
from edenmem.settings.schema import FormationSettings

#: However long or short a conversation is, its limits are within these multiples.
LEAST, MOST = 0.5, 2.0


class Measure(msgspec.Struct, frozen=True):
    """The size of some messages: how many can be read, and their weighted tokens."""

    messages: int
    tokens: float


def multiplier(characters: int, settings: FormationSettings) -> float:
    """How many times the usual number of items a conversation of this length may give.

    1 at ``base_characters``, one more with each ``log_base``-fold length, never below 0.5 or
    above 2.
    """
    if characters <= 0:
        return LEAST
    grown = math.log(characters / settings.base_characters, settings.log_base) + 1
    return min(max(grown, LEAST), MOST)


def item_limit(base: int, characters: int, settings: FormationSettings) -> int:
    """``base`` items scaled to the conversation's length, rounded, at least one."""
    return max(1, math.floor(base * multiplier(characters, settings) + 0.5))


def is_readable(message: Message) -> bool:
    """Whether memory is made from it: somebody's words or a tool's, and not empty.

    What the platform wrote by itself (triggers, the roles ``system`` and ``eden``) is not.
    """
    if message.trigger or message.role in ("system", "eden"):
        return False
    return bool(message.content.strip() or message.tool_calls)


def most_characters(message: Message, settings: FormationSettings) -> int:
    """How much is shown of the message's own text: of a tool's output less than of words."""
    return settings.tool_characters if message.role == "tool" else settings.message_characters


def measure(messages: Iterable[Message], agent_id: str, settings: FormationSettings) -> Measure:
    """The size of the readable ones among ``messages``, as ``agent_id`` reads them.

    People's words weigh most: what another agent says weighs as ``other``, what this agent says
    least, and what tools were asked and answered as ``tool``. What is too long to be shown is not
    counted.
    """
    count, weighted = 0, 0.0
    for message in messages:
        if not is_readable(message):
            continue
        count += 1
        length = min(len(message.content), most_characters(message, settings))
        weighted += _weight(message, agent_id, settings) * length
        weighted += settings.weight_tool * sum(
            min(len(str(part)), settings.tool_characters)
            for call in message.tool_calls
            for part in (call.args, call.result)
            if part is not None
        )
    return Measure(count, weighted / settings.characters_per_token)


def is_due(size: Measure, trigger: Trigger, settings: FormationSettings) -> bool:
    """Whether messages of this size are to be formed now.

    By threshold: enough messages, or enough tokens. At the end of a session and in a cold run: as
    little as ``min_messages``, or enough tokens. By a person's hand: whatever there is.
    """
    if trigger is Trigger.FORCED:
        return size.messages > 0
    if size.tokens >= settings.token_interval:
        return True
    least = settings.min_messages
    if trigger is Trigger.THRESHOLD:
        least = max(least, settings.message_interval)
    return size.messages >= least


def _weight(message: Message, agent_id: str, settings: FormationSettings) -> float:
    if message.role == "user":
        return settings.weight_user
    if message.role == "tool":
        return settings.weight_tool
    own = message.sender in (None, agent_id)
    return settings.weight_agent if own else settings.weight_other
