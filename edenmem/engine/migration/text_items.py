"""Convert the shards and user texts of v1 to toggles, settings and texts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

import msgspec

from edenmem.engine.migration.items import target_id
from edenmem.memory.v1_text import has_lists, split_off_text
from edenmem.models.ids import derived_id, is_id
from edenmem.models.memory import Policy
from edenmem.models.scope import Scope, ScopeKind
from edenmem.models.v1 import (
    SHARDS,
    Disposition,
    V1EarlierText,
    V1Item,
    V1ItemKind,
    V1Options,
    V1Policy,
    V1Problem,
    V1Ref,
    V1Target,
    V1Text,
    V1Toggles,
)
from edenmem.models.v1 import V1ProblemKind as Kind
from edenmem.models.v1_documents import Note, V1Shard, V1StagedDocument, V1UserText
from edenmem.store.v1.protocol import V1Stage
from edenmem.text import clean, one_line, word_count

#: Why a listed memory ID is ignored.
_REFUSALS = {
    "dangling": (Kind.DANGLING, "memory {} is missing; ignored"),
    "foreign_agent": (Kind.FOREIGN_AGENT, "memory {} belongs to another agent; left there"),
    "foreign_user": (Kind.FOREIGN_USER, "memory {} belongs to another user; left there"),
    "wrong_type": (Kind.WRONG_TYPE, "memory {} does not belong in this list; ignored"),
    "wider": (Kind.WRONG_TYPE, "memory {} has no type; left in its narrower list"),
}


def character_notes(text: str, field: str) -> list[Note]:
    """Return a note if a text contains control characters, which no store accepts."""
    if clean(text) == text.replace("\r\n", "\n").replace("\r", "\n"):
        return []
    return [(Kind.CONTROL_CHARACTERS, f"{field} contains control characters; removed")]


class Source:
    """A source document of an item, with its notes.

    ``silent``: another item reports its problems. ``with_extra``: this item carries its unknown
    fields.
    """

    def __init__(
        self,
        staged: V1StagedDocument,
        *notes: Note,
        silent: bool = False,
        with_extra: bool = True,
    ) -> None:
        self.staged = staged
        self.notes = () if silent else (*staged.notes, *notes)
        document = staged.document
        self.extra = document.extra if with_extra and document is not None else ""

    @property
    def ref(self) -> V1Ref:
        """Return the name and hash of the document."""
        return V1Ref(self.staged.collection, self.staged.id, self.staged.hash)


class ItemBuilder:
    """Build the items of one agent; ``use`` notes whether a document has a target."""

    def __init__(
        self,
        stage: V1Stage,
        options: V1Options,
        agent_id: str,
        use: Callable[[int, bool], None] = lambda number, used: None,
    ) -> None:
        self.stage = stage
        self.options = options
        self.agent_id = agent_id
        self._use = use

    @cached_property
    def shards(self) -> list[Shard]:
        """Return the agent's shards, oldest first."""
        staged = self.stage.shards(self.agent_id)
        return [
            shard._replace(text=self.text(shard.document, shard.key))
            for shard in shards_of(self.agent_id, staged, self.options)
        ]

    def text(self, document: V1Shard | V1UserText, key: str) -> VersionedText:
        """Return the text of a shard or user: ``content``, else from the assembled text."""
        own = split_version(document.content)
        if own.content or not document.assembled:
            return own
        listed: Iterator[str] = iter(())
        if has_lists(document.assembled):
            memories = self.stage.used(self.agent_id, key)
            listed = (clean(each.document.content) for each in memories if each.document)
        instructions = clean(document.instructions) if isinstance(document, V1Shard) else ""
        found = split_off_text(clean(document.assembled), instructions=instructions, listed=listed)
        return split_version(found)._replace(assembled=bool(found))

    @cached_property
    def _scopes(self) -> dict[str, Scope]:
        return {shard.key: shard.scope for shard in self.shards}

    @cached_property
    def _names(self) -> dict[str, str]:
        return {shard.document.id: shard.name for shard in self.shards}

    @cached_property
    def has_users(self) -> bool:
        """Return whether the source has user accounts."""
        return self.stage.has_accounts(agents=False)

    def scope(self, key: str) -> Scope:
        """Return the scope with this key in the stage."""
        kind, _, owner = key.partition("/")
        return Scope.user(self.agent_id, owner) if kind == "user" else self._scopes[key]

    def shard_name(self, key: str, shard_ids: Iterable[str] = ()) -> str | None:
        """Return the shard of a scope or of its memories; None unless exactly one."""
        if key.startswith("shard/"):
            return self._scopes[key].shard_name
        names = {self._names.get(shard_id) for shard_id in shard_ids}
        return names.pop() if len(names) == 1 else None

    def word_limit(self, kind: ScopeKind) -> int:
        """Return the maximum number of words of a scope's text."""
        options = self.options
        match kind:
            case ScopeKind.USER:
                return options.user_words
            case ScopeKind.SHARD:
                return options.shard_words
            case ScopeKind.SESSION:
                return options.session_words
        return options.agent_words

    def refusals(self, staged: V1StagedDocument) -> Iterator[Note]:
        """Yield notes on the ignored memory IDs in a document's lists."""
        for listed, verdict in self.stage.find_refused(staged.number):
            kind, words = _REFUSALS[verdict]
            yield kind, words.format(listed)

    def item(
        self,
        kind: V1ItemKind,
        sources: Sequence[Source],
        reason: str,
        target: V1Target | None = None,
        *,
        shard: str | None = None,
        user_id: str | None = None,
    ) -> V1Item:
        """Return an item, and note the use of its documents."""
        problems: list[V1Problem] = []
        for source in sources:
            self._use(source.staged.number, target is not None)
            problems += problems_of(source.staged, source.notes, self.agent_id)
            if target is None and source.extra:
                note = Kind.NO_PLACE, f"not migrated, with its unknown fields: {source.extra}"
                problems += problems_of(source.staged, [note], self.agent_id)
        return V1Item(
            kind=kind,
            agent_id=self.agent_id,
            sources=tuple(dict.fromkeys(source.ref for source in sources)),
            disposition=_disposition(target, sources),
            reason=reason,
            shard=shard,
            user_id=user_id,
            target=target,
            problems=tuple(problems),
            extra=_extra(sources),
        )


