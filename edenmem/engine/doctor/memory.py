"""Check facts, reflections, texts, policies and formations, one by one or by scope."""

from __future__ import annotations

import asyncio
import hashlib
import heapq
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from edenmem.embed.protocol import Embedder
from edenmem.engine.doctor.context import BATCH, CLOCK_SKEW, DoctorContext, found, note
from edenmem.engine.doctor.report import CATALOG, Advice, CheckFinding, State
from edenmem.engine.factory import embedder_kind
from edenmem.engine.scopes.overview import is_undone, word_limit_of
from edenmem.engine.scopes.references import other_scopes
from edenmem.models.backup import Document, RecordKind, StoredVersion
from edenmem.models.changes import AuditEntry
from edenmem.models.formation import Formation, FormationStatus
from edenmem.models.integrity import PresenceKind
from edenmem.models.memory import (
    Consolidation,
    Fact,
    Policy,
    Reflection,
    ScopeSummary,
    content_hash,
)
from edenmem.models.scope import Scope, ScopeKind
from edenmem.models.search import FactFilter
from edenmem.store.protocol.store import Store, batched
from edenmem.text import iso, many, word_count


def _texts(context: DoctorContext, batch: Sequence[Consolidation]) -> Iterator[CheckFinding]:
    policies = context.store.memory.policies([text.home for text in batch])
    failed = context.store.memory.failed_drafts([text.home for text in batch])
    for text in batch:
        drafts = failed.get(text.home)
        if drafts is not None and drafts.is_final and text.unabsorbed_ids:
            detail = f"the last {drafts.count} drafts were refused"
            if drafts.reviews:
                detail = "a newer reflection contradicts a sentence that a person fixed"
            yield note("drafts", text, detail)
        yield from _content(context, text, policies.get(text.home))


#: Advice on a text with a limit of its own, which differs from that of its scope's policy.
_POLICY_LIMIT = Advice(
    "The platform obeys the limit stored with the text, which edenmem's next version replaces.",
    "edenmem scope policy --word-limit N",
)


def _content(
    context: DoctorContext, text: Consolidation, policy: Policy | None
) -> Iterator[CheckFinding]:
    content = text.consolidated_content
    # A text may be empty before its first version or after its undo, but not once it has absorbed
    # reflections.
    if not content.strip() and (content or (text.version and text.absorbed_ids)):
        yield note("blank", text, f"version {text.version} is blank")
    limit = word_limit_of(context.store, context.settings, text.home, policy, text)
    if (words := word_count(content)) > limit:
        yield note("limits", text, f"has {words} words, the limit is {limit}")
    is_shared = context.store.database.is_beside_platform()
    if is_shared and text.word_limit not in (0, limit):
        detail = f"the policy's limit is {limit} words, the platform uses {text.word_limit}"
        yield note("limits", text, detail, advice=_POLICY_LIMIT)


# -- buffers -----------------------------------------------------------------------------------


def _buffers(context: DoctorContext, batch: Sequence[Consolidation]) -> Iterator[CheckFinding]:
    """Compare the buffers with the flags on reflections."""
    flagged: dict[Scope, dict[str, Reflection]] = {text.home: {} for text in batch}
    for reflection in context.store.memory.reflections(tuple(flagged), absorbed=False):
        flagged[reflection.home][reflection.id] = reflection
    # Read after the flags, so that reflections added in between are in both.
    texts = context.store.memory.consolidations(tuple(flagged))
    listed = {each for text in batch for each in text.unabsorbed_ids}
    gone = context.missing("reflection", listed)
    for text in batch:
        pending = flagged[text.home]
        yield from _find_misplaced(context, text, pending, gone)
        buffer = texts.get(text.home, text).unabsorbed_ids
        in_work = set(buffer) - set(text.unabsorbed_ids)  # released since the text was read
        for reflection_id, reflection in pending.items():
            if reflection_id in text.absorbed_ids and reflection_id not in in_work:
                detail = f"absorbed by version {text.version}, but marked as pending"
                yield note("buffers", reflection, detail)
            elif reflection_id not in buffer and _is_still_pending(context, reflection):
                yield note("buffers", reflection, "pending, but in no buffer")


def _find_misplaced(
    context: DoctorContext, text: Consolidation, pending: dict[str, Reflection], gone: set[str]
) -> Iterator[CheckFinding]:
    for reflection_id, times in Counter(text.unabsorbed_ids).items():
        if reflection_id in gone:
            detail = f"its buffer lists {reflection_id}, which does not exist"
            yield note("buffers", text, detail, related=(reflection_id,))
        elif reflection_id not in pending:
            yield from _check_listed(context, text, reflection_id)
        elif times > 1:
            yield note("buffers", pending[reflection_id], f"listed {times} times in its buffer")


