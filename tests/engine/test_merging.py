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
from edenmem.models.changes import AddFact
from edenmem.models.ids import new_id
from edenmem.models.memory import Fact
from edenmem.models.scope import Scope
from edenmem.models.search import FactFilter
from tests.engine.conftest import Cast
from tests.support.builders import NOW, make_actor, make_fact, some
from tests.support.editing import AwaitedEditor
from tests.support.embedder import FakeEmbedder
from tests.support.memory import applied
from tests.support.runtime import make_runtime

FLOOR = 0.9
TEA = "Lena drinks green tea in the morning"
TEA_TOO = "Lena drinks green tea in the morning hours"
MERGED = "Lena drinks green tea every morning."
OTHER = "The walk begins at the old ferry hall"
COFFEE, COCOA = "Lena drinks coffee now.", "Lena drinks cocoa."


class Desk:
    """Facts of one user, and a merger."""

    def __init__(self, cast: Cast, embedder: FakeEmbedder) -> None:
        self.cast, self.store, self.scope, self.embedder = (
            cast,
            cast.store,
            cast.anna_scope,
            embedder,
        )
        actor = make_actor("fact merge")
        self.runtime = make_runtime(cast.store, embedder=embedder, actor=actor, clock=lambda: NOW)
        self.merge = FactMerger(self.runtime).merge

    def put(self, *texts: str, scope: Scope | None = None) -> list[Fact]:
        """Store facts with vectors, one day apart."""
        facts = [
            make_fact(
                scope or self.scope,
                text,
                formed_at=NOW + timedelta(days=day),
                embedding=self.embedder.vector(text),
                embedding_model=self.embedder.model,
                source_message_ids=(new_id(),),
            )
            for day, text in enumerate(texts)
        ]
        applied(self.store, *(AddFact(fact=fact) for fact in facts))
        return facts

    def groups(self, *, embedder: FakeEmbedder | None = None) -> list[FactGroup]:
        merger = FactMerger(make_runtime(self.store, embedder=embedder))
        return list(merger.groups(self.scope.agent_id))

    @property
    def contents(self) -> set[str]:
        return {fact.content for fact in self.store.memory.facts(FactFilter(scopes=(self.scope,)))}


