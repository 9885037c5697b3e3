"""Review of a model's items: ask once more about those in doubt.

What the check of form refuses is gone. What is in doubt is shown to the model again with its
messages, in one call for all items, and kept, corrected or dropped. What stays in doubt is kept
with its reasons, unless the settings say otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from edenmem.acceptance.doubts import additions
from edenmem.acceptance.evidence import Candidate, Evidence, Finding, Judgment
from edenmem.acceptance.rules import judge
from edenmem.engine.formation.formation_input import FormationInput
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


def reject(judgment: Judgment, kind: str) -> Decision:
    """Return the decision to leave an item out, without its text if that has a secret."""
    findings = (*judgment.violations, *judgment.doubts)
    is_secret = any(each.rule == "secrets" for each in judgment.violations)
    reasons = filter(None, [*(each.reason for each in findings), judgment.note])
    return Decision(
        content="" if is_secret else judgment.content,
        action="REJECTED",
        rule=",".join(dict.fromkeys(each.rule for each in findings)),
        reason=("" if kind == "fact" else f"{kind}: ") + "; ".join(reasons),
        failure=judgment.failure,
    )


async def verify(
    asker: Asker,
    given: FormationInput,
    candidates: Sequence[Candidate],
    evidence: Evidence,
    assessed: Sequence[Judgment],
    settings: FormationSettings,
    *,
    model: str,
) -> list[Judgment]:
    """Verify the candidates in doubt in one call.

    If that call fails, they stay in doubt, and the formation continues.

    Raises:
        ProviderError: the model will refuse all later calls of this run.
    """
    judged = list(assessed)
    is_on = settings.check and settings.verify != "off"
    asked = [
        place
        for place, each in enumerate(judged)
        if is_on and not each.violations and (each.doubts or settings.verify == "all")
    ]
    if not asked:
        return judged
    shown = [
        {
            "number": number,
            "kind": candidates[place].kind,
            "content": judged[place].content,
            "sources": judged[place].sources,
            "quote": judged[place].quote,
            "doubts": [each.reason for each in judged[place].doubts],
        }
        for number, place in enumerate(asked, 1)
    ]
    verdicts, failure = await _verify(asker, given, shown, model=model)
    for number, place in enumerate(asked, 1):
        verdict = verdicts.get(number)
        if verdict is None:
            note = "could not be verified" if failure else "not verified by the model"
            judged[place] = msgspec.structs.replace(judged[place], note=note, failure=failure)
        else:
            judged[place] = settle(verdict, candidates[place], judged[place], evidence)
    return judged


def settle(
    verdict: VerifiedItem, candidate: Candidate, first: Judgment, evidence: Evidence
) -> Judgment:
    """Return the outcome of a verification.

    What code has no doubt about is not dropped, but marked. A correction passes the rules again,
    and must not add what its sources do not have: then the item stays as it was, in doubt.
    """
    change = msgspec.structs.replace
    lasting = tuple(each for each in first.doubts if each.rule in _LASTING)
    match verdict.verdict:
        case "drop":
            finding = Finding("verification", "the model found that the messages do not support it")
            if not first.doubts:  # two readers disagree: shown, not lost
                return change(first, doubts=(finding,))
            return change(first, violations=(finding,))
        case "keep":
            return change(first, doubts=lasting, note="verified")
    content = flat(verdict.content or "")
    talk = evidence.talk
    sources = tuple(number for number in verdict.sources if number in talk.by_number)
    corrected = change(candidate, content=content, sources=sources or first.sources)
    judgment = judge(corrected, evidence)
    near = talk.around(corrected.sources, 1)
    texts = [each.text for each in near] or [talk.folded]
    cited = talk.around(corrected.sources, 0)
    added = additions(content, [first.content, *texts], evidence, cited)
    if judgment.violations or added:
        why = added or judgment.violations[0].reason
        doubt = Finding("correction", f"needs a correction; the one offered {why}")
        return change(first, doubts=(*first.doubts, doubt))
    lasting = tuple(each for each in judgment.doubts if each.rule in _LASTING)
    note = f"corrected; it said: {first.content}"
    return change(judgment, quote=first.quote, doubts=lasting, note=note)


async def _verify(
    asker: Asker, given: FormationInput, shown: Sequence[Mapping[str, object]], *, model: str
) -> tuple[Mapping[int, VerifiedItem], str]:
    """Return the verdicts by number, or the message of the error that prevented them."""
    try:
        answer = await asker.ask(
            "verify", VerifyAnswer, model=model, items=shown, **given.prompt_values
        )
    except (ProviderAuthError, ProviderMisconfigured, BudgetExceeded):
        raise  # later calls of this run fail too: the range is kept whole
    except ProviderError as error:  # also for scripted answers without this one
        return {}, error.message
    found: dict[int, VerifiedItem] = {}
    for item in answer.items:
        found.setdefault(item.item, item)
    return found, ""
