"""Whether the names, numbers and dates of an item were said, or follow from what was said."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import date, timedelta
from itertools import islice

from edenmem.acceptance import dates, numbers, words
from edenmem.acceptance.dates import Said
from edenmem.acceptance.evidence import Evidence
from edenmem.acceptance.item import COUNTED, Doubt, Item
from edenmem.acceptance.sources import is_answer
from edenmem.acceptance.times import Time

#: Numbers of an item that are explained, and of its sources that others are worked out of.
_MOST_NUMBERS = 20
#: The most days between a message and a date without a year: beyond it, the same date of the next
#: or the previous year is nearer.
_NEAR_DAYS = 335

_SENTENCE_START = re.compile(r"(?:\A|[.!?:;…。]\s+|[\"“«„(\[]\s?|^[-•*]\s?)\Z")
_KATAKANA = re.compile("[\u30a1-\u30fa\u30fc]{3,}")
_NAME_PREPOSITION = words.word_set("in nach aus bei von mit namens und fur zu vor")
_VERB_AFTER_NAME = re.compile(
    r"['’]s? |\s(?:is|was|has|had|will|would|can|could|does|did|likes?|loves?|lives?|works?"
    r"|wants?|needs?|prefers?|plans?|moved|said|owns|ist|war|hat|wohnt|lebt|arbeitet|mag|möchte"
    r"|est|habite|travaille|aime|a|veut|es|vive|trabaja|tiene|quiere|è|vive|lavora|ha|vuole|é"
    r"|mora|trabalha|tem|quer|heeft|woont|werkt|wil|живёт|живет|работает|любит|хочет)\b"
)


def check_names(item: Item) -> str | Doubt | None:
    """Every name occurs in what was read or in what surrounded it."""
    if unknown := [name for name in _names_of(item) if not _is_known(item, name)]:
        reason = f"names {_listed(unknown)}, which was not mentioned"
        is_open = all(_ACRONYM.fullmatch(name) or _is_other_script(item, name) for name in unknown)
        return Doubt(reason) if is_open else reason
    if item.candidate.kind == "fact" and (unknown := _new_ideographs(item)):
        reason = f"names {_listed(unknown)}, which was not mentioned"
        is_open = _is_of_tool(item) or _is_other_script(item, unknown[0])
        return Doubt(reason) if is_open else reason
    return None


#: A short form, which may stand for words that were said.
_ACRONYM = re.compile("[A-Z]{2,4}|[A-Z][a-z][A-Z]")


def _is_other_script(item: Item, name: str) -> bool:
    """Whether a name is in another script than the messages or the people: written as it sounds."""
    messages = item.evidence.messages
    said = "".join(messages[place].text for place in _source_places(item))
    people = "".join({one.speaker for one in messages if one.author == "person"})
    is_latin = words.is_latin(name)
    return any(text and words.is_latin(text) != is_latin for text in (said, people))


def _is_of_tool(item: Item) -> bool:
    """Whether a source is a tool's answer, whose words are translated."""
    return any(item.evidence.messages[place].author == "tool" for place in _source_places(item))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"'{name[:60]}'" for name in dict.fromkeys(names))


def _names_of(item: Item) -> list[str]:
    text = item.content
    calendar = dates.calendar_words()
    stops = [words.stop_words(language) for language in (*item.languages, "en")]
    found = item.tokens
    names = []
    for at, word in enumerate(found):
        written = word.written
        if not any(sign.isupper() for sign in written) or word.folded in calendar:
            continue
        if any(sign.isdigit() for sign in written) or _is_unit(text, word):
            continue
        has_inner_capital = any(sign.isupper() for sign in written[1:])
        if not has_inner_capital and any(word.folded in stop for stop in stops):
            continue
        if _SENTENCE_START.search(text[: word.start]) and not has_inner_capital:
            following = found[at + 1] if at + 1 < len(found) else None
            is_pair = (
                following is not None
                and following.written[0].isupper()
                and text[word.end : following.start] == " "
                and "de" not in item.languages[:1]
            )
            if not is_pair and item.languages[0] == "de":
                continue
            if any(key in item.evidence.segments_of_key for key in words.keys_of(word.folded)):
                continue
        elif item.languages[0] == "de" and not has_inner_capital and not _is_german_name(found, at):
            continue
        names.append(written)
    names += _KATAKANA.findall(text)
    return names