def _check_listed(
    context: DoctorContext, text: Consolidation, reflection_id: str
) -> Iterator[CheckFinding]:
    reflection = context.store.memory.reflection(reflection_id)
    if reflection is None:
        return  # removed concurrently
    if reflection.home != text.home:
        detail = f"its buffer lists {reflection_id}, which belongs to another scope"
        yield note("buffers", text, detail, related=(reflection_id,))
    elif reflection.absorbed and reflection_id in _buffer_of(context, text.home):
        yield note("buffers", reflection, "in the buffer, but marked as absorbed")


def _is_still_pending(context: DoctorContext, reflection: Reflection) -> bool:
    """Return whether a second read confirms a finding, despite concurrent writes."""
    current = context.store.memory.reflection(reflection.id)
    if current is None or current.absorbed:
        return False
    return reflection.id not in _buffer_of(context, reflection.home)


def _buffer_of(context: DoctorContext, scope: Scope) -> tuple[str, ...]:
    """Return the IDs that are in the buffer of a scope now."""
    text = context.store.memory.consolidations([scope]).get(scope)
    return text.unabsorbed_ids if text else ()


def find_unfinished(context: DoctorContext) -> Iterator[CheckFinding]:
    """Yield formations that failed, or whose workers are gone."""
    statuses = (FormationStatus.CLAIMED, FormationStatus.RECORDED, FormationStatus.FAILED)
    for formation in context.store.formations.list_formations(
        agent_id=context.agent_id, statuses=statuses
    ):
        until = formation.lease_until
        if formation.status is FormationStatus.FAILED:
            check, state = "failed", f": {formation.error or 'unknown error'}"
        elif until is not None and until > context.now:
            continue
        elif formation.status is FormationStatus.RECORDED:
            check, state = "recorded", ", recorded but not applied"
        else:
            lease = f"until {until:%Y-%m-%d %H:%M}" if until else "without a lease"
            check, state = "claims", f", claimed {lease}"
        yield found(
            check,
            "formation",
            formation.id,
            f"{many(len(formation.message_ids), 'message')} of session"
            f" {formation.session_id}{state}",
            agent_id=formation.agent_id,
            related=(formation.session_id,),
        )


def find_returned(context: DoctorContext) -> Iterator[CheckFinding]:
    """Yield forgotten memory that the platform has written again, without its text."""
    for returned in context.sweep.find():
        yield found(
            "forgotten",
            returned.target_type,
            returned.target_id,
            returned.why or "written again after it was forgotten",
            scope=returned.scope,
            related=filter(None, [returned.why]),
        )


_Memory = Fact | Reflection

#: Maximum number of reported facts that have expired.
_MOST_EXPIRED = 100_000

#: For memory in MongoDB.
_MOVED = Advice(
    CATALOG["readable"].meaning,
    f"{CATALOG['readable'].remedy}; edenmem doctor --fix moves it into the log, where edenmem undo"
    " finds it",
    fixable=True,
)


def _unreadable(documents: Sequence[Document], can_move: bool) -> Iterator[CheckFinding]:
    """Yield documents that cannot be decoded or that queries do not find."""
    for each in documents:
        what, agent_id = each.kind.value, each.agent_id
        if each.fault:
            advice = _MOVED if can_move else None
            yield found("readable", what, each.id, each.fault, advice=advice, agent_id=agent_id)
        elif each.oddities:
            yield found("stored-form", what, each.id, "; ".join(each.oddities), agent_id=agent_id)


# -- owners ------------------------------------------------------------------------------------


#: Kind of scope → kind of its owner, and the noun.
_OWNERS: Mapping[ScopeKind, tuple[PresenceKind, str]] = {
    ScopeKind.USER: ("person", "user"),
    ScopeKind.SESSION: ("session", "session"),
    ScopeKind.GROUP: ("group", "group"),
}


def examine_scopes(context: DoctorContext) -> Iterator[CheckFinding]:
    """Check the owner and the buffer of each scope, and accounts linked to others."""
    for batch in batched(context.scopes, BATCH):
        yield from _ownerless(context, batch)
        yield from _without_buffer(context, batch)
        yield from _linked_accounts(context, batch)


