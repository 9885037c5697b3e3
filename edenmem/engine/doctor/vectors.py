"""Compare the vectors of a sample of facts with those that the local model makes of their texts.

Unusable vectors and facts whose hash does not match their text are left to other checks.
"""

from __future__ import annotations

import asyncio
import hashlib
import heapq
from collections.abc import Iterable, Iterator

from edenmem.embed.protocol import Embedder
from edenmem.engine.doctor.context import DoctorContext
from edenmem.engine.doctor.report import CheckFinding
from edenmem.engine.factory import embedder_kind
from edenmem.models.backup import RecordKind, Selection
from edenmem.models.integrity import Finding
from edenmem.models.memory import Fact, content_hash

#: Minimum cosine of two vectors of the same text.
_SAME_TEXT = 0.98
#: Number of facts whose vectors are compared with new ones.
_SAMPLE = 50


def foreign_vectors(context: DoctorContext) -> Iterator[CheckFinding]:
    """Yield facts of a sample with the vector of another text, if the model is local."""
    embedder = context.providers.embedder
    if embedder is None or embedder_kind(context.settings.embedding) != "local":
        return  # another model would cost calls
    selection = Selection(agent_ids=() if context.agent_id is None else (context.agent_id,))
    walk = context.store.walk.documents((RecordKind.FACT,), selection, with_vectors=True)
    facts = (each.record for each in walk if isinstance(each.record, Fact))
    for fact in find_misfits(facts, embedder):
        detail = f"{embedder.model} produces another vector for the text"
        yield CheckFinding(
            "vector-damage",
            Finding(target_type="fact", target_id=fact.id, agent_id=fact.agent_id, detail=detail),
        )


def find_misfits(facts: Iterable[Fact], embedder: Embedder) -> Iterator[Fact]:
    """Yield the facts of a sample whose vectors differ from those that the model produces. Blocks.

    Raises:
        ProviderError: the model cannot be used.
    """
    import numpy as np

    comparable = (
        fact
        for fact in facts
        if fact.embedding_model == embedder.model
        and any(fact.embedding or b"")
        and fact.hash == content_hash(fact.content, fact.key)
    )
    # A pseudorandom sample that is the same each time.
    sample = heapq.nsmallest(
        _SAMPLE, comparable, key=lambda fact: hashlib.blake2b(fact.id.encode()).digest()
    )
    texts = [fact.content for fact in sample]
    made = asyncio.run(embedder.embed(texts, role="passage")).vectors if sample else ()
    for fact, vector in zip(sample, made, strict=True):
        if fact.embedding is not None and len(fact.embedding) == len(vector):
            own, new = (np.frombuffer(raw, dtype="<f4") for raw in (fact.embedding, vector))
            if float(own @ new) < _SAME_TEXT:
                yield fact
