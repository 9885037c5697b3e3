"""Dates in texts: explicit ones, and those implied by "tomorrow" or "next Friday".

A relative expression and the day of its message yield days. The tables cover a dozen languages.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from datetime import date, datetime, timedelta
from functools import cache

import msgspec

from edenmem.acceptance.reading.times import count_words, unit_words
from edenmem.acceptance.reading.words import (
    ascii_digits,
    base_of,
    fold,
    fold_in_place,
    words_of,
)
from edenmem.acceptance.tables import pattern, pattern_text, table, word_set

_WEEKDAYS_HAN = re.compile(
    "(?:星期|周|週|礼拜)([一二三四五六日天])|([月火水木金土日])曜|([월화수목금토일])요일"
)
_HAN_DAYS = {
    sign: day
    for day, signs in enumerate(
        ("一月월", "二火화", "三水수", "四木목", "五金금", "六土토", "日天일")
    )
    for sign in signs
}


def has_movable_feast(text: str) -> bool:
    """Return whether a text mentions a feast without a fixed date."""
    return bool(pattern("dates.movable").search(fold_in_place(text)))


_ISO = re.compile(r"(?<!\d)(?P<y>\d{4})[-/.](?P<m>\d{1,2})(?:[-/.](?P<d>\d{1,2}))?(?!\d)")
_FIGURES = re.compile(
    r"(?<![\d.])(?P<a>\d{1,2})(?P<mark>[./-])\s?(?P<b>\d{1,2})(?:(?P=mark)\s?(?P<y>\d{4}"
    r"|\d{2})(?!\d)|\.(?!\d))?(?![\d])"
)
_HAN_DATE = re.compile(
    r"(?:(?P<y>\d{4})\s?[年년]\s?)?(?P<m>\d{1,2})\s?[月월](?:\s?(?P<d>\d{1,2})\s?[日号號일])?"
)
_DAY = r"(?P<{0}>\d{{1,2}})(?:st|nd|rd|th|\.|º|ª|er|ro|-?го|-?е|-?е)?"
_YEAR = r"(?:,?\s?(?:de |del |do |года |of |')?(?P<{0}>(?:19|20|21)\d\d)(?!\d))?"


#: Year, month and day; None if open.
Reading = tuple[int | None, int | None, int | None]


class Said(msgspec.Struct, frozen=True):
    """An explicit date; omitted parts are None. ``readings`` has every possible reading."""

    written: str
    start: int
    end: int
    readings: tuple[Reading, ...]  # year, month, day


class Meant(msgspec.Struct, frozen=True):
    """The days from ``first`` to ``last`` that an expression implies, as exact as ``unit``."""

    first: date
    last: date
    unit: str


@cache
def _months() -> dict[str, int]:
    return {
        written: month
        for language in table("dates.months")
        for month, forms in enumerate(pattern_text(f"dates.months.{language}").split("|"), 1)
        for name in forms.split()
        for written in (fold(name), fold_in_place(name))  # with and without vowel signs
    }


@cache
def _weekdays() -> dict[str, int]:
    return {
        base_of(name): day
        for language in table("dates.weekdays")
        for day, forms in enumerate(pattern_text(f"dates.weekdays.{language}").split("|"))
        for name in forms.split()
    }


#: The end of a word; ``\\b`` does not count vowel signs of Devanagari as letters.
_WORD_END = r"(?![\w\u0900-\u0963])"


@cache
def _with_month() -> tuple[re.Pattern[str], re.Pattern[str]]:
    names = "|".join(sorted(_months(), key=len, reverse=True))
    month = rf"(?P<month>{names})"
    before = re.compile(
        rf"(?<![\d.:]){_DAY.format('d')}(?:\s?[-–/]\s?(?P<to>\d{{1,2}})\.?)?\s?(?:of |de |de |д[еи]"
        rf" )?{month}{_WORD_END}\.?{_YEAR.format('y')}"
    )
    after = re.compile(
        rf"\b{month}{_WORD_END}\.?(?:(?:\s(?:the )?|\s?,\s?){_DAY.format('d')}(?![\d:]|\s?(?:am|pm"
        rf"|uhr)\b)(?:\s?[-–]\s?(?P<to>\d{{1,2}})(?![\d.:]))?)?{_YEAR.format('y')}"
    )
    return before, after


@cache
def calendar_words() -> frozenset[str]:
    """Return the names of months and weekdays, folded."""
    return (frozenset(_months()) | frozenset(_weekdays())) - word_set("dates.ordinal_days")


def find_dates(text: str, *, is_lenient: bool = False) -> list[Said]:
    """Return the explicit dates of a text, without overlaps.

    A month alone counts if its name is not an ordinary word ("may"), or if ``is_lenient``. So does
    the second day of a range ("4-6 July").
    """
    flat = fold_in_place(ascii_digits(text))
    found: list[Said] = []
    taken = bytearray(len(flat))

    def add(match: re.Match[str], *readings: Reading) -> None:
        start, end = match.span()
        good = tuple(reading for reading in readings if _is_date(*reading))
        if good and not any(taken[start:end]):
            taken[start:end] = b"\x01" * (end - start)
            found.append(
                Said(text[start:end] if len(flat) == len(text) else match.group(), start, end, good)
            )
            last = match.groupdict().get("to") if is_lenient else None
            if last and _is_date(None, good[0][1], int(last)):
                found.append(Said(match.group(), start, end, ((*good[0][:2], int(last)),)))

    for match in _ISO.finditer(flat):
        add(match, (int(match["y"]), int(match["m"]), _int(match["d"])))
    for match in _HAN_DATE.finditer(flat):
        add(match, (_int(match["y"]), int(match["m"]), _int(match["d"])))
    before, after = _with_month()
    months = _months()
    for match in before.finditer(flat):
        add(match, (_int(match["y"]), months[match["month"]], int(match["d"])))
    for match in after.finditer(flat):
        day, year = _int(match["d"]), _int(match["y"])
        if (
            day is None
            and year is None
            and match["month"] in word_set("dates.doubtful_months")
            and not is_lenient
        ):
            continue
        add(match, (year, months[match["month"]], day))
    for match in _FIGURES.finditer(flat):
        a, b, year = int(match["a"]), int(match["b"]), _int(match["y"])
        if year is None and match["mark"] != "/" and not match.group().endswith("."):
            continue  # 3.5 and 3-4 are numbers
        if (
            year is None
            and match["mark"] == "."
            and not pattern("dates.before_day").search(flat[: match.start()])
        ):
            continue  # the version 5.2.
        year = year + 2000 if year is not None and year < 100 else year
        add(match, (year, b, a), (year, a, b))
    return found


def _int(figures: str | None) -> int | None:
    return None if figures is None else int(figures)


def _is_date(year: int | None, month: int | None, day: int | None) -> bool:
    if year is not None and not 1 <= year <= 9998:
        return False
    if month is not None and not 1 <= month <= 12:
        return False
    if day is None:
        return True
    try:
        date(year or 2024, month or 1, day)
    except ValueError:
        return False
    return True


_HAN_MONTH = re.compile("(?<![一二三四五六七八九十])(十[一二]?|[一二三四五六七八九])月")
_HAN_MONTHS = {
    sign: month for month, sign in enumerate((*"一二三四五六七八九十", "十一", "十二"), 1)
}


def said_months(text: str) -> frozenset[int]:
    """Return the months that a text mentions, in any known language."""
    months = _months()
    named = {months[word.folded] for word in words_of(text) if word.folded in months}
    return frozenset(named | {_HAN_MONTHS[match[1]] for match in _HAN_MONTH.finditer(text)})


# -- relative expressions ------------------------------------------------------------------------


@cache
def _relative_pattern(language: str) -> re.Pattern[str]:
    phrases = sorted(_relative_table(language), key=len, reverse=True)
    inside = "|".join(re.escape(phrase) for phrase in phrases)
    if language in _UNSPACED:
        return re.compile(inside)
    return re.compile(rf"(?<![^\W_])(?:{inside})(?![^\W_]|[\u0900-\u0903\u093a-\u094f])")


@cache
def _relative_table(language: str) -> dict[str, list[tuple[int, str]]]:
    found: dict[str, list[tuple[int, str]]] = {}
    for line in table(f"dates.relative.{language}").splitlines():
        offset, _, phrases = line.partition(" ")
        for phrase in phrases.split("|"):
            found.setdefault(fold_in_place(phrase), []).append((int(offset[:-1]), offset[-1]))
    return found


_UNSPACED = ("zh", "ja", "ko", "th")
_RUN = re.compile(r"[^\W_]+")


@cache
def _relative_heads(language: str) -> frozenset[str]:
    """Return the first words of a language's relative expressions."""
    firsts = (_RUN.search(phrase) for phrase in _relative_table(language))
    return frozenset(first.group() for first in firsts if first)