def _is_unit(text: str, word: words.Word) -> bool:
    """Whether capitals beside a figure are its unit: "7 PM", "EUR 5"."""
    return word.written.isupper() and (
        text[: word.start].rstrip()[-1:].isdigit() or text[word.end :].lstrip()[:1].isdigit()
    )


_COMMON = frozenset(
    "负责喜欢希望需要预订参加住在生日父亲母亲用户表示计划工作学习予約参加担当担任希望好住所仕事電話出発到着購入利用者"
)


def _new_ideographs(item: Item) -> list[str]:
    """Return runs of ideographs that do not occur in the range and hold no particle: names."""
    common = words.stop_signs() | _COMMON
    seen = item.evidence.lines
    text = COUNTED.sub(" ", item.digits)
    return [
        match.group()
        for match in _IDEOGRAPHS.finditer(text)
        if sum(sign not in seen and sign not in common for sign in match.group()) >= 2
    ]


_IDEOGRAPHS = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]{2,3}")


def _is_german_name(found: list[words.Word], at: int) -> bool:
    """Whether a noun of a German sentence is a name: nouns are capitals too, but have articles."""
    before = found[at - 1] if at else None
    after = found[at + 1] if at + 1 < len(found) else None
    calendar = dates.calendar_words()
    if before is not None and (
        before.folded in _NAME_PREPOSITION
        or (before.written[0].isupper() and before.folded not in calendar)
    ):
        return True
    return after is not None and after.written[0].isupper()


def _is_known(item: Item, name: str) -> bool:
    evidence = item.evidence
    folded = words.fold(name).replace("’", "'")
    base = words.words_of(name)
    bare = base[0].folded if base else folded
    if bare in evidence.names or folded in evidence.folded or folded in evidence.lines:
        return True
    shortest = 5 if name.isascii() else 4
    if not name.isascii() and len(bare) >= 4 and bare[:-1] in evidence.name_stems:
        return True
    if len(bare) >= shortest and any(
        len(bare) - cut >= 4 and bare[: len(bare) - cut] in evidence.name_stems
        for cut in (0, 1, 2, 3)
    ):
        return True
    return len(bare) >= 4 and bare in evidence.name_stems


def check_numbers(item: Item) -> str | Doubt | None:
    """Every number, date and time was said, or follows from what was said and when."""
    doubt = None
    for reason, is_readable in islice(_ungrounded(item), _MOST_NUMBERS):
        if is_readable:
            return reason
        doubt = doubt or Doubt(reason)
    return doubt


def _ungrounded(item: Item) -> Iterator[tuple[str, bool]]:
    """Return the numbers that do not occur, as reasons, and whether the code can read the rest."""
    evidence = item.evidence
    for said in item.days:
        if not is_date_said(item, said):
            reason = f"gives the date '{said.written.strip()}', which no message gives or means"
            yield reason, not (evidence.is_foreign or _has_movable_feast(item))
    for time in item.times:
        if not is_time_said(evidence, time):
            reason = f"gives the time '{time.written}', which was not mentioned"
            yield reason, not _has_unread_number(item)
    for number in item.figures:
        if not is_number_said(item, number):
            reason = f"gives the number '{number.written.strip()}', which was not mentioned"
            yield reason, not _has_unread_number(item) or _is_of_id(item, number)
    for written in numbers.find_mixed(item.digits):
        if written not in evidence.lines and not _is_number_with_unit(item, written):
            yield f"names '{written}', which was not mentioned", True


def _is_year_of(item: Item, readings: Iterable[float | None]) -> bool:
    """Whether a number is the year that "ninety-one", or an age or a number of years, comes to."""
    places = set(_bearing(item))
    segments = zip(item.evidence.segments, item.evidence.numbers_of_segments, strict=True)
    said = frozenset().union(*(some for one, some in segments if one.place in places))
    sent = {message.sent_at.year for message in item.evidence.messages}
    return any(
        year is not None
        and 1900 <= year < 2100
        and (
            (year % 100 >= 10 and year % 100 in said)
            or any(year - step in said for year in (one - year for one in sent) for step in (0, 1))
        )
        for year in readings
    )


