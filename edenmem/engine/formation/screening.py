"""What a model answered, made fit to be kept, or refused with a reason.

The checks are conservative: they refuse what is junk or an order to the memory system in so many
words, and leave judgement to the prompts and to people. Their patterns are English, as the stock
phrases of agents and tools are.
"""

from __future__ import annotations

import re

from edenmem.text import clean, truncate_words

#: A statement of thirty words is shorter in any language; one "word" without end is not kept.
MOST_CHARACTERS = 1000

_WORD = re.compile(r"\w+")
_I = re.IGNORECASE

_GREETING = re.compile(
    r"((hi|hey|hello|hallo|hola|bonjour|ciao|good|morning|afternoon|evening|night|day|bye|goodbye"
    r"|thanks|thank|you|very|much|so|ok|okay|sure|welcome|cheers|yes|no|please|there|all|everyone"
    r"|nice|great|cool)( |\Z)){1,6}\Z"
    r"|(hi|hey|hello|hallo|hola|thanks|welcome|bye|goodbye|good (morning|evening|night))"
    r"( \w+){1,2}\Z"
)
_GREETED = re.compile(
    r"(\S+ ){1,4}(greeted|thanked|(said|says) (hi|hey|hello|thanks|thank you|goodbye|bye|good \w+))"
    r"( (to )?\S+){0,3}[.!]?",
    _I,
)
_AGENT_TALK = re.compile(
    r"(i am|i'm|as) an? (ai|artificial|language model|virtual assistant|helpful assistant)\b"
    r"|.*\b(let me know if|how (can|may) i (help|assist)|feel free to ask|happy to help)\b",
    _I,
)
_TOOL_TALK = re.compile(
    r"[{\[<].*[}\]>]\Z"
    r"|(the )?(tool|task|command|function|request|operation)( call)? "
    r"(was |has |is )?(been )?(run |executed |completed |finished |returned |succeeded )"
    r"?(successful(ly)?|completed|finished|failed|succeeded|returned( an?)? (error|result)s?)\b"
    r"[^\w]*\Z"
    r"|(http )?(status|error)( code)?[:= ]+\w+\W*\Z|traceback \(most recent call last\)",
    _I | re.DOTALL,
)
_FENCE = re.compile(r"<<<[\w ]+ [0-9a-f]{8,}>>>")
_ORDER_TO_MEMORY = re.compile(
    r"(please )?(delete|remove|forget|erase|overwrite|drop|wipe) "
    r"(all |the |any |every |existing |stored |previous |other )*"
    r"(fact|memory|memories|reflection)s?\b"
    r"|.*\b(ignore|disregard|override|forget) (all |any |the |your |of )*"
    r"(previous|prior|above|earlier|system|other) (\w+ )?(instruction|rule|prompt|message|memor)"
    r"|(please )?(remember|note|memori[sz]e) (that )?you (must|should|shall|have to|will|are) ",
    _I | re.DOTALL,
)
#: A capital after "always" or "never" is a title or a name, not an order.
_ORDER = re.compile(
    r"(please |from now on,? )*"
    r"((always|never) (?-i:[a-z])|(you (must|should|shall|have to)|from now on)\b)",
    _I,
)


def flat(text: str) -> str:
    """``text`` on one line, without what no store can hold."""
    return " ".join(clean(text).split())


def tidy(text: str, words: int) -> str:
    """`flat` text, cut with "…" to ``words`` and to `MOST_CHARACTERS`."""
    line = flat(text)
    if len(line) > MOST_CHARACTERS:
        line = line[: MOST_CHARACTERS - 1].rstrip() + "…"
    return truncate_words(line, words)


def normal(text: str) -> str:
    """``text`` as it is compared: its words alone, in lower case."""
    return " ".join(_WORD.findall(text.casefold()))


def rejection_reason(
    text: str, *, orders: bool, prompt: str = "", conversation: str = ""
) -> str | None:
    """Why a tidy ``text`` must not be remembered; None if it may be.

    Args:
        text: The statement.
        orders: Whether something put as an order to the agent ("always …") is let through: a
            person's wish may read so in that person's own memory, but not in everybody's.
        prompt: `normal` text of the prompt without the conversation.
        conversation: `normal` text of the conversation.
    """
    words = normal(text).split()
    if not words:
        return "empty" if not text else "no words in it"
    if _GREETING.match(" ".join(words)) or _GREETED.fullmatch(text):
        return "a greeting"
    if _AGENT_TALK.match(text):
        return "a stock phrase of an agent"
    if _TOOL_TALK.match(text):
        return "what a tool prints as a matter of course"
    if _FENCE.search(text):
        return "the marks that fence data in the prompt"
    if _ORDER_TO_MEMORY.match(text):
        return "an order to the memory system"
    if not orders and _ORDER.match(text):
        return "an order to the agent"
    if len(words) >= 3 and _holds(prompt, words) and not _holds(conversation, words):
        return "taken from the prompt"
    return None


def _holds(text: str, words: list[str]) -> bool:
    return f" {' '.join(words)} " in f" {text} "
