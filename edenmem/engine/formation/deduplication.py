"""Deduplication: add each new fact, merge it, replace an old fact, or drop it as known.

Only facts of the same scope are compared; for a user, those of all their accounts. Existing facts
stay under their account, whether kept, updated or deleted. The model sees small numbers, each new
fact with its own neighbors. A decision about anything else, or a missing one, counts as ADD. So
does every decision if the call fails, because a duplicate does less harm than a lost fact. Only
a model that will refuse all later calls ends the work.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial

import msgspec

from edenmem.acceptance.doubts import additions
from edenmem.acceptance.rules import find_user_named, object_to
from edenmem.engine.formation.formation_input import FormationInput, NewItem
from edenmem.engine.formation.quotas import ScopeQuotas
from edenmem.engine.runtime.answers import DedupAnswer, DedupDecision
from edenmem.engine.runtime.concurrency import in_loop, in_thread
from edenmem.engine.runtime.llm_session import Asker
from edenmem.engine.runtime.runtime import Runtime
from edenmem.errors import (
    BudgetExceeded,
    ConfigError,
    ContextOverflow,
    ProviderAuthError,
    ProviderError,
    ProviderMisconfigured,
    ReplayMiss,
)
from edenmem.models.changes import AddFact, Change, RemoveFact, ReviseFact, SetPrivacy
from edenmem.models.embeddings import scale_of
from edenmem.models.formation import Decision
from edenmem.models.memory import Fact, content_hash
from edenmem.models.scope import Scope, ScopeKind
from edenmem.models.search import FactFilter
from edenmem.text import flat, tidy

#: Maximum number of words kept of a model's reason.
REASON_WORDS = 40


class Neighbor(msgspec.Struct, frozen=True):
    """An existing fact as shown in a prompt."""

    number: int
    content: str
    at: datetime
    fact: Fact


class ComparedFact(msgspec.Struct, frozen=True):
    """A new fact with its vector and its neighbors."""

    number: int
    new: NewItem
    vector: bytes | None
    neighbors: tuple[Neighbor, ...] = ()

    @property
    def content(self) -> str:
        """Return the new fact's text, as shown in a prompt."""
        return self.new.content

    def find_neighbor(self, number: int | None) -> Fact | None:
        """Return the neighbor with this number; None if it was not offered for this fact."""
        return next((each.fact for each in self.neighbors if each.number == number), None)


class Verdict(msgspec.Struct, frozen=True):
    """A valid decision: ``target`` is set for all but ADD, ``text`` for UPDATE."""

    action: str
    reason: str
    target: Fact | None = None
    text: str = ""


#: Returns why a merged text cannot be kept; empty if it can.
Objection = Callable[[ComparedFact, Fact, str], str]


def resolve(
    asked: Sequence[ComparedFact],
    decisions: Sequence[DedupDecision],
    objection: Objection,
) -> dict[int, Verdict]:
    """Turn a model's decisions into verdicts, by the number of the fact.

    The first decision about a fact counts, and the first one that changes a target. A fact said to
    be known in a target that another decision changes is added, since its words may be gone.
    """
    by_fact: dict[int | None, DedupDecision] = {}
    for decision in decisions:
        by_fact.setdefault(_number(decision.fact, "N"), decision)
    verdicts = {item.number: _verdict(item, by_fact.get(item.number), objection) for item in asked}
    changed: set[str] = set()
    for number, verdict in verdicts.items():
        if verdict.target is None or verdict.action not in ("UPDATE", "DELETE"):
            continue
        if verdict.target.id in changed:
            verdicts[number] = Verdict("ADD", "another fact changes its target")
        changed.add(verdict.target.id)
    for number, verdict in verdicts.items():
        if verdict.action == "NONE" and verdict.target and verdict.target.id in changed:
            verdicts[number] = Verdict("ADD", "another fact changes its target")
    return verdicts


def _number(label: str | None, letter: str) -> int | None:
    """Return the number in a label: 3 in N3, if ``letter`` is N."""
    found = re.fullmatch(rf"{letter}([0-9]{{1,9}})", (label or "").strip(), re.IGNORECASE)
    return int(found[1]) if found else None


