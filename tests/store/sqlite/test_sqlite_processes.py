"""Several processes at one file, and processes that die."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from edenmem.models.changes import RemoveFact
from edenmem.models.ids import derived_id
from edenmem.models.scope import Scope
from edenmem.models.search import FactFilter
from edenmem.store.sqlite import SqliteStore
from tests.support.builders import NOW, change_set, make_fact
from tests.support.memory import add_facts, facts_of
from tests.support.vectors import random_unit

pytestmark = pytest.mark.slow


AGENT = derived_id("agent")
SCOPE = Scope.agent(AGENT)

#: What every child begins with: ``path``, a store, and how to add facts.
PRELUDE = f"""
import os, signal, sys
from pathlib import Path
from edenmem.models.changes import Actor, AddFact, ChangeSet
from edenmem.models.ids import new_id, utc_now
from edenmem.models.memory import Fact, content_hash
from edenmem.models.scope import Scope, ScopeKind
from edenmem.store.sqlite import SqliteStore

store = SqliteStore(Path(sys.argv[1]))

def add(*contents, agent="{AGENT}"):
    now = utc_now()
    facts = [
        Fact(id=new_id(), scope=ScopeKind.AGENT, agent_id=agent, content=content,
             hash=content_hash(content), formed_at=now)
        for content in contents
    ]
    actor = Actor(name="child", host="test", command="test")
    changes = tuple(AddFact(fact=fact) for fact in facts)
    return store.changes.apply(ChangeSet(actor=actor, at=now, changes=changes))
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


@pytest.fixture
def opened(path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(path)
    store.database.initialize()
    yield store
    store.database.close()


def child(path: Path, script: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", PRELUDE + script, str(path), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str], code: int = 0) -> str:
    out, err = process.communicate(timeout=120)
    assert process.returncode == code, err
    return out


def test_many_processes_write_one_file(opened: SqliteStore, path: Path) -> None:
    script = """
for number in range(25):
    (mine, shared) = add(f"{sys.argv[2]} {number}", f"shared {number}")
    assert mine.status == "applied", mine
    assert shared.ok, shared
"""
    children = [child(path, script, name) for name in ("one", "two", "three", "four")]
    for process in children:
        finish(process)
    contents = sorted(fact.content for fact in facts_of(opened, SCOPE))
    expected = [f"{name} {n}" for name in ("one", "two", "three", "four") for n in range(25)]
    assert contents == sorted([*expected, *(f"shared {n}" for n in range(25))])
    assert len(list(opened.log.audit())) == 125
    (summary,) = opened.memory.scopes()
    assert summary.facts == 125
    found = opened.search.text_candidates(FactFilter(scopes=(SCOPE,)), ["shared"], limit=100)
    assert len(found[0]) == 25


def test_a_process_that_ends_takes_no_log_away(opened: SqliteStore, path: Path) -> None:
    """A second connection looked at the file, and closing it again took away all locks that this
    process had on it: the next process that ended thought it was the last, and deleted the log."""
    with opened.connections.reading(), opened.connections.reading():
        pass
    finish(child(path, 'add("theirs"); store.database.close()'))
    add_facts(opened, make_fact(SCOPE, "mine"))
    look = f"""
from edenmem.models.search import FactFilter
found = store.memory.facts(FactFilter(scopes=(Scope.agent("{AGENT}"),)))
print(*sorted(fact.content for fact in found))
"""
    assert finish(child(path, look)) == "mine theirs\n"


def test_many_processes_make_one_file(path: Path) -> None:
    script = """
store.database.initialize()
assert add(sys.argv[2])[0].status == "applied"
store.database.close()
"""
    names = [str(number) for number in range(6)]
    for process in [child(path, script, name) for name in names]:
        finish(process)
    store = SqliteStore(path)
    assert sorted(fact.content for fact in facts_of(store, SCOPE)) == names
    store.database.close()


def test_a_process_that_dies_inside_a_set_leaves_nothing_of_it(
    opened: SqliteStore, path: Path
) -> None:
    """Known failure 16: a crash between two writes left things half done for ever."""
    script = """
from edenmem.store.sqlite.memory import log

def die(*args, **kwargs):
    os._exit(9)

add("before")
log.add_entries = die  # when the fact, its text and its counts are written
add("during", "never")
"""
    finish(child(path, script), code=9)
    assert [fact.content for fact in facts_of(opened, SCOPE)] == ["before"]
    assert opened.search.text_candidates(FactFilter(scopes=(SCOPE,)), ["during"], limit=9) == [[]]
    assert [summary.facts for summary in opened.memory.scopes()] == [1]
    add_facts(opened, make_fact(SCOPE, "during"))


def test_what_was_reported_as_written_survives_a_kill(opened: SqliteStore, path: Path) -> None:
    script = """
assert add("written")[0].status == "applied"
print("done", flush=True)
signal.pause()
"""
    process = child(path, script)
    assert process.stdout is not None
    assert process.stdout.readline() == "done\n"
    process.send_signal(signal.SIGKILL)
    finish(process, code=-signal.SIGKILL)
    assert [fact.content for fact in facts_of(opened, SCOPE)] == ["written"]


def test_a_fork_and_its_parent_go_on_side_by_side(opened: SqliteStore, path: Path) -> None:
    script = """
add("before")
child = os.fork()
name = "parent" if child else "child"
for number in range(20):
    assert add(f"{name} {number}")[0].status == "applied"
store.database.close()
if child:
    assert os.waitpid(child, 0)[1] == 0
else:
    os._exit(0)
"""
    finish(child(path, script))
    contents = {fact.content for fact in facts_of(opened, SCOPE)}
    assert contents == {"before"} | {f"{w} {n}" for w in ("parent", "child") for n in range(20)}


def test_a_fork_while_the_store_is_in_use_is_refused_in_the_child(
    opened: SqliteStore, path: Path
) -> None:
    """SQLite's idea of its locks cannot be mended in the child; silence would lose writes."""
    script = """
from edenmem.errors import StoreError
with store.connections.reading():
    child = os.fork()
if child:
    assert os.waitpid(child, 0)[1] == 0
    assert add("parent")[0].status == "applied"
else:
    try:
        add("child")
    except StoreError as error:
        assert "was in use when this process was forked" in str(error)
        os._exit(0)
    os._exit(1)
"""
    finish(child(path, script))
    assert [fact.content for fact in facts_of(opened, SCOPE)] == ["parent"]


def test_a_search_sees_what_another_process_wrote(opened: SqliteStore, path: Path) -> None:
    """The codes that a process keeps in memory are of one revision of the scope."""
    vector = random_unit(1, 64)
    mine = FactFilter(scopes=(SCOPE,))
    first = make_fact(SCOPE, "first", embedding=vector, embedding_model="m")
    add_facts(opened, first)

    def nearest() -> list[str]:
        (found,) = opened.search.semantic_candidates(mine, [vector], model="m", limit=5)
        return [candidate.fact_id for candidate in found]

    assert nearest() == [first.id]
    other = SqliteStore(path)
    second = make_fact(SCOPE, "second", embedding=vector, embedding_model="m")
    add_facts(other, second)
    other.database.close()
    assert nearest() == [second.id, first.id]  # of equal scores the newest comes first
    script = "store.changes.apply(__import__('msgspec').json.decode(sys.argv[2], type=ChangeSet))"
    removal = RemoveFact(scope=SCOPE, fact_id=first.id, expected_version=1, at=NOW)
    finish(child(path, script, msgspec.json.encode(change_set(removal)).decode()))
    assert nearest() == [second.id]
