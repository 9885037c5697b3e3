"""Parsing of times and durations."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import datetime, timedelta

from edenmem.errors import UsageError
from edenmem.models.ids import as_utc, utc_now
from edenmem.text import ago as ago
from edenmem.text import iso as iso

FORMS = (
    "2025-03-01, 2025-03-01T14:30, 2025-03-01T14:30:00+02:00, or 30m, 12h, 7d, 2w, 6mo, 1y (ago)"
)

_RELATIVE = re.compile(r"([0-9]{1,6})\s*(m|min|h|d|w|mo|y)(?:\s+ago)?\Z")
_UNITS = {
    "m": timedelta(minutes=1),
    "min": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
    "mo": timedelta(days=30),
    "y": timedelta(days=365),
}


def parse_when(text: str | None, option: str, *, now: datetime | None = None) -> datetime | None:
    """Parse a time to UTC; without a zone it is UTC, a date is midnight.

    Raises:
        UsageError: The time is invalid; the hint lists the formats.
    """
    if text is None:
        return None
    given = text.strip()
    try:
        relative = _RELATIVE.match(given.lower())
        if relative:
            return as_utc((now or utc_now()) - int(relative[1]) * _UNITS[relative[2]])
        return as_utc(datetime.fromisoformat(given))
    except (ValueError, OverflowError):
        raise UsageError(f"{option}: invalid time: {text!r}", hint=f"use {FORMS}") from None


def parse_end(text: str, option: str, now: datetime) -> datetime | None:
    """Parse a time of expiry: a duration from now, a time, or ``never`` (None).

    Raises:
        UsageError: The time is invalid.
    """
    given = text.strip().lower()
    if given == "never":
        return None
    with suppress(ValueError, OverflowError):
        if _RELATIVE.match(given):
            return as_utc(now + parse_duration(given, option))
        return as_utc(datetime.fromisoformat(text.strip()))
    raise UsageError(f"{option}: invalid time: {text!r}", hint="use 12h, 90d, 2027-03-01, or never")


_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)\s*(s|m|min|h|d|w|mo|y)?\Z")


def parse_duration(text: str, option: str) -> timedelta:
    """Parse a duration: ``90``, ``90s``, ``10m``, ``12h``, ``30d``; a bare number is seconds.

    Raises:
        UsageError: The duration is invalid or zero.
    """
    found = _DURATION.match(text.strip().lower())
    unit = timedelta(seconds=1) if found and found[2] in (None, "s") else None
    try:
        length = float(found[1]) * (unit or _UNITS[found[2]]) if found else timedelta(0)
    except OverflowError:
        length = timedelta(0)
    if length <= timedelta(0):
        raise UsageError(f"{option}: invalid duration: {text!r}", hint="use 90s, 10m, 12h, 7d")
    return length
