"""Find the replies that had a memory, and rebuild what an agent saw."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Literal

import msgspec

from edenmem.engine.context.builder import ContextBuilder
from edenmem.engine.reports import ContextReport
from edenmem.engine.runtime.runtime import Runtime
from edenmem.errors import AmbiguousReference, NotFoundError
from edenmem.models.memory import Consolidation, Fact, Reflection
from edenmem.models.scope import Scope
from edenmem.models.told import Reply, Shown, ShownKind, Sighting
from edenmem.store.protocol.store import Store

_Logged = Fact | Reflection
_Memory = _Logged | Consolidation

#: Longer numbers are IDs of replies.
_DIGITS = 4


class Telling(msgspec.Struct, frozen=True, kw_only=True):
    """A reply that had a memory, in this version."""

    reply: Reply
    version: int


ItemState = Literal["same", "changed", "removed", "forgotten", "unknown"]


class ToldItem(msgspec.Struct, frozen=True, kw_only=True):
    """An item of a reply, as it was then, and what happened to it since.

    A forgotten item has only its kind. ``content`` is "" if the version is no longer kept, which
    makes the ``state`` unknown. ``version_now`` is 0 if the memory was removed.
    """

    kind: ShownKind
    id: str
    version: int
    scope: Scope | None
    content: str
    version_now: int
    state: ItemState


class ToldContext(msgspec.Struct, frozen=True, kw_only=True):
    """A reply, its items, and the context as the agent saw it."""

    reply: Reply
    items: tuple[ToldItem, ...]
    context: ContextReport


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


def find_sightings(store: Store, keys: Sequence[str]) -> list[Sighting]:
    """Return where memory with these keys was seen, in any version, latest first."""
    found: dict[tuple[str, str | None, str | None], list[Telling]] = {}
    for one in find_tellings(store, keys):
        owner = one.reply.agent_id, one.reply.session_id, one.reply.user_id
        found.setdefault(owner, []).append(one)
    return [
        Sighting(
            agent_id=agent_id,
            session_id=session_id,
            user_id=user_id,
            replies=len(tellings),
            last_at=tellings[0].reply.at,
            versions=tuple(sorted({one.version for one in tellings})) if len(keys) == 1 else (),
        )
        for (agent_id, session_id, user_id), tellings in found.items()
    ]


class ToldReader:
    """Read the notes of what left the engine, and note searches. All functions block."""

    def __init__(self, runtime: Runtime, contexts: Callable[[], ContextBuilder]) -> None:
        self._store = runtime.store
        self._contexts = contexts
        self._notes = runtime.told
        self.replies = runtime.store.told.replies
        self.seen = partial(find_sightings, runtime.store)
        self.note_search = runtime.note_search

    @property
    def lost(self) -> int:
        """Return how many notes could not be written by this process."""
        return self._notes.lost

    def tellings(self, key: str, *, version: int | None = None) -> list[Telling]:
        """Return the replies that had a version of a memory, or any version, newest first."""
        found = find_tellings(self._store, [key])
        return [one for one in found if version in (None, one.version)]

    def find(self, session_id: str, wanted: str = "1") -> Reply:
        """Return a reply of a session.

        Args:
            session_id: The session.
            wanted: Its number, 1 for the newest, or an ID or ID prefix.

        Raises:
            NotFoundError: there is no such reply.
            AmbiguousReference: several IDs match.
        """
        if wanted.isdigit() and len(wanted) <= _DIGITS:
            found = self.replies(session_id=session_id, limit=int(wanted))
            if not 0 < int(wanted) <= len(found):
                raise NotFoundError(
                    f"the session has {len(found)} noted replies, not {wanted}"
                    if found
                    else "nothing is noted of this session",
                    hint="notes are kept for told.days, and only of what edenmem served",
                )
            return found[-1]
        found = [one for one in self.replies(session_id=session_id) if one.id.startswith(wanted)]
        if not found:
            raise NotFoundError(f"the session has no noted reply {wanted!r}")
        if len(found) > 1:
            raise AmbiguousReference("reply", wanted, [one.id for one in found])
        return found[0]

    def as_told(
        self, reply: Reply, *, may_read: Callable[[Scope], bool] = lambda scope: True
    ) -> ToldContext:
        """Return what an agent saw, from the versions in history.

        Args:
            reply: The reply.
            may_read: Whether the reader may read a scope; other items are left out.
        """
        lists = self._store.told.lists(reply.lists)
        context, found = (
            [
                (item, *self._read(item, reply.at))
                for item in lists.get(list_id, ())
                if item.scope is None or may_read(item.scope)
            ]
            for list_id in (reply.context, reply.found)
        )
        items = (*context, *found)
        facts = [then for _, _, then in found if isinstance(then, Fact)]
        passages = [each for each in found if not isinstance(each[2], Fact)]
        return ToldContext(
            reply=reply,
            items=tuple(_item(*each) for each in items),
            context=self._contexts().rebuild(
                [then for _, _, then in (*context, *passages) if then is not None],
                facts,
                lines=[_missing(item) for item, _, then in items if then is None],
                reply=reply,
            ),
        )

    def _read(self, item: Shown, at: datetime) -> tuple[_Memory | None, _Memory | None]:
        """Return a memory as it is now, and as it was then; None if there is none."""
        if item.scope is None:
            return None, None
        return self._text(item, item.scope) if item.kind == "text" else self._logged(item, at)

    def _logged(self, item: Shown, at: datetime) -> tuple[_Logged | None, _Logged | None]:
        """Return a fact or reflection as it is now, and as it was then; None if there is none."""
        memory = self._store.memory
        kind: type[_Logged] = Fact if item.kind == "fact" else Reflection
        read: Callable[[str], _Logged | None]
        read = memory.fact if item.kind == "fact" else memory.reflection
        now = read(item.id)
        if _is_then(now, item, at):
            return now, now
        documents = (
            msgspec.convert(document, kind)
            for entry in self._store.log.audit(target_id=item.id)
            for document in (entry.after, entry.before)
            if document is not None and entry.target_type == item.kind
        )
        return now, next((one for one in documents if _is_then(one, item, at)), None)

    def _text(self, item: Shown, scope: Scope) -> tuple[Consolidation | None, Consolidation | None]:
        """Return a text as it is now, and as it was then; None if there is none."""
        now = self._store.memory.consolidations([scope]).get(scope)
        if now is not None and now.version == item.version:
            return now, now
        versions = self._store.history.versions("consolidation", "", scope=scope)
        then = next((one for one in versions if one.version == item.version), None)
        if then is None:
            return now, None
        return now, Consolidation(
            id=then.target_id,
            **scope.fields(),
            consolidated_content=then.content,
            version=then.version,
            updated_at=then.at,
        )


def _is_then(memory: _Logged | None, item: Shown, at: datetime) -> bool:
    """Check whether a document is of the version that was shown, and of its time.

    A fact that was restored has the same version with another time.
    """
    if memory is None or memory.version != item.version:
        return False
    return (memory.updated_at or memory.formed_at) <= at


def content_of(memory: _Memory) -> str:
    """Return the text of a memory."""
    return memory.consolidated_content if isinstance(memory, Consolidation) else memory.content


def _item(item: Shown, now: _Memory | None, then: _Memory | None) -> ToldItem:
    state: ItemState = "unknown"
    if item.scope is None:
        state = "forgotten"
    elif now is None:
        state = "removed"
    elif then is not None:
        state = "same" if now.version == item.version else "changed"
    return ToldItem(
        kind=item.kind,
        id=item.id,
        version=item.version,
        scope=item.scope,
        content=content_of(then) if then else "",
        version_now=now.version if now else 0,
        state=state,
    )


def _missing(item: Shown) -> str:
    """Return a line for an item whose content is gone."""
    what = f"[{item.scope.kind}] {item.kind}" if item.scope else item.kind
    return f"- {what}: {'no longer kept' if item.scope else 'forgotten'}"
