"""Reviewing: what a person decides becomes memory whole or not at all, and can be taken back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from edenmem.engine.edits.reviewer import Reviewer, make_review, settle_overdue
from edenmem.engine.history.undo import Undoer, UndoOutcome
from edenmem.engine.reports import EditReport
from edenmem.engine.runtime.runtime import Runtime
from edenmem.errors import ConflictError, EdenmemError, NotFoundError, UsageError
from edenmem.models.changes import HoldItem, RemoveHeld
from edenmem.models.ids import new_id
from edenmem.models.memory import Fact, Held, Reflection
from edenmem.models.scope import Scope, ScopeKind
from edenmem.models.search import FactFilter
from edenmem.settings.schema import ReviewSettings, Settings
from edenmem.store.protocol.store import Store
from tests.engine.conftest import Cast, make_cast
from tests.support.builders import NOW, FixedClock, ago, make_held, some
from tests.support.embedder import FakeEmbedder
from tests.support.memory import add_fact, add_reflection, applied, facts_of, set_policy
from tests.support.runtime import make_runtime

TEXT = "Anna may live in Faro."


@dataclass
class Desk:
    """A reviewer's desk: the cast, and a runtime with vectors."""

    cast: Cast
    runtime: Runtime
    clock: FixedClock

    @property
    def store(self) -> Store:
        return self.cast.store

    def hold(self, content: str = TEXT, scope: Scope | None = None, **fields: Any) -> Held:
        item = make_held(scope or self.cast.anna_scope, content, **fields)
        applied(self.store, HoldItem(held=item))
        return item

    async def accept(self, item_id: str, **options: Any) -> EditReport:
        return await make_review(self.runtime, lambda each: each.accept(item_id, **options))

    async def reject(self, item_id: str, **options: Any) -> EditReport:
        return await make_review(self.runtime, lambda each: each.reject(item_id, **options))

    def held(self) -> list[str]:
        return [each.content for each in self.store.memory.held(None)]

    def facts(self, scope: Scope | None = None) -> list[Fact]:
        return facts_of(self.store, scope or self.cast.anna_scope)

    def fact(self, fact_id: str) -> Fact:
        return some(self.store.memory.fact(fact_id, with_vector=True))

    def undo(self, report: EditReport) -> None:
        """Undo, redo and undo it again."""
        assert report.result is not None
        entry, undoer = report.result.change_id, Undoer(self.runtime)
        assert undoer.plan(entry).outcome is UndoOutcome.PLANNED
        before = self.state()
        steps = undoer.undo_decision(entry)
        assert {each.outcome for each in steps} == {UndoOutcome.DONE}
        assert self.state() != before
        assert undoer.undo(steps[-1].undo_id).outcome is UndoOutcome.DONE
        assert self.state() == before
        assert undoer.undo(entry).outcome is UndoOutcome.DONE

    def state(self) -> set[tuple[str, str]]:
        stored = (
            *facts_of(self.store, *self.cast.anna_scopes),
            *self.store.memory.reflections(self.cast.anna_scopes),
        )
        texts = {(each.content, each.unconfirmed) for each in stored}
        return texts | {(each, "held") for each in self.held()}


@pytest.fixture
def desk(store: Store) -> Desk:
    clock = FixedClock()
    runtime = make_runtime(store, embedder=FakeEmbedder(), clock=clock)
    return Desk(make_cast(store), runtime, clock)


async def test_an_accepted_fact_is_memory_from_now_on_and_said_then(desk: Desk) -> None:
    item = desk.hold(quote="in Faro", said_at=ago(days=3), source_message_ids=(new_id(),))
    desk.clock.advance(hours=1)
    report = await desk.accept(item.id)
    fact = desk.fact(report.target_id)
    assert (fact.content, fact.quote, fact.unconfirmed) == (TEXT, "in Faro", "")
    assert (fact.said_at, fact.formed_at) == (ago(days=3), desk.clock.now)
    assert fact.source_message_ids == item.source_message_ids
    assert fact.embedding is not None
    assert desk.held() == []
    desk.undo(report)
    assert list(desk.store.memory.held(None)) == [item]
    assert desk.facts() == []


async def test_a_rejected_item_comes_back_by_undo(desk: Desk) -> None:
    item = desk.hold()
    tried = await desk.reject(item.id, dry_run=True)
    assert (tried.action, desk.held()) == ("reject", [TEXT])
    report = await desk.reject(item.id, reason="in jest")
    assert (report.action, desk.held()) == ("reject", [])
    (entry,) = desk.store.log.audit(target_id=item.id, limit=1)
    assert entry.reason == "in jest"
    desk.undo(report)
    assert list(desk.store.memory.held(None)) == [item]


