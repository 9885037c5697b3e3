"""Facts and reflections, one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TypeVar

from edenmem.engine.doctor.patient import BATCH, CLOCKS, Owned, Patient, about
from edenmem.engine.doctor.report import Seen, State
from edenmem.models.integrity import Finding, PresenceKind, Record, RecordKind
from edenmem.models.memory import Consolidation, Fact, Reflection, content_hash
from edenmem.models.scope import Scope, ScopeKind
from edenmem.store.protocol.store import batched
from edenmem.text import word_count

_T = TypeVar("_T", bound=Owned)
#: What several of a kind are called.
_SEVERAL: dict[RecordKind, str] = {"consolidation": "texts", "policy": "policies"}
_Memory = Fact | Reflection


def walk(
    patient: Patient, kind: RecordKind, decoded: type[_T]
) -> Iterator[tuple[list[_T], list[Seen]]]:
    """The records of a kind, a batch at a time: those that can be read, and what is to be said of
    the others and of their stored form."""
    count = 0
    for records in batched(patient.store.records(kind, agent_id=patient.agent_id), BATCH):
        count += len(records)
        patient.tell(_SEVERAL.get(kind, f"{kind}s"), count)
        values = [record.value for record in records if isinstance(record.value, decoded)]
        yield values, list(unreadable(records))


def unreadable(records: Sequence[Record]) -> Iterator[Seen]:
    """What cannot be decoded, and what queries look past."""
    for record in records:
        if record.fault:
            yield Seen("readable", _of_record(record, record.fault))
        elif record.oddities:
            yield Seen("stored-form", _of_record(record, "; ".join(record.oddities)))


def _of_record(record: Record, detail: str) -> Finding:
    return Finding(
        target_type=record.kind, target_id=record.id, detail=detail, agent_id=record.agent_id
    )


def facts(patient: Patient) -> Iterator[Seen]:
    """All facts."""
    for batch, seen in walk(patient, "fact", Fact):
        yield from seen
        yield from strangers(patient, batch)
        yield from _sources(patient, batch)
        yield from _group_sessions(patient, batch)
        yield from versions(patient, "fact", {fact: fact.version for fact in batch})
        for fact in batch:
            yield from _text(fact, patient.settings.formation.fact_words)
            yield from future(
                patient, fact, (fact.formed_at, fact.updated_at, fact.last_accessed_at)
            )
            yield from _hash(patient, fact)


def reflections(patient: Patient) -> Iterator[Seen]:
    """All reflections; whether they are in their buffers is looked at with the texts."""
    for batch, seen in walk(patient, "reflection", Reflection):
        yield from seen
        yield from strangers(patient, batch)
        yield from _sources(patient, batch)
        yield from _group_sessions(patient, batch)
        yield from _links(patient, batch)
        yield from _without_buffer(patient, batch)
        for reflection in batch:
            yield from _text(reflection, patient.settings.formation.reflection_words)
            times = (reflection.formed_at, reflection.updated_at, reflection.absorbed_at)
            yield from future(patient, reflection, times)


# -- whose -------------------------------------------------------------------------------------


#: Kind of scope → what its owner is.
_OWNERS: dict[ScopeKind, PresenceKind] = {
    ScopeKind.USER: "person",
    ScopeKind.SESSION: "session",
    ScopeKind.GROUP: "group",
}
_NAMES = {"person": "user", "session": "session", "group": "group"}


def strangers(patient: Patient, items: Sequence[Owned]) -> Iterator[Seen]:
    """What belongs to an agent, person, session, group or shard that is not there."""
    known = patient.known
    items = [item for item in items if not _is_taken_back(item)]
    gone = known.missing("agent", {item.agent_id for item in items})
    for item in items:
        if item.agent_id in gone:
            yield Seen("owners", about(item, f"there is no agent {item.agent_id}"))
    for kind, presence in _OWNERS.items():
        of_kind = [item for item in items if item.home.kind is kind]
        missing = known.missing(presence, {item.home.owner for item in of_kind})
        # A group is there as long as a session names it, and sessions may be deleted.
        state = State.NOTE if presence == "group" else None
        for item in of_kind:
            if item.home.owner in missing:
                detail = f"there is no {_NAMES[presence]} {item.home.owner}"
                yield Seen("owners", about(item, detail), state)
    yield from _lost_shards(patient, [item for item in items if item.home.kind is ScopeKind.SHARD])


def _is_taken_back(item: Owned) -> bool:
    """Whether this is a text of which only the number of its last version is left."""
    if not isinstance(item, Consolidation):
        return False
    return not item.consolidated_content and not item.unabsorbed_ids


def _lost_shards(patient: Patient, items: Sequence[Owned]) -> Iterator[Seen]:
    policies = patient.known.policies({item.home for item in items})
    for item in items:
        if policies[item.home] is None:
            yield Seen("owners", about(item, f"the agent has no shard {item.home.owner!r}"))


def linked_accounts(patient: Patient) -> Iterator[Seen]:
    """The memory of people with several accounts, and of an account that does not exist."""
    scopes = patient.store.scopes(agent_id=patient.agent_id, kinds=[ScopeKind.USER])
    for batch in batched((summary.scope for summary in scopes), BATCH):
        accounts = patient.store.users_by_ids([scope.owner for scope in batch])
        persons = patient.known.missing("person", {scope.owner for scope in batch})
        for scope in batch:
            account = accounts.get(scope.owner)
            if account is not None and account.person_id != account.id:
                detail = f"is linked to {account.person_id}, and read with the memory of that user"
            elif account is None and scope.owner not in persons:
                detail = (
                    "is no account, and is read as memory of the accounts that are linked to it"
                )
            else:
                continue
            finding = Finding(
                target_type="account",
                target_id=scope.owner,
                detail=detail,
                agent_id=scope.agent_id,
                scope=scope,
            )
            yield Seen("accounts", finding)


# -- where from --------------------------------------------------------------------------------


def _sources(patient: Patient, items: Sequence[_Memory]) -> Iterator[Seen]:
    sessions = patient.known.people(_source_sessions(items))
    messages = patient.known.missing(
        "message", {each for item in items for each in item.source_message_ids}
    )
    for item in items:
        lost = [each for each in item.source_message_ids if each in messages]
        if item.session_id in sessions and sessions[item.session_id] is None:
            yield Seen("sources", about(item, f"its session {item.session_id} is gone"))
        elif lost:
            detail = f"{len(lost)} of its {len(item.source_message_ids)} source messages gone"
            yield Seen("sources", about(item, detail, related=tuple(lost)))


def _source_sessions(items: Sequence[_Memory]) -> set[str]:
    return {
        item.session_id for item in items if item.session_id and item.scope is not ScopeKind.SESSION
    }


def _group_sessions(patient: Patient, items: Sequence[_Memory]) -> Iterator[Seen]:
    """Known failure 8: what one says in a group chat is taken for another's."""
    of_users = [item for item in items if item.scope is ScopeKind.USER]
    people = patient.known.people(_source_sessions(of_users))
    owners = patient.known.person_ids({item.home.owner for item in of_users})
    for item in of_users:
        owner = owners[item.home.owner]
        others = (people.get(item.session_id or "") or frozenset()) - {owner}
        if item.session_id is None or not others:
            continue
        who_said = _who_said(patient, item.session_id, item)
        if who_said and owner not in who_said:
            detail = "comes from messages of accounts that are not linked to its own"
            seen = about(item, detail, related=tuple(sorted(who_said)))
            yield Seen("accounts", seen, State.WARNING)
        elif others & who_said:
            detail = f"{_people(len(others))} spoke in the messages that it is of"
            yield Seen("group-sessions", about(item, detail, related=tuple(sorted(others))))
        else:  # who may have come later
            detail = f"{_people(len(others))} also in its session"
            seen = about(item, detail, related=tuple(sorted(others)))
            yield Seen("group-sessions", seen, State.NOTE)


