"""Eight processes at one memory: nothing is lost, nothing is there twice, nobody is lied to.

Known failures 9, 10, 14, 15, 16 and 17.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from edenmem.models.ids import new_id
from tests.concurrency import worker
from tests.concurrency.worker import EVE, SCOPES, SESSIONS, Account, Worker
from tests.faults.days import Address
from tests.faults.invariants import check_all_formed, check_memory

pytestmark = pytest.mark.slow


PROCESSES = 8
OPERATIONS = 8


@pytest.fixture(params=["sqlite", "secantus"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Address]:
    with ExitStack() as stack:
        if request.param == "sqlite":
            yield Address(str(tmp_path / "memory.db"))
            return
        from pymongo import MongoClient

        uri = request.getfixturevalue("secantus_uri")
        client = stack.enter_context(MongoClient(uri))
        database = f"test_{new_id()}"
        stack.callback(client.drop_database, database)
        yield Address(uri, database)


def _run(address: Address, folder: Path) -> list[Account]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.concurrency.worker"])
    results = [folder / f"account-{number}.json" for number in range(PROCESSES)]
    processes = [
        context.Process(
            target=worker.main, args=(address, number, OPERATIONS, str(result)), daemon=True
        )
        for number, result in enumerate(results)
    ]
    for process in processes:
        process.start()
    try:
        for process in processes:
            process.join(200)
        assert [process.exitcode for process in processes] == [0] * PROCESSES
    finally:
        for process in processes:
            process.kill()
            process.join()
            process.close()
    return [json.loads(result.read_text()) for result in results]


def test_eight_processes_at_one_memory(address: Address, tmp_path: Path) -> None:
    store = worker.open_store(address)
    worker.prepare(store)
    accounts = _run(address, tmp_path)

    # What was said last is formed by one who comes after all of them.
    last = Worker(store, PROCESSES)
    for session in SESSIONS:
        asyncio.run(last.service.form_memories(session.id, consolidate=False))
        check_all_formed(store, session.id, EVE.id)
    check_memory(store, SCOPES)

    fact_edits = [tuple(edit) for account in accounts for edit in account["fact_edits"]]
    text_edits = [tuple(edit) for account in accounts for edit in account["text_edits"]]
    deleted = Counter(fact_id for account in accounts for fact_id in account["deleted"])
    print(
        f"{sum(account['formed'] for account in accounts)} formations, "
        f"{len(fact_edits)} edits of facts, {len(text_edits)} of texts, "
        f"{sum(deleted.values())} removals, "
        f"{sum(account['refused'] for account in accounts)} refused"
    )

    # Each edit that was reported as done is a version of its own in history.
    for fact_id in {fact_id for fact_id, _, _ in fact_edits}:
        history = [
            entry for entry in store.history.versions("fact", fact_id) if entry.action != "delete"
        ]
        assert [entry.version for entry in history] == list(range(1, len(history) + 1))
        kept = Counter((fact_id, entry.version, entry.content) for entry in history)
        done = [edit for edit in fact_edits if edit[0] == fact_id]
        assert all(kept[edit] == 1 for edit in done), (done, kept)
    for scope in SCOPES:
        history = store.history.versions("consolidation", "", scope=scope)
        kept = Counter((scope.key, entry.version, entry.content) for entry in history)
        assert all(kept[edit] == 1 for edit in text_edits if edit[0] == scope.key)

    # A fact is removed once, whoever wanted it gone.
    assert all(count == 1 for count in deleted.values())
    assert all(store.memory.fact(fact_id) is None for fact_id in deleted)

    # Every reflection that was made is pending or was absorbed, once.
    made = {entry.target_id for entry in store.log.audit() if entry.action == "add_reflection"}
    assert made >= {id for account in accounts for id in account["thoughts"]}
    pending = [each.id for scope in SCOPES for each in store.memory.pending(scope)]
    absorbed = [
        reflection_id
        for scope in SCOPES
        for entry in store.history.versions("consolidation", "", scope=scope)
        for reflection_id in entry.absorbed_ids
    ]
    assert Counter(pending + absorbed) == Counter(made)
    store.database.close()
