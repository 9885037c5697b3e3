"""Plan changes to consolidated texts, and thereby to buffers; assemble the text that v1 served.

v1 assembled ``fully_formed_memory`` from the consolidated text, which is wanted for documents
without another one, and lists of memories, each under its own heading. List entries that repeat
separately migrated memories are dropped. All other text is kept, since the agent knew it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec

from edenmem.memory.state import (
    Effect,
    Origin,
    State,
    Touch,
    Write,
    audit,
    conflict,
    history_entry,
    home_of,
    plain,
    result,
    stale,
)
from edenmem.models.changes import (
    ChangeSet,
    ChangeStatus,
    RepairBuffer,
    RevertConsolidation,
    WriteConsolidation,
    version_action,
)
from edenmem.models.ids import derived_id
from edenmem.models.memory import Consolidation, Reflection
from edenmem.models.records import HistoryEntry
from edenmem.models.scope import Scope


def write(change: WriteConsolidation, state: State, context: ChangeSet) -> Effect:
    """Plan the next version, and the absorption of its reflections."""
    scope, old = change.scope, _text(state, change.scope)
    version, target = (old.version, old.id) if old else (0, "")
    if version != change.expected_version:
        return stale(change, target, version, change.expected_version)
    absorbed = tuple(dict.fromkeys(change.absorbed_ids))
    waiting = _those(state, scope, absorbed, is_absorbed=False)
    if len(waiting) < len(absorbed):
        gone = len(absorbed) - len(waiting)
        detail = f"{gone} of the reflections are no longer in the buffer"
        return conflict(change, target, detail)
    new = _next(change, old, absorbed_ids=absorbed)
    buffer = set(absorbed)
    new = msgspec.structs.replace(
        new, unabsorbed_ids=tuple(each for each in new.unabsorbed_ids if each not in buffer)
    )
    if absorbed:
        new = msgspec.structs.replace(new, last_consolidated_at=change.at)
    if change.propagate:
        versions = (*new.unpropagated_versions, new.version)
        new = msgspec.structs.replace(new, unpropagated_versions=versions)
    flags = {"absorbed": True, "absorbed_at": change.at, "consolidated_into": new.id}
    return _version(change, old, new, waiting, flags, -len(absorbed), state, context)


def revert(change: RevertConsolidation, state: State, context: ChangeSet) -> Effect:
    """Plan the earlier text as the next version, and the release of its reflections."""
    scope, old = change.scope, _text(state, change.scope)
    version, target = (old.version, old.id) if old else (0, "")
    if version != change.expected_version:
        return stale(change, target, version, change.expected_version)
    if old is None:
        return conflict(change, "", "the scope has no text")
    released = tuple(dict.fromkeys(change.released_ids))
    back = _those(state, scope, released, is_absorbed=True)
    if len(back) < len(released):
        gone = len(released) - len(back)
        detail = f"{gone} of the reflections are not consolidated or no longer exist"
        return conflict(change, target, detail)
    times = {**state.waiting(scope), **{each.id: each.formed_at for each in back}}
    left = tuple(v for v in old.unpropagated_versions if v not in change.reverted_versions)
    new = msgspec.structs.replace(
        _next(change, old, absorbed_ids=()),
        unabsorbed_ids=tuple(sorted(times, key=lambda each: (times[each], each))),
        unpropagated_versions=left,
    )
    flags = {"absorbed": False, "absorbed_at": None, "consolidated_into": None}
    return _version(change, old, new, back, flags, len(back), state, context)


def repair(change: RepairBuffer, state: State, context: ChangeSet) -> Effect:
    """Plan the repair of a buffer, which the store keeps in its own form."""
    scope, old = change.scope, state.texts.get(change.scope)
    target = old.id if old else ""
    disorder = state.repairs.get(scope)
    if disorder is None:
        answer = result(change, ChangeStatus.ALREADY, target, "the buffer is in order")
        return Effect(change=change, result=answer)
    text = old or new_text(change.id, scope, word_limit=change.word_limit)
    before, after = ({**each, "id": text.id} for each in (disorder.before, disorder.after))
    return Effect(
        change=change,
        result=result(change, ChangeStatus.APPLIED, text.id),
        writes=() if old else (Write(None, text),),
        entry=audit(change, context, "consolidation", text.id, scope, before, after),
        touches=(Touch(scope),),
        repairs=scope,
    )


def new_text(change_id: str, scope: Scope, *, word_limit: int = 0) -> Consolidation:
    """Return the document of a scope without a text."""
    return Consolidation(
        id=derived_id(change_id, "consolidation"),
        **scope.fields(),
        word_limit=word_limit,
    )


def _text(state: State, scope: Scope) -> Consolidation | None:
    """Return the scope's text with all pending reflections."""
    found = state.texts.get(scope)
    if found is None:
        return None
    return msgspec.structs.replace(found, unabsorbed_ids=state.buffer(scope))


