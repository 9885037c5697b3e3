"""Which reflections may be proposed to which scope above, and against what a proposal is held.

Everything here reads and blocks; see `edenmem.engine.propagation`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from edenmem.engine.overview import defaults_of
from edenmem.engine.privacy import Confidences
from edenmem.engine.screening import normal
from edenmem.engine.visibility import human_senders
from edenmem.models.host import Agent, Session
from edenmem.models.memory import Consolidation, Policy, Reflection
from edenmem.models.scope import Scope, ScopeKind
from edenmem.models.search import FactFilter
from edenmem.settings.schema import Settings
from edenmem.store.protocol.store import Store

#: The kinds from which anything moves up.
SOURCES = (ScopeKind.USER, ScopeKind.GROUP)


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Reflections of one version that have the same scope above them, in their order.

    ``text_id`` is the id of the consolidated text whose version it is, ``memory`` what the target
    says already, line by line.
    """

    source: Scope
    version: int
    text_id: str
    target: Scope
    target_policy: Policy | None
    memory: tuple[str, ...]
    reflections: tuple[Reflection, ...]


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """What a proposal may not say: ``movable`` are the ids that may move at this moment,
    ``people`` names that must not go where everybody reads, ``said`` what is known there."""

    movable: frozenset[str]
    confidences: Confidences
    people: tuple[str, ...]
    said: frozenset[str]


def wants_propagation(settings: Settings, scope: Scope, policy: Policy | None) -> bool:
    """Whether what this scope absorbs is looked through for the scope above."""
    if scope.kind not in SOURCES or (policy is not None and policy.private):
        return False
    own = policy.propagate if policy is not None else None
    return own if own is not None else defaults_of(settings, scope.kind).propagate


def batches(store: Store, settings: Settings, scope: Scope, version: int) -> list[Batch]:
    """What there is to be proposed from a version; nothing where it is off or private by now."""
    text = store.consolidations((scope,)).get(scope)
    agent = store.agent(scope.agent_id)
    if text is None or agent is None:
        return []
    absorbed = _absorbed(store, text, version)
    by_target: dict[Scope, list[Reflection]] = {}
    for reflection in _movable(store, settings, scope, absorbed):
        target = _above(store, agent, scope, reflection)
        if target is not None:
            by_target.setdefault(target, []).append(reflection)
    policies = store.policies(tuple(by_target))
    return [
        Batch(
            source=scope,
            version=version,
            text_id=text.id,
            target=target,
            target_policy=policies.get(target),
            memory=_memory(store, target),
            reflections=tuple(reflections),
        )
        for target, reflections in sorted(by_target.items())
        if _is_open(policies.get(target))
    ]


def bounds(store: Store, settings: Settings, batch: Batch) -> Bounds:
    """Read anew, after the model was asked: what was made private meanwhile counts."""
    ids = [reflection.id for reflection in batch.reflections]
    movable = frozenset(r.id for r in _movable(store, settings, batch.source, ids))
    sessions = _sessions(store, batch.reflections)
    everybody = batch.target.kind is ScopeKind.AGENT
    return Bounds(
        movable=movable if _is_open(store.policies((batch.target,)).get(batch.target)) else _NONE,
        confidences=Confidences(_private_texts(store, batch.source, sessions)),
        people=tuple(_people(store, batch, sessions)) if everybody else (),
        said=frozenset(map(normal, _memory(store, batch.target))),
    )


_NONE: frozenset[str] = frozenset()


def _is_open(policy: Policy | None) -> bool:
    return policy is None or policy.active


def _absorbed(store: Store, text: Consolidation, version: int) -> tuple[str, ...]:
    if text.version == version:
        return text.absorbed_ids
    history = store.history("consolidation", text.id, scope=text.home)
    return next((entry.absorbed_ids for entry in history if entry.version == version), ())


def _movable(
    store: Store, settings: Settings, scope: Scope, ids: Iterable[str]
) -> Iterator[Reflection]:
    """Those of the scope's reflections that are not private, nor came from one that is by now."""
    if not wants_propagation(settings, scope, store.policies((scope,)).get(scope)):
        return
    for reflection_id in ids:
        reflection = store.reflection(reflection_id)
        if reflection is None or reflection.private or reflection.home != scope:
            continue
        if not any(_is_confidential(store, parent) for parent in reflection.propagated_from):
            yield reflection


def _is_confidential(store: Store, reflection_id: str) -> bool:
    parent = store.reflection(reflection_id)
    if parent is None:
        return False
    policy = store.policies((parent.home,)).get(parent.home)
    return parent.private or (policy is not None and policy.private)


def _above(store: Store, agent: Agent, scope: Scope, reflection: Reflection) -> Scope | None:
    """The scope that a reflection may be proposed to.

    A person's goes to the group in whose session it was learned, and where there was no group to
    everybody. Where nobody can tell, because the session is gone, it stays.
    """
    if scope.kind is ScopeKind.USER and reflection.session_id is not None:
        session = store.session(reflection.session_id)
        if session is None or session.incognito:
            return None
        if session.group_id:
            return Scope.group(agent.id, session.group_id)
    return Scope.agent(agent.id) if agent.agent_memory_enabled else None


def _memory(store: Store, target: Scope) -> tuple[str, ...]:
    text = store.consolidations((target,)).get(target)
    lines = text.consolidated_content.splitlines() if text is not None else []
    pending = (reflection.content for reflection in store.pending(target))
    return tuple(line for line in (*lines, *pending) if line.strip())


def _sessions(store: Store, reflections: Sequence[Reflection]) -> list[Session]:
    ids = dict.fromkeys(r.session_id for r in reflections if r.session_id is not None)
    return [session for session in map(store.session, ids) if session is not None]


def _private_texts(store: Store, source: Scope, sessions: Sequence[Session]) -> Iterator[str]:
    """All that is private in the scope, and in the conversations that the reflections are from."""
    talks = [Scope.session(source.agent_id, session.id) for session in sessions]
    for reflection in store.reflections((source, *talks)):
        if reflection.private:
            yield reflection.content
    for fact in store.facts(FactFilter(scopes=(source,))):
        if fact.private:
            yield fact.content


def _people(store: Store, batch: Batch, sessions: Sequence[Session]) -> Iterator[str]:
    """The names of all who took part: of their accounts, and as the conversations show them."""
    accounts = {batch.source.owner} if batch.source.kind is ScopeKind.USER else set[str]()
    for session in sessions:
        accounts.update(session.users, store.senders(session.id))
        own = (r for r in batch.reflections if r.session_id == session.id)
        messages = store.messages(
            session.id, ids=sorted({id for r in own for id in r.source_message_ids})
        )
        for message in messages:
            if message.name and human_senders(session, (message,)):
                yield message.name
    for user in store.users_by_ids(sorted(accounts)).values():
        yield user.username
