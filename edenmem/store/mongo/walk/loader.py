"""Write the records of a backup.

Each document is inserted whole. Its effects (an entry in a buffer, the revision of a scope) are
written afterwards, and completed by the next load of the same records after an interruption.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from pymongo import UpdateOne

from edenmem.models.backup import (
    LoadResult,
    LoadStatus,
    Record,
    RecordKind,
    StoredAgent,
    StoredSession,
    StoredUser,
    StoredVersion,
    compare_records,
    forgotten_ids,
    version_id,
)
from edenmem.models.changes import AuditEntry, HistoryEntry
from edenmem.models.formation import UsageEntry
from edenmem.models.host import Message
from edenmem.models.ids import utc_now
from edenmem.models.memory import Consolidation, Fact, Held, Policy, Reflection
from edenmem.models.scope import Scope
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core.collection import Collection, Document
from edenmem.store.mongo.core.collections import CONSOLIDATED_KEY
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.core.filters import (
    build_consolidated_filters,
    build_consolidated_key,
    id_parts,
    object_id,
    object_ids,
    optional_id,
    owner_fields,
    policy_id,
)
from edenmem.store.mongo.core.readiness import Readiness
from edenmem.store.mongo.core.transactions import touch
from edenmem.store.mongo.core.unique_keys import CLAIM_KEYS
from edenmem.store.mongo.formations.formations import formation_document, formation_from
from edenmem.store.mongo.formations.usage import usage_document, usage_from
from edenmem.store.mongo.host import host_codec
from edenmem.store.mongo.host.host import assign_owner, cold_note_reset
from edenmem.store.mongo.memory.buffers import fill_buffers
from edenmem.store.mongo.memory.history import (
    Kept,
    audit_document,
    audit_from,
    fact_version,
    history_document,
    history_from,
    stored_version,
    text_version,
)
from edenmem.store.mongo.search.slots import Slots
from edenmem.store.mongo.walk.sources import read_agent, read_session
from edenmem.store.protocol.host import Host
from edenmem.store.protocol.memory import Memory

ADDED = LoadResult(status=LoadStatus.ADDED)
SAME = LoadResult(status=LoadStatus.SAME)


Answers = dict[int, LoadResult]


def refuse(detail: str) -> LoadResult:
    """Return the result for a record that the store cannot hold."""
    return LoadResult(status=LoadStatus.REFUSED, detail=detail)


class RecordLoader:
    """Loads records; one function per kind returns a result for each record's position."""

    def __init__(
        self, db: Connection, readiness: Readiness, slots: Slots, host: Host, memory: Memory
    ) -> None:
        self._db = db
        self._readiness = readiness
        self._slots = slots
        self._host = host
        self._memory = memory
        self._loaders: dict[RecordKind, Callable[[Sequence[Any], bool], Answers]] = {
            RecordKind.AGENT: self._load_agents,
            RecordKind.USER: self._load_users,
            RecordKind.SESSION: self._load_sessions,
            RecordKind.MESSAGE: self._load_messages,
            RecordKind.POLICY: self._load_policies,
            RecordKind.CONSOLIDATION: self._load_texts,
            RecordKind.REFLECTION: self._load_reflections,
            RecordKind.FACT: self._load_facts,
            RecordKind.HELD: self._load_held,
            RecordKind.FORMATION: self._load_formations,
            RecordKind.USAGE: self._load_usage,
            RecordKind.AUDIT: self._load_audit,
            RecordKind.HISTORY: self._load_history,
        }

    def load(
        self, kind: RecordKind, records: Sequence[Record], *, dry_run: bool = False
    ) -> list[LoadResult]:
        """See `Walk.load`."""
        if not dry_run:
            self._readiness.require()
        answers = self._loaders[kind](records, dry_run)
        return [answers[place] for place in range(len(records))]

    def _put(
        self,
        kind: RecordKind,
        collection: Collection,
        records: Sequence[Any],
        dry_run: bool,
        *,
        write: Callable[[Any], Document],
        read: Callable[[Document], Record],
        why_not: str,
        fit: Callable[[Any], LoadResult | None] = lambda record: None,
    ) -> Answers:
        """Insert records with new IDs; ``fit`` may return another result for a new record."""
        answers = self._compare_stored(kind, collection, records, read)
        for place, record in enumerate(records):
            if place not in answers and (found := fit(record)):
                answers[place] = found
        places = [place for place in range(len(records)) if place not in answers]
        taken: dict[int, str] = {}
        if not dry_run:
            taken = collection.insert_new([write(records[place]) for place in places])
        for order, place in enumerate(places):
            answers[place] = refuse(why_not) if order in taken else ADDED
        return answers

    def _compare_stored(
        self,
        kind: RecordKind,
        collection: Collection,
        records: Sequence[Any],
        read: Callable[[Document], Record],
    ) -> Answers:
        """Return the results for records whose ID exists."""
        projection = codec.NO_VECTOR if kind is RecordKind.FACT else None
        ids = (record.id for record in records)
        documents = self._db.find_by_ids(collection, ids, projection)
        stored = {str(document["_id"]): document for document in documents}
        return {
            place: compare_records(kind, read(stored[record.id]), record)
            for place, record in enumerate(records)
            if record.id in stored
        }

    # -- the platform's data -----------------------------------------------------------------

    def _load_agents(self, records: Sequence[StoredAgent], dry_run: bool) -> Answers:
        def write(agent: StoredAgent) -> Document:
            return _account(host_codec.agent_document(agent), agent)

        return self._load_accounts(RecordKind.AGENT, records, dry_run, write, read_agent)

    def _load_users(self, records: Sequence[StoredUser], dry_run: bool) -> Answers:
        def write(user: StoredUser) -> Document:
            return _account(host_codec.user_document(user), user)

        return self._load_accounts(
            RecordKind.USER, records, dry_run, write, host_codec.stored_user_from
        )

    def _load_accounts(
        self,
        kind: RecordKind,
        records: Sequence[Any],
        dry_run: bool,
        write: Callable[[Any], Document],
        read: Callable[[Document], Record],
    ) -> Answers:
        taken = f"another {kind} has this username or ID"
        named: set[str] = set()  # within this batch

        def fit(account: StoredAgent | StoredUser) -> LoadResult | None:
            if reason := self._host.refusal(account):
                return refuse(reason)
            key = {"type": kind.value, "username": account.username}
            if account.username in named or self._db.users.find_one(key, {"_id": 1}):
                return refuse(taken)
            named.add(account.username)
            return None

        return self._put(
            kind, self._db.users, records, dry_run, write=write, read=read, why_not=taken, fit=fit
        )

    def _load_sessions(self, records: Sequence[StoredSession], dry_run: bool) -> Answers:
        answers = self._put(
            RecordKind.SESSION,
            self._db.sessions,
            records,
            dry_run,
            write=lambda session: _session_document(assign_owner(self._db, session)),
            read=read_session,
            why_not="another session has this ID",
            fit=lambda session: refuse(reason) if (reason := self._host.refusal(session)) else None,
        )
        if not dry_run:  # the cold run must check them, however old they are
            self._db.cold.bulk(
                [
                    UpdateOne(
                        {"_id": object_id(session.id)},
                        cold_note_reset(session.last_activity),
                        upsert=True,
                    )
                    for session, answer in _with_answers(records, answers)
                    if answer is ADDED and session.last_activity is not None
                ]
            )
        return answers

    def _load_messages(self, records: Sequence[Message], dry_run: bool) -> Answers:
        """Load messages; one that exists for another session is only added to this one."""
        found = self._db.find_by_ids(self._db.messages, (message.id for message in records))
        stored = {str(document["_id"]): document for document in found}
        known = set() if dry_run else self._find_session_ids(records)
        answers: Answers = {}
        new: dict[str, int] = {}
        for place, message in enumerate(records):
            document = stored.get(message.id)
            if document is not None:
                answers[place] = self._join_message(document, message, dry_run)
            elif not dry_run and message.session_id not in known:
                answers[place] = refuse(f"session does not exist: {message.session_id}")
            elif reason := self._host.refusal(message):
                answers[place] = refuse(reason)
            elif message.id in new:  # twice in one batch, for two sessions
                answers[place] = ADDED
            else:
                new[message.id] = place
        if not dry_run:
            places = list(new.values())
            documents = [host_codec.message_document(records[place]) for place in places]
            taken = self._db.messages.insert_new(documents)
            answers |= {
                place: refuse("another message has this ID") if order in taken else ADDED
                for order, place in enumerate(places)
            }
            for place, message in enumerate(records):
                if message.id in new and place != new[message.id]:
                    self._join(message)
        answers |= dict.fromkeys(set(new.values()) - answers.keys(), ADDED)
        if not dry_run:
            results = [answers[place] for place in range(len(records))]
            marks = [{"_id": object_id(id)} for id in forgotten_ids(records, results)]
            self._db.forgotten_messages.insert_new(marks)
        return answers

    def _find_session_ids(self, messages: Iterable[Message]) -> set[str]:
        ids = (message.session_id for message in messages)
        found = self._db.find_by_ids(self._db.sessions, ids, {"_id": 1})
        return {str(document["_id"]) for document in found}

    def _join_message(self, document: Document, message: Message, dry_run: bool) -> LoadResult:
        stored = host_codec.message_from(document, message.session_id)
        answer = compare_records(RecordKind.MESSAGE, stored, message)
        if answer.status is not LoadStatus.SAME:
            return answer
        if message.session_id in codec.text_ids(document.get("session")):
            return answer
        if not dry_run:
            self._join(message)
        return ADDED

    def _join(self, message: Message) -> None:
        joined = {"$addToSet": {"session": object_id(message.session_id)}}
        self._db.messages.update_one({"_id": object_id(message.id)}, joined)

    # -- memory ------------------------------------------------------------------------------

    def _load_policies(self, records: Sequence[Policy], dry_run: bool) -> Answers:
        stored = self._memory.policies([policy.home for policy in records])
        answers: Answers = {}
        for place, policy in enumerate(records):
            if policy.home in stored:
                answers[place] = compare_records(RecordKind.POLICY, stored[policy.home], policy)
        places = [place for place in range(len(records)) if place not in answers]
        failed: set[int] = set()
        if not dry_run:
            _, failed = self._db.policies.bulk([_policy_update(records[place]) for place in places])
            touch(self._db, {records[place].home for place in places})
        for order, place in enumerate(places):
            answers[place] = (
                refuse("another process has just written it") if order in failed else ADDED
            )
        return answers

    def _load_texts(self, records: Sequence[Consolidation], dry_run: bool) -> Answers:
        self._readiness.require_keys((CONSOLIDATED_KEY,))
        stored: dict[Scope, Consolidation] = {}
        scopes = [text.home for text in records]
        for document in self._db.find_all(
            self._db.consolidated, build_consolidated_filters(scopes)
        ):
            if scope := codec.find_text_scope(document):
                stored[scope] = codec.consolidation_from(document)
        answers: Answers = {}
        buffers: list[int] = []
        for place, text in enumerate(records):
            if text.home in stored and (stored[text.home].version or not text.version):
                answers[place] = compare_records(RecordKind.CONSOLIDATION, stored[text.home], text)
            elif text.home in stored:
                buffers.append(place)
        new = [p for p in range(len(records)) if p not in answers and p not in buffers]
        taken: dict[int, str] = {}
        if not dry_run:
            taken = self._db.consolidated.insert_new([_text_document(records[p]) for p in new])
            self._db.consolidated.bulk([_first_text(records[p]) for p in buffers])
            touch(self._db, {records[place].home for place in (*new, *buffers)})
        for order, place in enumerate(new):
            answers[place] = refuse("another text has this ID") if order in taken else ADDED
        return {**answers, **dict.fromkeys(buffers, ADDED)}

    def _load_reflections(self, records: Sequence[Reflection], dry_run: bool) -> Answers:
        now = utc_now()
        answers = self._put(
            RecordKind.REFLECTION,
            self._db.reflections,
            records,
            dry_run,
            write=lambda reflection: codec.reflection_document(reflection, at=now),
            read=codec.reflection_from,
            why_not="another reflection has this ID",
        )
        if not dry_run:
            there = (LoadStatus.ADDED, LoadStatus.SAME)
            self._fill(one for one, a in _with_answers(records, answers) if a.status in there)
            touch(self._db, {one.home for one, a in _with_answers(records, answers) if a is ADDED})
        return answers

    def _fill(self, reflections: Iterable[Reflection]) -> None:
        """Add pending reflections that are in no buffer to theirs."""
        waiting = [one for one in reflections if not one.absorbed]
        filters = build_consolidated_filters({one.home for one in waiting})
        placed: set[str] = set()
        for document in self._db.find_all(self._db.consolidated, filters):
            if codec.find_text_scope(document):
                for field in ("unabsorbed_ids", "absorbed_ids"):
                    placed.update(codec.text_ids(document.get(field)))
        missing = [one for one in waiting if one.id not in placed]
        fill_buffers(self._db, sorted(missing, key=lambda one: one.order))

    def _load_facts(self, records: Sequence[Fact], dry_run: bool) -> Answers:
        self._readiness.require_fact_key()
        now = utc_now()
        storage = self._slots.storage() if any(fact.embedding for fact in records) else "array"
        duplicates = self._find_duplicates(records)
        answers = self._put(
            RecordKind.FACT,
            self._db.facts,
            records,
            dry_run,
            write=lambda fact: codec.fact_document(fact, at=now, storage=storage),
            read=codec.fact_from,
            why_not="another process has just added the same fact",
            fit=lambda fact: duplicates.get((fact.home, fact.hash)),
        )
        if not dry_run:
            touch(self._db, {one.home for one, a in _with_answers(records, answers) if a is ADDED})
        return answers

    def _find_duplicates(self, facts: Sequence[Fact]) -> Mapping[tuple[Scope, str], LoadResult]:
        """Return the results for facts that exist in their scope under another ID."""
        hashes: dict[Scope, list[str]] = {}
        for fact in facts:
            hashes.setdefault(fact.home, []).append(fact.hash)
        return {
            (scope, hash): LoadResult(
                status=LoadStatus.SAME, detail=f"the scope has the same fact: {fact.id}"
            )
            for scope, wanted in hashes.items()
            for hash, fact in self._memory.facts_by_hashes(scope, wanted).items()
        }

    def _load_held(self, records: Sequence[Held], dry_run: bool) -> Answers:
        return self._put(
            RecordKind.HELD,
            self._db.held,
            records,
            dry_run,
            write=lambda held: codec.held_document(held, at=utc_now()),
            read=codec.held_from,
            why_not="another held item has this ID",
        )

    # -- the past ----------------------------------------------------------------------------

    def _load_formations(self, records: Sequence[Any], dry_run: bool) -> Answers:
        self._readiness.require_keys(CLAIM_KEYS)
        return self._put(
            RecordKind.FORMATION,
            self._db.formations,
            records,
            dry_run,
            write=formation_document,
            read=formation_from,
            why_not="another formation has its number in the session, or its messages",
        )

    def _load_usage(self, records: Sequence[UsageEntry], dry_run: bool) -> Answers:
        return self._put(
            RecordKind.USAGE,
            self._db.usage,
            records,
            dry_run,
            write=usage_document,
            read=usage_from,
            why_not="another entry has this ID",
        )

    def _load_audit(self, records: Sequence[AuditEntry], dry_run: bool) -> Answers:
        return self._put(
            RecordKind.AUDIT,
            self._db.audit,
            records,
            dry_run,
            write=audit_document,
            read=audit_from,
            why_not="another entry has this ID",
        )

    def _load_history(self, records: Sequence[StoredVersion], dry_run: bool) -> Answers:
        answers: Answers = {}
        past = self._past(records)
        for target_type, collection in (
            ("fact", self._db.facts),
            ("consolidation", self._db.consolidated),
        ):
            of_type = [record for record in records if record.target_type == target_type]
            load = _Load(past, self._targets(collection, target_type, of_type))
            for place, record in enumerate(records):
                if record.target_type == target_type:
                    answers[place] = load.judge(record)
            if not dry_run:
                self._db.history.insert_new(load.inserts)
                collection.bulk(load.marks)
        return {**dict.fromkeys(range(len(records)), _OF_ANOTHER), **answers}

    def _past(self, records: Sequence[StoredVersion]) -> dict[str, Kept]:
        """Return the stored versions of these targets, by position-based ID.

        Entries of an older edenmem have other IDs.
        """
        filters = [
            {"target_type": kind, "target_id": {"$in": part}}
            for kind in sorted({record.target_type for record in records})
            for part in id_parts(r.target_id for r in records if r.target_type == kind)
        ]
        found = map(history_from, self._db.find_all(self._db.history, filters))
        return {_id(stored_version(version)): version for version in found}

    def _targets(
        self, collection: Collection, target_type: str, records: Sequence[StoredVersion]
    ) -> dict[str, _Target]:
        read = fact_version if target_type == "fact" else text_version
        ids = (record.target_id for record in records)
        targets = {}
        for document in self._db.find_by_ids(collection, ids, codec.NO_VECTOR):
            if target_type == "fact" or codec.read_version(document):
                targets[str(document["_id"])] = _Target(
                    codec.version_filter(document),
                    read(document),
                    document.get("last_change_id") is not None,
                )
        return targets