def _verdict(item: ComparedFact, decision: DedupDecision | None, objection: Objection) -> Verdict:
    if decision is None:
        return Verdict("ADD", "the model gave no decision")
    why = tidy(decision.reason, REASON_WORDS)
    if decision.action == "ADD":
        return Verdict("ADD", why)
    target = item.find_neighbor(_number(decision.target, "E"))
    if target is None:
        return Verdict("ADD", f"{decision.action} of a fact that was not offered")
    if decision.action != "NONE" and item.new.unconfirmed:
        return Verdict("ADD", "in doubt, so no known fact is changed")
    if decision.action != "UPDATE":
        return Verdict(decision.action, why, target)
    text = flat(decision.content or "")
    if not text:
        return Verdict("ADD", "the merged text is empty")
    if problem := objection(item, target, text):
        return Verdict("ADD", f"the merged text cannot be kept: {problem}")
    if item.new.private and not target.private:
        return Verdict("ADD", "private, so not merged into a public fact")
    if text == target.content:
        return Verdict("NONE", why, target)
    return Verdict("UPDATE", why, target, text)


class Deduplicator:
    """Step 3 of a formation: embed, compare and decide. Writes nothing."""

    def __init__(self, runtime: Runtime) -> None:
        self._store = runtime.store
        self._settings = runtime.settings.formation
        self._embedder = runtime.embedder
        self._clock = runtime.clock

    def demand_store(self, scopes: Sequence[Scope]) -> None:
        """Check that facts can be added to these scopes and compared, before paying. Blocks.

        Raises:
            FactKeyConflict: an index of the database refuses facts.
            StoreError: a required search index is unusable.
        """
        if not scopes:
            return
        embedder = self._embedder if self._settings.dedup else None
        dimensions: int | None = None
        with suppress(ConfigError):  # unknown until the model answers
            dimensions = embedder.dimensions if embedder else None
        self._store.search.require_formable(
            scopes,
            model=embedder.model if embedder else None,
            dimensions=dimensions,
        )

    async def plan(
        self, asker: Asker, given: FormationInput, facts: Sequence[NewItem]
    ) -> tuple[list[Change], list[Decision]]:
        """Return the changes that bring ``facts`` into memory, in order, and their reasons.

        Raises:
            ProviderError: the embedder failed, or the language model will refuse later calls (any
                other failure of it means ADD).
            EmbeddingModelMismatch: a scope has vectors of another model only.
        """
        known = await in_thread(self.find_known, facts, given.quotas)
        fresh = [fact for fact in facts if fact not in known]
        vectors = await self._embed(asker, [fact.content for fact in fresh])
        compared = await in_thread(self._compare, fresh, vectors, given.quotas)
        verdicts = {item.number: Verdict("ADD", "no similar fact is known") for item in compared}
        if asked := [item for item in compared if item.neighbors]:
            decided = await self._decide(asker, given, asked)
            verdicts |= resolve(asked, decided, partial(_object, given))
        # The vectors of merged texts; a text equal to the new fact keeps its vector.
        of_text = {item.content: item.vector for item in compared}
        merged = (verdict.text for verdict in verdicts.values() if verdict.action == "UPDATE")
        missing = list(dict.fromkeys(text for text in merged if text not in of_text))
        of_text |= zip(missing, await self._embed(asker, missing), strict=True)

        changes: list[Change] = []
        decisions = decide_known(known)
        for fact, existing in known.items():
            changes.extend(_keep_private(fact, existing, given.origin.at))
            changes.extend(_keep_sources(fact, existing, given))
        for item in compared:
            verdict = verdicts[item.number]
            decisions.append(_decision(item.new, verdict))
            changes.extend(self._changes(item, verdict, of_text, given))
        return changes, decisions

    def find_known(self, facts: Sequence[NewItem], quotas: ScopeQuotas) -> dict[NewItem, Fact]:
        """Return the facts whose text already exists in their scope or under another account.

        Blocks.
        """
        known: dict[NewItem, Fact] = {}
        for scope, group in _by_scope(facts).items():
            hashes = {content_hash(fact.content): fact for fact in group}
            for each in (scope, *quotas.of(scope).others):
                found = self._store.memory.facts_by_hashes(each, tuple(hashes))
                for digest, existing in found.items():
                    known[hashes.pop(digest)] = existing
        return known

    async def _embed(self, asker: Asker, texts: Sequence[str]) -> list[bytes | None]:
        if self._embedder is None or not texts:
            return [None] * len(texts)
        try:
            answer = await in_loop(self._embedder.embed, texts, role="passage")
        except ProviderError as error:
            asker.spent.extend(error.usage)
            raise
        asker.spent.extend(answer.usage)
        return list(answer.vectors)

    def _compare(
        self, facts: Sequence[NewItem], vectors: Sequence[bytes | None], quotas: ScopeQuotas
    ) -> list[ComparedFact]:
        """Return each fact with its nearest neighbors, numbered across the prompt. Blocks."""
        near = self._find_near(dict(zip(facts, vectors, strict=True)), quotas)
        numbers: dict[str, int] = {}
        compared: list[ComparedFact] = []
        for number, (fact, vector) in enumerate(zip(facts, vectors, strict=True), 1):
            neighbors = tuple(
                Neighbor(
                    number=numbers.setdefault(existing.id, len(numbers) + 1),
                    content=flat(existing.content),
                    at=existing.recent_at,
                    fact=existing,
                )
                for existing in near.get(fact, ())
            )
            compared.append(ComparedFact(number, fact, vector, neighbors))
        return compared

    def _find_near(
        self, vectors: Mapping[NewItem, bytes | None], quotas: ScopeQuotas
    ) -> dict[NewItem, list[Fact]]:
        near: dict[NewItem, list[Fact]] = {}
        if self._embedder is None or not self._settings.dedup:
            return near
        model, now = self._embedder.model, self._clock()
        with self._store.database.snapshot():
            for scope, group in _by_scope(vectors).items():
                scopes = quotas.of(scope).changeable
                lists = self._store.search.semantic_candidates(
                    FactFilter(scopes=scopes, live_at=now),
                    [vector for fact in group if (vector := vectors[fact]) is not None],
                    model=model,
                    limit=self._settings.dedup_neighbors,
                    floor=scale_of(model).fit(self._settings.dedup_floor),
                )
                ids = tuple({one.fact_id for found in lists for one in found})
                known = self._store.memory.facts_by_ids(scopes, ids) if ids else {}
                live = {id: fact for id, fact in known.items() if not fact.has_expired(now)}
                for fact, found in zip(group, lists, strict=True):
                    near[fact] = [live[one.fact_id] for one in found if one.fact_id in live]
        return near

    async def _decide(
        self, asker: Asker, given: FormationInput, asked: Sequence[ComparedFact]
    ) -> list[DedupDecision]:
        """Return the model's decisions; ADD for facts that it could not be asked about.

        Makes two calls if all facts are too long for one.
        """
        try:
            answer = await asker.ask(
                "dedup",
                DedupAnswer,
                model=given.quotas.fast_model,
                now=given.origin.at,
                facts=asked,
                fact_words=self._settings.fact_words,
            )
        except (ProviderAuthError, ProviderMisconfigured, BudgetExceeded, ReplayMiss):
            raise  # later calls of this run fail too: the range is kept whole
        except ProviderError as error:
            if isinstance(error, ContextOverflow) and len(asked) > 1:
                half = len(asked) // 2
                first = await self._decide(asker, given, asked[:half])
                return [*first, *await self._decide(asker, given, asked[half:])]
            why = f"not compared: {error.message}"
            return [
                DedupDecision(fact=f"N{item.number}", reason=why, action="ADD") for item in asked
            ]
        numbers = {item.number for item in asked}
        return [each for each in answer.decisions if _number(each.fact, "N") in numbers]

    def _changes(
        self,
        item: ComparedFact,
        verdict: Verdict,
        vectors: Mapping[str, bytes | None],
        given: FormationInput,
    ) -> list[Change]:
        origin, target, why = given.origin, verdict.target, _reason(item.new, verdict)
        if verdict.action == "NONE" and target is not None:
            again = _keep_sources(item.new, target, given) if target.expires_at else []
            return [*_keep_private(item.new, target, origin.at), *again]
        model = self._embedder.model if self._embedder is not None else None
        fact = origin.fact(item.new, item.vector, model)
        if verdict.action == "UPDATE" and target is not None:
            vector = vectors[verdict.text]
            return [
                ReviseFact(
                    scope=target.home,
                    fact_id=target.id,
                    expected_version=target.version,
                    content=verdict.text,
                    at=origin.at,
                    embedding=vector,
                    embedding_model=model if vector is not None else None,
                    source_message_ids=origin.sources_of(item.new),
                    unconfirmed=item.new.unconfirmed,
                    quote=item.new.quote,
                    times=origin.times_with(item.new, target),
                    fields=target.fields.until(None),
                    or_add=fact,
                    reason=why,
                )
            ]
        added = AddFact(fact=fact, reason=why)
        if verdict.action == "DELETE" and target is not None:
            # In this order: the new fact exists even if the second change fails.
            return [added, RemoveFact.of(target, origin.at, why)]
        return [added]


