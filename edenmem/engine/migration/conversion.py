"""Convert the documents of v1 to items: switches, settings, texts, facts and reflections."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple

import msgspec

from edenmem.engine.migration.items import fact_id, target_id
from edenmem.memory.texts import has_lists, split_off_text
from edenmem.models.ids import derived_id, is_id
from edenmem.models.memory import Consolidation, Fact, Policy, Reflection
from edenmem.models.scope import Scope
from edenmem.models.v1 import (
    SHARDS,
    Note,
    Outcome,
    V1EarlierText,
    V1Item,
    V1ItemKind,
    V1Memory,
    V1Options,
    V1Problem,
    V1Ref,
    V1Shard,
    V1StagedDocument,
    V1UserText,
)
from edenmem.models.v1 import V1ProblemKind as Kind
from edenmem.store.sqlite.v1.staging import SqliteV1Stage
from edenmem.text import clean, one_line

#: Why a listed memory ID is ignored.
_REFUSALS = {
    "dangling": (Kind.DANGLING, "memory {} is missing; ignored"),
    "foreign_agent": (Kind.FOREIGN_AGENT, "memory {} belongs to another agent; left there"),
    "foreign_user": (Kind.FOREIGN_USER, "memory {} belongs to another user; left there"),
    "wrong_type": (Kind.WRONG_TYPE, "memory {} does not belong in this list; ignored"),
    "wider": (Kind.WRONG_TYPE, "memory {} has no type; left in its narrower list"),
}
#: Maximum length of a shard name, without room for a number.
_NAME_CHARACTERS = 94

_VERSION_LINE = re.compile(r"\s*VERSION:\s*(\d{1,9})[^\S\n]*(?:\n|\Z)", re.IGNORECASE)

#: Why a document that no item uses is left behind, by its cause in the stage.
REASONS = {
    "episode": "episodes",
    "unlisted": "facts dropped by their shards",
    "shardless": "facts of shards without a document",
    "absorbed": "memories already absorbed by a text",
    "shared": "memories already absorbed by a text, of an ambiguous user",
    "orphan": "memories of a user or shard without a document",
    "refused": "memories listed only where they do not belong",
    "unreadable": "unreadable document",
    "bad": "unknown owner",
    "duplicate": "duplicate ID",
    "unknown": "unknown memory type",
}
#: Causes of unusable documents.
BAD = ("unreadable", "bad", "duplicate", "unknown")


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
        self.ref = V1Ref(staged.collection, staged.id)


class ItemBuilder:
    """Build the items of one agent; ``use`` notes whether a document has a target."""

    def __init__(
        self,
        stage: SqliteV1Stage,
        options: V1Options,
        agent_id: str,
        use: Callable[[int, bool], None],
    ) -> None:
        self.stage = stage
        self.options = options
        self.agent_id = agent_id
        self._use = use
        self._has_users = stage.has("accounts", 0)

    @cached_property
    def shards(self) -> list[Shard]:
        """Return the agent's shards, oldest first, with unique names."""
        shards: list[Shard] = []
        for staged in self.stage.shards(self.agent_id):
            document = staged.document
            assert isinstance(document, V1Shard)
            name, notes = _name(document, {each.name for each in shards})
            if self.options.shards == "merge" and document.active:
                key, scope = "agent", Scope.agent(self.agent_id)
            else:
                key, scope = shard_key(document.id), Scope.shard(self.agent_id, name)
            text = self._text(document, key)
            shards.append(Shard(staged, document, name, key, scope, notes, text))
        return shards

    @cached_property
    def merged(self) -> list[Shard]:
        """Return the shards that become the agent's own memory."""
        return [shard for shard in self.shards if shard.key == "agent"]

    @cached_property
    def kept(self) -> list[Shard]:
        """Return the shards that become scopes, by key."""
        kept = (shard for shard in self.shards if shard.key != "agent")
        return sorted(kept, key=lambda shard: shard.key)

    @cached_property
    def _scopes(self) -> dict[str, Scope]:
        return {shard.key: shard.scope for shard in self.shards}

    def scope(self, key: str) -> Scope:
        """Return the scope with this key in the stage."""
        kind, _, owner = key.partition("/")
        return Scope.user(self.agent_id, owner) if kind == "user" else self._scopes[key]

    def _text(self, document: V1Shard | V1UserText, key: str) -> VersionedText:
        """Return the text of a shard or user: ``content``, else from the assembled text."""
        own = split_version(document.content)
        if own.content or not document.assembled:
            return own
        listed: Iterator[str] = iter(())
        if has_lists(document.assembled):
            memories = self.stage.documents("used", self.agent_id, key)
            listed = (clean(each.document.content) for each in memories if each.document)
        instructions = clean(document.instructions) if isinstance(document, V1Shard) else ""
        found = split_off_text(clean(document.assembled), instructions=instructions, listed=listed)
        return split_version(found)._replace(assembled=bool(found))

    # -- items -------------------------------------------------------------------------------

    def item(
        self,
        kind: V1ItemKind,
        sources: Sequence[Source],
        reason: str,
        *,
        earlier: Sequence[V1EarlierText] = (),
        **target: Any,
    ) -> V1Item:
        """Return an item with a target, if one is not None, and note the use of its documents."""
        has_target = any(value is not None for value in target.values())
        problems: list[V1Problem] = []
        for source in sources:
            self._use(source.staged.number, has_target)
            if source.notes:
                problems += problems_of(source.staged, source.notes, self.agent_id)
            if not has_target and source.extra:
                note = Kind.NO_PLACE, f"not migrated, with its unknown fields: {source.extra}"
                problems += problems_of(source.staged, [note], self.agent_id)
        moved = Outcome.MIGRATED if len(sources) == 1 else Outcome.MERGED
        extra = {
            f"{source.ref.collection}/{source.ref.id}": msgspec.Raw(source.extra.encode())
            for source in sources
            if source.extra
        }
        return V1Item(
            kind=kind,
            agent_id=self.agent_id,
            sources=tuple(dict.fromkeys(source.ref for source in sources)),
            outcome=moved if has_target else Outcome.LEFT_BEHIND,
            reason=reason,
            earlier=tuple(earlier),
            problems=tuple(problems),
            extra=msgspec.json.encode(extra).decode() if extra else "",
            **target,
        )

    def _text_item(
        self,
        scope: Scope,
        sources: Sequence[Source],
        text: VersionedText,
        at: datetime | None,
        reason: str,
        *,
        earlier: Sequence[V1EarlierText] = (),
    ) -> V1Item:
        """Return the item of a text, which has no target if the text is empty."""
        if not text.content:
            return self.item("text", sources, "no text yet")
        made = Consolidation(
            id="",
            **scope.fields(),
            consolidated_content=text.content,
            version=text.version,
            word_limit=self.options.word_limit(scope),
            updated_at=at,
        )
        if text.assembled:
            reason = f"{reason}, taken from fully_formed_memory"
        return self.item("text", sources, reason, text=made, earlier=earlier)

    def notes(self, staged: V1StagedDocument, text: VersionedText) -> list[Note]:
        """Return the notes on a document's text and lists."""
        assert staged.document is not None
        notes = character_notes(staged.document.content, "content")
        if text.assembled:
            detail = "content is empty; the text is taken from fully_formed_memory"
            notes.append((Kind.ASSEMBLED_TEXT, detail))
        for listed, verdict in self.stage.find_refused(staged.number):
            kind, words = _REFUSALS[verdict]
            notes.append((kind, words.format(listed)))
        return notes

    def switch(self) -> Iterator[V1Item]:
        """Yield the switch of agent memory: on if one of the agent's shards is active."""
        if not self.shards:
            return
        active = any(shard.document.active for shard in self.shards)
        has_memory = _instructions(self.merged) or any(each.text.content for each in self.merged)
        yield self.item(
            "toggles",
            [
                Source(each.staged, silent=True, with_extra=each in self.merged and not has_memory)
                for each in self.shards
            ],
            "one of its shards is active" if active else "all of its shards are paused",
            switch=active,
        )

    def policies(self) -> Iterator[V1Item]:
        """Yield the settings of shards that become scopes, and of the agent's own scope.

        The limits of single shards do not apply to the merged scope.
        """
        if instructions := _instructions(self.merged):
            scope = Scope.agent(self.agent_id)
            has_text = any(shard.text.content for shard in self.merged)
            yield self.item(
                "policy",
                [Source(each.staged, silent=True, with_extra=not has_text) for each in self.merged],
                "instructions of the active shards",
                policy=Policy(
                    id=target_id("policy", "", scope),
                    **scope.fields(),
                    memory_instructions=instructions,
                ),
            )
        for shard in self.kept:
            document = shard.document
            yield self.item(
                "policy",
                [Source(shard.staged, silent=True, with_extra=not shard.text.content)],
                f"settings of {'active' if document.active else 'paused'} shards",
                policy=Policy(
                    id=target_id("policy", document.id, shard.scope),
                    **shard.scope.fields(),
                    memory_instructions=clean(document.instructions).strip() or None,
                    consolidate_at=document.max_pending,
                    fact_buffer_max=document.max_facts,
                    active=document.active,
                ),
            )

    def texts(self) -> Iterator[V1Item]:
        """Yield the texts of the agent, its shards and its users."""
        if self.merged:
            written = [shard for shard in self.merged if shard.text.content]
            text = VersionedText(
                _join_sections([(shard.name, shard.text.content) for shard in written]),
                max((shard.text.version for shard in written), default=1),
                all(shard.text.assembled for shard in written),
            )
            yield self._text_item(
                Scope.agent(self.agent_id),
                [self._source(each, with_extra=bool(written)) for each in self.merged],
                text,
                max((_written_at(shard.document) for shard in written), default=None),
                "texts of the active shards, each under its name",
            )
        for shard in self.kept:
            yield self._text_item(
                shard.scope,
                [self._source(shard, with_extra=bool(shard.text.content))],
                shard.text,
                _written_at(shard.document),
                "texts of shards",
            )
        staged = self.stage.documents("user_texts", self.agent_id)
        for user_id, documents in groupby(staged, key=lambda each: _of_user(each).user_id):
            yield self._user_text(user_id, list(documents))

    def _source(self, shard: Shard, *, with_extra: bool) -> Source:
        notes = [*shard.notes, *self.notes(shard.staged, shard.text)]
        notes += character_notes(shard.document.instructions, "extraction_prompt")
        # Without a text, the settings or the switch carry the unknown fields.
        return Source(shard.staged, *notes, with_extra=with_extra)

    def _user_text(self, user_id: str, documents: Sequence[V1StagedDocument]) -> V1Item:
        """Return the newest text of an agent and user; older ones go to its history."""
        texts = [self._text(_of_user(each), f"user/{user_id}") for each in documents]
        written = [pair for pair in zip(documents, texts, strict=True) if pair[1].content]
        newest, text = written[-1] if written else (documents[-1], VersionedText("", 1))
        sources = []
        for each, own in zip(documents, texts, strict=True):
            notes = self.notes(each, own)
            if each is not documents[-1]:
                detail = f"there is a newer text for user {user_id}: {documents[-1].id}"
                notes.append((Kind.REPEATED_PAIR, detail))
            elif stranger := self._stranger(user_id):
                notes.append((Kind.UNKNOWN_USER, stranger))
            sources.append(Source(each, *notes))
        return self._text_item(
            Scope.user(self.agent_id, user_id),
            sources,
            text,
            _written_at(_of_user(newest)),
            "texts of users",
            earlier=[
                V1EarlierText(
                    content=old.content,
                    version=old.version,
                    at=_written_at(_of_user(each)),
                    source=Source(each).ref,
                )
                for each, old in written[:-1]
                if old.content != text.content
            ],
        )

    def _stranger(self, user_id: str) -> str:
        """Return a note if the host has users, but not this one."""
        account = next(iter(self.stage.accounts("one", user_id)), None)
        if not self._has_users or (account is not None and account.known and not account.is_agent):
            return ""
        if account is None or account.is_agent:
            return f"the host no longer has user {user_id}"
        return f"the host has deleted user {user_id}"


