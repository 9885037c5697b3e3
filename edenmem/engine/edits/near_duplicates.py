"""Making one fact of several that say the same, by a model's proposal or by hand.

The oldest fact keeps its id and its history and gets the merged text; only when that is stored
are the others removed, each with its whole content in history. Interrupted between the two, there
is one fact too many, never one too few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial

import msgspec

from edenmem.acceptance.rules import object_to
from edenmem.acceptance.words import normal
from edenmem.engine.edits import checks
from edenmem.engine.edits.vectors import TextVector, TextVectors, with_vectors
from edenmem.engine.formation.deduplication import REASON_WORDS
from edenmem.engine.runtime.answers import MergeAnswer, MergedFacts
from edenmem.engine.runtime.concurrency import in_thread
from edenmem.engine.runtime.llm_session import Asker
from edenmem.engine.runtime.runtime import Runtime
from edenmem.engine.runtime.usage import keep_usage
from edenmem.engine.scopes.labels import load_labels
from edenmem.errors import ConfigError, ConflictError, ProviderAnswerInvalid
from edenmem.models.changes import (
    Change,
    ChangeResult,
    ChangeSet,
    RemoveFact,
    ReviseFact,
    SetPrivacy,
)
from edenmem.models.embedding_scale import scale_of
from edenmem.models.memory import Fact, content_hash
from edenmem.models.scope import Scope, ScopeKind
from edenmem.models.search import FactFilter
from edenmem.store.protocol.store import Store, batched
from edenmem.text import flat, one_line, tidy

#: Facts whose neighbours are asked for in one round trip.
BATCH = 200
#: Neighbours of one fact that are looked at; of more copies the rest comes in the next run.
NEIGHBOURS = 10


class FactGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Facts that say nearly the same, oldest first.

    ``scores``: how near each is to the oldest, (1 + cosine) / 2, and 1 for the same words.
    """

    scope: Scope
    facts: tuple[Fact, ...]
    scores: tuple[float, ...]


class _Seen(msgspec.Struct, frozen=True):
    """What is kept of a fact while the scope is gone through."""

    formed_at: datetime
    near: tuple[tuple[str, float], ...]


def find_groups(
    store: Store,
    scope: Scope,
    *,
    model: str | None,
    floor: float,
    tell: Callable[[int], None] = lambda seen: None,
) -> Iterator[FactGroup]:
    """The groups of one scope, that of the oldest fact first.

    The texts are read in batches; what is kept of each fact is its id, its time and its
    neighbours.

    Args:
        store: Where the facts are.
        scope: Only facts of exactly this scope are compared.
        model: Of the vectors to compare; None: only words are compared.
        floor: The score from which two vectors are near, in [0, 1], as `Scale.fit` takes it.
        tell: Called with the number of facts that were looked at.

    Raises:
        EmbeddingModelMismatch: the scope has vectors, but none of ``model``.
    """
    seen: dict[str, _Seen] = {}
    words: dict[str, list[str]] = {}
    facts = store.memory.facts(FactFilter(scopes=(scope,)), with_vectors=model is not None)
    for batch in batched(facts, BATCH):
        near = _near(store, scope, batch, model, floor)
        for fact in batch:
            seen[fact.id] = _Seen(fact.formed_at, near.get(fact.id, ()))
            words.setdefault(normal(fact.content), []).append(fact.id)
        tell(len(seen))
    for ids in _group_facts(seen, [ids for ids in words.values() if len(ids) > 1]):
        found = store.memory.facts_by_ids((scope,), list(ids))
        there = [found[fact_id] for fact_id in ids if fact_id in found]  # the rest is gone by now
        if len(there) > 1:
            yield FactGroup(
                scope=scope, facts=tuple(there), scores=tuple(ids[fact.id] for fact in there)
            )


def _near(
    store: Store, scope: Scope, facts: Sequence[Fact], model: str | None, floor: float
) -> dict[str, tuple[tuple[str, float], ...]]:
    having = [fact for fact in facts if fact.embedding and fact.embedding_model == model]
    if model is None or not having:
        return {}
    lists = store.search.semantic_candidates(
        FactFilter(scopes=(scope,)),
        [fact.embedding for fact in having if fact.embedding],
        model=model,
        limit=NEIGHBOURS + 1,  # it finds itself too
        exact=True,
        floor=scale_of(model).fit(floor),
    )
    return {
        fact.id: tuple((one.fact_id, one.score) for one in found if one.fact_id != fact.id)
        for fact, found in zip(having, lists, strict=True)
    }


