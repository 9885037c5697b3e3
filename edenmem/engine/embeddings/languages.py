"""Check whether the embedding model knows the languages of the facts."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from edenmem.acceptance.reading.words import language_of
from edenmem.engine.runtime.runtime import Runtime
from edenmem.models.backup import RecordKind
from edenmem.models.embedding_scale import ENGLISH_ONLY
from edenmem.models.memory import Fact
from edenmem.store.protocol.store import Store

#: The command that changes the model.
MULTILINGUAL = (
    "change the model with 'edenmem embed backfill --to local_model=multilingual-e5-small'"
    ' (pip install "edenmem[multilingual]")'
)
#: Number of sampled facts, and the minimum for a notice.
_SAMPLE = 200
_FEWEST = 5


def language_notice(store: Store, model: str) -> str:
    """Return a notice if most facts are in languages that ``model`` does not know, else "".

    Reads a sample of facts, and only for English-only models.

    Raises:
        StoreError: the database cannot be used.
    """
    if model not in ENGLISH_ONLY:
        return ""
    documents = islice(store.walk.documents((RecordKind.FACT,)), _SAMPLE)
    texts = [each.record.content for each in documents if isinstance(each.record, Fact)]
    others = count_not_english(texts)
    if len(texts) < _FEWEST or others * 2 <= len(texts):
        return ""
    return f"{others} of {len(texts)} facts are not in English, but {model} knows only English"


def count_not_english(texts: Iterable[str]) -> int:
    """Count the texts in other languages than English, by script and common words."""
    return sum(language_of(text) not in ("en", "") for text in texts)


def language_advice(runtime: Runtime) -> str:
    """Return the notice for the configured model and the command to fix it, or ""."""
    notice = language_notice(runtime.store, runtime.embedder.model) if runtime.embedder else ""
    return f"{notice}; {MULTILINGUAL}" if notice else ""
