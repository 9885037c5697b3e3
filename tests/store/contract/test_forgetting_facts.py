"""Forgetting single facts on every store: no copy of the text stays, and nothing returns."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from edenmem.engine.erasure import forgetting
from edenmem.engine.erasure.passages import walk_passages
from edenmem.engine.erasure.reports import MentionDecision, receipt_of
from edenmem.errors import ConflictError, NotFoundError, UsageError
from edenmem.models.changes import (
    AddFact,
    ChangeStatus,
    RemoveFact,
    ReviseFact,
    SetPrivacy,
    merge_reason,
)
from edenmem.models.formation import Decision, FormationStatus, Reach
from edenmem.models.host import CachedContext
from edenmem.models.scope import Scope
from edenmem.store.sqlite import SqliteStore
from edenmem.text import escape_xml
from tests.support.builders import NOW, change_set, make_fact, make_formation, make_messages, some
from tests.support.exhaustive import spared
from tests.support.forgetting import forget, make_town, plan_of, subject_of
from tests.support.formations import Steps
from tests.support.leak import EARLIER, SECRET, Leak, make_leak, revise
from tests.support.memory import add_fact, add_facts, add_reflection, applied, apply, consolidate
from tests.support.platform_cursor import cursor_of
from tests.support.stores import SECANTUS_TOO

if TYPE_CHECKING:
    from edenmem.store.protocol.store import Store

pytestmark = pytest.mark.slow


#: What a store does itself; the rest is the engine's, and shown on SQLite.
ON_BOTH = pytest.mark.parametrize("store", ["sqlite", SECANTUS_TOO], indirect=True)


@pytest.fixture(params=["sqlite", spared("secantus")])
def store(request: pytest.FixtureRequest, open_store: Callable[[str], Store]) -> Store:
    return open_store(request.param)


@pytest.fixture
def leak(store: Store) -> Leak:
    return make_leak(store)


def _texts(store: Store) -> str:
    return "\n".join(passage.text for passage in walk_passages(store)).casefold()


@ON_BOTH
def test_every_copy_of_a_fact_is_erased_and_no_other_memory(leak: Leak) -> None:
    """An access key stayed in the history and the log, and no command erased a single fact."""
    store, town = leak.store, leak.town
    kept = add_reflection(store, town.his(), "Bruno has a safe.")
    consolidate(store, town.his(), "Bruno has a boat.", expected_version=0)
    plan = plan_of(store, facts=[leak.fact.id])
    assert plan.counts["facts"] == 1
    assert plan.counts["formations (emptied)"] == 1
    assert not plan.mentions

    report = forget(store, plan=plan)

    assert report.complete, (report.remains, report.unfinished)
    assert "quince" not in _texts(store)
    assert store.memory.fact(leak.fact.id) is None
    assert store.history.versions("fact", leak.fact.id) == []
    assert report.removed == plan.counts
    found = some(store.memory.fact(leak.other.id))
    assert (found.content, found.version) == ("Bruno rows.", 1)
    assert store.memory.reflection(kept.id) == kept
    (entry,) = (each for each in store.log.audit() if each.action == "forget")
    assert (entry.before, entry.reason, {*(entry.after or {})}) == (
        None,
        "",
        {"removed", "emptied", "receipt"},
    )
    receipt = str(receipt_of(report))
    assert "quince" not in receipt
    assert leak.fact.id not in receipt
    emptied = list(store.log.audit(target_id=leak.fact.id))
    assert {(each.before, each.after) for each in emptied} == {(None, None)}
    (kept_forgetting,) = store.erasure.forgettings()
    assert (kept_forgetting.kind, kept_forgetting.closed_at) == ("fact", NOW)


@ON_BOTH
def test_the_source_messages_are_not_formed_again(leak: Leak) -> None:
    store, town = leak.store, leak.town
    sources = {message.id for message in leak.sources}

    def backlog(reach: Reach) -> set[str]:
        found = store.formations.backlog(town.lone.id, town.eve.id, limit=99, reach=reach)
        assert found.total == len(found.messages)
        return {message.id for message in found.messages}

    assert backlog(Reach.AGAIN) >= sources
    forget(store, facts=[leak.fact.id])
    everything = {message.id for message in store.host.messages(town.lone.id)}
    for reach in (Reach.AGAIN, Reach.FROM_START):
        assert backlog(reach) == everything - sources
    assert Steps(store).supersede(leak.formation_id, now=NOW)
    assert backlog(Reach.WAITING) == everything - sources


@ON_BOTH
def test_pending_source_messages_count_as_formed_by_every_agent(store: Store) -> None:
    """The platform's cursor passes them too, and stops before the next message of a user."""
    town = make_town(store)
    first, *later = store.host.messages(town.lone.id)
    fact = add_fact(
        store, town.his(), SECRET, session_id=town.lone.id, source_message_ids=(first.id,)
    )
    assert cursor_of(store, town.lone.id) is None
    forget(store, facts=[fact.id])
    left = store.formations.backlog(town.lone.id, town.eve.id, limit=99).messages
    assert [message.id for message in left] == [message.id for message in later]
    next_one = next(message for message in later if message.role == "user")
    before = [first, *later][[first, *later].index(next_one) - 1]
    expected = None if isinstance(store, SqliteStore) else before.id
    assert cursor_of(store, town.lone.id) == expected


