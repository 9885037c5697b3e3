"""The way back of consolidated texts: an old one as a new version, reflections waiting again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from edenmem.engine.edit_road import plain
from edenmem.engine.undo_reports import NO_CHANGE, Way, no_way, nothing_to_do
from edenmem.models.changes import (
    AuditEntry,
    HistoryEntry,
    RevertConsolidation,
    WriteConsolidation,
)
from edenmem.models.memory import Consolidation, Reflection
from edenmem.store.protocol.store import Store


class TextWays:
    """Finds the way back of texts, and where reflections went."""

    def __init__(self, store: Store, at: datetime, *, force: bool) -> None:
        self._store = store
        self._at = at
        self._force = force

    def _write_consolidation(self, entry: AuditEntry) -> Way:
        home = entry.scope
        assert home is not None
        old = _text_in(entry.before)
        new = msgspec.convert(entry.after, Consolidation)
        now = self._store.consolidations([home]).get(home)
        if now is None:
            return nothing_to_do("the text is not there any more")
        if old == new.consolidated_content and not new.absorbed_ids:
            return nothing_to_do(NO_CHANGE, plain(now))
        still = self._absorbed_since(now, new)
        differs = now.consolidated_content != new.consolidated_content or bool(still)
        # Whoever overrules later versions lets wait what went into them, too: their text goes.
        released = self._absorbed([*new.absorbed_ids, *(still if self._force else ())], now)
        if now.consolidated_content == old and not released:
            return nothing_to_do("the text says so already", plain(now))
        last = now.version if self._force else new.version
        change = RevertConsolidation(
            scope=home,
            expected_version=now.version,
            content=old,
            word_limit=_limit_in(entry.before) or now.word_limit,
            at=self._at,
            released_ids=tuple(each.id for each in released),
            reverted_versions=tuple(range(new.version, last + 1)),
        )
        return Way(
            change=change,
            differs=differs,
            before=plain(now),
            after=plain(_next(now, old, waiting=self._in_order(now, released))),
            notices=_told(released, "wait again to be consolidated"),
        )

    def _revert_consolidation(self, entry: AuditEntry) -> Way:
        """The way back of a way back: the text that was there, with what was in it."""
        home = entry.scope
        assert home is not None
        then = msgspec.convert(entry.before, Consolidation)
        new = msgspec.convert(entry.after, Consolidation)
        now = self._store.consolidations([home]).get(home)
        if now is None:
            return no_way("the text is not there any more")
        differs = now.consolidated_content != new.consolidated_content or bool(
            self._absorbed_since(now, new)
        )
        waiting = set(now.unabsorbed_ids)
        released = entry.released_ids
        absorbed = tuple(each for each in released if each in waiting)
        old = then.consolidated_content
        if now.consolidated_content == old and not absorbed:
            return nothing_to_do("the text says so already", plain(now))
        lost = len(released) - len(absorbed)
        left = tuple(each for each in now.unabsorbed_ids if each not in absorbed)
        common: dict[str, Any] = {
            "scope": home,
            "expected_version": now.version,
            "content": old,
            "at": self._at,
        }
        limit = then.word_limit or now.word_limit
        change: RevertConsolidation | WriteConsolidation
        if old:
            propagate = then.version in then.unpropagated_versions
            change = WriteConsolidation(
                **common, word_limit=limit, absorbed_ids=absorbed, propagate=propagate
            )
        else:
            change = RevertConsolidation(**common, word_limit=limit)
        return Way(
            change=change,
            differs=differs,
            before=plain(now),
            after=plain(_next(now, old, waiting=left)),
            notices=(f"{lost} reflections do not wait any more, and stay as they are",)
            if lost
            else (),
        )

    def _repair_buffer(self, entry: AuditEntry) -> Way:
        return no_way("a repair has no way back: it made a buffer agree with what is in it")

    # -- where reflections went --------------------------------------------------------------

    def _absorbed_by(self, reflection: Reflection) -> tuple[str, ...]:
        """The entry by which a reflection went into the text."""
        history = self._store.history("consolidation", "", scope=reflection.home)
        by = [each.change_id for each in history if reflection.id in each.absorbed_ids]
        return tuple(each for each in by[-1:] if each is not None)

    def _released_since(self, entry: AuditEntry) -> bool:
        """Whether the version that a removed reflection went into, or one before it, was taken
        back after the removal."""
        assert entry.scope is not None
        history = self._store.history("consolidation", "", scope=entry.scope)
        into = [each.version for each in history if entry.target_id in each.absorbed_ids]
        reverts = self._store.audit(
            scope=entry.scope, actions=["revert_consolidation"], since=entry.at
        )
        undone = self._store.audit_entries([each.undoes for each in reverts if each.undoes])
        return bool(into) and any(
            each.action == "write_consolidation" and _version_in(each.after) <= into[-1]
            for each in undone.values()
        )

    def _absorbed_since(self, now: Consolidation, then: Consolidation) -> list[str]:
        """What went into later versions, is in the text still, and was not when it was ``then``."""
        history = self._store.history("consolidation", "", scope=now.home)
        before = _absorbed_in(each for each in history if each.version <= then.version)
        inside = before - set(then.unabsorbed_ids)
        later = _absorbed_in(each for each in history if each.version > then.version)
        return [each.id for each in self._absorbed(later - inside, now)]

    def _absorbed(self, ids: Iterable[str], now: Consolidation) -> list[Reflection]:
        """Those that are there and in the text, in order of time."""
        found = self._store.reflections_by_ids(list(dict.fromkeys(ids))).values()
        inside = (each for each in found if each.absorbed and each.home == now.home)
        return sorted(inside, key=lambda each: (each.formed_at, each.id))

    def _in_order(self, now: Consolidation, released: Sequence[Reflection]) -> tuple[str, ...]:
        waiting = [*self._store.pending(now.home), *released]
        return tuple(
            each.id for each in sorted(waiting, key=lambda each: (each.formed_at, each.id))
        )


def _absorbed_in(versions: Iterable[HistoryEntry]) -> set[str]:
    return {each for version in versions for each in version.absorbed_ids}


def _text_in(document: dict[str, object] | None) -> str:
    return str((document or {}).get("consolidated_content", ""))


def _version_in(document: dict[str, object] | None) -> int:
    return msgspec.convert((document or {}).get("version", 0), int)


def _limit_in(document: dict[str, object] | None) -> int:
    return msgspec.convert((document or {}).get("word_limit", 0), int)


def _next(now: Consolidation, content: str, *, waiting: tuple[str, ...]) -> Consolidation:
    return msgspec.structs.replace(
        now,
        consolidated_content=content,
        version=now.version + 1,
        absorbed_ids=(),
        unabsorbed_ids=waiting,
    )


def _told(released: Sequence[Reflection], what: str) -> tuple[str, ...]:
    count = len(released)
    return (f"{count} reflection{'s' if count > 1 else ''} {what}",) if count else ()