def _object(given: FormationInput, item: ComparedFact, target: Fact, text: str) -> str:
    """Return why a merged text may not be remembered. It is not rewritten: both facts stay."""
    new = item.new
    problem = object_to(text, takes_orders=given.quotas.of(new.scope).takes_orders)
    if target.scope is ScopeKind.AGENT and (name := find_user_named(text, given.evidence)):
        problem = f"names '{name}' in memory that every user reads"
    return problem or additions(text, (target.content, new.content), given.evidence) or ""


def _decision(fact: NewItem, verdict: Verdict) -> Decision:
    return Decision(
        content=fact.content,
        action=verdict.action,
        target_id=verdict.target.id if verdict.target else None,
        reason=_reason(fact, verdict),
        unconfirmed=fact.unconfirmed if verdict.action != "NONE" else "",
        failure=fact.failure,
    )


def decide_known(known: Mapping[NewItem, Fact]) -> list[Decision]:
    """Return the decisions about facts whose text already exists."""
    return [
        _decision(new, Verdict("NONE", "known word for word", fact)) for new, fact in known.items()
    ]


def _reason(fact: NewItem, verdict: Verdict) -> str:
    return "; ".join(filter(None, (verdict.reason, fact.note)))


def _keep_private(new: NewItem, existing: Fact, at: datetime) -> list[Change]:
    """Mark a known fact as private if it is now said in confidence."""
    if not new.private or existing.private:
        return []
    return [
        SetPrivacy(
            scope=existing.home,
            target_type="fact",
            target_id=existing.id,
            private=True,
            at=at,
            reason="told again, in confidence",
        )
    ]


def _keep_sources(new: NewItem, existing: Fact, given: FormationInput) -> list[Change]:
    """Add the new sources to a fact that is known under another account, or that would expire.

    It does not expire then: it was said again, without a time of expiry.
    """
    origin = given.origin
    sources = origin.sources_of(new)
    is_known = set(sources) <= set(existing.source_message_ids)
    is_other = existing.home != new.scope
    if is_other and existing.home not in given.quotas.of(new.scope).open_others:
        return []
    if existing.expires_at is None and (is_known or not is_other):
        return []
    return [
        ReviseFact(
            scope=existing.home,
            fact_id=existing.id,
            expected_version=existing.version,
            content=existing.content,
            at=origin.at,
            source_message_ids=sources,
            times=origin.times_with(new, existing),
            fields=existing.fields.until(None),
            or_add=origin.fact(new, None, None),
            reason="said again under another account" if is_other else "said again",
        )
    ]


def _by_scope(facts: Iterable[NewItem]) -> dict[Scope, list[NewItem]]:
    groups: dict[Scope, list[NewItem]] = {}
    for fact in facts:
        groups.setdefault(fact.scope, []).append(fact)
    return groups
