"""Seals find every change of a log from outside, and raise no false alarm."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from edenmem.engine.seals.hashes import SealFile, climb, header_of, path_of, root_of
from edenmem.engine.seals.sealer import Sealer, hash_emptied
from edenmem.errors import ConflictError, InputError, UsageError
from edenmem.models.backup import Document, RecordKind
from edenmem.models.changes import RemoveFact
from edenmem.models.ids import new_id
from edenmem.models.records import AuditEntry, Seal, StoredEntry, content_mark, salts_of, users_mark
from edenmem.models.scope import Scope
from tests.support.builders import ACTOR, NOW, FixedClock, make_fact, revision
from tests.support.forgetting import Town, fill, forget, make_town
from tests.support.memory import add_fact, add_facts, applied
from tests.support.runtime import make_runtime
from tests.support.stores import SECANTUS_TOO

if TYPE_CHECKING:
    from edenmem.store.protocol.store import Store


class Log:
    """A log in memory, which does what the protocol says and nothing else."""

    def __init__(self) -> None:
        self.entries: dict[str, StoredEntry] = {}
        self.kept: list[Seal] = []
        self.log = self.walk = self

    def documents(self, kinds: Sequence[RecordKind]) -> Iterator[Document]:
        for id, entry in sorted(self.entries.items()):
            yield Document(kind=kinds[0], id=id, record=entry)

    def stored_entries(self, ids: Sequence[str]) -> dict[str, StoredEntry]:
        return {id: self.entries[id] for id in ids if id in self.entries}

    def seals(self) -> Iterator[Seal]:
        return iter(list(self.kept))

    def add_seal(self, seal: Seal) -> bool:
        if seal.number != len(self.kept) + 1:
            return False
        self.kept.append(seal)
        return True


class History:
    """A random honest history of a log, with its file of seals."""

    def __init__(self, seed: int, file: Path) -> None:
        self.random = random.Random(seed)
        self.log, self.backup = Log(), Log()
        self.file = str(file)
        self.clock = FixedClock()
        self.needs_accepting = False

    @property
    def sealer(self) -> Sealer:
        runtime = make_runtime(self.log, clock=self.clock)  # type: ignore[arg-type]
        return Sealer(runtime)

    def step(self) -> None:
        self.clock.advance(minutes=self.random.randint(0, 90))
        steps = [self.write] * 4 + [self.seal] * 2 + [self.erase, self.back_up, self.restore]
        self.random.choice(steps)()

    def write(self) -> None:
        """Write entries, also such as are committed long after their time."""
        for _ in range(self.random.randint(1, 4)):
            late = timedelta(hours=self.random.choice((0, 0, 0, 30)))
            self.put(action="add_fact", at=self.clock() - late)

    def put(self, **fields: Any) -> StoredEntry:
        users = self.random.choice(([], [], [new_id()]))
        document = {"content": f"Text {self.random.random()}", "related_users": users}
        entry = AuditEntry(
            **{
                "id": f"{self.random.getrandbits(96):024x}",
                "change_set_id": new_id(),
                "actor": ACTOR,
                "target_type": "fact",
                "target_id": new_id(),
                "agent_id": new_id(),
                "before": self.random.choice((None, document)),
                "after": self.random.choice((None, document)),
                "reason": self.random.choice(("", "asked for")),
                **fields,
            }
        )
        stored = StoredEntry(**msgspec.structs.asdict(entry), salts=salts_of(entry))
        self.log.entries[stored.id] = stored
        return stored

    def seal(self) -> None:
        if self.needs_accepting:
            with pytest.raises(ConflictError):
                self.sealer.seal(self.file)
        else:
            self.sealer.seal(self.file)

    def erase(self) -> None:
        """Erase some entries like `forget`, which seals at its end."""
        if self.needs_accepting or not self.log.entries:
            return
        run = new_id()
        ids = self.random.sample(sorted(self.log.entries), k=min(3, len(self.log.entries)))
        for entry in (self.log.entries[id] for id in ids):
            if entry.action == "forget":
                continue
            whole = self.random.random() < 0.7
            self.log.entries[entry.id] = _emptied(entry, run, whole=whole)
        emptied = hash_emptied(self.log, run)  # type: ignore[arg-type]
        self.put(id=run, action="forget", at=self.clock(), after={"emptied": emptied})
        self.seal()

    def back_up(self) -> None:
        self.seal()
        self.backup = copy.copy(self.log)
        self.backup.entries, self.backup.kept = dict(self.log.entries), list(self.log.kept)

    def restore(self) -> None:
        lost = len(self.log.kept) > len(self.backup.kept)
        self.log.entries = dict(self.backup.entries)
        self.log.kept = list(self.backup.kept)
        self.needs_accepting |= lost
        if self.needs_accepting and self.random.random() < 0.7:
            assert self.sealer.verify(self.file).problems
            self.sealer.accept_restore(str(len(self.log.kept)), self.file)
            self.needs_accepting = False


def _emptied(entry: StoredEntry, run: str, *, whole: bool) -> StoredEntry:
    names = ("content", "users", "reason") if whole else ("users",)
    salts = {name: salt for name, salt in entry.salts.items() if name not in names}
    mark = (content_mark if whole else users_mark)(run)
    documents = {
        side: None if whole or document is None else {"content": document.get("content")}
        for side, document in (("before", entry.before), ("after", entry.after))
    }
    if not whole and "users" not in entry.salts:
        return entry
    if whole and not {*names} & {*entry.salts}:
        return entry
    reason = "" if whole else entry.reason
    return msgspec.structs.replace(
        entry, **documents, reason=reason, salts=salts, erased=(*entry.erased, mark)
    )


#: Changes of one sealed entry by whoever has the database.
_TAMPERINGS: Sequence[Callable[[StoredEntry], dict[str, Any]]] = (
    lambda e: {"at": e.at + timedelta(milliseconds=1)},
    lambda e: {"action": f"{e.action}x"},
    lambda e: {"change_set_id": new_id()},
    lambda e: {"undoes": new_id()},
    lambda e: {"target_id": new_id()},
    lambda e: {"target_type": "reflection"},
    lambda e: {"agent_id": new_id()},
    lambda e: {"scope": Scope.agent(new_id())},
    lambda e: {"actor": msgspec.structs.replace(e.actor, name="else")},
    lambda e: {"before": {"content": "Other"}},
    lambda e: {"after": {**(e.after or {}), "related_users": [new_id()]}},
    lambda e: {"reason": "another"},
    lambda e: {"salts": {**e.salts, "actor": "0" * 24}},
    lambda e: {"status": "void"},
)


@pytest.mark.slow
def test_500_honest_histories_raise_no_alarm_and_no_change_stays_hidden(tmp_path: Path) -> None:
    for seed in range(500):
        history = History(seed, tmp_path / f"{seed}.jsonl")
        for _ in range(history.random.randint(3, 14)):
            history.step()
        found = history.sealer.verify(history.file)
        assert bool(found.problems) is history.needs_accepting, (seed, found.problems)
        sealed = [each.id for seal in history.log.kept for each in seal.entries]
        if history.needs_accepting or not sealed:
            continue
        _tamper(history, history.random.choice(sealed), seed)


def _tamper(history: History, id: str, seed: int) -> None:
    """Make one change of the database, and expect its place to be named."""
    log, before = history.log, dict(history.log.entries)
    entry = log.entries[id]
    for number in (seed % len(_TAMPERINGS), (seed + 5) % len(_TAMPERINGS)):
        log.entries = before | {id: msgspec.structs.replace(entry, **_TAMPERINGS[number](entry))}
        _expect(history, id)
    log.entries = {each: kept for each, kept in before.items() if each != id}
    _expect(history, id)
    if entry.before or entry.after:  # emptied, with the mark of another erasure or of none
        runs = [each.id for each in before.values() if each.action == "forget" and each.id != id]
        for run in [*runs[:1], new_id()]:
            log.entries = before | {id: _emptied(entry, run, whole=True)}
            _expect(history, id)
    log.entries = before


def _expect(history: History, id: str) -> None:
    problems = history.sealer.verify(history.file).problems
    assert any(each.entry == id for each in problems), (id, problems)


def test_changed_seals_are_found_and_new_ones_differ_from_the_file(tmp_path: Path) -> None:
    history = History(1, tmp_path / "seals.jsonl")
    for _ in range(3):
        history.write()
        history.clock.advance(minutes=5)
        history.seal()
    kept, log = list(history.log.kept), history.log
    first, second, third = kept
    inserted = (*second.entries, first.entries[0])
    changed = [
        [msgspec.structs.replace(first, entries=first.entries[::-1]), second, third],
        [first, msgspec.structs.replace(second, entries=inserted), third],
        [first, msgspec.structs.replace(second, entries=second.entries[1:]), third],
        [first, msgspec.structs.replace(second, at=first.at), third],
        [first, msgspec.structs.replace(third, number=2, previous=first.hash)],
        [second, third],
    ]
    for log.kept in changed:
        assert len(log.kept[0].entries) > 1
        assert history.sealer.verify("").problems, log.kept
    # All seals made anew over a changed log agree with it, but not with the file.
    id = first.entries[0].id
    log.entries[id] = msgspec.structs.replace(log.entries[id], reason="another")
    log.kept = []
    history.sealer.seal("")
    assert not history.sealer.verify("").problems
    assert history.sealer.verify(history.file).problems
    with pytest.raises(ConflictError):
        history.seal()


def test_a_merkle_path_leads_from_each_leaf_to_the_root() -> None:
    for size in range(1, 20):
        leaves = [f"{number:032x}" for number in range(size)]
        for place, leaf in enumerate(leaves):
            assert climb(leaf, path_of(leaves, place)) == root_of(leaves)
            assert size == 1 or climb(leaves[place - 1], path_of(leaves, place)) != root_of(leaves)


# -- stores ----------------------------------------------------------------------------------------


@pytest.fixture(params=["sqlite", SECANTUS_TOO])
def town(request: pytest.FixtureRequest, open_store: Callable[[str], Store]) -> Town:
    return make_town(open_store(request.param))


def _sealer(town: Town) -> Sealer:
    return Sealer(make_runtime(town.store))


def _change(store: Store, fields: dict[str, Any], entry_id: str) -> None:
    """Change a row or document of the log as stored; without fields, remove it."""
    connection = getattr(store, "connections", None)
    if connection is not None:
        with connection.writing() as db:
            for name, value in fields.items():
                db.execute(f"UPDATE audit SET {name} = ? WHERE id = ?", (value, entry_id))
            if not fields:
                db.execute("DELETE FROM audit WHERE id = ?", (entry_id,))
        return
    from bson import ObjectId

    raw = store.connection.database["memory2_audit"]  # type: ignore[attr-defined]
    if fields:
        raw.update_one({"_id": ObjectId(entry_id)}, {"$set": fields})
    else:
        raw.delete_one({"_id": ObjectId(entry_id)})


def _rows(store: Store) -> list[dict[str, Any]]:
    """Return the rows or documents of the log as stored, with their IDs as text."""
    connection = getattr(store, "connections", None)
    if connection is not None:
        with connection.reading() as db:
            cursor = db.execute("SELECT * FROM audit WHERE action <> 'void'")
            names = [each[0] for each in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor]
    raw = store.connection.database["memory2_audit"]  # type: ignore[attr-defined]
    return [{**each, "id": str(each["_id"])} for each in raw.find({"status": "done"})]


#: Not part of an entry: its number and the times of the document.
_FREE = {"id", "_id", "audit_no", "createdAt", "updatedAt"}


def _other(name: str, value: Any) -> Any:
    """Return another value of the same kind."""
    match value:
        case None:
            return {"content": "x"} if name in ("before", "after") else "5" * 24
        case int():
            return value + 1
        case str() if value.startswith("{"):
            first, *others = json.loads(value).items()
            return json.dumps(dict([(first[0], "other"), *others]))
        case str() | dict() | list():
            return "other"
    if hasattr(value, "generation_time"):
        return type(value)()
    return value + timedelta(seconds=1)


def test_every_field_of_every_entry_is_sealed(town: Town) -> None:
    """A change of any stored value, and a removed entry, are named."""
    store = town.store
    fact = make_fact(town.his(), "Bruno rows.", related_users=(town.bruno.id, town.zenobia.id))
    add_facts(store, fact)
    revise = revision(fact, "Bruno sails.")
    applied(store, revise)
    add_fact(store, town.everybody, "Eve listens.")
    run = forget(store, user="zenobia").id
    applied(store, RemoveFact.of(store.memory.fact(fact.id) or fact, NOW, "gone"))
    sealer = _sealer(town)
    sealer.seal()
    assert not sealer.verify().problems
    tried = 0
    for row in _rows(store):
        for name, value in row.items():
            other = _other(name, value)
            if name in _FREE:
                continue
            if isinstance(other, dict) and _is_sql(store):
                other = json.dumps(other)
            if name == "scope_id":
                other = next(each for each in _scope_ids(store) if each != value)
            _change(store, {name: other}, row["id"])
            named = {each.entry for each in sealer.verify().problems}
            assert row["id"] in named or (name == "erased" and run in named), (name, value)
            _change(store, {name: value}, row["id"])
            tried += 1
        assert not sealer.verify().problems, row
    _change(store, {}, row["id"])
    assert [each.entry for each in sealer.verify().problems] == [row["id"]]
    assert tried > 60


def _is_sql(store: Store) -> bool:
    return hasattr(store, "connections")


def _scope_ids(store: Any) -> list[int]:
    with store.connections.reading() as db:
        return [id for (id,) in db.execute("SELECT scope_id FROM scopes")]


@pytest.mark.slow
def test_erasures_backups_and_restores_raise_no_alarm(
    town: Town, open_store: Callable[[str], Store], tmp_path: Path
) -> None:
    from io import BytesIO

    from edenmem.engine.exchange.exporter import ExportRequest, export_records
    from edenmem.engine.exchange.files import Source
    from edenmem.engine.exchange.importer import import_records

    file = str(tmp_path / "seals.jsonl")
    sealer = _sealer(town)
    fill(town)
    sealer.seal(file)
    raw = BytesIO()
    export_records(town.store, raw, ExportRequest())
    report = forget(town.store, user="zenobia")
    assert report.proof is not None
    found = sealer.verify(file)
    assert (found.problems, found.unsealed, found.unwritten) == ((), 0, 1)
    sealer.seal(file)
    # The backup is restored in the other kind of store.
    other = open_store("sqlite")
    import_records(make_runtime(other), Source(raw, "backup"))
    restored = Sealer(make_runtime(other))
    assert not restored.verify("").problems
    (lost,) = restored.verify(file).problems
    assert "--accept-restore 1" in lost.what
    with pytest.raises(ConflictError):
        restored.seal(file)
    with pytest.raises(UsageError, match="in common is 1"):
        restored.accept_restore("2", file)
    restored.accept_restore("1", file)
    add_fact(other, town.his(), "Bruno dives.")
    restored.seal(file)
    assert not restored.verify(file).problems
    assert sealer.verify(file).problems  # the former store


def test_entries_of_unfinished_work_and_late_ones_are_named(town: Town) -> None:
    sealer = _sealer(town)
    add_fact(town.store, town.his(), "Bruno rows.")
    sealer.seal()
    assert (sealer.verify().unsealed, sealer.verify().late) == (0, ())
    old = msgspec.structs.replace(
        next(town.store.log.audit()), id=new_id(), at=NOW - timedelta(days=3)
    )
    town.store.erasure.add_entries([old])
    found = sealer.verify()
    assert (found.unsealed, found.late, found.problems) == (1, (old.id,), ())


def test_two_at_once_seal_each_entry_once(town: Town) -> None:
    """Another process that seals meanwhile takes the number."""
    add_fact(town.store, town.his(), "Bruno rows.")
    add, tried = town.store.log.add_seal, []

    class Slow:
        def __getattr__(self, name: str) -> Any:
            return getattr(town.store.log, name)

        def add_seal(self, seal: Seal) -> bool:
            if not tried:
                tried.append(_sealer(town).seal())
            return add(seal)

    sealer = _sealer(town)
    sealer._log = Slow()  # type: ignore[assignment]
    add_fact(town.store, town.his(), "Bruno swims.")
    assert sealer.seal().entries == 0
    sealed = [each.id for seal in town.store.log.seals() for each in seal.entries]
    assert len(sealed) == len({*sealed}) == 2
    assert not sealer.verify().problems


def test_a_changed_file_of_seals_is_refused(town: Town, tmp_path: Path) -> None:
    file = tmp_path / "seals.jsonl"
    sealer = _sealer(town)
    for text in ("Bruno rows.", "Bruno swims."):
        add_fact(town.store, town.his(), text)
        sealer.seal(str(file))
    assert file.stat().st_mode & 0o777 == 0o600
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines) + b'{"type":"se')  # a killed process
    sealer.seal(str(file))
    assert file.read_bytes().startswith(b"".join(lines))
    at_once = [SealFile(str(file)), SealFile(str(file))]
    add_fact(town.store, town.his(), "Bruno dives.")
    sealer.seal("")
    headers = [header_of(each) for each in town.store.log.seals()]
    for one in at_once:
        one.append(headers[2:])
    assert SealFile(str(file)).seals == headers
    for broken in (
        lines[1:],
        [lines[0].replace(b'"entries":1', b'"entries":2'), lines[1]],
        [b"x\n"],
    ):
        file.write_bytes(b"".join(broken))
        with pytest.raises(InputError, match=r"jsonl:1: "):
            SealFile(str(file))
