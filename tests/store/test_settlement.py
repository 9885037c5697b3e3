"""How the platform's cursor passes over forgotten messages: one rule for both stores."""

from __future__ import annotations

from datetime import timedelta

import pytest

from edenmem.store.common.progress import Place, pass_over
from tests.support.builders import NOW

SECOND = timedelta(seconds=1)


def id_at(seconds: int) -> str:
    """The ID of a message of that time."""
    return f"{int(NOW.timestamp()) + seconds:08x}{'0' * 16}"


def place(seconds: int, id: str = "") -> Place:
    return Place(NOW + seconds * SECOND, id or id_at(seconds))


@pytest.mark.parametrize(
    ("others", "deleted_cursor", "last", "left"),
    [
        pytest.param({}, None, 4, 0, id="nobody else writes"),
        pytest.param({3}, None, 2, 2, id="it stops before the next person's message"),
        pytest.param({0, 1}, None, 4, 0, id="earlier messages do not count"),
        pytest.param({2, 4}, 3, 3, 1, id="up to a deleted cursor all messages count as formed"),
        pytest.param({3}, 3, 4, 0, id="also those of its moment"),
        pytest.param({2}, 0, 1, 3, id="a deleted cursor before them changes nothing"),
    ],
)
def test_the_cursor_stops_before_others(
    others: set[int], deleted_cursor: int | None, last: int, left: int
) -> None:
    messages = [(place(second), second in others) for second in range(1, 5)]
    cursor = None if deleted_cursor is None else id_at(deleted_cursor)
    assert pass_over(messages, place(1), cursor) == (id_at(last), left)


def test_messages_of_one_moment_are_ordered_by_id() -> None:
    mine, theirs = place(1), place(1, "f" * 24)
    assert pass_over([(mine, False), (theirs, True)], mine, None) == (mine.id, 1)
