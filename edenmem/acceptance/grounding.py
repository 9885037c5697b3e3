"""Check that the names, numbers and dates of an item were said, or follow from what was said."""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import date
from difflib import SequenceMatcher
from functools import cache
from itertools import islice, permutations

from edenmem.acceptance import days
from edenmem.acceptance.evidence import Evidence
from edenmem.acceptance.item import COUNTED, MOST_DAYS, Doubt, Item
from edenmem.acceptance.reading import dates, numbers, words
from edenmem.acceptance.reading.dates import Said
from edenmem.acceptance.reading.times import Time
from edenmem.acceptance.tables import rows, table, word_set

#: Maximum number of an item's numbers that are checked.
_MOST_NUMBERS = 20

_SENTENCE_START = re.compile(r"(?:\A|[.!?:;…。]\s+|[\"“«„(\[]\s?|^[-•*]\s?)\Z")
_KATAKANA = re.compile("[\u30a1-\u30fa\u30fc]{3,}")
_KATAKANA_RUN = re.compile("[\u30a1-\u30fa\u30fc]{2,}")


def check_names(item: Item) -> str | Doubt | None:
    """Check that every name occurs in the messages or their context."""
    if unknown := [name for name in _names_of(item) if not _is_known(item, name)]:
        reason = f"names {_listed(unknown)}, which was not mentioned"
        is_open = _is_acronym_said(item, unknown) or all(
            _ACRONYM.fullmatch(name)
            or _is_variant(item, name)
            or _is_other_script(item, name)
            or _is_of_place(item, name)
            or (item.content.startswith(name) and item.languages[0] != "en")
            for name in unknown
        )
        return Doubt(reason) if is_open else reason
    if item.candidate.kind == "fact" and (unknown := _replaced(item)):
        reason = f"says {_listed(unknown)} where its source says something else"
        return Doubt(reason)  # a wrong name, or another word
    if item.candidate.kind == "fact" and (unknown := _new_ideographs(item)):
        reason = f"names {_listed(unknown)}, which was not mentioned"
        return Doubt(reason)  # a name, or a word that says the same
    return None


#: An abbreviation, perhaps of words that were said.
_ACRONYM = re.compile("[A-Z]{2,4}|[A-Z][a-z][A-Z]")


def _is_acronym_said(item: Item, names: list[str]) -> bool:
    """Return whether the initials of names form an abbreviation that was said."""
    initials = "".join(name[0] for name in names)
    return len(names) > 1 and any(
        re.fullmatch(".?".join(initials), one) for one in item.evidence.acronyms
    )


def _is_variant(item: Item, name: str) -> bool:
    """Return whether a name is an inflected, compound or respelt form of a word that was said."""
    folded = words.base_of(name)
    if re.sub("([aou])e", r"\1", folded) in item.evidence.names:
        return True  # Kroeger, Kröger
    if not name.isascii() and len(folded) >= 4 and folded[:3] in item.evidence.name_stems:
        return True
    return item.languages[0] == "de" and any(
        len(one) >= 4 and folded.endswith(one) for one in item.evidence.names
    )


def _is_other_script(item: Item, name: str) -> bool:
    """Return whether a name is a transliteration: not in the script of messages or people."""
    messages = item.evidence.talk.messages
    said = "".join(messages[place].text for place in item.places)
    people = "".join({one.speaker for one in messages if one.author == "person"})
    is_latin = words.is_latin(name)
    if is_latin and words.runs_of(said):
        return True
    return any(text and words.is_latin(text) != is_latin for text in (said, people))


def _is_of_place(item: Item, name: str) -> bool:
    """Return whether a name is that of a place mentioned in another language."""
    folded = words.base_of(name)
    known = item.evidence.names
    return any(folded in names and not names.isdisjoint(known) for names in _places())


@cache
def _places() -> tuple[frozenset[str], ...]:
    """Return the places whose names differ by language, folded: one set for each place."""
    return tuple(frozenset(map(words.fold, names)) for names in rows("grounding.places"))


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
        if any(sign.isdigit() for sign in written) or _is_unit(text, word) or word.folded == "euro":
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
            if any(key in item.evidence.talk.segments_of_key for key in words.keys_of(word.folded)):
                continue
            if following is not None and _is_common(item, word, following):
                continue
        elif (
            item.languages[0] == "de"
            and not has_inner_capital
            and not _is_german_name(item.evidence, found, at)
        ):
            continue
        names.append(written)
    names += _KATAKANA.findall(text)
    return names


