"""A strict endpoint compatible with Cohere's and Jina's ``/rerank``, on loopback.

It rejects what either of them rejects. Failures are scripted as with
`tests.support.fake_openai.FakeOpenAI`.
"""

from __future__ import annotations

import re
from typing import Any

from tests.support.fake_openai import FakeOpenAI, Reply, failing

MODEL = "rerank-tiny-1"
_FIELDS = {"model", "query", "documents", "top_n"}


def relevance(query: str, document: str) -> float:
    """Return the share of the query's words in the document."""
    asked, has = (set(re.findall(r"\w+", text.casefold())) for text in (query, document))
    return len(asked & has) / len(asked) if asked else 0.0


def results(*pairs: tuple[Any, Any]) -> Reply:
    """Return these indexes and scores for any request."""
    return Reply(
        body={"results": [{"index": index, "relevance_score": score} for index, score in pairs]}
    )


class FakeRerank(FakeOpenAI):
    """A context manager; ``url`` is the address of the endpoint."""

    @property
    def url(self) -> str:
        """Return the value of ``search.rerank_url``."""
        return f"{super().url}/rerank"

    def _behave(self, path: str, authorization: str, body: dict[str, Any]) -> Reply:
        if self.key is not None and authorization != f"Bearer {self.key}":
            return _refusal(401, f"invalid api token: {authorization}")
        if path != "/v1/rerank":
            return _refusal(404, f"no such route: {path}")
        if set(body) != _FIELDS:
            return _refusal(422, f"fields: {sorted(set(body) ^ _FIELDS)}")
        if body["model"] != MODEL:
            return _refusal(404, f"model {body['model']!r} not found")
        documents, wanted = body["documents"], body["top_n"]
        if not isinstance(body["query"], str) or not body["query"]:
            return _refusal(400, "invalid request: query must be at least 1 characters long")
        if not documents or not all(isinstance(one, str) and one for one in documents):
            return _refusal(400, "invalid request: list of documents must not be empty")
        if len(documents) > 1000 or not 1 <= wanted <= len(documents):
            return _refusal(400, "invalid request: too many documents, or top_n")
        scored = [
            {"index": index, "relevance_score": relevance(body["query"], document)}
            for index, document in enumerate(documents)
        ]
        scored.sort(key=lambda one: -one["relevance_score"])
        return Reply(
            body={
                "model": MODEL,
                "results": scored[:wanted],
                "usage": {"total_tokens": 12},
                "meta": {"billed_units": {"search_units": 1}},
            }
        )


def _refusal(status: int, message: str) -> Reply:
    """Return an error in Cohere's format; Jina uses "detail"."""
    return Reply(status, {"message": message}) if status != 422 else failing(status, message)
