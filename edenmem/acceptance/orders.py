"""Find instructions to the agent or its memory, and text that poses as the system.

An agent takes its memory into every conversation, so a remembered sentence in the imperative acts
as an instruction. Attributed to a named person, it may be kept in that person's own memory.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator
from functools import cache, lru_cache

from edenmem.acceptance.reading.words import fold, stop_words
from edenmem.acceptance.tables import pattern, pattern_text, word_set

_I = re.IGNORECASE


_FIRST = re.compile(r"[^\W_]+")


#: A standing instruction: "Give full answers from now on".
_FROM_NOW = re.compile(r"[^.!?]{1,200} from now on[.!]?\Z", _I)
_PLEASE = re.compile(r",? please[.!]*\Z", _I)


def find_order(
    text: str, agents: Iterable[str], people: Container[str], language: str, *, is_shared: bool
) -> str | None:
    """Return why a text holds an instruction that its scope must not keep; None if it may.

    Args:
        text: The item without quotations: a statement, or a text of many sentences and lines.
        agents: The names of the agents in the conversation.
        people: The folded words of speakers' names; a sentence that begins with one is no order.
        language: The language of the text.
        is_shared: Whether more than one person reads the scope.
    """
    flat = " ".join(text.split())
    if pattern("orders.system_anywhere").search(flat):
        return "speaks as the system"
    if pattern("orders.to_memory_anywhere").search(flat):
        return "is an order about instructions or memory"
    names = tuple(agents)
    for sentence in dict.fromkeys((text, *_sentences(text, flat))):
        if why := _find_in_sentence(sentence, names, people, language, is_shared=is_shared):
            return why
    return None


#: The boundaries of sentences, and the end of a heading in brackets. An ellipsis is no boundary,
#: because it replaces quotations. "30. Mai" is a date; the Italian "mai" also begins orders.
_BOUNDARY = re.compile(r"(?<=[.!?؟।\]])\s+(?!Mai\b)|(?<=[。！？])|\n")
_BULLET = re.compile(r"[\s•*–—>#-]*(?:\d{1,3}[.)]\s+)?")


def _sentences(text: str, flat: str) -> Iterator[str]:
    """Yield the sentences and the lines without bullets, and wrapped sentences as a whole."""
    for piece in (*_BOUNDARY.split(text), *_BOUNDARY.split(flat)):
        if sentence := _BULLET.sub("", piece, count=1):
            yield sentence


def _find_in_sentence(
    text: str, agents: Iterable[str], people: Container[str], language: str, *, is_shared: bool
) -> str | None:
    if pattern("orders.system").match(text):
        return "speaks as the system"
    if pattern("orders.to_memory").match(text):
        return "is an order about instructions or memory"
    spoken = _without_calls(text, agents)
    first = _FIRST.match(spoken)
    is_named = pattern("orders.named").match(spoken) or (
        first is not None and fold(first.group()) in people
    )
    if not is_named and not pattern("orders.title").match(spoken) and _is_order(spoken, language):
        return "is an order to the agent; say who asked for it"
    if (spoken != text or _PLEASE.search(text)) and pattern("orders.verb").match(spoken):
        return "is an order to the agent; say who asked for it"
    if pattern("orders.imperative_unspaced").match(text):
        return "is an order to the agent; say who asked for it"
    if not is_shared:
        return None
    if pattern("orders.rule").match(spoken):
        return "tells the agent what to do; say who asked for it"
    lower = text.lower()
    named = [name for name in agents if name and name.lower() in lower]
    patterns = [_patterns(pattern_text("orders.agent_words")), *map(_patterns, _called(named))]
    match = next(filter(None, (told.match(text) for told, _ in patterns)), None)
    if match and not pattern("orders.remind").match(text, match.end()):
        return "tells the agent what to do; say who asked for it"
    if any(wished.search(text) for _, wished in patterns):
        return "is one person's wish about the agent, in memory that others read"
    return None


def _without_calls(text: str, agents: Iterable[str]) -> str:
    """Return ``text`` without forms of address before an instruction."""
    names = {fold(name) for name in agents}
    at = 0
    while True:
        called, comma, _ = text[at : at + 80].partition(", ")
        if match := pattern("orders.call").match(text, at):
            at = match.end()
        elif comma and fold(called.removeprefix("@")) in names:
            at += len(called) + 2
        else:
            return text[at:]


def _is_order(text: str, language: str) -> bool:
    return bool(
        _imperative().match(text)
        or pattern("orders.verb_first").match(text)
        or _is_verb_first(text, language)
        or _FROM_NOW.match(text)
    )


@cache
def _imperative() -> re.Pattern[str]:
    lead = pattern_text("orders.lead")
    return re.compile(pattern_text("orders.imperative").replace("{lead}", lead))


def _is_verb_first(text: str, language: str) -> bool:
    """Return whether a sentence seems to open with a verb, followed by an object or adverb."""
    if language not in ("en", "de", "fr", "es", "it", "pt"):
        return False
    match = _TWO.match(text)
    if match is None or match[1].endswith(("s", "S", "ing")) or not match[1].isalpha():
        return False
    if fold(match[2]) in ("always", "never") and not pattern("orders.verb").match(match[1] + " "):
        return False  # "Ben always wins": a name and its verb
    if language != "en" and fold(match[2]) == "no":
        return False  # a subject and what it does not do
    return fold(match[2]) in word_set("orders.after_verb") and fold(match[1]) not in (
        stop_words(language) | stop_words("en")
    )


_TWO = re.compile(r"([^\W\d_]+) ([^\W\d_]+)")


def _called(agents: Iterable[str]) -> list[str]:
    """Return one alternation of the agents' names; an empty list without names."""
    names = [re.escape(name) for name in sorted(agents, key=len, reverse=True)]
    return [rf"(?:(?:the|our|this) )?(?:{'|'.join(names)})(?: agent| bot)?"] if names else []


@lru_cache(maxsize=64)
def _patterns(called: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Compile what instructs agents with these names, and what reports such a wish.

    The words for any agent are compiled apart from the names: every conversation has other names,
    and the words take ten times as long to compile.
    """
    told, wished = (
        re.compile(pattern_text(name).replace("{agents}", f"(?:{called})"), _I)
        for name in ("orders.modal", "orders.attributed")
    )
    return told, wished
