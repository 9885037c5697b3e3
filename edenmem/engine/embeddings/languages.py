"""Check whether the embedding model knows the languages of the facts."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from edenmem.acceptance.texts import words_of
from edenmem.acceptance.wording import word_set
from edenmem.engine.runtime.runtime import Runtime
from edenmem.models.backup import RecordKind
from edenmem.models.embedding_scale import ENGLISH_ONLY
from edenmem.models.memory import Fact
from edenmem.settings.installation import install_hint
from edenmem.store.protocol.store import Store

#: Number of sampled facts, and the minimum for a notice.
_SAMPLE = 200
_FEWEST = 5
#: Words without which English sentences of this length are rare.
_ENGLISH = word_set("languages.english")
_WORDS = 6


def multilingual_hint() -> str:
    """Return the hint that changes the model."""
    return (
        "change the model with 'edenmem embed backfill --to local_model=multilingual-e5-small'"
        f" ({install_hint('multilingual')})"
    )


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
    """Count the texts in other languages than English, by script and common words.

    Latin texts of few words count as English.
    """
    return sum(map(_is_foreign, texts))


def _is_foreign(text: str) -> bool:
    letters = [sign for sign in text if sign.isalpha()]
    if 2 * sum(sign < "\u0250" for sign in letters) < len(letters):
        return True
    words = set(words_of(text))
    return len(words) >= _WORDS and _ENGLISH.isdisjoint(words)


def language_advice(runtime: Runtime) -> str:
    """Return the notice for the configured model and the command to fix it, or ""."""
    notice = language_notice(runtime.store, runtime.embedder.model) if runtime.embedder else ""
    return f"{notice}; {multilingual_hint()}" if notice else ""