def _ownerless(context: DoctorContext, batch: Sequence[ScopeSummary]) -> Iterator[CheckFinding]:
    """Yield the scopes of missing agents, users, sessions, groups or shards."""
    scopes = [summary.scope for summary in batch if not is_undone(summary)]
    gone = context.missing("agent", (scope.agent_id for scope in scopes))
    yield from (
        _without_owner(each, "agent", each.agent_id) for each in scopes if each.agent_id in gone
    )
    for kind, (presence, noun) in _OWNERS.items():
        owners = {scope: scope.owner for scope in scopes if scope.kind is kind}
        gone = context.missing(presence, owners.values())
        yield from (_without_owner(each, noun, id) for each, id in owners.items() if id in gone)
    shards = [scope for scope in scopes if scope.kind is ScopeKind.SHARD]
    policies = context.store.memory.policies(shards)
    yield from (
        _without_owner(scope, "shard", scope.owner) for scope in shards if scope not in policies
    )


def _without_owner(scope: Scope, missing: str, id: str) -> CheckFinding:
    """Return the finding about a scope without its agent or owner, with commands that help."""
    agent, owner = scope.agent_id, shlex.quote(scope.owner)
    remedies = {
        "agent": f"edenmem agent add NAME --id {agent}",
        "user": f"edenmem user add NAME --id {owner}, or edenmem forget --user {owner}",
        "session": f"restore session {owner} from a backup: edenmem import FILE",
        "group": f"edenmem forget --group {owner} --agent {agent}",
        "shard": f"edenmem scope policy --agent {agent} --shard {owner} --memory-instructions TEXT",
    }
    # A group exists while a session names it, and sessions may be deleted.
    state = State.NOTE if missing == "group" else None
    advice = Advice(CATALOG["owners"].meaning, remedies[missing])
    detail = f"{missing} {id} does not exist"
    return found("owners", "scope", scope.key, detail, state, advice, scope=scope)


def _without_buffer(
    context: DoctorContext, batch: Sequence[ScopeSummary]
) -> Iterator[CheckFinding]:
    """Yield pending reflections of scopes without a buffer."""
    scopes = [summary.scope for summary in batch]
    texts = context.store.memory.consolidations(scopes)
    bare = [scope for scope in scopes if scope not in texts]
    for reflection in context.store.memory.reflections(bare, absorbed=False):
        if _is_still_pending(context, reflection):
            yield note("buffers", reflection, "pending, but its scope has no buffer")


def _linked_accounts(
    context: DoctorContext, batch: Sequence[ScopeSummary]
) -> Iterator[CheckFinding]:
    """Yield memory of linked accounts, and of unknown accounts that others are linked to."""
    scopes = [summary.scope for summary in batch if summary.scope.kind is ScopeKind.USER]
    accounts = context.store.host.users_by_ids([scope.owner for scope in scopes])
    persons = context.missing("person", (scope.owner for scope in scopes))
    for scope in scopes:
        account = accounts.get(scope.owner)
        if account is not None and account.person_id != account.id:
            detail = f"linked to {account.person_id}; read with the memory of that user"
        elif account is None and scope.owner not in persons:
            detail = "unknown account; read as memory of the accounts linked to it"
        else:
            continue
        yield found("accounts", "account", scope.owner, detail, scope=scope)


# -- sources -----------------------------------------------------------------------------------


def _sources(context: DoctorContext, items: Sequence[_Memory]) -> Iterator[CheckFinding]:
    sessions = context.people(_source_sessions(items))
    gone = context.missing("message", (each for item in items for each in item.source_message_ids))
    for item in items:
        lost = [each for each in item.source_message_ids if each in gone]
        is_elsewhere = item.scope is not ScopeKind.SESSION
        if is_elsewhere and item.session_id and sessions[item.session_id] is None:
            yield note("sources", item, f"session {item.session_id} is missing")
        elif lost:
            detail = f"{len(lost)} of {len(item.source_message_ids)} source messages are missing"
            yield note("sources", item, detail, related=lost)


def _source_sessions(items: Sequence[_Memory]) -> set[str]:
    return {
        item.session_id for item in items if item.session_id and item.scope is not ScopeKind.SESSION
    }


def _group_sessions(context: DoctorContext, items: Sequence[_Memory]) -> Iterator[CheckFinding]:
    """Yield memory that may mix up the people of a group chat (known failure 8)."""
    of_users = [item for item in items if item.scope is ScopeKind.USER]
    people = context.people(_source_sessions(of_users))
    owners = context.persons({item.home.owner for item in of_users})
    for item in of_users:
        owner = owners[item.home.owner]
        others = (people.get(item.session_id or "") or frozenset()) - {owner}
        if item.session_id is None or not others:
            continue
        who_said = _who_said(context, item.session_id, item)
        if who_said and owner not in who_said:
            detail = "comes from messages of accounts not linked to its owner"
            yield note("group-sessions", item, detail, related=sorted(who_said))
        elif others & who_said:
            detail = f"{_people(len(others))} spoke in its source messages"
            yield note("group-sessions", item, detail, related=sorted(others))
        else:  # the others may have joined later
            detail = f"its session also has {_people(len(others))}"
            yield note("group-sessions", item, detail, State.NOTE, related=sorted(others))