def _is_common(item: Item, word: words.Word, following: words.Word) -> bool:
    """Return whether a word at the start of a sentence is an ordinary one.

    That is a number, or a word with a preposition or an article after it.
    """
    if numbers.is_number_word(word.folded, item.languages[0]):
        return True
    return following.folded in word_set("grounding.after_noun") and following.written[0].islower()


def _is_unit(text: str, word: words.Word) -> bool:
    """Return whether capitals next to a number are its unit: "7 PM", "EUR 5"."""
    return word.written.isupper() and (
        text[: word.start].rstrip()[-1:].isdigit() or text[word.end :].lstrip()[:1].isdigit()
    )


def _new_ideographs(item: Item) -> list[str]:
    """Return runs of ideographs that are new in the range and contain no particle: names."""
    common = words.stop_signs() | set(table("grounding.common_signs"))
    seen = item.evidence.lines
    text = COUNTED.sub(" ", item.digits)
    return [
        match.group()
        for match in _IDEOGRAPHS.finditer(text)
        if not _PARTICLES.search(match.group())
        and sum(sign not in seen and sign not in common for sign in match.group()) >= 2
    ]


#: Length of a clause's start, in characters, that is compared word by word.
_LONGEST_CLAUSE = 400


def _replaced(item: Item) -> list[str]:
    """Return what replaces a part of a source's clause and was never said.

    In scripts without capitals, a wrong name takes this form.
    """
    if any(sign.isupper() or sign.islower() for sign in item.content):
        return []
    is_spaced = item.is_spaced
    own = _parts(item.content, is_spaced)
    found: list[str] = []
    for place in item.bearing:
        for clause in item.evidence.talk.clauses[place]:
            other = _parts(clause.text[:_LONGEST_CLAUSE], is_spaced)
            codes = SequenceMatcher(None, own, other, autojunk=False).get_opcodes()
            for at, (tag, start, end, first, last) in enumerate(codes):
                if tag != "replace" or end - start > 2 or last - first > 3:
                    continue
                before = codes[at - 1] if at else ("equal", 0, 0, 0, 0)
                after = codes[at + 1] if at + 1 < len(codes) else ("equal", 0, 0, 0, 0)
                same = before[2] - before[1] + after[2] - after[1]
                if before[0] != "equal" or after[0] != "equal" or same < 2:
                    continue
                new, old = own[start:end], other[first:last]
                if is_spaced and any(one[:2] == each[:2] for one in new for each in old):
                    continue  # another ending
                if not is_spaced and (end - start > 1 or not _IDEOGRAPH.match(old[0])):
                    continue
                if all(_is_telling(item, part) for part in new) and not any(
                    _is_shown(item, part) for part in new
                ):
                    found.append((" " if is_spaced else "").join(new))
    return found


def _parts(text: str, is_spaced: bool) -> list[str]:
    """Return the words of a text, or its characters in a script without spaces."""
    if is_spaced:
        return [word.folded for word in words.words_of(text)]
    return [sign for sign in text if sign.isalnum()]


def _is_telling(item: Item, part: str) -> bool:
    """Return whether a word or character is not a stop word, grammar or a number."""
    if len(part) == 1:
        return bool(_IDEOGRAPH.match(part)) and part not in words.stop_signs() | set(
            table("grounding.common_signs")
        )
    return not part[0].isdigit() and not any(
        part in words.stop_words(language) for language in item.languages
    )


def _is_shown(item: Item, part: str) -> bool:
    evidence = item.evidence
    return part in evidence.lines or (
        len(part) > 1 and any(key in evidence.talk.segments_of_key for key in words.keys_of(part))
    )


_IDEOGRAPH = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\u30a1-\u30fa]")
_PARTICLES = re.compile("[了着过過的地得们們]")
_IDEOGRAPHS = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]{2,3}")


