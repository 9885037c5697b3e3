"""What the making of one agent's items shares: its scopes, and items with their sources."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

import msgspec

from edenmem.engine.migration.shards import Shard, shards_of
from edenmem.models.scope import Scope, ScopeKind
from edenmem.models.v1 import (
    Disposition,
    V1Item,
    V1ItemKind,
    V1Options,
    V1Problem,
    V1ProblemKind,
    V1Ref,
    V1Target,
)
from edenmem.models.v1_documents import Note, V1Staged
from edenmem.store.v1.protocol import V1Stage
from edenmem.text import clean

#: The kinds of items in their order; the place of each is in the key.
KINDS: tuple[V1ItemKind, ...] = (
    "toggles",
    "policy",
    "text",
    "fact",
    "reflection",
    "episode",
    "leftover",
)

#: Why an id in a list is not followed, in words.
_REFUSALS = {
    "dangling": (V1ProblemKind.DANGLING, "there is no memory {}; it is left out"),
    "foreign_agent": (V1ProblemKind.FOREIGN_AGENT, "memory {} is another agent's; it stays there"),
    "foreign_user": (V1ProblemKind.FOREIGN_USER, "memory {} is another user's; it stays there"),
    "wrong_type": (V1ProblemKind.WRONG_TYPE, "memory {} does not belong in this list"),
}


def character_notes(text: str, field: str) -> list[Note]:
    """A note if a text holds what no store can."""
    if clean(text) == text.replace("\r\n", "\n").replace("\r", "\n"):
        return []
    detail = f"{field} holds control characters; they are left out"
    return [(V1ProblemKind.CONTROL_CHARACTERS, detail)]


class Source:
    """A document among the sources of an item, with what is to be said of it there.

    ``silent``: another item tells what is wrong with it, and carries its unknown fields.
    """

    def __init__(self, staged: V1Staged, *notes: Note, silent: bool = False) -> None:
        self.staged = staged
        self.notes = () if silent else (*staged.notes, *notes)
        self.extra = "" if silent or staged.document is None else staged.document.extra

    @property
    def ref(self) -> V1Ref:
        """Its name and hash."""
        return V1Ref(self.staged.collection, self.staged.id, self.staged.hash)


class Maker:
    """Makes the items of one agent."""

    def __init__(self, stage: V1Stage, options: V1Options, agent_id: str) -> None:
        self.stage = stage
        self.options = options
        self.agent_id = agent_id
        self._quiet: dict[str, bool] = {}

    @cached_property
    def shards(self) -> list[Shard]:
        """The agent's shards, oldest first."""
        return shards_of(self.agent_id, self.stage.shards(self.agent_id), self.options)

    @cached_property
    def _scopes(self) -> dict[str, Scope]:
        return {shard.key: shard.scope for shard in self.shards}

    @cached_property
    def _names(self) -> dict[str, str]:
        return {shard.document.id: shard.name for shard in self.shards}

    @cached_property
    def has_users(self) -> bool:
        """Whether the source has the host's users."""
        return self.stage.has_accounts(agents=False)

    def scope(self, key: str) -> Scope:
        """The scope that has this name in the stage."""
        kind, _, owner = key.partition("/")
        return Scope.user(self.agent_id, owner) if kind == "user" else self._scopes[key]

    def shard_name(self, key: str, shard_ids: Iterable[str] = ()) -> str | None:
        """The one shard of a scope, or that memories come from; None if there is not just one."""
        if key.startswith("shard/"):
            return self._scopes[key].shard_name
        names = {self._names.get(shard_id) for shard_id in shard_ids}
        return names.pop() if len(names) == 1 else None

    def word_limit(self, kind: ScopeKind) -> int:
        """How long a scope's text may be."""
        options = self.options
        match kind:
            case ScopeKind.USER:
                return options.user_words
            case ScopeKind.SHARD:
                return options.shard_words
            case ScopeKind.SESSION:
                return options.session_words
        return options.agent_words

    def is_quiet(self, key: str) -> bool:
        """Whether nothing was written to a scope in the time that was asked for."""
        since = self.options.active_since
        if since is None:
            return False
        if key not in self._quiet:
            last = self.stage.last_activity(self.agent_id, key)
            self._quiet[key] = last is None or last < since
        return self._quiet[key]

    def refusals(self, staged: V1Staged) -> Iterator[Note]:
        """What is to be said of ids that a document lists and that are not followed."""
        for listed, verdict in self.stage.refused(staged.number):
            kind, words = _REFUSALS[verdict]
            yield kind, words.format(listed)

    def item(
        self,
        kind: V1ItemKind,
        place: str,
        sources: Sequence[Source],
        reason: str,
        target: V1Target | None = None,
        *,
        disposition: Disposition | None = None,
        scope_key: str = "",
        shard: str | None = None,
        user_id: str | None = None,
    ) -> V1Item:
        """One item. Without a ``disposition`` it is what target and number of sources say; one
        of a quiet scope is left behind."""
        if target is not None and scope_key and self.is_quiet(scope_key):
            assert self.options.active_since is not None
            target, disposition = None, Disposition.LEFT_BEHIND
            reason = f"nothing new since {self.options.active_since:%Y-%m-%d}"
        return V1Item(
            key=f"{self.agent_id}/{KINDS.index(kind)}/{place}",
            kind=kind,
            agent_id=self.agent_id,
            sources=tuple(dict.fromkeys(source.ref for source in sources)),
            disposition=disposition or _disposition(target, sources),
            reason=reason,
            shard=shard,
            user_id=user_id,
            target=target,
            problems=tuple(self._problems(sources)),
            extra=_extra(sources),
        )

    def _problems(self, sources: Sequence[Source]) -> Iterator[V1Problem]:
        for source in sources:
            for kind, detail in source.notes:
                yield V1Problem(
                    collection=source.staged.collection,
                    document_id=source.staged.id,
                    agent_id=self.agent_id or None,
                    kind=kind,
                    detail=detail,
                )


def _disposition(target: V1Target | None, sources: Sequence[Source]) -> Disposition:
    if target is None:
        return Disposition.LEFT_BEHIND
    return Disposition.MIGRATED if len(sources) == 1 else Disposition.MERGED


def _extra(sources: Sequence[Source]) -> str:
    """The unknown fields of all sources, as they are."""
    fields = {
        f"{source.staged.collection}/{source.staged.id}": msgspec.Raw(source.extra.encode())
        for source in sources
        if source.extra
    }
    return msgspec.json.encode(fields).decode() if fields else ""
