"""Facts: asked of the fast model, which sees the conversation and no memory, and then checked.

What comes back is a proposal. A scope that was not offered takes nothing, and what it would have
taken is never moved to another one; a statement that is too long is cut with "…"; of too many the
first are kept. Whatever is left out is told as a decision ``REJECTED`` with the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from edenmem.engine.formation.formation_input import Material, NewFact
from edenmem.engine.formation.quotas import ScopeQuota
from edenmem.engine.formation.screening import normal, rejection_reason, tidy
from edenmem.engine.runtime.answers import ExtractedFact, FactsAnswer
from edenmem.engine.runtime.llm_session import Asker
from edenmem.engine.runtime.prompts import render
from edenmem.models.formation import Decision
from edenmem.models.memory import content_hash
from edenmem.models.scope import Scope
from edenmem.settings.schema import FormationSettings


class Facts(msgspec.Struct, frozen=True):
    """What may be kept, in the order of the answer, and what was refused."""

    kept: tuple[NewFact, ...] = ()
    rejected: tuple[Decision, ...] = ()


async def extract_facts(asker: Asker, material: Material, settings: FormationSettings) -> Facts:
    """Ask for facts, if any scope takes them.

    Raises:
        ProviderError: no valid answer was to be had.
    """
    quotas = material.quotas.for_facts
    if not quotas:
        return Facts()
    answer = await asker.ask(
        "facts",
        FactsAnswer,
        model=material.quotas.fast_model,
        scopes=quotas,
        fact_words=settings.fact_words,
        **material.prompt_values,
    )
    return screen_facts(answer.facts, material, settings)


def screen_facts(
    proposed: Sequence[ExtractedFact], material: Material, settings: FormationSettings
) -> Facts:
    """Check what a model proposed."""
    kept: dict[tuple[Scope, str], NewFact] = {}
    rejected: list[Decision] = []
    taken: Counter[Scope] = Counter()
    prompt = _prompt_words(material, settings)
    conversation = normal(material.transcript.text)
    for item in proposed:
        content = tidy(item.content, settings.fact_words)
        quota = material.quotas.find(item.scope, item.shard)
        why = rejection_reason(
            content, orders=False, prompt=prompt, conversation=conversation
        ) or _unfit(quota, item)
        if why is None and quota is not None:
            key = (quota.scope, content_hash(content))
            if key in kept:
                kept[key] = msgspec.structs.replace(
                    kept[key], private=kept[key].private or item.private
                )
                continue
            if taken[quota.scope] < quota.max_facts:
                taken[quota.scope] += 1
                kept[key] = NewFact(quota.scope, content, item.private)
                continue
            why = f"more than {quota.max_facts} facts for the {quota.kind} scope"
        rejected.append(Decision(content=content, action="REJECTED", reason=why or ""))
    return Facts(tuple(kept.values()), tuple(rejected))


def _unfit(quota: ScopeQuota | None, item: ExtractedFact) -> str | None:
    if quota is not None and quota.max_facts:
        return None
    name = f"shard {item.shard!r}" if item.scope == "shard" else f"the {item.scope} scope"
    return f"{name} takes no facts here"


def _prompt_words(material: Material, settings: FormationSettings) -> str:
    """What the model was shown beside the conversation: none of it is a fact."""
    values = {**material.prompt_values, "conversation": ""}
    system, _ = render(
        "facts", scopes=material.quotas.for_facts, fact_words=settings.fact_words, **values
    )
    wishes = "\n".join(quota.instructions for quota in material.quotas.for_facts)
    return normal(f"{system}\n{wishes}")