def shard_key(document_id: str) -> str:
    """Return the key in the stage of a shard that becomes a scope."""
    own = document_id if is_id(document_id) else derived_id("v1", SHARDS, document_id)
    return f"shard/{own}"


def character_notes(text: str, field: str) -> list[Note]:
    """Return a note if a text contains control characters, which no store accepts."""
    if clean(text) == text.replace("\r\n", "\n").replace("\r", "\n"):
        return []
    return [(Kind.CONTROL_CHARACTERS, f"{field} contains control characters; removed")]


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


def _name(document: V1Shard, taken: set[str]) -> tuple[str, tuple[Note, ...]]:
    notes: list[Note] = []
    name = one_line(clean(document.name))
    if not name:
        name = f"shard {document.id[:8]}"
        notes.append((Kind.EMPTY, f"shard_name is missing; named {name!r}"))
    if len(name) > _NAME_CHARACTERS:
        notes.append((Kind.WRONG_SHAPE, f"shard_name is too long; shortened: {name}"))
        name = name[:_NAME_CHARACTERS].rstrip()
    numbered, number = name, 1
    while numbered in taken:
        number += 1
        numbered = f"{name} ({number})"
    if number > 1:
        detail = f"the agent has another shard {name!r}; this one is renamed to {numbered!r}"
        notes.append((Kind.REPEATED_SHARD, detail))
    return numbered, tuple(notes)


