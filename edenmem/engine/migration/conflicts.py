"""Resolve conflicts between v1 texts and existing v2 texts.

The log records who wrote the current text: a migration, or a later writer. ``on_conflict`` applies
once to a text that no migration wrote. A migrated text follows v1 until it is changed here.
Reverted runs do not count.

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

#: Heading between a v2 text and the v1 text appended to it.
APPENDED = "## From the memory of the first version"


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """A decision on one v1 text.

    Attributes:
        content: The text to write, if any.
        version: The v2 version that the decision is based on (0: none).
        earlier: Older texts to write first.
        treatment: The treatment of the current text, if it differs from v1's.
        detail: The reason, for operators.
    """

    content: str | None = None
    version: int = 0
    earlier: tuple[V1EarlierText, ...] = ()
    treatment: Treatment | None = None
    detail: str = ""


class Moved(msgspec.Struct, frozen=True):
    """A version of a text written by a migration.

    ``whole`` is the part from v1, ``before`` the part in front of it; ``shortened``: the model
    shortened the previous version.
    """

    content: str
    whole: str
    before: str
    at: datetime
    shortened: bool = False


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """The text of a scope before a run writes to it.

    Attributes:
        content: The current text, ignoring ``begun``.
        version: The current version of the scope's text (0: none).
        moved: The versions in force written by migrations, oldest first.
        begun: Older v1 texts written by an interrupted run.
    """

    content: str = ""
    version: int = 0
    moved: tuple[Moved, ...] = ()
    begun: tuple[str, ...] = ()


def decide(text: V1Text, standing: Standing, on_conflict: OnConflict) -> Decision:
    """Decide how to migrate a v1 text.

    Args:
        text: The v1 text.
        standing: The current text of its scope.
        on_conflict: The treatment of a text that no migration wrote.
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
        detail = "v2 has another text, which was kept"
        return Decision(version=version, treatment=Treatment.KEPT, detail=detail)
    if on_conflict == "append":
        if content in own:
            return Decision(version=version)
        return Decision(
            content=f"{_front(own)}{text.content}",
            version=version,
            earlier=earlier,
            treatment=Treatment.APPENDED,
            detail="v2 had another text (append)",
        )
    return Decision(
        content=text.content,
        version=version,
        earlier=earlier,
        treatment=Treatment.REPLACED,
        detail="v2 had another text (replace)",
    )


def _follow(text: V1Text, own: str, moved: Sequence[Moved], draft: Decision) -> Decision:
    """Decide on a v1 text of which a run migrated an older version."""
    last = next((each for each in reversed(moved) if not each.shortened), moved[-1])
    if text.content.strip() == last.whole:
        return Decision(version=draft.version)
    replace = msgspec.structs.replace
    if text.last_updated_at < last.at:
        if text.content.strip() in {each.whole for each in moved}:
            return Decision(version=draft.version)
        detail = "v2 has a newer v1 text, which was kept"
        return replace(draft, earlier=(), treatment=Treatment.KEPT, detail=detail)
    if own != moved[-1].content.strip():
        detail = "edited since its migration; v1's newer text was not used"
        return replace(draft, earlier=(), treatment=Treatment.KEPT, detail=detail)
    return replace(
        draft,
        content=f"{last.before}{text.content}",
        treatment=Treatment.FOLLOWED,
        detail="v1 has a newer text",
    )


def _front(own: str) -> str:
    """Return a v2 text with the heading for an appended v1 text."""
    return f"{own.rstrip()}\n\n{APPENDED}\n\n"


def find_standing(store: Store, current: Consolidation, run_ids: Collection[str]) -> Standing:
    """Return the text of a scope with the versions that migrations wrote.

    Args:
        store: The store.
        current: The current text.
        run_ids: IDs of all migration runs.

    Raises:
        StoreError: the database cannot be used.
    """
    versions = store.history.versions("consolidation", "", scope=current.home)
    # Without a readable entry, a text counts as not migrated.
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
    """Yield the versions written by runs; ``reasons`` maps the IDs of their changes."""
    shortened = False
    for place, version in enumerate(versions):
        reason = reasons.get(version.change_id or "")
        if reason is None:
            continue
        content = version.content.strip()
        fronts = (_front(each.content) for each in versions[:place] if each.content.strip())
        before = next((front for front in fronts if content.startswith(front)), "")
        whole = content.removeprefix(before).strip()
        # A version that only absorbs reflections repeats the previous text.
        shortened = reason == SHORTENED or (shortened and reason.endswith(ABSORBED_LATER))
        yield Moved(content, whole, before, version.at, shortened=shortened)
