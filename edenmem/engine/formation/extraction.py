"""Extract facts and reflections from a transcript with a model, and check them.

What the check of form refuses is gone. What is in doubt is shown to the model again with its
messages, in one call for all items, and kept, corrected or dropped. What stays in doubt is kept
with its reasons, unless the settings say otherwise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from edenmem.acceptance.doubts import additions
from edenmem.acceptance.evidence import Candidate, Evidence, Finding, Judgment, SourceMessage
from edenmem.acceptance.form import has_fence
from edenmem.acceptance.rules import accept, find_user_named, judge
from edenmem.acceptance.texts import contains, fold
from edenmem.engine.formation.formation_input import FormationInput, Kind, NewItem
from edenmem.engine.formation.quotas import ScopeQuota
from edenmem.engine.runtime.answers import (
    ExtractedFact,
    FactsAnswer,
    ReflectionItem,
    ReflectionsAnswer,
    SingleAnswer,
    VerifiedItem,
    VerifyAnswer,
)
from edenmem.engine.runtime.concurrency import in_thread
from edenmem.engine.runtime.llm_session import Asker, render_own_words
from edenmem.errors import (
    BudgetExceeded,
    ProviderAuthError,
    ProviderError,
    ProviderMisconfigured,
)
from edenmem.models.formation import Decision
from edenmem.models.scope import ScopeKind
from edenmem.settings.schema import FormationSettings
from edenmem.text import flat

#: Reasons for dropping an acceptable item: no scope, no room, already known.
SCOPE, LIMIT, KNOWN = "scope", "limit", "known"
#: The doubt about a fact for everybody that names a user.
PRIVACY = "privacy"
#: Doubts that a model's word does not settle: the text itself is unclear, or private.
_LASTING = ("relative_date", PRIVACY)

Task = Literal["facts", "reflections", "single"]

_ANSWERS: dict[Task, type[FactsAnswer | ReflectionsAnswer | SingleAnswer]] = {
    "facts": FactsAnswer,
    "reflections": ReflectionsAnswer,
    "single": SingleAnswer,
}


class Items(msgspec.Struct, frozen=True):
    """The accepted items, in the order of the answer, those to review, and the rejected ones."""

    kept: tuple[NewItem, ...] = ()
    held: tuple[NewItem, ...] = ()
    rejected: tuple[Decision, ...] = ()

    def of(self, kind: Kind) -> tuple[NewItem, ...]:
        """Return the accepted items of a kind."""
        return tuple(each for each in self.kept if each.kind == kind)

    def join(self, later: Items) -> Items:
        """Add the items of a later part of the conversation, each text of a scope once."""
        kept = {each.key: each for each in self.kept}
        for new in later.kept:
            kept[new.key] = kept[new.key].join(new) if new.key in kept else new
        return Items(
            tuple(kept.values()),
            (*self.held, *later.held),
            (*self.rejected, *later.rejected),
        )


async def extract(
    task: Task,
    asker: Asker,
    given: FormationInput,
    settings: FormationSettings,
    known: Sequence[str] = (),
) -> Items:
    """Ask, review all items of the answer together, and keep the accepted ones.

    Without a scope that takes items of this task, no model is asked. Reflections do not repeat
    ``known`` texts or facts of the same answer.

    Raises:
        ProviderError: the model gave no valid answer.
    """
    quotas = given.quotas
    offered = {
        "facts": quotas.offered_for_facts,
        "reflections": quotas.for_reflections,
        "single": quotas.offered,
    }[task]
    if not offered:
        return Items()
    model = quotas.slow_model if task == "reflections" else quotas.fast_model
    values = {
        "scopes": offered,
        "facts": known,
        "fact_words": settings.fact_words,
        "reflection_words": settings.reflection_words,
        **given.prompt_values,
    }
    answer = await asker.ask(task, _ANSWERS[task], model=model, **values)
    found = list(_propose(answer, given))
    proposals = [(each, each.quota) for each in found if each.quota is not None]
    candidates = [each.candidate(quota, settings) for each, quota in proposals]

    def read() -> tuple[Evidence, list[Judgment]]:
        memory = () if task == "facts" else tuple(each.memory for each in quotas.items)
        evidence = msgspec.structs.replace(
            given.evidence,
            memory=tuple(filter(None, memory)),
            template=render_own_words(task, **values),
        )
        judged = (judge(each, evidence) if settings.check else accept(each) for each in candidates)
        return evidence, list(judged)

    # In a thread: reading a long range must not block other sessions.
    evidence, judged = await in_thread(read)
    judged = await verify(asker, given, candidates, evidence, judged, settings, model=model)
    kept = _keep([each for each, _ in proposals], judged, given, known)
    nowhere = (each.refuse(flat(each.item.content)) for each in found if each.quota is None)
    return msgspec.structs.replace(kept, rejected=(*nowhere, *kept.rejected))


class _Proposal(NamedTuple):
    """An item of an answer, and the quota of its scope (None: no scope takes it)."""

    kind: Kind
    item: ExtractedFact | ReflectionItem
    scope: str
    quota: ScopeQuota | None

    def candidate(self, quota: ScopeQuota, settings: FormationSettings) -> Candidate:
        """Return the item as the rules judge it."""
        quote = self.item.quote if isinstance(self.item, ExtractedFact) else ""
        words = settings.fact_words if self.kind == "fact" else settings.reflection_words
        return Candidate(
            content=flat(self.item.content),
            kind=self.kind,
            sources=tuple(self.item.sources),
            quote="" if has_fence(quote) else flat(quote),
            scope=str(quota.kind),
            takes_orders=quota.takes_orders,
            word_limit=words,
        )

    def refuse(self, content: str, rule: str = SCOPE, why: str = "") -> Decision:
        """Return the decision to leave an acceptable item out; by default, no scope takes it."""
        why = why or f"{self.scope} takes no {self.kind}s here"
        reason = why if self.kind == "fact" else f"{self.kind}: {why}"
        return Decision(content=content, action="REJECTED", rule=rule, reason=reason)


def _propose(
    answer: FactsAnswer | ReflectionsAnswer | SingleAnswer, given: FormationInput
) -> Iterator[_Proposal]:
    """Yield the items of an answer: the facts, then the reflections, broad to narrow."""
    if not isinstance(answer, ReflectionsAnswer):
        for fact in answer.facts:
            yield _propose_fact(fact, flat(fact.content), fact.sources, given)
    if isinstance(answer, FactsAnswer):
        return
    own = _taking("user", None, given)
    parts = answer.reflections if isinstance(answer, SingleAnswer) else answer
    for scope, offered, items in _by_quota(parts, given):
        for item in items:
            is_confided = item.private and offered is not None and offered.kind in _PUBLIC
            yield _Proposal("reflection", item, scope, own if is_confided else offered)


def _keep(
    proposals: Sequence[_Proposal],
    judged: Sequence[Judgment],
    given: FormationInput,
    known: Sequence[str],
) -> Items:
    """Return the accepted items, up to the limits of each scope."""
    held: list[NewItem] = []
    kept: dict[object, NewItem] = {}
    rejected: list[Decision] = []
    taken: Counter[tuple[Kind, ScopeKind, str | None]] = Counter()  # by the offered scope
    said = {fold(text) for text in known} | _said_already(given)
    for proposal, judgment in zip(proposals, judged, strict=True):
        if isinstance(proposal.item, ExtractedFact):
            proposal, judgment = _place_fact(proposal.item, judgment, given)
        content, quota, kind = judgment.content, proposal.quota, proposal.kind
        if judgment.violations or (quota is not None and _is_dropped(judgment, quota)):
            rejected.append(reject(judgment, kind))
            continue
        if quota is None:
            rejected.append(proposal.refuse(content))
            continue
        sources = given.transcript.talk.around(judgment.sources, 0)
        new = NewItem(
            kind=kind,
            scope=quota.scope,
            content=content,
            private=proposal.item.private,
            source_ids=tuple(dict.fromkeys(each.id for each in sources)),
            quote=_public_quote(judgment.quote, quota, given),
            unconfirmed=judgment.unconfirmed,
            note=judgment.note,
            failure=judgment.failure,
        )
        offer, most = (kind, quota.kind, quota.shard), quota.most(kind)
        if kind == "reflection" and fold(content) in said:
            rejected.append(proposal.refuse(content, KNOWN, "already known"))
        elif quota.holds(new.unconfirmed):
            held.append(new)
        elif same := kept.get(new.key):
            kept[new.key] = same.join(new)
        elif taken[offer] == most:
            why = f"too many {kind}s for {proposal.scope} (at most {most})"
            rejected.append(proposal.refuse(content, LIMIT, why))
        else:
            taken[offer] += 1
            said.add(fold(content))
            kept[new.key] = new
    return Items(tuple(kept.values()), tuple(held), tuple(rejected))


def _is_dropped(judgment: Judgment, quota: ScopeQuota) -> bool:
    """Return whether an item is left out for its doubts; memory of everybody names no user."""
    if quota.holds(judgment.unconfirmed):
        return False
    private = any(each.rule == PRIVACY for each in judgment.doubts)
    return private or (quota.doubtful == "drop" and bool(judgment.doubts))


def _public_quote(quote: str, quota: ScopeQuota, given: FormationInput) -> str:
    """Return the quote of a fact; nothing if it has a secret, or names a user to everybody."""
    evidence, said = given.evidence, quote.casefold()
    is_secret = any(value in said for value in evidence.talk.secrets)
    is_public = quota.kind is ScopeKind.AGENT
    return "" if is_secret or (is_public and find_user_named(quote, evidence)) else quote


# -- the scope of a fact -------------------------------------------------------------------------

#: Scopes that everybody who talks to the agent reads.
_PUBLIC = ("agent", "shard")


def _place_fact(
    item: ExtractedFact, judgment: Judgment, given: FormationInput
) -> tuple[_Proposal, Judgment]:
    """Return a judged fact with the scope that its text and sources belong to.

    A fact for everybody that names a user who said it moves to that user, if their scope takes it.
    One user's life never reaches another through the agent: otherwise the doubt stays.
    """
    content, sources = judgment.content, judgment.sources
    doubts = tuple(each for each in judgment.doubts if each.rule != PRIVACY)
    if doubts != judgment.doubts:
        said = given.transcript.talk.around(sources, 0)
        said_by = [each for each in said if each.author == "person" and _names_one(content, [each])]
        own = item.model_copy(update={"scope": "user", "shard": None})
        moved = _propose_fact(own, content, sources, given)
        if said_by and moved.quota is not None:
            return moved, msgspec.structs.replace(judgment, doubts=doubts)
    return _propose_fact(item, content, sources, given), judgment


def _propose_fact(
    item: ExtractedFact, content: str, numbers: Sequence[int], given: FormationInput
) -> _Proposal:
    """Return a fact with the quota of its scope.

    A fact about a person goes to the account that said it, never to another person's. If several
    people speak, it goes to the group if it names the speaker, else nowhere. What was said in
    confidence goes to its speaker, also if the model chose a scope that everybody reads.
    """
    quotas = given.quotas
    kind = "user" if item.private and item.scope in _PUBLIC else item.scope
    quota = quotas.find(kind, item.shard)
    sources = given.transcript.talk.around(numbers, 0)
    said_by = [each for each in sources[::-1] if each.author == "person"]
    if kind == "user" and said_by:
        own = (quotas.of_account(each.account) for each in said_by)
        if quota is not None:
            quota = next((each for each in own if each is not None), None)
        elif not item.private and _names_one(content, said_by):
            quota = quotas.find("group", None)
    scope = f"shard {item.shard!r}" if item.scope == "shard" else f"the {item.scope} scope"
    return _Proposal("fact", item, scope, quota if quota and quota.max_facts else None)


def _names_one(content: str, said_by: Sequence[SourceMessage]) -> bool:
    return any(contains(fold(content), fold(each.speaker)) for each in said_by)


# -- reflections ---------------------------------------------------------------------------------


def _said_already(given: FormationInput) -> set[str]:
    said: set[str] = set()
    for known in given.quotas.items:
        said.update(fold(line) for line in (*known.text.splitlines(), *known.pending))
        said.update(fold(line) for part in known.elsewhere for line in part.splitlines())
    return said


def _taking(kind: str, shard: str | None, given: FormationInput) -> ScopeQuota | None:
    """Return the quota of a scope that takes reflections."""
    quota = given.quotas.find(kind, shard)
    return quota if quota is not None and quota.max_reflections else None


def _by_quota(
    answer: ReflectionsAnswer, given: FormationInput
) -> Iterator[tuple[str, ScopeQuota | None, list[ReflectionItem]]]:
    """Yield each part of an answer with its quota, broad to narrow."""
    yield "the agent scope", _taking("agent", None, given), answer.agent
    merged: dict[ScopeQuota | None, list[ReflectionItem]] = {}
    for part in answer.shards:
        merged.setdefault(_taking("shard", part.shard, given), []).extend(part.reflections)
    for quota, items in merged.items():
        yield (f"shard {quota.scope.owner!r}" if quota else "an unknown shard"), quota, items
    for kind in ("group", "user", "session"):
        yield f"the {kind} scope", _taking(kind, None, given), getattr(answer, kind)


# -- verification --------------------------------------------------------------------------------


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
