"""Edits of an operator on a real store."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from edenmem.embed.protocol import Role
from edenmem.engine.history.undo import Undoer
from edenmem.engine.reports import EditReport
from edenmem.errors import ConflictError, NotFoundError, ProviderTimeout, UsageError
from edenmem.memory import plain
from edenmem.models.changes import AddReflection, ChangeStatus
from edenmem.models.host import Agent, Session, User
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

SETTINGS = Settings()


class World:
    """An agent, a user and a session of the host."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.agent: Agent = make_agent("eden")
        self.user: User = make_user("anna")
        self.session: Session = make_session([self.agent], [self.user])
        store.host.add_agent(self.agent)
        store.host.add_user(self.user)
        store.host.put_session(self.session)
        self.of_user = Scope.user(self.agent.id, self.user.id)
        self.of_agent = Scope.agent(self.agent.id)
        self.of_session = Scope.session(self.agent.id, self.session.id)

    def fact(
        self, content: str = "Anna lives in Lisbon.", embedder: FakeEmbedder | None = None
    ) -> Fact:
        vector = embedder.vector(content) if embedder else None
        model = embedder.model if embedder else None
        fact = make_fact(
            self.of_user, content, formed_at=ago(days=9), embedding=vector, embedding_model=model
        )
        add_facts(self.store, fact)
        return fact

    def reflection(self, content: str = "Anna likes short answers.") -> Reflection:
        reflection = make_reflection(self.of_user, content)
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

    def policy(self, scope: Scope) -> Policy | None:
        return self.store.memory.policies([scope]).get(scope)

    def stored(self, fact_id: str) -> Fact:
        return some(self.store.memory.fact(fact_id, with_vector=True))


@pytest.fixture
def world(sqlite_store: Store) -> World:
    return World(sqlite_store)


@pytest.fixture
def editor(world: World, embedder: FakeEmbedder, clock: FixedClock) -> AwaitedEditor:
    return AwaitedEditor(
        make_runtime(
            world.store, SETTINGS, embedder=embedder, actor=make_actor("fact edit"), clock=clock
        )
    )


def documents(store: Store) -> int:
    return sum(store.database.info().counts.values())


def words(count: int) -> str:
    return " ".join(f"word{number}" for number in range(count))


