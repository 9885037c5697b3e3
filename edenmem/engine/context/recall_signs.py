"""Signs that a message needs memories, read from its words alone: no model is asked.

English rules. They err towards a search, which costs milliseconds; a missed one costs an answer.
"""

from __future__ import annotations

import re

_PHRASES = re.compile(
    r"""\b(?:
        (?:do|did|can|could|don't|didn't)\ (?:you|we|i)\ (?:still\ )?(?:remember|recall|mention)
      | (?:remember|recall)\ (?:when|what|who|where|how|why|which|whether|if|the\ (?:time|day))
      | remind\ me
      | what\ (?:did|had|have)\ (?:i|we|you|he|she|they)\ (?:sa(?:y|id)|tell|told|decided?|agreed?)
      | what\ (?:was|were)\ (?:that|those|it)
      | (?:you|i|we|he|she|they)\ (?:told|mentioned|discussed|talked\ about|agreed|decided)
      | (?:as|like)\ (?:i|we|you)\ said
      | last\ time
      | (?:in|from|search)\ (?:your|my|the)\ memor(?:y|ies)
    )\b""",
    re.X | re.I,
)
_QUESTION_WORD = re.compile(r"how|what|when|where|which|who|whom|whose|why", re.I)
_PAST = re.compile(
    r"ago|earlier|mentioned|previously|said|told|yesterday|(?:did|had|was|were)(?:n't)?", re.I
)
_CALENDAR = re.compile(
    r"""(?:mon|tues|wednes|thurs|fri|satur|sun)day
      | january|february|march|april|may|june|july|august
      | (?:septem|octo|novem|decem)ber""",
    re.X | re.I,
)
_FIRST_PERSON = re.compile(r"i(?:'\w+)?", re.I)

# Each run of marks is looked at once, from its start: a message of dots alone stays linear.
_SENTENCE_END = re.compile(r"(?<![.!?…。！？\n])[.!?…。！？\n]++(?:[\s\"'”’)\]]++|\Z)")
_WORD = re.compile(r"[^\W_]+(?:['-][^\W_]+)*")
_MARKUP = re.compile(r"&\w+;|<[^<>]*>")

#: So many names that the context does not have are a sign; one may be a typing error.
UNKNOWN_NAMES = 2


def sign(message: str, known: str) -> str | None:
    """Why ``message`` seems to need memories that ``known`` does not hold, or None.

    The signs: a phrase that asks to remember; a question word and a word of the past in one
    sentence; two or more capitalised names that are not in ``known`` (a context's XML). Words are
    whole words, so that "somehow" is no "how", and the first one of a sentence is no name.
    """
    text = message.replace("’", "'")
    phrase = _PHRASES.search(" ".join(text.split()))
    if phrase:
        return f'it says "{phrase[0].lower()}"'
    sentences = _SENTENCE_END.split(text)
    for sentence in sentences:
        words = [_bare(word) for word in _WORD.findall(sentence)]
        asks = next(filter(_QUESTION_WORD.fullmatch, words), None)
        past = next(filter(_PAST.fullmatch, words), None)
        if asks and past:
            return f'it asks about the past ("{asks.lower()}", "{past.lower()}")'
    names = _without_known(_names(sentences), known)
    if len(names) >= UNKNOWN_NAMES:
        return "it names what the context does not have: " + ", ".join(names[:4])
    return None


def _names(sentences: list[str]) -> list[str]:
    """Capitalised words that do not begin a sentence, each once."""
    names: dict[str, str] = {}
    for sentence in sentences:
        if sentence.isupper():
            continue  # somebody shouts; that is no list of names
        for name in map(_bare, _WORD.findall(sentence)[1:]):
            if name[0].isupper() and not (
                _CALENDAR.fullmatch(name) or _FIRST_PERSON.fullmatch(name)
            ):
                names.setdefault(name.casefold(), name)
    return list(names.values())


def _without_known(names: list[str], known: str) -> list[str]:
    if len(names) < UNKNOWN_NAMES:
        return []
    text = _MARKUP.sub(" ", known.replace("’", "'"))
    seen = {_bare(word).casefold() for word in _WORD.findall(text)}
    return [name for name in names if name.casefold() not in seen]


def _bare(word: str) -> str:
    return word.removesuffix("'s")
