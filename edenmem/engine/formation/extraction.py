"""What a model extracts from a transcript: facts and reflections, screened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from edenmem.acceptance.evidence import SourceMessage
from edenmem.engine.formation.formation_input import Material, NewFact, NewReflection
from edenmem.engine.formation.quotas import ScopeQuota
from edenmem.engine.formation.screening import normal, rejection_reason, tidy
from edenmem.engine.runtime.answers import (
    ExtractedFact,
    FactsAnswer,
    ReflectionItem,
    ReflectionsAnswer,
)
from edenmem.engine.runtime.llm_session import Asker, render
from edenmem.models.formation import Decision
from edenmem.models.memory import content_hash
from edenmem.models.scope import Scope, ScopeKind
from edenmem.settings.schema import FormationSettings

#: Why an item is not kept although it may be remembered: nowhere to keep it, or no room.
SCOPE, LIMIT = "scope", "limit"


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
        scopes=material.quotas.offered_for_facts,
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
    taken: Counter[tuple[ScopeKind, str | None]] = Counter()  # by what a model is offered
    prompt = _prompt_words(material, settings)
    conversation = normal(material.transcript.text)
    for item in proposed:
        content = tidy(item.content, settings.fact_words)
        sources = material.transcript.find_sources(item.sources)
        quota = _choose_quota(item, sources, material)
        rule = ""
        why = rejection_reason(content, orders=False, prompt=prompt, conversation=conversation)
        if why is None and isinstance(quota, str):
            why, rule = quota, SCOPE
        if why is None and isinstance(quota, ScopeQuota):
            new = NewFact(quota.scope, content, item.private, tuple(each.id for each in sources))
            key, offer = (quota.scope, content_hash(content)), (quota.kind, quota.shard)
            if same := kept.get(key):
                kept[key] = _join(same, new)
                continue
            if taken[offer] < quota.max_facts:
                taken[offer] += 1
                kept[key] = new
                continue
            why, rule = f"more than {quota.max_facts} facts for the {quota.kind} scope", LIMIT
        rejected.append(Decision(content=content, action="REJECTED", rule=rule, reason=why or ""))
    return Facts(tuple(kept.values()), tuple(rejected))


def _join(one: NewFact, other: NewFact) -> NewFact:
    """The same fact, said twice."""
    return msgspec.structs.replace(
        one,
        private=one.private or other.private,
        source_ids=tuple(dict.fromkeys((*one.source_ids, *other.source_ids))),
    )


def _choose_quota(
    item: ExtractedFact, sources: Sequence[SourceMessage], material: Material
) -> ScopeQuota | str:
    """The quota of the scope that a fact goes to, or why there is none.

    What is about a person goes to the account that said it, never to that of another person: where
    several people speak, to the group if it names who said it, else nowhere.
    """
    quotas = material.quotas
    quota = quotas.find(item.scope, item.shard)
    said_by = [each for each in sources[::-1] if each.author == "person"]
    if item.scope == "user" and said_by:
        own = (quotas.of_account(material.transcript.account_of(each)) for each in said_by)
        if quota is not None:
            quota = next((each for each in own if each is not None), None)
        elif not item.private and any(_names(item.content, each.speaker) for each in said_by):
            quota = quotas.find("group", None)
    if quota is not None and quota.max_facts:
        return quota
    name = f"shard {item.shard!r}" if item.scope == "shard" else f"the {item.scope} scope"
    return f"{name} takes no facts here"


def _names(content: str, name: str) -> bool:
    return f" {normal(name)} " in f" {normal(content)} "


def _prompt_words(material: Material, settings: FormationSettings) -> str:
    """What the model was shown beside the conversation: none of it is a fact."""
    values = {**material.prompt_values, "conversation": ""}
    system, _ = render(
        "facts", scopes=material.quotas.offered_for_facts, fact_words=settings.fact_words, **values
    )
    wishes = "\n".join(quota.instructions for quota in material.quotas.for_facts)
    return normal(f"{system}\n{wishes}")


class Reflections(msgspec.Struct, frozen=True):
    """What may be kept, broad to narrow, and what was refused."""

    kept: tuple[NewReflection, ...] = ()
    rejected: tuple[Decision, ...] = ()


async def extract_reflections(
    asker: Asker, material: Material, facts: Sequence[str], settings: FormationSettings
) -> Reflections:
    """Ask for reflections beside these texts of new facts, if any scope takes them.

    Raises:
        ProviderError: no valid answer was to be had.
    """
    quotas = material.quotas.for_reflections
    if not quotas:
        return Reflections()
    answer = await asker.ask(
        "reflections",
        ReflectionsAnswer,
        model=material.quotas.slow_model,
        scopes=quotas,
        facts=facts,
        reflection_words=settings.reflection_words,
        **material.prompt_values,
    )
    return screen_reflections(answer, material, facts, settings)


def screen_reflections(
    answer: ReflectionsAnswer,
    material: Material,
    facts: Iterable[str],
    settings: FormationSettings,
) -> Reflections:
    """Check what a model proposed beside these texts of new facts."""
    kept: list[NewReflection] = []
    rejected: list[Decision] = []
    said = {normal(fact) for fact in facts}
    for known in material.quotas.items:
        said.update(normal(line) for line in (*known.text.splitlines(), *known.pending))
        said.update(normal(line) for part in known.elsewhere for line in part.splitlines())
    for name, quota, items in _by_quota(answer, material):
        left = quota.max_reflections if quota else 0
        personal = quota is not None and quota.kind in (ScopeKind.USER, ScopeKind.SESSION)
        for item in items:
            content = tidy(item.content, settings.reflection_words)
            why = rejection_reason(content, orders=personal)
            if why is None and normal(content) in said:
                why = "said already"
            if why is None and quota is None:
                why = f"{name} takes no reflections here"
            if why is None and left == 0:
                why = f"too many reflections for {name}"
            if why is None and quota is not None:
                left -= 1
                said.add(normal(content))
                kept.append(NewReflection(quota.scope, content, item.private))
            else:
                reason = f"reflection: {why}"
                rejected.append(Decision(content=content, action="REJECTED", reason=reason))
    return Reflections(tuple(kept), tuple(rejected))


def _by_quota(
    answer: ReflectionsAnswer, material: Material
) -> Iterator[tuple[str, ScopeQuota | None, list[ReflectionItem]]]:
    """Each part of an answer with the quota that it is for, broad to narrow."""
    find = material.quotas.find

    def taking(kind: str, shard: str | None = None) -> ScopeQuota | None:
        quota = find(kind, shard)
        return quota if quota is not None and quota.max_reflections else None

    yield "the agent scope", taking("agent"), answer.agent
    merged: dict[ScopeQuota | None, list[ReflectionItem]] = {}
    for part in answer.shards:
        merged.setdefault(taking("shard", part.shard), []).extend(part.reflections)
    for quota, items in merged.items():
        yield (f"shard {quota.scope.owner!r}" if quota else "an unknown shard"), quota, items
    yield "the group scope", taking("group"), answer.group
    yield "the user scope", taking("user"), answer.user
    yield "the session scope", taking("session"), answer.session
