"""Check facts, reflections, texts, policies and formations one by one."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TypeVar

from edenmem.engine.doctor.context import (
    BATCH,
    CLOCK_SKEW,
    DoctorContext,
    Owned,
    about,
)
from edenmem.engine.doctor.report import CATALOG, Advice, CheckFinding, State
from edenmem.engine.scopes.overview import word_limit_of
from edenmem.engine.scopes.people import other_scopes
from edenmem.models.backup import Document, RecordKind
from edenmem.models.formation import Formation, FormationStatus
from edenmem.models.integrity import Finding, PresenceKind
from edenmem.models.memory import (
    Consolidation,
    Fact,
    FailedDrafts,
    Policy,
    Reflection,
    content_hash,
)
from edenmem.models.scope import Scope, ScopeKind
from edenmem.models.search import FactFilter
from edenmem.store.protocol.store import Store, batched
from edenmem.text import word_count


def texts(context: DoctorContext) -> Iterator[CheckFinding]:
    """Check all texts and buffers."""
    for batch, seen in walk(context, RecordKind.CONSOLIDATION, Consolidation):
        yield from seen
        yield from find_ownerless(context, batch)
        yield from find_lost_versions(
            context, "consolidation", {text: text.version for text in batch}
        )
        policies = context.cache.policies({text.home for text in batch})
        failed = context.store.memory.failed_drafts([text.home for text in batch])
        for text in batch:
            yield from _drafts(text, failed.get(text.home))
            yield from _content(context, text, policies[text.home])
            yield from find_future(context, text, (text.last_consolidated_at, text.updated_at))
            yield from _propagation(text)
        yield from _buffers(context, batch)


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
        yield CheckFinding("blank", about(text, f"version {text.version} is blank"))
    limit = word_limit_of(context.store, context.settings, text.home, policy, text)
    if (words := word_count(content)) > limit:
        yield CheckFinding("limits", about(text, f"has {words} words, the limit is {limit}"))
    is_shared = context.store.database.is_beside_platform()
    if is_shared and text.word_limit not in (0, limit):
        detail = f"the policy's limit is {limit} words, the platform uses {text.word_limit}"
        yield CheckFinding("limits", about(text, detail), advice=_POLICY_LIMIT)


def _drafts(text: Consolidation, failed: FailedDrafts | None) -> Iterator[CheckFinding]:
    if failed is not None and failed.is_final and text.unabsorbed_ids:
        why = f"the last {failed.count} drafts were refused"
        if failed.reviews:
            why = "a newer reflection contradicts a sentence that a person fixed"
        yield CheckFinding("drafts", about(text, why))


def _propagation(text: Consolidation) -> Iterator[CheckFinding]:
    pending = text.unpropagated_versions
    invalid = [version for version in pending if not 0 < version <= text.version]
    if invalid:
        detail = f"pending propagation of unknown version {invalid[0]} (current: {text.version})"
        yield CheckFinding("propagation", about(text, detail), State.WARNING)
    elif pending:
        listed = ", ".join(map(str, pending))
        yield CheckFinding("propagation", about(text, f"pending propagation: version {listed}"))


# -- buffers -----------------------------------------------------------------------------------


def _buffers(context: DoctorContext, batch: Sequence[Consolidation]) -> Iterator[CheckFinding]:
    """Compare the buffers with the flags on reflections."""
    flagged: dict[Scope, dict[str, Reflection]] = {text.home: {} for text in batch}
    for reflection in context.store.memory.reflections(tuple(flagged), absorbed=False):
        flagged[reflection.home][reflection.id] = reflection
    # Read after the flags, so that reflections added in between are in both.
    buffers = context.store.memory.buffers(tuple(flagged))
    listed = {each for text in batch for each in text.unabsorbed_ids}
    gone = context.cache.missing("reflection", listed)
    for text in batch:
        pending = flagged[text.home]
        yield from _find_misplaced(context, text, pending, gone)
        buffer = buffers.get(text.home, text.unabsorbed_ids)
        in_work = set(buffer) - set(text.unabsorbed_ids)  # a consolidation is marking these
        for reflection_id, reflection in pending.items():
            if reflection_id in text.absorbed_ids and reflection_id not in in_work:
                detail = f"absorbed by version {text.version}, but marked as pending"
                yield CheckFinding("buffers", about(reflection, detail))
            elif reflection_id not in buffer and _is_still_pending(context, reflection):
                yield CheckFinding("buffers", about(reflection, "pending, but in no buffer"))


def _find_misplaced(
    context: DoctorContext, text: Consolidation, pending: dict[str, Reflection], gone: set[str]
) -> Iterator[CheckFinding]:
    for reflection_id, times in Counter(text.unabsorbed_ids).items():
        if reflection_id in gone:
            detail = f"its buffer lists {reflection_id}, which does not exist"
            yield CheckFinding("buffers", about(text, detail, related=(reflection_id,)))
        elif reflection_id not in pending:
            yield from _check_listed(context, text, reflection_id)
        elif times > 1:
            detail = f"listed {times} times in its buffer"
            yield CheckFinding("buffers", about(pending[reflection_id], detail))


def _check_listed(
    context: DoctorContext, text: Consolidation, reflection_id: str
) -> Iterator[CheckFinding]:
    reflection = context.store.memory.reflection(reflection_id)
    if reflection is None:
        return  # removed concurrently
    if reflection.home != text.home:
        detail = f"its buffer lists {reflection_id}, which belongs to another scope"
        yield CheckFinding("buffers", about(text, detail, related=(reflection_id,)))
    elif (
        reflection.absorbed
        and reflection_id in context.store.memory.buffers([text.home])[text.home]
    ):
        yield CheckFinding("buffers", about(reflection, "in the buffer, but marked as absorbed"))


def _is_still_pending(context: DoctorContext, reflection: Reflection) -> bool:
    """Return whether a second read confirms a finding, despite concurrent writes."""
    current = context.store.memory.reflection(reflection.id)
    if current is None or current.absorbed:
        return False
    return reflection.id not in context.store.memory.buffers([reflection.home]).get(
        reflection.home, ()
    )


# -- policies ----------------------------------------------------------------------------------

#: Minimum values of numeric settings.
_LEAST = {"consolidate_at": 1, "word_limit": 1, "fact_buffer_max": 0}


def policies(context: DoctorContext) -> Iterator[CheckFinding]:
    """Check all policies."""
    for batch, seen in walk(context, RecordKind.POLICY, Policy):
        yield from seen
        yield from find_ownerless(context, batch)
        for policy in batch:
            for name, least in _LEAST.items():
                value = getattr(policy, name)
                if value is not None and not (_is_whole(value) and value >= least):
                    yield CheckFinding("policies", about(policy, f"{name} is {value!r}"))
            yield from find_future(context, policy, (policy.updated_at,))


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def formations(context: DoctorContext) -> Iterator[CheckFinding]:
    """Check all formations."""
    count = 0
    for batch in batched(context.documents(RecordKind.FORMATION), BATCH):
        count += len(batch)
        context.progress("formations", count)
        yield from find_unreadable(batch)
        for record in batch:
            if isinstance(record.record, Formation):
                yield from _check_formation(context, record.record)


def _check_formation(context: DoctorContext, formation: Formation) -> Iterator[CheckFinding]:
    expired = formation.lease_until is None or formation.lease_until <= context.now
    match formation.status:
        case FormationStatus.CLAIMED if expired:
            yield CheckFinding(
                "claims", _about(formation, f"{_messages(formation)}, {_since(formation)}")
            )
        case FormationStatus.RECORDED if expired:
            detail = f"{_messages(formation)}, recorded but not applied"
            yield CheckFinding("recorded", _about(formation, detail))
        case FormationStatus.FAILED:
            why = formation.error or "unknown error"
            yield CheckFinding("failed", _about(formation, f"{_messages(formation)}: {why}"))


def _messages(formation: Formation) -> str:
    count = len(formation.message_ids)
    return f"{count} {'message' if count == 1 else 'messages'} of session {formation.session_id}"


def _since(formation: Formation) -> str:
    if formation.lease_until is None:
        return "claimed without a lease"
    return f"claimed until {formation.lease_until:%Y-%m-%d %H:%M}"


def _about(formation: Formation, detail: str) -> Finding:
    return Finding(
        target_type="formation",
        target_id=formation.id,
        detail=detail,
        agent_id=formation.agent_id,
        related=(formation.session_id,),
    )


def find_shared_messages(context: DoctorContext) -> Iterator[CheckFinding]:
    """Yield messages in several formations."""
    for finding in context.store.formations.find_shared_messages(agent_id=context.agent_id):
        yield CheckFinding("messages-once", finding)


def find_damaged_usage(context: DoctorContext) -> Iterator[CheckFinding]:
    """Yield usage records with invalid token counts."""
    for finding in context.store.usage.find_damaged_usage(agent_id=context.agent_id):
        yield CheckFinding("usage", finding)


def find_lost_progress(context: DoctorContext) -> Iterator[CheckFinding]:
    """Yield sessions whose platform progress is behind their formations."""
    for finding in context.store.host.find_lost_progress(agent_id=context.agent_id):
        yield CheckFinding("progress", finding)


def find_returned(context: DoctorContext) -> Iterator[CheckFinding]:
    """Yield forgotten memory that the platform has written again, without its text."""
    for returned in context.sweep.find():
        yield CheckFinding(
            "forgotten",
            Finding(
                target_type=returned.target_type,
                target_id=returned.target_id,
                detail=returned.why or "written again after it was forgotten",
                scope=returned.scope,
                related=(returned.why,) if returned.why else (),
            ),
        )


def records(context: DoctorContext) -> Iterator[CheckFinding]:
    """Check that history and audit entries are readable."""
    for kind in (RecordKind.HISTORY, RecordKind.AUDIT):
        count = 0
        for batch in batched(context.documents(kind), BATCH):
            count += len(batch)
            context.progress(f"{kind} entries", count)
            yield from find_unreadable(batch)


_T = TypeVar("_T", bound=Owned)
_PLURALS = {RecordKind.CONSOLIDATION: "texts", RecordKind.POLICY: "policies"}
_Memory = Fact | Reflection


def walk(
    context: DoctorContext, kind: RecordKind, decoded: type[_T]
) -> Iterator[tuple[list[_T], list[CheckFinding]]]:
    """Yield batches of readable records, with the findings on unreadable ones."""
    count = 0
    for documents in batched(context.documents(kind), BATCH):
        count += len(documents)
        context.progress(_PLURALS.get(kind, f"{kind}s"), count)
        values = [each.record for each in documents if isinstance(each.record, decoded)]
        can_move = context.info is not None and context.info.kind == "mongodb"
        yield values, list(find_unreadable(documents, can_move and kind is not RecordKind.POLICY))


#: For memory in MongoDB.
_MOVED = Advice(
    CATALOG["readable"].meaning,
    f"{CATALOG['readable'].remedy}; edenmem doctor --fix moves it into the log, where edenmem undo"
    " finds it",
    fixable=True,
)


def find_unreadable(
    documents: Sequence[Document], can_move: bool = False
) -> Iterator[CheckFinding]:
    """Yield documents that cannot be decoded or that queries do not find."""
    for document in documents:
        if document.fault:
            about = _about_document(document, document.fault)
            yield CheckFinding("readable", about, advice=_MOVED if can_move else None)
        elif document.oddities:
            detail = "; ".join(document.oddities)
            yield CheckFinding("stored-form", _about_document(document, detail))


def _about_document(document: Document, detail: str) -> Finding:
    return Finding(
        target_type=document.kind.value,
        target_id=document.id,
        detail=detail,
        agent_id=document.agent_id,
    )


def facts(context: DoctorContext) -> Iterator[CheckFinding]:
    """Check all facts."""
    for batch, seen in walk(context, RecordKind.FACT, Fact):
        yield from seen
        yield from find_ownerless(context, batch)
        yield from _sources(context, batch)
        yield from _group_sessions(context, batch)
        yield from find_lost_versions(context, "fact", {fact: fact.version for fact in batch})
        for fact in batch:
            yield from _text(fact, context.settings.formation.fact_words)
            if fact.unconfirmed:
                yield CheckFinding("unconfirmed", about(fact, f"is in doubt: {fact.unconfirmed}"))
            times = (fact.formed_at, fact.said_at, fact.updated_at, fact.last_accessed_at)
            yield from find_future(context, fact, times)
            yield from _hash(context, fact)


def reflections(context: DoctorContext) -> Iterator[CheckFinding]:
    """Check all reflections; `texts` compares them with their buffers."""
    for batch, seen in walk(context, RecordKind.REFLECTION, Reflection):
        yield from seen
        yield from find_ownerless(context, batch)
        yield from _sources(context, batch)
        yield from _group_sessions(context, batch)
        yield from _links(context, batch)
        yield from _without_buffer(context, batch)
        for reflection in batch:
            yield from _text(reflection, context.settings.formation.reflection_words)
            times = (reflection.formed_at, reflection.updated_at, reflection.absorbed_at)
            yield from find_future(context, reflection, times)


# -- owners ------------------------------------------------------------------------------------


_OWNERS: dict[ScopeKind, PresenceKind] = {
    ScopeKind.USER: "person",
    ScopeKind.SESSION: "session",
    ScopeKind.GROUP: "group",
}
_NAMES = {"person": "user", "session": "session", "group": "group"}


def find_ownerless(context: DoctorContext, items: Sequence[Owned]) -> Iterator[CheckFinding]:
    """Yield memories of missing agents, users, sessions, groups or shards."""
    cache = context.cache
    items = [item for item in items if not _is_taken_back(item)]
    gone = cache.missing("agent", {item.agent_id for item in items})
    for item in items:
        if item.agent_id in gone:
            detail = f"agent {item.agent_id} does not exist"
            yield CheckFinding("owners", about(item, detail), advice=_owner_advice(item, "agent"))
    for kind, presence in _OWNERS.items():
        of_kind = [item for item in items if item.home.kind is kind]
        missing = cache.missing(presence, {item.home.owner for item in of_kind})
        # A group exists while a session names it, and sessions may be deleted.
        state = State.NOTE if presence == "group" else None
        for item in of_kind:
            if item.home.owner in missing:
                detail = f"{_NAMES[presence]} {item.home.owner} does not exist"
                advice = _owner_advice(item, presence)
                yield CheckFinding("owners", about(item, detail), state, advice)
    yield from _find_lost_shards(
        context, [item for item in items if item.home.kind is ScopeKind.SHARD]
    )


def _owner_advice(item: Owned, missing: str) -> Advice:
    """Return the commands for memory whose owner of this kind is missing."""
    agent, owner = item.agent_id, shlex.quote(item.home.owner)
    remedies = {
        "agent": f"edenmem agent add NAME --id {agent}",
        "person": f"edenmem user add NAME --id {owner}, or edenmem forget --user {owner}",
        "session": f"restore session {owner} from a backup: edenmem import FILE",
        "group": f"edenmem forget --group {owner} --agent {agent}",
        "shard": f"edenmem scope policy --agent {agent} --shard {owner} --memory-instructions TEXT",
    }
    return Advice(CATALOG["owners"].meaning, remedies[missing])


def _is_taken_back(item: Owned) -> bool:
    """Return whether this is a text of which only the version number is left."""
    if not isinstance(item, Consolidation):
        return False
    return not item.consolidated_content and not item.unabsorbed_ids


def _find_lost_shards(context: DoctorContext, items: Sequence[Owned]) -> Iterator[CheckFinding]:
    policies = context.cache.policies({item.home for item in items})
    for item in items:
        if policies[item.home] is None:
            detail = f"the agent has no shard {item.home.owner!r}"
            yield CheckFinding("owners", about(item, detail), advice=_owner_advice(item, "shard"))


def find_linked_accounts(context: DoctorContext) -> Iterator[CheckFinding]:
    """Yield memory of linked accounts, and of unknown accounts that others are linked to."""
    scopes = context.store.memory.scopes(agent_id=context.agent_id, kinds=[ScopeKind.USER])
    for batch in batched((summary.scope for summary in scopes), BATCH):
        accounts = context.store.host.users_by_ids([scope.owner for scope in batch])
        persons = context.cache.missing("person", {scope.owner for scope in batch})
        for scope in batch:
            account = accounts.get(scope.owner)
            if account is not None and account.person_id != account.id:
                detail = f"linked to {account.person_id}; read with the memory of that user"
            elif account is None and scope.owner not in persons:
                detail = "unknown account; read as memory of the accounts linked to it"
            else:
                continue
            finding = Finding(
                target_type="account",
                target_id=scope.owner,
                detail=detail,
                agent_id=scope.agent_id,
                scope=scope,
            )
            yield CheckFinding("accounts", finding)


# -- sources -----------------------------------------------------------------------------------


def _sources(context: DoctorContext, items: Sequence[_Memory]) -> Iterator[CheckFinding]:
    sessions = context.cache.people(_source_sessions(items))
    messages = context.cache.missing(
        "message", {each for item in items for each in item.source_message_ids}
    )
    for item in items:
        lost = [each for each in item.source_message_ids if each in messages]
        if item.session_id in sessions and sessions[item.session_id] is None:
            yield CheckFinding("sources", about(item, f"session {item.session_id} is missing"))
        elif lost:
            detail = f"{len(lost)} of {len(item.source_message_ids)} source messages are missing"
            yield CheckFinding("sources", about(item, detail, related=tuple(lost)))


def _source_sessions(items: Sequence[_Memory]) -> set[str]:
    return {
        item.session_id for item in items if item.session_id and item.scope is not ScopeKind.SESSION
    }


def _group_sessions(context: DoctorContext, items: Sequence[_Memory]) -> Iterator[CheckFinding]:
    """Yield memory that may mix up the people of a group chat (known failure 8)."""
    of_users = [item for item in items if item.scope is ScopeKind.USER]
    people = context.cache.people(_source_sessions(of_users))
    owners = context.cache.person_ids({item.home.owner for item in of_users})
    for item in of_users:
        owner = owners[item.home.owner]
        others = (people.get(item.session_id or "") or frozenset()) - {owner}
        if item.session_id is None or not others:
            continue
        who_said = _who_said(context, item.session_id, item)
        if who_said and owner not in who_said:
            detail = "comes from messages of accounts not linked to its owner"
            seen = about(item, detail, related=tuple(sorted(who_said)))
            yield CheckFinding("accounts", seen, State.WARNING)
        elif others & who_said:
            detail = f"{_people(len(others))} spoke in its source messages"
            yield CheckFinding("group-sessions", about(item, detail, related=tuple(sorted(others))))
        else:  # the others may have joined later
            detail = f"its session also has {_people(len(others))}"
            seen = about(item, detail, related=tuple(sorted(others)))
            yield CheckFinding("group-sessions", seen, State.NOTE)


def _people(count: int) -> str:
    return "another person" if count == 1 else f"{count} other people"


def _who_said(context: DoctorContext, session_id: str, item: _Memory) -> set[str]:
    """Return the users who wrote the source messages of a memory."""
    messages = context.store.host.messages(session_id, ids=item.source_message_ids)
    senders = {m.sender for m in messages if m.role == "user" and not m.trigger and m.sender}
    return set(context.cache.person_ids(senders).values())


def _links(context: DoctorContext, items: Sequence[Reflection]) -> Iterator[CheckFinding]:
    cache = context.cache
    texts = cache.missing("consolidation", {i.consolidated_into for i in items} - {None})  # type: ignore[arg-type]
    origins = cache.missing("reflection", {each for i in items for each in i.propagated_from})
    for item in items:
        if item.consolidated_into in texts:
            yield CheckFinding("links", about(item, f"text {item.consolidated_into} is missing"))
        lost = [each for each in item.propagated_from if each in origins]
        if lost:  # deleted after their propagation
            are = "is" if len(item.propagated_from) == 1 else "are"
            detail = f"{len(lost)} of {len(item.propagated_from)} source reflections {are} missing"
            yield CheckFinding("links", about(item, detail, related=tuple(lost)), State.NOTE)


def _without_buffer(context: DoctorContext, items: Sequence[Reflection]) -> Iterator[CheckFinding]:
    """Yield pending reflections of scopes without a buffer."""
    pending = [item for item in items if not item.absorbed]
    homes: tuple[Scope, ...] = tuple({item.home for item in pending})
    buffers = context.store.memory.buffers(homes) if homes else {}
    for item in pending:
        if item.home not in buffers and context.store.memory.reflection(item.id) is not None:
            yield CheckFinding("buffers", about(item, "pending, but its scope has no buffer"))


# -- content -----------------------------------------------------------------------------------


def _text(item: _Memory, limit: int) -> Iterator[CheckFinding]:
    if not item.content.strip():
        yield CheckFinding("blank", about(item, "blank"))
    elif (words := word_count(item.content)) > limit:
        yield CheckFinding("limits", about(item, f"has {words} words, the limit is {limit}"))


def find_future(
    context: DoctorContext, item: Owned, times: Sequence[datetime | None]
) -> Iterator[CheckFinding]:
    """Yield a finding if a time is in the future."""
    latest = max((time for time in times if time is not None), default=None)
    if latest is not None and latest > context.now + CLOCK_SKEW:
        yield CheckFinding("times", about(item, f"dated {latest:%Y-%m-%d %H:%M}, in the future"))


def _hash(context: DoctorContext, fact: Fact) -> Iterator[CheckFinding]:
    right = content_hash(fact.content)
    if fact.hash == right:
        return
    yield CheckFinding("hashes", about(fact, f"hash is {fact.hash[:8]}…, expected {right[:8]}…"))
    twin = context.store.memory.facts_by_hashes(fact.home, [right]).get(right)
    if twin is not None and twin.id != fact.id and twin.content == fact.content:
        old, young = sorted((fact, twin), key=lambda each: (each.formed_at, each.id))
        detail = f"same text as the older fact {old.id}"
        yield CheckFinding("duplicates", about(young, detail, related=(old.id,)))


def find_lost_versions(
    context: DoctorContext, target_type: str, numbers: dict[_T, int]
) -> Iterator[CheckFinding]:
    """Yield gaps in the histories of targets with several versions.

    The history of a memory written by another program begins with its first edit in edenmem.
    Migrated versions keep their v1 numbers, which may have gaps.
    """
    several = {item.id: (item, number) for item, number in numbers.items() if number > 1}
    kept = context.store.history.list_versions(target_type, list(several)) if several else {}
    for target_id, found in kept.items():
        item, current = several[target_id]
        # Of its own versions the platform keeps none.
        is_theirs = isinstance(item, Consolidation) and item.updated_at is None
        gaps = find_gaps(found, max(found) + 1 if is_theirs else current)
        if gaps:
            lost = ", ".join(map(str, gaps[:5])) + (", …" if len(gaps) > 5 else "")
            yield CheckFinding(
                "versions", about(item, f"history lacks version {lost} of {current}")
            )
        elif max(found) > current:
            detail = f"history has version {max(found)}, but the latest is {current}"
            yield CheckFinding("versions", about(item, detail))


def find_gaps(actions: Mapping[int, str], current: int) -> list[int]:
    """Return the missing versions below ``current``; ``actions`` maps the existing ones."""
    gaps: list[int] = []
    before = min(actions) - 1
    for version in sorted({*actions, current}):
        if actions.get(version) != "migrate":
            gaps.extend(range(before + 1, min(version, current)))
        before = version
    return gaps


def twins(context: DoctorContext) -> Iterator[CheckFinding]:
    """Yield duplicate facts of a scope, as a missing unique index allows (known failure 47)."""
    for finding in context.store.memory.duplicate_facts(agent_id=context.agent_id):
        yield CheckFinding("duplicates", finding)


def twins_of_accounts(context: DoctorContext) -> Iterator[CheckFinding]:
    """Yield facts that several linked accounts have, as when the platform writes after a merge."""
    named: set[str] = set()
    scopes = context.store.memory.scopes(agent_id=context.agent_id, kinds=[ScopeKind.USER])
    for batch in batched((summary.scope for summary in scopes if summary.facts), BATCH):
        persons = context.cache.person_ids({scope.owner for scope in batch})
        for scope in batch:
            if persons[scope.owner] != scope.owner:
                for old, young in _twins_of(context.store, scope):
                    if young.id not in named:
                        named.add(young.id)
                        detail = f"a linked account has the same text in the older fact {old.id}"
                        finding = about(young, detail, related=(old.id,))
                        yield CheckFinding("duplicates", finding, State.WARNING)


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
