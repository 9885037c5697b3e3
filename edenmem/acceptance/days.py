"""Check whether messages give a date: explicitly, by implication, or by a combination of both.

An item's own sources decide. Messages near them supply what is missing: the month of "no, the
14th", the week of "no, on Saturday".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, timedelta

from edenmem.acceptance.evidence import Evidence
from edenmem.acceptance.reading import dates
from edenmem.acceptance.reading.dates import Reading, Said

#: Maximum days between a message and a date without a year; beyond, another year is nearer.
_NEAR_DAYS = 335
_YEAR = 366
#: Maximum distance in messages between an item's sources and a month or week for them.
_NEAR_MESSAGES = 3
#: Maximum number of spans of the sources from which dates are derived.
_MOST_SPANS = 4


def is_given(evidence: Evidence, own: Sequence[int], wanted: Reading) -> bool:
    """Return whether the messages at ``own`` give a date, or others if those have no day."""
    if any(gives(evidence, place, wanted) for place in own):
        return True
    if any(_is_agreed(evidence, said, wanted) for said in evidence.other_dates):
        return True
    last = len(evidence.talk.messages) - 1
    steps = range(-_NEAR_MESSAGES, _NEAR_MESSAGES + 1)
    near = {max(0, min(last, place + step)) for place in own for step in steps}
    if _is_span_away(evidence, own, near, wanted):
        return True
    if wanted[2] is not None:
        if any(_is_agreed(evidence, said, wanted) for said in _named(evidence, near - set(own))):
            return not any(names_day(evidence, place) for place in own)
        if _is_day_of_month_near(evidence, own, near, wanted):
            return True
        if any(evidence.talk.other_days[place] or names_day(evidence, place) for place in own):
            return _is_weekday_of_week(evidence, own, near, wanted)
    return any(gives(evidence, place, wanted) for place in near) or any(
        _is_agreed(evidence, said, wanted)
        for said in _named(evidence, range(len(evidence.talk.messages)))
    )


def gives(evidence: Evidence, place: int, wanted: Reading) -> bool:
    """Return whether a message mentions or implies a date, or was sent on it."""
    asked = place, wanted
    if asked not in evidence.talk.given:
        evidence.talk.given[asked] = _gives(evidence, place, wanted)
    return evidence.talk.given[asked]


def _gives(evidence: Evidence, place: int, wanted: Reading) -> bool:
    return (
        any(_is_agreed(evidence, said, wanted) for said in evidence.talk.named_dates[place])
        or any(_is_meant(wanted, one) for one in evidence.talk.meant[place])
        or _is_day_of_named_month(evidence, place, wanted)
        or _is_day_of(evidence, place, wanted)
    )


def _named(evidence: Evidence, places: Iterable[int]) -> Iterable[Said]:
    return (said for place in places for said in evidence.talk.named_dates[place])


def names_day(evidence: Evidence, place: int) -> bool:
    """Return whether a message mentions a day of a month."""
    return any(
        None not in other[1:] for said in _named(evidence, (place,)) for other in said.readings
    )


def implies_day(evidence: Evidence, place: int) -> bool:
    """Return whether a message implies a day other than its own."""
    return bool(evidence.talk.other_days[place])


def is_near(evidence: Evidence, place: int, wanted: Reading, most: int) -> bool:
    """Return whether a date is at most ``most`` days from a message."""
    year, month, day = wanted
    return abs(_days(year, month, day, evidence.talk.messages[place].sent_at.date())) <= most


def _is_agreed(evidence: Evidence, said: Said, wanted: Reading) -> bool:
    """Return whether an explicit date is the wanted one; without a year, the nearest counts."""
    year, _, day = wanted
    return any(
        _agree(wanted, other)
        and (other[2] is not None or day is None)
        and (
            year is None
            or other[0] is not None
            or any(
                abs(_days(year, other[1], other[2], one.sent_at.date())) <= _NEAR_DAYS
                for one in evidence.talk.messages
            )
        )
        for other in said.readings
    )


def _is_meant(wanted: Reading, one: dates.Meant) -> bool:
    year, month, day = wanted
    if month is None:
        return year is None or one.first.year <= year <= one.last.year
    if day is not None and one.unit in ("m", "y"):
        return False
    at = one.first
    for _ in range(min((one.last - one.first).days, _YEAR) + 1):
        if _agree((at.year, at.month, at.day), wanted):
            return True
        at += timedelta(days=1)
    return False


def _is_day_of_named_month(evidence: Evidence, place: int, wanted: Reading) -> bool:
    """Return whether a message gives month and day apart ("from the 13th of March to the 17th")."""
    year, month, day = wanted
    sent = evidence.talk.messages[place].sent_at.date()
    if month not in evidence.talk.months[place] or (year is not None and abs(year - sent.year) > 1):
        return False
    return day is None or _has_day_number(evidence, place, day)


def _is_day_of(evidence: Evidence, place: int, wanted: Reading) -> bool:
    """Return whether a date is the day of a message, or a day of a month near it that it mentions.

    The day of the message is not meant if the message mentions another one ("tomorrow").
    """
    year, month, day = wanted
    sent = evidence.talk.messages[place].sent_at.date()
    has_other = bool(evidence.talk.other_days[place])
    if _agree((sent.year, sent.month, sent.day), wanted) and (day is None or not has_other):
        return True
    if not _is_day_of_month(evidence, place, wanted):
        return False
    at = _day(year or sent.year, month, day)
    return (
        not has_other
        or day in evidence.talk.day_numbers[place][1]
        or (at is not None and at.weekday() in evidence.talk.weekdays[place])
    )


def _is_day_of_month(evidence: Evidence, place: int, wanted: Reading) -> bool:
    """Return whether a message mentions a day ("the 14th") of its own month or an adjacent one."""
    year, month, day = wanted
    if day is None or month is None:
        return False
    sent = evidence.talk.messages[place].sent_at.date()
    return (
        (month - sent.month) % 12 in (0, 1, 11)
        and (year is None or abs(_days(year, month, day, sent)) <= 62)
        and _has_day_number(evidence, place, day)
    )


def _has_day_number(evidence: Evidence, place: int, day: int) -> bool:
    """Return whether a message gives a day of a month by number, in digits or in words."""
    if day in evidence.talk.day_numbers[place][0]:
        return True
    return (
        float(day) in evidence.talk.numbers_said[place]
        and str(day) not in evidence.talk.messages[place].text
    )


def _is_day_of_month_near(
    evidence: Evidence, own: Iterable[int], near: Iterable[int], wanted: Reading
) -> bool:
    """Return whether the sources give the day ("no, the 14th") and nearby messages the month."""
    year, month, day = wanted
    months = {one for place in near for one in evidence.talk.months[place]}
    return (
        day is not None
        and month in months
        and any(
            _has_day_number(evidence, place, day)
            and not names_day(evidence, place)
            and abs(_days(year, month, day, evidence.talk.messages[place].sent_at.date())) < _YEAR
            for place in own
        )
    )


def _is_weekday_of_week(
    evidence: Evidence, own: Iterable[int], near: Iterable[int], wanted: Reading
) -> bool:
    """Return whether a date is a weekday of the sources in a week of nearby messages.

    Corrections take this form: "next Friday" - "no, Saturday".
    """
    year, month, day = wanted
    weekdays = {
        one
        for place in own
        if not evidence.talk.weeks[place]
        for one in evidence.talk.weekdays[place]
    }
    for place in near:
        sent = evidence.talk.messages[place].sent_at.date()
        at = _day(year or sent.year, month, day)
        if at is None or at.weekday() not in weekdays:
            continue
        days = [one.first for one in evidence.talk.meant[place] if one.unit in "dw"]
        days += filter(
            None,
            (
                _day(other[0] or sent.year, other[1], other[2])
                for said in evidence.talk.named_dates[place]
                for other in said.readings
            ),
        )
        if any(one.isocalendar()[:2] == at.isocalendar()[:2] for one in days):
            return True
    return False


def _is_span_away(
    evidence: Evidence, own: Iterable[int], near: Iterable[int], wanted: Reading
) -> bool:
    """Return whether a date is a span of the sources away from an explicit or implied day."""
    year, month, day = wanted
    if day is None or month is None:
        return False
    spans = [span for place in own for span in evidence.talk.spans[place]][:_MOST_SPANS]
    # "six days from the 17th" end on the 22nd
    spans += [(count - 1, unit, 1) for count, unit, sign in spans if unit == "d" and count > 2]
    for place in near if spans else ():
        sent = evidence.talk.messages[place].sent_at.date()
        for count, unit, sign in spans:
            for step in (-sign,) if sign else (-1, 1):
                start = dates.shift(year or sent.year, month, day, step * count, unit)
                if start is not None and (
                    any(
                        other[2] is not None and _agree((None, *start[1:]), other)
                        for said in evidence.talk.named_dates[place]
                        for other in said.readings
                    )
                    or any(_is_meant(start, one) for one in evidence.talk.other_days[place])
                    or (count > 1 and _is_day_of_month(evidence, place, start))
                ):
                    return True
    return False


def _agree(one: Reading, other: Reading) -> bool:
    return all(a is None or b is None or a == b for a, b in zip(one, other, strict=True))


def _days(year: int | None, month: int | None, day: int | None, sent: date) -> int:
    """Return the distance of a date in days; missing parts are taken from ``sent``."""
    at = _day(year or sent.year, month or sent.month, day or sent.day)
    return 1000 if at is None else (at - sent).days


def _day(year: int, month: int | None, day: int | None) -> date | None:
    try:
        return None if month is None or day is None else date(year, month, day)
    except ValueError:
        return None