def _people(count: int) -> str:
    return "another person" if count == 1 else f"{count} other people"


def _who_said(context: DoctorContext, session_id: str, item: _Memory) -> set[str]:
    """Return the users who wrote the source messages of a memory."""
    messages = context.store.host.messages(session_id, ids=item.source_message_ids)
    senders = {m.sender for m in messages if m.role == "user" and not m.trigger and m.sender}
    return set(context.persons(senders).values())


def _links(context: DoctorContext, items: Sequence[Reflection]) -> Iterator[CheckFinding]:
    into = (each.consolidated_into for each in items if each.consolidated_into)
    texts = context.missing("consolidation", into)
    origins = context.missing("reflection", (id for each in items for id in each.propagated_from))
    for item in items:
        if item.consolidated_into in texts:
            yield note("links", item, f"text {item.consolidated_into} is missing")
        lost = [each for each in item.propagated_from if each in origins]
        if lost:  # deleted after their propagation
            are = "is" if len(item.propagated_from) == 1 else "are"
            detail = f"{len(lost)} of {len(item.propagated_from)} source reflections {are} missing"
            yield note("links", item, detail, State.NOTE, related=lost)


# -- content -----------------------------------------------------------------------------------


def _content_of(item: _Memory, limit: int) -> Iterator[CheckFinding]:
    if not item.content.strip():
        yield note("blank", item, "blank")
    elif (words := word_count(item.content)) > limit:
        yield note("limits", item, f"has {words} words, the limit is {limit}")


def _facts(context: DoctorContext, batch: Sequence[Fact]) -> Iterator[CheckFinding]:
    for fact in batch:
        yield from _content_of(fact, context.settings.formation.fact_words)
        if fact.unconfirmed:
            yield note("unconfirmed", fact, f"is in doubt: {fact.unconfirmed}")
        yield from _hash(context, fact)


def find_expired(context: DoctorContext) -> Iterator[CheckFinding]:
    """Yield facts that have expired."""
    agents = context.agent_ids or None
    memory = context.store.memory
    for fact in memory.expired_facts(context.now, agent_ids=agents, limit=_MOST_EXPIRED):
        yield note("expired", fact, f"expired at {iso(fact.expires_at or context.now)}")


def _reflections(context: DoctorContext, batch: Sequence[Reflection]) -> Iterator[CheckFinding]:
    for reflection in batch:
        yield from _content_of(reflection, context.settings.formation.reflection_words)


def _hash(context: DoctorContext, fact: Fact) -> Iterator[CheckFinding]:
    right = content_hash(fact.content, fact.key)
    if fact.hash == right:
        return
    yield note("hashes", fact, f"hash is {fact.hash[:8]}…, expected {right[:8]}…")
    twin = context.store.memory.facts_by_hashes(fact.home, [right]).get(right)
    if twin is not None and twin.id != fact.id and twin.content == fact.content:
        old, young = sorted((fact, twin), key=lambda each: (each.formed_at, each.id))
        detail = f"same text as the older fact {old.id}"
        yield note("duplicates", young, detail, related=(old.id,))


def twins_of_accounts(context: DoctorContext) -> Iterator[CheckFinding]:
    """Yield facts that several linked accounts have, as when the platform writes after a merge."""
    named: set[str] = set()
    of_users = (
        summary.scope
        for summary in context.scopes
        if summary.facts and summary.scope.kind is ScopeKind.USER
    )
    for batch in batched(of_users, BATCH):
        persons = context.persons({scope.owner for scope in batch})
        for scope in batch:
            if persons[scope.owner] != scope.owner:
                for old, young in _twins_of(context.store, scope):
                    if young.id not in named:
                        named.add(young.id)
                        detail = f"a linked account has the same text in the older fact {old.id}"
                        yield note("duplicates", young, detail, State.WARNING, related=(old.id,))


def _twins_of(store: Store, scope: Scope) -> Iterator[tuple[Fact, Fact]]:
    """Yield facts of an account and of those linked to it, older and younger, with equal texts."""
    others = other_scopes(store, scope)
    for facts in batched(store.memory.facts(FactFilter(scopes=(scope,))), BATCH):
        hashes = [fact.hash for fact in facts]
        found = [store.memory.facts_by_hashes(other, hashes) for other in others]
        for fact in facts:
            same = [known[fact.hash] for known in found if fact.hash in known]
            old, *young = sorted((fact, *same), key=lambda each: (each.formed_at, each.id))
            yield from ((old, each) for each in young if each.content == old.content)


