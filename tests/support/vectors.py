"""Unit vectors in stored form (little-endian float32 bytes), and switches between models."""

from __future__ import annotations

from collections import Counter

import msgspec
import numpy as np

from edenmem.models.embeddings import SwitchPhase, VectorSwitch
from edenmem.models.indexes import IndexWish
from edenmem.store.protocol.store import Store
from tests.support.builders import some


def unit(*numbers: float) -> bytes:
    """Return the vector of these numbers, scaled to length 1."""
    vector = np.asarray(numbers, dtype=np.float64)
    length = float(np.linalg.norm(vector))
    assert length > 0, "a zero vector has no direction"
    return (vector / length).astype("<f4").tobytes()


def random_unit(seed: int, dimensions: int = 8) -> bytes:
    """Return the random direction of a seed."""
    return unit(*np.random.default_rng(seed).standard_normal(dimensions))


def numbers(vector: bytes) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return the numbers of a stored vector."""
    return np.frombuffer(vector, dtype="<f4").astype(np.float64)


def cosine(left: bytes, right: bytes) -> float:
    """Return the cosine of two unit vectors."""
    return float(numbers(left) @ numbers(right))


def score(left: bytes, right: bytes) -> float:
    """Return the semantic score of two unit vectors: (1 + cosine) / 2."""
    return (1 + cosine(left, right)) / 2


def begin(store: Store, switch: VectorSwitch) -> None:
    """Begin a switch of the embedding model, with the search index that it needs."""
    assert store.switches.move_switch(None, switch)
    state = store.switches.switch_index()
    if state is not None:
        store.indexes.create_index(state.name, IndexWish(dimensions=switch.dimensions, analyzer=""))


def enter(store: Store, *phases: SwitchPhase) -> None:
    """Bring the current switch into each of these phases."""
    for phase in phases:
        switch = some(store.switches.vector_switch())
        assert store.switches.move_switch(switch, msgspec.structs.replace(switch, phase=phase))


def end(store: Store) -> None:
    """End the current switch."""
    assert store.switches.move_switch(store.switches.vector_switch(), None)


def count_models(store: Store) -> dict[str, int]:
    """Count facts by the model of their vector; "" counts those without one."""
    models: Counter[str] = Counter()
    for count in store.vectors.vector_counts("", dimensions=None):
        models[count.model] += count.facts
    return dict(models)