async def test_a_text_that_is_known_confirms_its_fact(desk: Desk) -> None:
    """Also under another account of the person."""
    known = add_fact(desk.store, desk.cast.discord_scope, TEXT, unconfirmed="a doubt")
    source = new_id()
    report = await desk.accept(desk.hold(source_message_ids=(source,)).id)
    assert report.target_id == known.id
    assert desk.facts() == []
    fact = desk.fact(known.id)
    assert (fact.unconfirmed, source in fact.source_message_ids) == ("", True)
    desk.undo(report)
    fact = desk.fact(known.id)
    assert (fact.unconfirmed, source in fact.source_message_ids) == ("a doubt", False)
    assert desk.held() == [TEXT]


async def test_what_resembles_a_fact_needs_a_word(desk: Desk) -> None:
    near = add_fact(desk.store, desk.cast.anna_scope, "Anna may live in faro")
    far = add_fact(desk.store, desk.cast.bruno_scope, "Anna may live in faro")
    item = desk.hold(said_at=ago(days=1))
    with pytest.raises(ConflictError, match=near.id):
        await desk.accept(item.id)
    with pytest.raises(UsageError, match="another scope"):
        await desk.accept(item.id, replaces=far.id)
    assert desk.held() == [TEXT]
    tried = await desk.accept(item.id, replaces=near.id, dry_run=True)
    assert tried.after is not None
    assert (tried.after["content"], desk.held()) == (TEXT, [TEXT])
    report = await desk.accept(item.id, replaces=near.id)
    assert [(each.id, each.content) for each in desk.facts()] == [(near.id, TEXT)]
    desk.undo(report)
    assert [each.content for each in desk.facts()] == ["Anna may live in faro"]
    await desk.accept(item.id, anyway=True)
    assert len(desk.facts()) == 2


async def test_a_corrected_text_is_what_becomes_memory(desk: Desk) -> None:
    report = await desk.accept(desk.hold().id, content="Anna lives in Faro.")
    assert desk.fact(report.target_id).content == "Anna lives in Faro."
    with pytest.raises(UsageError, match="empty"):
        await desk.accept(desk.hold().id, content=" ")
    assert desk.held() == [TEXT]


async def test_a_fact_in_doubt_is_confirmed_corrected_or_deleted(desk: Desk) -> None:
    scope = desk.cast.anna_scope
    one, two, three = (
        add_fact(desk.store, scope, f"Anna has boat {n}.", unconfirmed="no quote", quote=f"{n}")
        for n in range(3)
    )
    confirmed = await desk.accept(one.id, version=1)
    fact = desk.fact(one.id)
    assert (fact.unconfirmed, fact.quote, fact.content) == ("", "0", one.content)
    assert fact.recent_at == one.recent_at
    desk.undo(confirmed)
    assert desk.fact(one.id).unconfirmed == "no quote"
    await desk.accept(two.id, content="Anna has a boat.")
    assert (desk.fact(two.id).content, desk.fact(two.id).unconfirmed) == ("Anna has a boat.", "")
    await desk.reject(three.id)
    assert {each.id for each in desk.facts()} == {one.id, two.id}
    with pytest.raises(ConflictError):
        await desk.accept(one.id, version=1)  # it was confirmed and undone since
    with pytest.raises(UsageError):
        await desk.accept(one.id, replaces=two.id)


async def test_reflections_are_reviewed_too(desk: Desk) -> None:
    store, scope = desk.store, desk.cast.anna_scope
    report = await desk.accept(desk.hold(kind="reflection").id)
    assert [each.content for each in store.memory.pending(scope)] == [TEXT]
    desk.undo(report)
    assert (store.memory.pending(scope), desk.held()) == ([], [TEXT])
    doubted = add_reflection(store, scope, "She rows.", unconfirmed="no source")
    confirmed = await desk.accept(doubted.id)

    def doubt() -> str:
        found = store.memory.reflection(doubted.id)
        assert isinstance(found, Reflection)
        return found.unconfirmed

    assert doubt() == ""
    desk.undo(confirmed)
    assert doubt() == "no source"
    await desk.reject(doubted.id)
    assert store.memory.reflection(doubted.id) is None