class TestAddFact:
    async def test_is_stored_with_its_vector_and_audited(
        self, editor: AwaitedEditor, world: World, embedder: FakeEmbedder
    ) -> None:
        report = await editor.add_fact(
            world.of_user, "  Anna\x00 has a cat.\x1b ", private=True, reason="she said so"
        )
        fact = world.stored(report.target_id)
        assert fact.content == "Anna has a cat."
        assert fact.private
        assert fact.home == world.of_user
        assert fact.embedding == embedder.vector("Anna has a cat.")
        assert fact.embedding_model == embedder.model
        assert report.before is None
        assert report.after is not None
        assert report.after["content"] == "Anna has a cat."
        assert report.after["formed_at"].startswith("2026-03-14T12:00:00")
        assert "embedding" not in report.after
        assert report.result is not None
        entry = some(world.store.log.audit_entry(report.result.change_id))
        assert (entry.actor.command, entry.reason) == ("fact edit", "she said so")

    async def test_a_dry_run_writes_nothing_and_asks_no_model(
        self, editor: AwaitedEditor, world: World, embedder: FakeEmbedder
    ) -> None:
        before = documents(world.store)
        report = await editor.add_fact(world.of_user, "Anna has a cat.", dry_run=True)
        assert report.dry_run
        assert report.after is not None
        assert documents(world.store) == before
        assert not embedder.calls

    async def test_repeating_an_addition_changes_nothing(
        self, editor: AwaitedEditor, world: World
    ) -> None:
        first = await editor.add_fact(world.of_user, "Anna has a cat.")
        again = await editor.add_fact(world.of_user, "Anna has a cat.")
        assert again.action == "none"
        assert again.target_id == first.target_id
        assert again.notices

    async def test_without_an_embedder_it_is_stored_with_a_hint_to_backfill(
        self, world: World
    ) -> None:
        editor = AwaitedEditor(make_runtime(world.store, SETTINGS))
        report = await editor.add_fact(world.of_user, "Anna has a cat.")
        assert world.stored(report.target_id).embedding is None
        assert any("embed backfill" in notice for notice in report.notices)

    async def test_an_embedder_that_fails_stores_nothing(
        self, editor: AwaitedEditor, world: World, embedder: FakeEmbedder
    ) -> None:
        """Known failure 27: a failed embedding is stored as zeros."""
        before = documents(world.store)
        embedder.failures.append(ProviderTimeout("no answer"))
        with pytest.raises(ProviderTimeout):
            await editor.add_fact(world.of_user, "Anna has a cat.")
        assert documents(world.store) == before

    @pytest.mark.parametrize("content", ["", "  \n ", "\x00\x07"])
    async def test_empty_content_is_rejected(
        self, editor: AwaitedEditor, world: World, content: str
    ) -> None:
        with pytest.raises(UsageError, match="empty"):
            await editor.add_fact(world.of_user, content)

    async def test_too_many_words_are_rejected_unless_allowed(
        self, editor: AwaitedEditor, world: World
    ) -> None:
        with pytest.raises(UsageError, match="31 words, the limit is 30"):
            await editor.add_fact(world.of_user, words(31))
        assert (await editor.add_fact(world.of_user, words(30))).result is not None
        report = await editor.add_fact(world.of_user, words(31), allow_long=True)
        assert report.result is not None

    async def test_a_session_has_no_facts(self, editor: AwaitedEditor, world: World) -> None:
        with pytest.raises(UsageError, match="session scope has no facts"):
            await editor.add_fact(world.of_session, "Anna has a cat.")

    async def test_an_unknown_agent_or_user_is_rejected_with_a_command(
        self, editor: AwaitedEditor, world: World
    ) -> None:
        nobody = "f" * 24
        with pytest.raises(NotFoundError, match="agent") as caught:
            await editor.add_fact(Scope.agent(nobody), "A fact.")
        assert caught.value.hint == f"edenmem agent add NAME --id {nobody}"
        with pytest.raises(NotFoundError, match="user") as caught:
            await editor.add_fact(Scope.user(world.agent.id, nobody), "A fact.")
        assert caught.value.hint == f"edenmem user add NAME --id {nobody}"

    async def test_a_canonical_id_without_an_account_is_accepted(
        self, editor: AwaitedEditor, world: World
    ) -> None:
        canonical = "e" * 24
        world.store.host.add_user(make_user("anna-on-telegram", eden_user_id=canonical))
        scope = Scope.user(world.agent.id, canonical)
        assert (await editor.add_fact(scope, "A fact.")).result is not None

    async def test_a_paused_scope_accepts_nothing_new(
        self, editor: AwaitedEditor, world: World
    ) -> None:
        await editor.set_policy(world.of_user, {"active": False})
        with pytest.raises(UsageError, match="paused") as caught:
            await editor.add_fact(world.of_user, "Anna has a cat.")
        assert "resume" in (caught.value.hint or "")
        await editor.set_policy(world.of_user, {"active": True})
        assert (await editor.add_fact(world.of_user, "Anna has a cat.")).result is not None

    async def test_an_unknown_shard_or_session_is_rejected(
        self, editor: AwaitedEditor, world: World
    ) -> None:
        with pytest.raises(NotFoundError, match="shard"):
            await editor.add_fact(Scope.shard(world.agent.id, "events"), "A fact.")
        with pytest.raises(NotFoundError, match="session"):
            await editor.add_fact(world.of_user, "A fact.", session_id="f" * 24)