def _has_movable_feast(item: Item) -> bool:
    """Whether a source names a feast whose day is not worked out here."""
    messages = item.evidence.messages
    return any(dates.has_movable_feast(messages[place].text) for place in _bearing(item))


def _has_unread_number(item: Item) -> bool:
    """Whether a source may write a number in a way that the tables lack."""
    evidence = item.evidence
    return evidence.is_foreign or any(
        numbers.has_hidden_number(word.folded, evidence.language)
        for place in _bearing(item)
        for word in words.words_of(evidence.messages[place].text)
    )


def _bearing(item: Item) -> list[int]:
    """The places of an item's sources, and of the questions that they answer."""
    places = _source_places(item)
    return [*places, *(place - 1 for place in places if is_answer(item, place))]


def is_date_said(item: Item, said: Said) -> bool:
    """Whether a date was named or meant, or its day was, and its year follows from an age."""
    return any(
        _is_grounded(item, *reading)
        or (_is_year_of(item, frozenset({reading[0]})) and _is_grounded(item, None, *reading[1:]))
        for reading in said.readings
    )


def is_number_said(item: Item, number: numbers.Number) -> bool:
    """Whether a number was said, as such, in digits of a longer one, or as a year."""
    return (
        not number.readings.isdisjoint(item.evidence.all_numbers | _years(item.evidence))
        or _is_part_of_digits(item, number)
        or _is_year_of(item, number.readings)
    )


def is_time_said(evidence: Evidence, time: Time) -> bool:
    """Whether a time was said as such, or by its parts: "ten to five", "8 Uhr 45"."""
    if not evidence.minutes.isdisjoint(minute % 720 for minute in time.minutes):
        return True
    said = evidence.all_numbers
    for hour, minute in (divmod(one, 60) for one in time.minutes):
        if minute and minute in said and not said.isdisjoint((hour, hour % 12, hour % 12 + 12)):
            return True
        if minute and 60 - minute in said and not said.isdisjoint((hour + 1, hour % 12 + 1)):
            return True
    return False


#: The digits of a number that is written in groups: a phone number, an order.
_GROUPED = re.compile(r"\d(?:[ .,/()-]{0,2}\d){4,}")


def _is_part_of_digits(item: Item, number: numbers.Number) -> bool:
    """Whether a number is part of a longer one that was said, perhaps in other groups."""
    digits = re.sub(r"\D", "", number.written)
    return any(
        digits in joined and joined[-8:] in item.evidence.long_digits
        for match in _GROUPED.finditer(item.digits)
        if (joined := re.sub(r"\D", "", match.group()))
    )


def _is_of_id(item: Item, number: numbers.Number) -> bool:
    """Whether a number is part of a long one in groups, which nobody words in another way."""
    return any(
        match.start() <= number.start < match.end() and sum(map(str.isdigit, match.group())) > 8
        for match in _GROUPED.finditer(item.digits)
    )


def _is_number_with_unit(item: Item, written: str) -> bool:
    """Whether "30km", "15th" or "1.5k" is a number that was said."""
    parts = [one.written for one in item.days]
    parts += (one.written for one in item.times)
    parts += (one.written for one in item.figures)
    if any(written in words.fold(part) for part in parts):
        return True  # judged as a part of that
    match = re.match(r"(\d{1,15})[^\W\d_]+\Z", written)
    return match is not None and float(match[1]) in item.evidence.all_numbers


def _years(evidence: Evidence) -> frozenset[float]:
    sent = {float(message.sent_at.year) for message in evidence.messages}
    meant = {
        float(year)
        for all_of_one in evidence.meant
        for one in all_of_one
        for year in (one.first.year, one.last.year)
    }
    return frozenset(sent | meant)


