"""The parameters of a request that a model supports.

Endpoints differ: some know the output limit only by its old name, others by its new one;
reasoning models reject a temperature; not all support a JSON schema. After a rejection, a
parameter is replaced or omitted in all later requests to the model.
"""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec

#: Output limit in tokens by task (see `edenmem.llm.protocol`). It stops a model that repeats
#: itself, and leaves room for the reasoning before an answer.
OUTPUT_TOKENS = {
    "facts": 16_000,
    "dedup": 16_000,
    "reflections": 16_000,
    "single": 24_000,
    "verify": 16_000,
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
    """The parameters that one model supports.

    Attributes:
        limit: Name of the output limit; "" if the model rejected both names.
        refused: Rejected names of the output limit.
        most_output: Largest output limit that the model supports (0: unknown).
        temperature: Whether the model supports a temperature.
        format: Form of structured output.
    """

    limit: str = "max_tokens"
    refused: tuple[str, ...] = ()
    most_output: int = 0
    temperature: bool = True
    format: Literal["json_schema", "json_object", "text"] = "json_schema"

    def output_limit(self, wanted: int) -> int:
        """Return the output limit to send (0: none)."""
        if not self.limit:
            return 0
        return min(wanted, self.most_output) if self.most_output else wanted

    def parameters(self, *, output: int, temperature: float) -> dict[str, Any]:
        """Return the parameters to send; ``output`` 0 means no output limit."""
        sent: dict[str, Any] = {}
        if limit := self.output_limit(output):
            sent[self.limit] = limit
        if self.temperature:
            sent["temperature"] = temperature
        return sent


def first_dialect(host: str) -> Dialect:
    """Return the dialect of a model that has not rejected anything yet.

    OpenAI needs the new name of the output limit. All other endpoints know the old name, and some
    ignore the new one silently.
    """
    is_openai = host.endswith(("openai.com", "openai.azure.com"))
    return Dialect(limit="max_completion_tokens" if is_openai else "max_tokens")


def next_dialect(dialect: Dialect, detail: str, sent: dict[str, Any]) -> Dialect | None:
    """Return the dialect to try after a rejection, or None if there is none left.

    Only parameters that were sent can be the reason: "use 'max_completion_tokens' instead" names
    the other one. A rejection without a name means the output format, the newest parameter.
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
