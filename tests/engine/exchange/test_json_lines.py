"""Export and import of JSON Lines: lossless, checked first, never overwriting."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edenmem.engine.erasure.passages import walk_passages
from edenmem.engine.erasure.reports import MentionDecision
from edenmem.engine.exchange import importer as restoring
from edenmem.engine.exchange import records as lines
from edenmem.engine.exchange.exporter import ExportReport, ExportRequest, export_records
from edenmem.engine.exchange.files import Source, open_for_writing
from edenmem.engine.exchange.importer import RestoreReport, import_records
from edenmem.engine.exchange.records import Parser
from edenmem.errors import ConflictError, InputError, UsageError
from edenmem.models.backup import RecordKind
from edenmem.models.memory import Fact, content_hash
from edenmem.models.scope import Scope, ScopeKind
from edenmem.models.search import FactFilter
from edenmem.settings.schema import Settings
from edenmem.store.protocol.store import Store
from edenmem.store.sqlite import SqliteStore
from tests.store.contract.test_backup import fill
from tests.support.builders import NOW, make_agent, make_fact, revision, writing
from tests.support.embedder import FakeEmbedder
from tests.support.forgetting import fill as fill_town
from tests.support.forgetting import forget, make_town, plan_of
from tests.support.leak import EARLIER, SECRET, make_leak
from tests.support.memory import add_fact, add_reflection, applied
from tests.support.runtime import make_runtime
from tests.support.stores import SECANTUS_TOO
from tests.support.vectors import count_models

pytestmark = pytest.mark.slow

OpenStore = Callable[[str], Store]


def clock() -> Any:
    return NOW


def exported(store: Store, **request: Any) -> bytes:
    """Return the bytes of an export."""
    file = io.BytesIO()
    write(store, file, **request)
    return file.getvalue()


def write(store: Store, file: io.BytesIO, **request: Any) -> ExportReport:
    return export_records(store, file, ExportRequest(**request), clock=clock)


def imported(store: Store, data: bytes | str, **options: Any) -> RestoreReport:
    """Return the report of an import."""
    raw = data.encode() if isinstance(data, str) else data
    runtime = make_runtime(store, clock=clock)
    return import_records(runtime, Source(io.BytesIO(raw), "test"), **options)


def body(data: bytes) -> bytes:
    """Return a file without its header."""
    return data.split(b"\n", 1)[1]


def line(**fields: Any) -> str:
    return json.dumps({"type": "fact", "agent": "eve", "content": "Tea is hot.", **fields}) + "\n"


def facts(store: Store) -> list[Fact]:
    (eve,) = store.host.agents()
    (anna,) = store.host.users()
    scopes = (Scope.agent(eve.id), Scope.user(eve.id, anna.id))
    return list(store.memory.facts(FactFilter(scopes=scopes), with_vectors=True))


# -- backups -------------------------------------------------------------------------------------


def test_a_backup_is_identical_after_a_round_trip(open_store: OpenStore) -> None:
    """Known failure 48: a dump had no IDs and vectors and could not be read back."""
    one, two, three = open_store("sqlite"), open_store("secantus"), open_store("sqlite")
    fill(one)
    first = exported(one)
    assert imported(two, first).total("refused") == 0
    second = exported(two)
    imported(three, second)
    assert body(first) == body(second) == body(exported(three))
    assert b'"embedding":"' in first


def test_a_backup_restores_texts_of_any_length(open_store: OpenStore) -> None:
    """Such texts exist after a migration, which keeps v1's texts whole."""
    one, two = open_store("sqlite"), open_store("sqlite")
    eve = make_agent("eve")
    one.host.add_agent(eve)
    scope, text = Scope.agent(eve.id), "Tea. " * 300_000
    long = writing(scope, text, word_limit=1_200)
    applied(one, long)
    assert imported(two, exported(one)).total("refused") == 0
    assert two.memory.consolidations([scope])[scope].consolidated_content == text
    with pytest.raises(InputError, match="characters"):
        imported(two, line(scope="agent", content=text), allow_long=True)


