"""Convert ``memory_sessions`` of v1 to facts, reflections and episodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import chain, groupby
from typing import Any

from edenmem.engine.migration.items import fact_id, target_id
from edenmem.engine.migration.text_items import (
    ItemBuilder,
    Source,
    character_notes,
    problems_of,
)
from edenmem.models.ids import is_id
from edenmem.models.memory import Fact, Reflection, content_hash
from edenmem.models.scope import Scope
from edenmem.models.v1 import Outcome, V1Item, V1ItemKind
from edenmem.models.v1 import V1ProblemKind as Kind
from edenmem.models.v1_documents import Note, V1Memory, V1StagedDocument, V1UserText
from edenmem.text import clean, word_count

_NO_TEXT = "memories without text"

#: Why a document that no item uses is left behind, by its fate in the stage.
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
#: Fates of unusable documents.
BAD = ("unreadable", "bad", "duplicate", "unknown")


def _memory(staged: V1StagedDocument) -> V1Memory:
    assert isinstance(staged.document, V1Memory)
    return staged.document


def _content(staged: V1StagedDocument) -> str:
    return clean(_memory(staged).content).strip()


def _notes(staged: V1StagedDocument, content: str, limit: int, *, times: int = 1) -> list[Note]:
    memory = _memory(staged)
    notes = character_notes(memory.content, "content")
    if not content:
        notes.append((Kind.EMPTY, "content is empty"))
    elif _may_exceed(content, limit) and (words := word_count(content)) > limit:
        detail = f"the {memory.memory_type or 'memory'} has {words:,} words, the limit is {limit}"
        notes.append((Kind.OVER_LIMIT, f"{detail}; moved whole"))
    if times > 1:
        notes.append((Kind.LISTED_TWICE, f"listed {times} times; moved once"))
    return notes


def _may_exceed(content: str, limit: int) -> bool:
    """Return whether a text may have more words: in ASCII, each ends at white space."""
    return not content.isascii() or len(content.split()) > limit


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
    for (key, content), group in groupby(rows, key=lambda row: (row[0], _content(row[2]))):
        equal = list(group)
        sources = []
        for _, times, staged in equal:
            notes = _notes(staged, content, builder.options.fact_words, times=times)
            sources.append(Source(staged, *notes, *_wrong_type(staged, "fact", "facts")))
        memories = [_memory(staged) for *_, staged in equal]
        hash, scope = content_hash(content), builder.scope(key)
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
            "facts listed by shards" if content else _NO_TEXT,
            shard=builder.shard_name(key, (memory.shard_id for memory in memories)),
            fact=fact,
        )


def _read_corrected_at(memory: V1Memory) -> datetime | None:
    updated = memory.updated_at
    return updated if updated is not None and updated > memory.created_at else None


# -- reflections ---------------------------------------------------------------------------------


def reflections(builder: ItemBuilder) -> Iterator[V1Item]:
    """Yield reflections by scope: absorbed ones if requested, then pending ones in order."""
    stage, agent_id = builder.stage, builder.agent_id
    pending = dict(stage.pending_scopes(agent_id))
    absorbed = (
        set(stage.list_absorbed_scopes(agent_id)) if builder.options.provenance else set[str]()
    )
    for key in sorted(pending.keys() | absorbed):
        scope = builder.scope(key)
        if key in absorbed:
            at = stage.text_written_at(agent_id, key)
            for staged in stage.find_absorbed(agent_id, key):
                created = _memory(staged).created_at
                yield _reflection(
                    builder,
                    scope,
                    staged,
                    "directives and suggestions already absorbed by a text",
                    shard=builder.shard_name(key, (_memory(staged).shard_id,)),
                    absorbed=True,
                    absorbed_at=max(at, created) if at is not None else created,
                )
        # v2 reads a buffer oldest first; memories of the same time keep the order of their list.
        lists = [stage.pending(lister, key) for lister in pending.get(key, ())]
        buffer = sorted(chain.from_iterable(lists), key=lambda row: _memory(row[1]).created_at)
        kind = "directive" if scope.user_id else "suggestion"
        for _, moment in groupby(buffer, key=lambda row: _memory(row[1]).created_at):
            for place, (times, staged) in enumerate(moment):
                yield _reflection(
                    builder,
                    scope,
                    staged,
                    f"pending {kind}s",
                    *_wrong_type(staged, kind, f"{kind}s"),
                    shard=builder.shard_name(key, (_memory(staged).shard_id,)),
                    times=times,
                    place=place,
                )


def _reflection(
    builder: ItemBuilder,
    scope: Scope,
    staged: V1StagedDocument,
    reason: str,
    *notes: Note,
    kind: V1ItemKind = "reflection",
    shard: str | None = None,
    times: int = 1,
    **more: Any,
) -> V1Item:
    memory, content = _memory(staged), _content(staged)
    own = _notes(staged, content, builder.options.reflection_words, times=times)
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
        [Source(staged, *own, *notes)],
        reason if content else _NO_TEXT,
        shard=shard,
        user_id=scope.user_id,
        reflection=reflection,
        word_limit=builder.word_limits[scope.kind],
    )


def episodes(builder: ItemBuilder) -> Iterator[V1Item]:
    """Yield episodes as reflections of their sessions."""
    for staged in builder.stage.episodes(builder.agent_id):
        if session_id := _memory(staged).session_id:
            scope = Scope.session(builder.agent_id, session_id)
            yield _reflection(builder, scope, staged, "episodes", kind="episode")
        else:
            notes = _notes(staged, _content(staged), builder.options.reflection_words)
            reason = "episodes without a session"
            yield builder.item("episode", [Source(staged, *notes)], reason)


# -- the rest ------------------------------------------------------------------------------------


def leftover(fate: str, staged: V1StagedDocument) -> V1Item:
    """Return the item of a document that no other item uses."""
    notes = list(staged.notes)
    if fate in BAD:
        notes += _bad_notes(fate, staged)
    return V1Item(
        kind="episode" if fate == "episode" else "leftover",
        agent_id=staged.document.agent_id if staged.document else "",
        sources=(Source(staged).ref,),
        outcome=Outcome.BAD if fate in BAD else Outcome.LEFT_BEHIND,
        reason=REASONS[fate],
        problems=tuple(problems_of(staged, notes)),
    )


def _bad_notes(fate: str, staged: V1StagedDocument) -> Iterator[Note]:
    document = staged.document
    if fate == "duplicate":
        yield Kind.DUPLICATE_ID, f"{staged.collection} has another document with this ID"
    elif fate == "unknown":
        kind = _memory(staged).memory_type
        yield Kind.UNKNOWN_TYPE, f"memory_type is {kind!r}" if kind else "memory_type is missing"
    elif document is not None and not any(kind is Kind.NO_OWNER for kind, _ in staged.notes):
        missing = "agent_id" if not document.agent_id else "user_id"
        assert missing == "agent_id" or isinstance(document, V1UserText)
        yield Kind.NO_OWNER, f"{missing} is missing"
