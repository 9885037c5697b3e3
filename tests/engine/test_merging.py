"""Near-duplicates: found within one scope, and merged without losing a fact."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edenmem.engine.edits import near_duplicates
from edenmem.engine.edits.near_duplicates import FactGroup, FactMerger
from edenmem.engine.history.undo import Undoer
from edenmem.errors import ConflictError, ProviderTimeout
from edenmem.models.changes import AddFact, SetPrivacy
from edenmem.models.ids import new_id
from edenmem.models.memory import Fact
from edenmem.models.scope import Scope
from edenmem.models.search import FactFilter
from edenmem.store.protocol.store import Store
from tests.engine.conftest import Cast
from tests.support.builders import NOW, make_actor, make_fact, some
from tests.support.editing import AwaitedEditor
from tests.support.embedder import FakeEmbedder
from tests.support.memory import applied
from tests.support.runtime import make_runtime

FLOOR = 0.9
TEA = "Lena drinks green tea in the morning"
TEA_TOO = "Lena drinks green tea in the morning hours"
OTHER = "The walk begins at the old ferry hall"


def put(store: Store, embedder: FakeEmbedder, scope: Scope, *texts: str) -> list[Fact]:
    """Store facts with vectors, one day apart."""
    facts = [
        make_fact(
            scope,
            text,
            formed_at=NOW + timedelta(days=day),
            embedding=embedder.vector(text),
            embedding_model=embedder.model,
            source_message_ids=(new_id(),),
        )
        for day, text in enumerate(texts)
    ]
    applied(store, *(AddFact(fact=fact) for fact in facts))
    return facts


@pytest.fixture(autouse=True)
def _floor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near_duplicates, "SIMILAR", FLOOR)


def groups(store: Store, scope: Scope, embedder: FakeEmbedder | None) -> list[FactGroup]:
    own = FactMerger(make_runtime(store, embedder=embedder))
    return [each for each in own.groups(scope.agent_id) if each.scope == scope]


def contents(store: Store, scope: Scope) -> list[str]:
    return sorted(fact.content for fact in store.memory.facts(FactFilter(scopes=(scope,))))


def merger(cast: Cast, embedder: FakeEmbedder | None) -> FactMerger:
    return FactMerger(
        make_runtime(
            cast.store,
            embedder=embedder,
            actor=make_actor("fact merge"),
            clock=lambda: NOW,
        )
    )


class TestFinding:
    def test_facts_that_are_near_form_a_group_oldest_first(
        self, cast: Cast, embedder: FakeEmbedder
    ) -> None:
        old, _, new = put(cast.store, embedder, cast.anna_scope, TEA, OTHER, TEA_TOO)
        (group,) = groups(cast.store, cast.anna_scope, embedder)
        assert [fact.id for fact in group.facts] == [old.id, new.id]
        assert group.scores[0] == 1.0
        assert FLOOR <= group.scores[1] < 1.0

    def test_facts_with_the_same_words_need_no_vector(
        self, cast: Cast, embedder: FakeEmbedder
    ) -> None:
        put(cast.store, embedder, cast.anna_scope, TEA, f"  {TEA.upper()}! ", OTHER)
        (group,) = groups(cast.store, cast.anna_scope, None)
        assert group.scores == (1.0, 1.0)

    def test_scopes_are_never_compared(self, cast: Cast, embedder: FakeEmbedder) -> None:
        for scope in (cast.anna_scope, cast.bruno_scope, cast.agent_scope):
            put(cast.store, embedder, scope, TEA)
        found = merger(cast, embedder).groups(cast.eve.id)
        assert list(found) == []

    def test_more_facts_than_a_batch(
        self, cast: Cast, embedder: FakeEmbedder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("edenmem.engine.edits.near_duplicates.BATCH", 2)
        put(cast.store, embedder, cast.anna_scope, TEA, OTHER, "One. Two.", "Three, four!", TEA_TOO)
        (group,) = groups(cast.store, cast.anna_scope, embedder)
        assert [fact.content for fact in group.facts] == [TEA, TEA_TOO]

    def test_a_chain_of_small_differences_is_not_a_group(
        self, cast: Cast, embedder: FakeEmbedder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Neighbors in the chain are near, but the first and last are not."""
        words = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p"]
        chain = [" ".join(words[start : start + 8]) for start in range(0, 9, 2)]
        put(cast.store, embedder, cast.anna_scope, *chain)
        monkeypatch.setattr(near_duplicates, "SIMILAR", 0.85)
        for group in groups(cast.store, cast.anna_scope, embedder):
            assert len(group.facts) == 2

    @given(
        st.lists(
            st.lists(
                st.sampled_from(["red", "green", "blue", "tea", "boat"]), min_size=1, max_size=4
            ),
            max_size=12,
        )
    )
    def test_each_fact_is_in_one_group_at_most_and_near_its_oldest(
        self, cast: Cast, embedder: FakeEmbedder, texts: list[list[str]]
    ) -> None:
        scope = Scope.user(cast.eve.id, new_id())
        put(cast.store, embedder, scope, *dict.fromkeys(map(" ".join, texts)))
        found = groups(cast.store, scope, embedder)
        ids = [fact.id for group in found for fact in group.facts]
        assert len(ids) == len(set(ids))
        for group in found:
            assert len(group.facts) >= 2
            assert min(group.scores) >= FLOOR
            assert group.facts[0].formed_at == min(fact.formed_at for fact in group.facts)


