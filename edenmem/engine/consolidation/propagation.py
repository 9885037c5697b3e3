"""Propagate general insights of a narrow scope, as reflections, to the scope above, unless private.

Off by default. The model sees only absorbed reflections that are not private, never the text of
the scope. Its proposals are compared with all private content before they are written, because a
model may ignore its instructions.

Consolidation marks a version as pending propagation in the same atomic write; the mark is removed
when all proposals are applied. Their IDs are derived from the version and the reflection, so that
a retry after a crash adds no duplicates.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

import msgspec

from edenmem.acceptance.rules import object_to
from edenmem.acceptance.texts import fold
from edenmem.engine.runtime.answers import PropagateAnswer, PropagatedItem
from edenmem.engine.runtime.concurrency import in_thread
from edenmem.engine.runtime.llm_session import Asker
from edenmem.engine.runtime.runtime import Runtime, require_llm
from edenmem.engine.runtime.usage import keep_usage
from edenmem.engine.scopes.overview import defaults_of, word_limit_of
from edenmem.engine.scopes.visibility import human_senders
from edenmem.errors import EdenmemError
from edenmem.models.changes import AddReflection, ChangeSet, ChangeStatus
from edenmem.models.formation import CallUsage, Decision
from edenmem.models.host import Agent, Session
from edenmem.models.ids import derived_id
from edenmem.models.memory import Consolidation, Policy, Reflection
from edenmem.models.scope import Scope, ScopeKind
from edenmem.models.search import FactFilter
from edenmem.settings.schema import Settings
from edenmem.store.protocol.store import Store
from edenmem.text import flat, tidy

#: Kinds of scopes that propagate.
SOURCES = (ScopeKind.USER, ScopeKind.GROUP)


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Reflections of one version with the same target scope, in order.

    ``text_id`` is the ID of the source text, ``memory`` the existing lines of the target.
    """

    source: Scope
    version: int
    text_id: str
    target: Scope
    target_policy: Policy | None
    memory: tuple[str, ...]
    reflections: tuple[Reflection, ...]


def wants_propagation(settings: Settings, scope: Scope, policy: Policy | None) -> bool:
    """Return whether propagation is enabled for a scope."""
    if scope.kind not in SOURCES or (policy is not None and policy.private):
        return False
    own = policy.propagate if policy is not None else None
    return own if own is not None else defaults_of(settings, scope.kind).propagate


def batches(store: Store, settings: Settings, scope: Scope, version: int) -> list[Batch]:
    """Return the batches of a version; none if propagation is off or the scope private."""
    text = store.memory.consolidations((scope,)).get(scope)
    agent = store.host.agent(scope.agent_id)
    if text is None or agent is None:
        return []
    absorbed = _read_absorbed_ids(store, text, version)
    by_target: dict[Scope, list[Reflection]] = {}
    for reflection in _movable(store, settings, scope, absorbed):
        target = _above(store, agent, scope, reflection)
        if target is not None:
            by_target.setdefault(target, []).append(reflection)
    policies = store.memory.policies(tuple(by_target))
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
        if target not in policies or policies[target].active
    ]


def _read_absorbed_ids(store: Store, text: Consolidation, version: int) -> tuple[str, ...]:
    if text.version == version:
        return text.absorbed_ids
    history = store.history.versions("consolidation", text.id, scope=text.home)
    return next((entry.absorbed_ids for entry in history if entry.version == version), ())


def _movable(
    store: Store, settings: Settings, scope: Scope, ids: Iterable[str]
) -> Iterator[Reflection]:
    """Yield the scope's reflections that are not private, nor derived from a private one."""
    if not wants_propagation(settings, scope, store.memory.policies((scope,)).get(scope)):
        return
    for reflection_id in ids:
        reflection = store.memory.reflection(reflection_id)
        if reflection is None or reflection.private or reflection.home != scope:
            continue
        if not any(_is_confidential(store, parent) for parent in reflection.propagated_from):
            yield reflection


def _is_confidential(store: Store, reflection_id: str) -> bool:
    parent = store.memory.reflection(reflection_id)
    if parent is None:
        return False
    policy = store.memory.policies((parent.home,)).get(parent.home)
    return parent.private or (policy is not None and policy.private)


