"""Extract facts and reflections from a transcript with a model, and check them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from edenmem.acceptance.conversation import SourceMessage
from edenmem.acceptance.evidence import Candidate, Evidence
from edenmem.acceptance.form import has_fence
from edenmem.acceptance.rules import find_user_named
from edenmem.acceptance.texts import contains, fold
from edenmem.engine.formation.formation_input import Material, NewFact, NewReflection
from edenmem.engine.formation.quotas import ScopeQuota
from edenmem.engine.formation.review import Review, assess, verify
from edenmem.engine.runtime.answers import (
    ExtractedFact,
    FactsAnswer,
    ReflectionItem,
    ReflectionsAnswer,
    SingleAnswer,
)
from edenmem.engine.runtime.concurrency import in_thread
from edenmem.engine.runtime.llm_session import Asker, render_own_words
from edenmem.models.formation import Decision
from edenmem.models.memory import content_hash
from edenmem.models.scope import Scope, ScopeKind
from edenmem.settings.schema import FormationSettings
from edenmem.text import flat

#: Reasons for dropping an acceptable item: no scope, no room, already known.
SCOPE, LIMIT, KNOWN = "scope", "limit", "known"
#: The doubt about a fact for everybody that names a user.
PRIVACY = "privacy"


class Facts(msgspec.Struct, frozen=True):
    """The accepted facts, in the order of the answer, and the rejected ones."""

    kept: tuple[NewFact, ...] = ()
    rejected: tuple[Decision, ...] = ()
    held: tuple[NewFact, ...] = ()

    def join(self, later: Facts) -> Facts:
        """Add the facts of a later part of the conversation."""
        kept = {(each.scope, each.content): each for each in self.kept}
        for new in later.kept:
            key = (new.scope, new.content)
            kept[key] = _join(kept[key], new) if key in kept else new
        rejected = (*self.rejected, *later.rejected)
        return Facts(tuple(kept.values()), rejected, (*self.held, *later.held))


class Reflections(msgspec.Struct, frozen=True):
    """The accepted reflections, broad to narrow, and the rejected ones."""

    kept: tuple[NewReflection, ...] = ()
    rejected: tuple[Decision, ...] = ()
    held: tuple[NewReflection, ...] = ()

    def join(self, later: Reflections) -> Reflections:
        """Add the reflections of a later part of the conversation, each text of a scope once."""
        said = {(each.scope, fold(each.content)) for each in (*self.kept, *self.held)}
        later = msgspec.structs.replace(
            later,
            kept=tuple(each for each in later.kept if (each.scope, fold(each.content)) not in said),
            held=tuple(each for each in later.held if (each.scope, fold(each.content)) not in said),
        )
        rejected = (*self.rejected, *later.rejected)
        return Reflections((*self.kept, *later.kept), rejected, (*self.held, *later.held))


async def extract_facts(asker: Asker, material: Material, settings: FormationSettings) -> Facts:
    """Ask for facts, if any scope takes them.

    Raises:
        ProviderError: the model gave no valid answer.
    """
    if not material.quotas.for_facts:
        return Facts()
    values = {"scopes": material.quotas.offered_for_facts, "fact_words": settings.fact_words}
    return (await _extract("facts", FactsAnswer, values, asker, material, settings))[0]


async def extract_reflections(
    asker: Asker, material: Material, known: Sequence[str], settings: FormationSettings
) -> Reflections:
    """Ask for reflections, if any scope takes them; ``known`` are the new facts.

    Raises:
        ProviderError: the model gave no valid answer.
    """
    scopes = material.quotas.for_reflections
    if not scopes:
        return Reflections()
    words = settings.reflection_words
    values = {"scopes": scopes, "facts": known, "reflection_words": words}
    found = await _extract(
        "reflections", ReflectionsAnswer, values, asker, material, settings, known
    )
    return found[1]


async def extract_together(
    asker: Asker, material: Material, settings: FormationSettings
) -> tuple[Facts, Reflections]:
    """Ask for facts and reflections in one call.

    Raises:
        ProviderError: the model gave no valid answer.
    """
    values = {
        "scopes": material.quotas.offered,
        "fact_words": settings.fact_words,
        "reflection_words": settings.reflection_words,
    }
    return await _extract("single", SingleAnswer, values, asker, material, settings)


async def _extract(
    task: str,
    kind: type[FactsAnswer] | type[ReflectionsAnswer] | type[SingleAnswer],
    own_values: Mapping[str, object],
    asker: Asker,
    material: Material,
    settings: FormationSettings,
    known: Sequence[str] = (),
) -> tuple[Facts, Reflections]:
    """Ask, review all items of the answer together, and keep the accepted ones.

    Reflections do not repeat ``known`` facts or facts of the same answer.
    """
    quotas = material.quotas
    model = quotas.slow_model if kind is ReflectionsAnswer else quotas.fast_model
    values = {**own_values, **material.prompt_values}
    answer = await asker.ask(task, kind, model=model, **values)
    items: Sequence[ExtractedFact] = ()
    parts = ReflectionsAnswer()
    match answer:
        case FactsAnswer():
            items = answer.facts
        case ReflectionsAnswer():
            parts = answer
        case SingleAnswer():
            items, parts = answer.facts, answer.reflections

    facts, refused_facts = _propose_facts(items, material, settings)
    thoughts, refused_thoughts = _propose_reflections(parts, material, settings)
    candidates = [*(each.candidate for each in facts), *(each.candidate for each in thoughts)]

    def read() -> tuple[Evidence, list[Review]]:
        memory = () if kind is FactsAnswer else tuple(each.memory for each in quotas.items)
        evidence = msgspec.structs.replace(
            material.evidence,
            memory=tuple(filter(None, memory)),
            template=render_own_words(task, **values),
        )
        return evidence, assess(candidates, evidence, settings)

    # In a thread: reading a long range must not block other sessions.
    evidence, reviews = await in_thread(read)
    reviews = await verify(asker, material, candidates, evidence, reviews, settings, model=model)
    count = len(facts)
    kept = _keep_facts(facts, reviews[:count], refused_facts, material)
    known = [*known, *(fact.content for fact in kept.kept)]
    return kept, _keep_reflections(thoughts, reviews[count:], refused_thoughts, material, known)


def _reject(content: str, rule: str, reason: str) -> Decision:
    return Decision(content=content, action="REJECTED", rule=rule, reason=reason)


# -- facts ---------------------------------------------------------------------------------------


class _ProposedFact(msgspec.Struct, frozen=True):
    item: ExtractedFact
    candidate: Candidate


def _propose_facts(
    items: Sequence[ExtractedFact], material: Material, settings: FormationSettings
) -> _Facts:
    """Split the facts into those for a scope that takes them, and rejected ones."""
    proposed: list[_ProposedFact] = []
    refused: list[Decision] = []
    for item in items:
        content = flat(item.content)
        quota = _choose_quota(item, content, item.sources, material)
        if quota is None:
            refused.append(_nowhere(item, content))
            continue
        candidate = Candidate(
            content=content,
            sources=tuple(item.sources),
            quote="" if has_fence(item.quote) else flat(item.quote),
            scope=str(quota.kind),
            takes_orders=quota.takes_orders,
            word_limit=settings.fact_words,
        )
        proposed.append(_ProposedFact(item, candidate))
    return proposed, refused


def _public_quote(quote: str, quota: ScopeQuota, material: Material) -> str:
    """Return the quote of a fact; nothing if it has a secret, or names a user to everybody."""
    evidence, said = material.evidence, quote.casefold()
    is_secret = any(value in said for value in evidence.talk.secrets)
    is_public = quota.kind is ScopeKind.AGENT
    return "" if is_secret or (is_public and find_user_named(quote, evidence)) else quote


def _keep_facts(
    proposed: Sequence[_ProposedFact],
    reviews: Sequence[Review],
    refused: Sequence[Decision],
    material: Material,
) -> Facts:
    """Return the accepted facts, up to each scope's limit."""
    held: list[NewFact] = []
    kept: dict[tuple[Scope, str], NewFact] = {}
    rejected = list(refused)
    taken: Counter[tuple[ScopeKind, str | None]] = Counter()  # by the offered scope
    for proposal, reviewed in zip(proposed, reviews, strict=True):
        item, content = proposal.item, reviewed.content
        if any(each.rule == PRIVACY for each in reviewed.doubts):
            item, reviewed = _move_to_user(item, reviewed, material)
        quota = _choose_quota(item, content, reviewed.sources, material)
        if reviewed.violations or (quota is not None and _is_dropped(reviewed, quota)):
            rejected.append(reviewed.reject())
            continue
        if quota is None:
            rejected.append(_nowhere(item, content))
            continue
        sources = material.transcript.find_sources(reviewed.sources)
        new = NewFact(
            scope=quota.scope,
            content=content,
            private=item.private,
            source_ids=tuple(dict.fromkeys(each.id for each in sources)),
            quote=_public_quote(reviewed.quote, quota, material),
            unconfirmed=reviewed.unconfirmed,
            note=reviewed.note,
            failure=reviewed.failure,
        )
        if quota.holds(new.unconfirmed):
            held.append(new)
            continue
        key, offer = (quota.scope, content_hash(content)), (quota.kind, quota.shard)
        if same := kept.get(key):
            kept[key] = _join(same, new)
        elif taken[offer] < quota.max_facts:
            taken[offer] += 1
            kept[key] = new
        else:
            reason = f"more than {quota.max_facts} facts for the {quota.kind} scope"
            rejected.append(_reject(content, LIMIT, reason))
    return Facts(tuple(kept.values()), tuple(rejected), tuple(held))


