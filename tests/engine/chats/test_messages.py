"""What of a request is new in a session with a key."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from edenmem.engine.chats.messages import CUT_OFF, Said, find_news
from edenmem.models.host import Message
from edenmem.models.ids import utc_now

_ROLES = ("user", "assistant")


def _news(stored: Sequence[str], given: Sequence[str]) -> list[str]:
    """The new texts of a request; both are turns of user and assistant."""
    old = [
        Message(
            id=str(place),
            session_id="s",
            role=_ROLES[place % 2],  # type: ignore[arg-type]
            content=text,
            created_at=utc_now(),
        )
        for place, text in enumerate(stored)
    ]
    said = [
        Said(role=_ROLES[place % 2], content=text)  # type: ignore[arg-type]
        for place, text in enumerate(given)
    ]
    return [given[place] for place in find_news(old, said)]


@pytest.mark.parametrize(
    ("stored", "given", "new"),
    [
        # a window whose words repeat: the answers tell where it stands
        (["A", "a", "yes", "1", "yes", "2"], ["yes", "2", "yes"], ["yes"]),
        (["yes", "1", "yes", "2", "yes", "3"], ["yes", "2", "yes", "3", "yes"], ["yes"]),
        (["A", "a", "yes", "1", "yes", f"2\n\n{CUT_OFF}: x]"], ["yes", "2", "yes"], ["yes"]),
        # the same asked again
        (["A", "a", "yes", "1", "yes", "2"], ["yes", "1", "yes"], []),
        # a client that changes answers, or leaves them out of what it keeps
        (["A", "a", "yes", "1", "yes", "2"], ["yes", "one", "yes"], []),
        (["A", "a", "yes", "1", "yes", "2"], ["A", "x", "yes", "y", "yes", "z", "B"], ["B"]),
    ],
)
def test_a_window_takes_its_place(stored: list[str], given: list[str], new: list[str]) -> None:
    assert _news(stored, given) == new
