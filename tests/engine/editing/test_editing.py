"""Edits of an operator on a real store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from edenmem.embed.protocol import Role
from edenmem.engine.reports import EditReport
from edenmem.errors import ConflictError, EdenmemError, NotFoundError, ProviderTimeout, UsageError
from edenmem.memory import plain
from edenmem.models.changes import AddReflection, ChangeStatus
from edenmem.models.memory import Consolidation, Fact, Policy, Reflection
from edenmem.models.scope import Scope
from edenmem.settings.schema import Settings
from edenmem.store.protocol.store import Store
from tests.support.builders import (
    NOW,
    FixedClock,
    ago,
    change_set,
    make_actor,
    make_agent,
    make_fact,
    make_reflection,
    make_session,
    make_user,
    some,
    writing,
)
from tests.support.editing import AwaitedEditor
from tests.support.embedder import FakeEmbedder
from tests.support.memory import add_facts, applied
from tests.support.runtime import make_runtime

LISBON, PORTO, FARO = (f"Anna lives in {town}." for town in ("Lisbon", "Porto", "Faro"))
CAT = "Anna has a cat."
NOBODY = "f" * 24


class World:
    """An agent, a user and a session of the host, with an editor."""

    def __init__(self, store: Store, embedder: FakeEmbedder, clock: FixedClock) -> None:
        self.store, self.embedder = store, embedder
        self.agent, self.user = make_agent("eden"), make_user("anna")
        self.session = make_session([self.agent], [self.user])
        store.host.add_agent(self.agent)
        store.host.add_user(self.user)
        store.host.put_session(self.session)
        self.of_user = Scope.user(self.agent.id, self.user.id)
        self.of_session = Scope.session(self.agent.id, self.session.id)
        actor = make_actor("fact edit")
        self.editor = AwaitedEditor(
            make_runtime(store, Settings(), embedder=embedder, actor=actor, clock=clock)
        )
        #: Without an embedding model.
        self.other = AwaitedEditor(make_runtime(store, Settings()))

    def fact(self, content: str = LISBON, *, is_embedded: bool = False) -> Fact:
        vector = self.embedder.vector(content) if is_embedded else None
        model = self.embedder.model if is_embedded else None
        fact = make_fact(
            self.of_user, content, formed_at=ago(days=9), embedding=vector, embedding_model=model
        )
        add_facts(self.store, fact)
        return fact

    def reflection(self) -> Reflection:
        reflection = make_reflection(self.of_user, "Anna likes short answers.")
        applied(self.store, AddReflection(reflection=reflection, word_limit=300))
        return reflection

    def text(self, content: str, version: int = 0, absorbed: Sequence[str] = ()) -> None:
        change = writing(
            self.of_user, content, expected_version=version, absorbed_ids=tuple(absorbed)
        )
        (result,) = self.store.changes.apply(change_set(change))
        assert result.ok

    def consolidation(self) -> Consolidation:
        return self.store.memory.consolidations([self.of_user])[self.of_user]

    def policy(self) -> Policy | None:
        return self.store.memory.policies([self.of_user]).get(self.of_user)

    def stored(self, fact_id: str) -> Fact:
        return some(self.store.memory.fact(fact_id, with_vector=True))

    def documents(self) -> int:
        return sum(self.store.database.info().counts.values())


@pytest.fixture
def world(sqlite_store: Store, embedder: FakeEmbedder, clock: FixedClock) -> World:
    return World(sqlite_store, embedder, clock)


def words(count: int) -> str:
    return " ".join(f"word{number}" for number in range(count))


# -- adding facts --------------------------------------------------------------------------------


async def test_a_fact_is_stored_with_its_vector_and_audited(world: World) -> None:
    report = await world.editor.add_fact(
        world.of_user, "  Anna\x00 has a cat.\x1b ", private=True, reason="she said so"
    )
    fact = world.stored(report.target_id)
    assert (fact.content, fact.private, fact.home) == (CAT, True, world.of_user)
    assert fact.embedding == world.embedder.vector(CAT)
    assert fact.embedding_model == world.embedder.model
    assert report.before is None
    after = some(report.after)
    assert after["content"] == CAT
    assert after["formed_at"].startswith("2026-03-14T12:00:00")
    assert "embedding" not in after
    entry = some(world.store.log.audit_entry(some(report.result).change_id))
    assert (entry.actor.command, entry.reason) == ("fact edit", "she said so")


async def test_a_dry_run_writes_nothing_and_asks_no_model(world: World) -> None:
    fact, before = world.fact(), world.documents()
    added = await world.editor.add_fact(world.of_user, CAT, dry_run=True)
    assert added.dry_run
    assert added.after is not None
    edited = await world.editor.edit(fact.id, PORTO, expected_version=1, dry_run=True)
    after = some(edited.after)
    assert (after["content"], after["version"]) == (PORTO, 2)
    assert world.stored(fact.id).content == fact.content
    assert world.documents() == before
    assert not world.embedder.calls


async def test_repeating_an_addition_changes_nothing(world: World) -> None:
    first = await world.editor.add_fact(world.of_user, CAT)
    again = await world.editor.add_fact(world.of_user, CAT)
    assert (again.action, again.target_id) == ("none", first.target_id)
    assert again.notices


async def test_without_an_embedder_no_vector_is_stored_or_stays(world: World) -> None:
    """Known failure 19: a vector of a text that is no more."""
    report = await world.other.add_fact(world.of_user, CAT)
    assert world.stored(report.target_id).embedding is None
    assert any("embed backfill" in notice for notice in report.notices)
    fact = world.fact(is_embedded=True)
    report = await world.other.edit(fact.id, PORTO, expected_version=1)
    after = world.stored(fact.id)
    assert (after.embedding, after.embedding_model) == (None, None)
    assert report.notices


async def test_an_embedder_that_fails_changes_nothing(world: World) -> None:
    """Known failures 27 and 51: a failed embedding is stored as zeros, or after a deletion."""
    fact = world.fact(is_embedded=True)
    stored, before = world.stored(fact.id), world.documents()
    for edit in (
        world.editor.add_fact(world.of_user, CAT),
        world.editor.edit(fact.id, PORTO, expected_version=1),
    ):
        world.embedder.failures.append(ProviderTimeout("no answer"))
        with pytest.raises(ProviderTimeout):
            await edit
    assert world.documents() == before
    assert world.stored(fact.id) == stored
    assert (stored.content, stored.embedding) == (fact.content, fact.embedding)


@pytest.mark.parametrize(
    ("scope", "content", "options", "error", "match", "hint"),
    [
        ("user", "", {}, UsageError, "empty", ""),
        ("user", "  \n ", {}, UsageError, "empty", ""),
        ("user", "\x00\x07", {}, UsageError, "empty", ""),
        ("user", words(31), {}, UsageError, "31 words, the limit is 30", "--allow-long"),
        ("session", CAT, {}, UsageError, "session scope has no facts", ""),
        ("nobody", CAT, {}, NotFoundError, "agent", f"edenmem agent add NAME --id {NOBODY}"),
        ("no user", CAT, {}, NotFoundError, "user", f"edenmem user add NAME --id {NOBODY}"),
        ("shard", CAT, {}, NotFoundError, "shard", ""),
        ("user", CAT, {"session_id": NOBODY}, NotFoundError, "session", ""),
    ],
)
async def test_what_cannot_be_a_fact_is_rejected(
    world: World,
    scope: str,
    content: str,
    options: dict[str, Any],
    error: type[EdenmemError],
    match: str,
    hint: str,
) -> None:
    scopes = {
        "user": world.of_user,
        "session": world.of_session,
        "nobody": Scope.agent(NOBODY),
        "no user": Scope.user(world.agent.id, NOBODY),
        "shard": Scope.shard(world.agent.id, "events"),
    }
    before = world.documents()
    with pytest.raises(error, match=match) as caught:
        await world.editor.add_fact(scopes[scope], content, **options)
    assert hint in (caught.value.hint or "")
    assert world.documents() == before


async def test_what_is_at_the_limit_or_allowed_is_accepted(world: World) -> None:
    add = world.editor.add_fact
    assert (await add(world.of_user, words(30))).result is not None
    assert (await add(world.of_user, words(31), allow_long=True)).result is not None
    canonical = "e" * 24
    world.store.host.add_user(make_user("anna-on-telegram", eden_user_id=canonical))
    assert (await add(Scope.user(world.agent.id, canonical), "A fact.")).result is not None


async def test_a_paused_scope_accepts_nothing_new(world: World) -> None:
    unchanged = await world.editor.set_policy(world.of_user, {"active": True})
    assert unchanged.action == "none"
    await world.editor.set_policy(world.of_user, {"active": False})
    with pytest.raises(UsageError, match="paused") as caught:
        await world.editor.add_fact(world.of_user, CAT)
    assert "resume" in (caught.value.hint or "")
    await world.editor.set_policy(world.of_user, {"active": True})
    assert (await world.editor.add_fact(world.of_user, CAT)).result is not None


# -- editing, deleting and restoring facts -------------------------------------------------------


async def test_the_new_text_has_a_new_vector_and_the_old_one_is_history(world: World) -> None:
    """Known failure 19: the text changes and the vector does not."""
    fact = world.fact(is_embedded=True)
    report = await world.editor.edit(fact.id, PORTO, expected_version=1)
    after = world.stored(fact.id)
    assert (after.content, after.version, after.previous_content) == (PORTO, 2, LISBON)
    assert after.embedding == world.embedder.vector(PORTO)
    assert after.updated_at == NOW
    assert some(report.before)["content"] == LISBON
    assert report.after == plain(after)
    contents = [entry.content for entry in world.store.history.versions("fact", fact.id)]
    assert contents == [LISBON, PORTO]


async def test_a_conflict_is_an_error(world: World) -> None:
    fact = world.fact()
    await world.editor.edit(fact.id, PORTO, expected_version=1)
    with pytest.raises(ConflictError, match="version 2"):
        await world.editor.edit(fact.id, FARO, expected_version=1)
    assert world.stored(fact.id).content == PORTO
    await world.editor.set_policy(world.of_user, {"word_limit": 5})
    with pytest.raises(ConflictError):
        await world.editor.set_policy(world.of_user, {"word_limit": 6}, expected_version=0)


async def test_the_store_detects_a_conflict_after_the_check(world: World) -> None:
    """The change comes between the check and the write."""
    fact, original = world.fact(), world.embedder.embed

    async def slow(texts: Sequence[str], *, role: Role) -> object:
        await world.other.edit(fact.id, FARO, expected_version=1)
        return await original(texts, role=role)

    world.embedder.embed = slow  # type: ignore[method-assign,assignment]
    with pytest.raises(ConflictError):
        await world.editor.edit(fact.id, PORTO, expected_version=1)
    assert world.stored(fact.id).content == FARO


async def test_known_failure_22_the_corrected_text_survives_if_it_is_known_already(
    world: World,
) -> None:
    """Known failure 22: the old fact goes and the new one is not there."""
    old, there = world.fact(LISBON), world.fact(PORTO)
    dry = await world.editor.edit(old.id, PORTO, expected_version=1, dry_run=True)
    assert dry.notices[0].endswith(f"and {old.id} would be removed in its favor")
    assert world.stored(old.id) == old
    done = await world.editor.edit(old.id, PORTO, expected_version=1)
    assert (dry.target_id, dry.before, dry.after) == (done.target_id, done.before, done.after)
    assert some(done.result).status is ChangeStatus.DUPLICATE
    assert done.target_id == some(done.after)["id"] == there.id
    assert old.id in done.notices[0]
    assert world.stored(there.id).content == PORTO
    assert world.store.memory.fact(old.id) is None


async def test_the_same_text_changes_nothing(world: World) -> None:
    fact = world.fact()
    report = await world.editor.edit(fact.id, fact.content + " ", expected_version=1)
    assert report.action == "none"
    assert world.stored(fact.id).version == 1


async def test_a_deleted_fact_is_restored_with_its_id(world: World) -> None:
    fact = world.fact(is_embedded=True)
    before = world.stored(fact.id)
    deleted = await world.editor.delete(fact.id, expected_version=1)
    assert deleted.after is None
    assert world.store.memory.fact(fact.id) is None
    report = await world.editor.restore_fact(fact.id)
    assert report.target_id == fact.id
    after = world.stored(fact.id)
    assert after.version > before.version
    assert after == msgspec.structs.replace(before, version=after.version, updated_at=NOW)
    assert not world.embedder.calls


async def test_an_earlier_text_is_restored_as_a_new_version(world: World) -> None:
    fact = world.fact(is_embedded=True)
    await world.editor.edit(fact.id, PORTO, expected_version=1)
    await world.editor.restore_fact(fact.id, version=1)
    after = world.stored(fact.id)
    assert (after.content, after.version) == (LISBON, 3)
    assert after.embedding == world.embedder.vector(LISBON)
    assert len(world.store.history.versions("fact", fact.id)) == 3
    with pytest.raises(UsageError, match="not deleted"):
        await world.editor.restore_fact(fact.id)
    with pytest.raises(NotFoundError, match="fact not found"):
        await world.editor.restore_fact(NOBODY)
    with pytest.raises(NotFoundError, match="version 9") as caught:
        await world.editor.restore_fact(fact.id, version=9)
    assert "1" in (caught.value.hint or "")


async def test_a_deleted_fact_is_restored_with_an_earlier_text(world: World) -> None:
    fact = world.fact()
    await world.editor.edit(fact.id, PORTO, expected_version=1)
    await world.editor.delete(fact.id)
    await world.editor.restore_fact(fact.id, version=1)
    after = world.stored(fact.id)
    assert (after.content, after.previous_content) == (LISBON, PORTO)


async def test_a_deleted_fact_whose_text_is_known_again_stays_deleted(world: World) -> None:
    fact = world.fact()
    await world.editor.delete(fact.id)
    there = world.fact()
    report = await world.editor.restore_fact(fact.id)
    assert report.target_id == there.id
    assert some(report.result).status is ChangeStatus.DUPLICATE
    assert world.store.memory.fact(fact.id) is None


# -- reflections ---------------------------------------------------------------------------------


async def test_a_reflection_is_added_edited_and_deleted(world: World) -> None:
    memory = world.store.memory
    added = await world.editor.add_reflection(world.of_user, "Anna is patient.")
    assert [item.id for item in memory.pending(world.of_user)] == [added.target_id]
    await world.editor.edit(added.target_id, "Anna is kind.", expected_version=1)
    stored = some(memory.reflection(added.target_id))
    assert (stored.content, stored.version) == ("Anna is kind.", 2)
    await world.editor.delete(added.target_id, expected_version=2)
    assert memory.pending(world.of_user) == []
    assert memory.reflection(added.target_id) is None
    with pytest.raises(NotFoundError, match="not found"):
        await world.editor.delete(added.target_id)


async def test_a_reflection_has_a_session_and_limits_of_its_own(world: World) -> None:
    report = await world.editor.add_reflection(world.of_session, "The mood was good.")
    assert some(report.after)["session_id"] == world.session.id
    with pytest.raises(UsageError, match="36 words, the limit is 35"):
        await world.editor.add_reflection(world.of_user, words(36))


async def test_an_absorbed_reflection_cannot_be_edited(world: World) -> None:
    reflection = world.reflection()
    world.text("Anna likes short answers.", absorbed=[reflection.id])
    with pytest.raises(UsageError, match="consolidated text") as caught:
        await world.editor.edit(reflection.id, "Something else.", expected_version=1)
    assert "consolidation edit" in (caught.value.hint or "")


async def test_privacy_of_a_fact_and_of_a_reflection(world: World) -> None:
    fact, reflection = world.fact(), world.reflection()
    await world.editor.set_private(fact.id, True)
    await world.editor.set_private(reflection.id, True)
    stored = world.stored(fact.id)
    assert (stored.private, stored.version) == (True, 1)
    assert some(world.store.memory.reflection(reflection.id)).private


# -- texts ---------------------------------------------------------------------------------------


async def test_the_first_text_of_a_scope_has_no_version_line(world: World) -> None:
    report = await world.editor.edit_consolidation(
        world.of_user, "VERSION: 7\nAnna.", expected_version=0
    )
    text = world.consolidation()
    assert report.before is None
    assert report.target_id == text.id
    assert (text.consolidated_content, text.version) == ("Anna.", 1)


async def test_pending_reflections_stay_pending(world: World) -> None:
    world.text("One.")
    reflection = world.reflection()
    await world.editor.edit_consolidation(world.of_user, "Two.", expected_version=1)
    after = world.consolidation()
    assert (after.consolidated_content, after.version) == ("Two.", 2)
    assert after.unabsorbed_ids == (reflection.id,)


@pytest.mark.parametrize("blank", ["", " \n", "VERSION: 2\n"])
async def test_known_failure_11_a_blank_text_is_refused(world: World, blank: str) -> None:
    """Known failure 11: a blank overwrites the text."""
    world.text("One.")
    with pytest.raises(UsageError, match="empty"):
        await world.editor.edit_consolidation(world.of_user, blank, expected_version=1)
    assert world.consolidation().consolidated_content == "One."


async def test_the_limit_of_the_scope_applies(world: World) -> None:
    await world.editor.set_policy(world.of_user, {"word_limit": 5})
    edit = world.editor.edit_consolidation
    with pytest.raises(UsageError, match="6 words, the limit is 5"):
        await edit(world.of_user, words(6), expected_version=0)
    report = await edit(world.of_user, words(6), expected_version=0, allow_long=True)
    assert report.result is not None


async def test_an_old_text_is_restored_as_a_new_version(world: World) -> None:
    world.text("One.")
    world.text("Two.", version=1)
    await world.editor.restore_consolidation(world.of_user, 1)
    after = world.consolidation()
    assert (after.consolidated_content, after.version) == ("One.", 3)
    assert after.fixed == ()  # nobody wrote it anew
    history = world.store.history.versions("consolidation", "", scope=world.of_user)
    assert [entry.content for entry in history] == ["One.", "Two.", "One."]
    assert (await world.editor.restore_consolidation(world.of_user, 1)).action == "none"
    with pytest.raises(NotFoundError, match="version 4"):
        await world.editor.restore_consolidation(world.of_user, 4)


# -- policies and agents -------------------------------------------------------------------------


async def test_a_policy_creates_its_shard(world: World) -> None:
    scope = Scope.shard(world.agent.id, "events")
    await world.editor.set_policy(scope, {"memory_instructions": "Dates of concerts."})
    assert [policy.shard for policy in world.store.memory.shards(world.agent.id)] == ["events"]
    assert (await world.editor.add_fact(scope, "A concert on May 3.")).result is not None


@pytest.mark.parametrize("name", ["two\nlines", " padded ", "x" * 101, "bell\x07"])
async def test_a_shard_name_is_one_plain_line(world: World, name: str) -> None:
    with pytest.raises(UsageError, match="name"):
        await world.editor.set_policy(Scope.shard(world.agent.id, name), {"active": True})


async def test_values_may_be_text_and_empty_text_restores_the_default(world: World) -> None:
    await world.editor.set_policy(
        world.of_user,
        {"word_limit": "250", "private": "true", "fast_model": " m ", "fact_buffer_max": 0},
    )
    policy = some(world.policy())
    assert (policy.word_limit, policy.private, policy.fast_model) == (250, True, "m")
    assert (policy.fact_buffer_max, policy.version) == (0, 1)
    await world.editor.set_policy(world.of_user, {"word_limit": None, "fast_model": ""})
    policy = some(world.policy())
    assert (policy.word_limit, policy.fast_model, policy.version) == (None, None, 2)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"word_limit": 0},
        {"word_limit": -3},
        {"consolidate_at": "many"},
        {"fact_buffer_max": -1},
        {"active": "perhaps"},
        {"active": None},
        {"wordlimit": 3},
        {"agent_id": NOBODY},
        {"version": 9},
        {"memory_instructions": 5},
    ],
)
async def test_an_invalid_value_is_rejected(world: World, changes: dict[str, object]) -> None:
    with pytest.raises(UsageError) as caught:
        await world.editor.set_policy(world.of_user, changes)
    if changes:
        assert next(iter(changes)) in caught.value.message
    assert world.policy() is None


async def test_an_agent_is_switched(world: World) -> None:
    report = await world.editor.set_agent(world.agent.id, user_memory=False)
    agent = some(world.store.host.agent(world.agent.id))
    assert (agent.user_memory_enabled, agent.agent_memory_enabled) == (False, True)
    assert some(report.before)["user_memory_enabled"] is True
    assert (await world.editor.set_agent(world.agent.id, user_memory=False)).action == "none"
    with pytest.raises(UsageError):
        await world.editor.set_agent(world.agent.id)
    with pytest.raises(NotFoundError):
        await world.editor.set_agent(NOBODY, agent_memory=False)


def test_reports_can_be_encoded() -> None:
    report = EditReport(
        action="none", target_type="fact", target_id="a", before=None, after=None, dry_run=True
    )
    assert b"none" in msgspec.json.encode(report)
