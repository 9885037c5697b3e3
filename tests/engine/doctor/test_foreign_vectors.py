"""Vectors of other texts: duplicates are found, and a local model checks a sample."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from edenmem.engine.doctor.vectors import Vectors, find_misfits
from edenmem.models.ids import new_id
from edenmem.models.memory import Fact, content_hash
from edenmem.models.scope import Scope
from tests.support.builders import make_fact
from tests.support.embedder import FakeEmbedder

TEA, WALK, CASED = "Lena drinks green tea.", "The walk begins at noon.", "LENA drinks: green tea"
SCOPE = Scope.agent(new_id())


def _fact(embedder: FakeEmbedder, content: str, of: str = "") -> Fact:
    """Return a fact with the vector of its own or another text."""
    vector = embedder.vector(of or content)
    return make_fact(SCOPE, content, embedding=vector, embedding_model=embedder.model)


def _check(facts: Sequence[Fact], embedder: FakeEmbedder | None) -> list[str]:
    vectors = Vectors()
    for fact in facts:
        vectors.add(fact)
    return [fact.id for fact, _ in find_misfits(vectors, lambda: facts, embedder)]


@pytest.mark.parametrize("is_local", [False, True])
def test_right_vectors_pass(is_local: bool) -> None:
    embedder = FakeEmbedder()
    facts = [_fact(embedder, TEA), _fact(embedder, WALK), make_fact(SCOPE, "No vector yet.")]
    assert _check(facts, embedder if is_local else None) == []


def test_a_shared_vector_is_found_without_a_model() -> None:
    embedder = FakeEmbedder()
    facts = [_fact(embedder, WALK, of=TEA), _fact(embedder, TEA)]
    assert len(_check(facts, None)) == 1


def test_a_local_model_finds_the_wrong_one_of_two() -> None:
    embedder = FakeEmbedder()
    facts = [_fact(embedder, TEA), _fact(embedder, WALK, of=TEA)]
    assert _check(facts, embedder) == [facts[1].id]


def test_a_local_model_finds_a_wrong_unique_vector() -> None:
    embedder = FakeEmbedder()
    facts = [_fact(embedder, TEA), _fact(embedder, WALK, of="Sea salt on copper.")]
    assert _check(facts, embedder) == [facts[1].id]
    assert _check(facts, None) == []


@pytest.mark.parametrize("size", [5, 8])
def test_unusable_vectors_are_left_to_other_checks(size: int) -> None:
    embedder = FakeEmbedder()
    fields = {"embedding": bytes(4 * embedder.dimensions), "embedding_model": embedder.model}
    zeros = [make_fact(SCOPE, content, **fields) for content in (TEA, WALK)]
    fields["embedding"] = b"\1" * size
    malformed = [make_fact(SCOPE, content, **fields) for content in ("Nora sings.", "Ben rows.")]
    assert _check(zeros, None) == []
    assert _check([*zeros, *malformed], embedder) == []


def test_a_text_that_does_not_match_its_hash_is_left_to_another_check() -> None:
    embedder = FakeEmbedder()
    changed = msgspec.structs.replace(_fact(embedder, TEA), content=WALK)
    assert changed.hash != content_hash(WALK)
    assert _check([changed, _fact(embedder, TEA)], None) == []
    assert _check([changed, _fact(embedder, TEA)], embedder) == []


def test_texts_with_the_same_words_may_share_a_vector() -> None:
    embedder = FakeEmbedder()
    assert _check([_fact(embedder, TEA), _fact(embedder, CASED, of=TEA)], None) == []
