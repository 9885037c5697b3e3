"""The defaults that depend on whether the platform uses the database.

The platform's own numbers differ from edenmem's. Where both work on the same memory, the platform's
apply, except for settings that the operator configured.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Numbers(NamedTuple):
    """The default of a setting in a database of edenmem's own, and in one of the platform."""

    own: int
    platform: int


class Words(NamedTuple):
    """The same for a setting that is a word."""

    own: str
    platform: str


DEFAULTS: Mapping[str, Numbers | Words] = {
    "formation.message_interval": Numbers(45, 25),
    "formation.token_interval": Numbers(1500, 1500),
    "formation.min_messages": Numbers(1, 4),
    # The platform reads every fact as certain.
    "formation.doubtful": Words("mark", "hold"),
    "scopes.session.consolidate_at": Numbers(4, 6),
    "scopes.session.word_limit": Numbers(200, 1500),
    "scopes.user.consolidate_at": Numbers(4, 4),
    "scopes.user.word_limit": Numbers(300, 600),
    "scopes.agent.consolidate_at": Numbers(10, 10),
    "scopes.agent.word_limit": Numbers(1200, 2000),
}

#: Percentage by which a new text may exceed its word limit, with a notice.
OVERFLOW = 20


def own_default(key: str) -> int:
    """Return the default in a database of edenmem's own."""
    number = DEFAULTS[key].own
    assert isinstance(number, int)
    return number