def _is_german_name(evidence: Evidence, found: Sequence[words.Word], at: int) -> bool:
    """Return whether a noun of a German sentence is a name: other nouns have articles."""
    before = found[at - 1] if at else None
    after = found[at + 1] if at + 1 < len(found) else None
    calendar = dates.calendar_words()
    if before is not None and before.folded in word_set("grounding.name_preposition") and at > 1:
        return True
    if before is not None and before.written[0].isupper() and before.folded not in calendar:
        return before.folded in evidence.names or (at > 1 and found[at - 2].written[0].isupper())
    return after is not None and after.written[0].isupper() and after.folded not in evidence.names


def _is_inflected(name: str, speaker: str) -> bool:
    """Return whether a name is a speaker's with another ending: "Зои" of "Зоя"."""
    stem = max(len(speaker) - 1, 2)
    return (
        not name.isascii() and abs(len(name) - len(speaker)) <= 2 and name[:stem] == speaker[:stem]
    )


def _is_known(item: Item, name: str) -> bool:
    evidence = item.evidence
    folded = words.fold(name).replace("’", "'")
    base = words.words_of(name)
    bare = base[0].folded if base else folded
    if bare in evidence.names or folded in evidence.talk.folded or folded in evidence.lines:
        return True
    if any(_is_inflected(bare, speaker) for speaker in evidence.speakers):
        return True
    shortest = 5 if name.isascii() else 4
    if not name.isascii() and len(bare) >= 4 and bare[:-1] in evidence.name_stems:
        return True
    if len(bare) >= shortest and any(
        len(bare) - cut >= 4 and bare[: len(bare) - cut] in evidence.name_stems
        for cut in (0, 1, 2, 3)
    ):
        return True
    if _KATAKANA.fullmatch(name):  # ミリ, ミリリットル
        return any(name.startswith(run) for run in _KATAKANA_RUN.findall(evidence.lines))
    return len(bare) >= 4 and bare in evidence.name_stems


def check_numbers(item: Item) -> str | Doubt | None:
    """Check that every number, date and time was said, or follows from what was said and when."""
    doubt = None
    for reason, is_readable in islice(_ungrounded(item), _MOST_NUMBERS):
        if is_readable:
            return reason
        doubt = doubt or Doubt(reason)
    return doubt


#: One o'clock, in minutes.
_ONE = 60


def _ungrounded(item: Item) -> Iterator[tuple[str, bool]]:
    """Yield a reason for each number that the sources do not give, and whether to refuse.

    A number of another message is in doubt: the model may have cited too few sources, or may have
    given the number to the wrong thing.
    """
    evidence = item.evidence
    everywhere = range(len(evidence.talk.messages))
    for said in item.days[:MOST_DAYS]:
        if not _is_on_its_weekday(item, said):
            yield f"gives the date '{said.written.strip()}', which is another day of the week", True
        elif not is_date_said(item, said):
            date = f"gives the date '{said.written.strip()}'"
            if is_date_said(item, said, everywhere):
                yield f"{date}, which other messages give", False
                continue
            yield f"{date}, which no message mentions or implies", _is_date_wrong(item, said)
    for time in item.times:
        if not is_time_said(item, time):
            reason = f"gives the time '{time.written}', which was not mentioned"
            is_open = (
                _has_unread_number(item)
                or is_time_said(item, time, everywhere)
                or any(
                    minute % 720 == _ONE for minute in time.minutes
                )  # the article in most languages
            )
            yield reason, not is_open
    for number in item.figures:
        if not is_number_said(item, number):
            reason = f"gives the number '{number.written.strip()}', which was not mentioned"
            is_open = (
                _has_unread_number(item)
                or _is_derived(item, number.readings)
                or _is_rescaled(item, number.readings)
                or _is_near_year(evidence, number.readings)
                or _is_spoken_otherwise(item, number)
                or not number.readings.isdisjoint(evidence.all_numbers)
            )
            yield reason, not is_open or _is_of_id(item, number) or _is_replaced(item, number)
    for match in _DOTTED.finditer(item.digits):
        is_date = any(said.start <= match.start() < said.end for said in item.days)
        if match.group() not in evidence.lines and not is_date:
            yield f"gives the number '{match.group()}', which was not mentioned", True
    for written in numbers.find_mixed(item.digits):
        if written not in evidence.lines and not _is_number_with_unit(item, written):
            yield f"names '{written}', which was not mentioned", True


