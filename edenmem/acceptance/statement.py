"""Check that a text is a statement that can be understood alone."""

from __future__ import annotations

import re
from collections.abc import Collection

from edenmem.acceptance.reading.words import fold, normal, runs_of, without_quotes, words_of
from edenmem.acceptance.tables import language_pattern, pattern

_I = re.IGNORECASE

_FENCE = re.compile(r"<<<[\w ]+ [0-9a-f]{8,}>>>")
#: The marks of a transcript: "[3] 14:05 anna: …".
_TRANSCRIPT = re.compile(
    r"\[\d{1,4}\]\s|\[?\d{4}-\d\d-\d\d \d\d:\d\d( UTC)?\]? \S+:|\d\d:\d\d [^:\s]{1,30}: "
)

#: "J'aime": no other language is written like this.
_ELIDED = re.compile(r"(?<![\w'’-])j['’](?=[aeiouyhàâéèêëîïô])", _I)


_QUESTION = re.compile(r"[?？؟]\s*[)\]]*\s*\Z|\A¿|(?:か|かな|吗|呢|嗎)[。？?]?\Z")


_USER = ("statement.user", "statement.user_unspaced")


def name_the_user(text: str, user: str) -> str:
    """Return ``text`` with "the user" replaced by their name."""
    is_thing = pattern("statement.user_thing").match
    for name in _USER:
        text = pattern(name).sub(
            lambda match: match.group() if is_thing(match.string, match.end()) else user, text
        )
    return text


def has_the_user(text: str) -> bool:
    """Return whether a text calls a person "the user"."""
    bare = without_quotes(text)
    return any(
        not pattern("statement.user_thing").match(bare, match.end())
        for name in _USER
        for match in pattern(name).finditer(bare)
    )


def find_junk(text: str) -> str | None:
    """Return why a text is a phrase of a conversation or a tool; None if it is a statement."""
    words = normal(text)
    if not words:
        return "has no words"
    if len(words) < 120 and (
        pattern("statement.greeting").match(words) or pattern("statement.greeted").fullmatch(text)
    ):
        return "is a greeting, not a fact"
    if pattern("statement.agent_talk").match(text) or pattern("statement.stock").search(
        without_quotes(text)
    ):
        return "is a stock phrase of an agent"
    if pattern("statement.tool_talk").match(text):
        return "is routine output of a tool"
    if _FENCE.search(text):
        return "contains the marks that fence data in the prompt"
    if _TRANSCRIPT.match(text):
        return "is a line copied from the transcript; state what it says"
    if label := pattern("statement.label").match(text):
        return f"begins with the label '{label.group().strip()}'; give the statement alone"
    return None


def find_fault(text: str, language: str, speakers: Collection[str] = ()) -> str | None:
    """Return why a text is not a statement with a subject; None if it is.

    ``speakers`` are the folded words of speakers' names, which may begin with a small letter.
    """
    bare = without_quotes(text)
    if _QUESTION.search(bare.strip()) or pattern("statement.question_start").match(bare):
        return "is a question; state what was answered, or leave it out"
    for pronouns in (language_pattern("statement.pronouns", language), _ELIDED):
        found = pronouns.finditer(bare)
        if match := next((each for each in found if not _is_proper(bare, each, speakers)), None):
            return f"says '{match.group().strip()}'; name the person or thing instead"
    stripped = bare.lstrip(" -•*")
    third = language_pattern("statement.third", language)
    if match := third.match(stripped) or pattern("statement.third.default").match(stripped):
        return f"begins with '{match.group()}'; name the person or thing instead"
    words = words_of(stripped)
    is_named = bool(words) and words[0].folded in speakers
    lost = language_pattern("statement.lost_subjects", language)
    starts = language_pattern("statement.fragment_starts", language)
    if not is_named and (match := lost.match(_lower_first(stripped))):
        return f"begins with '{match.group()}' and has no subject; say who or what"
    if not is_named and (match := starts.match(stripped)) and not _is_subordinate(stripped):
        return f"begins with '{match.group()}', as part of a sentence; write a whole statement"
    return _find_fragment(text, bare, language, speakers)


#: The text before the first word of a sentence.
_BEGINS = re.compile(r"(?:\A|[.!?…:;]\s+)\Z")
_NUMERAL = re.compile(r"(?<=\s)[A-Z][a-z]+ \Z")


def _is_subordinate(text: str) -> bool:
    """Return whether a main clause follows the clause that opens a sentence: "Because …, …"."""
    head, comma, main = text.partition(", ")
    return bool(comma) and head.count(" ") >= 2 and main.count(" ") >= 2


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]


def _is_proper(text: str, match: re.Match[str], speakers: Collection[str]) -> bool:
    """Return whether an apparent pronoun is part of a name: "US", "Mi", "We Work Remotely"."""
    written = match.group()
    if (len(written.rstrip("'’")) > 1 and written.isupper()) or fold(written) in speakers:
        return True
    if written == "I" and _NUMERAL.search(text[: match.start()]):
        return True  # Elizabeth I
    following = re.match(r"\s[A-ZÀ-Þ]", text[match.end() :])
    return (
        written[0].isupper()
        and written not in ("I", "I'm", "I've", "I'd", "I'll")
        and (not _BEGINS.search(text[: match.start()]) or bool(following))
    )


_ADDRESSED = re.compile(r"[^\W\d_]+, [^\W\d_]+[.!]?\Z")
_CALLED = re.compile(r"(?:an?|the) \w+ (?:called|named) \w+\.?\Z", _I)


#: A plural subject, whose verb has no ending.
_SEVERAL = re.compile(r"[A-Z][\w'’-]+(?: [A-Z][\w'’-]+)? and [A-Z][\w'’-]+(?: [A-Z][\w'’-]+)? \w+")


def _find_fragment(text: str, bare: str, language: str, speakers: Collection[str]) -> str | None:
    runs = sum(map(len, runs_of(text)))
    words = words_of(text)
    if pattern("statement.reply").match(text) and len(words) + runs / 2 <= 5:
        return "is a reply, not a statement; state what it means"
    if runs >= 5:
        return None
    if runs:
        return "is too short to be a statement" if len(words) + runs < 5 else None
    if text.rstrip().endswith((":", "：", ",", ";")):
        return "ends abruptly; write a whole statement"
    if len(words) < 2:
        return "is a single word; write a whole statement"
    first = words[0].written
    if (
        len(words) <= 4
        and first[0].islower()
        and first == first.lower()
        and words[0].folded not in speakers
    ):
        return "is a sentence fragment; write a whole statement"
    if len(words) <= 4 and (
        pattern("statement.opener").match(text) or _ADDRESSED.match(text) or _CALLED.match(text)
    ):
        return "is a sentence fragment; write a whole statement"
    plain = [word.written for word in words if not word.written[0].isdigit()]
    if (
        language != "de"
        and plain
        and len(plain) == len(words)
        and all(word[0].isupper() for word in plain)
        and len(plain) <= 4
    ):
        return "is a bare name; state a fact about it"
    has_verb = pattern("statement.has_verb").search(bare.partition(" ")[2]) or _SEVERAL.match(bare)
    if language == "en" and not has_verb and len(words) <= (8 if first.endswith("s") else 12):
        return "has no verb; write a whole statement"
    return None