def _relative_phrases(flat: str) -> Iterator[tuple[str, re.Match[str]]]:
    """Yield the relative expressions of a folded text, language by language."""
    heads = set(_RUN.findall(flat))
    is_ascii = flat.isascii()
    for language in table("dates.relative"):
        if (
            not is_ascii
            if language in _UNSPACED
            else not heads.isdisjoint(_relative_heads(language))
        ):
            for match in _relative_pattern(language).finditer(flat):
                yield language, match


def meant_days(
    text: str,
    said_at: datetime,
    weekdays: Collection[int],
    spans: Iterable[tuple[int, str, int]],
) -> list[Meant]:
    """Return the days that a text's relative expressions imply, in any known language.

    ``weekdays`` and ``spans`` are those of the text, by `said_weekdays` and `times.find_spans`.
    """
    day = said_at.date()
    flat = fold_in_place(ascii_digits(text)).replace("’", "'")
    found: list[Meant] = []
    weeks: list[date] = []  # the Mondays of the weeks that are named
    is_bare = not _week_on().search(flat)
    for language, match in _relative_phrases(flat):
        for count, unit in _relative_table(language)[match.group()]:
            meant = _shift(day, count, unit)
            if unit == "w" and weekdays:  # "Saturday of next week"
                weeks.append(meant.first)
                is_bare = False
            else:
                found.append(meant)
    for count, unit, sign in spans:
        signs = (sign,) if sign else (1, -1)
        found += (_shift(day, each * count, unit, about=True) for each in signs)
        if unit == "w" or (unit == "d" and count in _WEEKS_OF_DAYS):  # "Thursday in two weeks"
            count = _WEEKS_OF_DAYS.get(count, count) if unit == "d" else count
            weeks += (_add(day, each * 7 * count - day.weekday()) for each in signs)
    for weekday in weekdays:
        ahead = (weekday - day.weekday()) % 7
        found += (_one(monday, weekday) for monday in weeks)
        steps = {0, -7} if is_bare else set[int]()
        if ahead == 0 or pattern("dates.next").search(flat):
            steps |= {7}
        if pattern("dates.in_a_week").search(flat):
            steps |= {7, 14}
        if pattern("dates.last").search(flat):
            steps |= {-7, -14}
        found += (_one(day, ahead + step) for step in steps)
    any_feast, feasts = _feasts()
    for feast, (month, first, length) in feasts if any_feast.search(text) else ():
        if feast.search(text):
            for year in (day.year - 1, day.year, day.year + 1):
                start = date(year, month, first)
                found.append(Meant(start, start + timedelta(days=length - 1), "d"))
    if pattern("dates.month_end").search(flat):
        _, last = _month_of(day)
        _, last_before = _month_of(_add(day.replace(day=1), -1))
        found += (Meant(last, last, "d"), Meant(last_before, last_before, "d"))
        found.append(Meant(*_month_of(_add(last, 1)), "m"))
        found.append(Meant(_month_of(_add(last, 1))[1], _month_of(_add(last, 1))[1], "d"))
    return found


