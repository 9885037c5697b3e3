"""Times of day: those that a text writes as such, and those that it may mean."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import msgspec

from edenmem.acceptance.words import ascii_digits

_TIME = re.compile(
    r"(?<![\d.:,])(?P<h>\d{1,2})(?:\s?[:.h時时点點시]\s?(?P<min>\d{2})(?![\d])[分분]?)?(?:\s?(?P<half>半))?"
    r"\s?(?P<mark>a\.?m\b\.?|p\.?m\b\.?|uhr\b|o'?clock\b|o’clock\b|h\b|heures?\b|hrs?\b|noon\b"
    r"|klo\b|時|时|点|點|시)?"
    r"(?:\s?(?P<after>\d{2})(?!\d))?",
    re.IGNORECASE,
)
_AFTERNOON = re.compile(r"(?:下午|晚上|午後|傍晚|夜|오후|中午)\s?$")
_NOON = re.compile(
    r"\b(?:noon|midday|mittags?|mezzogiorno|mediod[ií]a|midi|meio-dia|полдень|öğlen)\b"
    r"|中午|正午|정오",
    re.I,
)
_MIDNIGHT = re.compile(
    r"\b(?:midnight|mitternacht|minuit|medianoche|mezzanotte|meia-noite|полночь|gece yarısı)\b"
    r"|午夜|零点|자정",
    re.I,
)
#: Half and quarters: the minutes that they add to the hour, by language's habit.
_PARTS = tuple(
    (minutes, re.compile(pattern, re.IGNORECASE))
    for minutes, pattern in (
        ((30,), r"\b(?:half past|et demie?|y media|e mezz[ao]|e meia|buçuk)\b|半|반"),
        ((-30,), r"\b(?:halb|half(?! past)|halv|wpół|пол|половин\w*)\b|\bпол(?=\w)"),
        ((30,), r"\bhalf\b(?! (?:een|twee|drie|vier|vijf|zes|zeven|acht|negen|tien|elf|twaalf)\b)"),
        (
            (15, -15),
            r"\b(?:quarter|viertel|quart|cuarto|quarto|kwart|kvart|четверть|çeyrek)\b|一刻",
        ),
    )
)


class Time(msgspec.Struct, frozen=True):
    """A time of day in a text; ``minutes`` are those since midnight that it may mean."""

    written: str
    start: int
    end: int
    minutes: frozenset[int]


def find_times(text: str) -> Iterator[Time]:
    """The times of day that a text writes as such: with a colon, "pm", "Uhr", "h" or the like."""
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
        if mark == "pm" or _AFTERNOON.search(flat[max(match.start() - 4, 0) : match.start()]):
            hour = hour % 12 + 12
        elif mark == "am":
            hour %= 12
        yield Time(
            flat[match.start() : end].strip(),
            match.start(),
            end,
            frozenset({(hour * 60 + minute) % 1440}),
        )


def said_minutes(text: str, numbers: Iterable[float]) -> frozenset[int]:
    """The minutes of the day that a text may mean, in 12 hours: "at 3" is 3:00 and 15:00."""
    found = {minute % 720 for time in find_times(text) for minute in time.minutes}
    hours = {int(number) for number in numbers if 0 < number <= 24 and number == int(number)}
    found |= {hour * 60 % 720 for hour in hours}
    for number in numbers:  # 15.30 and 3.45 as times
        hour, rest = divmod(round(number * 100), 100)
        if 0 < hour <= 24 and 0 < rest < 60 and abs(number * 100 - round(number * 100)) < 1e-6:
            found.add((hour * 60 + rest) % 720)
    for shifts, pattern in _PARTS:
        if pattern.search(text):
            found |= {(hour * 60 + shift) % 720 for hour in hours for shift in shifts}
    if _NOON.search(text) or _MIDNIGHT.search(text):
        found.add(0)
    return frozenset(found)
