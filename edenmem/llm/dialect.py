"""What a request carries beside its messages, and what is learned of a model that refuses a part.

Endpoints differ: some know the limit of the answer by its old name only, others by its new one;
reasoning models take no temperature; not all take a JSON schema. What a model refuses once is
replaced or left out from then on.
"""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec

#: Tokens that an answer may take, by task (see `edenmem.llm.protocol`). They stop a model that
#: repeats itself, and leave room for what reasoning models write before they answer.
OUTPUT_TOKENS = {
    "facts": 16_000,
    "dedup": 16_000,
    "reflections": 16_000,
    "single": 24_000,
    "rewrite": 16_000,
    "consolidate": 12_000,
    "shorten": 8_000,
    "recall": 2_000,
    "propagate": 8_000,
    "merge": 8_000,
    "forget": 12_000,
    "doctor": 2_000,
}
DEFAULT_OUTPUT_TOKENS = 16_000

_LIMIT_NAMES = ("max_completion_tokens", "max_tokens")
_ABOUT_FORMAT = re.compile(r"response.?format|json|schema|grammar|structured|guided", re.IGNORECASE)
_MOST = re.compile(
    r"(?:at most|less than or equal to|<=|range of `?max_tokens`? is \[\d+,)\s*`?(\d[\d,]*)",
    re.IGNORECASE,
)


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """What one model takes. ``limit`` is what it calls the limit of the answer, and empty if it
    ``refused`` both names; ``most_output`` is the largest that it takes, 0 if that is not known."""

    limit: str = "max_tokens"
    refused: tuple[str, ...] = ()
    most_output: int = 0
    temperature: bool = True
    format: Literal["json_schema", "json_object", "text"] = "json_schema"

    def output_limit(self, wanted: int) -> int:
        """What of the wanted limit is sent; 0: none."""
        if not self.limit:
            return 0
        return min(wanted, self.most_output) if self.most_output else wanted

    def parameters(self, *, output: int, temperature: float) -> dict[str, Any]:
        """The parameters that are sent; ``output`` 0: without a limit."""
        sent: dict[str, Any] = {}
        if limit := self.output_limit(output):
            sent[self.limit] = limit
        if self.temperature:
            sent["temperature"] = temperature
        return sent


def first_dialect(host: str) -> Dialect:
    """What a model is taken to know before it has refused anything.

    OpenAI's own models want the new name of the limit. Elsewhere the old one is known to all, and
    some pass over the new one without a word.
    """
    is_openai = host.endswith(("openai.com", "openai.azure.com"))
    return Dialect(limit="max_completion_tokens" if is_openai else "max_tokens")


def next_dialect(dialect: Dialect, detail: str, sent: dict[str, Any]) -> Dialect | None:
    """The dialect to try after a request was rejected with ``detail``; None: nothing is left.

    Only what was sent can be at fault: "use 'max_completion_tokens' instead" is about the other.
    A rejection that names nothing is taken to be of the form of the answer, the youngest part.
    """
    if dialect.limit in sent and re.search(rf"\b{dialect.limit}\b", detail):
        most = _MOST.search(detail)
        if most and 0 < (number := int(most[1].replace(",", ""))) < sent[dialect.limit]:
            return msgspec.structs.replace(dialect, most_output=number)
        refused = (*dialect.refused, dialect.limit)
        other = next((name for name in _LIMIT_NAMES if name not in refused), "")
        return msgspec.structs.replace(dialect, limit=other, refused=refused, most_output=0)
    if "temperature" in sent and "temperature" in detail:
        return msgspec.structs.replace(dialect, temperature=False)
    if dialect.format == "json_schema":
        return msgspec.structs.replace(dialect, format="json_object")
    if dialect.format == "json_object" and _ABOUT_FORMAT.search(detail):
        return msgspec.structs.replace(dialect, format="text")
    return None
