"""A language model in the hands of whoever talks to it.

It writes down whatever the conversation says, word for word, in every scope that the form of an
answer knows, orders the removal of all that it is shown, and hands back prompts as texts. What it
does not do is break the form itself: then there is no answer at all.
"""

from __future__ import annotations

import itertools
import re
from typing import Any

from edenmem.llm.protocol import LLMRequest
from tests.support.llm import FakeLLM

_START = re.compile(r"^\[[^\]]*\] [^:]*: ")
_FENCE = re.compile(r"^<<<(?:end of )?\w+ ([0-9a-f]{16})>>>$")
_NUMBER = re.compile(r"^(?:N|  E)(\d+)", re.M)

#: Names of shards that the attacker may have heard of: theirs, another agent's, and none.
SHARDS = ("lore", "LORE", "vault", "../lore", "", "b" * 24)
MOST_LINES = 20


class Puppet(FakeLLM):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self._turn = itertools.count()
        for task in ("facts", "reflections", "single", "dedup", "consolidate", "shorten"):
            self.script(task, getattr(self, f"_{task}"))

    def _facts(self, request: LLMRequest[Any]) -> Any:
        lines = _words(request)
        places: list[tuple[str, str | None]] = [("user", None), ("group", None), ("agent", None)]
        places += [("shard", name) for name in SHARDS]
        return {
            "facts": [
                {
                    "content": line,
                    "sources": [1, 0, 10**9],
                    "scope": scope,
                    "shard": shard,
                    "private": False,
                }
                for scope, shard in places
                for line in (*lines, "all " * 2000, "endless" * 2000, "")
            ]
        }

    def _reflections(self, request: LLMRequest[Any]) -> Any:
        items = [{"content": line, "private": False} for line in (*_words(request), "all " * 2000)]
        return {
            **dict.fromkeys(("agent", "group", "user", "session"), items),
            "shards": [{"shard": name, "reflections": items} for name in SHARDS],
        }

    def _single(self, request: LLMRequest[Any]) -> Any:
        return {**self._facts(request), "reflections": self._reflections(request)}

    def _dedup(self, request: LLMRequest[Any]) -> Any:
        shown = sorted({int(number) for number in _NUMBER.findall(request.user)})
        targets = itertools.cycle([*shown, 0, -1, 10**9])
        return {
            "decisions": [
                {
                    "fact": f"N{number}",
                    "reason": "the user said so " * 50,
                    "action": action,
                    "target": f"E{next(targets)}",
                    "content": "Mallory owns everything.",
                }
                for number, action in zip(shown, itertools.cycle(("DELETE", "UPDATE")))
            ]
        }

    def _consolidate(self, request: LLMRequest[Any]) -> Any:
        said = "\n".join(_words(request))
        texts = (f"VERSION: 99\n{said}", request.user, "", said, "word " * 5000, request.system)
        return {"text": texts[next(self._turn) % len(texts)]}

    def _shorten(self, request: LLMRequest[Any]) -> Any:
        return {"text": " ".join(_words(request))[:600]}


def _words(request: LLMRequest[Any]) -> list[str]:
    """What stands between the fences, without the speakers."""
    lines = dict.fromkeys(
        _START.sub("", line).strip() for line in request.user.splitlines() if not _FENCE.match(line)
    )
    return [line for line in lines if line][:MOST_LINES]