def _above(store: Store, agent: Agent, scope: Scope, reflection: Reflection) -> Scope | None:
    """Return the target scope of a reflection, or None.

    A user's reflection goes to the group of its session, or to the agent if there is no group. It
    is not propagated if the session is gone or incognito.
    """
    if scope.kind is ScopeKind.USER and reflection.session_id is not None:
        session = store.host.session(reflection.session_id)
        if session is None or session.incognito:
            return None
        if session.group_id:
            return Scope.group(agent.id, session.group_id)
    return Scope.agent(agent.id) if agent.agent_memory_enabled else None


def _memory(store: Store, target: Scope) -> tuple[str, ...]:
    text = store.memory.consolidations((target,)).get(target)
    lines = text.consolidated_content.splitlines() if text is not None else []
    pending = (reflection.content for reflection in store.memory.pending(target))
    return tuple(line for line in (*lines, *pending) if line.strip())


def _private_texts(store: Store, source: Scope, sessions: Sequence[Session]) -> Iterator[str]:
    """Yield the private texts of the scope and of the source sessions."""
    talks = [Scope.session(source.agent_id, session.id) for session in sessions]
    for reflection in store.memory.reflections((source, *talks)):
        if reflection.private:
            yield reflection.content
    for fact in store.memory.facts(FactFilter(scopes=(source,))):
        if fact.private:
            yield fact.content


def _people(store: Store, batch: Batch, sessions: Sequence[Session]) -> Iterator[str]:
    """Yield the names of all participants: their usernames and names in messages."""
    accounts = {batch.source.owner} if batch.source.kind is ScopeKind.USER else set[str]()
    for session in sessions:
        accounts.update(session.users, store.host.senders(session.id))
        own = (r for r in batch.reflections if r.session_id == session.id)
        messages = store.host.messages(
            session.id, ids=sorted({id for r in own for id in r.source_message_ids})
        )
        for message in messages:
            if message.name and human_senders(session, (message,)):
                yield message.name
    for user in store.host.users_by_ids(sorted(accounts)).values():
        yield user.username