@pytest.fixture
def desk(cast: Cast, embedder: FakeEmbedder, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setattr(near_duplicates, "SIMILAR", FLOOR)
    return Desk(cast, embedder)


# -- finding -------------------------------------------------------------------------------------


def test_facts_that_are_near_form_a_group_oldest_first(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, *_, new = desk.put(TEA, OTHER, "One. Two.", "Three, four!", TEA_TOO)
    for batch in (near_duplicates.BATCH, 2):
        monkeypatch.setattr(near_duplicates, "BATCH", batch)
        (group,) = desk.groups(embedder=desk.embedder)
        assert [fact.id for fact in group.facts] == [old.id, new.id]
        assert group.scores[0] == 1.0
        assert FLOOR <= group.scores[1] < 1.0


def test_facts_with_the_same_words_need_no_vector(desk: Desk) -> None:
    desk.put(TEA, f"  {TEA.upper()}! ", OTHER)
    (group,) = desk.groups()
    assert group.scores == (1.0, 1.0)


def test_scopes_are_never_compared(desk: Desk) -> None:
    for scope in (desk.scope, desk.cast.bruno_scope, desk.cast.agent_scope):
        desk.put(TEA, scope=scope)
    assert desk.groups(embedder=desk.embedder) == []


def test_a_chain_of_small_differences_is_not_a_group(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neighbors in the chain are near, but the first and last are not."""
    words = [*"abcdefghijklmnop"]
    desk.put(*(" ".join(words[start : start + 8]) for start in range(0, 9, 2)))
    monkeypatch.setattr(near_duplicates, "SIMILAR", 0.85)
    for group in desk.groups(embedder=desk.embedder):
        assert len(group.facts) == 2


@given(
    st.lists(
        st.lists(st.sampled_from(["red", "green", "blue", "tea", "boat"]), min_size=1, max_size=4),
        max_size=12,
    )
)
def test_each_fact_is_in_one_group_at_most_and_near_its_oldest(
    desk: Desk, texts: list[list[str]]
) -> None:
    scope = Scope.user(desk.cast.eve.id, new_id())
    desk.put(*dict.fromkeys(map(" ".join, texts)), scope=scope)
    found = [each for each in desk.groups(embedder=desk.embedder) if each.scope == scope]
    ids = [fact.id for group in found for fact in group.facts]
    assert len(ids) == len(set(ids))
    for group in found:
        assert len(group.facts) >= 2
        assert min(group.scores) >= FLOOR
        assert group.facts[0].formed_at == min(fact.formed_at for fact in group.facts)


# -- merging -------------------------------------------------------------------------------------


async def test_the_oldest_keeps_its_id_and_the_others_can_be_restored(desk: Desk) -> None:
    old, new = desk.put(TEA, TEA_TOO)
    report = await desk.merge([new, old], MERGED)
    assert (report.kept_id, report.removed, report.stayed) == (old.id, (new.id,), ())
    kept = some(desk.store.memory.fact(old.id, with_vector=True))
    assert (kept.content, kept.version, kept.previous_content) == (MERGED, 2, TEA)
    assert kept.embedding == desk.embedder.vector(MERGED)  # Known failure 19
    assert set(kept.source_message_ids) >= {*old.source_message_ids, *new.source_message_ids}
    tombstone = desk.store.history.versions("fact", new.id)[-1]
    assert (tombstone.action, tombstone.content) == ("delete", TEA_TOO)
    (entry, *_) = desk.store.log.audit(target_id=new.id)
    assert entry.reason == f"merged into {old.id}"


async def test_a_fact_with_the_merged_text_is_kept_with_all_sources(desk: Desk) -> None:
    old, new = desk.put(TEA, TEA_TOO)
    await desk.merge([old, new], TEA_TOO)
    assert desk.contents == {TEA_TOO}
    kept = some(desk.store.memory.fact(new.id))
    sources = {*old.source_message_ids, *new.source_message_ids}
    assert set(kept.source_message_ids) == sources > {*new.source_message_ids}


@pytest.mark.parametrize("kept_text", [TEA, TEA_TOO, "Lena drinks green tea, always."])
async def test_the_users_of_all_are_those_of_the_merged_fact(desk: Desk, kept_text: str) -> None:
    """Forgetting a user finds facts by their users in v1; an undo removes the users again."""
    users = {TEA: new_id(), TEA_TOO: new_id()}
    facts = [make_fact(desk.scope, text, related_users=(user,)) for text, user in users.items()]
    applied(desk.store, *(AddFact(fact=fact) for fact in facts))
    await desk.merge(facts, kept_text)
    (merged,) = desk.store.memory.facts(FactFilter(scopes=(desk.scope,)))
    assert set(merged.related_users) == {*users.values()}
    assert merged.content == kept_text
    entries = desk.store.log.audit(target_id=merged.id, actions=["revise_fact"])
    Undoer(desk.runtime).undo(next(iter(entries)).id)
    (undone,) = desk.store.memory.facts(FactFilter(scopes=(desk.scope,)))
    assert undone.related_users == next(f.related_users for f in facts if f.id == merged.id)


async def test_nothing_is_removed_before_the_merged_text_is_stored(desk: Desk) -> None:
    """Known failure 51: deleting comes before adding, and adding fails."""
    facts = desk.put(TEA, TEA_TOO)
    desk.embedder.failures.append(ProviderTimeout("no answer"))
    with pytest.raises(ProviderTimeout):
        await desk.merge(facts, MERGED)
    assert desk.contents == {TEA, TEA_TOO}


async def test_a_fact_that_was_edited_meanwhile_stays(desk: Desk) -> None:
    old, new = desk.put(TEA, TEA_TOO)
    editor = AwaitedEditor(desk.runtime)
    await editor.edit(new.id, COFFEE, expected_version=1)
    report = await desk.merge([old, new], TEA)
    assert report.removed == ()
    assert report.stayed[0][0] == new.id
    assert desk.contents == {TEA, COFFEE}
    await editor.edit(old.id, COCOA, expected_version=2)
    with pytest.raises(ConflictError):
        await desk.merge([old, new], TEA_TOO + ".")
    assert desk.contents == {COCOA, COFFEE}


async def test_a_merge_with_a_private_fact_is_private(desk: Desk) -> None:
    old, new = desk.put(TEA, TEA_TOO)
    await AwaitedEditor(desk.runtime).set_private(new.id, True)
    await desk.merge([old, some(desk.store.memory.fact(new.id))], TEA)
    assert some(desk.store.memory.fact(old.id)).private


async def test_facts_of_two_scopes_are_never_merged(desk: Desk) -> None:
    facts = [*desk.put(TEA), *desk.put(TEA, scope=desk.cast.bruno_scope)]
    with pytest.raises(ValueError, match="one scope"):
        await desk.merge(facts, TEA)