#: A version or an address: compared as written.
_DOTTED = re.compile(r"(?<![\d.])\d+(?:\.\d+){2,}(?!\.?\d)")


def _is_on_its_weekday(item: Item, said: Said) -> bool:
    """Return whether a date agrees with the weekday next to it in the item."""
    before = item.content[max(said.start - 14, 0) : said.start].rstrip(" ,.(，、")
    after = item.content[said.end : said.end + 8].lstrip(" ,(（的の")
    if not item.is_spaced:
        near = dates.said_weekdays(before[-3:]) | dates.said_weekdays(after[:3])
    else:
        words_before = words.words_of(before)
        near = dates.said_weekdays(words_before[-1].written) if words_before else frozenset()
    meant = [date(*reading) for reading in said.readings if None not in reading]  # type: ignore[arg-type]
    return not near or not meant or any(day.weekday() in near for day in meant)


#: Maximum days between a message and a date that a word missing from the tables may imply.
_IMPLIED_DAYS = 31


def _is_date_wrong(item: Item, said: Said) -> bool:
    """Return whether a date that was not said is an error, rather than derived unnoticed.

    It is an error if the sources give another day, or if it is far from every message. It may be
    derived if its day was said as a day, or if it is the end of a month that was said.
    """
    evidence = item.evidence
    for year, month, day in said.readings:
        if day is not None and any(day in evidence.talk.day_numbers[at][1] for at in item.near):
            return False
        is_end = day is None or (month is not None and day == monthrange(year or 2024, month)[1])
        if is_end and any(
            month in evidence.talk.months[at] and not days.names_day(evidence, at)
            for at in item.bearing
        ):
            return False
    if any(days.names_day(evidence, place) for place in item.bearing):
        return True
    if evidence.talk.is_foreign or _has_movable_feast(item):
        return False
    if any(days.implies_day(evidence, place) for place in item.bearing):
        return True
    return not any(
        days.is_near(evidence, place, reading, _IMPLIED_DAYS)
        for place in item.bearing
        for reading in said.readings
    )


def _is_year_of(item: Item, readings: Iterable[float | None]) -> bool:
    """Return whether a number is the year implied by "ninety-one", an age or a number of years."""
    places = set(item.bearing)
    segments = zip(
        item.evidence.talk.segments,
        item.evidence.talk.numbers_of_segments,
        strict=True,
    )
    said = frozenset().union(*(some for one, some in segments if one.place in places))
    sent = {message.sent_at.year for message in item.evidence.talk.messages}
    is_season = any(item.evidence.talk.seasons[place] for place in places)
    if is_season and any(abs(year - one) == 1 for year in readings if year for one in sent):
        return True
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
    """Return whether a source mentions a feast without a fixed date."""
    return any(item.evidence.talk.movable_feasts[place] for place in item.bearing)


def _has_unread_number(item: Item) -> bool:
    """Return whether a source may contain a number missing from the tables."""
    evidence = item.evidence
    return evidence.talk.is_foreign or any(
        evidence.talk.hidden_numbers[place] for place in item.bearing
    )


def is_date_said(item: Item, said: Said, places: Sequence[int] | None = None) -> bool:
    """Return whether messages mention or imply a date, or its day if an age implies the year.

    The messages are the item's sources, unless ``places`` are given.
    """
    places = item.bearing if places is None else places
    return any(
        days.is_given(item.evidence, places, reading)
        or (
            _is_year_of(item, frozenset({reading[0]}))
            and days.is_given(item.evidence, places, (None, *reading[1:]))
        )
        for reading in said.readings
    )


def is_number_said(item: Item, number: numbers.Number) -> bool:
    """Return whether the sources give a number, or other messages give it for the same thing."""
    evidence = item.evidence
    near = item.near_numbers
    is_new = number.readings.isdisjoint
    if not (is_new(near) and is_new(evidence.other_numbers) and is_new(evidence.talk.years)):
        return True
    if _is_part_of_digits(item, number) or _is_year_of(item, number.readings):
        return True
    if any(_is_clock(item, number, value) for value in number.readings):
        return True
    rounded = {float(part) for value in near if value % 1 for part in (int(value), round(value))}
    if not number.readings.isdisjoint(rounded):
        return True
    if _is_day_of_range(item, number):
        return True
    if any(value / 1000 in near and _is_in_thousands(evidence, value) for value in number.readings):
        return True
    said = number.readings & evidence.all_numbers
    if said and _has_same_neighbor(item, number):
        return True
    own = {value for one in item.figures for value in one.readings}
    rivals = near - own - evidence.talk.years
    return any(
        (value >= _TELLING or value != int(value))
        and not any(value / 2 < other < value * 2 for other in rivals)
        for value in said
    )


