"""Facts of one scope are merged without losing one."""

from __future__ import annotations

from datetime import timedelta

import pytest

from edenmem.engine.history.undo import Undoer
from edenmem.errors import ProviderTimeout, UsageError
from edenmem.models.changes import AddFact, SetPrivacy
from edenmem.models.ids import new_id
from edenmem.models.memory import Fact
from edenmem.models.scope import Scope
from edenmem.models.search import FactFilter
from edenmem.store.protocol.store import Store
from tests.engine.conftest import Cast
from tests.support.builders import NOW, change_set, make_actor, make_fact
from tests.support.editing import AwaitedEditor
from tests.support.embedder import FakeEmbedder
from tests.support.runtime import make_runtime

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
    store.changes.apply(change_set(*(AddFact(fact=fact) for fact in facts)))
    return facts


def contents(store: Store, scope: Scope) -> list[str]:
    return sorted(fact.content for fact in store.memory.facts(FactFilter(scopes=(scope,))))


async def merge(cast: Cast, embedder: FakeEmbedder, text: str, *facts: Fact) -> None:
    editor = AwaitedEditor(make_runtime(cast.store, embedder=embedder, clock=lambda: NOW))
    await editor.merge_facts([fact.id for fact in facts], text)


class TestMerging:
    async def test_the_oldest_keeps_its_id_and_the_others_can_be_restored(
        self, cast: Cast, embedder: FakeEmbedder
    ) -> None:
        old, new = put(cast.store, embedder, cast.anna_scope, TEA, TEA_TOO)
        text = "Lena drinks green tea every morning."
        await merge(cast, embedder, text, new, old)
        assert contents(cast.store, cast.anna_scope) == [text]
        kept = cast.store.memory.fact(old.id, with_vector=True)
        assert kept is not None
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
        await merge(cast, embedder, TEA_TOO, old, new)
        assert contents(cast.store, cast.anna_scope) == [TEA_TOO]
        kept = cast.store.memory.fact(new.id)
        assert kept is not None
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
        cast.store.changes.apply(change_set(*(AddFact(fact=fact) for fact in facts)))
        await merge(cast, embedder, kept_text, *facts)
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
            await merge(cast, embedder, "Lena drinks green tea every morning.", old, new)
        assert contents(cast.store, cast.anna_scope) == sorted([TEA, TEA_TOO])

    async def test_a_merge_with_a_private_fact_is_private(
        self, cast: Cast, embedder: FakeEmbedder
    ) -> None:
        old, new = put(cast.store, embedder, cast.anna_scope, TEA, TEA_TOO)
        cast.store.changes.apply(
            change_set(
                SetPrivacy(
                    scope=cast.anna_scope,
                    target_type="fact",
                    target_id=new.id,
                    private=True,
                    at=NOW,
                )
            )
        )
        await merge(cast, embedder, TEA, old, new)
        assert _of(cast.store, old).private

    async def test_facts_of_two_scopes_are_never_merged(
        self, cast: Cast, embedder: FakeEmbedder
    ) -> None:
        (anna,) = put(cast.store, embedder, cast.anna_scope, TEA)
        (bruno,) = put(cast.store, embedder, cast.bruno_scope, TEA)
        for facts in ([anna, bruno], [anna, anna]):
            with pytest.raises(UsageError, match="one scope"):
                await merge(cast, embedder, TEA, *facts)


def _of(store: Store, fact: Fact) -> Fact:
    found = store.memory.fact(fact.id)
    assert found is not None
    return found