def _instructions(merged: Iterable[Shard]) -> str:
    """Return the instructions of shards, each under its name."""
    return _join_sections([(each.name, clean(each.document.instructions)) for each in merged])


def _join_sections(sections: Sequence[tuple[str, str]]) -> str:
    """Join the non-empty sections, each under its heading."""
    found = ((name, text.strip()) for name, text in sections)
    return "\n\n".join(f"## {name}\n\n{text}" for name, text in found if text)


def _of_user(staged: V1StagedDocument) -> V1UserText:
    assert isinstance(staged.document, V1UserText)
    return staged.document


def _written_at(document: V1Shard | V1UserText) -> datetime:
    """Return when a text was last written."""
    return document.last_updated_at or document.updated_at or document.created_at


# -- memories ------------------------------------------------------------------------------------


def _memory(staged: V1StagedDocument) -> V1Memory:
    assert isinstance(staged.document, V1Memory)
    return staged.document


def _content(staged: V1StagedDocument) -> str:
    return clean(_memory(staged).content).strip()


def _notes(staged: V1StagedDocument, content: str) -> list[Note]:
    notes = character_notes(_memory(staged).content, "content")
    if not content:
        notes.append((Kind.EMPTY, "content is empty"))
    return notes


def _wrong_type(staged: V1StagedDocument, expected: str, where: str) -> list[Note]:
    found = _memory(staged).memory_type
    if found == expected:
        return []
    what = f"a {found}" if found else "a memory without type"
    return [(Kind.WRONG_TYPE, f"{what} listed among {where}; moved as one of them")]