def _people(count: int) -> str:
    return "another person" if count == 1 else f"{count} other people"


def _who_said(patient: Patient, session_id: str, item: _Memory) -> set[str]:
    """The people who wrote the messages that a memory is of."""
    messages = patient.store.messages(session_id, ids=item.source_message_ids)
    senders = {m.sender for m in messages if m.role == "user" and not m.trigger and m.sender}
    return set(patient.known.person_ids(senders).values())


def _links(patient: Patient, items: Sequence[Reflection]) -> Iterator[Seen]:
    known = patient.known
    texts = known.missing("consolidation", {i.consolidated_into for i in items} - {None})  # type: ignore[arg-type]
    origins = known.missing("reflection", {each for i in items for each in i.propagated_from})
    for item in items:
        if item.consolidated_into in texts:
            yield Seen("links", about(item, f"the text {item.consolidated_into} is gone"))
        lost = [each for each in item.propagated_from if each in origins]
        if lost:  # what a person deletes may have been propagated before
            detail = f"{len(lost)} of the reflections it was derived from are gone"
            yield Seen("links", about(item, detail, related=tuple(lost)), State.NOTE)


def _without_buffer(patient: Patient, items: Sequence[Reflection]) -> Iterator[Seen]:
    """Reflections that wait although their scope has no buffer at all."""
    waiting = [item for item in items if not item.absorbed]
    homes: tuple[Scope, ...] = tuple({item.home for item in waiting})
    buffers = patient.store.buffers(homes) if homes else {}
    for item in waiting:
        if item.home not in buffers and patient.store.reflection(item.id) is not None:
            yield Seen("buffers", about(item, "waits, and its scope has no buffer"))