def problems_of(
    staged: V1StagedDocument, notes: Iterable[Note], agent_id: str = ""
) -> Iterator[V1Problem]:
    """Yield the problems of a document."""
    for kind, detail in notes:
        yield V1Problem(
            collection=staged.collection,
            document_id=staged.id,
            agent_id=agent_id or None,
            kind=kind,
            detail=detail,
        )


def _disposition(target: V1Target | None, sources: Sequence[Source]) -> Disposition:
    if target is None:
        return Disposition.LEFT_BEHIND
    return Disposition.MIGRATED if len(sources) == 1 else Disposition.MERGED


def _extra(sources: Sequence[Source]) -> str:
    """Return the unknown fields of all sources as JSON."""
    fields = {
        f"{source.staged.collection}/{source.staged.id}": msgspec.Raw(source.extra.encode())
        for source in sources
        if source.extra
    }
    return msgspec.json.encode(fields).decode() if fields else ""


#: Maximum length of a shard name.
NAME_CHARACTERS = 100

_VERSION_LINE = re.compile(r"\s*VERSION:\s*(\d{1,9})[^\S\n]*(?:\n|\Z)", re.IGNORECASE)


class VersionedText(NamedTuple):
    """A v1 text and the number in its ``VERSION:`` line (default 1).

    ``assembled``: the text comes from ``fully_formed_memory``.
    """

    content: str
    version: int
    assembled: bool = False


