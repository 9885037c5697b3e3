"""What an operator changes by hand.

Each method makes one change and hands it to `Store.apply`, so that a person's edit takes the same
road as everything else: versioned, audited, refused if somebody was first. With ``dry_run``
nothing is written and no model is asked; the report shows what would be.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from edenmem.engine.edit_facts import NO_VECTOR, FactEdits
from edenmem.engine.edit_reflections import ReflectionEdits
from edenmem.engine.edit_scopes import ScopeEdits
from edenmem.engine.edit_texts import TextEdits
from edenmem.engine.policy_changes import POLICY_FIELDS
from edenmem.engine.reports import EditReport
from edenmem.models.changes import SetPrivacy
from edenmem.models.memory import Fact, Reflection

__all__ = ["NO_VECTOR", "POLICY_FIELDS", "Editor"]


class Editor(FactEdits, ReflectionEdits, TextEdits, ScopeEdits):
    """Changes memory on behalf of ``actor``.

    All methods take ``reason`` (kept in the audit entry) and ``dry_run``. They raise
    `NotFoundError` if what is named does not exist (also an agent or user that the host does not
    know), `ConflictError` if it changed since ``expected_version``, and `UsageError` if the
    content is empty or, unless ``allow_long``, over its limit of words.
    """

    async def set_private(
        self,
        target_type: Literal["fact", "reflection"],
        target_id: str,
        private: bool,
        *,
        reason: str = "",
        dry_run: bool = False,
    ) -> EditReport:
        """Keep a fact or reflection from being propagated, or allow it again."""
        before: Fact | Reflection
        if target_type == "fact":
            before = await self._fact(target_id, None)
        else:
            before = await self._reflection(target_id, None)
        change = SetPrivacy(
            scope=before.home,
            target_type=target_type,
            target_id=target_id,
            private=private,
            at=self._clock(),
            reason=reason,
        )
        after = msgspec.structs.replace(before, private=private)
        return await self._apply(change, target_type, target_id, before, after, dry_run)
