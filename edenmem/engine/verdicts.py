"""What a model's decisions about new facts come to, whatever it answered. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from edenmem.engine.answers import DedupDecision
from edenmem.engine.material import NewFact
from edenmem.engine.screening import flat, objection, tidy
from edenmem.models.memory import Fact

#: Words of a model's reason that are kept.
REASON_WORDS = 40


class Neighbour(msgspec.Struct, frozen=True):
    """An existing fact as a prompt shows it."""

    number: int
    content: str
    formed_at: datetime
    fact: Fact


class Compared(msgspec.Struct, frozen=True):
    """A new fact with its vector and its neighbours."""

    number: int
    new: NewFact
    vector: bytes | None
    neighbours: tuple[Neighbour, ...] = ()

    @property
    def content(self) -> str:
        """The new fact's text, as a prompt shows it."""
        return self.new.content

    def offered(self, number: int | None) -> Fact | None:
        """The neighbour with this number; None if it was not offered for this fact."""
        return next((each.fact for each in self.neighbours if each.number == number), None)


class Verdict(msgspec.Struct, frozen=True):
    """A decision that holds: ``target`` is there for all but ADD, ``text`` for UPDATE."""

    action: str
    reason: str
    target: Fact | None = None
    text: str = ""


def judge(
    asked: Sequence[Compared], decisions: Sequence[DedupDecision], fact_words: int
) -> dict[int, Verdict]:
    """What a model's decisions come to, by the number of the fact.

    The first decision about a fact counts, and the first that changes a target. A fact that is
    said to be known in a target that another decision changes is added: its words may be gone.
    """
    by_fact: dict[int, DedupDecision] = {}
    for decision in decisions:
        by_fact.setdefault(decision.fact, decision)
    verdicts = {item.number: _verdict(item, by_fact.get(item.number), fact_words) for item in asked}
    changed: set[str] = set()
    for number, verdict in verdicts.items():
        if verdict.target is None or verdict.action not in ("UPDATE", "DELETE"):
            continue
        if verdict.target.id in changed:
            verdicts[number] = Verdict("ADD", "its target is changed by another fact")
        changed.add(verdict.target.id)
    for number, verdict in verdicts.items():
        if verdict.action == "NONE" and verdict.target and verdict.target.id in changed:
            verdicts[number] = Verdict("ADD", "its target is changed by another fact")
    return verdicts


def _verdict(item: Compared, decision: DedupDecision | None, fact_words: int) -> Verdict:
    if decision is None:
        return Verdict("ADD", "no decision was given")
    why = tidy(decision.reason, REASON_WORDS)
    if decision.action == "ADD":
        return Verdict("ADD", why)
    target = item.offered(decision.target)
    if target is None:
        return Verdict("ADD", f"{decision.action} of something that was not offered")
    if decision.action != "UPDATE":
        return Verdict(decision.action, why, target)
    whole = flat(decision.content or "")
    text = tidy(whole, fact_words)
    if text != whole:
        return Verdict("ADD", f"the merged text has more than {fact_words} words")
    if problem := objection(text, orders=False):
        return Verdict("ADD", f"the merged text cannot be kept: {problem}")
    if item.new.private and not target.private:
        return Verdict("ADD", "private, so not merged into a fact that is not")
    if text == target.content:
        return Verdict("NONE", why, target)
    return Verdict("UPDATE", why, target, text)
