"""The road that every change by hand takes, and its report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from edenmem.embed.protocol import Embedder
from edenmem.engine.edit_checks import check_result
from edenmem.engine.offload import in_thread
from edenmem.engine.reports import EditReport
from edenmem.errors import NotFoundError
from edenmem.models.changes import Actor, Change, ChangeSet, ChangeStatus, HistoryEntry
from edenmem.models.ids import utc_now
from edenmem.models.memory import Fact
from edenmem.models.scope import Scope
from edenmem.settings.schema import Settings
from edenmem.store.protocol.store import Store


class EditRoad:
    """What the kinds of edits have in common: whom they act for, and the way to the store."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        *,
        embedder: Embedder | None,
        actor: Actor,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self._store = store
        self._settings = settings
        self._embedder = embedder
        self._actor = actor
        self._clock = clock

    async def _apply(
        self,
        change: Change,
        target_type: str,
        target_id: str,
        before: msgspec.Struct | None,
        after: msgspec.Struct | None,
        dry_run: bool,
        notices: tuple[str, ...] = (),
    ) -> EditReport:
        result = None
        if not dry_run:
            changes = ChangeSet(actor=self._actor, at=self._clock(), changes=(change,))
            result = (await in_thread(self._store.apply, changes))[0]
            check_result(result, target_type)
            if result.status is ChangeStatus.DUPLICATE:
                gone = "" if before is None else f", and {target_id} was removed in its favour"
                notices = (f"the scope has this fact already: {result.target_id}{gone}",)
                after = await in_thread(self._store.fact, result.target_id)
        return EditReport(
            action=str(type(change).__struct_config__.tag),
            target_type=target_type,
            target_id=result.target_id if result is not None else target_id,
            before=plain(before),
            after=plain(after),
            dry_run=dry_run,
            result=result,
            notices=notices,
        )


def unchanged(
    target_type: str, document: msgspec.Struct, dry_run: bool, *, why: str = "already the case"
) -> EditReport:
    """The report of a change that would change nothing, and so is not made."""
    data = plain(document)
    return EditReport(
        action="none",
        target_type=target_type,
        target_id=getattr(document, "id", ""),
        before=data,
        after=data,
        dry_run=dry_run,
        notices=(why,),
    )


def version_of(history: Sequence[HistoryEntry], version: int, what: str) -> HistoryEntry:
    """The entry of this version; of several (a fact that was restored) the latest.

    Raises:
        NotFoundError: there is none.
    """
    found = [entry for entry in history if entry.version == version and entry.action != "delete"]
    if found:
        return found[-1]
    there = ", ".join(str(number) for number in sorted({entry.version for entry in history}))
    raise NotFoundError(
        f"there is no version {version} of the {what}",
        hint=f"its versions are {there}" if there else f"the {what} has no versions",
    )


def owner_fields(scope: Scope, *, session_id: str | None = None) -> dict[str, Any]:
    """The fields by which a document belongs to ``scope``; ``session_id`` is its source."""
    return {
        "scope": scope.kind,
        "agent_id": scope.agent_id,
        "user_id": scope.user_id,
        "group_id": scope.group_id,
        "shard": scope.shard_name,
        "session_id": scope.session_id or session_id,
    }


def plain(document: msgspec.Struct | None) -> dict[str, Any] | None:
    """The document as data for people: ISO times, hex ids, no vector."""
    if document is None:
        return None
    if isinstance(document, Fact):
        document = msgspec.structs.replace(document, embedding=None)
    data: dict[str, Any] = msgspec.to_builtins(document)
    data.pop("embedding", None)
    return data
