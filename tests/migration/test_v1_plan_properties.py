"""What holds for the plan of any database of v1, however dirty."""

from __future__ import annotations

import random
import re
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edenmem.engine.migration.conversion import split_version
from edenmem.models.memory import content_hash
from edenmem.models.scope import ScopeKind
from edenmem.models.v1 import V1_COLLECTIONS, Outcome, V1Item, V1Memory, V1Read, V1UserText
from edenmem.store.v1 import documents
from edenmem.text import clean
from tests.support.v1_files import Database, count, write_dump, write_ejson
from tests.support.v1_plans import items_of, plan_of
from tests.support.v1_strategies import v1_databases

pytestmark = pytest.mark.slow


OPTIONS = st.fixed_dictionaries(
    {
        "shards": st.sampled_from(["merge", "keep"]),
        "provenance": st.booleans(),
        "episodes": st.sampled_from(["leave", "keep"]),
    }
)
FEW = settings(max_examples=50)


def planned(database: Database, **options: Any) -> list[V1Item]:
    with tempfile.TemporaryDirectory() as name:
        return items_of(write_dump(Path(name), database), **options)


def read(database: Database) -> dict[tuple[str, str], V1Read]:
    """The documents as they are read, by collection and id."""
    found = {}
    for collection in V1_COLLECTIONS:
        for raw in database[collection]:
            assert not isinstance(raw, bytes)
            one = documents.read(collection, raw, "")
            found[collection, one.id] = one
    return found


@FEW
@given(v1_databases(), OPTIONS)
def test_a_plan_of_any_database(database: Database, options: dict[str, Any]) -> None:
    with (
        tempfile.TemporaryDirectory() as name,
        plan_of(write_dump(Path(name), database), **options) as plan,
    ):
        items = list(plan.items())
        totals = dict(plan.about.totals)
        assert plan.about.item_total == len(items)
    known = read(database)
    assert totals == count(database, V1_COLLECTIONS)
    assert {(ref.collection, ref.id) for item in items for ref in item.sources} == known.keys()
    for item in items:
        assert item.sources
        assert item.reason
        moved = item.outcome in (Outcome.MIGRATED, Outcome.MERGED)
        assert moved == (item.memory is not None or item.switch is not None)
        assert (item.outcome is Outcome.MERGED) <= (len(item.sources) > 1)
        sources: list[Any] = [known[ref.collection, ref.id].document for ref in item.sources]
        if item.memory is not None:
            _check_contents(item, sources)
            _check_owners(item, sources)
    ids = [item.fact.id for item in items if item.fact]
    ids += [item.reflection.id for item in items if item.reflection]
    same = [(item.fact.home, item.fact.hash) for item in items if item.fact]
    scopes = [item.text.home for item in items if item.text]
    for unique in (ids, same, scopes):
        assert max(Counter(unique).values(), default=1) == 1


def _check_contents(item: V1Item, sources: list[Any]) -> None:
    """Contents, times and messages are those of the sources."""
    if one := item.fact or item.reflection:
        assert {one.content} == {clean(each.content).strip() for each in sources}
        assert one.formed_at == min(each.created_at for each in sources)
        messages = {message for each in sources for message in each.message_ids}
        assert set(one.source_message_ids) == messages
        if item.fact:
            assert item.fact.hash == content_hash(one.content)
    elif item.text:
        text = item.text.consolidated_content
        written = [split_version(each.content) for each in sources]
        contents = [each.content for each in written if each.content]
        if item.text.scope is ScopeKind.AGENT:
            sections = re.split(r"(?:\A|\n\n)## [^\n]+\n\n", text)
            assert sorted(sections) == sorted(["", *contents])
        elif item.text.scope is ScopeKind.SHARD:
            assert [text] == contents
        else:
            assert {text} | {each.content for each in item.earlier} == set(contents)
        assert item.text.version in {each.version for each in written}


def _check_owners(item: V1Item, sources: list[Any]) -> None:
    """Known failures 2, 5 and 8: a memory comes only to its agent, and what is personal only to
    one of its people or to its session."""
    user_id = item.scope.user_id if item.scope else None
    for source in sources:
        assert source is not None
        assert source.agent_id in (item.agent_id, "")
        if isinstance(source, V1UserText):
            assert user_id == source.user_id
        if isinstance(source, V1Memory) and user_id:
            assert not source.users or user_id in source.users
        if isinstance(source, V1Memory) and source.memory_type in ("directive", "episode"):
            assert item.reflection
            kind = item.reflection.scope
            assert kind is (
                ScopeKind.USER if source.memory_type == "directive" else ScopeKind.SESSION
            )


@FEW
@given(v1_databases())
def test_what_waits_keeps_its_order(database: Database) -> None:
    """Oldest first, as every buffer is read, what came at one time as its list has it; and no part
    of a list is lost."""
    items = planned(database)
    known = read(database)
    texts = [one.document for one in known.values() if isinstance(one.document, V1UserText)]
    by_pair = Counter((each.agent_id, each.user_id) for each in texts)
    for text in texts:
        if not text.agent_id or not text.user_id or by_pair[text.agent_id, text.user_id] > 1:
            continue
        wanted = []
        for listed in dict.fromkeys(text.pending):
            one = known.get(("memory_sessions", listed))
            memory = one.document if one else None
            if (
                isinstance(memory, V1Memory)
                and memory.agent_id == text.agent_id
                and memory.memory_type in ("directive", "suggestion", "fact", "")
                and (not memory.users or text.user_id in memory.users)
                and clean(memory.content).strip()
            ):
                wanted.append((memory.created_at, listed))
        wanted.sort(key=lambda each: each[0])
        found = [
            item.sources[0].id
            for item in items
            if item.reflection
            and (item.agent_id, item.reflection.user_id) == (text.agent_id, text.user_id)
            and known["memory_sessions", item.sources[0].id].document.agent_id  # type: ignore[union-attr]
        ]
        assert found == [listed for _, listed in wanted]


@settings(max_examples=15)
@given(v1_databases(), OPTIONS, st.randoms())
def test_it_does_not_matter_how_it_is_stored(
    database: Database, options: dict[str, Any], rng: random.Random
) -> None:
    """Neither the kind of the source nor the order of its documents."""
    expected = planned(database, **options)
    shuffled = {name: rng.sample(each, len(each)) for name, each in database.items()}
    with tempfile.TemporaryDirectory() as name:
        stored = write_ejson(Path(name), shuffled, canonical=rng.random() < 0.5)
        items = items_of(stored, **options)
    assert [(item.memory, item.switch) for item in items] == [
        (item.memory, item.switch) for item in expected
    ]
    assert [item.sources for item in items] == [item.sources for item in expected]
