"""What a database has that differs from what it must have, by name."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from tests.v1world.memory import Item, Memory, Person, Policy, Scope, Text


class Difference(NamedTuple):
    """One difference: what it is called, whose memory it is in, and the details."""

    name: str
    scope: Scope
    detail: str

    def __str__(self) -> str:
        return f"{self.name} [{self.scope}] {self.detail}"


def compare(wanted: Memory, found: Memory) -> list[Difference]:
    """List all differences: what is missing, what is not the same, and what is too much."""
    return [
        *_items("fact", wanted.facts, found.facts),
        *_items("reflection", wanted.reflections, found.reflections),
        *_pending(wanted, found),
        *_texts(wanted, found),
        *_policies(wanted.policies, found.policies),
        *_people(wanted.people, found.people),
    ]


def with_live(wanted: Memory, live: Memory, on_conflict: str) -> Memory:
    """Say what is wanted where a store has memory of its own before the run.

    Args:
        wanted: What a run makes in an empty store.
        live: What the store had.
        on_conflict: keep or replace.
    """
    standing = {text.scope: text for text in live.texts}
    texts = [text for text in live.texts if text.scope not in {each.scope for each in wanted.texts}]
    for text in wanted.texts:
        own = standing.get(text.scope)
        if own is None:
            texts.append(text)
        elif on_conflict == "keep" or own.content == text.content:
            texts.append(own)
        else:
            earlier = (own.content, *text.earlier)
            texts.append(replace(text, version=0, earlier=earlier))
    pending = {scope: list(contents) for scope, contents in live.pending.items()}
    reflections = [*live.reflections, *wanted.reflections]
    formed = {(each.scope, each.content): each.formed_at for each in reflections}
    for scope, contents in wanted.pending.items():
        both = [*pending.get(scope, ()), *contents]
        pending[scope] = sorted(both, key=lambda content: formed[scope, content])
    policies = {policy.scope: policy for policy in (*wanted.policies, *live.policies)}
    return Memory(
        facts=[*live.facts, *wanted.facts],
        reflections=reflections,
        texts=texts,
        policies=list(policies.values()),
        people={**live.people, **wanted.people},
        pending=pending,
    )


# -- facts and reflections -----------------------------------------------------------------------


def _items(kind: str, wanted: Iterable[Item], found: Iterable[Item]) -> Iterator[Difference]:
    """Match by scope and content, one to one."""
    have: dict[tuple[Scope, str], list[Item]] = defaultdict(list)
    for item in found:
        have[item.scope, item.content].append(item)
    contents = Counter(item.content for item in wanted)
    missing = []
    for item in wanted:
        others = have[item.scope, item.content]
        if not others:
            missing.append(item)
            continue
        # Of several the one with the wanted id; the others are too many.
        chosen = next((each for each in others if each.id == item.id), others[0])
        others.remove(chosen)
        yield from _fields(kind, item, chosen)
    extra = [item for items in have.values() for item in items]
    for item in missing:
        same_id = next((each for each in extra if item.id and each.id == item.id), None)
        if same_id is not None:
            extra.remove(same_id)
            if same_id.scope != item.scope:
                detail = f"{_short(item.content)} is in {same_id.scope}"
                yield Difference(f"{kind} in another scope", item.scope, detail)
            if same_id.content != item.content:
                detail = f"{_short(item.content)} is {_short(same_id.content)}"
                yield Difference(f"{kind} content", item.scope, detail)
        else:
            yield Difference(f"{kind} missing", item.scope, _short(item.content))
    for item in extra:
        name = f"{kind} duplicate or copy" if contents[item.content] else f"{kind} extra"
        yield Difference(name, item.scope, _short(item.content))


def _fields(kind: str, wanted: Item, found: Item) -> Iterator[Difference]:
    fields: dict[str, tuple[object, object]] = {
        "formed_at": (wanted.formed_at, found.formed_at),
        "updated_at": (wanted.updated_at, found.updated_at),
        "session": (wanted.session, found.session),
        "private": (wanted.private, found.private),
        "version": (wanted.version, found.version),
        "previous content": (wanted.previous, found.previous),
        "hash": (wanted.hash, found.hash),
        "absorbed": (wanted.absorbed, found.absorbed),
        "absorbed_at": (wanted.absorbed_at, found.absorbed_at),
        "related users": (wanted.related or None, found.related or None),
        "messages": (wanted.messages, found.messages),
    }
    if wanted.merged:
        fields["messages"] = (sorted(wanted.messages), sorted(found.messages))
    if wanted.id:
        fields["id"] = (wanted.id, found.id)
    for name, (want, have) in fields.items():
        if want != have:
            detail = f"{_short(wanted.content)}: {have!r}, not {want!r}"
            yield Difference(f"{kind} {name}", wanted.scope, detail)


def _pending(wanted: Memory, found: Memory) -> Iterator[Difference]:
    for scope in sorted(wanted.pending.keys() | found.pending.keys()):
        want, have = wanted.pending.get(scope, []), found.pending.get(scope, [])
        if scope.kind == "session":
            continue  # nobody consolidates a session of v1; its episodes are compared above
        if Counter(want) != Counter(have):
            detail = f"{len(have)} wait, not {len(want)}"
            yield Difference("buffer", scope, detail)
        elif want != have:
            yield Difference("order of the buffer", scope, " | ".join(map(_short, have)))


# -- texts ---------------------------------------------------------------------------------------


def _texts(wanted: Memory, found: Memory) -> Iterator[Difference]:
    have: dict[Scope, list[Text]] = defaultdict(list)
    for text in found.texts:
        have[text.scope].append(text)
    for text in wanted.texts:
        own = have.pop(text.scope, [])
        if not own:
            yield Difference("text missing", text.scope, _short(text.content))
            continue
        if len(own) > 1:
            yield Difference("text twice", text.scope, _short(text.content))
        yield from _text(text, own[0], found)
    for texts in have.values():
        for text in texts:
            yield Difference("text extra", text.scope, _short(text.content))


def _text(wanted: Text, found: Text, memory: Memory) -> Iterator[Difference]:
    if found.content not in (wanted.content, *wanted.accepted):
        detail = f"{_short(found.content)}, not {_short(wanted.content)}"
        yield Difference("text content", wanted.scope, detail)
    if wanted.version and found.version != wanted.version:
        detail = f"{found.version}, not {wanted.version}"
        yield Difference("text version", wanted.scope, detail)
    if wanted.updated_at is not None and found.updated_at != wanted.updated_at:
        detail = f"{found.updated_at}, not {wanted.updated_at}"
        yield Difference("text time", wanted.scope, detail)
    if found.consolidated_at != wanted.consolidated_at and wanted.version:
        detail = f"{found.consolidated_at}, not {wanted.consolidated_at}"
        yield Difference("text consolidation time", wanted.scope, detail)
    history = memory.history.get(wanted.scope, [])
    at = 0
    for earlier in wanted.earlier:
        if earlier not in history[at:]:
            yield Difference("earlier text", wanted.scope, _short(earlier))
        elif wanted.version:  # else live texts are among them, at any place
            at = history.index(earlier, at) + 1
    if wanted.marked and not any(
        "fully_formed_memory" in reason for reason in memory.reasons.get(wanted.scope, ())
    ):
        yield Difference("text not marked", wanted.scope, _short(wanted.content))


# -- settings and people -------------------------------------------------------------------------


def _policies(wanted: Iterable[Policy], found: Iterable[Policy]) -> Iterator[Difference]:
    have = {policy.scope: policy for policy in found}
    for policy in wanted:
        own = have.pop(policy.scope, None)
        if own is None:
            yield Difference("policy missing", policy.scope, "")
        elif own != policy:
            for name in ("instructions", "consolidate_at", "fact_buffer_max", "active", "private"):
                want, is_ = getattr(policy, name), getattr(own, name)
                if want != is_:
                    detail = f"{is_!r}, not {want!r}"
                    yield Difference(f"policy {name}", policy.scope, detail)
            if own.others != policy.others:
                yield Difference("policy others", policy.scope, repr(own.others))
    for policy in have.values():
        yield Difference("policy extra", policy.scope, "")


def _people(wanted: Mapping[str, Person], found: Mapping[str, Person]) -> Iterator[Difference]:
    for person in wanted.values():
        kind = "agent" if person.is_agent else "user"
        scope = Scope(kind, person.id)
        own = found.get(person.id)
        if own is None:
            yield Difference(f"{kind} missing", scope, person.username)
            continue
        names = ("username", "name", "persona", "owner", "person", "user_memory", "agent_memory")
        for name in names:
            want, have = getattr(person, name), getattr(own, name)
            if want not in (None, "") and want != have:
                detail = f"{have!r}, not {want!r}"
                yield Difference(f"{kind} {name.replace('_', ' ')}", scope, detail)


def _short(text: str) -> str:
    return repr(text if len(text) <= 50 else f"{text[:30]}…{text[-15:]}")