class Propagation(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a propagation.

    ``added`` counts added reflections, ``decisions`` has each proposal with its decision, and
    ``error`` the reason if versions are still pending.
    """

    added: int = 0
    decisions: tuple[Decision, ...] = ()
    usage: tuple[CallUsage, ...] = ()
    error: str | None = None


async def propagate(runtime: Runtime, scope: Scope) -> Propagation:
    """Propagate all pending versions of a scope.

    Without a language model, versions stay pending. Failures are not raised but returned as
    ``error``, and retried the next time. If propagation was disabled or the scope made private
    since, the pending marks are removed.
    """
    store, done = runtime.store, Propagation()
    try:
        text = (await in_thread(store.memory.consolidations, (scope,))).get(scope)
        for version in text.unpropagated_versions if text is not None else ():
            for batch in await in_thread(batches, store, runtime.settings, scope, version):
                done = await _propose(runtime, batch, done)
                if done.error is not None:
                    return done
            await in_thread(store.changes.settle_propagation, scope, version)
    except EdenmemError as error:
        return msgspec.structs.replace(done, error=error.message)
    return done


async def _propose(runtime: Runtime, batch: Batch, done: Propagation) -> Propagation:
    """Propagate one batch, and return ``done`` with its result added."""
    asker = Asker(require_llm(runtime.llm), await in_thread(_key, runtime.store, batch))
    decisions: tuple[Decision, ...] = ()
    added, failure = 0, None
    try:
        items = await _ask(runtime, batch, asker)
        added, decisions = await in_thread(_apply, runtime, batch, items)
    except EdenmemError as error:
        failure = error.message
    finally:
        await keep_usage(
            runtime.store, batch.source.agent_id, "propagation", asker.spent, at=runtime.clock()
        )
    return Propagation(
        added=done.added + added,
        decisions=(*done.decisions, *decisions),
        usage=(*done.usage, *asker.spent),
        error=failure,
    )


def _key(store: Store, batch: Batch) -> str:
    """Return the key in replay files. Blocks."""
    agent, owner = store.host.agent(batch.source.agent_id), batch.source.owner
    if batch.source.kind is ScopeKind.USER:
        user = store.host.users_by_ids((owner,)).get(owner)
        owner = user.username if user else owner
    above = "/".join(part for part in (batch.target.kind, batch.target.owner) if part)
    name = agent.username if agent else batch.source.agent_id
    return f"{batch.source.kind}/{name}/{owner}/{batch.version}/{above}"


async def _ask(runtime: Runtime, batch: Batch, asker: Asker) -> Sequence[PropagatedItem]:
    policy = batch.target_policy
    answer = await asker.ask(
        "propagate",
        PropagateAnswer,
        model=(policy and policy.fast_model) or runtime.settings.llm.fast_model,
        now=runtime.clock(),
        source="one person" if batch.source.kind is ScopeKind.USER else "one group",
        target=(
            "everybody who talks to the agent"
            if batch.target.kind is ScopeKind.AGENT
            else "the group in whose conversations they were learned"
        ),
        instructions=policy.memory_instructions if policy else None,
        memory="\n".join(batch.memory),
        reflections=[
            {"number": number, "content": flat(reflection.content)}
            for number, reflection in enumerate(batch.reflections, start=1)
        ],
        reflection_words=runtime.settings.formation.reflection_words,
    )
    return answer.items


def _apply(
    runtime: Runtime, batch: Batch, items: Sequence[PropagatedItem]
) -> tuple[int, tuple[Decision, ...]]:
    """Write the accepted proposals; return their number and all decisions. Blocks.

    What restricts them is read after the model call, to include recent privacy changes.
    """
    if not items:
        return 0, ()
    store, settings, now = runtime.store, runtime.settings, runtime.clock()
    current = batches(store, settings, batch.source, batch.version)
    open_now = [each for each in current if each.target == batch.target]
    movable = {reflection.id for each in open_now for reflection in each.reflections}
    known = {fold(line) for line in _memory(store, batch.target)}
    spoken = dict.fromkeys(r.session_id for r in batch.reflections if r.session_id is not None)
    sessions = [session for session in map(store.host.session, spoken) if session is not None]
    confidences = Confidences(_private_texts(store, batch.source, sessions))
    is_public = batch.target.kind is ScopeKind.AGENT
    people = tuple(_people(store, batch, sessions)) if is_public else ()
    changes: dict[str, AddReflection] = {}

    def why_not(content: str, source: Reflection | None) -> str | None:
        if source is None:
            return "unknown reflection number"
        if source.id not in movable:
            return "its reflection may no longer be propagated"
        if junk := object_to(content):
            return junk
        if fold(content) in known:
            return "already known"
        if confidences.reveals(content):
            return "reveals private content"
        if has_contact(content):
            return "contains contact details of a person"
        if find_name(content, people) is not None:
            return "names a person"
        return "second proposal from the same reflection" if source.id in changes else None

    numbered = dict(enumerate(batch.reflections, start=1))
    decisions: list[Decision] = []
    for item in items:
        content = tidy(item.content, settings.formation.reflection_words)
        source = numbered.get(item.reflection)
        why = why_not(content, source)
        if why is not None or source is None:
            decisions.append(Decision(content=content, action="REJECTED", reason=why or ""))
            continue
        known.add(fold(content))
        change = changes[source.id] = _addition(store, settings, batch, source, content, now)
        decisions.append(
            Decision(
                content=content,
                action="ADD",
                target_id=change.reflection.id,
                reason=f"for the {batch.target.kind} scope",
            )
        )
    results = store.changes.apply(
        ChangeSet(actor=runtime.actor, at=now, changes=tuple(changes.values()), automatic=True)
    )
    added = sum(1 for result in results if result.status is ChangeStatus.APPLIED)
    return added, tuple(decisions)


def _addition(
    store: Store,
    settings: Settings,
    batch: Batch,
    source: Reflection,
    content: str,
    at: datetime,
) -> AddReflection:
    key = (batch.text_id, str(batch.version), batch.target.key, source.id)
    target = batch.target
    return AddReflection(
        id=derived_id("propagation", *key),
        reflection=Reflection(
            id=derived_id("propagated", *key),
            scope=target.kind,
            agent_id=target.agent_id,
            group_id=target.group_id,
            session_id=source.session_id,
            content=content,
            formed_at=at,
            said_at=source.said_at,
            propagated_from=(source.id,),
        ),
        word_limit=word_limit_of(store, settings, target, batch.target_policy),
        reason=f"propagated from a {batch.source.kind} scope",
    )


#: Number of consecutive words shared with a private text that count as a quotation.
RUN = 4
#: Share of common significant words that counts as a paraphrase.
SHARE = 0.6
#: Minimum length of significant words; shorter ones are mostly like "the" and "with".
SIGNIFICANT = 4
#: Minimum length of a part of a name that is searched by itself.
NAME_PART = 3

#: Scripts without spaces between words: each character counts as a word.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
_UNSPACED_CHARACTER = re.compile(f"[{_UNSPACED}]")
_WORD = re.compile(rf"[{_UNSPACED}]|(?:(?![{_UNSPACED}])\w)+")

_EMAIL = re.compile(r"[^\s@<>()]+@[^\s@<>()]+\.\w{2,}")
_HANDLE = re.compile(r"(?<![\w.])@\w{2,}")
_DATE = re.compile(r"\b(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{4})\b")
_NUMBER = re.compile(r"(?<!\w)\+?\(?\d[\d\s().\-/]{5,}\d(?!\w)")
#: Minimum number of digits of a telephone number.
_DIGITS = 7


def plain(text: str) -> str:
    """Normalize a text for comparison: NFKC, without invisible format characters."""
    if text.isascii():
        return text
    shown = unicodedata.normalize("NFKC", text)
    return "".join(char for char in shown if unicodedata.category(char) != "Cf")


def words(text: str) -> list[str]:
    """Return the words of a text for comparison; characters in scripts without spaces."""
    return _WORD.findall(plain(text).casefold())


class Confidences:
    """Private texts to compare others with."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._runs: set[tuple[str, ...]] = set()
        self._significant: list[frozenset[str]] = []
        for text in texts:
            tokens = words(text)
            if tokens:
                self._runs.update(_runs(tokens))
                self._significant.append(_significant(tokens))

    def reveals(self, text: str) -> bool:
        """Return whether a text quotes or paraphrases a private one."""
        tokens = words(text)
        for size in range(1, RUN + 1):  # short private texts have fewer words
            for start in range(len(tokens) - size + 1):
                if tuple(tokens[start : start + size]) in self._runs:
                    return True
        own = _significant(tokens)
        common = ((len(own & other), min(len(own), len(other))) for other in self._significant)
        return any(count >= 2 and count >= SHARE * length for count, length in common)


def _runs(tokens: list[str]) -> Iterable[tuple[str, ...]]:
    if len(tokens) <= RUN:
        return [tuple(tokens)]
    return [tuple(tokens[start : start + RUN]) for start in range(len(tokens) - RUN + 1)]


def _significant(tokens: Iterable[str]) -> frozenset[str]:
    return frozenset(
        word
        for word in tokens
        if len(word) >= SIGNIFICANT or word[0].isdigit() or _UNSPACED_CHARACTER.match(word)
    )


def has_contact(text: str) -> bool:
    """Return whether a text contains an e-mail address, a handle or a telephone number."""
    shown = plain(text)
    if _EMAIL.search(shown) or _HANDLE.search(shown):
        return True
    numbers = _NUMBER.findall(_DATE.sub(" ", shown))
    return any(sum(char.isdigit() for char in number) >= _DIGITS for number in numbers)


def find_name(text: str, names: Iterable[str]) -> str | None:
    """Return the first of these names that a text contains, or None.

    A whole name matches in any case; a part of one ("Anna" of "Anna Lind") only if capitalized,
    since many parts are also common words.
    """
    tokens = words(text)
    whole = f" {' '.join(tokens)} "
    capitalized = {word.casefold() for word in _WORD.findall(plain(text)) if not word[0].islower()}
    for name in names:
        parts = words(name)
        if not parts:
            continue
        if f" {' '.join(parts)} " in whole:
            return name
        if any(
            len(part) >= NAME_PART and not part.isdigit() and part in capitalized for part in parts
        ):
            return name
    return None


def locate_words(shown: str) -> list[tuple[str, int, int]]:
    """Return the `words` of a `plain` text with their start and end positions."""
    return [(m.group().casefold(), m.start(), m.end()) for m in _WORD.finditer(shown)]
