"""Thresholds: when a conversation is due, and how much memory it may yield.

Pure functions. Lengths are characters as shown to a model.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from edenmem.models.formation import Trigger
from edenmem.models.host import Message
from edenmem.settings.schema import FormationSettings

#: Characters in which a message that says something begins to say it.
_BEGINNING = 500
#: Bounds of the factor on limits, for conversations of any length.
LEAST, MOST = 0.5, 2.0


class Measure(msgspec.Struct, frozen=True):
    """The size of some messages: number of readable ones, and their weighted tokens.

    ``has_statement``: a person says something, unlike "Hello!".
    """

    messages: int
    tokens: float
    has_statement: bool = False


def multiplier(characters: int, settings: FormationSettings) -> float:
    """Return the factor on the usual number of items for a conversation of this length.

    1 at ``base_characters``, plus one with each ``log_base``-fold length, within 0.5 and 2.
    """
    if characters <= 0:
        return LEAST
    grown = math.log(characters / settings.base_characters, settings.log_base) + 1
    return min(max(grown, LEAST), MOST)


def item_limit(base: int, characters: int, settings: FormationSettings) -> int:
    """Return ``base`` items scaled to the conversation's length, rounded, at least one."""
    return max(1, math.floor(base * multiplier(characters, settings) + 0.5))


def is_readable(message: Message) -> bool:
    """Return whether memory is formed from a message: non-empty text of a speaker or tool.

    The platform's own messages (triggers, the roles ``system`` and ``eden``) are not readable.
    """
    if message.trigger or message.role in ("system", "eden"):
        return False
    return bool(message.content.strip() or message.tool_calls)


def measure(messages: Iterable[Message], agent_id: str, settings: FormationSettings) -> Measure:
    """Return the size of the readable messages, as ``agent_id`` reads them.

    People's words weigh most, another agent's as ``other``, this agent's least, and tool calls and
    results as ``tool``. Tool output that is cut is not counted.
    """
    from edenmem.acceptance.form import find_junk  # its patterns are loaded for messages alone

    count, weighted, has_statement = 0, 0.0, False
    for message in messages:
        if not is_readable(message):
            continue
        count += 1
        if not has_statement and message.role == "user":
            has_statement = find_junk(message.content[:_BEGINNING]) is None
        length = len(message.content)
        if message.role == "tool":
            length = min(length, settings.tool_characters)
        weighted += _weight(message, agent_id, settings) * length
        weighted += settings.weight_tool * sum(
            min(len(str(part)), settings.tool_characters)
            for call in message.tool_calls
            for part in (call.args, call.result)
            if part is not None
        )
    return Measure(count, weighted / settings.characters_per_token, has_statement)


def is_due(size: Measure, trigger: Trigger, settings: FormationSettings) -> bool:
    """Return whether messages of this size are due.

    By threshold: enough messages, or enough tokens. At the end of a session and in a cold run:
    ``min_messages`` with a statement of a person, or enough tokens. Manually: any messages.
    """
    if trigger.forced:
        return size.messages > 0
    if size.tokens >= settings.token_interval:
        return True
    if trigger is Trigger.THRESHOLD:
        return size.messages >= max(settings.min_messages, settings.message_interval)
    return size.messages >= settings.min_messages and size.has_statement


def _weight(message: Message, agent_id: str, settings: FormationSettings) -> float:
    if message.role == "user":
        return settings.weight_user
    if message.role == "tool":
        return settings.weight_tool
    own = message.sender in (None, agent_id)
    return settings.weight_agent if own else settings.weight_other