def test_an_agent_that_joins_later_does_not_form_the_source_messages(leak: Leak) -> None:
    store, town = leak.store, leak.town
    sources = {message.id for message in leak.sources}
    forget(store, facts=[leak.fact.id])
    found = store.formations.backlog(town.lone.id, town.adam.id, limit=99)
    assert sources.isdisjoint(message.id for message in found.messages)
    assert found.total == len(found.messages) == 2


@ON_BOTH
def test_a_source_message_that_comes_later_is_not_formed(store: Store) -> None:
    town = make_town(store)
    late, other = make_messages(town.lone, 2, start=NOW - timedelta(minutes=1))
    fact = add_fact(
        store, town.his(), SECRET, session_id=town.lone.id, source_message_ids=(late.id,)
    )
    forget(store, facts=[fact.id])
    store.host.add_messages(town.lone.id, [late, other])
    found = store.formations.backlog(town.lone.id, town.eve.id, limit=99)
    ids = {message.id for message in found.messages}
    assert other.id in ids
    assert late.id not in ids


@ON_BOTH
def test_the_messages_behind_the_source_messages_are_found(leak: Leak) -> None:
    """SQLite dropped the source messages from a range that was already cut."""
    store, town = leak.store, leak.town
    forget(store, facts=[leak.fact.id])
    for reach in (Reach.AGAIN, Reach.FROM_START):
        found = store.formations.backlog(town.lone.id, town.eve.id, limit=2, reach=reach)
        assert (len(found.messages), found.total) == (2, 2)


def test_source_messages_in_other_sessions_are_sources_too(store: Store) -> None:
    """A later session revised the fact; only its first session was looked at."""
    town = make_town(store)
    first, *_ = store.host.messages(town.lone.id)
    fact = add_fact(
        store, town.his(), EARLIER, session_id=town.lone.id, source_message_ids=(first.id,)
    )
    said = list(store.host.messages(town.shared.id))
    formation = make_formation(town.shared, said)
    assert store.formations.claim(formation)
    revision = ReviseFact(
        scope=fact.home,
        fact_id=fact.id,
        expected_version=1,
        content=SECRET,
        at=NOW,
        source_message_ids=(said[0].id,),
    )
    assert Steps(store).record(
        formation.id,
        changes=change_set(revision),
        decisions=(Decision(content="It is quince4711.", action="UPDATE", target_id=fact.id),),
    )
    Steps(store).apply(formation.id, now=NOW)
    plan = plan_of(store, facts=[fact.id])
    assert plan.conversations == {"messages": 2}
    ours = store.database.info().kind == "sqlite"
    assert forget(store, messages=ours, plan=plan).complete
    assert "quince" not in _texts(store)
    if ours:
        left = {message.id for message in store.host.messages(town.shared.id)}
        assert left == {message.id for message in said[1:]}