def _those(
    state: State, scope: Scope, ids: tuple[str, ...], *, is_absorbed: bool
) -> list[Reflection]:
    """Return the scope's reflections among these that are pending, or those that are not."""
    found = (state.reflections.get(each) for each in ids)
    return [
        each
        for each in found
        if each is not None and each.absorbed is is_absorbed and home_of(each) == scope
    ]


def _next(
    change: WriteConsolidation | RevertConsolidation,
    old: Consolidation | None,
    *,
    absorbed_ids: tuple[str, ...],
) -> Consolidation:
    return msgspec.structs.replace(
        old or new_text(change.id, change.scope),
        consolidated_content=change.content,
        version=change.next_version,
        word_limit=change.word_limit,
        absorbed_ids=absorbed_ids,
        updated_at=change.at,
        fixed=(old.fixed if old else ()) if change.fixed is None else change.fixed,
    )


def _version(
    change: WriteConsolidation | RevertConsolidation,
    old: Consolidation | None,
    new: Consolidation,
    moved: list[Reflection],
    flags: dict[str, Any],
    pending: int,
    state: State,
    context: ChangeSet,
) -> Effect:
    origin = Origin(
        action=version_action(change, context.actor),
        actor=context.actor.name,
        change_id=change.id,
        at=change.at,
    )
    return Effect(
        change=change,
        result=result(change, ChangeStatus.APPLIED, new.id),
        writes=(
            Write(old, new),
            *(Write(each, msgspec.structs.replace(each, **flags)) for each in moved),
        ),
        versions=(*_replaced(old, state, change.at), version_of(new, origin, change.at)),
        origin=origin,
        entry=audit(change, context, "consolidation", new.id, change.scope, plain(old), plain(new)),
        touches=(Touch(change.scope, pending=pending),),
    )


def _replaced(old: Consolidation | None, state: State, now: datetime) -> tuple[HistoryEntry, ...]:
    """Return the current version, if history lacks it."""
    if old is None or old.version == 0:
        return ()
    key = ("consolidation", old.id)
    head = state.heads.get(key)
    if head is not None and head.version == old.version:
        return ()
    origin = state.origins.get(key) or Origin(action="consolidate")
    at = origin.at or old.last_consolidated_at or old.updated_at or now
    return (version_of(old, origin, at),)


def version_of(text: Consolidation, origin: Origin, at: datetime) -> HistoryEntry:
    """Return the history entry of a version of a text."""
    return history_entry(
        "consolidation",
        text.id,
        text.home,
        text.version,
        content=text.consolidated_content,
        at=at,
        action=origin.action,
        actor=origin.actor,
        change_id=origin.change_id,
        absorbed_ids=text.absorbed_ids,
    )


#: The line above a user's text.
_NAME_LINE = re.compile(r"^-- User Memory for .* --[^\S\n]*\n?", re.MULTILINE)
_HEADING = re.compile(
    r"^## (?P<title>Consolidated user memory|Current consolidated shard memory"
    r"|Memory shard context|Shard facts|Recent shard suggestions|Recent user directives)"
    r":?[^\S\n]*$",
    re.MULTILINE,
)
_TEXTS = ("Consolidated user memory", "Current consolidated shard memory")
_CONTEXT = "Memory shard context"
#: The suffix that v1 added to the memories of a list.
_AGE = re.compile(r"[^\S\n]*\(age: \d+ days? ago\)[^\S\n]*$", re.MULTILINE)


def has_lists(assembled: str) -> bool:
    """Return whether the text has the heading of a list, so that memories must be compared."""
    return any(
        found["title"] not in _TEXTS and found["title"] != _CONTEXT
        for found in _HEADING.finditer(assembled)
    )


def split_off_text(assembled: str, *, instructions: str = "", listed: Iterable[str] = ()) -> str:
    """Return the part of the assembled text that exists nowhere else; empty if none.

    Args:
        assembled: The text, as v1 stored it.
        instructions: The shard's instructions, which v1 repeated.
        listed: Contents of the memories that are migrated separately.
    """
    plain = _NAME_LINE.sub("", assembled, count=1)
    headings = list(_HEADING.finditer(plain))
    starts = [*(heading.start() for heading in headings), len(plain)]
    memories = sorted({content.strip() for content in listed} - {""}, key=len, reverse=True)
    texts, lists = [plain[: starts[0]].strip()], []
    for heading, end in zip(headings, starts[1:], strict=True):
        title, body = heading["title"], plain[heading.end() : end].strip()
        if title in _TEXTS:
            texts.append(body)
        elif title == _CONTEXT:
            if instructions.strip() and instructions.strip() not in body:
                lists.append(f"## {title}\n\n{body}")
        elif rest := _without(body, memories):
            lists.append(f"## {title}\n\n{rest}")
    return "\n\n".join(filter(None, [*texts, *lists]))


def _without(body: str, memories: Iterable[str]) -> str:
    """Return a list without entries that repeat these memories."""
    kept = "\n" + _AGE.sub("", body) + "\n"
    for memory in memories:
        entry = f"\n- {memory}\n"
        while entry in kept:
            kept = kept.replace(entry, "\n")
    return kept.strip()