def _is_dropped(reviewed: Review, quota: ScopeQuota) -> bool:
    """Return whether an item is left out for its doubts; memory of everybody names no user."""
    if quota.holds(reviewed.unconfirmed):
        return False
    private = any(each.rule == PRIVACY for each in reviewed.doubts)
    return private or (quota.doubtful == "drop" and bool(reviewed.doubts))


def _move_to_user(
    item: ExtractedFact, reviewed: Review, material: Material
) -> tuple[ExtractedFact, Review]:
    """Move a fact for everybody to the user whom it names and who said it, if their scope takes it.

    One user's life never reaches another through the agent: otherwise the doubt stays.
    """
    own = item.model_copy(update={"scope": "user", "shard": None})
    said_by = [
        each
        for each in material.transcript.find_sources(reviewed.sources)
        if each.author == "person" and _names_one(reviewed.content, [each])
    ]
    if not said_by or _choose_quota(own, reviewed.content, reviewed.sources, material) is None:
        return item, reviewed
    doubts = tuple(each for each in reviewed.doubts if each.rule != PRIVACY)
    return own, msgspec.structs.replace(reviewed, doubts=doubts)


def _join(one: NewFact, other: NewFact) -> NewFact:
    """Merge two identical facts."""
    return msgspec.structs.replace(
        one,
        private=one.private or other.private,
        source_ids=tuple(dict.fromkeys((*one.source_ids, *other.source_ids))),
    )