def split_version(text: str) -> VersionedText:
    """Split a text from its ``VERSION:`` line."""
    kept = clean(text)
    match = _VERSION_LINE.match(kept)
    if match is None:
        return VersionedText(kept.strip(), 1)
    return VersionedText(kept[match.end() :].strip(), max(int(match[1]), 1))


class Shard(NamedTuple):
    """A shard. ``key`` is the key of its scope in the stage; ``name`` is unique per agent."""

    staged: V1StagedDocument
    document: V1Shard
    name: str
    key: str
    scope: Scope
    notes: tuple[Note, ...]
    text: VersionedText

    @property
    def updated_at(self) -> datetime:
        """Return when the text was last written."""
        document = self.document
        return document.last_updated_at or document.updated_at or document.created_at


def shards_of(agent_id: str, staged: Sequence[V1StagedDocument], options: V1Options) -> list[Shard]:
    """Return the agent's shards, oldest first, with unique names."""
    taken: set[str] = set()
    shards = []
    for each in staged:
        document = each.document
        assert isinstance(document, V1Shard)
        name, notes = _name(document, taken)
        taken.add(name)
        merged = options.shards == "merge" and document.active
        shard_id = document.id if is_id(document.id) else derived_id("v1", SHARDS, document.id)
        scope = Scope.agent(agent_id) if merged else Scope.shard(agent_id, name)
        key = "agent" if merged else f"shard/{shard_id}"
        text = split_version(document.content)
        shards.append(Shard(each, document, name, key, scope, notes, text))
    return shards


def _name(document: V1Shard, taken: set[str]) -> tuple[str, tuple[Note, ...]]:
    notes: list[Note] = []
    name = one_line(clean(document.name))
    if not name:
        name = f"shard {document.id[:8]}"
        notes.append((Kind.EMPTY, f"shard_name is missing; named {name!r}"))
    if len(name) > NAME_CHARACTERS - 6:  # room for a number
        notes.append((Kind.OVER_LIMIT, f"shard_name is too long; shortened: {name}"))
        name = name[: NAME_CHARACTERS - 6].rstrip()
    numbered, number = name, 1
    while numbered in taken:
        number += 1
        numbered = f"{name} ({number})"
    if number > 1:
        detail = f"the agent has another shard {name!r}; this one is renamed to {numbered!r}"
        notes.append((Kind.REPEATED_SHARD, detail))
    return numbered, tuple(notes)


def shard_policy(agent_id: str, shard: Shard) -> Policy:
    """Return the settings of a shard that becomes a scope."""
    document = shard.document
    return Policy(
        id=target_id("policy", document.id, shard.scope),
        scope=ScopeKind.SHARD,
        agent_id=agent_id,
        shard=shard.name,
        memory_instructions=clean(document.instructions).strip() or None,
        consolidate_at=document.max_pending,
        fact_buffer_max=document.max_facts,
        active=document.active,
    )


def agent_policy(agent_id: str, merged: Sequence[Shard]) -> Policy | None:
    """Return the settings of the agent's own scope, or None.

    These are the instructions of its active shards, each under its name. The limits of single
    shards do not apply to the merged scope.
    """
    instructions = join_sections(
        [(each.name, clean(each.document.instructions).strip()) for each in merged]
    )
    if not instructions:
        return None
    return Policy(
        id=target_id("policy", "", Scope.agent(agent_id)),
        scope=ScopeKind.AGENT,
        agent_id=agent_id,
        memory_instructions=instructions,
    )


def join_sections(sections: Sequence[tuple[str, str]]) -> str:
    """Join the non-empty sections, each under its heading."""
    return "\n\n".join(f"## {name}\n\n{text}" for name, text in sections if text)


_NO_TEXT = "no text yet"