def test_importing_again_changes_nothing(open_store: OpenStore) -> None:
    one, two = open_store("sqlite"), open_store("sqlite")
    fill(one)
    data = exported(one)
    dry = imported(two, data, dry_run=True)
    assert exported(two).count(b"\n") == 2
    done = imported(two, data)
    assert dry.counts == done.counts
    assert done.total("same") == 0
    again = imported(two, data)
    assert again.total("same") == done.total("added")
    assert (again.total("added"), again.run_id, again.differing) == (0, None, 0)


def test_the_next_import_completes_a_killed_one(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = open_store("sqlite"), open_store("sqlite")
    fill(one)
    data = exported(one)
    monkeypatch.setattr(restoring, "_BATCH", 4)

    def die(step: str, done: int, total: int) -> None:
        if step == "storing" and done > 30:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        imported(two, data, progress=die)
    assert two.database.info().counts["policies"] > 0
    imported(two, data)
    assert body(exported(two)) == body(data)


@pytest.mark.parametrize(
    ("cut", "failed"),
    [
        (lambda whole: b"\n".join(whole.split(b"\n")[:50]) + b"\n", 0),
        (lambda whole: whole[:-200], 1),  # within a line
        (lambda whole: gzip.compress(whole, mtime=0)[:-400], 0),
    ],
    ids=["between lines", "within a line", "compressed"],
)
def test_a_truncated_file_is_rejected(
    open_store: OpenStore, cut: Callable[[bytes], bytes], failed: int
) -> None:
    one, two = open_store("sqlite"), open_store("sqlite")
    fill(one)
    raw = cut(exported(one))
    with pytest.raises(InputError, match=r"line \d+: ") as caught:
        imported(two, raw)
    assert "--skip-bad" in (caught.value.hint or "")
    if raw.endswith(b"\n"):
        assert caught.value.line == 51
    assert two.database.info().counts["agents"] == 0
    report = imported(two, raw, skip_bad=True)
    assert report.damage.startswith("test:")
    assert (report.failed, report.total("added") > 10) == (failed, True)


def test_an_altered_file_is_rejected_with_the_lines(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "STEP", 10)
    one, two = open_store("sqlite"), open_store("sqlite")
    fill(one)
    rows = exported(one).split(b"\n")
    assert rows[11].startswith(b'{"type":"checkpoint","records":10')
    rows[20] = rows[20].replace(b"thought", b"deceit").replace(b"Two.", b"Six.")
    with pytest.raises(InputError, match="wrong checksum of lines 13 to 22"):
        imported(two, b"\n".join(rows))
    assert two.database.info().counts["agents"] == 0


def test_a_selection_can_be_restored_alone(open_store: OpenStore) -> None:
    one, two = open_store("sqlite"), open_store("sqlite")
    scopes = fill(one)
    other = make_agent("adam")
    one.host.add_agent(other)
    add_fact(one, Scope.agent(other.id), "Not hers.")
    data = exported(one, agent_ids=(scopes["agent"].agent_id,))
    assert b"Not hers." not in data
    imported(two, data)
    assert body(exported(two)) == body(data)
    user = exported(one, user_ids=(scopes["user"].owner,))
    rows = [json.loads(row) for row in user.splitlines()]
    assert {row["scope"] for row in rows if row["type"] == "fact"} == {"user"}
    of_log = [row["scope"]["kind"] for row in rows if row["type"] in ("history", "audit")]
    assert set(of_log) == {"user"}
    assert "formation" not in {row["type"] for row in rows}
    with pytest.raises(UsageError, match="--type formation"):
        exported(one, scopes=(ScopeKind.USER,), types=(RecordKind.FORMATION,))


def test_a_newer_format_is_rejected(sqlite_store: Store) -> None:
    with pytest.raises(InputError, match="file format: 3"):
        imported(sqlite_store, '{"type": "header", "format": 3}\n')


# -- handwritten lines ---------------------------------------------------------------------------


def test_a_minimal_line_becomes_an_audited_change(town: Store) -> None:
    bare = line(scope="user", user="anna", content="Anna likes tea.")
    report = imported(town, bare)
    assert report.counts == {"fact": {"added": 1}}
    (fact,) = facts(town)
    assert (fact.scope, fact.content, fact.version, fact.formed_at) == (
        "user",
        "Anna likes tea.",
        1,
        NOW,
    )
    assert fact.hash == content_hash("Anna likes tea.")
    (entry,) = town.log.audit()
    assert (entry.action, entry.actor.run_id, entry.reason) == (
        "add_fact",
        report.run_id,
        "imported",
    )
    assert imported(town, bare).counts == {"fact": {"same": 1}}


def test_a_line_sets_the_fields_of_a_fact(town: Store) -> None:
    fields = {
        "scope": "agent",
        "key": "k",
        "tags": ["home"],
        "metadata": {"by": "mem0"},
        "expires_at": "2099-01-01T00:00:00Z",
        "value": {"n": 1},
    }
    assert imported(town, line(**fields)).counts == {"fact": {"added": 1}}
    changed = line(**{**fields, "content": "Tea is cold.", "tags": ["kitchen"]})
    assert imported(town, changed).differing == 1, "the key names the same fact"
    assert imported(town, changed, on_conflict="replace").counts == {"fact": {"replaced": 1}}
    (fact,) = facts(town)
    assert (fact.content, fact.key, fact.tags) == ("Tea is cold.", "k", ("kitchen",))
    assert (fact.metadata, fact.value) == ({"by": "mem0"}, {"n": 1})
    assert imported(town, line(scope="agent", value={"n": "x" * 20_000}), skip_bad=True).failed == 1


def test_a_file_may_add_the_owners_its_lines_name(sqlite_store: Store) -> None:
    whole = (
        '{"type": "agent", "username": "eve"}\n{"type": "user", "username": "anna"}\n'
        + line(scope="user", user="anna")
        + '{"type": "reflection", "agent": "eve", "scope": "agent", "content": "They like tea."}\n'
        + '{"type": "consolidation", "agent": "eve", "scope": "agent",'
        ' "consolidated_content": "VERSION: 9\\nTea.", "version": 3}\n'
        + '{"type": "policy", "agent": "eve", "scope": "shard", "shard": "lore"}\n'
        + line(scope="shard", shard="lore", embedding=[1, 0.5], embedding_model="m")
    )
    dry = imported(sqlite_store, whole, dry_run=True)
    assert (dry.total("added"), dry.failed) == (7, 0)
    assert imported(sqlite_store, whole).total("added") == 7
    (eve,) = sqlite_store.host.agents()
    scope = Scope.agent(eve.id)
    assert [one.content for one in sqlite_store.memory.pending(scope)] == ["They like tea."]
    text = sqlite_store.memory.consolidations([scope])[scope]
    assert (text.consolidated_content, text.version) == ("Tea.", 3)
    assert count_models(sqlite_store) == {"": 1, "m": 1}
    assert imported(sqlite_store, whole).total("same") == 7


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"scope": "user"}, "needs a user"),
        ({"scope": "user", "user": "nobody"}, "unknown user: 'nobody'"),
        ({"scope": "agent", "user": "anna"}, "the agent scope has no user_id"),
        ({"scope": "session", "session_id": "c" * 24}, "a session scope has no facts"),
        ({"scope": "galaxy"}, "unknown scope: 'galaxy'"),
        ({"scope": "agent", "contnet": "x"}, "contnet is not a known field of 'fact'"),
        ({"scope": "agent", "content": " \x00 "}, "the text is empty"),
        ({"scope": "agent", "content": "word " * 31}, "31 words, the limit is 30"),
        ({"scope": "agent", "id": "../../etc"}, "expected 24 hex digits"),
        ({"scope": "agent", "version": 0}, "at least 1"),
        ({"scope": "agent", "formed_at": "yesterday"}, "formed_at must be a time in ISO 8601"),
        ({"scope": "agent", "formed_at": "0001-01-01T00:00:00+23:59"}, "out of range"),
        (
            {"scope": "agent", "embedding": ["x"], "embedding_model": "m"},
            "must be a list of numbers",
        ),
        ({"scope": "agent", "source": 7}, "source must be text"),
        ({"scope": "agent", "created_at": "2026-01-01", "formed_at": "2026-01-01"}, "are given"),
        ({"scope": "shard", "shard": "a\x1b"}, "shard is empty, too long"),
        ({"type": "spell"}, "unknown type: 'spell'"),
        ({"type": None}, "line 2: type is missing"),
        ({"scope": "agent", "content": None}, "content is missing"),
        ({"scope": "agent", "content": 7}, "content must be text"),
    ],
)
def test_invalid_lines_are_listed_and_stop_the_import_unless_skipped(
    town: Store, wrong: dict[str, Any], reason: str
) -> None:
    """Known failure 9: everything after a bad line was dropped silently."""
    data = line(scope="agent", content="Before.") + line(**wrong) + line(scope="agent")
    with pytest.raises(InputError) as caught:
        imported(town, data)
    assert f"line 2: {caught.value.message.split('line 2: ')[1]}"
    assert reason in caught.value.message
    assert facts(town) == []
    report = imported(town, data, skip_bad=True)
    assert [problem.line for problem in report.problems] == [2]
    assert {fact.content for fact in facts(town)} == {"Before.", "Tea is hot."}


