"""Read the labeled items, and measure the rules against them."""

from __future__ import annotations

import json
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from edenmem.acceptance.conversation import Conversation, SourceMessage
from edenmem.acceptance.evidence import Candidate, Evidence, Judgment
from edenmem.acceptance.rules import judge
from edenmem.settings.schema import AcceptanceSettings
from tests.support.intervals import wilson

DATA = Path(__file__).parent / "data"

#: A rule's name where the labels call it otherwise.
LABELS = {"relative_date": "relative_dates", "secret": "secrets", "order": "orders"}


class Rate(msgspec.Struct, frozen=True):
    """How many of how many, with Wilson's 95 % interval."""

    count: int
    total: int

    @property
    def share(self) -> float:
        return self.count / self.total

    @property
    def interval(self) -> tuple[float, float]:
        return wilson(self.count, self.total)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.count} of {self.total} ({self.share:.1%}, {low:.1%}-{high:.1%})"


class Rates(msgspec.Struct, frozen=True):
    """What became of a split: good and bad items, at first and if they are not rewritten."""

    good_sent_back: Rate
    good_refused: Rate
    bad_sent_back: Rate
    bad_refused: Rate
    broken_refused: Rate  # of bad items that break a rule, those that are refused for good
    missed: dict[str, int]  # bad items that pass at once, by the rule they were written against


SPLITS = ("dev", "holdout", "fresh", "unseen", "blind")

#: Splits with files of their own: SPLIT_conversations.jsonl and SPLIT.jsonl, good and bad together.
SEPARATE = ("unseen", "blind")

#: Items that say something else in the words of the conversation: no rule is meant to know.
MEANING = "meaning"


def _lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / name).read_text("utf-8").splitlines()]


@cache
def read(name: str) -> list[dict[str, Any]]:
    """The labeled rows of one kind: "good", "bad" or "conversations"."""
    if name == "conversations":
        others = [row for split in SEPARATE for row in _lines(f"{split}_conversations.jsonl")]
    else:
        rows = [row for split in SEPARATE for row in _lines(f"{split}.jsonl")]
        others = [row for row in rows if ("rules" in row) == (name == "bad")]
    return _lines(f"{name}.jsonl") + others


@cache
def evidence() -> dict[str, Evidence]:
    """What the model was shown, by conversation."""
    template = (DATA / "template.txt").read_text("utf-8")
    found = {}
    for row in read("conversations"):
        people = row["people"]
        around = [row["title"], row["persona"], row["instructions"], row["agent"], *people]
        found[row["id"]] = Evidence(
            talk=Conversation(
                tuple(
                    SourceMessage(
                        number=message["n"],
                        id=f"{row['id']}-{message['n']}",
                        author=message["author"],
                        speaker=message["speaker"],
                        sent_at=datetime.fromisoformat(message["at"]),
                        text=message["text"],
                    )
                    for message in row["messages"]
                )
            ),
            context=tuple(text for text in around if text),
            template=template,
            user=people[0] if len(people) == 1 else None,
        )
    return found


def judgment(row: dict[str, Any], *, is_last: bool = False) -> Judgment:
    """The judgment on a labeled item with all rules on."""
    candidate = Candidate(
        content=row["content"],
        kind=row["kind"],
        sources=tuple(row["sources"]),
        is_shared=row["shared"],
    )
    return judge(candidate, evidence()[row["conversation"]], AcceptanceSettings(), is_last=is_last)


@cache
def measure(split: str) -> Rates:
    """The rates of one split."""
    good = [row for row in read("good") if row["split"] == split]
    bad = [row for row in read("bad") if row["split"] == split]

    def count(rows: list[dict[str, Any]], *, is_last: bool) -> Rate:
        stopped = sum(bool(judgment(row, is_last=is_last).violations) for row in rows)
        return Rate(stopped, len(rows))

    missed: dict[str, int] = {}
    for row in bad:
        if not judgment(row).violations:
            rule = LABELS.get(row["rules"][0], row["rules"][0])
            missed[rule] = missed.get(rule, 0) + 1
    return Rates(
        good_sent_back=count(good, is_last=False),
        good_refused=count(good, is_last=True),
        bad_sent_back=count(bad, is_last=False),
        bad_refused=count(bad, is_last=True),
        broken_refused=count([row for row in bad if MEANING not in row["rules"]], is_last=True),
        missed=missed,
    )


if __name__ == "__main__":
    for each in SPLITS:
        rates = measure(each)
        print(each)
        for name in Rates.__struct_fields__[:-1]:
            print(f"  {name.replace('_', ' ')}: {getattr(rates, name)}")
        print(f"  missed: {rates.missed}")
