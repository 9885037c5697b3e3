"""Times of day: those that a text writes as such, and those that it may mean."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import msgspec

from edenmem.acceptance.numbers import said_numbers
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
#: Half and quarters: the minutes that they add, and whether the hour follows ("half past three")
#: or goes before ("tres y media").
_PARTS = tuple(
    (minutes, follows, re.compile(pattern, re.IGNORECASE))
    for minutes, follows, pattern in (
        (
            (30,),
            True,
            r"\bhalf (?:past )?(?!een\b|twee|drie|vier|vijf|zes|zeven|acht|negen|tien|elf)",
        ),
        (
            (-30,),
            True,
            r"\b(?:halb|halv|half(?= (?:een|twee|drie|vier|vijf|zes|zeven|acht|negen|tien|elf|twaalf)\b)"
            r"|wpół do|половина)\b|\bпол(?=\w)",
        ),
        ((30,), False, r"\b(?:et demie?|y media|e mezz[ao]|e meia|buçuk)\b|半|반"),
        ((15,), True, r"\b(?:quarter past|viertel nach|kwart over|kvart över)\b"),
        (
            (-15,),
            True,
            r"\b(?:quarter (?:to|of|before)|viertel vor|kwart voor|kvart i|без четверти)\b",
        ),
        (
            (15,),
            False,
            r"\b(?:(?:et|y|e) (?:un |le |um )?(?:quart|cuarto|quarto)|çeyrek geç\w*)\b|一刻",
        ),
        (
            (-15,),
            False,
            r"\b(?:moins le quart|menos (?:un |um )?(?:cuarto|quarto)|meno un quarto|çeyrek (?:var|kala))\b",
        ),
        ((-45, -15), True, r"\b(?:viertel(?! (?:vor|nach))|четверть)\b"),
        ((-15,), True, r"\bdreiviertel\b"),
    )
)
#: How far the hour may be from these words.
_NEAR = 14
#: A span of time that another time is worked out with.
_DURATION = re.compile(
    r"(?P<half>half an hour|halbe stunde|demi-?heure|media hora|mezz['’ ]?ora|meia hora|half uur|pół godziny"
    r"|halvtimme|полчаса|пів ?години|yarım saat|نصف ساعة|आधा घंटा|आधे घंटे|半小时|半个小时|半時間|반 ?시간)"
    r"|(?P<count>\d{1,3}|[^\W\d_]{1,14})[ -]?(?:(?P<minutes>min(?:ut\w*)?\b|минут\w*|хвилин\w*|dakika\w*|دقائق|دقيقة|मिनट|分[钟鐘間]?|분)"
    r"|(?P<hours>hours?\b|stunden?\b|heures?\b|horas?\b|or[ae]\b|uur\b|uren\b|timm\w+|godzin\w*|час\w*|годин\w*|saat\w*|ساعات|ساعة|घंटे|小时|時間|시간))",
    re.IGNORECASE,
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
    for shifts, follows, pattern in _PARTS:
        for match in pattern.finditer(text):
            if follows:
                beside = text[match.end() : match.end() + _NEAR]
            else:
                beside = text[max(match.start() - _NEAR, 0) : match.start()]
            named = {int(one) for one in said_numbers((beside,)) if 0 < one <= 24} or hours
            found |= {(hour * 60 + shift) % 720 for hour in named for shift in shifts}
    if _NOON.search(text) or _MIDNIGHT.search(text):
        found.add(0)
    return frozenset(found)


def said_durations(text: str) -> frozenset[int]:
    """The spans of minutes and hours that a text names, in minutes."""
    found: set[int] = set()
    for match in _DURATION.finditer(ascii_digits(text)):
        if match["half"]:
            found.add(30)
            continue
        scale = 1 if match["minutes"] else 60
        found |= {int(one * scale) for one in said_numbers((match["count"],)) if one < 600}
    return frozenset(found)
