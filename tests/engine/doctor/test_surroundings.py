"""Errors of the database, its files, indexes and models are reported, and stop no other check."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Literal

import pytest

from edenmem.engine.doctor.report import CheckResult, DoctorReport, State, select_checks
from edenmem.engine.doctor.session import open_session
from edenmem.engine.embeddings.status import is_not_english, language_notice
from edenmem.errors import ProviderMisconfigured, ProviderTimeout, StoreError
from edenmem.models.backup import RecordKind, Selection
from edenmem.models.indexes import IndexWish
from edenmem.models.scope import Scope
from edenmem.settings.schema import EmbeddingSettings, LLMSettings, Settings, StoreSettings
from edenmem.store.mongo import MongoStore
from edenmem.store.mongo.core import collection
from edenmem.store.mongo.core.collections import TEXT_INDEX, VECTOR_INDEX
from edenmem.store.protocol.store import Store
from edenmem.store.sqlite import SqliteStore
from tests.engine.doctor.conftest import examine, found
from tests.support.atlas_server import AtlasServer
from tests.support.builders import make_agent, make_fact, make_user, some
from tests.support.damage import (
    an_agent_is_missing,
    bytes_that_are_no_text,
    vectors_are_zeros_or_lost,
)
from tests.support.embedder import FakeEmbedder
from tests.support.memory import add_fact, add_facts
from tests.support.runtime import make_runtime
from tests.support.schema_steps import add_steps
from tests.support.stores import secantus_store
from tests.support.ward import EMBEDDER, SqliteWard, Ward, admit


def check(report: DoctorReport, name: str) -> CheckResult:
    return next(each for each in report.checks if each.name == name)


def visit(store: Store, *names: str, settings: Settings | None = None) -> DoctorReport:
    settings = settings or Settings(embedding=EmbeddingSettings(provider="none"))
    online = "providers" in names
    with open_session(make_runtime(store, settings), select_checks(names), online=online) as opened:
        return opened.examine()


# -- the database ------------------------------------------------------------------------------


def test_a_missing_database(tmp_path: Path) -> None:
    report = visit(SqliteStore(tmp_path / "none.db"))
    assert report.reachable
    assert not report.is_well
    assert check(report, "connection").state is State.PROBLEM
    assert check(report, "hashes").state is State.SKIPPED
    assert not (tmp_path / "none.db").exists()


def test_an_unreachable_database_is_always_reported() -> None:
    """Known failure 29: an outage looks like "no memories"."""
    settings = StoreSettings(connect_timeout_seconds=0.2)
    store = MongoStore("mongodb://127.0.0.1:9/none", settings)
    with closing(store.database):
        report = visit(store, "blank")
    assert not report.reachable
    assert check(report, "connection").state is State.PROBLEM
    assert "cannot reach" in check(report, "connection").remark
    assert check(report, "blank").state is State.SKIPPED


def test_an_outdated_schema_skips_other_checks(
    on_sqlite: SqliteWard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_sqlite.store.database.close()
    folder = tmp_path / "steps"
    folder.mkdir()
    first, _ = add_steps(monkeypatch, folder)
    report = visit(on_sqlite.store)
    assert report.reachable
    found_ = check(report, "schema")
    assert found_.state is State.PROBLEM
    assert found_.examples[0].target_id == first
    assert check(report, "buffers").state is State.SKIPPED


def test_damaged_pages_do_not_stop_other_checks(on_sqlite: SqliteWard) -> None:
    on_sqlite.store.database.close()
    with sqlite3.connect(on_sqlite.path) as raw:
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (page,) = raw.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name = 'reflections'"
        ).fetchone()
        (size,) = raw.execute("PRAGMA page_size").fetchone()
    raw.close()
    with on_sqlite.path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)
    report = examine(on_sqlite)
    assert check(report, "file").state is State.PROBLEM
    assert "check failed" in check(report, "links").remark
    assert check(report, "hashes").state is State.OK  # of facts, which are whole
    assert check(report, "failed").state is State.OK


def test_an_aborted_walk_is_a_problem_of_its_checks_only(
    on_sqlite: SqliteWard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Known failure 29: a failed check is not healthy."""
    whole = on_sqlite.store.walk.documents

    def documents(
        kinds: Sequence[RecordKind], selection: Selection, *, with_vectors: bool
    ) -> object:
        if RecordKind.REFLECTION in kinds:
            raise StoreError("the connection broke off")
        return whole(kinds, selection, with_vectors=with_vectors)

    monkeypatch.setattr(on_sqlite.store.walk, "documents", documents)
    report = examine(on_sqlite)
    assert check(report, "links").state is State.PROBLEM
    assert "broke off" in check(report, "links").remark
    assert check(report, "hashes").state is State.OK


