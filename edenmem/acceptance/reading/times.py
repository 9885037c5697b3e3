"""Times of day, durations and seasons: as written, and as implied."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache

import msgspec

from edenmem.acceptance.reading.numbers import said_numbers
from edenmem.acceptance.reading.words import ascii_digits, fold_in_place
from edenmem.acceptance.tables import pattern, pattern_text, rows, table, word_set

_TIME = re.compile(
    r"(?<![\d.:,])(?P<h>\d{1,2})(?:\s?[:.h時时点點시]\s?(?P<min>\d{2})(?![\d])[分분]?)?(?:\s?(?P<half>半))?"
    r"\s?(?P<mark>a\.?m\b\.?|p\.?m\b\.?|uhr\b|o'?clock\b|o’clock\b|h\b|heures?\b|hrs?\b|noon\b"
    r"|klo\b|時|时|点|點|시)?"
    r"(?:\s?(?P<after>\d{2})(?!\d))?",
    re.IGNORECASE,
)
#: Maximum distance in characters between the hour and these words.
_NEAR = 14


class Time(msgspec.Struct, frozen=True):
    """A time of day in a text; ``minutes`` are its possible minutes since midnight."""

    written: str
    start: int
    end: int
    minutes: frozenset[int]


def find_times(text: str) -> Iterator[Time]:
    """Yield the explicit times of day: with a colon, "pm", "Uhr", "h" or similar."""
    flat = ascii_digits(text)
    for match in _TIME.finditer(flat):
        mark = (match["mark"] or "").lower().replace(".", "")
        has_colon = match["min"] and re.search(r"[:h時时点點시]", match.group())
        if not mark and not has_colon:
            continue
        hour, minute = int(match["h"]), int(match["min"] or (30 if match["half"] else 0))
        end = match.end("half") if match["half"] else match.end()
        if match["after"]:
            if mark == "uhr" or mark.startswith("h"):
                minute = int(match["after"])
            else:
                end = match.start("after")
        if hour > 24 or minute > 59:
            continue
        if mark == "pm" or pattern("times.afternoon").search(
            flat[max(match.start() - 4, 0) : match.start()]
        ):
            hour = hour % 12 + 12
        elif mark == "am":
            hour %= 12
        yield Time(
            flat[match.start() : end].strip(),
            match.start(),
            end,
            frozenset({(hour * 60 + minute) % 1440}),
        )


@cache
def _parts() -> tuple[re.Pattern[str], ...]:
    """Return the patterns for halves and quarters, in the order of the table."""
    return tuple(re.compile(part["pattern"].replace("\n", "")) for part in table("times.parts"))


def said_minutes(text: str, numbers: Iterable[float]) -> frozenset[int]:
    """Return the possible minutes of the day on a 12-hour clock: "at 3" is 3:00 and 15:00."""
    found = {minute % 720 for time in find_times(text) for minute in time.minutes}
    hours = {int(number) for number in numbers if 0 < number <= 24 and number == int(number)}
    found |= {hour * 60 % 720 for hour in hours}
    for number in numbers:  # 15.30 and 3.45 as times
        hour, rest = divmod(round(number * 100), 100)
        if 0 < hour <= 24 and 0 < rest < 60 and abs(number * 100 - round(number * 100)) < 1e-6:
            found.add((hour * 60 + rest) % 720)
    for part, half in zip(table("times.parts"), _parts(), strict=True):
        for match in half.finditer(text):
            if part["follows"]:
                around = text[match.end() : match.end() + _NEAR]
            else:
                around = text[max(match.start() - _NEAR, 0) : match.start()]
            named = {int(one) for one in said_numbers((around,)) if 0 < one <= 24} or hours
            found |= {(hour * 60 + shift) % 720 for hour in named for shift in part["minutes"]}
    if pattern("times.noon").search(text) or pattern("times.midnight").search(text):
        found.add(0)
    return frozenset(found)


def said_durations(text: str) -> frozenset[int]:
    """Return the durations in minutes and hours, in minutes."""
    found: set[int] = set()
    for match in pattern("times.duration").finditer(ascii_digits(text)):
        if match["half"]:
            found.add(30)
            continue
        scale = 1 if match["minutes"] else 60
        found |= {int(one * scale) for one in said_numbers((match["count"],)) if one < 600}
    return frozenset(found)


# -- spans of days or longer ---------------------------------------------------------------------


@cache
def count_words() -> dict[str, int]:
    """Return the words for small numbers before a unit of time."""
    return {word: int(count) for count, *some in rows("times.counts") for word in some}


@cache
def _unspaced_units() -> dict[str, str]:
    return {word: unit for unit, *some in rows("times.units_unspaced") for word in some}


@cache
def unit_words(language: str) -> str:
    """Return an alternation of a language's units of days or longer, folded."""
    return "|".join(_folded(f"times.units.{language}.{unit}") for unit in _UNITS)


_UNITS = "dwmy"


@cache
def _folded(name: str) -> str:
    return fold_in_place(pattern_text(name))


def _unit_names(unit: str) -> str:
    """Return an alternation of a unit's names in all languages, folded."""
    return "|".join(_folded(f"times.units.{each}.{unit}") for each in table("times.units"))


@cache
def _any_unit() -> re.Pattern[str]:
    """Return the pattern of all units, which most texts lack: one search in place of four."""
    return re.compile(rf"(?:{'|'.join(map(_unit_names, _UNITS))})(?![^\W_])")


@cache
def _spans() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Return each unit with the pattern for its spans in folded text."""
    before, after = _folded("times.before"), _folded("times.after")
    found = []
    for unit in _UNITS:
        names = _unit_names(unit)
        span = re.compile(
            rf"(?:(?<![^\W_])(?P<before>{before})\s+)?(?<![^\W_])"
            rf"(?P<count>\d{{1,3}}|[^\W\d_]{{1,10}})(?:\s+(?:of\s+)?)?"
            rf"(?:{names})(?![^\W_])(?:\s*(?P<after>{after}))?"
        )
        found.append((unit, span))
    return tuple(found)


_HAN_COUNT = {sign: value for value, sign in enumerate("一二三四五六七八九十", 1)} | {
    "两": 2,
    "兩": 2,
    "半": 0,
}


def find_spans(text: str) -> Iterator[tuple[int, str, int]]:
    """Yield the spans of a text ("three weeks ago"): count, unit, and direction (1, -1 or 0)."""
    flat = fold_in_place(ascii_digits(text)).replace("’", "'")
    for unit, span in _spans() if _any_unit().search(flat) else ():
        for match in span.finditer(flat):
            number = _count(match["count"])
            if number is None:
                continue
            around = f"{match['before'] or ''} {match['after'] or ''}"
            yield (
                number,
                unit,
                -1 if pattern("times.back").search(around) else 1 if around.strip() else 0,
            )
    for match in pattern("times.span_unspaced").finditer(text):
        count = _HAN_COUNT.get(match["count"], _count(match["count"]) or 0)
        sign = (
            0
            if not match["after"]
            else -1
            if match["after"] in word_set("times.back_unspaced")
            else 1
        )
        yield count, _unspaced_units()[match["unit"] or match["span"]], sign
    for match in pattern("times.neighbors").finditer(flat):
        yield 1, "d", -1 if match["before"] else 1


def _count(written: str) -> int | None:
    return int(written) if written.isdigit() else count_words().get(written)


def has_season(text: str) -> bool:
    """Return whether a text mentions a season."""
    return bool(pattern("times.seasons").search(text))