def toggles(builder: ItemBuilder) -> Iterator[V1Item]:
    """Yield the agent memory toggle: on if one of the agent's shards is active."""
    shards = builder.shards
    if not shards:
        return
    active = any(shard.document.active for shard in shards)
    merged = _list_merged(builder)
    has_memory = agent_policy(builder.agent_id, merged) or any(each.text.content for each in merged)
    yield builder.item(
        "toggles",
        [
            Source(each.staged, silent=True, with_extra=each in merged and not has_memory)
            for each in shards
        ],
        "one of its shards is active" if active else "all of its shards are paused",
        V1Toggles(agent_id=builder.agent_id, agent_memory_enabled=active),
    )


def policies(builder: ItemBuilder) -> Iterator[V1Item]:
    """Yield the settings of shards that become scopes, and of the agent's own scope."""
    merged = _list_merged(builder)
    if merged and (policy := agent_policy(builder.agent_id, merged)):
        has_text = any(shard.text.content for shard in merged)
        sources = [Source(each.staged, silent=True, with_extra=not has_text) for each in merged]
        reason = "instructions of the active shards"
        yield builder.item("policy", sources, reason, V1Policy(policy=policy))
    for shard in sorted(_list_kept(builder), key=lambda shard: shard.key):
        state = "active" if shard.document.active else "paused"
        yield builder.item(
            "policy",
            [Source(shard.staged, silent=True, with_extra=not shard.text.content)],
            f"settings of {state} shards",
            V1Policy(policy=shard_policy(builder.agent_id, shard)),
            shard=shard.name,
        )


def texts(builder: ItemBuilder) -> Iterator[V1Item]:
    """Yield the texts of the agent, its shards and its users."""
    merged = _list_merged(builder)
    if merged:
        yield _with_length(_agent_text(builder, merged))
    for shard in sorted(_list_kept(builder), key=lambda shard: shard.key):
        content, version, assembled = shard.text
        item = builder.item(
            "text",
            [_build_source(builder, shard, with_extra=bool(content))],
            _reason("texts of shards", assembled) if content else _NO_TEXT,
            _text(builder, shard.scope, content, version, shard.updated_at),
            shard=shard.name,
        )
        yield _with_length(item)
    staged = builder.stage.user_texts(builder.agent_id)
    for user_id, documents in groupby(staged, key=_user_of):
        yield _with_length(_user_text(builder, user_id, list(documents)))


def _list_merged(builder: ItemBuilder) -> list[Shard]:
    return [shard for shard in builder.shards if shard.key == "agent"]


def _list_kept(builder: ItemBuilder) -> list[Shard]:
    return [shard for shard in builder.shards if shard.key != "agent"]


def _build_source(builder: ItemBuilder, shard: Shard, *, with_extra: bool) -> Source:
    notes = [*shard.notes, *character_notes(shard.document.content, "content")]
    notes += character_notes(shard.document.instructions, "extraction_prompt")
    notes += _assembled_notes(shard.text)
    notes += builder.refusals(shard.staged)
    # Without a text, the settings or the switch carry the unknown fields.
    return Source(shard.staged, *notes, with_extra=with_extra)


def _assembled_notes(text: VersionedText) -> list[Note]:
    if not text.assembled:
        return []
    return [(Kind.ASSEMBLED_TEXT, "content is empty; the text is taken from fully_formed_memory")]


def _reason(reason: str, assembled: bool) -> str:
    return f"{reason}, taken from fully_formed_memory" if assembled else reason


def _text(
    builder: ItemBuilder,
    scope: Scope,
    content: str,
    version: int,
    updated_at: datetime,
    earlier: Sequence[V1EarlierText] = (),
) -> V1Text | None:
    if not content:
        return None
    return V1Text(
        scope=scope,
        content=content,
        version=version,
        last_updated_at=updated_at,
        words=word_count(content),
        word_limit=builder.word_limit(scope.kind),
        earlier=tuple(earlier),
    )