@cache
def _feasts() -> tuple[re.Pattern[str], list[tuple[re.Pattern[str], list[int]]]]:
    """Return the feasts with a fixed date: pattern; month, first day, number of days.

    The first pattern finds any of them: most texts lack all.
    """
    patterns = [feast["pattern"].replace("\n", "") for feast in table("dates.feasts")]
    days = [feast["day"] for feast in table("dates.feasts")]
    any_of_all, *each = (re.compile(one, re.IGNORECASE) for one in ("|".join(patterns), *patterns))
    return any_of_all, list(zip(each, days, strict=True))


@cache
def _week_on() -> re.Pattern[str]:
    """Return the pattern for a weekday moved by a week: "Thursday week", "samedi en huit"."""
    return re.compile(
        rf"\b(?:{_weekday_names()}) (?:week\b|fortnight|en (?:huit|quinze)|a otto|in acht tagen"
        rf"|in einer woche)|\bweek (?:on|from) (?:{_weekday_names()})"
    )


def names_week(text: str) -> bool:
    """Return whether a text mentions a week ("next week") or moves a weekday by one."""
    flat = fold_in_place(ascii_digits(text))
    return bool(_week_on().search(flat)) or any(
        unit == "w"
        for language, match in _relative_phrases(flat)
        for _, unit in _relative_table(language)[match.group()]
    )


