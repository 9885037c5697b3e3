"""Reflections and texts are found by their words, by whoever may see them, on both stores."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from edenmem.engine.reports import SearchReport
from edenmem.engine.service import MemoryService
from edenmem.errors import ScopeError, StoreError
from edenmem.models.scope import Scope, ScopeKind
from edenmem.settings.schema import SearchSettings, Settings
from edenmem.store.protocol.store import Store
from tests.support.builders import NOW, ago, make_agent, make_session, make_user
from tests.support.memory import add_fact, add_reflection, consolidate
from tests.support.runtime import make_runtime

MIRA = make_agent("mira")
ANNA, BEN = make_user("anna"), make_user("ben")
TALK = make_session((MIRA,), (ANNA,), name="talk")
AGENT, OF_ANNA, OF_BEN = (
    Scope.agent(MIRA.id),
    Scope.user(MIRA.id, ANNA.id),
    Scope.user(MIRA.id, BEN.id),
)
OF_TALK = Scope.session(MIRA.id, TALK.id)


@pytest.fixture
def memory(store: Store) -> Store:
    store.host.add_agent(MIRA)
    store.host.add_user(ANNA)
    store.host.add_user(BEN)
    store.host.put_session(TALK)
    add_fact(store, AGENT, "The lanterns are stored in the ferry hall.")
    add_reflection(store, AGENT, "Lanterns matter to everybody here.", formed_at=ago(days=3))
    add_reflection(store, OF_ANNA, "Anna prefers paper lanterns.", session_id=TALK.id)
    add_reflection(store, OF_BEN, "Ben is afraid of lanterns.")
    add_reflection(store, OF_TALK, "This talk is about lanterns.", session_id=TALK.id)
    consolidate(
        store,
        AGENT,
        "The harbour has a festival.\n\nIn December lanterns are carried to the pier.",
        expected_version=0,
    )
    return store


def search(
    store: Store, *queries: str, settings: Settings | None = None, **options: Any
) -> SearchReport:
    service = MemoryService.from_runtime(make_runtime(store, settings or Settings()))
    options = {"agent_id": MIRA.id, "within": ("reflections", "texts"), **options}
    return asyncio.run(service.search(queries or ("lanterns",), **options))


def found(report: SearchReport) -> list[tuple[str, str]]:
    return [(hit.kind, hit.content) for hit in report.passages]


def test_reflections_and_the_paragraph_of_a_text_that_has_the_words(memory: Store) -> None:
    report = search(memory)
    assert report.hits == ()
    assert found(report) == [
        ("reflection", "Lanterns matter to everybody here."),
        ("text", "In December lanterns are carried to the pier."),
    ]
    assert all(hit.score > 0 for hit in report.passages)


def test_facts_come_first_if_they_are_asked_for_too(memory: Store) -> None:
    report = search(memory, within=("facts", "texts"))
    assert [hit.fact.content for hit in report.hits] == [
        "The lanterns are stored in the ferry hall."
    ]
    assert [kind for kind, _ in found(report)] == ["text"]


def test_of_a_user_only_the_one_who_is_named_is_read(memory: Store) -> None:
    said = {content for _, content in found(search(memory, user_id=ANNA.id))}
    assert "Anna prefers paper lanterns." in said
    assert not any("Ben" in content for content in said)
    assert found(search(memory, user_id=ANNA.id, kinds=[ScopeKind.USER])) == [
        ("reflection", "Anna prefers paper lanterns.")
    ]


def test_of_a_session_its_own_scope_and_what_came_from_it(memory: Store) -> None:
    report = search(memory, user_id=ANNA.id, session_id=TALK.id)
    assert {content for _, content in found(report)} == {
        "Anna prefers paper lanterns.",
        "This talk is about lanterns.",
    }
    assert found(search(memory, session_id=TALK.id, kinds=[ScopeKind.SESSION])) == [
        ("reflection", "This talk is about lanterns.")
    ]
    with pytest.raises(ScopeError, match="session memory requires a session"):
        search(memory, kinds=[ScopeKind.SESSION])


def test_within_a_time(memory: Store) -> None:
    recent = found(search(memory, since=NOW - timedelta(days=1)))
    assert ("reflection", "Lanterns matter to everybody here.") not in recent
    earlier = found(search(memory, until=NOW - timedelta(days=1)))
    assert earlier == [("reflection", "Lanterns matter to everybody here.")]


def test_several_queries_and_the_most_results(memory: Store) -> None:
    report = search(memory, "festival", "december", within=("texts",))
    assert len(report.passages) == 2
    assert len(search(memory, "festival", "december", within=("texts",), top_k=1).passages) == 1


def test_too_many_to_read_is_an_error_and_no_partial_answer(memory: Store) -> None:
    few = msgspec.structs.replace(Settings(), search=SearchSettings(scan_limit=1))
    with pytest.raises(StoreError, match="more than 1 reflections or paragraphs"):
        search(memory, settings=few)