def test_a_policy_with_a_limit_of_nothing_is_rejected(town: Store) -> None:
    policy = {"type": "policy", "agent": "eve", "scope": "agent", "word_limit": 0}
    with pytest.raises(InputError, match="word_limit must be at least 1"):
        imported(town, json.dumps(policy))


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"embedding": [0.0, 0.0, 0.0], "embedding_model": "m"}, "zero vectors"),
        ({"embedding": [1e39, 1.0, 0.0], "embedding_model": "m"}, "not finite"),
        ({"embedding": [1.0, 0.0], "embedding_model": "m"}, "has 3 numbers"),
        ({"embedding": [1.0, 0.0, 0.0]}, "embedding_model is missing"),
        ({"embedding": [1.0, 0.0, 0.0], "embedding_model": "other"}, "configured model is m"),
    ],
)
def test_an_unusable_vector_is_left_out_and_its_fact_imported(
    town: Store, given: dict[str, Any], reason: str
) -> None:
    good = {"embedding": [0.0, 1.0, 0.0], "embedding_model": "m"}
    data = line(scope="agent", **given) + line(scope="agent", content="Other.", **good)
    embedder = FakeEmbedder(model="m", dimensions=3)
    runtime = make_runtime(town, clock=clock, embedder=embedder)
    report = import_records(runtime, Source(io.BytesIO(data.encode()), "test"))
    assert (report.total("added"), report.without_vector, report.failed) == (2, 1, 0)
    ((why, count),) = report.vectors_left_out.items()
    assert (reason in why, count) == (True, 1)
    assert count_models(town) == {"": 1, "m": 1}


