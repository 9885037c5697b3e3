"""Doubts about the meaning of an item: what its quote and sources do not show.

A doubt never refuses an item. It asks for verification, and what is still in doubt is marked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta

from edenmem.acceptance.evidence import Candidate, Evidence, Finding, SourceMessage
from edenmem.acceptance.texts import (
    find_numbers,
    fold,
    is_unspaced,
    lower,
    named_words,
    numbers_in,
    numbers_spelled,
    pattern,
    stem_of,
    without_quotes,
    word_set,
    words_of,
)
from edenmem.text import word_count

#: How many messages before and after a cited one support names and numbers.
NEIGHBORS = 2
# These are for texts in `lower` case.
_RELATIVE = pattern("doubts.relative", re.NOFLAG)
_DENIAL = pattern("doubts.denial", re.NOFLAG)
#: Denials that a statement rarely leaves out, unlike "no spiders" or "rather than".
_STRONG_DENIAL = pattern("doubts.strong_denial", re.NOFLAG)
_HEDGE = pattern("doubts.hedge", re.NOFLAG)


#: The boundaries of sentences.
_SENTENCE = re.compile(r"(?<=[.!?…؟।])\s|(?<=[。！？])|\n")
#: Length in characters of a message that may answer or ask in a few words.
_SHORT = 60


def find_doubts(candidate: Candidate, evidence: Evidence) -> list[Finding]:
    """Return what code cannot confirm of an item with corrected sources; none: the whole range."""
    content, quote, talk = candidate.content, candidate.quote, evidence.talk
    cited = near = talk.messages
    if candidate.sources:
        cited, near = talk.around(candidate.sources, 0), talk.around(candidate.sources, NEIGHBORS)
    written = lower(without_quotes(content))
    words, limit = word_count(content), candidate.word_limit
    name = _first_unsaid_name(content, evidence.folded)
    hedge = _HEDGE.search(lower(quote))
    is_lost = hedge is not None and not _HEDGE.search(lower(content))
    relative = _RELATIVE.search(written)
    reasons = {
        "names": f"'{name}' is not in the messages" if name else None,
        "numbers": _unsaid_numbers(content, cited, near, evidence),
        "denial": _other_denial(written, quote, cited, near),
        "hedge": f"leaves out '{hedge.group()}' of the quote" if hedge and is_lost else None,
        "relative_date": f"says '{relative.group()}'; give the date instead" if relative else None,
        "length": f"has {words} words; {limit} were asked for" if 0 < limit < words else None,
    }
    return [Finding(rule, reason) for rule, reason in reasons.items() if reason]


def additions(
    content: str,
    texts: Iterable[str],
    evidence: Evidence,
    messages: Iterable[SourceMessage] = (),
) -> str | None:
    """Return what a corrected or merged text adds to its sources; None if it adds nothing.

    A correction may not bring a name, a number or a denial that its sources do not have. Days that
    "tomorrow" and the like may mean in ``messages`` are no addition.
    """
    source = Source("\n".join(texts), (each.sent_at for each in messages))
    source.folded += f"{fold(evidence.background)} "
    if invented := source.find_invention(content):
        return invented
    if _DENIAL.search(lower(content)) and not _DENIAL.search(lower(source.text)):
        return "adds a denial"
    return None


class Source:
    """The names and numbers of a text, and the days that "tomorrow" may mean at some times."""

    def __init__(self, text: str, times: Iterable[datetime] = ()) -> None:
        self.text = text
        self.folded = f" {fold(text)} "
        self.numbers = numbers_spelled(text).union(numbers_in(text))
        self.days = _possible_days(times)

    def find_invention(self, content: str) -> str | None:
        """Return which name or number a text adds; None if it adds none."""
        if name := _first_unsaid_name(content, self.folded):
            return f"adds the name '{name}'"
        # A day is named by its year or month; months in other languages are unknown.
        has_date = not content.isascii() or _YEAR.search(content)
        is_date = has_date or any(map(_is_calendar, words_of(content)))
        said = frozenset(self.numbers | (self.days if is_date else frozenset()))
        for forms in find_numbers(content):
            if not _is_said(forms, said):
                return f"adds the number '{forms[0]}'"
        return None


_YEAR = re.compile(r"(?<!\d)(?:19|20)\d\d(?!\d)")


def _first_unsaid_name(content: str, source: str) -> str | None:
    """Return the first word written like a name that the folded source does not have.

    German writes all nouns with a capital letter; there only words in other capitals count. A word
    after a number is a month or a unit.
    """
    unsaid = []
    for word in named_words(content):
        parts = [part for part in word.folded.split() if len(part) > 1]
        is_said = any(_is_calendar(part) or f" {stem_of(part)}" in source for part in parts)
        if parts and not (word.is_first or word.follows_number or is_said):
            unsaid.append((word.written, parts))
    if not unsaid:
        return None
    is_german = _capitalizes_nouns(words_of(content)) or _capitalizes_nouns(source[:2000].split())
    solid = source.replace(" ", "") if is_unspaced(source) else ""
    for written, parts in unsaid:
        if not (is_german and written[1:].islower()) and not any(part in solid for part in parts):
            return written
    return None


#: Months and weekdays of English, German and the Romance languages, folded.
_CALENDAR = re.compile(
    r"jan(?:uary?|uar|vier|eiro)?|ene(?:ro)?|genn(?:aio)?|feb(?:ruary?|ruar|rero|braio)?"
    r"|fev(?:rier|ereiro)?|mar(?:ch|s|z|zo)?|marz|apr(?:il|ile)?|avr(?:il)?|abr(?:il)?"
    r"|may|mai|mayo|maggio|maio|jun[ei]?|juni|juin|junio|giugno|junho|jul[iy]?|juli|juillet|julio"
    r"|luglio|julho|aug(?:ust)?|aout|ago(?:sto)?|sept?(?:ember|embre|tembre|tiembre)?|set(?:tembre"
    r"|embro)?|o[ck]t(?:ober|obre|ubre)?|ott(?:obre)?|out(?:ubro)?|nov(?:ember|embre|iembre|embro)?"
    r"|de[cz](?:ember|embre|embro)?|dic(?:iembre|embre)?|(?:mon|tues|wednes|thurs|fri|satur|sun)days?"
    r"|montags?|dienstags?|mittwochs?|donnerstags?|freitags?|samstags?|sonntags?|utc|am|pm"
)


def _is_calendar(word: str) -> bool:
    return bool(_CALENDAR.fullmatch(word))


_GERMAN = word_set("doubts.german")


def _capitalizes_nouns(words: list[str]) -> bool:
    """Return whether words are German, which writes all nouns with a capital letter."""
    return len(_GERMAN.intersection(words)) >= 2


def _unsaid_numbers(
    content: str,
    cited: Sequence[SourceMessage],
    near: Sequence[SourceMessage],
    evidence: Evidence,
) -> str | None:
    stated = find_numbers(content)
    own = frozenset().union(*(each.numbers for each in cited)) if stated else None
    if not own:
        return None  # without digits, or said in words, which no table knows in every language
    said = own.union(*(each.numbers for each in near), evidence.background_numbers)
    unsaid = [forms for forms in stated if len(forms[0]) > 1 and not _is_said(forms, said)]
    if unsaid:
        said |= _possible_days(each.sent_at for each in cited)
    for forms in unsaid:
        if not _is_said(forms, said):
            return f"the number '{forms[0]}' is not in the cited messages"
    return None


def _is_said(forms: tuple[str, ...], said: frozenset[str]) -> bool:
    """Return whether a number, or each of its parts, was said; a time also on a 12-hour clock."""
    parts = [part for part in forms[1:] if part != "0"]
    return forms[0] in said or (
        bool(parts)
        and all(part in said or (part.isdigit() and _twelve(part) in said) for part in parts)
    )


def _twelve(hour: str) -> str:
    return str(int(hour) - 12) if 12 < int(hour[:3]) < 24 else hour


#: A small calendar: the days that "tomorrow", "on Friday" or "last week" can mean.
_DAYS_BEFORE, _DAYS_AFTER = 8, 15


def _possible_days(times: Iterable[datetime]) -> frozenset[str]:
    days = {
        time.date() + timedelta(days=step)
        for time in times
        for step in range(-_DAYS_BEFORE, _DAYS_AFTER + 1)
    }
    return frozenset(str(part) for day in days for part in (day.day, day.month, day.year))


def _other_denial(
    written: str, quote: str, cited: Sequence[SourceMessage], near: Sequence[SourceMessage]
) -> str | None:
    if _STRONG_DENIAL.search(written):
        if any(_DENIAL.search(lower(text)) for text in _passages(quote, cited, near)):
            return None
        return "denies something that its sources do not deny"
    if _STRONG_DENIAL.search(lower(quote)) and not _DENIAL.search(written):
        return "leaves out a denial of the quote"
    return None


def _passages(
    quote: str, cited: Sequence[SourceMessage], near: Sequence[SourceMessage]
) -> Iterator[str]:
    """Yield the quote, the sentences around it, and short messages next to the cited ones."""
    if not quote:
        yield from (each.text for each in near)
        return
    yield quote
    parts = [folded for part in quote.split("…") if (folded := fold(part))]
    for each in cited:
        for sentence in _SENTENCE.split(each.text):
            if any(part in fold(sentence) or fold(sentence) in part for part in parts):
                yield sentence
    yield from (each.text for each in near if each not in cited and len(each.text) <= _SHORT)
