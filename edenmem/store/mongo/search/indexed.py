"""How one tells that a text index has a fact as it is now, and not as it was before an edit."""

from __future__ import annotations

import re
from collections.abc import Sequence

from edenmem.models.memory import Fact
from edenmem.store.mongo.core.collection import Document

_WORD = re.compile(r"[^\W_]+")
#: An analyzer may leave out words as short as these, and then they match nothing.
_LONGEST_STOP_WORD = 5
#: Words with the same beginning may be one to an analyzer.
_STEM = 3
#: Enough to tell two texts apart, and far fewer than a query may have.
_MOST_WORDS = 100


def as_it_is(fact: Fact, admitted: Sequence[Document]) -> Document:
    """A compound query that finds the fact only with its present text, among those ``admitted``.

    The new text has words that the one before had not, or has none of those that are gone. Where
    the two differ in nothing that an index could tell, there is nothing to wait for.
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
    return {"text": {"query": " ".join(words[:_MOST_WORDS]), "path": "content"}}
