"""``python -m tests.acceptance.labeled SET``: what the rules do with a labeled set.

A set is JSON Lines, one conversation a line with its items: good ones, bad ones of form (which code
must refuse) and bad ones of meaning (which only a reader can tell). Each item has a quote, as a
model gives it. The verification is played by an oracle, for the items that code sends to it: it
keeps good ones, gives the labeled correction where there is one, and drops the rest.

Each set was written before it was measured, by someone who knew neither rules nor other sets:

- ``work``: read while the rules were written.
- ``choice``: measured to choose between settings, then read.
- ``last``: measured once at the end, then read.
- ``fresh``: written and measured once after ``last`` was read, then read.
- ``fifth``: half the size, measured once with the rules that followed ``fresh``, then read.
- ``sixth``: measured once with the rules that followed ``fifth``, then read.
- ``seventh``: 100 conversations with items of form alone, as careless models write them; measured
  once with the rules that followed ``sixth``, then read.
- ``eighth`` (120 conversations), ``ninth`` to ``thirteenth`` (100 each): items of form again, with
  good ones that look dangerous; each measured once before the model of `tests.acceptance.fit` had
  it. The model has not had ``thirteenth``.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec

from edenmem.acceptance.evidence import Candidate, Conversation, Evidence, Judgment, SourceMessage
from edenmem.acceptance.rules import judge
from edenmem.engine.formation.extraction import settle
from edenmem.engine.runtime.answers import VerifiedItem
from tests.support.intervals import wilson

DATA = Path(__file__).parent / "data"
SETS = (
    "work",
    "choice",
    "last",
    "fresh",
    "fifth",
    "sixth",
    "seventh",
    "eighth",
    "ninth",
    "tenth",
    "eleventh",
    "twelfth",
    "thirteenth",
)

Verify = Literal["off", "doubtful", "all"]


class Item(msgspec.Struct, frozen=True):
    """A labeled item with its conversation."""

    text: str
    kind: Literal["fact", "reflection"]
    scope: str
    sources: tuple[int, ...]
    quote: str
    good: bool
    type: str
    conversation: str
    language: str
    fault: str = ""
    fixed: str | None = None

    @property
    def label(self) -> str:
        """Good, or the kind of its fault."""
        return "good" if self.good else self.fault


@cache
def read(name: str) -> tuple[list[Item], dict[str, Evidence]]:
    """Return the items of a set, and what the model was shown, by conversation."""
    items: list[Item] = []
    shown: dict[str, Evidence] = {}
    for line in (DATA / f"{name}.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        shown[row["id"]] = _evidence(row)
        items += (_item(each, row) for each in row["items"])
    return items, shown


def _item(each: dict[str, Any], row: dict[str, Any]) -> Item:
    fields = {key: value for key, value in each.items() if key != "from"}
    return Item(**fields, sources=tuple(each["from"]), conversation=row["id"], language=row["lang"])


def _evidence(row: dict[str, Any]) -> Evidence:
    messages = tuple(
        SourceMessage(
            number=number,
            id=f"{row['id']}-{number}",
            author=author,
            speaker=speaker,
            sent_at=datetime.fromisoformat(at).replace(tzinfo=UTC),
            text=text,
        )
        for number, (author, speaker, at, text) in enumerate(row["messages"], 1)
    )
    return Evidence(
        talk=Conversation(messages),
        context=tuple(filter(None, (row["title"], row["persona"]))),
        agents=(row["agent"],),
        users=tuple(row["people"]),
    )


def candidate_of(item: Item) -> Candidate:
    """Return an item as the engine would judge it."""
    return Candidate(
        content=item.text,
        kind=item.kind,
        sources=item.sources,
        quote=item.quote,
        scope=item.scope,
    )


def first_review(item: Item) -> Judgment:
    """Return what code says about an item before it is verified."""
    return judge(candidate_of(item), read_evidence(item))


def read_evidence(item: Item) -> Evidence:
    """Return what the model was shown with an item."""
    for name in SETS:
        if (DATA / f"{name}.jsonl").exists() and item.conversation in read(name)[1]:
            return read(name)[1][item.conversation]
    raise LookupError(item.conversation)


def oracle(item: Item) -> VerifiedItem:
    """Return what a careful reader answers about an item."""
    if item.good:
        return VerifiedItem(item=1, about="", verdict="keep", sources=list(item.sources))
    if item.fault == "meaning" and item.fixed:
        return VerifiedItem(
            item=1,
            about="",
            verdict="correct",
            sources=list(item.sources),
            content=item.fixed,
        )
    return VerifiedItem(item=1, about="", verdict="drop", sources=list(item.sources))


class Outcome(msgspec.Struct, frozen=True):
    """What became of an item: "refused", "unconfirmed", "corrected" or "clean"."""

    item: Item
    state: str
    rules: tuple[str, ...]
    is_asked: bool


def outcome(item: Item, verify: Verify) -> Outcome:
    """Return what becomes of an item with this setting of ``formation.verify``."""
    first = first_review(item)
    rules = tuple(each.rule for each in (*first.violations, *first.doubts))
    is_asked = verify == "all" or (verify == "doubtful" and bool(first.doubts))
    if first.violations or not is_asked:
        return Outcome(item, _state(first, item), rules, False)
    last = settle(oracle(item), candidate_of(item), first, read_evidence(item))
    return Outcome(item, _state(last, item), rules, True)


def _state(review: Judgment, item: Item) -> str:
    if review.violations:
        return "refused"
    if review.doubts:
        return "unconfirmed"
    return "clean" if review.content == item.text or item.good else "corrected"


def rate(outcomes: Iterable[Outcome], holds: Callable[[Outcome], bool]) -> str:
    """Return how many outcomes hold, with Wilson's 95 % interval."""
    outcomes = list(outcomes)
    count = sum(map(holds, outcomes))
    if not outcomes:
        return "-"
    low, high = wilson(count, len(outcomes))
    return f"{count}/{len(outcomes)} {count / len(outcomes):.1%} ({low:.1%}-{high:.1%})"


def report(name: str) -> None:
    """Print the figures of a set."""
    items = read(name)[0]
    for verify in ("off", "doubtful", "all"):
        outcomes = [outcome(item, verify) for item in items]  # type: ignore[arg-type]
        print(f"\n{name}, verify = {verify}: {sum(each.is_asked for each in outcomes)} asked")
        for label in ("good", "form", "meaning"):
            of_label = [each for each in outcomes if each.item.label == label]
            for state in ("refused", "unconfirmed", "corrected", "clean"):
                print(f"  {label} {state}: {rate(of_label, lambda one, s=state: one.state == s)}")
    first = [outcome(item, "off") for item in items]
    print("\nfirst judgment by type:")
    for key, group in sorted(_grouped(first, lambda one: (one.item.label, one.item.type)).items()):
        states = Counter(each.state for each in group)
        rules = Counter(rule for each in group for rule in each.rules)
        print(f"  {key[0]} {key[1]}: {dict(states)} {dict(rules)}")
    print("\nby language:")
    for key, group in sorted(_grouped(first, lambda one: one.item.language).items()):
        cells = [
            f"{label} {dict(Counter(each.state for each in group if each.item.label == label))}"
            for label in ("good", "form", "meaning")
        ]
        print(f"  {key}: {'; '.join(cells)}")


def _grouped(
    outcomes: Iterable[Outcome], key: Callable[[Outcome], Any]
) -> dict[Any, list[Outcome]]:
    groups: defaultdict[Any, list[Outcome]] = defaultdict(list)
    for each in outcomes:
        groups[key(each)].append(each)
    return groups


if __name__ == "__main__":
    report(sys.argv[1])