def _related_users(memories: Sequence[V1Memory]) -> tuple[str, ...]:
    """Return the distinct users named by memories."""
    users = (user for memory in memories for user in memory.users if is_id(user))
    return tuple(dict.fromkeys(users))


# -- facts ---------------------------------------------------------------------------------------


def facts(builder: ItemBuilder) -> Iterator[V1Item]:
    """Yield the facts listed by shards, each text once per scope."""
    rows = builder.stage.facts(builder.agent_id)
    for (key, hash), group in groupby(rows, key=lambda row: row[0]):
        equal = [staged for _, staged in group]
        content = _content(equal[0])
        sources = [
            Source(each, *_notes(each, content), *_wrong_type(each, "fact", "facts"))
            for each in equal
        ]
        memories = list(map(_memory, equal))
        scope = builder.scope(key)
        fact = None
        if content:
            fact = Fact(
                id=fact_id(scope, hash),
                **scope.fields(session_id=memories[0].session_id or None),
                content=content,
                hash=hash,
                formed_at=memories[0].created_at,
                updated_at=_read_corrected_at(memories[0]),
                source_message_ids=tuple(
                    dict.fromkeys(each for memory in memories for each in memory.message_ids)
                ),
                related_users=_related_users(memories),
            )
        yield builder.item(
            "fact",
            sources,
            "facts listed by shards" if content else "memories without text",
            fact=fact,
        )


def _read_corrected_at(memory: V1Memory) -> datetime | None:
    updated = memory.updated_at
    return updated if updated is not None and updated > memory.created_at else None


