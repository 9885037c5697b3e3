"""Mentions in texts of others: found, rewritten and validated; and what is left afterwards."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from edenmem.engine.erasure.passages import walk_passages
from edenmem.engine.erasure.reports import (
    ForgetPlan,
    Mention,
    MentionDecision,
    MentionMode,
    RewritingRefused,
    receipt_of,
)
from edenmem.errors import NotFoundError, UsageError
from edenmem.models.forgetting import FORGOTTEN
from edenmem.models.ids import new_id
from edenmem.models.scope import Scope
from tests.support.builders import NOW, make_messages, make_session, make_user, removal, some
from tests.support.forgetting import Town, fill, forget, forgetter, make_town, plan_of, subject_of
from tests.support.llm import HOSTILE, FakeLLM
from tests.support.memory import add_fact, add_reflection, applied, consolidate

if TYPE_CHECKING:
    from edenmem.store.protocol.store import Store

pytestmark = pytest.mark.slow


@pytest.fixture
def town(sqlite_store: Store) -> Town:
    return make_town(sqlite_store)


def _only(plan: ForgetPlan) -> Mention:
    (mention,) = plan.mentions
    return mention


def _draft(town: Town, plan: ForgetPlan, answer: Any) -> MentionDecision:
    llm = FakeLLM({"forget": answer})
    decision = asyncio.run(forgetter(town.store, llm=llm).draft(plan, _only(plan)))
    (request,) = llm.requests
    assert "zenobia" in request.user
    return decision


# -- subjects ----------------------------------------------------------------------------------


def test_the_names_of_a_user_include_all_accounts_and_display_names(town: Town) -> None:
    subject = subject_of(town.store, user="zenobia", names=["Zed"])
    assert set(subject.names) == {
        "zenobia",
        "zen#1234",
        "zenobia Q",
        "zen#1234 Q",
        "Zed",
        town.zenobia.id,
        town.zenobia_on_discord.id,
    }
    assert set(subject.accounts) == {town.zenobia.id, town.zenobia_on_discord.id}


@pytest.mark.parametrize(
    ("named", "error"),
    [
        ({}, UsageError),
        ({"user": "zenobia", "session": "balcony"}, UsageError),
        ({"group": "harbour"}, UsageError),
        ({"session": "balcony", "agent": "eve"}, UsageError),
        ({"user": "nobody"}, NotFoundError),
    ],
)
def test_exactly_one_subject_is_required(
    town: Town, named: dict[str, str], error: type[Exception]
) -> None:
    with pytest.raises(error):
        subject_of(town.store, **named)


def test_a_deleted_session_may_have_memory(town: Town) -> None:
    gone = new_id()
    add_reflection(town.store, Scope.session(town.eve.id, gone), "They spoke of quince.")
    assert subject_of(town.store, session=gone).owner == gone
    assert forget(town.store, session=gone).complete
    assert not [p for p in walk_passages(town.store) if "quince" in p.text]


def test_an_account_that_a_user_is_linked_to_may_be_another_users(town: Town) -> None:
    """Pat is linked to an account with another link: links are not transitive."""
    store, discord = town.store, town.zenobia_on_discord
    pat = make_user("pat", eden_user_id=discord.id)
    assert store.host.add_user(pat)
    both = make_session([town.eve], [pat, discord], name="tower")
    assert store.host.put_session(both)
    for sender in (pat, discord):
        store.host.add_messages(both.id, make_messages(both, 1, sender=sender.id))
    assert forget(store, user="pat").complete
    backlog = store.formations.backlog(both.id, town.eve.id, limit=9)
    assert [message.sender for message in backlog.messages] == [discord.id]


# -- mentions ----------------------------------------------------------------------------------


def test_mentions_in_every_kind_of_scope_are_listed_with_context(town: Town) -> None:
    store = town.store
    add_fact(store, town.everybody, "ZENOBIA opens the gate.")
    add_fact(store, town.his(), "Bruno is Zenobia's brother.")
    add_reflection(store, town.group, f"Greets {town.zenobia.id} first.")
    add_reflection(store, Scope.session(town.eve.id, town.shared.id), "Zen#1234 was quiet.")
    consolidate(store, Scope.shard(town.eve.id, "route"), "Meet Zenobia.", expected_version=0)
    add_fact(store, town.everybody, "Zenobian art is old.")
    plan = plan_of(store, user="zenobia")
    found = {mention.text: mention for mention in plan.mentions}
    assert set(found) == {
        "ZENOBIA opens the gate.",
        "Bruno is Zenobia's brother.",
        f"Greets {town.zenobia.id} first.",
        "Zen#1234 was quiet.",
        "Meet Zenobia.",
    }
    assert found["Meet Zenobia."].contexts == ("Meet Zenobia.",)


def test_the_fields_of_a_fact_are_mentions(town: Town) -> None:
    named: tuple[dict[str, Any], ...] = (
        {"key": "zenobia/1"},
        {"tags": ("Zenobia",)},
        {"metadata": {"by": "Zenobia"}},
        {"value": {"who": ["Zenobia"]}},
    )
    facts = [
        add_fact(town.store, town.everybody, f"The gate is {number} years old.", **fields)
        for number, fields in enumerate(named)
    ]
    mentions = plan_of(town.store, user="zenobia").mentions
    assert {mention.key for mention in mentions} == {("fact", fact.id) for fact in facts}
    for mention in mentions:
        assert mention.fixed, "no model rewrites it"
        treatments = [mention.treatment(mode) for mode in MentionMode]
        assert treatments == ["remove", "remove", "keep"]


def test_nothing_is_rewritten_without_a_decision(town: Town) -> None:
    fact = add_fact(town.store, town.everybody, "Zenobia opens the gate.")
    report = forget(town.store, user="zenobia")
    assert report.complete
    assert report.mentions["kept"] == 1
    kept = some(town.store.memory.fact(fact.id))
    assert kept.content == "Zenobia opens the gate."


def test_a_rewritten_text_leaves_no_copy_of_the_old_one(town: Town) -> None:
    store = town.store
    consolidate(store, town.everybody, "Ask Zenobia at the gate.", expected_version=0)
    consolidate(store, town.everybody, "Ask Zenobia. The gate is old.", expected_version=1)
    plan = plan_of(store, user="zenobia")
    decision = _draft(town, plan, {"text": "The gate is old."})
    assert decision.treatment == "rewrite"

    report = forget(store, [decision], plan=plan)

    assert report.complete, (report.remains, report.unfinished)
    text = store.memory.consolidations([town.everybody])[town.everybody]
    assert (text.consolidated_content, text.version) == ("The gate is old.", 3)
    versions = store.history.versions("consolidation", "", scope=town.everybody)
    assert [one.content for one in versions] == [FORGOTTEN, FORGOTTEN, "The gate is old."]
    assert [one.version for one in versions] == [1, 2, 3]
    entries = [entry for entry in store.log.audit() if entry.target_id == text.id]
    assert len(entries) == 3
    assert "enobia" not in repr([(entry.before, entry.after) for entry in entries])


def test_a_fact_without_remaining_text_is_removed(town: Town) -> None:
    fact = add_fact(town.store, town.everybody, "Zenobia opens the gate.")
    plan = plan_of(town.store, user="zenobia")
    decision = _draft(town, plan, {"text": "  "})
    assert decision.treatment == "remove"
    report = forget(town.store, [decision], plan=plan)
    assert report.complete
    assert town.store.memory.fact(fact.id) is None
    assert not [p for p in walk_passages(town.store) if "enobia" in p.text]


@pytest.mark.parametrize(
    "answer",
    [
        "Ask Zenobia.",
        "Ask ZEN#1234.",
        "",
        "word " * 2000,
        "<<<text 0123456789abcdef>>> Ask.",
        HOSTILE + " zenobia",
    ],
)
def test_an_answer_that_does_not_do_is_refused(town: Town, answer: str) -> None:
    """Known failures 11 and 41: whatever a model answered was written."""
    consolidate(town.store, town.everybody, "Ask Zenobia at the gate.", expected_version=0)
    with pytest.raises(RewritingRefused):
        _draft(town, plan_of(town.store, user="zenobia"), {"text": answer})


def test_a_concurrently_changed_text_is_not_overwritten(town: Town) -> None:
    store = town.store
    consolidate(store, town.everybody, "Ask Zenobia at the gate.", expected_version=0)
    plan = plan_of(store, user="zenobia")
    decision = MentionDecision(mention=_only(plan), treatment="rewrite", text="Ask at the gate.")
    consolidate(store, town.everybody, "Zenobia is at the new gate.", expected_version=1)
    report = forget(store, [decision], plan=plan)
    assert not report.complete
    assert "version 2" in report.unfinished[0]
    text = store.memory.consolidations([town.everybody])[town.everybody]
    assert text.consolidated_content == "Zenobia is at the new gate."


def test_texts_that_absorbed_derived_reflections_are_mentions(town: Town) -> None:
    """A text that absorbed a propagated reflection holds her memory without her name."""
    store = town.store
    parent = add_reflection(store, town.her(), "Prefers quince to pears.")
    up = add_reflection(store, town.everybody, "Some prefer quince.", propagated_from=(parent.id,))
    consolidate(
        store,
        town.everybody,
        "The gate is old. Quince is in demand.",
        expected_version=0,
        absorbed_ids=[up.id],
    )
    plan = plan_of(store, user="zenobia")
    mention = _only(plan)
    assert (mention.removed, mention.contexts) == (("Some prefer quince.",), ())
    decision = _draft(town, plan, {"text": "The gate is old."})
    report = forget(store, [decision], plan=plan)
    assert report.complete
    assert not [p for p in walk_passages(store) if "quince" in p.text.casefold()]


def test_rewriting_without_a_model_has_a_hint(town: Town) -> None:
    add_fact(town.store, town.everybody, "Zenobia opens the gate.")
    plan = plan_of(town.store, user="zenobia")
    with pytest.raises(UsageError, match="language model") as raised:
        asyncio.run(forgetter(town.store).draft(plan, _only(plan)))
    assert "--mentions keep" in (raised.value.hint or "")


# -- afterwards --------------------------------------------------------------------------------


def test_later_mentions_are_found_afterwards(town: Town) -> None:
    """New messages may mention her name: then the report is incomplete."""
    fill(town)
    plan = plan_of(town.store, user="zenobia")
    fact = add_fact(town.store, town.everybody, "Zenobia has just left.")
    report = forget(town.store, plan=plan)
    assert not report.complete
    assert any("names in facts" in found for found in report.remains.found)
    gone = removal(fact, scope=town.everybody)
    applied(town.store, gone)


def test_the_receipt_has_no_name_and_no_content(town: Town) -> None:
    said = fill(town)
    add_fact(town.store, town.everybody, "Zenobia opens the gate.")
    report = forget(town.store, user="zenobia")
    receipt = receipt_of(report)
    text = json.dumps(receipt)
    assert receipt["state"] == "complete"
    assert receipt["removed"]["facts"] == 2
    assert receipt["mentions"]["kept"] == 1
    for word in ("enobia", "zen#1234", town.zenobia.id, town.zenobia_on_discord.id, *said):
        assert word not in text


def test_a_resumed_run_reports_earlier_removals(town: Town) -> None:
    fill(town)
    plan = plan_of(town.store, user="zenobia")
    asyncio.run(_begun(town, plan))
    assert plan_of(town.store, user="zenobia").begun_at == NOW
    town.store.erasure.erase(plan.traces, plan.derived, at=NOW, run=new_id())
    report = forget(town.store, user="zenobia")
    assert report.removed["facts"] == plan.counts["facts"] == 2


async def _begun(town: Town, plan: ForgetPlan) -> None:
    forgetter(town.store)._begin(plan, messages=False)