def _with_answers(records: Sequence[Any], answers: Answers) -> Iterator[tuple[Any, LoadResult]]:
    return ((record, answers[place]) for place, record in enumerate(records))


# -- documents -----------------------------------------------------------------------------------


def _account(document: Document, account: StoredAgent | StoredUser) -> Document:
    return {**document, "deleted": account.deleted, "createdAt": account.created_at}


def _session_document(session: Any) -> Document:
    document = host_codec.session_document(session)
    document["createdAt"] = session.created_at
    if session.last_memory_message_id is not None:
        last = object_id(session.last_memory_message_id)
        document["memory_context"]["last_memory_message_id"] = last
    return document


def _policy_update(policy: Policy) -> UpdateOne:
    """Return the update for a policy; its document may exist already and keep a revision."""
    now = utc_now()
    fields = {
        **owner_fields(policy.home),
        **{name: getattr(policy, name) for name in codec.POLICY_FIELDS},
        "policy_id": object_id(policy.id),
        "version": policy.version,
        "updated_at": policy.updated_at,
        "updatedAt": now,
    }
    key = {"_id": policy_id(policy.home), "version": None}
    return UpdateOne(key, {"$set": fields, "$setOnInsert": {"createdAt": now}}, upsert=True)


def _text_document(text: Consolidation) -> Document:
    now = utc_now()
    document: Document = {
        **build_consolidated_key(text.home),
        "_id": object_id(text.id),
        "consolidated_content": "",
        **({"word_limit": text.word_limit} if text.word_limit else {}),
        "unabsorbed_ids": [],
        "last_consolidated_at": text.last_consolidated_at,
        "createdAt": now,
        "updatedAt": now,
    }
    if text.version:
        document |= {
            **codec.text_fields(text.consolidated_content, text.version),
            "absorbed_ids": object_ids(text.absorbed_ids),
            "updated_at": text.updated_at,
        }
    if text.unpropagated_versions:
        document["unpropagated_versions"] = list(text.unpropagated_versions)
    if text.fixed:
        document["fixed"] = codec.fixed_field(text)
    if text.version and text.updated_at is not None:  # edenmem's; the actor comes with history
        at = text.updated_at
        made = {"version": text.version, "at": at, "action": "consolidate", "actor": ""}
        document["last_version"] = made
    return document