def test_a_line_may_have_a_time_and_an_origin(town: Store) -> None:
    given = line(scope="agent", created_at="2024-05-01T10:00:00+02:00", source="notes of 2024\n")
    report = imported(town, given)
    (fact,) = facts(town)
    assert fact.formed_at.isoformat() == "2024-05-01T08:00:00+00:00"
    (entry,) = town.log.audit()
    assert (entry.reason, entry.actor.run_id) == ("imported from notes of 2024", report.run_id)
    assert imported(town, given).counts == {"fact": {"same": 1}}


def test_memory_of_unknown_owners_is_rejected(town: Store) -> None:
    stranger = line(scope="agent", agent_id="d" * 24).replace('"agent": "eve", ', "")
    report = imported(town, stranger)
    assert report.failed == 1
    assert "edenmem agent add" in report.problems[0].reason
    assert town.database.info().counts["facts"] == 0


# -- conflicts -----------------------------------------------------------------------------------


def test_differing_records_are_kept_or_replaced(town: Store) -> None:
    imported(town, line(scope="agent", id="f" * 24))
    (fact,) = facts(town)
    other = line(scope="agent", id="f" * 24, content="Tea is cold.")
    kept = imported(town, other)
    assert (kept.differing, kept.conflicts[0].line, kept.conflicts[0].id) == (1, 1, "f" * 24)
    assert "stored with different content" in kept.conflicts[0].detail
    assert facts(town) == [fact]
    replaced = imported(town, other, on_conflict="replace")
    assert replaced.counts == {"fact": {"replaced": 1}}
    assert [(e.version, e.content) for e in town.history.versions("fact", fact.id)] == [
        (1, "Tea is hot."),
        (2, "Tea is cold."),
    ]
    (newest, *_) = town.log.audit(target_id=fact.id)
    assert (newest.action, newest.actor.run_id) == ("revise_fact", replaced.run_id)
    assert imported(town, other, on_conflict="replace").counts == {"fact": {"same": 1}}


