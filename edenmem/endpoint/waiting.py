"""The time to wait before a retry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

FIRST_SECONDS = 0.5
LONGEST_SECONDS = 30.0
LONGEST_ASKED_SECONDS = 60.0


def backoff(
    tried: int, retry_after: float | None, uniform: Callable[[float, float], float]
) -> float:
    """Return the seconds to wait after attempt number ``tried`` (from 0) failed.

    Exponential with full jitter, so that workers that failed together retry at different times.
    At least the time that the endpoint requested, up to a minute.
    """
    jittered = uniform(0.0, min(LONGEST_SECONDS, FIRST_SECONDS * 2**tried))
    if retry_after is None:
        return jittered
    return min(retry_after, LONGEST_ASKED_SECONDS) + min(jittered, FIRST_SECONDS)


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Return the seconds in ``Retry-After`` (number or date), or None without the header."""
    milliseconds = _number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    text = headers.get("retry-after", "").strip()
    seconds = _number(text)
    if seconds is not None or not text:
        return seconds
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - (now or datetime.now(UTC))).total_seconds())


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None
