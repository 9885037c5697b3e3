"""The words of a text that a search matched, for whoever shows results."""

from edenmem.search.words import match_spans

__all__ = ["match_spans"]
