"""Find the replies that had a memory, and rebuild what an agent saw."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import Literal

import msgspec

from edenmem.engine.context.builder import ContextBuilder
from edenmem.engine.runtime.runtime import Runtime
from edenmem.errors import NotFoundError
from edenmem.models.memory import Consolidation, Fact, Reflection
from edenmem.models.scope import Scope, ScopeKind
from edenmem.models.told import Reply, Shown, ShownKind
from edenmem.store.protocol.store import Store

_Memory = Fact | Reflection | Consolidation

#: Longer numbers are IDs of replies.
_DIGITS = 4


class Telling(msgspec.Struct, frozen=True, kw_only=True):
    """A reply that had a memory, in this version."""

    reply: Reply
    version: int


ItemState = Literal["same", "changed", "removed", "forgotten"]


class ToldItem(msgspec.Struct, frozen=True, kw_only=True):
    """An item of a reply, as it was then, and what happened to it since.

    A forgotten item has only its kind. ``content`` is "" if the version is no longer kept.
    ``version_now`` is 0 if the memory was removed.
    """

    kind: ShownKind
    id: str
    scope: ScopeKind | None
    version: int
    version_now: int
    state: ItemState
    content: str


class ToldContext(msgspec.Struct, frozen=True, kw_only=True):
    """A reply, its items, and the context as the agent saw it, as XML."""

    reply: Reply
    items: tuple[ToldItem, ...]
    context: str


def find_tellings(store: Store, keys: Sequence[str]) -> list[Telling]:
    """Return the replies that had memory with these keys, newest first."""
    replies, wanted = store.told.replies(keys=keys), set(keys)
    lists = store.told.lists(list(dict.fromkeys(id for one in replies for id in one.lists)))
    versions = {
        id: max((item.version for item in items if item.key in wanted), default=0)
        for id, items in lists.items()
    }
    return [
        Telling(reply=one, version=max((versions.get(id, 0) for id in one.lists), default=0))
        for one in replies
    ]


class ToldReader:
    """Read the notes of what left the engine. All functions block."""

    def __init__(self, runtime: Runtime, contexts: Callable[[], ContextBuilder]) -> None:
        self._store = runtime.store
        self._contexts = contexts
        self.notes = runtime.told
        self.replies = runtime.store.told.replies
        self.tellings = partial(find_tellings, runtime.store)

    def find(self, session_id: str, wanted: str = "1") -> Reply:
        """Return a reply of a session.

        Args:
            session_id: The session.
            wanted: Its number, 1 for the newest, or an ID or ID prefix.

        Raises:
            NotFoundError: there is no such reply.
        """
        replies = self.replies(session_id=session_id)
        if wanted.isdigit() and len(wanted) <= _DIGITS:
            place = int(wanted) - 1
            found = replies[place : place + 1] if place >= 0 else []
        else:
            found = [one for one in replies if one.id.startswith(wanted)]
        if len(found) == 1:
            return found[0]
        why = f"no noted reply {wanted!r} of the session, which has {len(replies)}"
        if found:
            why = f"{len(found)} replies of the session have IDs that start with {wanted!r}"
        elif not replies:
            why = "the session has no noted replies"
        raise NotFoundError(
            why, hint="notes are kept for told.days, and only of what edenmem served"
        )

    def as_told(
        self, reply: Reply, *, may_read: Callable[[Scope], bool] = lambda scope: True
    ) -> ToldContext:
        """Return what an agent saw, from the versions in history and the log.

        Args:
            reply: The reply.
            may_read: Whether the reader may read a scope; other items are left out.
        """
        lists = self._store.told.lists(reply.lists)
        items: list[ToldItem] = []
        then: dict[str, list[_Memory]] = {"context": [], "found": []}
        for name, memories in then.items():
            for item in lists.get(getattr(reply, name), ()):
                if item.scope is None:
                    items.append(_item(item, None, None))
                elif may_read(item.scope):
                    now, was = self._read(item, item.scope, reply.at)
                    items.append(_item(item, now, was))
                    memories += [was] if was is not None else []
        return ToldContext(
            reply=reply,
            items=tuple(items),
            context=self._contexts().rebuild(
                [*then["context"], *(one for one in then["found"] if not isinstance(one, Fact))],
                [one for one in then["found"] if isinstance(one, Fact)],
                [
                    f"{one.kind}: {'no longer kept' if one.scope else one.state}"
                    for one in items
                    if not one.content
                ],
                reply,
            ),
        )

    def _read(
        self, item: Shown, scope: Scope, at: datetime
    ) -> tuple[_Memory | None, _Memory | None]:
        """Return a memory as it is now, and as it was then; None if there is none."""
        memory = self._store.memory
        now: _Memory | None
        past: Iterable[_Memory]
        if item.kind == "text":
            now = memory.consolidations([scope]).get(scope)
            past = (
                Consolidation(
                    id=one.target_id,
                    **scope.fields(),
                    consolidated_content=one.content,
                    version=one.version,
                    updated_at=one.at,
                )
                for one in self._store.history.versions("consolidation", "", scope=scope)
            )
        else:
            now = memory.fact(item.id) if item.kind == "fact" else memory.reflection(item.id)
            kind: type[Fact | Reflection] = Fact if item.kind == "fact" else Reflection
            past = (
                msgspec.convert(document, kind)
                for entry in self._store.log.audit(target_id=item.id)
                for document in (entry.after, entry.before)
                if document is not None and entry.target_type == item.kind
            )
        known = (one for one in (now, *past) if one is not None and one.version == item.version)
        for one in known:  # a fact that was restored has the same version twice
            if isinstance(one, Consolidation) or (one.updated_at or one.formed_at) <= at:
                return now, one
        return now, None


def _item(item: Shown, now: _Memory | None, then: _Memory | None) -> ToldItem:
    state: ItemState = "forgotten" if item.scope is None else "removed"
    if now is not None:
        state = "same" if now.version == item.version else "changed"
    return ToldItem(
        kind=item.kind,
        id=item.id,
        scope=item.scope.kind if item.scope else None,
        version=item.version,
        version_now=now.version if now else 0,
        state=state,
        content=getattr(then, "content", "") or getattr(then, "consolidated_content", ""),
    )
