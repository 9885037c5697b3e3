"""Reflections by hand: add, edit, delete."""

from __future__ import annotations

import msgspec

from edenmem.engine import edit_checks as checks
from edenmem.engine.edit_road import EditRoad, owner_fields, unchanged
from edenmem.engine.offload import in_thread
from edenmem.engine.overview import word_limit_of
from edenmem.engine.reports import EditReport
from edenmem.errors import NotFoundError, UsageError
from edenmem.models.changes import AddReflection, RemoveReflection, ReviseReflection
from edenmem.models.ids import new_id
from edenmem.models.memory import Reflection
from edenmem.models.scope import Scope


class ReflectionEdits(EditRoad):
    """Changes of reflections; see `edenmem.engine.editing.Editor`."""

    async def add_reflection(
        self,
        scope: Scope,
        content: str,
        *,
        session_id: str | None = None,
        private: bool = False,
        allow_long: bool = False,
        reason: str = "",
        dry_run: bool = False,
    ) -> EditReport:
        """Add a reflection at the end of the scope's buffer."""
        text = self._reflection_text(content, allow_long)
        policy = await in_thread(checks.check_scope_known, self._store, scope)
        checks.check_open(policy, scope)
        if scope.session_id is not None and session_id not in (None, scope.session_id):
            raise UsageError("a session's reflection comes from that session")
        if session_id is not None:
            await in_thread(checks.check_session_known, self._store, session_id)
        reflection = Reflection(
            id=new_id(),
            **owner_fields(scope, session_id=session_id),
            content=text,
            formed_at=self._clock(),
            private=private,
        )
        change = AddReflection(
            reflection=reflection,
            word_limit=word_limit_of(self._settings, scope, policy),
            reason=reason,
        )
        return await self._apply(change, "reflection", reflection.id, None, reflection, dry_run)

    async def edit_reflection(
        self,
        reflection_id: str,
        content: str,
        *,
        expected_version: int,
        allow_long: bool = False,
        reason: str = "",
        dry_run: bool = False,
    ) -> EditReport:
        """Give a pending reflection a new text; one that is in a text already stays as it is."""
        before = await self._reflection(reflection_id, expected_version)
        if before.absorbed:
            raise UsageError(
                "the reflection is part of the consolidated text by now",
                hint="edit that text: edenmem consolidation edit",
            )
        text = self._reflection_text(content, allow_long)
        if text == before.content:
            return unchanged("reflection", before, dry_run)
        now = self._clock()
        change = ReviseReflection(
            scope=before.home,
            reflection_id=before.id,
            expected_version=before.version,
            content=text,
            at=now,
            reason=reason,
        )
        after = msgspec.structs.replace(
            before, content=text, version=before.version + 1, updated_at=now
        )
        return await self._apply(change, "reflection", before.id, before, after, dry_run)

    async def delete_reflection(
        self,
        reflection_id: str,
        *,
        expected_version: int | None = None,
        reason: str = "",
        dry_run: bool = False,
    ) -> EditReport:
        """Take a reflection away; a text that absorbed it keeps what it says."""
        before = await self._reflection(reflection_id, expected_version)
        change = RemoveReflection(
            scope=before.home,
            reflection_id=before.id,
            expected_version=before.version,
            at=self._clock(),
            reason=reason,
        )
        return await self._apply(change, "reflection", before.id, before, None, dry_run)

    async def _reflection(self, reflection_id: str, expected_version: int | None) -> Reflection:
        reflection = await in_thread(self._store.reflection, reflection_id)
        if reflection is None:
            raise NotFoundError(f"there is no reflection {reflection_id}")
        checks.check_version("reflection", reflection.version, expected_version)
        return reflection

    def _reflection_text(self, content: str, allow_long: bool) -> str:
        limit = self._settings.formation.reflection_words
        return checks.text_of(content, what="reflection", limit=limit, allow_long=allow_long)