def test_later_memory_survives_a_restored_backup(town: Store) -> None:
    imported(town, line(scope="agent", id="f" * 24))
    backup = exported(town)
    (fact,) = facts(town)
    applied(town, revision(fact, "By hand."))
    report = imported(town, backup)
    assert report.differing == 1
    assert [fact.content for fact in facts(town)] == ["By hand."]
    assert [e.version for e in town.history.versions("fact", fact.id)] == [1, 2]


# -- files ---------------------------------------------------------------------------------------


def test_a_file_is_written_atomically_and_privately(tmp_path: Path) -> None:
    target = tmp_path / "b.jsonl"

    def die() -> None:
        with open_for_writing(str(target), compress=False, force=False) as file:
            file.write(b"half")
            raise KeyError

    with pytest.raises(KeyError):
        die()
    assert list(tmp_path.iterdir()) == []
    with open_for_writing(str(target), compress=False, force=False) as file:
        file.write(b"whole")
    assert target.stat().st_mode & 0o777 == 0o600
    with pytest.raises(ConflictError), open_for_writing(str(target), compress=False, force=False):
        pass
    with open_for_writing(str(target), compress=True, force=True) as file:
        file.write(b"other\n")
    with Source.open_file(str(target)) as source:
        assert list(source.lines()) == [(1, b"other\n")]


# -- anything ------------------------------------------------------------------------------------

texts = st.text(min_size=1, max_size=40).filter(lambda text: text.strip("\x00 \n\t\x0b\x0c\r"))


@settings(max_examples=40)
@given(
    content=texts,
    previous=st.none() | texts,
    private=st.booleans(),
    version=st.integers(1, 9),
    vector=st.none() | st.binary(min_size=4, max_size=16).filter(lambda raw: len(raw) % 4 == 0),
)
def test_any_fact_survives_a_round_trip(
    sqlite_store: Store,
    content: str,
    previous: str | None,
    private: bool,
    version: int,
    vector: bytes | None,
) -> None:
    fact = make_fact(
        Scope.user("a" * 24, "b" * 24),
        content,
        previous_content=previous,
        private=private,
        version=version,
        embedding=vector,
        embedding_model="m" if vector else None,
        updated_at=NOW,
    )
    data = msgspec.json.decode(lines.encode(RecordKind.FACT, fact))
    assert data.pop("type") == "fact"
    parser = Parser(sqlite_store, Settings(), now=NOW, whole=True)
    assert parser.parse(RecordKind.FACT, data) == fact


@settings(max_examples=60)
@given(
    raw=st.binary(max_size=80)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["type", "scope", "agent", "user", "content", "id", "embedding", "at"]
                ),
                inner,
                max_size=6,
            )
        ),
        max_leaves=8,
    ).map(lambda value: json.dumps(value).encode())
)
def test_no_line_can_break_an_import(sqlite_store: Store, raw: bytes) -> None:
    with contextlib.suppress(InputError):
        imported(sqlite_store, raw, skip_bad=True, dry_run=True)


def test_an_endlessly_nested_line_is_invalid(sqlite_store: Store) -> None:
    with pytest.raises(InputError, match="nested too deep"):
        imported(sqlite_store, b"[" * 100_000)