class TestMerging:
    async def test_the_oldest_keeps_its_id_and_the_others_can_be_restored(
        self, cast: Cast, embedder: FakeEmbedder
    ) -> None:
        old, new = put(cast.store, embedder, cast.anna_scope, TEA, TEA_TOO)
        text = "Lena drinks green tea every morning."
        report = await merger(cast, embedder).merge([new, old], text)
        assert (report.removed, report.stayed) == ((new.id,), ())
        kept = some(cast.store.memory.fact(old.id, with_vector=True))
        assert (kept.content, kept.version, kept.previous_content) == (text, 2, TEA)
        assert kept.embedding == embedder.vector(text)  # Known failure 19
        assert set(kept.source_message_ids) >= {*old.source_message_ids, *new.source_message_ids}
        tombstone = cast.store.history.versions("fact", new.id)[-1]
        assert (tombstone.action, tombstone.content) == ("delete", TEA_TOO)
        (entry, *_) = cast.store.log.audit(target_id=new.id)
        assert entry.reason == f"merged into {old.id}"

    async def test_a_fact_with_the_merged_text_is_kept_with_all_sources(
        self, cast: Cast, embedder: FakeEmbedder
    ) -> None:
        old, new = put(cast.store, embedder, cast.anna_scope, TEA, TEA_TOO)
        await merger(cast, embedder).merge([old, new], TEA_TOO)
        assert contents(cast.store, cast.anna_scope) == [TEA_TOO]
        kept = some(cast.store.memory.fact(new.id))
        sources = {*old.source_message_ids, *new.source_message_ids}
        assert set(kept.source_message_ids) == sources > {*new.source_message_ids}

    @pytest.mark.parametrize("kept_text", [TEA, TEA_TOO, "Lena drinks green tea, always."])
    async def test_the_users_of_all_are_those_of_the_merged_fact(
        self, cast: Cast, embedder: FakeEmbedder, kept_text: str
    ) -> None:
        """Forgetting a user finds facts by their users in v1; an undo removes the users again."""
        lena, tomas = new_id(), new_id()
        facts = [
            make_fact(cast.anna_scope, text, related_users=(user,))
            for text, user in ((TEA, lena), (TEA_TOO, tomas))
        ]
        applied(cast.store, *(AddFact(fact=fact) for fact in facts))
        own = merger(cast, embedder)
        await own.merge(facts, kept_text)
        (merged,) = cast.store.memory.facts(FactFilter(scopes=(cast.anna_scope,)))
        assert set(merged.related_users) == {lena, tomas}
        assert merged.content == kept_text
        entry = next(
            each
            for each in cast.store.log.audit(target_id=merged.id)
            if each.action == "revise_fact"
        )
        runtime = make_runtime(cast.store, actor=make_actor("undo"), clock=lambda: NOW)
        Undoer(runtime).undo(entry.id)
        (undone,) = cast.store.memory.facts(FactFilter(scopes=(cast.anna_scope,)))
        own_user = next(fact.related_users for fact in facts if fact.id == merged.id)
        assert undone.related_users == own_user

    async def test_nothing_is_removed_before_the_merged_text_is_stored(
        self, cast: Cast, embedder: FakeEmbedder
    ) -> None:
        """Known failure 51: deleting comes before adding, and adding fails."""
        old, new = put(cast.store, embedder, cast.anna_scope, TEA, TEA_TOO)
        embedder.failures.append(ProviderTimeout("no answer"))
        with pytest.raises(ProviderTimeout):
            await merger(cast, embedder).merge([old, new], "Lena drinks green tea every morning.")
        assert contents(cast.store, cast.anna_scope) == sorted([TEA, TEA_TOO])

    async def test_a_fact_that_was_edited_meanwhile_stays(
        self, cast: Cast, embedder: FakeEmbedder
    ) -> None:
        old, new = put(cast.store, embedder, cast.anna_scope, TEA, TEA_TOO)
        own = merger(cast, embedder)
        editor = AwaitedEditor(make_runtime(cast.store, embedder=embedder))
        await editor.edit(new.id, "Lena drinks coffee now.", expected_version=1)
        report = await own.merge([old, new], TEA)
        assert report.removed == ()
        assert report.stayed[0][0] == new.id
        assert contents(cast.store, cast.anna_scope) == sorted([TEA, "Lena drinks coffee now."])
        await editor.edit(old.id, "Lena drinks cocoa.", expected_version=2)
        with pytest.raises(ConflictError):
            await own.merge([old, new], TEA_TOO + ".")
        assert contents(cast.store, cast.anna_scope) == [
            "Lena drinks cocoa.",
            "Lena drinks coffee now.",
        ]

    async def test_a_merge_with_a_private_fact_is_private(
        self, cast: Cast, embedder: FakeEmbedder
    ) -> None:
        old, new = put(cast.store, embedder, cast.anna_scope, TEA, TEA_TOO)
        applied(
            cast.store,
            SetPrivacy(
                scope=cast.anna_scope,
                target_type="fact",
                target_id=new.id,
                private=True,
                at=NOW,
            ),
        )
        await merger(cast, embedder).merge([old, _of(cast.store, new)], TEA)
        assert _of(cast.store, old).private

    async def test_facts_of_two_scopes_are_never_merged(
        self, cast: Cast, embedder: FakeEmbedder
    ) -> None:
        (anna,) = put(cast.store, embedder, cast.anna_scope, TEA)
        (bruno,) = put(cast.store, embedder, cast.bruno_scope, TEA)
        with pytest.raises(ValueError, match="one scope"):
            await merger(cast, embedder).merge([anna, bruno], TEA)


def _of(store: Store, fact: Fact) -> Fact:
    return some(store.memory.fact(fact.id))