def test_unexpected_errors_are_reported_and_stop_nothing(
    on_sqlite: SqliteWard, monkeypatch: pytest.MonkeyPatch
) -> None:
    bytes_that_are_no_text(on_sqlite)
    monkeypatch.setattr(on_sqlite.store.vectors, "vector_counts", None)
    report = examine(on_sqlite)
    assert "check failed" in check(report, "vectors").remark
    assert check(report, "vectors").state is State.PROBLEM
    assert found(report)["readable"] == {on_sqlite.ids.lives}
    assert check(report, "hashes").state is State.OK


def test_files_readable_by_other_accounts(on_sqlite: SqliteWard, tmp_path: Path) -> None:
    on_sqlite.path.chmod(0o644)
    secret, open_ = tmp_path / "edenmem.toml", tmp_path / "other.toml"
    secret.write_text('[llm]\napi_key = "sk-1"\n')
    open_.write_text("[search]\ntop_k = 5\n")
    for file in (secret, open_):
        file.chmod(0o644)
    report = examine(on_sqlite, "permissions", files=[secret, open_, tmp_path / "gone.toml"])
    shown = found(report)["permissions"]
    assert {str(on_sqlite.path), str(secret)} <= shown
    assert not shown & {str(open_), str(tmp_path / "gone.toml")}
    assert "sk-1" not in str(report)


def test_only_the_selected_agent(ward: Ward) -> None:
    an_agent_is_missing(ward)
    assert found(examine(ward, agent_id=ward.ids.eve)) == {}
    assert found(examine(ward, agent_id=ward.ids.adam)) == {"owners": {f"agent:{ward.ids.adam}"}}


# -- search indexes on Atlas -------------------------------------------------------------------


@pytest.mark.slow
def test_search_indexes_of_a_cluster(atlas: AtlasServer) -> None:
    """Known failure 24: no code creates the index, and an unknown one answers with nothing."""
    wish = IndexWish(dimensions=EMBEDDER.dimensions, analyzer="lucene.english")
    with secantus_store(atlas.uri) as store:
        admit(store)
        missing = check(visit(store, "search-indexes"), "search-indexes")
        assert missing.state is State.PROBLEM
        assert {each.target_id for each in missing.examples} >= {VECTOR_INDEX, TEXT_INDEX}
        for name in (VECTOR_INDEX, TEXT_INDEX):
            store.indexes.create_index(name, wish)
        building = check(visit(store, "search-indexes"), "search-indexes")
        assert building.count
        while not all(state.queryable for state in store.indexes.list_indexes(wish)):
            pass  # each look is a step of the building
        assert check(visit(store, "search-indexes"), "search-indexes").state is State.OK


@pytest.mark.slow
def test_missing_search_commands_are_reported(open_store: Callable[[str], Store]) -> None:
    found_ = check(visit(open_store("secantus"), "search-indexes"), "search-indexes")
    assert found_.state is State.OK
    assert "no search commands" in found_.remark


def test_owners_that_are_missing_are_named_in_the_remedy(sqlite_store: Store) -> None:
    agent, user, other = "1" * 24, "a" * 24, "c" * 24
    sqlite_store.host.add_agent(make_agent("mira", id=agent))
    add_fact(sqlite_store, Scope.user(agent, user), "one")

    def remedy() -> str:
        return check(visit(sqlite_store, "owners"), "owners").remedy

    assert remedy() == f"edenmem user add NAME --id {user}, or edenmem forget --user {user}"
    add_fact(sqlite_store, Scope.user(agent, user), "two")
    add_fact(sqlite_store, Scope.agent(other), "three")
    assert remedy().count(user) == 2
    assert f"edenmem agent add NAME --id {other}" in remedy()
    sqlite_store.host.add_user(make_user("lena", id=user))
    assert remedy() == f"edenmem agent add NAME --id {other}"
    sqlite_store.host.add_agent(make_agent("carl", id=other))
    add_fact(sqlite_store, Scope.session(agent, "b" * 24), "four")
    add_fact(sqlite_store, Scope.group(agent, "the team"), "five")
    add_fact(sqlite_store, Scope.shard(agent, "notes"), "six")
    assert f"restore session {'b' * 24}" in remedy()
    assert f"edenmem forget --group 'the team' --agent {agent}" in remedy()
    assert f"edenmem scope policy --agent {agent} --shard notes" in remedy()
    for number in range(100):
        add_fact(sqlite_store, Scope.user(agent, f"{number:024x}"), f"text {number}")
    assert len(remedy()) < 600


# -- models ------------------------------------------------------------------------------------