#: Scopes that everybody who talks to the agent reads.
_PUBLIC = ("agent", "shard")


def _choose_quota(
    item: ExtractedFact, content: str, numbers: Sequence[int], material: Material
) -> ScopeQuota | None:
    """Return the quota of the scope for a fact.

    A fact about a person goes to the account that said it, never to another person's. If several
    people speak, it goes to the group if it names the speaker, else nowhere. What was said in
    confidence goes to its speaker, also if the model chose a scope that everybody reads.
    """
    quotas = material.quotas
    kind = "user" if item.private and item.scope in _PUBLIC else item.scope
    quota = quotas.find(kind, item.shard)
    sources = material.transcript.find_sources(numbers)
    said_by = [each for each in sources[::-1] if each.author == "person"]
    if kind == "user" and said_by:
        own = (quotas.of_account(material.transcript.account_of(each)) for each in said_by)
        if quota is not None:
            quota = next((each for each in own if each is not None), None)
        elif not item.private and _names_one(content, said_by):
            quota = quotas.find("group", None)
    return quota if quota is not None and quota.max_facts else None


def _names_one(content: str, said_by: Sequence[SourceMessage]) -> bool:
    return any(contains(fold(content), fold(each.speaker)) for each in said_by)


def _nowhere(item: ExtractedFact, content: str) -> Decision:
    name = f"shard {item.shard!r}" if item.scope == "shard" else f"the {item.scope} scope"
    return _reject(content, SCOPE, f"{name} takes no facts here")


