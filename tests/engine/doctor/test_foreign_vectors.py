"""Vectors of other texts: a local model checks a sample."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from edenmem.engine.doctor.memory import find_misfits
from edenmem.models.ids import new_id
from edenmem.models.memory import Fact, content_hash
from edenmem.models.scope import Scope
from tests.support.builders import make_fact
from tests.support.embedder import FakeEmbedder

TEA, WALK = "Lena drinks green tea.", "The walk begins at noon."
SCOPE = Scope.agent(new_id())


def _fact(embedder: FakeEmbedder, content: str, of: str = "") -> Fact:
    """Return a fact with the vector of its own or another text."""
    vector = embedder.vector(of or content)
    return make_fact(SCOPE, content, embedding=vector, embedding_model=embedder.model)


def _check(facts: Sequence[Fact], embedder: FakeEmbedder) -> list[str]:
    return [fact.id for fact in find_misfits(facts, embedder)]


def test_right_vectors_pass() -> None:
    embedder = FakeEmbedder()
    facts = [_fact(embedder, TEA), _fact(embedder, WALK), make_fact(SCOPE, "No vector yet.")]
    assert _check(facts, embedder) == []
    assert _check([], embedder) == []


@pytest.mark.parametrize("of", [TEA, "Sea salt on copper."])
def test_the_vector_of_another_text_is_found(of: str) -> None:
    embedder = FakeEmbedder()
    facts = [_fact(embedder, TEA), _fact(embedder, WALK, of=of)]
    assert _check(facts, embedder) == [facts[1].id]


def test_unusable_vectors_are_left_to_other_checks() -> None:
    embedder = FakeEmbedder()
    zeros = bytes(4 * embedder.dimensions)
    facts = [
        make_fact(SCOPE, TEA, embedding=vector, embedding_model=embedder.model)
        for vector in (zeros, b"\1" * 5, b"\1" * 8)
    ]
    assert _check(facts, embedder) == []


def test_a_text_that_does_not_match_its_hash_is_left_to_another_check() -> None:
    embedder = FakeEmbedder()
    changed = msgspec.structs.replace(_fact(embedder, TEA), content=WALK)
    assert changed.hash != content_hash(WALK)
    assert _check([changed, _fact(embedder, TEA)], embedder) == []
