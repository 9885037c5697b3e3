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
from edenmem.engine.formation.quotas import Offer
from edenmem.engine.formation.screening import normal, objection, tidy
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
    offers = material.offers.for_facts
    if not offers:
        return Facts()
    answer = await asker.ask(
        "facts",
        FactsAnswer,
        model=material.offers.fast_model,
        scopes=offers,
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
        offer = material.offers.find(item.scope, item.shard)
        why = objection(content, orders=False, prompt=prompt, conversation=conversation) or _unfit(
            offer, item
        )
        if why is None and offer is not None:
            key = (offer.scope, content_hash(content))
            if key in kept:
                kept[key] = msgspec.structs.replace(
                    kept[key], private=kept[key].private or item.private
                )
                continue
            if taken[offer.scope] < offer.max_facts:
                taken[offer.scope] += 1
                kept[key] = NewFact(offer.scope, content, item.private)
                continue
            why = f"more than {offer.max_facts} facts for the {offer.kind} scope"
        rejected.append(Decision(content=content, action="REJECTED", reason=why or ""))
    return Facts(tuple(kept.values()), tuple(rejected))


def _unfit(offer: Offer | None, item: ExtractedFact) -> str | None:
    if offer is not None and offer.max_facts:
        return None
    name = f"shard {item.shard!r}" if item.scope == "shard" else f"the {item.scope} scope"
    return f"{name} takes no facts here"


def _prompt_words(material: Material, settings: FormationSettings) -> str:
    """What the model was shown beside the conversation: none of it is a fact."""
    values = {**material.prompt_values, "conversation": ""}
    system, _ = render(
        "facts", scopes=material.offers.for_facts, fact_words=settings.fact_words, **values
    )
    wishes = "\n".join(offer.instructions for offer in material.offers.for_facts)
    return normal(f"{system}\n{wishes}")
