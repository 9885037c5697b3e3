"""Prompts and headers of chat front ends, as data.

The prompts are those of Open WebUI 0.6 to 0.10 (``backend/open_webui/config.py``), LibreChat 0.8
(``danny-avila/agents``, ``src/utils/title.ts``) and LobeChat 1 (``packages/prompts/src/chains``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from starlette.datastructures import Headers

from edenmem.engine.chats.messages import Said

#: Headers with the user and the session, by front end. Open WebUI sends them with
#: ENABLE_FORWARD_USER_INFO_HEADERS, LibreChat if its configuration lists them.
USER_HEADERS: Mapping[str, str] = {
    "openwebui": "x-openwebui-user-id",
    "librechat": "x-librechat-user-id",
}
SESSION_HEADERS: Mapping[str, str] = {
    "openwebui": "x-openwebui-chat-id",
    "librechat": "x-librechat-conversation-id",
}

#: Patterns of prompts for titles, tags, follow-ups and summaries: a beginning, then parts that
#: follow in order, divided by ``*``. They match the only message of a request, or its instructions.
UTILITY_PROMPTS = (
    # Open WebUI; its prompts for documents begin the same way, but have no history
    "### Task:*<chat_history>",
    "Your task is to reflect the speaker's likely facial expression",
    "You have been provided with a set of responses from various models",
    # LibreChat
    "Provide a concise, 5-word-or-less title for the conversation*Conversation:",
    "Analyze this conversation and provide:*title",
    "Please generate a concise title (max 40 characters) for a conversation that starts with",
    "Summarize the conversation by integrating new lines into the current summary",
    # LobeChat
    "You are a professional conversation summarizer",
    "You're an assistant who's good at extracting key takeaways from conversations",
    # a whole transcript in one message
    "<chat_history>",
    "user:*\nassistant:",
    "user:*\nai:",
    "human:*\nassistant:",
    "human:*\nai:",
)


def is_utility(said: Sequence[Said], instructions: str, more: Sequence[str]) -> bool:
    """Return whether a request is a front end's own, and not a turn of a conversation.

    Args:
        said: The messages without instructions.
        instructions: The first instructions.
        more: Further patterns, see `UTILITY_PROMPTS`.
    """
    if len(said) != 1:
        return False
    texts = [text.casefold().lstrip() for text in (said[0].content, instructions)]
    parts = (pattern.casefold().split("*") for pattern in (*UTILITY_PROMPTS, *more))
    patterns = [re.compile(".*?".join(map(re.escape, each)), re.DOTALL) for each in parts]
    return any(pattern.match(text) for pattern in patterns for text in texts)


def named_in(headers: Headers, settings: Sequence[str], presets: Mapping[str, str]) -> str:
    """Return the first value among the headers of a setting, or ""."""
    values: Iterator[str] = (headers.get(presets.get(each, each), "").strip() for each in settings)
    return next(filter(None, values), "")