def _with_length(item: V1Item) -> V1Item:
    """Add a problem to the item if its text is longer than the limit of v2."""
    target = item.target
    if not isinstance(target, V1Text) or target.words <= target.word_limit:
        return item
    problem = V1Problem(
        collection=item.sources[0].collection,
        document_id=item.sources[0].id,
        agent_id=item.agent_id,
        kind=Kind.OVER_LIMIT,
        detail=f"the text has {target.words:,} words, the limit is {target.word_limit:,}; "
        "moved whole",
    )
    return msgspec.structs.replace(item, problems=(*item.problems, problem))


def _agent_text(builder: ItemBuilder, merged: Sequence[Shard]) -> V1Item:
    written = [shard for shard in merged if shard.text.content]
    assembled = bool(written) and all(shard.text.assembled for shard in written)
    target = None
    if written:
        content = join_sections([(shard.name, shard.text.content) for shard in written])
        version = max(shard.text.version for shard in written)
        latest = max(shard.updated_at for shard in written)
        target = _text(builder, Scope.agent(builder.agent_id), content, version, latest)
    return builder.item(
        "text",
        [_build_source(builder, each, with_extra=target is not None) for each in merged],
        _reason("texts of the active shards, each under its name", assembled)
        if target
        else _NO_TEXT,
        target,
        shard=merged[0].name if len(merged) == 1 else None,
    )


# -- users ---------------------------------------------------------------------------------------


def _document(staged: V1StagedDocument) -> V1UserText:
    assert isinstance(staged.document, V1UserText)
    return staged.document


def _user_of(staged: V1StagedDocument) -> str:
    return _document(staged).user_id


def _read_updated_at(document: V1UserText) -> datetime:
    return document.last_updated_at or document.updated_at or document.created_at


def _user_text(builder: ItemBuilder, user_id: str, documents: Sequence[V1StagedDocument]) -> V1Item:
    """Return the newest text of an agent and user; older ones go to its history."""
    key = f"user/{user_id}"
    texts = [builder.text(_document(each), key) for each in documents]
    written = [(each, text) for each, text in zip(documents, texts, strict=True) if text.content]
    target = None
    assembled = bool(written) and written[-1][1].assembled
    if written:
        newest = _document(written[-1][0])
        content, version, _ = written[-1][1]
        target = _text(
            builder,
            Scope.user(builder.agent_id, user_id),
            content,
            version,
            _read_updated_at(newest),
            _earlier(written[:-1], content),
        )
    sources = []
    for number, each in enumerate(documents):
        notes = character_notes(_document(each).content, "content")
        notes += _assembled_notes(texts[number])
        if number < len(documents) - 1:
            detail = f"there is a newer text for user {user_id}: {documents[-1].id}"
            notes.append((Kind.REPEATED_PAIR, detail))
        sources.append(Source(each, *notes, *builder.refusals(each)))
    sources[-1].notes += _stranger(builder, user_id)
    return builder.item(
        "text",
        sources,
        _reason("texts of users", assembled) if target else _NO_TEXT,
        target,
        user_id=user_id,
    )


def _earlier(
    documents: Sequence[tuple[V1StagedDocument, VersionedText]], content: str
) -> list[V1EarlierText]:
    earlier = []
    for each, text in documents:
        if text.content != content:
            earlier.append(
                V1EarlierText(
                    content=text.content,
                    version=text.version,
                    at=_read_updated_at(_document(each)),
                    source=Source(each).ref,
                )
            )
    return earlier


def _stranger(builder: ItemBuilder, user_id: str) -> tuple[Note, ...]:
    """Return a note if the host has users, but not this one."""
    if not builder.has_users:
        return ()
    account = builder.stage.account(user_id)
    if account is None or account.is_agent:
        return ((Kind.UNKNOWN_USER, f"the host no longer has user {user_id}"),)
    if account.deleted:
        return ((Kind.UNKNOWN_USER, f"the host has deleted user {user_id}"),)
    return ()