class TestEditFact:
    async def test_the_new_text_has_a_new_vector_and_the_old_one_is_history(
        self, editor: AwaitedEditor, world: World, embedder: FakeEmbedder
    ) -> None:
        """Known failure 19: the text changes and the vector does not."""
        fact = world.fact(embedder=embedder)
        report = await editor.edit(fact.id, "Anna lives in Porto.", expected_version=1)
        after = world.stored(fact.id)
        assert (after.content, after.version) == ("Anna lives in Porto.", 2)
        assert after.embedding == embedder.vector("Anna lives in Porto.")
        assert after.previous_content == "Anna lives in Lisbon."
        assert after.updated_at == NOW
        assert report.before is not None
        assert report.after is not None
        assert report.before["content"] == "Anna lives in Lisbon."
        assert report.after == plain(after)
        contents = [entry.content for entry in world.store.history.versions("fact", fact.id)]
        assert contents == ["Anna lives in Lisbon.", "Anna lives in Porto."]

    async def test_without_an_embedder_the_old_vector_does_not_stay(
        self, world: World, embedder: FakeEmbedder
    ) -> None:
        """Known failure 19: a vector of a text that is no more."""
        fact = world.fact(embedder=embedder)
        editor = AwaitedEditor(make_runtime(world.store, SETTINGS))
        report = await editor.edit(fact.id, "Anna lives in Porto.", expected_version=1)
        after = world.stored(fact.id)
        assert (after.embedding, after.embedding_model) == (None, None)
        assert report.notices

    async def test_a_conflict(self, editor: AwaitedEditor, world: World) -> None:
        fact = world.fact()
        await editor.edit(fact.id, "Anna lives in Porto.", expected_version=1)
        with pytest.raises(ConflictError, match="version 2"):
            await editor.edit(fact.id, "Anna lives in Faro.", expected_version=1)
        assert world.stored(fact.id).content == "Anna lives in Porto."

    async def test_the_store_detects_a_conflict_after_the_check(
        self, editor: AwaitedEditor, world: World, embedder: FakeEmbedder
    ) -> None:
        """The change comes between the check and the write."""
        fact = world.fact()
        other = AwaitedEditor(make_runtime(world.store, SETTINGS))
        original = embedder.embed

        async def slow(texts: Sequence[str], *, role: Role) -> object:
            await other.edit(fact.id, "Anna lives in Faro.", expected_version=1)
            return await original(texts, role=role)

        embedder.embed = slow  # type: ignore[method-assign,assignment]
        with pytest.raises(ConflictError):
            await editor.edit(fact.id, "Anna lives in Porto.", expected_version=1)
        assert world.stored(fact.id).content == "Anna lives in Faro."

    async def test_known_failure_51_a_failure_half_way_leaves_the_old_fact(
        self, editor: AwaitedEditor, world: World, embedder: FakeEmbedder
    ) -> None:
        """Known failure 51: deleting comes before adding, and adding fails."""
        fact = world.fact(embedder=embedder)
        embedder.failures.append(ProviderTimeout("no answer"))
        with pytest.raises(ProviderTimeout):
            await editor.edit(fact.id, "Anna lives in Porto.", expected_version=1)
        assert world.stored(fact.id) == world.store.memory.fact(fact.id, with_vector=True)
        assert world.stored(fact.id).content == fact.content
        assert world.stored(fact.id).embedding == fact.embedding

    async def test_known_failure_22_the_corrected_text_survives_if_it_is_known_already(
        self, editor: AwaitedEditor, world: World
    ) -> None:
        """Known failure 22: the old fact goes and the new one is not there."""
        old, there = world.fact("Anna lives in Lisbon."), world.fact("Anna lives in Porto.")
        dry = await editor.edit(old.id, there.content, expected_version=1, dry_run=True)
        assert dry.notices[0].endswith(f"and {old.id} would be removed in its favor")
        assert world.stored(old.id) == old
        report = await editor.edit(old.id, there.content, expected_version=1)
        assert (dry.target_id, dry.before, dry.after) == (
            report.target_id,
            report.before,
            report.after,
        )
        assert report.result is not None
        assert report.result.status is ChangeStatus.DUPLICATE
        assert report.target_id == there.id
        assert old.id in report.notices[0]
        assert report.after is not None
        assert report.after["id"] == there.id
        assert world.stored(there.id).content == "Anna lives in Porto."
        assert world.store.memory.fact(old.id) is None

    async def test_the_same_text_changes_nothing(self, editor: AwaitedEditor, world: World) -> None:
        fact = world.fact()
        report = await editor.edit(fact.id, fact.content + " ", expected_version=1)
        assert report.action == "none"
        assert world.stored(fact.id).version == 1

    async def test_a_dry_run_shows_the_result(
        self, editor: AwaitedEditor, world: World, embedder: FakeEmbedder
    ) -> None:
        fact = world.fact()
        report = await editor.edit(
            fact.id, "Anna lives in Porto.", expected_version=1, dry_run=True
        )
        assert report.after is not None
        assert (report.after["content"], report.after["version"]) == ("Anna lives in Porto.", 2)
        assert world.stored(fact.id).content == fact.content
        assert not embedder.calls


class TestDeleteAndRestore:
    async def test_a_deleted_fact_is_restored_with_its_id(
        self, editor: AwaitedEditor, world: World, embedder: FakeEmbedder
    ) -> None:
        fact = world.fact(embedder=embedder)
        before = world.stored(fact.id)
        deleted = await editor.delete(fact.id, expected_version=1)
        assert deleted.after is None
        assert world.store.memory.fact(fact.id) is None
        assert deleted.result is not None
        Undoer(make_runtime(world.store, clock=lambda: NOW)).undo(deleted.result.change_id)
        after = world.stored(fact.id)
        assert after.version > before.version
        assert after == msgspec.structs.replace(before, version=after.version, updated_at=NOW)
        assert not embedder.calls

    async def test_an_earlier_text_is_restored_as_a_new_version(
        self, editor: AwaitedEditor, world: World, embedder: FakeEmbedder
    ) -> None:
        fact = world.fact(embedder=embedder)
        await editor.edit(fact.id, "Anna lives in Porto.", expected_version=1)
        await editor.restore_fact(fact.id, 1)
        after = world.stored(fact.id)
        assert (after.content, after.version) == ("Anna lives in Lisbon.", 3)
        assert after.embedding == embedder.vector("Anna lives in Lisbon.")
        assert len(world.store.history.versions("fact", fact.id)) == 3

    async def test_unknown_facts_and_versions_cannot_be_restored(
        self, editor: AwaitedEditor, world: World
    ) -> None:
        fact = world.fact()
        with pytest.raises(NotFoundError, match="no version 1"):
            await editor.restore_fact("f" * 24, 1)
        with pytest.raises(NotFoundError, match="version 9") as caught:
            await editor.restore_fact(fact.id, 9)
        assert "1" in (caught.value.hint or "")
        await editor.delete(fact.id)
        with pytest.raises(NotFoundError, match="was deleted"):
            await editor.restore_fact(fact.id, 1)


