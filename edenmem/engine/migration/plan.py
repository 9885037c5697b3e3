"""What a migration reads: v1 as a sequence of items, whatever it is kept in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Protocol, Self

from edenmem.models.v1 import (
    V1Damage,
    V1Fact,
    V1Item,
    V1Options,
    V1Person,
    V1Problem,
    V1Ref,
    V1Reflection,
    V1Text,
)


class V1Plan(Protocol):
    """Everything that is in a source, and what becomes of it. Reading it writes nothing anywhere
    but to a temporary file of its own, which is gone when the plan is closed or the process ends.

    Blocks. One thread at a time may use it.
    """

    @property
    def location(self) -> str:
        """Where v1 was read from, without secrets."""

    @property
    def options(self) -> V1Options:
        """What the plan makes of v1, with the ids of the agents that were asked for."""

    @property
    def incomplete(self) -> Sequence[V1Damage]:
        """What of the source is missing or cannot be read; empty if it is complete."""

    @property
    def totals(self) -> Mapping[str, int]:
        """How many documents each collection has of the agents that were asked for, those of
        nobody included; the sources of all items together are exactly these."""

    @property
    def not_asked(self) -> Mapping[str, int]:
        """How many documents each collection has of agents that were not asked for."""

    @property
    def unknown_fields(self) -> Mapping[str, int]:
        """``collection.field`` → how many documents have this field, which v1 is not known for."""

    def item_total(self, tell: Callable[[int], None] = ...) -> int:
        """Return the number of items, which are counted at the first call; ``tell`` is then called
        now and then with the number so far."""

    def fates(self) -> Mapping[str, int]:
        """Return the number of documents that have a place in v2 ("used"), are "left_behind", or
        "bad"; each counts once, so that these are all `totals`. Counted with `item_total`."""

    def agents(self) -> Sequence[V1Person]:
        """The agents that the items belong to, in that order."""

    def users(self, agent_id: str | None = None) -> Iterator[V1Person]:
        """The users with a text of the agent, or whom its memory names, or those of any of the
        agents that were asked for; each followed by their other accounts."""

    def items(self, *, after: str | None = None, agent_id: str | None = None) -> Iterator[V1Item]:
        """The items by agent, kind and key; with ``after``, only those with greater keys."""

    def problems(self) -> Iterator[V1Problem]:
        """The problems of all items, in their order."""

    def source_text(self, ref: V1Ref) -> str | None:
        """The text that a document holds, as v1 has it; None if there is no such document."""

    def find_absorbed(self, item: V1Item, memory_ids: Sequence[str]) -> set[str]:
        """Those of these memories (ids of v1) that v1 has and that do not wait for the text of the
        item any more."""

    def close(self) -> None:
        """Let go of the temporary file."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


#: Characters of the items that are handled together.
_CHARACTERS = 2_000_000


def batched_items(items: Iterable[V1Item], size: int) -> Iterator[list[V1Item]]:
    """Lists of up to ``size`` items, in order; fewer where their texts are long, however many
    there are, so that memory does not grow with the length of texts."""
    batch: list[V1Item] = []
    characters = 0
    for item in items:
        batch.append(item)
        characters += _length(item)
        if len(batch) >= size or characters >= _CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _length(item: V1Item) -> int:
    match item.target:
        case V1Fact(fact=memory) | V1Reflection(reflection=memory):
            length = len(memory.content)
        case V1Text(content=content, earlier=earlier):
            length = len(content) + sum(len(each.content) for each in earlier)
        case _:
            length = 0
    return length + len(item.extra)