# -- reflections ---------------------------------------------------------------------------------


def reflections(builder: ItemBuilder) -> Iterator[V1Item]:
    """Yield reflections by scope: absorbed ones if requested, then pending ones in order."""
    stage, agent_id = builder.stage, builder.agent_id
    pending = set(stage.column("pending_scopes", agent_id))
    absorbed = (
        set(stage.column("absorbed_scopes", agent_id)) if builder.options.provenance else set[str]()
    )
    for key in sorted(pending | absorbed):
        scope = builder.scope(key)
        if key in absorbed:
            at = stage.text_written_at(agent_id, key)
            for staged in stage.documents("absorbed", agent_id, key):
                created = _memory(staged).created_at
                yield _reflection(
                    builder,
                    scope,
                    staged,
                    "directives and suggestions already absorbed by a text",
                    absorbed=True,
                    absorbed_at=max(at, created) if at is not None else created,
                )
        # v2 reads a buffer oldest first; memories of the same time keep the order of their list.
        listed = stage.documents("pending", agent_id, key)
        buffer = sorted(listed, key=lambda each: _memory(each).created_at)
        kind = "directive" if scope.user_id else "suggestion"
        for _, moment in groupby(buffer, key=lambda each: _memory(each).created_at):
            for place, staged in enumerate(moment):
                yield _reflection(
                    builder,
                    scope,
                    staged,
                    f"pending {kind}s",
                    *_wrong_type(staged, kind, f"{kind}s"),
                    place=place,
                )


def _reflection(
    builder: ItemBuilder,
    scope: Scope,
    staged: V1StagedDocument,
    reason: str,
    *notes: Note,
    kind: V1ItemKind = "reflection",
    **more: Any,
) -> V1Item:
    memory, content = _memory(staged), _content(staged)
    reflection = None
    if content:
        reflection = Reflection(
            id=target_id("reflection", staged.id, scope),
            **scope.fields(session_id=memory.session_id or None),
            content=content,
            formed_at=memory.created_at,
            updated_at=_read_corrected_at(memory),
            source_message_ids=memory.message_ids,
            related_users=_related_users([memory]),
            **more,
        )
    return builder.item(
        kind,
        [Source(staged, *_notes(staged, content), *notes)],
        reason if content else "memories without text",
        reflection=reflection,
    )


def episodes(builder: ItemBuilder) -> Iterator[V1Item]:
    """Yield episodes as reflections of their sessions."""
    for staged in builder.stage.documents("episodes", builder.agent_id):
        if session_id := _memory(staged).session_id:
            scope = Scope.session(builder.agent_id, session_id)
            yield _reflection(builder, scope, staged, "episodes", kind="episode")
        else:
            notes = _notes(staged, _content(staged))
            reason = "episodes without a session"
            yield builder.item("episode", [Source(staged, *notes)], reason)


# -- the rest ------------------------------------------------------------------------------------


def leftover(cause: str, staged: V1StagedDocument) -> V1Item:
    """Return the item of a document that no other item uses."""
    notes = list(staged.notes)
    if cause in BAD:
        notes += _bad_notes(cause, staged)
    return V1Item(
        kind="episode" if cause == "episode" else "leftover",
        agent_id=staged.document.agent_id if staged.document else "",
        sources=(Source(staged).ref,),
        outcome=Outcome.BAD if cause in BAD else Outcome.LEFT_BEHIND,
        reason=REASONS[cause],
        problems=tuple(problems_of(staged, notes)),
    )


def _bad_notes(cause: str, staged: V1StagedDocument) -> Iterator[Note]:
    document = staged.document
    if cause == "duplicate":
        yield Kind.DUPLICATE_ID, f"{staged.collection} has another document with this ID"
    elif cause == "unknown":
        kind = _memory(staged).memory_type
        yield Kind.UNKNOWN_TYPE, f"memory_type is {kind!r}" if kind else "memory_type is missing"
    elif document is not None and not any(kind is Kind.NO_OWNER for kind, _ in staged.notes):
        missing = "agent_id" if not document.agent_id else "user_id"
        assert missing == "agent_id" or isinstance(document, V1UserText)
        yield Kind.NO_OWNER, f"{missing} is missing"