async def test_only_what_waits_is_found(desk: Desk) -> None:
    store, cast = desk.store, desk.cast
    certain = add_fact(store, cast.anna_scope, "Anna rows.")
    doubted = add_fact(store, cast.anna_scope, "Anna sails.", unconfirmed="no quote")
    old, new = desk.hold(held_at=ago(days=9)), desk.hold("Bruno rows.", cast.bruno_scope)
    reviewer = Reviewer(desk.runtime)

    def ids(**filters: Any) -> list[str]:
        return [each.id for each in reviewer.items(cast.eve.id, **filters)]

    assert ids() == [new.id, old.id, doubted.id]
    assert ids(user_ids=[cast.bruno.id]) == [new.id]
    assert ids(kinds=[ScopeKind.AGENT]) == []
    assert [each.id for each in reviewer.items(new_id())] == []
    assert reviewer.find(old.id[:15]).id == old.id
    for unknown in (certain.id, new_id(), "no id", "ab"):
        with pytest.raises(NotFoundError):
            reviewer.find(unknown)


async def test_a_closed_scope_or_lost_conversation_is_refused(desk: Desk) -> None:
    cast = desk.cast
    gone = cast.add_session(cast.anna, deleted=True)
    item = desk.hold(session_id=gone.id)
    with pytest.raises(ConflictError, match="deleted"):
        await desk.accept(item.id)
    waiting = desk.hold("Anna rows.")
    set_policy(desk.store, cast.anna_scope, active=False)
    with pytest.raises(UsageError, match="paused"):
        await desk.accept(waiting.id)
    assert len(desk.held()) == 2


async def test_of_two_reviewers_the_first_decides(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The item is rejected after the other reviewer's checks, and before the write."""
    item, apply = desk.hold(), desk.store.changes.apply

    def race(changes: Any) -> Any:
        apply(msgspec.structs.replace(changes, id=new_id(), changes=(remove,), whole=False))
        return apply(changes)

    remove = RemoveHeld(scope=item.home, held_id=item.id)
    monkeypatch.setattr(type(desk.store.changes), "apply", lambda self, changes: race(changes))
    with pytest.raises(EdenmemError):
        await desk.accept(item.id)
    assert (desk.facts(), desk.held()) == ([], [])


# -- what nobody reviews ---------------------------------------------------------------------------


def after(desk: Desk, **fields: Any) -> Runtime:
    settings = msgspec.structs.replace(Settings(), review=ReviewSettings(**fields))
    return msgspec.structs.replace(desk.runtime, settings=settings)


async def test_items_wait_for_ever_by_default(desk: Desk) -> None:
    desk.hold(held_at=ago(days=999))
    assert await settle_overdue(desk.runtime) == {"accept": 0, "reject": 0}
    assert desk.held() == [TEXT]


async def test_overdue_doubts_are_dropped_and_said_so(desk: Desk) -> None:
    desk.hold(held_at=ago(days=31))
    desk.hold("Anna rows.", held_at=ago(days=29))
    desk.hold("Anna sails.", held_at=ago(days=31), reasons="")  # proposed, not in doubt
    assert await settle_overdue(after(desk, days=30)) == {"accept": 0, "reject": 1}
    assert set(desk.held()) == {"Anna rows.", "Anna sails."}
    (entry,) = desk.store.log.audit(actions=["remove_held"])
    assert entry.reason == "not reviewed within 30 days"


async def test_overdue_doubts_are_kept_as_unconfirmed_but_not_for_everybody(desk: Desk) -> None:
    cast, old = desk.cast, ago(days=31)
    gone = cast.add_session(cast.anna, deleted=True)
    desk.hold(held_at=old)
    desk.hold("She moved.", held_at=old, kind="reflection")
    desk.hold("Anna has moved.", cast.agent_scope, held_at=old)
    desk.hold("Anna is gone.", held_at=old, session_id=gone.id)
    add_fact(desk.store, cast.anna_scope, "Anna is here.")
    desk.hold("Anna is here.", held_at=old)
    counts = await settle_overdue(after(desk, days=30, then="accept"))
    assert (counts["accept"], desk.held()) == (2, [])
    assert {(each.content, each.unconfirmed) for each in desk.facts()} == {
        (TEXT, "not in the messages"),
        ("Anna is here.", ""),
    }
    (thought,) = desk.store.memory.pending(cast.anna_scope)
    assert (thought.content, thought.unconfirmed) == ("She moved.", "not in the messages")
    assert list(desk.store.memory.facts(FactFilter(scopes=(cast.agent_scope,)))) == []
    assert desk.clock.now == NOW
