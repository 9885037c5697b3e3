"""Highlighting of matched words, for callers that display results."""

from edenmem.search.words import match_spans

__all__ = ["match_spans"]