def said_weekdays(text: str) -> frozenset[int]:
    """Return the weekdays that a text mentions, from 0 for Monday."""
    flat = fold_in_place(text)
    names = _weekdays()
    found = {
        names[word.folded]
        for word in words_of(flat)
        if word.folded in names and word.folded not in word_set("dates.ordinal_days")
    }
    found |= {names[match[1]] for match in pattern("dates.feira").finditer(flat)}
    for match in _WEEKDAYS_HAN.finditer(text):
        found.add(_HAN_DAYS[next(filter(None, match.groups()))])
    return frozenset(found)


#: A number that may be a day of the month: not part of a number, a time, a sum or a count.
_LONE_DAY = re.compile(
    r"(?<![\d.,:/£$€¥#+-])(?<!\d\s)([12]?\d|3[01])"
    r"(?![\d%€$£¥]|:(?!e\b)|[.,]\d|\s?(?:h|uhr|am|pm|eur\w*|kg|km|m|min\w*|%|€|£)\b)"
)


def said_days_of_month(text: str) -> tuple[frozenset[int], frozenset[int]]:
    """Return the numbers that may be days of a month, and those marked as days."""
    flat = fold_in_place(ascii_digits(text))
    found, marked = set[int](), set[int]()
    for match in _LONE_DAY.finditer(flat):
        found.add(day := int(match[1]))
        before = flat[max(match.start() - 12, 0) : match.start()]
        if pattern("dates.before_alone").search(before) or pattern("dates.after_alone").match(
            flat, match.end()
        ):
            marked.add(day)
    return frozenset(found), frozenset(marked)


@cache
def _short_days() -> frozenset[str]:
    return frozenset(table("dates.weekdays.short").replace("|", " ").split())


def find_lone_weekday(text: str) -> str | None:
    """Return the weekday that a text gives for a single day without a date; None without one."""
    flat = fold_in_place(ascii_digits(text))
    if (
        pattern("dates.habit").search(flat)
        or pattern("dates.habit").search(text)
        or len(said_weekdays(text)) != 1
    ):
        return None
    if match := _WEEKDAYS_HAN.search(text):
        return match.group()
    names = _weekdays()
    for word in words_of(flat):
        if (
            word.folded in names
            and word.folded not in word_set("dates.ordinal_days")
            and word.folded not in _short_days()
        ):
            is_habit = (
                re.search(r"(?:days|tags|ochs|abends|en)$", word.folded)
                and word.folded != "sonnabend"
            )
            follows = re.match(r" (?:the |den |der )?\d{1,2}(?:st|nd|rd|th|\.)", flat[word.end :])
            article = re.search(r"\b(?:les?|los|il|la|las|nas|as|aos|di|de) $", flat[: word.start])
            return None if is_habit or follows or article else text[word.start : word.end]
    return None


#: Days that stand for weeks: "Samstag in acht Tagen", "jeudi en quinze".
_WEEKS_OF_DAYS = {7: 1, 8: 1, 14: 2, 15: 2}


def _month_of(day: date) -> tuple[date, date]:
    first = day.replace(day=1)
    return first, _add(_add(first, 31).replace(day=1), -1)


def _one(day: date, ahead: int) -> Meant:
    there = _add(day, ahead)
    return Meant(there, there, "d")


def _add(day: date, days: int) -> date:
    try:
        return day + timedelta(days=days)
    except OverflowError:
        return day