#: From here on a number is distinctive: a year, an order, a price.
_TELLING = 100


def _is_day_of_range(item: Item, number: numbers.Number) -> bool:
    """Return whether a number is the first day of a given range: "from 21 to 23 September"."""
    for said in item.days:
        if (
            0 < said.start - number.end <= 12
            and not item.content[number.end : said.start].isalpha()
        ):
            return any(
                day <= 31 and days.is_given(item.evidence, item.bearing, (*reading[:2], int(day)))
                for day in number.readings
                for reading in said.readings
            )
    return False


def _is_derived(item: Item, readings: frozenset[float]) -> bool:
    """Return whether one arithmetic step on the sources' counts yields a number."""
    counted = _counted(item)
    return _is_combined(item, readings) or _is_near(
        readings, {part for one in counted for part in (one / 2, one * 2, one / 3)}
    )


def _is_combined(item: Item, readings: frozenset[float]) -> bool:
    """Return whether two of the sources' counts yield a number."""
    reached: set[float] = set()
    for a, b in permutations(_counted(item), 2):
        reached |= {a + b, a - b, a * b, a * b / 100} | ({a / b} if b else set())
    return _is_near(readings, reached)


def _is_near(readings: frozenset[float], reached: set[float]) -> bool:
    """Return whether a number is among others, within rounding."""
    return any(
        abs(value - each) < 0.005
        or (value >= 10 and abs(value - each) <= 0.05 * value and each % 1)
        for value in readings
        for each in reached
    )


def _counted(item: Item) -> set[float]:
    """Return the numbers that the sources count; none if there are too many."""
    counted = {value for place in item.bearing for value in item.evidence.talk.counts[place]}
    return counted if len(counted) <= _MOST_COUNTED else set()


def _is_replaced(item: Item, number: numbers.Number) -> bool:
    """Return whether a source gives another number before the same word: "400 ms", "800 ms".

    A sum or a product of what the sources count has the same unit and is not an error.
    """
    unit = numbers.unit_after(item.digits, number.end)
    if unit is None or not number.written[0].isdigit():
        return False
    if _is_combined(item, number.readings) or _is_rescaled(item, number.readings):
        return False
    return any(unit in item.evidence.talk.units[place] for place in item.places)


def _is_rescaled(item: Item, readings: frozenset[float]) -> bool:
    """Return whether a number is a said one in another unit or scale: 2.40 m, 240 cm."""
    near = item.near_numbers
    return any(
        (factor > 100 or said != int(said)) and value == round(said * factor, 6)
        for value in readings
        for said in near
        for factor in (100, 1e3, 1e6)
    )


def _is_spoken_otherwise(item: Item, number: numbers.Number) -> bool:
    """Return whether a number may be an hour on a 12-hour clock, or part of a word ("pg16")."""
    if any(12 < value <= 24 and value - 12 in item.near_numbers for value in number.readings):
        return True
    digits = number.written
    pattern = rf"[^\W\d_]{digits}(?!\d)"
    return digits.isdecimal() and bool(re.search(pattern, item.evidence.lines))


def _is_near_year(evidence: Evidence, readings: frozenset[float]) -> bool:
    """Return whether a number is a year next to those of the messages, as "last year" implies."""
    return any(abs(value - year) <= 1 for value in readings for year in evidence.talk.years)


#: Maximum number of the sources' numbers from which others are derived.
_MOST_COUNTED = 12


def _is_clock(item: Item, number: numbers.Number, value: float) -> bool:
    """Return whether a number is a time: "15.30" of "half four", "six" of "18:00"."""
    minutes = round(value % 1 * 100)
    if not 0 < value < 25 or minutes >= 60 or (minutes and "." not in number.written):
        return False
    said = item.evidence.talk.minutes
    wanted = (int(value) * 60 + minutes) % 720
    if minutes:
        return any(wanted in said[place] for place in item.near)
    return (
        any(value + 12 in item.evidence.talk.numbers_said[place] for place in item.near)
        and value < 12
    )


