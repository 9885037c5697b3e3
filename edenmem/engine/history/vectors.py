"""Vectors for facts that say again what they said: the old text's own one was not kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from edenmem.embed.protocol import Embedder
from edenmem.engine.edits.editor import NO_VECTOR
from edenmem.engine.embeddings.status import misfit_notice
from edenmem.engine.history.steps import UndoOutcome, UndoStep
from edenmem.engine.runtime.concurrency import in_thread
from edenmem.errors import ProviderError
from edenmem.models.memory import content_hash
from edenmem.settings.schema import Settings
from edenmem.store.protocol.store import Store


def without_vector(steps: Iterable[UndoStep]) -> dict[str, str]:
    """Fact id → text, of the facts that came back without a vector."""
    return {
        step.entry.target_id: str(step.after["content"])
        for step in steps
        if step.outcome is UndoOutcome.DONE
        and step.entry.target_type == "fact"
        and step.after is not None
        and not step.after.get("embedding_model")
    }


async def give_vectors(
    store: Store, settings: Settings, embedder: Embedder | None, facts: dict[str, str]
) -> str:
    """Make vectors of these texts; "", or what a person should know if there are none now.

    A provider that is down keeps nobody from an undo: the facts are found by their words.
    """
    if embedder is None:
        return NO_VECTOR
    notice = await in_thread(misfit_notice, store, settings, embedder.model)
    if notice:
        return notice
    texts: Sequence[str] = list(facts.values())
    try:
        embedding = await embedder.embed(texts)
    except ProviderError as error:
        return f"{error.message}; 'edenmem embed backfill' adds the vectors that are missing"
    vectors = {
        fact_id: (content_hash(content), vector)
        for (fact_id, content), vector in zip(facts.items(), embedding.vectors, strict=True)
    }
    await in_thread(store.set_vectors, vectors, model=embedder.model)
    return ""
