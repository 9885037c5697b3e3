"""Toggles, settings and texts of an agent: what becomes of its shards and of its users' texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import groupby

import msgspec

from edenmem.engine.migration.making import Maker, Source, character_notes
from edenmem.engine.migration.shards import (
    Shard,
    agent_policy,
    headed,
    shard_policy,
    versioned,
)
from edenmem.models.scope import Scope
from edenmem.models.v1 import (
    V1EarlierText,
    V1Item,
    V1Policy,
    V1Problem,
    V1Target,
    V1Text,
    V1Toggles,
)
from edenmem.models.v1 import V1ProblemKind as Kind
from edenmem.models.v1_documents import Note, V1Staged, V1UserText
from edenmem.text import word_count

_NO_TEXT = "it has no text yet"


def toggles(maker: Maker) -> Iterator[V1Item]:
    """Agent memory is on if one of the agent's shards is active."""
    shards = maker.shards
    if not shards:
        return
    active = any(shard.document.active for shard in shards)
    target: V1Toggles | None = V1Toggles(agent_id=maker.agent_id, agent_memory_enabled=active)
    awake = [shard for shard in shards if not maker.is_quiet(shard.key)]
    yield maker.item(
        "toggles",
        "agent",
        [Source(shard.staged, silent=True) for shard in shards],
        "one of its shards is active" if active else "all of its shards are paused",
        target,
        scope_key=(awake or shards)[0].key,
    )


def policies(maker: Maker) -> Iterator[V1Item]:
    """The settings of the shards that become scopes, and of the agent's own scope."""
    merged = _merged(maker)
    if merged and (policy := agent_policy(maker.agent_id, merged)):
        sources = [Source(shard.staged, silent=True) for shard in merged]
        reason = "the instructions of its active shards"
        target: V1Target = V1Policy(policy=policy)
        yield maker.item("policy", "agent", sources, reason, target, scope_key="agent")
    for shard in sorted(_kept(maker), key=lambda shard: shard.key):
        state = "active" if shard.document.active else "paused"
        yield maker.item(
            "policy",
            shard.key,
            [Source(shard.staged, silent=True)],
            f"the settings of its {state} shards",
            V1Policy(policy=shard_policy(maker.agent_id, shard)),
            scope_key=shard.key,
            shard=shard.name,
        )


def texts(maker: Maker) -> Iterator[V1Item]:
    """The agent's own text, its shards', its users'."""
    merged = _merged(maker)
    if merged:
        yield _with_length(_agent_text(maker, merged))
    for shard in sorted(_kept(maker), key=lambda shard: shard.key):
        content, version = shard.text
        item = maker.item(
            "text",
            shard.key,
            [_told(maker, shard)],
            "the texts of its shards" if content else _NO_TEXT,
            _text(maker, shard.scope, content, version, shard.updated_at),
            scope_key=shard.key,
            shard=shard.name,
        )
        yield _with_length(item)
    staged = maker.stage.user_texts(maker.agent_id)
    for user_id, documents in groupby(staged, key=_user_of):
        yield _with_length(_user_text(maker, user_id, list(documents)))


def _merged(maker: Maker) -> list[Shard]:
    return [shard for shard in maker.shards if shard.key == "agent"]


def _kept(maker: Maker) -> list[Shard]:
    return [shard for shard in maker.shards if shard.key != "agent"]


def _told(maker: Maker, shard: Shard) -> Source:
    notes = [*shard.notes, *character_notes(shard.document.content, "content")]
    notes += character_notes(shard.document.instructions, "extraction_prompt")
    return Source(shard.staged, *notes, *maker.refusals(shard.staged))


def _text(
    maker: Maker,
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
        word_limit=maker.word_limit(scope.kind),
        earlier=tuple(earlier),
    )


def _with_length(item: V1Item) -> V1Item:
    """The item, with a note on a text that is longer than v2 allows."""
    target = item.target
    if not isinstance(target, V1Text) or target.words <= target.word_limit:
        return item
    problem = V1Problem(
        collection=item.sources[0].collection,
        document_id=item.sources[0].id,
        agent_id=item.agent_id,
        kind=Kind.OVER_LIMIT,
        detail=f"the text has {target.words:,} words, the limit is {target.word_limit:,}; "
        "it is moved whole",
    )
    return msgspec.structs.replace(item, problems=(*item.problems, problem))


def _agent_text(maker: Maker, merged: Sequence[Shard]) -> V1Item:
    written = [shard for shard in merged if shard.text.content]
    target = None
    if written:
        content = headed([(shard.name, shard.text.content) for shard in written])
        version = max(shard.text.version for shard in written)
        latest = max(shard.updated_at for shard in written)
        target = _text(maker, Scope.agent(maker.agent_id), content, version, latest)
    return maker.item(
        "text",
        "agent",
        [_told(maker, shard) for shard in merged],
        "the texts of its active shards, each under its name" if target else _NO_TEXT,
        target,
        scope_key="agent",
        shard=merged[0].name if len(merged) == 1 else None,
    )


# -- users ---------------------------------------------------------------------------------------


def _document(staged: V1Staged) -> V1UserText:
    assert isinstance(staged.document, V1UserText)
    return staged.document


def _user_of(staged: V1Staged) -> str:
    return _document(staged).user_id


def _updated_at(document: V1UserText) -> datetime:
    return document.last_updated_at or document.updated_at or document.created_at


def _user_text(maker: Maker, user_id: str, documents: Sequence[V1Staged]) -> V1Item:
    """The newest text of a pair; others of it belong into its history."""
    written = [each for each in documents if versioned(_document(each).content).content]
    target = None
    if written:
        newest = _document(written[-1])
        content, version = versioned(newest.content)
        target = _text(
            maker,
            Scope.user(maker.agent_id, user_id),
            content,
            version,
            _updated_at(newest),
            _earlier(written[:-1], content),
        )
    sources = []
    for number, each in enumerate(documents):
        notes = character_notes(_document(each).content, "content")
        if number < len(documents) - 1:
            detail = f"there is a newer text for user {user_id}: {documents[-1].id}"
            notes.append((Kind.REPEATED_PAIR, detail))
        sources.append(Source(each, *notes, *maker.refusals(each)))
    sources[-1].notes += _stranger(maker, user_id)
    return maker.item(
        "text",
        f"user/{user_id}",
        sources,
        "the texts of its users" if target else _NO_TEXT,
        target,
        scope_key=f"user/{user_id}",
        user_id=user_id,
    )


def _earlier(documents: Sequence[V1Staged], content: str) -> list[V1EarlierText]:
    earlier = []
    for each in documents:
        text, version = versioned(_document(each).content)
        if text != content:
            earlier.append(
                V1EarlierText(
                    content=text,
                    version=version,
                    at=_updated_at(_document(each)),
                    source=Source(each).ref,
                )
            )
    return earlier


def _stranger(maker: Maker, user_id: str) -> tuple[Note, ...]:
    """A note if the host has users, and not this one."""
    if not maker.has_users:
        return ()
    account = maker.stage.account(user_id)
    if account is None or account.is_agent:
        return ((Kind.UNKNOWN_USER, f"the host has no user {user_id} any more"),)
    if account.deleted:
        return ((Kind.UNKNOWN_USER, f"the host has deleted user {user_id}"),)
    return ()