# -- reflections ---------------------------------------------------------------------------------


class _ProposedReflection(msgspec.Struct, frozen=True):
    name: str
    quota: ScopeQuota
    candidate: Candidate
    private: bool


#: Proposed items, and rejected ones.
_Facts = tuple[list[_ProposedFact], list[Decision]]
_Reflections = tuple[list[_ProposedReflection], list[Decision]]


def _propose_reflections(
    answer: ReflectionsAnswer, material: Material, settings: FormationSettings
) -> _Reflections:
    """Split the reflections by scope, broad to narrow, and reject the others."""
    proposed: list[_ProposedReflection] = []
    refused: list[Decision] = []
    own = material.quotas.find("user", None)
    for name, offered, items in _by_quota(answer, material):
        for item in items:
            content = flat(item.content)
            is_confided = item.private and offered is not None and str(offered.kind) in _PUBLIC
            quota = (own if own and own.max_reflections else None) if is_confided else offered
            if quota is None:
                why = "takes no confidences" if is_confided else "takes no reflections here"
                reason = f"reflection: {name} {why}"
                refused.append(_reject(content, SCOPE, reason))
                continue
            candidate = Candidate(
                content=content,
                kind="reflection",
                sources=tuple(item.sources),
                scope=str(quota.kind),
                takes_orders=quota.takes_orders,
                word_limit=settings.reflection_words,
            )
            proposed.append(_ProposedReflection(name, quota, candidate, item.private))
    return proposed, refused


def _keep_reflections(
    proposed: Sequence[_ProposedReflection],
    reviews: Sequence[Review],
    refused: Sequence[Decision],
    material: Material,
    known: Sequence[str],
) -> Reflections:
    """Return the accepted new reflections, up to each scope's limit."""
    kept: list[NewReflection] = []
    held: list[NewReflection] = []
    rejected = list(refused)
    said = {fold(fact) for fact in known} | _said_already(material)
    taken: Counter[Scope] = Counter()
    for proposal, reviewed in zip(proposed, reviews, strict=True):
        quota, content = proposal.quota, reviewed.content
        sources = material.transcript.find_sources(reviewed.sources)
        new = NewReflection(
            scope=quota.scope,
            content=content,
            private=proposal.private,
            source_ids=tuple(dict.fromkeys(each.id for each in sources)),
            unconfirmed=reviewed.unconfirmed,
        )
        if reviewed.violations or _is_dropped(reviewed, quota):
            rejected.append(reviewed.reject("reflection"))
        elif fold(content) in said:
            rejected.append(_reject(content, KNOWN, "reflection: already known"))
        elif quota.holds(new.unconfirmed):
            held.append(new)
        elif taken[quota.scope] == quota.max_reflections:
            reason = f"reflection: too many reflections for {proposal.name}"
            rejected.append(_reject(content, LIMIT, reason))
        else:
            taken[quota.scope] += 1
            said.add(fold(content))
            kept.append(new)
    return Reflections(tuple(kept), tuple(rejected), tuple(held))


def _said_already(material: Material) -> set[str]:
    said: set[str] = set()
    for known in material.quotas.items:
        said.update(fold(line) for line in (*known.text.splitlines(), *known.pending))
        said.update(fold(line) for part in known.elsewhere for line in part.splitlines())
    return said


def _by_quota(
    answer: ReflectionsAnswer, material: Material
) -> Iterator[tuple[str, ScopeQuota | None, list[ReflectionItem]]]:
    """Yield each part of an answer with its quota, broad to narrow."""
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
