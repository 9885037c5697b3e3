"""Fields of facts, set by a person: checked, edited, restored, and expired."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest

from edenmem.engine.edits.checks import VALUE_BYTES, check_fields, expire
from edenmem.engine.history.undo import Undoer
from edenmem.errors import ConflictError, UsageError
from edenmem.models.memory import NO_FIELDS, FactFields
from edenmem.models.search import FactFilter
from edenmem.store.protocol.store import Store
from tests.engine.conftest import make_cast
from tests.support.builders import NOW, FixedClock, make_actor, make_fact, some
from tests.support.editing import AwaitedEditor
from tests.support.embedder import FakeEmbedder
from tests.support.memory import add_facts
from tests.support.runtime import make_runtime

DAY = timedelta(days=1)
WEST = timezone(-timedelta(hours=14))
RUN = "a" * 24
FIELDS = FactFields(key="k", tags=("home",), metadata={"by": "mem0"}, value={"n": [1, None]})


def deep(levels: int) -> dict[str, Any]:
    return {"more": deep(levels - 1)} if levels else {}


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"key": ""}, "key is empty"),
        ({"key": " k"}, "outer spaces"),
        ({"key": "k" * 513}, "longer than 512"),
        ({"tags": ("a\nb",)}, "line breaks"),
        ({"tags": ("\ud800",)}, "tag is empty"),
        ({"expires_at": datetime.max.replace(tzinfo=WEST)}, "out of range"),
        ({"tags": tuple(map(str, range(51)))}, "at most 50 tags"),
        ({"metadata": {"": "x"}}, "metadata name is empty"),
        ({"metadata": {"n": "x" * 2001}}, "longer than 2,000"),
        ({"value": {"n": 2**63}}, "beyond 64 bits"),
        ({"value": {"n": [float("nan")]}}, "not finite"),
        ({"value": {"n": (1e400,)}}, "not finite"),
        ({"value": {"n": "x" * VALUE_BYTES}}, "the limit is 16,384"),
        ({"value": {"n": object()}}, "not a JSON object"),
        ({"value": {"a\0": 1}}, "null character"),
        ({"value": deep(21)}, "nested more than 20 deep"),
    ],
)
def test_fields_that_cannot_be_kept_are_refused(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        check_fields(FactFields(**fields))


def test_fields_are_stored_as_every_store_can() -> None:
    given = FactFields(
        tags=(" home", "home", "Büro"), value={"pair": (1, 2.5), "deep": deep(18)}, expires_at=NOW
    )
    assert check_fields(given) == FactFields(
        tags=("home", "Büro"), value={"pair": [1, 2.5], "deep": deep(18)}, expires_at=NOW
    )


async def test_fields_are_edited_and_restored(
    store: Store, embedder: FakeEmbedder, clock: FixedClock
) -> None:
    cast = make_cast(store)
    runtime = make_runtime(store, embedder=embedder, clock=clock, actor=make_actor("fact edit"))
    editor = AwaitedEditor(runtime)
    added = await editor.add_fact(cast.anna_scope, "Anna sings.", fields=FIELDS)
    fact = some(store.memory.fact(added.target_id))
    assert fact.fields == FIELDS
    with pytest.raises(ConflictError, match=fact.id):
        await editor.add_fact(cast.anna_scope, "Anna hums.", fields=FactFields(key="k"))
    with pytest.raises(UsageError, match="past"):
        await editor.edit(fact.id, expected_version=1, fields=FIELDS.until(clock()))

    calls = len(embedder.calls)
    later = FIELDS.until(clock() + DAY)
    edited = await editor.edit(fact.id, expected_version=1, fields=later)
    assert len(embedder.calls) == calls, "the text is the same"
    unchanged = await editor.edit(fact.id, expected_version=2, fields=later)
    assert (edited.action, unchanged.action) == ("revise_fact", "none")
    clock.advance(days=2)
    assert [*store.memory.facts(FactFilter(scopes=cast.anna_scopes, live_at=clock()))] == []
    await editor.restore_fact(fact.id, version=1)
    now = some(store.memory.fact(fact.id))
    assert (now.version, now.fields, now.previous_content) == (3, FIELDS, None)

    soon = NO_FIELDS.until(clock() + DAY)
    known = await editor.add_fact(cast.anna_scope, "Anna swims.", fields=soon)
    again = await editor.add_fact(cast.anna_scope, "Anna swims.")
    has_it = f"the scope already has this fact: {known.target_id}"
    assert again.notices == (f"{has_it}; it now expires never",)


def test_expired_facts_go_in_one_run_and_come_back_for_good(
    store: Store, clock: FixedClock
) -> None:
    cast = make_cast(store)
    other = cast.add_agent("other")
    facts = [
        make_fact(scope, f"fact {number}", expires_at=clock() + number * DAY)
        for number in range(1, 4)
        for scope in (cast.anna_scope, cast.agent_scope)
    ]
    add_facts(store, *facts)
    clock.advance(days=2)
    runtime = make_runtime(store, clock=clock, actor=make_actor("cold run", run_id=RUN))
    assert expire(runtime, agent_ids=[other.id]) == 0
    assert expire(runtime) == 4
    assert expire(runtime) == 0
    every = FactFilter(scopes=(cast.anna_scope, cast.agent_scope))
    assert {fact.content for fact in store.memory.facts(every)} == {"fact 3"}
    clock.advance(days=9)
    undone = list(Undoer(runtime).undo_run(RUN))
    assert len(undone) == 4
    back = list(store.memory.facts(msgspec.structs.replace(every, live_at=clock())))
    assert {fact.content for fact in back} == {"fact 1", "fact 2"}
    assert {fact.expires_at for fact in back} == {None}