class TestReflections:
    async def test_add_edit_delete(self, editor: AwaitedEditor, world: World) -> None:
        added = await editor.add_reflection(world.of_user, "Anna is patient.")
        assert [item.id for item in world.store.memory.pending(world.of_user)] == [added.target_id]
        await editor.edit(added.target_id, "Anna is kind.", expected_version=1)
        stored = some(world.store.memory.reflection(added.target_id))
        assert (stored.content, stored.version) == ("Anna is kind.", 2)
        await editor.delete(added.target_id, expected_version=2)
        assert world.store.memory.pending(world.of_user) == []
        assert world.store.memory.reflection(added.target_id) is None

    async def test_a_reflection_of_a_session_scope_comes_from_that_session(
        self, editor: AwaitedEditor, world: World
    ) -> None:
        report = await editor.add_reflection(world.of_session, "The mood was good.")
        assert report.after is not None
        assert report.after["session_id"] == world.session.id

    async def test_limits_are_those_of_reflections(
        self, editor: AwaitedEditor, world: World
    ) -> None:
        with pytest.raises(UsageError, match="36 words, the limit is 35"):
            await editor.add_reflection(world.of_user, words(36))

    async def test_an_absorbed_reflection_cannot_be_edited(
        self, editor: AwaitedEditor, world: World
    ) -> None:
        reflection = world.reflection()
        world.text("Anna likes short answers.", absorbed=[reflection.id])
        with pytest.raises(UsageError, match="consolidated text") as caught:
            await editor.edit(reflection.id, "Something else.", expected_version=1)
        assert "consolidation edit" in (caught.value.hint or "")


class TestConsolidations:
    async def test_the_first_text_of_a_scope(self, editor: AwaitedEditor, world: World) -> None:
        report = await editor.edit_consolidation(world.of_user, "Anna.", expected_version=0)
        assert report.before is None
        assert report.target_id == world.consolidation().id
        assert world.consolidation().version == 1

    async def test_pending_reflections_stay_pending(
        self, editor: AwaitedEditor, world: World
    ) -> None:
        world.text("One.")
        reflection = world.reflection()
        await editor.edit_consolidation(world.of_user, "Two.", expected_version=1)
        after = world.consolidation()
        assert (after.consolidated_content, after.version) == ("Two.", 2)
        assert after.unabsorbed_ids == (reflection.id,)

    async def test_a_version_line_is_removed_from_the_text(
        self, editor: AwaitedEditor, world: World
    ) -> None:
        await editor.edit_consolidation(world.of_user, "VERSION: 7\nAnna.", expected_version=0)
        assert world.consolidation().consolidated_content == "Anna."
        assert world.consolidation().version == 1

    async def test_known_failure_11_a_blank_text_is_refused(
        self, editor: AwaitedEditor, world: World
    ) -> None:
        """Known failure 11: a blank overwrites the text."""
        world.text("One.")
        for blank in ("", " \n", "VERSION: 2\n"):
            with pytest.raises(UsageError, match="empty"):
                await editor.edit_consolidation(world.of_user, blank, expected_version=1)
        assert world.consolidation().consolidated_content == "One."

    async def test_the_limit_of_the_scope_applies(
        self, editor: AwaitedEditor, world: World
    ) -> None:
        await editor.set_policy(world.of_user, {"word_limit": 5})
        with pytest.raises(UsageError, match="6 words, the limit is 5"):
            await editor.edit_consolidation(world.of_user, words(6), expected_version=0)
        report = await editor.edit_consolidation(
            world.of_user, words(6), expected_version=0, allow_long=True
        )
        assert report.result is not None

    async def test_restore_writes_an_old_text_as_a_new_version(
        self, editor: AwaitedEditor, world: World
    ) -> None:
        world.text("One.")
        world.text("Two.", version=1)
        await editor.restore_consolidation(world.of_user, 1)
        after = world.consolidation()
        assert (after.consolidated_content, after.version) == ("One.", 3)
        history = world.store.history.versions("consolidation", "", scope=world.of_user)
        assert [entry.content for entry in history] == ["One.", "Two.", "One."]

    async def test_restore_of_the_current_text_changes_nothing(
        self, editor: AwaitedEditor, world: World
    ) -> None:
        world.text("One.")
        assert (await editor.restore_consolidation(world.of_user, 1)).action == "none"
        with pytest.raises(NotFoundError, match="version 4"):
            await editor.restore_consolidation(world.of_user, 4)


