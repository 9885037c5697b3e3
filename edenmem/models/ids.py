"""Identifiers: 24 hex digits everywhere, so that a document has one id on every store.

As in MongoDB's ObjectId, 4 bytes of seconds come first; but the 3-byte counter comes before the
5 random bytes of the process, so that ids made together differ early and short prefixes tell them
apart. Written here because importing ``bson`` costs a third of the start-up time and the engine
does not know which database is behind it.
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
    """A new id; its first eight digits are the seconds of ``at`` (default: now)."""
    global _pid, _process
    if os.getpid() != _pid:  # a forked child must not repeat its parent's ids
        _pid, _process = os.getpid(), os.urandom(5)
    seconds = int(at.timestamp() if at is not None else time.time()) & 0xFFFFFFFF
    count = next(_counter) & 0xFFFFFF
    return (seconds.to_bytes(4, "big") + count.to_bytes(3, "big") + _process).hex()


def derived_id(*parts: str) -> str:
    """The same id for the same parts, for things that must not be made twice."""
    import hashlib  # loads OpenSSL, which most commands do without

    digest = hashlib.sha256()
    for part in parts:
        raw = part.encode("utf-8", "surrogatepass")
        digest.update(len(raw).to_bytes(8, "big") + raw)
    return digest.hexdigest()[:24]


def is_id(text: str) -> bool:
    """Whether ``text`` is a whole id (24 lower-case hex digits)."""
    return _HEX24.match(text) is not None


def utc_now() -> datetime:
    """The current time, aware, in UTC, in whole milliseconds (the precision that MongoDB keeps)."""
    now = datetime.now(UTC)
    return now.replace(microsecond=now.microsecond // 1000 * 1000)


def as_utc(moment: datetime) -> datetime:
    """``moment`` as aware UTC in whole milliseconds; one without a zone is taken to be UTC.

    Raises:
        ValueError: in UTC, it is before the year 1 or after 9999.
    """
    try:
        aware = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"the time is out of range: {moment.isoformat()}") from error
    return aware.replace(microsecond=aware.microsecond // 1000 * 1000)