def _group_facts(
    seen: dict[str, _Seen], same_words: Sequence[Sequence[str]]
) -> Iterator[dict[str, float]]:
    """Groups as id → score, the seed first; each fact is in one group at most."""
    scores: dict[str, dict[str, float]] = {}

    def join(one: str, other: str, score: float) -> None:
        for a, b in ((one, other), (other, one)):  # neither may have the other among its nearest
            row = scores.setdefault(a, {})
            row[b] = max(score, row.get(b, 0.0))

    for fact_id, each in seen.items():
        for other, score in each.near:
            if other in seen:
                join(fact_id, other, score)
    for ids in same_words:
        first = min(ids, key=lambda fact_id: (seen[fact_id].formed_at, fact_id))
        for other in ids:
            if other != first:
                join(first, other, 1.0)
    taken: set[str] = set()
    order = sorted(scores, key=lambda fact_id: (seen[fact_id].formed_at, fact_id))
    place = {fact_id: number for number, fact_id in enumerate(order)}
    for seed in order:
        if seed in taken:
            continue
        members = [other for other in scores[seed] if other not in taken]
        if members:
            taken.update((seed, *members))
            members.sort(key=place.__getitem__)
            yield {seed: 1.0} | {other: scores[seed][other] for other in members}


class Merge(msgspec.Struct, frozen=True, kw_only=True):
    """What is to become of several facts: ``kept`` says ``content`` then, ``removed`` are gone."""

    scope: Scope
    kept: Fact
    removed: tuple[Fact, ...]
    content: str
    reason: str = ""


class MergeReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a merge did. ``removed`` are the ids that are gone; ``stayed`` those of facts that
    somebody changed meanwhile, with why."""

    merge: Merge
    removed: tuple[str, ...] = ()
    stayed: tuple[tuple[str, str], ...] = ()


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """What a model would merge of a group; ``refused`` says why parts of its answer, or all of
    it, do not hold."""

    group: FactGroup
    merges: tuple[Merge, ...] = ()
    refused: tuple[str, ...] = ()


class _Shown(msgspec.Struct, frozen=True):
    """A fact as the prompt shows it."""

    number: int
    content: str
    formed_at: datetime


def merge_by_hand(facts: Sequence[Fact], content: str, *, reason: str = "") -> Merge:
    """The merge of facts of one scope into ``content``.

    A fact that says exactly this already is kept; else the oldest is.

    Raises:
        ValueError: they are of several scopes, or there are fewer than two.
    """
    if len(facts) < 2 or len({fact.home for fact in facts}) != 1:
        raise ValueError("a merge is of two or more facts of one scope")
    kept = next((fact for fact in facts if fact.content == content), None) or min(
        facts, key=lambda fact: (fact.formed_at, fact.id)
    )
    return Merge(
        scope=kept.home,
        kept=kept,
        removed=tuple(fact for fact in facts if fact.id != kept.id),
        content=content,
        reason=reason,
    )


def read_merges(
    facts: Sequence[Fact], answers: Sequence[MergedFacts], fact_words: int
) -> tuple[list[Merge], list[str]]:
    """The merges that a model's answer comes to, and why parts of it do not hold.

    Facts are numbered from 1 in their order. A set that names what was not offered, or a fact
    that another set has, is refused whole: what was meant is not known.
    """
    merges: list[Merge] = []
    refused: list[str] = []
    taken: set[int] = set()
    for answer in answers:
        numbers = dict.fromkeys(answer.facts)
        text = flat(answer.content)
        if any(not 1 <= number <= len(facts) for number in numbers):
            refused.append("a fact that was not offered")
        elif len(numbers) < 2:
            refused.append("a set of fewer than two facts")
        elif taken & numbers.keys():
            refused.append("a fact in two sets")
        elif tidy(text, fact_words) != text:
            refused.append(f"a sentence of more than {fact_words} words")
        elif why := object_to(text):
            refused.append(f"a sentence that cannot be kept: {why}")
        else:
            taken |= numbers.keys()
            chosen = [facts[number - 1] for number in sorted(numbers)]
            why = tidy(answer.reason, REASON_WORDS)
            merges.append(merge_by_hand(chosen, text, reason=why))
    return merges, refused


class FactMerger:
    """Proposes merges and makes them."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._store = runtime.store
        self._settings = runtime.settings
        self._clock = runtime.clock
        self._llm = runtime.llm

    def groups(
        self,
        agent_id: str,
        *,
        kinds: Sequence[ScopeKind] = (),
        user_ids: Sequence[str] | None = None,
        floor: float,
        tell: Callable[[Scope, int], None] = lambda scope, seen: None,
    ) -> Iterator[FactGroup]:
        """The groups of near-duplicates in the agent's scopes, scope by scope; blocks.

        See `near_duplicates.find_groups`. Without an embedder, and in a scope that has vectors of
        other models only, words alone are compared.
        """
        embedder = self._runtime.embedder
        model = embedder.model if embedder is not None else None
        summaries = self._store.memory.scopes(agent_id=agent_id, kinds=kinds, user_ids=user_ids)
        for summary in summaries:
            if summary.facts < 2:
                continue
            scope = summary.scope
            has_vectors = model in self._store.vectors.vector_model_names((scope,))
            yield from find_groups(
                self._store,
                scope,
                model=model if has_vectors else None,
                floor=floor,
                tell=partial(tell, scope),
            )

    async def propose(self, groups: Sequence[FactGroup]) -> list[Proposal]:
        """What a model would merge of each group; an answer that is no good is refused, and told.

        Raises:
            ConfigError: there is no model.
            ProviderError: the model cannot be asked.
        """
        llm = self._llm
        if llm is None:
            from edenmem.engine.factory import LLM_HINT

            raise ConfigError("--llm needs a language model and none is configured", hint=LLM_HINT)
        proposals: list[Proposal] = []
        for group in groups:
            key, model = await in_thread(self._look_up, group)
            asker = Asker(llm, key)
            try:
                merges, refused = await self._propose(asker, model, group)
            except ProviderAnswerInvalid as error:
                merges, refused = [], [error.message]
            finally:
                await keep_usage(
                    self._store, group.scope.agent_id, "dedup", asker.spent, at=self._clock()
                )
            proposals.append(Proposal(group=group, merges=tuple(merges), refused=tuple(refused)))
        return proposals

    def _look_up(self, group: FactGroup) -> tuple[str, str]:
        """Return the key of the answers (see `LLMRequest`) and the model. Blocks."""
        scope = group.scope
        labels = load_labels(self._store, [scope])
        parts = (scope.kind.value, labels.get(scope.agent_id), labels.get(scope.owner))
        key = "/".join((*filter(None, parts), one_line(group.facts[0].content, 80)))
        policy = self._store.memory.policies((scope,)).get(scope)
        return key, (policy and policy.fast_model) or self._settings.llm.fast_model

    async def _propose(
        self, asker: Asker, model: str, group: FactGroup
    ) -> tuple[list[Merge], list[str]]:
        answer = await asker.ask(
            "merge",
            MergeAnswer,
            model=model,
            now=self._clock(),
            facts=[
                _Shown(number, flat(fact.content), fact.recent_at)
                for number, fact in enumerate(group.facts, start=1)
            ],
            fact_words=self._settings.formation.fact_words,
        )
        return read_merges(group.facts, answer.merges, self._settings.formation.fact_words)

    async def merge(self, merge: Merge) -> MergeReport:
        """Make a merge, of which the vector of the merged text is awaited.

        Raises:
            ConflictError: the fact that was to be kept was changed meanwhile; nothing is removed.
            ProviderError: the merged text got no vector; nothing is changed.
        """
        return await with_vectors(self._runtime, lambda vectors: self._merge(merge, vectors))

    def _merge(self, merge: Merge, vectors: TextVectors) -> MergeReport:
        limit = self._settings.formation.fact_words
        text = checks.text_of(merge.content, what="fact", limit=limit, allow_long=False)
        first = self._first(merge, text, vectors)
        if first:
            for result in self._apply_all(first):
                checks.check_result(result, "fact")
        results = self._apply_all([self._removal(fact, merge) for fact in merge.removed])
        return MergeReport(
            merge=merge,
            removed=tuple(result.target_id for result in results if result.ok),
            stayed=tuple(
                (result.target_id, result.detail or str(result.status))
                for result in results
                if not result.ok
            ),
        )

    def _first(self, merge: Merge, text: str, vectors: TextVectors) -> list[Change]:
        """What makes the kept fact hold all that the others say."""
        kept, now = merge.kept, self._clock()
        stored = self._store.memory.fact(kept.id)
        if stored is None or stored.version != kept.version:
            raise ConflictError(
                f"fact {kept.id} was changed meanwhile", hint="look for duplicates again"
            )
        changes: list[Change] = []
        if not kept.private and any(fact.private for fact in merge.removed):
            changes.append(
                SetPrivacy(
                    scope=merge.scope,
                    target_type="fact",
                    target_id=kept.id,
                    private=True,
                    at=now,
                    reason="merged with a private fact",
                )
            )
        sources = dict.fromkeys(
            message for fact in (kept, *merge.removed) for message in fact.source_message_ids
        )
        users = dict.fromkeys(
            user for fact in (kept, *merge.removed) for user in fact.related_users
        )
        is_new = content_hash(text) != kept.hash
        if is_new or not users.keys() <= set(kept.related_users):  # 'forget' goes by the users
            vector = vectors.of(text) if is_new else TextVector()
            changes.append(
                ReviseFact(
                    scope=merge.scope,
                    fact_id=kept.id,
                    expected_version=kept.version,
                    content=text,
                    at=now,
                    embedding=vector.embedding,
                    embedding_model=vector.model,
                    source_message_ids=tuple(sources),
                    related_users=tuple(users),
                    reason=merge.reason or "merged",
                )
            )
        return changes

    def _removal(self, fact: Fact, merge: Merge) -> Change:
        return RemoveFact(
            scope=merge.scope,
            fact_id=fact.id,
            expected_version=fact.version,
            at=self._clock(),
            reason=f"merged into {merge.kept.id}" + (f": {merge.reason}" if merge.reason else ""),
        )

    def _apply_all(self, changes: Sequence[Change]) -> Sequence[ChangeResult]:
        changed = ChangeSet(actor=self._runtime.actor, at=self._clock(), changes=tuple(changes))
        return self._store.changes.apply(changed)