@ON_BOTH
def test_a_claim_on_a_source_message_cannot_record(store: Store) -> None:
    town = make_town(store)
    messages = list(store.host.messages(town.lone.id))
    fact = add_fact(
        store, town.his(), SECRET, session_id=town.lone.id, source_message_ids=(messages[0].id,)
    )
    formation = make_formation(town.lone, messages)
    assert store.formations.claim(formation)
    forget(store, facts=[fact.id])
    again = change_set(AddFact(fact=make_fact(town.his(), SECRET)))
    outcome: dict[str, Any] = {"decisions": (), "usage": (), "counts": {}, "now": NOW}
    assert not Steps(store).record(formation.id, changes=again, **outcome)
    waiting = store.formations.backlog(town.lone.id, town.eve.id, limit=99)
    assert waiting.total == len(messages) - 1


def test_changes_decided_earlier_are_refused(leak: Leak) -> None:
    store = leak.store
    scope, fact = leak.town.his(), leak.fact
    forget(store, facts=[fact.id])
    changes = (
        AddFact(fact=fact),
        ReviseFact(scope=scope, fact_id=fact.id, expected_version=2, content=SECRET, at=NOW),
        SetPrivacy(scope=scope, target_type="fact", target_id=fact.id, private=True, at=NOW),
        RemoveFact(scope=scope, fact_id=fact.id, expected_version=2, at=NOW),
    )
    for change in changes:
        assert apply(store, change)[0].status is ChangeStatus.CONFLICT
    assert "quince" not in _texts(store)
    add_fact(store, scope, "Bruno sings.")


def test_a_deleted_fact_is_erased_by_its_full_id(leak: Leak) -> None:
    store = leak.store
    removal = RemoveFact(scope=leak.fact.home, fact_id=leak.fact.id, expected_version=2, at=NOW)
    applied(store, removal)
    assert "quince4711" in _texts(store)
    with pytest.raises(NotFoundError):
        subject_of(store, facts=[leak.fact.id[:20]])
    plan = plan_of(store, facts=[leak.fact.id])
    assert set(plan.subject.names) == {SECRET, EARLIER}
    assert set(plan.traces.messages) == {message.id for message in leak.sources}
    report = forget(store, plan=plan)
    assert report.complete, (report.remains, report.unfinished)
    assert "quince" not in _texts(store)


def test_several_facts_are_one_forgetting(leak: Leak) -> None:
    store = leak.store
    second = add_fact(store, leak.town.group, "The quince jam is in the shed.")
    short = leak.fact.id[:18]
    report = forget(store, facts=[short, second.id, leak.fact.id])
    assert report.complete
    assert report.removed["facts"] == 2
    assert "quince" not in _texts(store)
    again = subject_of(store, facts=[short, second.id])
    assert again.id == report.subject.id
    assert forget(store, facts=[short, second.id]).complete
    assert len(store.erasure.forgettings()) == 1


def test_a_prefix_never_means_a_later_fact(leak: Leak) -> None:
    """To finish an interrupted run, the same command is run again."""
    store, short = leak.store, leak.fact.id[:18]
    forget(store, facts=[short])
    later = make_fact(leak.town.his(), "Bruno sings.", id=f"{short}aaaaaa")
    applied(store, AddFact(fact=later), at=NOW + timedelta(seconds=1))
    with pytest.raises(UsageError, match="prefix of an erased fact") as refused:
        forget(store, facts=[short])  # "nothing to remove" would be believed
    assert later.id in (refused.value.hint or "")
    assert store.memory.fact(later.id) is not None
    assert forget(store, facts=[later.id]).removed["facts"] == 1


