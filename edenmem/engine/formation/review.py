"""Review of a model's items: check their form, ask once more about those in doubt.

What the check of form refuses is gone. What is in doubt is shown to the model again with its
messages, in one call for all items, and kept, corrected or dropped. What stays in doubt is kept
with its reasons, unless the settings say otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from edenmem.acceptance.doubts import additions
from edenmem.acceptance.evidence import Candidate, Evidence, Finding, Judgment
from edenmem.acceptance.rules import accept, judge
from edenmem.engine.formation.formation_input import Material
from edenmem.engine.runtime.answers import VerifiedItem, VerifyAnswer
from edenmem.engine.runtime.llm_session import Asker
from edenmem.errors import (
    BudgetExceeded,
    ProviderAuthError,
    ProviderError,
    ProviderMisconfigured,
)
from edenmem.models.formation import Decision
from edenmem.settings.schema import FormationSettings
from edenmem.text import flat

#: Doubts that a model's word does not settle: the text itself is unclear, or private.
_LASTING = ("relative_date", "privacy")


class Review(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome for a candidate, accepted if no violation is left.

    ``note`` says what the verification did, and ``failure`` is the message of the error that kept
    it from being asked.
    """

    content: str
    sources: tuple[int, ...] = ()
    quote: str = ""
    violations: tuple[Finding, ...] = ()
    doubts: tuple[Finding, ...] = ()
    note: str = ""
    failure: str = ""

    @property
    def unconfirmed(self) -> str:
        """Return the remaining doubts as one text; empty without any."""
        return "; ".join(each.reason for each in self.doubts)

    def reject(self, kind: str = "fact") -> Decision:
        """Return the decision to leave it out, without its text if that has a secret."""
        is_secret = any(each.rule == "secrets" for each in self.violations)
        prefix = "" if kind == "fact" else f"{kind}: "
        reasons = [*(each.reason for each in (*self.violations, *self.doubts)), self.note]
        return Decision(
            content="" if is_secret else self.content,
            action="REJECTED",
            rule=",".join(dict.fromkeys(each.rule for each in (*self.violations, *self.doubts))),
            reason=prefix + "; ".join(filter(None, reasons)),
            failure=self.failure,
        )


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """An item as the verification prompt shows it."""

    number: int
    kind: str
    content: str
    sources: tuple[int, ...]
    quote: str
    doubts: tuple[str, ...]


def assess(
    candidates: Sequence[Candidate], evidence: Evidence, settings: FormationSettings
) -> list[Review]:
    """Judge each candidate by its form, without a model."""
    if not settings.check:
        return [_conclude(each, accept(each)) for each in candidates]
    return [_conclude(each, judge(each, evidence)) for each in candidates]


async def verify(
    asker: Asker,
    material: Material,
    candidates: Sequence[Candidate],
    evidence: Evidence,
    assessed: Sequence[Review],
    settings: FormationSettings,
    *,
    model: str,
) -> list[Review]:
    """Verify the candidates in doubt in one call.

    If that call fails, they stay in doubt, and the formation continues.

    Raises:
        ProviderError: the model will refuse all later calls of this run.
    """
    reviews = list(assessed)
    asked = [place for place, each in enumerate(reviews) if _is_asked(each, settings)]
    if not asked:
        return reviews
    shown = [
        Shown(
            number=number,
            kind=candidates[place].kind,
            content=reviews[place].content,
            sources=reviews[place].sources,
            quote=reviews[place].quote,
            doubts=tuple(each.reason for each in reviews[place].doubts),
        )
        for number, place in enumerate(asked, 1)
    ]
    verdicts, failure = await _verify(asker, material, shown, model=model)
    for number, place in enumerate(asked, 1):
        verdict = verdicts.get(number)
        if verdict is None:
            note = "could not be verified" if failure else "not verified by the model"
            reviews[place] = msgspec.structs.replace(reviews[place], note=note, failure=failure)
        else:
            reviews[place] = settle(verdict, candidates[place], reviews[place], evidence)
    return reviews


def settle(
    verdict: VerifiedItem, candidate: Candidate, review: Review, evidence: Evidence
) -> Review:
    """Return the outcome of a verification.

    What code has no doubt about is not dropped, but marked. A correction passes the rules again,
    and must not add what its sources do not have: then the item stays as it was, in doubt.
    """
    change = msgspec.structs.replace
    lasting = tuple(each for each in review.doubts if each.rule in _LASTING)
    match verdict.verdict:
        case "drop":
            finding = Finding("verification", "the model found that the messages do not support it")
            if not review.doubts:  # two readers disagree: shown, not lost
                return change(review, doubts=(finding,))
            return change(review, violations=(finding,))
        case "keep":
            return change(review, doubts=lasting, note="verified")
    content = flat(verdict.content or "")
    talk = evidence.talk
    sources = tuple(number for number in verdict.sources if number in talk.by_number)
    corrected = change(candidate, content=content, sources=sources or review.sources)
    judgment = judge(corrected, evidence)
    near = talk.around(corrected.sources, 1)
    texts = [each.text for each in near] or [talk.folded]
    cited = talk.around(corrected.sources, 0)
    added = additions(content, [review.content, *texts], evidence, cited)
    if judgment.violations or added:
        why = added or judgment.violations[0].reason
        doubt = Finding("correction", f"needs a correction; the one offered {why}")
        return change(review, doubts=(*review.doubts, doubt))
    lasting = tuple(each for each in judgment.doubts if each.rule in _LASTING)
    return Review(
        content=judgment.content,
        sources=judgment.sources,
        quote=review.quote,
        doubts=lasting,
        note=f"corrected; it said: {review.content}",
    )


def _conclude(candidate: Candidate, judgment: Judgment) -> Review:
    return Review(
        content=judgment.content,
        sources=judgment.sources,
        quote=candidate.quote,
        violations=judgment.violations,
        doubts=judgment.doubts,
    )


def _is_asked(review: Review, settings: FormationSettings) -> bool:
    if review.violations or settings.verify == "off" or not settings.check:
        return False
    return settings.verify == "all" or bool(review.doubts)


async def _verify(
    asker: Asker, material: Material, shown: Sequence[Shown], *, model: str
) -> tuple[Mapping[int, VerifiedItem], str]:
    """Return the verdicts by number, or the message of the error that prevented them."""
    try:
        answer = await asker.ask(
            "verify", VerifyAnswer, model=model, items=shown, **material.prompt_values
        )
    except (ProviderAuthError, ProviderMisconfigured, BudgetExceeded):
        raise  # later calls of this run fail too: the range is kept whole
    except ProviderError as error:  # also for scripted answers without this one
        return {}, error.message
    found: dict[int, VerifiedItem] = {}
    for item in answer.items:
        found.setdefault(item.item, item)
    return found, ""