class TestPolicies:
    async def test_a_policy_creates_its_shard(self, editor: AwaitedEditor, world: World) -> None:
        scope = Scope.shard(world.agent.id, "events")
        await editor.set_policy(scope, {"memory_instructions": "Dates of concerts."})
        assert [policy.shard for policy in world.store.memory.shards(world.agent.id)] == ["events"]
        assert (await editor.add_fact(scope, "A concert on May 3.")).result is not None

    @pytest.mark.parametrize("name", ["two\nlines", " padded ", "x" * 101, "bell\x07"])
    async def test_a_shard_name_is_one_plain_line(
        self, editor: AwaitedEditor, world: World, name: str
    ) -> None:
        with pytest.raises(UsageError, match="name"):
            await editor.set_policy(Scope.shard(world.agent.id, name), {"active": True})

    async def test_numbers_and_booleans_may_be_text(
        self, editor: AwaitedEditor, world: World
    ) -> None:
        await editor.set_policy(
            world.of_user,
            {"word_limit": "250", "private": "true", "fast_model": " m ", "fact_buffer_max": 0},
        )
        policy = some(world.policy(world.of_user))
        assert (policy.word_limit, policy.private, policy.fast_model) == (250, True, "m")
        assert policy.fact_buffer_max == 0
        assert policy.version == 1

    async def test_empty_text_restores_the_default(
        self, editor: AwaitedEditor, world: World
    ) -> None:
        await editor.set_policy(world.of_user, {"word_limit": 250, "slow_model": "m"})
        await editor.set_policy(world.of_user, {"word_limit": None, "slow_model": ""})
        policy = some(world.policy(world.of_user))
        assert (policy.word_limit, policy.slow_model, policy.version) == (None, None, 2)

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
            {"agent_id": "f" * 24},
            {"version": 9},
            {"memory_instructions": 5},
        ],
    )
    async def test_an_invalid_value_is_rejected(
        self, editor: AwaitedEditor, world: World, changes: dict[str, object]
    ) -> None:
        with pytest.raises(UsageError) as caught:
            await editor.set_policy(world.of_user, changes)
        if changes:
            assert next(iter(changes)) in caught.value.message
        assert world.policy(world.of_user) is None

    async def test_a_conflict(self, editor: AwaitedEditor, world: World) -> None:
        await editor.set_policy(world.of_user, {"word_limit": 5})
        with pytest.raises(ConflictError):
            await editor.set_policy(world.of_user, {"word_limit": 6}, expected_version=0)


class TestAgentsAndPrivacy:
    async def test_toggles(self, editor: AwaitedEditor, world: World) -> None:
        report = await editor.set_agent(world.agent.id, user_memory=False)
        agent = some(world.store.host.agent(world.agent.id))
        assert (agent.user_memory_enabled, agent.agent_memory_enabled) == (False, True)
        assert report.before is not None
        assert report.before["user_memory_enabled"] is True
        assert (await editor.set_agent(world.agent.id, user_memory=False)).action == "none"
        with pytest.raises(UsageError):
            await editor.set_agent(world.agent.id)
        with pytest.raises(NotFoundError):
            await editor.set_agent("f" * 24, agent_memory=False)

    async def test_privacy_of_a_fact_and_of_a_reflection(
        self, editor: AwaitedEditor, world: World
    ) -> None:
        fact, reflection = world.fact(), world.reflection()
        await editor.set_private(fact.id, True)
        await editor.set_private(reflection.id, True)
        kept = world.store.memory.reflection(reflection.id)
        assert world.stored(fact.id).private
        assert world.stored(fact.id).version == 1
        assert kept is not None
        assert kept.private


def test_reports_can_be_encoded() -> None:
    report = EditReport(
        action="none", target_type="fact", target_id="a", before=None, after=None, dry_run=True
    )
    assert b"none" in msgspec.json.encode(report)