def _first_text(text: Consolidation) -> UpdateOne:
    """Return the update for a text whose document only holds a buffer."""
    fields = _text_document(text)
    kept = {*build_consolidated_key(text.home), "_id", "unabsorbed_ids", "createdAt"}
    new = {name: value for name, value in fields.items() if name not in kept}
    return UpdateOne({**build_consolidated_key(text.home), "version": None}, {"$set": new})


# -- versions ------------------------------------------------------------------------------------

_OF_ANOTHER = LoadResult(status=LoadStatus.KEPT, detail="its target differs here")


class _Target(msgspec.Struct):
    """A document whose versions are loaded; ``is_marked`` if its origin is recorded."""

    key: Document
    current: Kept
    is_marked: bool


class _Load:
    """Collects the writes for a batch of versions."""

    def __init__(self, past: dict[str, Kept], targets: dict[str, _Target]) -> None:
        self._past = past
        self._targets = targets
        self.inserts: list[Document] = []
        self.marks: list[UpdateOne] = []

    def judge(self, record: StoredVersion) -> LoadResult:
        """Return the result for one version, and collect its writes."""
        known = self._past.get(_id(record))
        if known is not None:
            return compare_records(RecordKind.HISTORY, stored_version(known), record)
        version = _version(record)
        target = self._targets.get(record.target_id)
        if target is None or _is_past(version, target.current):
            self.inserts.append(history_document(version))
            return ADDED
        if not _could_be(version, target.current):
            return _OF_ANOTHER
        if version.life > target.current.life:  # the fact was removed and restored since
            self.inserts.append(history_document(target.current))
        elif _origin(version) == _origin(target.current):
            return SAME
        elif target.is_marked:
            return compare_records(RecordKind.HISTORY, stored_version(target.current), record)
        self.marks.append(UpdateOne(target.key, {"$set": _mark(version)}))
        target.current, target.is_marked = version, True
        return ADDED


def _is_past(version: Kept, current: Kept) -> bool:
    """Return whether a version precedes the current one, or ended an earlier life."""
    if version.is_tombstone:
        return version.entry.version <= current.entry.version
    return version.place < current.place


def _could_be(version: Kept, current: Kept) -> bool:
    """Return whether a version may be the current one."""
    same = version.entry.version == current.entry.version
    return same and not version.is_tombstone and version.entry.content == current.entry.content


def _origin(version: Kept) -> tuple[object, ...]:
    entry = version.entry
    return version.life, entry.action, entry.actor, entry.change_id, entry.at


def _mark(version: Kept) -> Document:
    entry = version.entry
    made = {"version": entry.version, "at": entry.at, "action": entry.action, "actor": entry.actor}
    fields: Document = {"last_version": made, "last_change_id": optional_id(entry.change_id)}
    return {**fields, "life": version.life} if version.life else fields


def _id(record: StoredVersion) -> str:
    return version_id(record.target_type, record.target_id, record.place)


def _version(record: StoredVersion) -> Kept:
    fields = {name: getattr(record, name) for name in HistoryEntry.__struct_fields__}
    return Kept(HistoryEntry(**{**fields, "id": _id(record)}), record.life)
