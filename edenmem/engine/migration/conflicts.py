"""Decide on a text of v1 where v2 has, or had, a text of its own.

The log says who wrote the current text: a run of a migration, or another writer since. A text that
no run wrote is v2's own, and ``on_conflict`` applies to it, once. A text that a run wrote follows
v1 until it is changed here. Runs that were taken back do not count.

`decide` is pure; runs and dry runs both use it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Literal

import msgspec

from edenmem.engine.history.undo import chains_of
from edenmem.engine.migration.items import ABSORBED_LATER, REPLACED_LATER, SHORTENED, Treatment
from edenmem.models.memory import Consolidation
from edenmem.models.records import HistoryEntry
from edenmem.models.v1 import V1EarlierText, V1Text
from edenmem.store.protocol.store import Store

OnConflict = Literal["keep", "append", "replace"]

#: What stands between a text of v2 and the one of v1 that was appended to it.
APPENDED = "## From the memory of the first version"


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """A decision on one text of v1.

    Attributes:
        content: The text to write; None: none.
        version: The version of v2's text that the decision is based on; 0: there is none.
        earlier: The older texts to write before it.
        treatment: The treatment of the current text, if v1's differs.
        detail: The reason, for people.
    """

    content: str | None = None
    version: int = 0
    earlier: tuple[V1EarlierText, ...] = ()
    treatment: Treatment | None = None
    detail: str = ""


class Moved(msgspec.Struct, frozen=True):
    """A version of a text that a run of a migration wrote. ``whole`` is v1's own part of it,
    ``before`` what stands in front of that; ``shortened``: a model made it of the one before."""

    content: str
    whole: str
    before: str
    at: datetime
    shortened: bool = False


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """The text of a scope before a run writes to it.

    Attributes:
        content: The text that stands, without older texts of v1 that a run wrote over it before it
            was cut off.
        version: The number of the scope's version; 0: it has none.
        moved: The versions in force that migrations wrote, oldest first.
        begun: The older texts of v1 that a run wrote before it was cut off.
    """

    content: str = ""
    version: int = 0
    moved: tuple[Moved, ...] = ()
    begun: tuple[str, ...] = ()


def decide(text: V1Text, standing: Standing, on_conflict: OnConflict) -> Decision:
    """Decide on a text of v1.

    Args:
        text: The text.
        standing: The text of its scope.
        on_conflict: The treatment of a text that is v2's own.
    """
    own, version, moved = standing.content.strip(), standing.version, standing.moved
    content = text.content.strip()
    if own == content and not standing.begun:
        return Decision(version=version)
    known = {*standing.begun, *(each.whole for each in moved)}
    earlier = tuple(each for each in text.earlier if each.content.strip() not in known)
    if moved:
        return _follow(text, own, moved, Decision(version=version, earlier=earlier))
    if not own:
        return Decision(content=text.content, version=version, earlier=earlier)
    if on_conflict == "keep":
        detail = "v2 has a text of its own, which was kept"
        return Decision(version=version, treatment=Treatment.KEPT, detail=detail)
    if on_conflict == "append":
        if content in own:
            return Decision(version=version)
        return Decision(
            content=f"{_front(own)}{text.content}",
            version=version,
            earlier=earlier,
            treatment=Treatment.APPENDED,
            detail="v2 had a text of its own (append)",
        )
    return Decision(
        content=text.content,
        version=version,
        earlier=earlier,
        treatment=Treatment.REPLACED,
        detail="v2 had a text of its own (replace)",
    )


def _follow(text: V1Text, own: str, moved: Sequence[Moved], draft: Decision) -> Decision:
    """Decide on a text of v1 of which a run moved an older one."""
    last = next((each for each in reversed(moved) if not each.shortened), moved[-1])
    if text.content.strip() == last.whole:
        return Decision(version=draft.version)
    replace = msgspec.structs.replace
    if text.last_updated_at < last.at:
        if text.content.strip() in {each.whole for each in moved}:
            return Decision(version=draft.version)
        detail = "v2 has a later text of v1, which was kept"
        return replace(draft, earlier=(), treatment=Treatment.KEPT, detail=detail)
    if own != moved[-1].content.strip():
        detail = "changed here since it was migrated; v1's newer text was not taken"
        return replace(draft, earlier=(), treatment=Treatment.KEPT, detail=detail)
    return replace(
        draft,
        content=f"{last.before}{text.content}",
        treatment=Treatment.FOLLOWED,
        detail="v1 has a newer text",
    )


def _front(own: str) -> str:
    """Return a text of v2 with the heading under which v1's is appended."""
    return f"{own.rstrip()}\n\n{APPENDED}\n\n"


def find_standing(store: Store, current: Consolidation, run_ids: Collection[str]) -> Standing:
    """Find the text of a scope, and the versions of it that migrations wrote.

    Args:
        store: Where to look.
        current: The current text.
        run_ids: The ids of all migrations.

    Raises:
        StoreError: the database cannot be used.
    """
    versions = store.history.versions("consolidation", "", scope=current.home)
    # An entry that cannot be read makes no text a run's: the text counts as v2's own.
    ids = [each.change_id for each in versions if each.change_id]
    entries = store.log.audit_entries(ids, unreadable=set())
    written = [each for each in entries.values() if each.actor.run_id in run_ids]
    chains = chains_of(store, written) if written else {}
    reasons = {id: entries[id].reason for id, chain in chains.items() if len(chain) % 2}
    begun: list[str] = []
    latest = versions[-1] if versions else None
    if latest is None or latest.content.strip() != current.consolidated_content.strip():
        latest = None  # the platform wrote the text
    while latest is not None and reasons.get(latest.change_id or "", "").endswith(REPLACED_LATER):
        begun.append(versions.pop().content.strip())
        latest = versions[-1] if versions else None
    content = current.consolidated_content
    if begun:
        content = "" if latest is None else latest.content
    return Standing(
        content=content,
        version=current.version,
        moved=tuple(_list_moved(versions, reasons)),
        begun=tuple(begun),
    )


def _list_moved(versions: Sequence[HistoryEntry], reasons: Mapping[str, str]) -> Iterator[Moved]:
    """List the versions that runs wrote; ``reasons`` are theirs, by the ids of their changes."""
    shortened = False
    for place, version in enumerate(versions):
        reason = reasons.get(version.change_id or "")
        if reason is None:
            continue
        content = version.content.strip()
        fronts = (_front(each.content) for each in versions[:place] if each.content.strip())
        before = next((front for front in fronts if content.startswith(front)), "")
        whole = content.removeprefix(before).strip()
        # A version that only absorbs has the text of the one before it.
        shortened = reason == SHORTENED or (shortened and reason.endswith(ABSORBED_LATER))
        yield Moved(content, whole, before, version.at, shortened=shortened)
