"""Findings of a store's integrity checks, for `doctor`."""

from __future__ import annotations

from typing import Literal

import msgspec

from edenmem.models.scope import Scope

#: Kinds of objects to look up by ID. A "person" is an account or canonical ID; a "group" exists if
#: a session refers to it.
PresenceKind = Literal[
    "agent", "person", "session", "group", "message", "reflection", "consolidation"
]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A defect of one document.

    ``text`` is the affected content, if any; ``related`` are IDs for a repair or for the operator,
    such as the twin of a duplicate.
    """

    target_type: str
    target_id: str
    detail: str
    agent_id: str = ""
    scope: Scope | None = None
    text: str = ""
    related: tuple[str, ...] = ()