# -- all documents -----------------------------------------------------------------------------


class _Kind(NamedTuple):
    """How to check the documents of a kind."""

    subject: str
    decoded: type
    checks: tuple[Callable[[DoctorContext, Sequence[Any]], Iterator[CheckFinding]], ...] = ()
    times: tuple[str, ...] = ()


#: The checks of each kind of document, and its times, which may not be in the future.
_KINDS = {
    RecordKind.FACT: _Kind(
        "facts",
        Fact,
        (_sources, _group_sessions, _facts),
        ("formed_at", "said_at", "updated_at", "last_accessed_at"),
    ),
    RecordKind.REFLECTION: _Kind(
        "reflections",
        Reflection,
        (_sources, _group_sessions, _links, _reflections),
        ("formed_at", "updated_at", "absorbed_at"),
    ),
    RecordKind.CONSOLIDATION: _Kind(
        "texts",
        Consolidation,
        (_texts, _buffers),
        ("last_consolidated_at", "updated_at"),
    ),
    RecordKind.POLICY: _Kind("policies", Policy, (), ("updated_at",)),
    RecordKind.FORMATION: _Kind("formations", Formation),
    RecordKind.HISTORY: _Kind("history entries", StoredVersion),
    RecordKind.AUDIT: _Kind("audit entries", AuditEntry),
}
#: Kinds whose unreadable documents `doctor --fix` moves into the log of MongoDB.
_MOVABLE = (RecordKind.FACT, RecordKind.REFLECTION, RecordKind.CONSOLIDATION)


def examine(*kinds: RecordKind) -> Callable[[DoctorContext], Iterator[CheckFinding]]:
    """Return the examination of all documents of some kinds."""

    def look(context: DoctorContext) -> Iterator[CheckFinding]:
        for kind in kinds:
            how, count = _KINDS[kind], 0
            for documents in batched(context.documents(kind), BATCH):
                count += len(documents)
                context.progress(how.subject, count)
                yield from _unreadable(documents, context.is_mongodb and kind in _MOVABLE)
                records = (each.record for each in documents)
                batch: list[Any] = [each for each in records if isinstance(each, how.decoded)]
                for check in how.checks:
                    yield from check(context, batch)
                for item in batch if how.times else ():
                    times = (getattr(item, name) for name in how.times)
                    latest = max(filter(None, times), default=context.now)
                    if latest > context.now + CLOCK_SKEW:
                        detail = f"dated {latest:%Y-%m-%d %H:%M}, in the future"
                        yield note("times", item, detail)

    return look


#: Minimum cosine of two vectors of the same text.
_SAME_TEXT = 0.98
#: Number of facts whose vectors are compared with new ones.
_SAMPLE = 50


def foreign_vectors(context: DoctorContext) -> Iterator[CheckFinding]:
    """Yield facts of a sample with the vector of another text, if the model is local."""
    embedder = context.providers.embedder
    if embedder is None or embedder_kind(context.settings.embedding) != "local":
        return  # another model would cost calls
    walk = context.documents(RecordKind.FACT, with_vectors=True)
    facts = (each.record for each in walk if isinstance(each.record, Fact))
    for fact in find_misfits(facts, embedder):
        detail = f"{embedder.model} produces another vector for the text"
        yield found("vector-damage", "fact", fact.id, detail, agent_id=fact.agent_id)


def find_misfits(facts: Iterable[Fact], embedder: Embedder) -> Iterator[Fact]:
    """Yield the facts of a sample whose vectors differ from those that the model produces. Blocks.

    Raises:
        ProviderError: the model cannot be used.
    """
    import numpy as np

    comparable = (
        fact
        for fact in facts
        if fact.embedding_model == embedder.model
        and any(fact.embedding or b"")
        and fact.hash == content_hash(fact.content, fact.key)
    )
    # A pseudorandom sample that is the same each time.
    sample = heapq.nsmallest(
        _SAMPLE, comparable, key=lambda fact: hashlib.blake2b(fact.id.encode()).digest()
    )
    texts = [fact.content for fact in sample]
    made = asyncio.run(embedder.embed(texts, role="passage")).vectors if sample else ()
    for fact, vector in zip(sample, made, strict=True):
        if fact.embedding is not None and len(fact.embedding) == len(vector):
            own, new = (np.frombuffer(raw, dtype="<f4") for raw in (fact.embedding, vector))
            if float(own @ new) < _SAME_TEXT:
                yield fact
