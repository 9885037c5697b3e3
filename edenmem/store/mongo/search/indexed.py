"""Query whether a text index has the current text of an edited fact."""

from __future__ import annotations

import re
from collections.abc import Sequence

from edenmem.models.memory import Fact
from edenmem.store.mongo.core.collection import Document

_WORD = re.compile(r"[^\W_]+")
#: Analyzers may drop words up to this length as stop words.
_LONGEST_STOP_WORD = 5
#: Analyzers may stem words with this many common letters to the same term.
_STEM = 3
#: Enough to distinguish two texts, and far below the limit of a query.
_MAX_WORDS = 100


def current_text_query(fact: Fact, admitted: Sequence[Document]) -> Document:
    """Return a compound query that matches the fact only with its present text.

    It matches words that the edit added, or the absence of words that it removed. An edit that no
    index can distinguish needs no check.
    """
    compound: Document = {"filter": list(admitted)}
    new, old = _words(fact.content), _words(fact.previous_content or fact.content)
    added = [word for word in new if word not in old]
    stems = {word[:_STEM] for word in new}
    gone = [word for word in old if word[:_STEM] not in stems]
    signs: list[Document] = []
    if any(len(word) > _LONGEST_STOP_WORD for word in added) or (added and gone):
        signs.append(_having(added))
    if gone:
        signs.append({"compound": {"filter": list(admitted), "mustNot": [_having(gone)]}})
    if signs:
        compound |= {"should": signs, "minimumShouldMatch": 1}
    return compound


def _words(text: str) -> list[str]:
    return list(dict.fromkeys(_WORD.findall(text.casefold())))


def _having(words: Sequence[str]) -> Document:
    return {"text": {"query": " ".join(words[:_MAX_WORDS]), "path": "content"}}
