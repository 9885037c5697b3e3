"""Review of a model's items: judge, send back once on failure, judge again.

A formation pays for at most one such request, for the first step that needs it. Later failures are
judged as if they had been sent back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from edenmem.acceptance.evidence import Candidate, Evidence, Judgment, Violation
from edenmem.acceptance.rules import judge
from edenmem.acceptance.speaker import name_speaker
from edenmem.engine.formation.formation_input import Material
from edenmem.engine.runtime.answers import RewriteAnswer, RewrittenItem
from edenmem.engine.runtime.concurrency import in_thread
from edenmem.engine.runtime.llm_session import Asker, has_fence
from edenmem.errors import (
    BudgetExceeded,
    ProviderAuthError,
    ProviderError,
    ProviderMisconfigured,
)
from edenmem.models.formation import Decision
from edenmem.settings.schema import FormationSettings
from edenmem.text import tidy

# Refused even with all rules switched off.
_EMPTY = Violation("statement", "is empty")
_FENCED = Violation("echo", "contains the marks that fence data in the prompt")


class Review(msgspec.Struct, frozen=True, kw_only=True):
    """The result for a candidate, accepted if no violation is left.

    ``note`` says why it was not sent back or not rewritten, and ``failure`` is the message of the
    error that caused this. ``is_named``: the speaker's name has replaced the first person.
    """

    content: str
    sources: tuple[int, ...] = ()
    is_weak: bool = False
    is_named: bool = False
    violations: tuple[Violation, ...] = ()
    note: str = ""
    failure: str = ""

    @property
    def reason(self) -> str:
        """Return why it is rejected; empty if accepted."""
        if not self.violations:
            return ""
        return "; ".join(filter(None, [*(each.reason for each in self.violations), self.note]))

    @property
    def rule(self) -> str:
        """Return the broken rules, separated by commas."""
        return ",".join(dict.fromkeys(each.rule for each in self.violations))

    def reject(self, kind: str = "fact") -> Decision:
        """Return the decision to leave it out."""
        prefix = "" if kind == "fact" else f"{kind}: "
        return Decision(
            content=self.content,
            action="REJECTED",
            rule=self.rule,
            reason=prefix + self.reason,
            failure=self.failure if self.violations else "",
        )


class Returned(msgspec.Struct, frozen=True, kw_only=True):
    """An item as the rewrite prompt shows it."""

    number: int
    candidate: Candidate
    violations: tuple[Violation, ...]
    word_limit: int


async def review(
    asker: Asker,
    material: Material,
    candidates: Sequence[Candidate],
    evidence: Evidence,
    settings: FormationSettings,
    *,
    model: str,
) -> list[Review]:
    """Judge each candidate, send all failures back together, and judge the rewrites.

    If that call fails, they are rejected with the reason, and the formation continues.

    Raises:
        ProviderError: the model will refuse all later calls of this run.
    """
    # In a thread: reading a long range must not block other sessions.
    judgments = await in_thread(
        lambda: [judge(each, evidence, material.acceptance) for each in candidates]
    )
    reviews = list(map(_conclude, candidates, judgments))
    places = [place for place, first in enumerate(reviews) if first.violations]
    if not places:
        return reviews
    failed = [
        Returned(
            number=number,
            candidate=candidates[place],
            violations=reviews[place].violations,
            word_limit=_word_limit(candidates[place], settings),
        )
        for number, place in enumerate(places, 1)
    ]
    rewritten, note, failure = await _send_back(asker, material, failed, model=model)
    for place, item in zip(places, failed, strict=True):
        old, new = item.candidate, rewritten.get(item.number)
        if new is None and not note:  # the model chose to leave it out
            reviews[place] = msgspec.structs.replace(reviews[place], note="left out when sent back")
        else:
            again = old
            if new is not None:
                again = await in_thread(_apply, new, old, material, item.word_limit)
            last = await in_thread(judge, again, evidence, material.acceptance, is_last=True)
            concluded = _conclude(again, last)
            reviews[place] = msgspec.structs.replace(concluded, note=note, failure=failure)
    return reviews


def name_speaker_of(candidate: Candidate, material: Material, word_limit: int) -> Candidate:
    """Return the candidate with the speaker's name for its first person, where that is certain."""
    if not material.acceptance.statement:
        return candidate
    said = candidate.content
    named = name_speaker(said, candidate.sources, material.evidence)
    if named == said:
        return candidate
    return msgspec.structs.replace(candidate, content=tidy(named, word_limit), said=said)


def _conclude(candidate: Candidate, judgment: Judgment) -> Review:
    violations = judgment.violations
    if not judgment.content:
        violations = (_EMPTY,)
    elif has_fence(judgment.content):
        violations = (*violations, _FENCED)
    return Review(
        content=judgment.content,
        sources=judgment.sources,
        is_weak=judgment.is_weak,
        is_named=bool(candidate.said),
        violations=violations,
    )


def _word_limit(candidate: Candidate, settings: FormationSettings) -> int:
    return settings.fact_words if candidate.kind == "fact" else settings.reflection_words


def _apply(new: RewrittenItem, old: Candidate, material: Material, word_limit: int) -> Candidate:
    candidate = msgspec.structs.replace(
        old,
        content=tidy(new.content, word_limit),
        sources=tuple(new.sources) or old.sources,
        said="",
    )
    return name_speaker_of(candidate, material, word_limit)


async def _send_back(
    asker: Asker, material: Material, failed: Sequence[Returned], *, model: str
) -> tuple[Mapping[int, RewrittenItem], str, str]:
    """Return the rewritten items by number, or a note why there are none, and its cause."""
    if "rewrite" in asker.asked:
        return {}, "not sent back: this formation already sent others back", ""
    try:
        answer = await asker.ask(
            "rewrite", RewriteAnswer, model=model, items=failed, **material.prompt_values
        )
    except (ProviderAuthError, ProviderMisconfigured, BudgetExceeded):
        raise  # later calls of this run fail too: the range is kept whole
    except ProviderError as error:  # also for scripted answers without this one
        return {}, "could not be sent back", error.message
    found: dict[int, RewrittenItem] = {}
    for item in answer.items:
        found.setdefault(item.item, item)
    return found, "", ""
