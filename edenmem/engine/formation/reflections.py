"""Reflections: asked of the slow model, which sees the memory and the new facts, and then checked.

Broad to narrow: agent, shards, group, user, session. What a broader scope, the memory as it is, or
a new fact says already in the same words is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from edenmem.engine.formation.formation_input import Material, NewFact, NewReflection
from edenmem.engine.formation.quotas import Offer
from edenmem.engine.formation.screening import normal, objection, tidy
from edenmem.engine.runtime.answers import ReflectionItem, ReflectionsAnswer
from edenmem.engine.runtime.llm_session import Asker
from edenmem.models.formation import Decision
from edenmem.models.scope import ScopeKind
from edenmem.settings.schema import FormationSettings


class Reflections(msgspec.Struct, frozen=True):
    """What may be kept, broad to narrow, and what was refused."""

    kept: tuple[NewReflection, ...] = ()
    rejected: tuple[Decision, ...] = ()


async def extract_reflections(
    asker: Asker, material: Material, facts: Sequence[NewFact], settings: FormationSettings
) -> Reflections:
    """Ask for reflections, if any scope takes them.

    Raises:
        ProviderError: no valid answer was to be had.
    """
    offers = material.offers.for_reflections
    if not offers:
        return Reflections()
    answer = await asker.ask(
        "reflections",
        ReflectionsAnswer,
        model=material.offers.slow_model,
        scopes=offers,
        facts=[fact.content for fact in facts],
        reflection_words=settings.reflection_words,
        **material.prompt_values,
    )
    return screen_reflections(answer, material, facts, settings)


def screen_reflections(
    answer: ReflectionsAnswer,
    material: Material,
    facts: Iterable[NewFact],
    settings: FormationSettings,
) -> Reflections:
    """Check what a model proposed."""
    kept: list[NewReflection] = []
    rejected: list[Decision] = []
    said = {normal(fact.content) for fact in facts}
    for known in material.offers.items:
        said.update(normal(line) for line in (*known.text.splitlines(), *known.pending))
        said.update(normal(line) for part in known.elsewhere for line in part.splitlines())
    for name, offer, items in _by_offer(answer, material):
        left = offer.max_reflections if offer else 0
        personal = offer is not None and offer.kind in (ScopeKind.USER, ScopeKind.SESSION)
        for item in items:
            content = tidy(item.content, settings.reflection_words)
            why = objection(content, orders=personal)
            if why is None and normal(content) in said:
                why = "said already"
            if why is None and offer is None:
                why = f"{name} takes no reflections here"
            if why is None and left == 0:
                why = f"too many reflections for {name}"
            if why is None and offer is not None:
                left -= 1
                said.add(normal(content))
                kept.append(NewReflection(offer.scope, content, item.private))
            else:
                reason = f"reflection: {why}"
                rejected.append(Decision(content=content, action="REJECTED", reason=reason))
    return Reflections(tuple(kept), tuple(rejected))


def _by_offer(
    answer: ReflectionsAnswer, material: Material
) -> Iterator[tuple[str, Offer | None, list[ReflectionItem]]]:
    """Each part of an answer with the offer that it is for, broad to narrow."""
    find = material.offers.find

    def taking(kind: str, shard: str | None = None) -> Offer | None:
        offer = find(kind, shard)
        return offer if offer is not None and offer.max_reflections else None

    yield "the agent scope", taking("agent"), answer.agent
    merged: dict[Offer | None, list[ReflectionItem]] = {}
    for part in answer.shards:
        merged.setdefault(taking("shard", part.shard), []).extend(part.reflections)
    for offer, items in merged.items():
        yield (f"shard {offer.scope.owner!r}" if offer else "an unknown shard"), offer, items
    yield "the group scope", taking("group"), answer.group
    yield "the user scope", taking("user"), answer.user
    yield "the session scope", taking("session"), answer.session