def test_another_prefix_does_not_hide_an_interrupted_run(
    leak: Leak, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fact was gone, but not from the free pages of the file."""
    store, short = leak.store, leak.fact.id[:18]
    with monkeypatch.context() as patch:
        patch.setattr(forgetting, "find_remains", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            forget(store, facts=[short])
    assert store.memory.fact(leak.fact.id) is None
    with pytest.raises(NotFoundError, match="was interrupted"):
        forget(store, facts=[short[:16]])
    assert forget(store, facts=[short]).complete
    with pytest.raises(NotFoundError) as unknown:
        forget(store, facts=[short[:16]])
    assert "interrupted" not in unknown.value.message


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_other_memory_that_repeats_the_text_is_listed(leak: Leak) -> None:
    store, town = leak.store, leak.town
    same = add_fact(store, town.group, f"Note: {SECRET}")
    before = add_fact(store, town.everybody, SECRET)
    revise(store, before, "The safe is green.")
    consolidate(store, town.his(), f"He rows. {SECRET}", expected_version=0)
    words = add_reflection(store, town.everybody, "Somebody said quince4711 aloud.")
    shown = plan_of(store, facts=[leak.fact.id]).mentions
    assert {mention.target_id for mention in shown} >= {same.id, before.id}
    assert words.id not in {mention.target_id for mention in shown}
    plan = plan_of(store, facts=[leak.fact.id], names=["quince4711"])
    by_id = {mention.target_id: mention for mention in plan.mentions}
    assert {words.id, same.id, before.id} <= by_id.keys()
    assert len(by_id) == 4
    # Only old copies: emptied without being asked about.
    assert (by_id[before.id].text, by_id[before.id].emptied) == (None, True)
    decisions = [
        MentionDecision(mention=one, treatment="rewrite", text="He rows.")
        if one.target_type == "consolidation"
        else MentionDecision(mention=one, treatment="remove")
        for one in plan.mentions
        if not one.emptied
    ]
    report = forget(store, decisions, plan=plan)
    assert report.complete, (report.remains, report.unfinished)
    assert "quince4711" not in _texts(store)
    kept = some(store.memory.fact(before.id))
    assert (kept.content, kept.previous_content) == ("The safe is green.", None)


@ON_BOTH
def test_escaped_copies_in_contexts_of_other_agents_are_emptied(store: Store) -> None:
    """A context has "&amp;" for "&", which no other text has."""
    town = make_town(store)
    text = 'The key of R&D is "a<b&c>d" now.'
    fact = add_fact(store, town.his(), text)
    same = add_fact(store, Scope.agent(town.adam.id), text)
    xml = f"<m>{escape_xml(text)}</m>"
    context = CachedContext(xml=xml, fingerprint="f", built_at=NOW)
    store.contexts.cache_context(town.own.id, town.adam.id, context)
    plan = plan_of(store, facts=[fact.id])
    assert [mention.target_id for mention in plan.mentions] == [same.id]
    removal = MentionDecision(mention=plan.mentions[0], treatment="remove")
    assert forget(store, [removal], plan=plan).complete
    assert store.contexts.find_context(town.own.id, town.adam.id) is None
    assert not _texts(store)


@ON_BOTH
def test_facts_merged_into_a_fact_are_erased_with_it(store: Store) -> None:
    """They cannot be found any more, and 'restore' brought the secret back."""
    town = make_town(store)
    kept, gone, restored, other = (
        add_fact(store, town.his(), text)
        for text in ("Code 4711.", "The code: 4711!", "He said 4711.", "His boat has number 4711.")
    )
    change = {"scope": kept.home, "expected_version": 1, "at": NOW}
    applied(store, ReviseFact(**change, fact_id=kept.id, content="The code is 4711."))
    for fact in (gone, restored):
        reason = merge_reason(kept.id)
        applied(store, RemoveFact(**change, fact_id=fact.id, reason=reason))
    applied(store, RemoveFact(**change, fact_id=other.id, reason="merged into another one"))
    add_facts(store, restored)
    plan = plan_of(store, facts=[kept.id])
    assert set(plan.traces.facts) == {kept.id, gone.id}
    assert forget(store, plan=plan).complete
    assert not store.history.versions("fact", gone.id)
    assert "code" not in _texts(store)
    assert store.history.versions("fact", other.id)
    assert store.memory.fact(restored.id) is not None
    assert subject_of(store, facts=[kept.id]).id == plan.subject.id


def test_a_text_of_one_word_is_not_found_in_sentences(store: Store) -> None:
    """Old versions of other facts with the word were emptied without a question."""
    town = make_town(store)
    short = add_fact(store, town.his(), "Tea.")
    same = add_fact(store, town.group, "tea")
    revised = add_fact(store, town.group, "Bruno drinks tea at six.")
    revise(store, revised, "Bruno drinks coffee at six.")
    plan = plan_of(store, facts=[short.id])
    assert [mention.target_id for mention in plan.mentions] == [same.id]
    assert forget(store, plan=plan).complete
    found = some(store.memory.fact(revised.id))
    assert found.previous_content == "Bruno drinks tea at six."
    named = plan_of(store, facts=[same.id], names=["tea"])
    assert {mention.target_id for mention in named.mentions} == {revised.id}


def test_a_fact_that_changes_after_the_plan_is_not_erased_by_half(leak: Leak) -> None:
    """A formation gives the fact another text after the plan was shown."""
    store, town = leak.store, leak.town
    plan = plan_of(store, facts=[leak.fact.id])
    text = "The safe opens with quince9999."
    add_fact(store, town.everybody, f"Note: {text}")
    revision = ReviseFact(
        scope=leak.fact.home, fact_id=leak.fact.id, expected_version=2, content=text, at=NOW
    )
    applied(store, revision)
    with pytest.raises(ConflictError, match="another writer"):
        forget(store, plan=plan)
    plan = plan_of(store, facts=[leak.fact.id])
    assert plan.begun_at is not None
    decisions = [MentionDecision(mention=one, treatment="remove") for one in plan.mentions]
    assert len(decisions) == 1
    assert forget(store, decisions, plan=plan).complete
    assert "quince" not in _texts(store)


def test_mentions_are_kept_without_a_decision(leak: Leak) -> None:
    store = leak.store
    same = add_fact(store, leak.town.group, SECRET)
    report = forget(store, facts=[leak.fact.id])
    assert report.complete, (report.remains, report.unfinished)
    assert report.mentions["kept"] == 1
    assert store.memory.fact(same.id) is not None
    assert store.memory.fact(leak.fact.id) is None


@ON_BOTH
def test_records_of_other_formations_are_emptied(leak: Leak) -> None:
    """A later message repeated the text, and the decision to add nothing quoted it."""
    store, town = leak.store, leak.town
    messages = make_messages(town.lone, 2, start=NOW - timedelta(minutes=1))
    store.host.add_messages(town.lone.id, messages)
    formation = make_formation(town.lone, messages, seq=2)
    assert store.formations.claim(formation)
    assert Steps(store).record(
        formation.id,
        changes=change_set(AddFact(fact=make_fact(town.group, f"Heard: {SECRET}"))),
        decisions=(Decision(content=SECRET, action="NONE", target_id=leak.fact.id),),
    )
    forget(store, facts=[leak.fact.id])
    found = some(store.formations.formation(formation.id))
    assert (found.status, found.decisions, found.changes) == (FormationStatus.APPLIED, (), None)
    # The recorded fact is another one, which the next run lists.
    (mention,) = plan_of(store, facts=[leak.fact.id], names=["quince4711"]).mentions
    assert mention.text == f"Heard: {SECRET}"


@ON_BOTH
def test_other_facts_lose_the_words_of_the_source_messages(leak: Leak) -> None:
    store, town = leak.store, leak.town
    message = leak.sources[0]
    add_fact(store, town.his(), "Bruno owns a safe.", source_message_ids=(message.id,))
    forget(store, facts=[leak.fact.id])
    backup = {
        each.id: getattr(each.record, "forgotten", False)
        for each in store.walk.documents(("message",))  # type: ignore[arg-type]
    }
    assert {id for id, forgotten in backup.items() if forgotten} == {
        each.id for each in leak.sources
    }


def test_messages_are_removed_only_where_they_are_ours(leak: Leak) -> None:
    store = leak.store
    plan = plan_of(store, facts=[leak.fact.id])
    assert plan.conversations == {"messages": 2}
    if store.database.info().kind != "sqlite":
        with pytest.raises(UsageError, match="platform"):
            forget(store, messages=True, plan=plan)
        return
    report = forget(store, messages=True, plan=plan)
    assert report.complete
    assert report.removed["messages"] == 2
    left = {message.id for message in store.host.messages(leak.town.lone.id)}
    assert left.isdisjoint(message.id for message in leak.sources)
    assert len(left) == 2


def test_a_fact_excludes_other_subjects(leak: Leak) -> None:
    for more in ({"user": "bruno"}, {"agent": "eve"}):
        with pytest.raises(UsageError, match="exclude"):
            subject_of(leak.store, facts=[leak.fact.id], **more)
    with pytest.raises(NotFoundError):
        subject_of(leak.store, facts=["0123456789abcdef01234567"])