def _is_in_thousands(evidence: Evidence, value: float) -> bool:
    """Return whether another number has the size of an abbreviated one ("315")."""
    return any(value / 2 < other < value * 2 for other in evidence.all_numbers if other >= 1000)


def _has_same_neighbor(item: Item, number: numbers.Number) -> bool:
    """Return whether a number has the same neighbor in the item and elsewhere: "plot 14"."""
    digits = re.sub(r"\D", "", number.written)
    own = _neighbors(item.digits, number.start, number.end)
    for line in item.evidence.lines.splitlines() if digits and own else ():
        for match in re.finditer(rf"(?<!\d){digits}(?!\d)", line):
            if own & _neighbors(line, match.start(), match.end()):
                return True
    return False


def _neighbors(text: str, start: int, end: int) -> set[str]:
    """Return the keys of the words around a part of a text, or of unspaced characters."""
    before, after = text[max(start - 24, 0) : start], text[end : end + 24]
    found = {key for word in words.words_of(before)[-2:] for key in words.keys_of(word.folded)}
    found |= {key for word in words.words_of(after)[:1] for key in words.keys_of(word.folded)}
    stops = words.stop_words("en") | words.stop_words(words.language_of(text))
    return {one for one in found if one not in stops} | set(words.runs_of(after[:2]))


def is_time_said(item: Item, time: Time, places: Collection[int] | None = None) -> bool:
    """Return whether messages give a time: as such, in parts ("ten to five"), or by a duration.

    The messages are those near the item's sources, unless ``places`` are given.
    """
    evidence = item.evidence
    places = item.near if places is None else places
    for place in places:
        said, counts = (
            evidence.talk.minutes[place],
            evidence.talk.numbers_said[place],
        )
        if not said.isdisjoint(minute % 720 for minute in time.minutes):
            return True
        for hour, minute in (divmod(one, 60) for one in time.minutes):
            hours = {hour, hour % 12, hour % 12 + 12}
            if minute % 15 and minute in counts and not counts.isdisjoint(hours):
                return True
            if (
                minute % 15
                and 60 - minute in counts
                and not counts.isdisjoint({one + 1 for one in hours})
            ):
                return True
    spans = {span for place in places for span in evidence.talk.durations[place]}
    return any(
        (minute + step) % 720 in evidence.talk.minutes[place]
        for minute in time.minutes
        for span in spans
        for step in (span, -span)
        for place in places
    ) or any(
        minute % 720 in said and minute % 60
        for minute in time.minutes
        for said in evidence.talk.minutes
    )


#: A number in groups of digits: a phone number, an order.
_GROUPED = re.compile(r"\d(?:[ .,/()-]{0,2}\d){4,}")


def _is_part_of_digits(item: Item, number: numbers.Number) -> bool:
    """Return whether a number is part of a longer one, perhaps grouped differently."""
    digits = re.sub(r"\D", "", number.written)
    return any(
        digits in joined and joined[-8:] in item.evidence.long_digits
        for match in _GROUPED.finditer(item.digits)
        if (joined := re.sub(r"\D", "", match.group()))
    )


def _is_of_id(item: Item, number: numbers.Number) -> bool:
    """Return whether a number is part of an ID or phone number, always written in digits."""
    return any(
        match.start() <= number.start < match.end() and sum(map(str.isdigit, match.group())) > 8
        for match in _GROUPED.finditer(item.digits)
    )


def _is_number_with_unit(item: Item, written: str) -> bool:
    """Return whether "30km", "15th" or "1.5k" is a number that was said."""
    parts = [one.written for one in item.days]
    parts += (one.written for one in item.times)
    parts += (one.written for one in item.figures)
    if any(written in words.fold(part) for part in parts):
        return True  # judged as a part of that
    if re.fullmatch("[ck]?m[23]", written):
        return True  # m²
    match = re.match(r"(\d{1,15})[^\W\d_]+\Z", written)
    known = item.evidence.all_numbers | item.evidence.talk.years
    return match is not None and float(match[1]) in known