# -- erased users ----------------------------------------------------------------------------------


def forget_user(store: Store) -> tuple[bytes, list[str]]:
    """Erase a user; return an older backup, and what must not come back."""
    said = fill_town(make_town(store))
    older = exported(store)
    assert forget(store, user="zenobia", messages=isinstance(store, SqliteStore)).complete
    return older, said


def forget_fact(store: Store) -> tuple[bytes, list[str]]:
    leak = make_leak(store)
    older = exported(store)
    assert forget(store, facts=[leak.fact.id]).complete
    return older, [SECRET, EARLIER]


def forget_mentions(store: Store) -> tuple[bytes, list[str]]:
    """Erase a secret with the two more places that have it."""
    leak = make_leak(store)
    add_fact(store, leak.town.group, f"Note: {SECRET}")
    add_reflection(store, leak.town.everybody, f"Somebody said: {SECRET}")
    older = exported(store)
    plan = plan_of(store, facts=[leak.fact.id])
    decisions = [MentionDecision(mention=one, treatment="remove") for one in plan.mentions]
    assert len(decisions) == 2
    assert forget(store, decisions, plan=plan).complete
    return older, [SECRET]


@pytest.mark.parametrize("kind", ["sqlite", SECANTUS_TOO])
@pytest.mark.parametrize("erase", [forget_user, forget_fact, forget_mentions])
def test_an_older_backup_does_not_restore_what_was_erased(
    open_store: OpenStore, kind: str, erase: Callable[[Store], tuple[bytes, list[str]]]
) -> None:
    """Known failure 49: copies survived an erasure, such as a restored backup."""
    store = open_store(kind)
    older, gone = erase(store)
    left = body(exported(store))
    for on_conflict in ("keep", "replace"):
        report = imported(store, older, on_conflict=on_conflict)
        assert report.failed == report.total("refused") > 0
        assert "it or its owner was erased on" in report.problems[0].reason
        assert report.total("added") + report.total("replaced") == 0
        assert body(exported(store)) == left
    texts = "".join(passage.text for passage in walk_passages(store))
    assert [text for text in gone if text in texts] == []


@pytest.mark.parametrize("keep", [0, 40])
def test_a_backup_with_a_damaged_header_restores_nothing_that_was_erased(
    open_store: OpenStore, keep: int
) -> None:
    """It counted as handwritten, and so as newer than the erasure."""
    store = open_store("sqlite")
    older, gone = forget_user(store)
    header, _, records = older.partition(b"\n")
    damaged = header[:keep] + b"\n" * (keep > 0) + records
    with pytest.raises(InputError, match="the header of the backup is damaged or missing"):
        imported(store, damaged)
    left = body(exported(store))
    report = imported(store, damaged, skip_bad=True)
    assert report.total("refused") > 0
    assert "it or its owner was erased on" in report.problems[-1].reason
    assert body(exported(store)) == left
    texts = "".join(passage.text for passage in walk_passages(store))
    assert [text for text in gone if text in texts] == []
    empty = open_store("sqlite")
    imported(empty, damaged, skip_bad=True)
    assert body(exported(empty)) == body(older)


def test_an_older_backup_does_not_restore_removed_source_messages(open_store: OpenStore) -> None:
    """With --messages they were removed, since agents read the secret in them."""
    store = open_store("sqlite")
    leak = make_leak(store)
    older = exported(store)
    assert forget(store, facts=[leak.fact.id], messages=True).complete
    left = body(exported(store))
    assert imported(store, older).counts["message"]["refused"] == len(leak.sources)
    assert body(exported(store)) == left


def test_a_backup_after_an_erasure_is_restored_fully(open_store: OpenStore) -> None:
    store = open_store("sqlite")
    town = make_town(store)
    assert forget(store, user="zenobia").complete
    add_fact(store, town.her(), "She is back.", formed_at=NOW + timedelta(hours=1))
    file = io.BytesIO()
    export_records(store, file, ExportRequest(), clock=lambda: NOW + timedelta(days=1))
    assert imported(store, file.getvalue()).failed == 0