def _shift(day: date, count: int, unit: str, *, about: bool = False) -> Meant:
    """Return the day, week, month or year ``count`` units away; "about": counted from the day."""
    if unit == "d":
        return _one(day, count)
    if unit == "w":
        if about:
            return _one(day, 7 * count)
        monday = _add(day, 7 * count - day.weekday())
        return Meant(monday, _add(monday, 6), "w")
    months = count * (12 if unit == "y" else 1)
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    year = min(max(year, 1), 9998)
    if unit == "y":
        return Meant(date(year, 1, 1), date(year, 12, 31), "y")
    first = date(year, month + 1, 1)
    last = _add(date(year + (month + 1) // 12, (month + 1) % 12 + 1, 1), -1)
    return Meant(first, last, "m")


def shift(year: int, month: int, day: int, count: int, unit: str) -> Reading | None:
    """Shift a date by a span; return None if the calendar lacks that day."""
    months = count * {"m": 1, "y": 12}.get(unit, 0)
    year, month = divmod(year * 12 + month - 1 + months, 12)
    try:
        moved = _add(date(year, month + 1, day), count * {"d": 1, "w": 7}.get(unit, 0))
    except ValueError:
        return None
    return moved.year, moved.month, moved.day


def find_relative(text: str, languages: Iterable[str]) -> str | None:
    """Return the first relative date of a text outside titles; None without one.

    ``languages`` are the possible languages of the text: a few words count in their own language
    only.
    """
    flat = fold_in_place(text).replace("’", "'")
    at_home = set(languages)
    for language, match in _relative_phrases(flat):
        written = text[match.start() : match.end()]
        if match.group() in table("dates.lasting").splitlines() or _is_title(
            text, match.start(), written
        ):
            continue
        if language not in at_home and match.group() in _only_at_home():
            continue
        if not _is_morning(flat, match):
            return written
    names = ["dates.next_day"]
    names += ["dates.ahead"] if pattern("dates.ahead_unit").search(flat) else []
    for name in names:
        for match in _deictic(name).finditer(flat):
            written = text[match.start() : match.end()]
            if written.startswith("faz ") and text[: match.start()].strip():
                continue  # an age
            if not _is_title_of_words(written):
                return written
    return None


def _is_title(text: str, start: int, written: str) -> bool:
    """Return whether a capital inside the sentence marks a title ("The Day After Tomorrow")."""
    before = text[:start].rstrip()
    if before and before[-1] not in ".!?:;…" and written[:1].isupper():
        return True
    following = re.match(r"\s+(\S+)\s+(\S+)", text[start + len(written) :])
    return bool(
        written[:1].isupper()
        and following
        and following[1][:1].isupper()
        and following[2][:1].isupper()
    )


def _is_title_of_words(written: str) -> bool:
    """Return whether all words are capitalized ("Last Friday Night")."""
    return all(word[0].isupper() for word in written.split())


def _is_morning(flat: str, match: re.Match[str]) -> bool:
    if match.group() in ("manana", "morgen"):
        return bool(
            pattern("dates.morning").search(flat[max(match.start() - 12, 0) : match.start()])
        )
    return False


@cache
def _weekday_names() -> str:
    names = [name for name in _weekdays() if len(name) > 3]
    return "|".join(sorted(names, key=len, reverse=True))


@cache
def _only_at_home() -> frozenset[str]:
    return frozenset(map(fold_in_place, table("dates.only_at_home").splitlines()))


@cache
def _deictic(name: str) -> re.Pattern[str]:
    """Compile a pattern with placeholders for weekdays and counts."""
    count = pattern_text("dates.count").replace("{counts}", _counts())
    text = pattern_text(name).replace("{count}", count)
    text = re.sub(r"\{units\.(\w+)\}", lambda match: unit_words(match[1]), text)
    return re.compile(text.replace("{weekdays}", _weekday_names()))


@cache
def _counts() -> str:
    """Return an alternation of the words for small numbers in all languages, and of digits."""
    names = {fold(word) for word in count_words() if word.isalpha() and word.isascii()}
    names |= {fold_in_place(word) for word in count_words() if word.isalpha()}
    return "|".join([r"\d{1,3}", *sorted(names, key=len, reverse=True)])