def _is_grounded(item: Item, year: int | None, month: int | None, day: int | None) -> bool:
    """Whether a date was named, or meant by a message of the item's sources."""
    evidence = item.evidence
    for said in evidence.all_dates:
        for other in said.readings:
            if _agree((year, month, day), other) and (other[2] is not None or day is None):
                if year is None or other[0] is not None:
                    return True
                if any(_is_near(year, other, one.sent_at.date()) for one in evidence.messages):
                    return True
    places = sorted(_source_places(item))
    last = len(evidence.messages) - 1
    near = {max(0, min(last, place + step)) for place in places for step in range(-3, 4)}
    means = [one for place in near for one in evidence.meant[place]]
    if any(_is_meant((year, month, day), one) for one in means):
        return True
    if any(_is_named_apart(evidence, place, (year, month, day)) for place in near):
        return True
    return any(
        _is_day_of(evidence, place, (year, month, day), has_other=bool(_exact(evidence, place)))
        for place in places
    )


def _is_named_apart(
    evidence: Evidence, place: int, wanted: tuple[int | None, int | None, int | None]
) -> bool:
    """Whether a message names a month and a day that it writes in words ("el tres de mayo")."""
    year, month, day = wanted
    if month not in evidence.months[place]:
        return False
    if year is not None and abs(year - evidence.messages[place].sent_at.year) > 1:
        return False
    said = evidence.numbers_of_segments
    return day is None or any(
        float(day) in said[at]
        for at, segment in enumerate(evidence.segments)
        if segment.place == place
    )


def _source_places(item: Item) -> list[int]:
    """Where an item comes from: a fact's sources; for a reflection all messages."""
    evidence = item.evidence
    if item.candidate.kind == "reflection":
        return list(range(len(evidence.messages)))
    named = [evidence.places[one] for one in item.sources if one in evidence.places]
    return named or list(range(len(evidence.messages)))


def _agree(one: tuple[int | None, ...], other: tuple[int | None, ...]) -> bool:
    return all(a is None or b is None or a == b for a, b in zip(one, other, strict=True))


def _is_meant(wanted: tuple[int | None, int | None, int | None], one: dates.Meant) -> bool:
    year, month, day = wanted
    if month is None:
        return year is None or one.first.year <= year <= one.last.year
    if day is not None and one.unit in ("m", "y"):
        return False
    at = one.first
    for _ in range(min((one.last - one.first).days, 366) + 1):
        if _agree((at.year, at.month, at.day), (year, month, day)):
            return True
        at += timedelta(days=1)
    return False


def _exact(evidence: Evidence, place: int) -> list[dates.Meant]:
    sent = evidence.messages[place].sent_at.date()
    return [
        one
        for one in evidence.meant[place]
        if one.unit == "d" and not one.first <= sent <= one.last
    ]


def _is_day_of(
    evidence: Evidence,
    place: int,
    wanted: tuple[int | None, int | None, int | None],
    *,
    has_other: bool,
) -> bool:
    """Whether a date is the day of a message, or a day of a month near it that it names.

    The day itself is not meant where the message speaks of another one ("tomorrow").
    """
    year, month, day = wanted
    sent = evidence.messages[place].sent_at.date()
    if _agree((sent.year, sent.month, sent.day), wanted) and (day is None or not has_other):
        return True
    if day is None or month is None or float(day) not in evidence.all_numbers:
        return False
    numbers_here = evidence.numbers_of_segments
    named_here = any(
        float(day) in numbers_here[at]
        for at, segment in enumerate(evidence.segments)
        if segment.place == place
    )
    months = {((sent.month - 1 + shift) % 12) + 1 for shift in (-1, 0, 1)}
    return (
        named_here
        and month in months
        and (year is None or abs(_days(year, month, day, sent)) <= 62)
    )


def _is_near(year: int, other: tuple[int | None, ...], sent: date) -> bool:
    """Whether a day that was said without a year is in this one: the year that is nearer."""
    _, month, day = other
    return abs(_days(year, month or sent.month, day or sent.day, sent)) <= _NEAR_DAYS


def _days(year: int, month: int, day: int, sent: date) -> int:
    try:
        return (date(year, month, day) - sent).days
    except ValueError:
        return 1000