def test_models_are_called_only_online(on_sqlite: SqliteWard) -> None:
    EMBEDDER.calls.clear()
    examine(on_sqlite)
    assert not EMBEDDER.calls
    known = check(
        visit(on_sqlite.store, settings=Settings(llm=LLMSettings(api_key="k"))), "providers"
    )
    assert (known.state, known.remedy) == (State.UNTESTED, "")
    assert known.remark == f"{EMBEDDER.model}, api.openai.com not called; --online calls them"
    replay = Settings(llm=LLMSettings(provider="replay", replay="answers.jsonl"))
    scripted = check(visit(on_sqlite.store, settings=replay), "providers").remark
    assert scripted.startswith(f"{EMBEDDER.model} not called; --online calls it; the scripted")
    alone = check(visit(on_sqlite.store, "providers"), "providers")
    assert alone.state is State.NOTE
    assert "no language model" in alone.examples[0].detail
    assert alone.meaning == "Formation and consolidation need a language model."
    assert alone.remedy.startswith("set OPENAI_API_KEY, or llm.base_url")
    assert alone.remark.endswith(" responds")
    EMBEDDER.failures.append(ProviderTimeout("the endpoint did not answer", hint="look"))
    down = check(visit(on_sqlite.store, "providers"), "providers")
    assert down.state is State.PROBLEM
    assert down.examples[0].target_id == "embedding"
    assert down.examples[0].detail == "the endpoint did not answer; look"


@pytest.mark.parametrize(("provider", "is_called"), [("local", True), ("openai", False)])
def test_only_a_local_model_embeds_a_sample_again(
    on_sqlite: SqliteWard, provider: Literal["local", "openai"], is_called: bool
) -> None:
    model = EmbeddingSettings(provider=provider, api_key="k", model="gateway/model")
    vectors_are_zeros_or_lost(on_sqlite)
    fact = some(on_sqlite.store.memory.fact(on_sqlite.ids.of_bruno))
    foreign = {fact.id: (fact.hash, EMBEDDER.vector("Sea salt on copper."))}
    on_sqlite.store.vectors.set_vectors(foreign, model=EMBEDDER.model)
    EMBEDDER.calls.clear()
    report = visit(on_sqlite.store, "vector-damage", settings=Settings(embedding=model))
    assert bool(EMBEDDER.calls) is is_called
    assert (fact.id in found(report)["vector-damage"]) is is_called
    assert check(report, "vector-damage").count == 3 + is_called


def test_misconfigured_models(
    on_sqlite: SqliteWard, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.undo()
    broken = Settings(
        embedding=EmbeddingSettings(provider="local", local_path=str(tmp_path / "none"))
    )
    report = visit(on_sqlite.store, settings=broken)
    for name in ("providers", "local-model"):
        assert check(report, name).state is State.PROBLEM, name
        assert "is not a folder" in check(report, name).examples[0].detail
    assert check(report, "hashes").state is State.OK


def test_a_modified_local_model(on_sqlite: SqliteWard, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(settings: Settings) -> bool:
        raise ProviderMisconfigured("model.onnx is not the file that edenmem knows")

    monkeypatch.setattr("edenmem.engine.doctor.surroundings.check_local_model", refuse)
    assert found(examine(on_sqlite, "local-model")) == {"local-model": {"local model"}}


def test_facts_in_another_language_with_an_english_model(
    on_sqlite: SqliteWard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Determined from a sample; only a note, since search by words works."""
    model = "all-MiniLM-L6-v2-int8"
    monkeypatch.setattr(
        "edenmem.engine.doctor.context.open_embedder", lambda settings: FakeEmbedder(model=model)
    )

    def remedy() -> str:
        return check(examine(on_sqlite, "vectors"), "vectors").remedy

    assert "multilingual" not in remedy(), "its facts are English"
    scope = Scope.agent("a" * 24)
    german = [f"Der Hund von Anna ist {years} Jahre alt und mag die Katze." for years in range(99)]
    facts = [make_fact(scope, text) for text in german]
    add_facts(on_sqlite.store, *facts)
    assert "--set embedding.local_model=multilingual-e5-small" in remedy()
    notice = language_notice(on_sqlite.store, model)
    assert notice.startswith("99 of ")
    assert f"but {model} knows only English" in notice
    for other in ("multilingual-e5-small-int4", "text-embedding-3-small", "another"):
        assert not language_notice(on_sqlite.store, other)


@pytest.mark.parametrize(
    ("text", "is_foreign"),
    [
        ("Anna has a dog.", False),
        ("Prefers tea.", False),
        ("Anna hat einen Hund und mag den Tee nicht.", True),
        ("Анна живёт в Лиссабоне.", True),
        ("安娜住在里斯本。", True),
        ("آنا تعيش في لشبونة.", True),
        ("", False),
    ],
)
def test_recognized_languages(text: str, is_foreign: bool) -> None:
    assert is_not_english(text) == is_foreign


@pytest.mark.slow
def test_an_unreachable_server_is_queried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every further query would wait for its own timeout."""
    translated: list[Exception] = []
    whole = collection._translate

    def counted(error: Exception, location: str) -> StoreError:
        translated.append(error)
        return whole(error, location)

    monkeypatch.setattr(collection, "_translate", counted)
    store = MongoStore("mongodb://127.0.0.1:1/eden", StoreSettings(connect_timeout_seconds=0.05))
    with closing(store.database):
        report = visit(store)
    assert (report.reachable, len(translated)) == (False, 1)
    assert check(report, "connection").state is State.PROBLEM
    assert check(report, "schema").state is check(report, "hashes").state is State.SKIPPED
