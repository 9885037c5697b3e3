"""What `doctor` is told by a store: all that is stored, decoded or not, and what is amiss."""

from __future__ import annotations

from typing import Literal

import msgspec

from edenmem.models.scope import Scope

#: What an id may be looked up as. A "person" is an account, or the canonical id of one,
#: a "group" by a session that names it.
PresenceKind = Literal[
    "agent", "person", "session", "group", "message", "reflection", "consolidation"
]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is not as it should be: which, whose, and in words how.

    ``text`` is the content that it is about, if there is one; ``related`` are ids that a repair
    needs or a person wants to look at, such as the twin of a duplicate.
    """

    target_type: str
    target_id: str
    detail: str
    agent_id: str = ""
    scope: Scope | None = None
    text: str = ""
    related: tuple[str, ...] = ()
