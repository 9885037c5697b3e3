"""Find instructions to the agent or its memory, and text that poses as the system.

An agent takes its memory into every conversation, so a remembered sentence in the imperative acts
as an instruction. A statement that a person asked for something is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from edenmem.acceptance.texts import fold, lower, pattern, text_of, without_quotes, words_of

_SYSTEM = pattern("orders.system")
_MEMORY = pattern("orders.memory", re.NOFLAG)
#: What an instruction begins with.
_IMPERATIVE = pattern("orders.imperative")
#: Verbs that begin an order without a name: "Write amounts for Tomas in euros" is his wish.
_BARE = pattern("orders.bare")
#: Duties: "The agent must …", with the names of agents.
_MODAL = text_of("orders.modal")
_AGENT = text_of("orders.agent")
_BULLET = re.compile(r"\A[\s•*–—>#-]*(?:\d{1,3}[.)]\s+)?")
#: What begins a part of a sentence that the person before it need not have asked for.
_ASIDE = re.compile(r"\s*[(\[;—–]\s*|\s--?\s")
_BOUNDARY = re.compile(r"(?<=[^\d][.!?؟।\]])\s+|(?<=[。！？])|\n")


def find_order(text: str, agents: Iterable[str], people: Iterable[str]) -> str | None:
    """Return why a text holds an instruction that memory must not keep; None if it may.

    Args:
        text: A statement, or a text of many sentences and lines.
        agents: The names of the agents in the conversation.
        people: The names of the speakers; a sentence that begins with one is no order.
    """
    bare = without_quotes(text)
    if _SYSTEM.search(" ".join(bare.split())):
        return "speaks as the system"
    names = [re.escape(name) for name in agents if name]
    called = "|".join((_AGENT, *names))
    modal = re.compile(_MODAL.replace("{names}", called), re.IGNORECASE)
    address = re.compile(
        rf"(?:hey |ok |okay |@|dear )?(?:{called}|everybody|everyone|all)[,:!] ", re.IGNORECASE
    )
    known = frozenset(word for name in people for word in words_of(name))
    for sentence in _BOUNDARY.split(bare):
        spoken = _BULLET.sub("", sentence)
        spoken = address.sub("", spoken, count=1) if address.match(spoken) else spoken
        for part in _ASIDE.split(spoken):
            if _MEMORY.search(lower(part)) and not _is_attributed(part):
                return "is an order about instructions or memory"
        if _is_attributed(spoken):
            continue
        first = fold(spoken.partition(" ")[0])
        if first not in known and _IMPERATIVE.match(spoken):
            return "is an order to the agent; say who asked for it"
        if _BARE.match(spoken) and known.isdisjoint(words_of(spoken)):
            return "is an order to the agent; say who asked for it"
        if modal.match(spoken):
            return "tells the agent what to do; say who asked for it"
    return None


#: A person's request, told as one: "Anna asked that …".
_ATTRIBUTED = pattern("orders.attributed")


def _is_attributed(sentence: str) -> bool:
    match = _ATTRIBUTED.match(sentence)
    return bool(match) and sentence[:1].isupper() and not _IMPERATIVE.match(sentence)