# -- what it says ------------------------------------------------------------------------------


def _text(item: _Memory, limit: int) -> Iterator[Seen]:
    if not item.content.strip():
        yield Seen("blank", about(item, "says nothing"))
    elif (words := word_count(item.content)) > limit:
        yield Seen("limits", about(item, f"has {words} words, the limit is {limit}"))


def future(patient: Patient, item: Owned, times: Sequence[datetime | None]) -> Iterator[Seen]:
    """A time that is still to come."""
    latest = max((time for time in times if time is not None), default=None)
    if latest is not None and latest > patient.now + CLOCKS:
        yield Seen("times", about(item, f"is dated {latest:%Y-%m-%d %H:%M}, which is to come"))


def _hash(patient: Patient, fact: Fact) -> Iterator[Seen]:
    right = content_hash(fact.content)
    if fact.hash == right:
        return
    yield Seen("hashes", about(fact, f"its hash is {fact.hash[:8]}…, its text's {right[:8]}…"))
    twin = patient.store.facts_by_hashes(fact.home, [right]).get(right)
    if twin is not None and twin.id != fact.id and twin.content == fact.content:
        old, young = sorted((fact, twin), key=lambda each: (each.formed_at, each.id))
        detail = f"says the same as {old.id}, which is older"
        yield Seen("duplicates", about(young, detail, related=(old.id,)))


def versions(patient: Patient, target_type: str, numbers: dict[_T, int]) -> Iterator[Seen]:
    """Gaps in what history has of each target with several versions.

    What others than edenmem wrote has no history; it begins with what edenmem replaced.
    """
    several = {item.id: (item, number) for item, number in numbers.items() if number > 1}
    kept = patient.store.kept_versions(target_type, list(several)) if several else {}
    for target_id, found in kept.items():
        item, current = several[target_id]
        gaps = sorted(set(range(min(found), current)) - found)
        if gaps:
            lost = ", ".join(map(str, gaps[:5])) + (", …" if len(gaps) > 5 else "")
            yield Seen("versions", about(item, f"history lacks version {lost} of {current}"))
        elif max(found) > current:
            detail = f"history has version {max(found)}, and the latest is {current}"
            yield Seen("versions", about(item, detail))


def twins(patient: Patient) -> Iterator[Seen]:
    """Known failure 47: without the unique key, the same fact comes into a scope twice."""
    for finding in patient.store.twins(agent_id=patient.agent_id):
        yield Seen("duplicates", finding)
