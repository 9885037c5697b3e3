"""Consolidated texts by hand: edit, and restore an earlier version."""

from __future__ import annotations

import msgspec

from edenmem.engine import edit_checks as checks
from edenmem.engine.drafting import without_version
from edenmem.engine.edit_road import EditRoad, owner_fields, unchanged, version_of
from edenmem.engine.offload import in_thread
from edenmem.engine.overview import word_limit_of
from edenmem.engine.reports import EditReport
from edenmem.models.changes import WriteConsolidation
from edenmem.models.memory import Consolidation
from edenmem.models.scope import Scope


class TextEdits(EditRoad):
    """Changes of consolidated texts; see `edenmem.engine.editing.Editor`."""

    async def edit_consolidation(
        self,
        scope: Scope,
        content: str,
        *,
        expected_version: int,
        allow_long: bool = False,
        reason: str = "",
        dry_run: bool = False,
    ) -> EditReport:
        """Write the scope's text as its next version; pending reflections stay pending."""
        policy = await in_thread(checks.check_scope_known, self._store, scope)
        before = (await in_thread(self._store.consolidations, [scope])).get(scope)
        checks.check_version("text", before.version if before else 0, expected_version)
        limit = word_limit_of(self._settings, scope, policy)
        text = checks.text_of(
            without_version(content), what="text", limit=limit, allow_long=allow_long
        )
        if before is not None and text == before.consolidated_content:
            return unchanged("consolidation", before, dry_run)
        return await self._write_text(scope, before, text, limit, reason, dry_run)

    async def restore_consolidation(
        self, scope: Scope, version: int, *, reason: str = "", dry_run: bool = False
    ) -> EditReport:
        """Write an earlier version's text as a new version; pending reflections stay pending."""
        policy = await in_thread(checks.check_scope_known, self._store, scope)
        history = await in_thread(self._store.history, "consolidation", "", scope=scope)
        text = version_of(history, version, "text").content
        before = (await in_thread(self._store.consolidations, [scope])).get(scope)
        if before is not None and text == before.consolidated_content:
            return unchanged("consolidation", before, dry_run)
        limit = word_limit_of(self._settings, scope, policy)
        why = reason or f"version {version} restored"
        return await self._write_text(scope, before, text, limit, why, dry_run)

    async def _write_text(
        self,
        scope: Scope,
        before: Consolidation | None,
        text: str,
        limit: int,
        reason: str,
        dry_run: bool,
    ) -> EditReport:
        now = self._clock()
        base = before or Consolidation(id="", **owner_fields(scope))
        change = WriteConsolidation(
            scope=scope,
            expected_version=base.version,
            content=text,
            word_limit=limit,
            at=now,
            reason=reason,
        )
        after = msgspec.structs.replace(
            base,
            consolidated_content=text,
            version=base.version + 1,
            word_limit=limit,
            absorbed_ids=(),
            updated_at=now,
        )
        return await self._apply(change, "consolidation", base.id, before, after, dry_run)
