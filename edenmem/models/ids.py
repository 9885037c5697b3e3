"""IDs of 24 hex digits, the same on every store.

Like MongoDB's ObjectId, an ID starts with 4 bytes of seconds. The 3-byte counter precedes the 5
random bytes of the process, so that short prefixes are unique. ``bson`` is not used: its import
takes a third of the start-up time, and the engine is independent of the database.
"""

from __future__ import annotations

import itertools
import os
import re
import time
from datetime import UTC, datetime

_HEX24 = re.compile(r"[0-9a-f]{24}\Z")
_pid = os.getpid()
_process = os.urandom(5)
_counter = itertools.count(int.from_bytes(os.urandom(3), "big"))


def new_id(at: datetime | None = None) -> str:
    """Return a new ID; the first eight digits are the seconds of ``at`` (default: now)."""
    global _pid, _process
    if os.getpid() != _pid:  # a forked child must not repeat the IDs of its parent
        _pid, _process = os.getpid(), os.urandom(5)
    seconds = int(at.timestamp() if at is not None else time.time()) & 0xFFFFFFFF
    count = next(_counter) & 0xFFFFFF
    return (seconds.to_bytes(4, "big") + count.to_bytes(3, "big") + _process).hex()


def time_of(id: str) -> datetime:
    """Return when an ID was made, in whole seconds."""
    return datetime.fromtimestamp(int(id[:8], 16), UTC)


def derived_id(*parts: str) -> str:
    """Return the same ID for the same parts, so that repeated work creates no duplicates."""
    import hashlib  # loads OpenSSL, which most commands do without

    raw = [part.encode("utf-8", "surrogatepass") for part in parts]
    framed = b"".join([len(each).to_bytes(8, "big") + each for each in raw])
    return hashlib.sha256(framed).hexdigest()[:24]


def is_id(text: str) -> bool:
    """Check for a full ID (24 lower-case hex digits)."""
    return _HEX24.match(text) is not None


def utc_now() -> datetime:
    """Return the current time in UTC, in whole milliseconds (the precision of MongoDB)."""
    now = datetime.now(UTC)
    return now.replace(microsecond=now.microsecond // 1000 * 1000)


def as_utc(moment: datetime) -> datetime:
    """Convert a time to UTC in whole milliseconds; a time without zone is UTC.

    Raises:
        ValueError: the time in UTC is before the year 1 or after 9999.
    """
    if moment.tzinfo is not UTC and moment.tzinfo is not None:
        try:
            moment = moment.astimezone(UTC)
        except OverflowError as error:
            raise ValueError(f"time out of range: {moment.isoformat()}") from error
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000, tzinfo=UTC)
