"""Review what waits: accept or reject held items, and facts and reflections in doubt.

Accepting compares an item with current memory again. Each decision is one set of changes, all or
none of which are made and undone. Functions that are not async block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple, TypeGuard, TypeVar

import msgspec

from edenmem.engine.edits import checks
from edenmem.engine.edits.editor import Editor, warn
from edenmem.engine.edits.vectors import TextVectors, with_vectors
from edenmem.engine.reports import EditReport, FixedConflict
from edenmem.engine.runtime.concurrency import in_thread
from edenmem.engine.runtime.runtime import Runtime
from edenmem.engine.scopes.overview import fact_buffer_max_of, word_limit_of
from edenmem.engine.scopes.references import MIN_PREFIX, ReferenceKind
from edenmem.errors import AmbiguousReference, ConflictError, NotFoundError, UsageError
from edenmem.memory import Needs, preview
from edenmem.models.changes import (
    AddFact,
    AddReflection,
    Change,
    ChangeSet,
    RemoveHeld,
    ReviseFact,
    ReviseReflection,
    held_change_id,
)
from edenmem.models.embeddings import scale_of
from edenmem.models.ids import is_id, new_id
from edenmem.models.memory import (
    Fact,
    Policy,
    Reflection,
    ReviewItem,
    content_hash,
    join_times,
)
from edenmem.models.scope import Scope, ScopeKind
from edenmem.models.search import FactFilter
from edenmem.store.protocol.store import batched
from edenmem.text import many

T = TypeVar("T")

#: Minimum share of common letters, or score, of a fact that an item resembles.
NEAR = 0.95
#: Kinds of stored items.
_KINDS: tuple[ReferenceKind, ...] = ("fact", "reflection")
#: Number of scopes per query.
_BATCH = 500


class Similar(NamedTuple):
    """A fact similar to an item. ``is_near``: the item resembles it."""

    fact: Fact
    score: float
    is_near: bool


class Reviewed(NamedTuple):
    """An item to review, with the most similar facts, best first."""

    item: ReviewItem
    similar: tuple[Similar, ...] = ()

    @property
    def near(self) -> Fact | None:
        """Return the fact that the item resembles, if any."""
        return next((each.fact for each in self.similar if each.is_near), None)


class Reviewer(Editor):
    """Find, accept and reject items; see `Editor` for errors and vectors."""

    def __init__(self, runtime: Runtime, vectors: TextVectors | None = None) -> None:
        super().__init__(runtime, vectors)
        self._embedder = runtime.embedder

    # -- reading -------------------------------------------------------------------------------

    def items(
        self,
        agent_id: str,
        *,
        kinds: Sequence[ScopeKind] = (),
        user_ids: Sequence[str] | None = None,
    ) -> Iterator[ReviewItem]:
        """Yield what waits for review in an agent's scopes: held items first, newest first.

        Args:
            agent_id: The agent.
            kinds: Only scopes of these kinds (empty: all kinds).
            user_ids: Only the user scopes of these accounts.
        """
        memory = self._store.memory
        for held in memory.held(None, agent_id=agent_id):
            is_wanted = user_ids is None or held.user_id in user_ids
            if is_wanted and held.scope in (kinds or ScopeKind):
                yield ReviewItem.of(held)
        stored = memory.scopes(agent_id=agent_id, kinds=kinds, user_ids=user_ids)
        for scopes in batched((each.scope for each in stored), _BATCH):
            facts = memory.facts(FactFilter(scopes=tuple(scopes), unconfirmed=True))
            pending = memory.reflections(scopes, absorbed=False)
            yield from map(ReviewItem.of, facts)
            yield from map(ReviewItem.of, filter(_is_doubtful, pending))

    def texts(
        self,
        agent_id: str,
        *,
        kinds: Sequence[ScopeKind] = (),
        user_ids: Sequence[str] | None = None,
    ) -> Iterator[tuple[Scope, FixedConflict]]:
        """Yield the texts whose consolidation waits for a person, with the contradiction.

        Takes the filters of `items`.
        """
        memory = self._store.memory
        stored = memory.scopes(agent_id=agent_id, kinds=kinds, user_ids=user_ids, min_pending=1)
        for scopes in batched((each.scope for each in stored), _BATCH):
            waiting = {k: each for k, each in memory.failed_drafts(scopes).items() if each.reviews}
            texts = memory.consolidations(list(waiting))
            for scope in texts.keys() & waiting.keys():
                fixed, reviews = texts[scope].fixed, dict(waiting[scope].reviews)
                found = memory.reflections_by_ids(list(reviews.values()))
                for number, reflection_id in reviews.items():
                    if 1 <= number <= len(fixed) and reflection_id in found:
                        sentence = fixed[number - 1]
                        newer = found[reflection_id].content
                        yield (
                            scope,
                            FixedConflict(fixed=sentence.text, by=sentence.by, reflection=newer),
                        )

    def find(self, item_id: str) -> ReviewItem:
        """Return the item with this ID or ID prefix.

        Raises:
            NotFoundError: no such item waits for review.
            AmbiguousReference: several IDs match.
        """
        given, ids = item_id.lower(), {item_id.lower()}
        if not is_id(given):
            held, find = self._store.memory.held(None), self._store.host.find
            is_long = len(given) >= MIN_PREFIX
            ids = {each.id for each in held if is_long and each.id.startswith(given)}
            ids |= {each.id for kind in _KINDS for each in find(kind, given) if is_long}
        state = self._store.changes.load_state(
            Needs(held=ids, facts=ids, reflections=ids), at=self._clock()
        )
        stored = (*state.facts.values(), *state.reflections.values())
        found = [*filter(None, state.held.values()), *filter(_is_doubtful, stored)]
        if not found:
            raise NotFoundError(
                f"no item waits for review: {item_id}", hint="list items: edenmem review list"
            )
        if len(found) > 1:
            raise AmbiguousReference("item", item_id, [each.id for each in found])
        return ReviewItem.of(found[0])

    def look(self, item_id: str, *, similar: bool = True) -> Reviewed:
        """Return an item, with the facts ``similar`` to it."""
        item = self.find(item_id)
        return Reviewed(item, self._similar(item, item.content) if similar else ())

    def _similar(self, item: ReviewItem, text: str) -> tuple[Similar, ...]:
        if item.kind == "reflection":
            return ()
        from difflib import SequenceMatcher

        from edenmem.acceptance.texts import fold  # reads tables

        scopes, settings = self.changeable(item.home), self._settings.formation
        filter, limit, near = FactFilter(scopes=scopes), settings.dedup_neighbors + 1, NEAR
        vector, model = None, self._embedder.model if self._embedder is not None else None
        if model in self._store.vectors.vector_model_names(scopes):
            vector, model, _ = self._vectors.of(text)
        if vector is not None and model is not None:
            floor, near = (scale_of(model).fit(each) for each in (settings.dedup_floor, NEAR))
            (found,) = self._store.search.semantic_candidates(
                filter, [vector], model=model, limit=limit, floor=floor
            )
            scores = {one.fact_id: one.score for one in found}
        else:
            (found,) = self._store.search.text_candidates(filter, [text], limit=limit)
            scores = {one.fact_id: 0.0 for one in found}
        facts = self._store.memory.facts_by_ids(scopes, tuple(scores))
        similar = []
        for fact_id, score in scores.items():
            if fact_id in facts and fact_id != item.id:
                words = SequenceMatcher(None, fold(facts[fact_id].content), fold(text)).ratio()
                is_near = words >= NEAR or score >= near
                similar.append(Similar(facts[fact_id], score, is_near))
        return tuple(similar[: limit - 1])

    # -- deciding ------------------------------------------------------------------------------

    def accept(
        self,
        item_id: str,
        *,
        content: str | None = None,
        replaces: str | None = None,
        anyway: bool = False,
        version: int | None = None,
        reason: str = "",
        dry_run: bool = False,
    ) -> EditReport:
        """Make a held item memory, or confirm a stored one.

        If a fact of the scope has the text already, that fact is confirmed.

        Args:
            item_id: The item.
            content: The corrected text (None: as it is).
            replaces: ID of the fact whose text the item replaces.
            anyway: Also accept an item that resembles a fact.
            version: Version of a stored item that the caller read.
            reason: Reason for the audit entries.
            dry_run: Write nothing.

        Raises:
            ConflictError: the item resembles a fact; its conversation was deleted; or another
                writer changed the item or fact first.
            UsageError: the scope is paused, or ``replaces`` is a fact of another scope.
        """
        item, why = self.find(item_id), reason or "accepted in review"
        checks.check_version(item.kind, item.version, version)
        text, notices = item.content, tuple[str, ...]()
        if content is not None:
            text = checks.text_of(content, what=item.kind, limit=0, allow_long=True)
            notices = warn(text, item.id, dry_run)
        policy = checks.check_scope_known(self._store, item.home)
        if item.state == "held":
            checks.check_open(policy, item.home)
            self._check_source(item)
        if item.kind == "reflection":
            changes = [self._reflect(item, text, policy, why)]
        else:
            target = self._target(item, text, replaces, anyway)
            changes = self._record(item, text, target, policy, why)
        report = self._decide(item, changes, why, dry_run)
        return msgspec.structs.replace(report, notices=notices)

    def reject(
        self,
        item_id: str,
        *,
        version: int | None = None,
        reason: str = "",
        dry_run: bool = False,
    ) -> EditReport:
        """Remove a held item, or delete a stored one."""
        item, why = self.find(item_id), reason or "rejected in review"
        checks.check_version(item.kind, item.version, version)
        if item.state == "held":
            return self._decide(item, [], why, dry_run)
        version = item.version
        report = self.delete(item.id, expected_version=version, reason=why, dry_run=dry_run)
        return msgspec.structs.replace(report, action="reject")

    def overdue(self, agent_id: str | None = None) -> list[ReviewItem]:
        """Return the held items in doubt that waited too long, oldest first; see `settle`."""
        if not (days := self._settings.review.days):
            return []
        before = self._clock() - timedelta(days=days)
        found = self._store.memory.held(None, agent_id=agent_id)
        return [ReviewItem.of(each) for each in found if each.reasons and each.held_at < before][
            ::-1
        ]

    def settle(self, item: ReviewItem) -> EditReport:
        """Drop an item in doubt that was not reviewed, or make it memory as unconfirmed.

        Items for everybody are dropped, and so are those that memory no longer takes.
        """
        settings, home = self._settings.review, item.home
        why = f"not reviewed within {many(settings.days, 'day')}"
        try:
            if settings.then == "drop" or home.kind in (ScopeKind.AGENT, ScopeKind.SHARD):
                return self._decide(item, [], why)
            self._check_source(item)
            policy = self._store.memory.policies([home]).get(home)
            changes: list[Change] = []
            if item.kind == "reflection":
                changes = [self._reflect(item, item.content, policy, why, item.reasons)]
            elif self._find_known(item, item.content) is None:
                changes = self._record(item, item.content, None, policy, why, item.reasons)
            return self._decide(item, changes, why, automatic=True)
        except ConflictError as error:
            return self._decide(item, [], f"{why}: {error.message}")

    # -- changes -------------------------------------------------------------------------------

    def _check_source(self, item: ReviewItem) -> None:
        if item.session_id is None:
            return
        session = self._store.host.session(item.session_id)
        if session is None or session.deleted or session.incognito:
            raise ConflictError(
                "its conversation was deleted or made incognito",
                hint=f"edenmem review reject {item.id}",
            )

    def _find_known(self, item: ReviewItem, text: str) -> Fact | None:
        """Return the fact that has this text, in the scope or under another account."""
        digest = content_hash(text)
        found = (
            self._store.memory.facts_by_hashes(scope, [digest])
            for scope in self.changeable(item.home)
        )
        return next((each[digest] for each in found if digest in each), None)

    def _target(
        self, item: ReviewItem, text: str, replaces: str | None, anyway: bool
    ) -> Fact | None:
        """Return the fact to revise, or None to add one."""
        if item.state == "unconfirmed":
            if replaces is not None:
                raise UsageError("only a held item can replace a fact")
            stored = self._stored(item.id, item.version)
            assert isinstance(stored, Fact)
            return stored
        known = self._find_known(item, text)
        if known is not None:
            return known
        if replaces is not None:
            target = self._stored(replaces)
            if not isinstance(target, Fact) or target.home not in self.changeable(item.home):
                raise UsageError(f"not a fact, or in another scope: {target.id}")
            return target
        near = None if anyway else Reviewed(item, self._similar(item, text)).near
        if near is not None:
            raise ConflictError(
                f"the item resembles fact {near.id}: {near.content}",
                hint=f"replace the fact with --replaces {near.id}, or keep both with --anyway",
            )
        return None

    def _record(
        self,
        item: ReviewItem,
        text: str,
        target: Fact | None,
        policy: Policy | None,
        why: str,
        doubt: str = "",
    ) -> list[Change]:
        """Return the changes that add a fact, or give its text to an existing one."""
        vector, model = None, None
        if target is None or text != target.content:
            vector, model, _ = self._vectors.of(text)
        fact = Fact(
            **self._origin(item, text, doubt),
            hash=content_hash(text),
            quote=item.quote,
            embedding=vector,
            embedding_model=model,
        )
        if target is None:
            adding = AddFact(fact=fact, reason=why)
            maximum = fact_buffer_max_of(self._settings, item.home, policy)
            return [adding, *self.list_beyond(maximum, adding, item.home)]
        is_edited = target.id == item.id and text != item.content
        times = join_times([target.said_at, fact.said_at], [target.recent_at])
        return [
            ReviseFact(
                scope=target.home,
                fact_id=target.id,
                expected_version=target.version,
                content=text,
                at=self._clock(),
                embedding=vector,
                embedding_model=model,
                source_message_ids=item.source_message_ids,
                quote=item.quote,
                unconfirmed=doubt,
                times=None if is_edited else times,
                # Said again without a time of expiry.
                fields=None if target.id == item.id else target.fields.until(None),
                reason=why,
            )
        ]

    def _reflect(
        self, item: ReviewItem, text: str, policy: Policy | None, why: str, doubt: str = ""
    ) -> Change:
        if item.state == "unconfirmed":
            return ReviseReflection(
                scope=item.home,
                reflection_id=item.id,
                expected_version=item.version,
                content=text,
                at=self._clock(),
                unconfirmed=doubt,
                reason=why,
            )
        reflection = Reflection(**self._origin(item, text, doubt))
        limit = word_limit_of(self._store, self._settings, item.home, policy)
        return AddReflection(reflection=reflection, word_limit=limit, reason=why)

    def _origin(self, item: ReviewItem, text: str, doubt: str) -> dict[str, Any]:
        """Return the fields of a new fact or reflection; until now the item was no memory."""
        return {
            "id": new_id(),
            **item.home.fields(session_id=item.session_id),
            "content": text,
            "formed_at": self._clock(),
            "said_at": item.said_at or item.held_at,
            "source_message_ids": item.source_message_ids,
            "private": item.private,
            "unconfirmed": doubt,
            "formation_id": item.formation_id,
        }

    def _decide(
        self,
        item: ReviewItem,
        changes: Sequence[Change],
        why: str,
        dry_run: bool = False,
        *,
        automatic: bool = False,
    ) -> EditReport:
        """Make the changes, and remove a held item with them; without changes, reject it."""
        if item.state == "held":
            change_id = held_change_id(changes[0].id) if changes else new_id()
            gone = RemoveHeld(id=change_id, scope=item.home, held_id=item.id, reason=why)
            changes = [gone, *changes]
        made = ChangeSet(
            actor=self._actor,
            at=self._clock(),
            changes=tuple(changes),
            automatic=automatic,
            whole=True,
        )
        effects = preview(made, self._store.changes.load_state)
        results = [effect.result for effect in effects]
        if not dry_run and all(result.ok for result in results):
            self._vectors.close()
            results = self._store.changes.apply(made)
        for result in results:
            checks.check_result(result, "item")
        place = min(len(changes) - 1, 1 if item.state == "held" else 0)
        entry, result = effects[place].entry, results[place]
        return EditReport(
            action="accept" if entry and entry.target_type != "held" else "reject",
            target_type=item.kind,
            target_id=result.target_id,
            before=effects[0].entry.before if effects[0].entry else None,
            after=entry.after if entry else None,
            dry_run=dry_run,
            result=result,
        )


def _is_doubtful(memory: Fact | Reflection | None) -> TypeGuard[Fact | Reflection]:
    """Return whether a stored item waits for review; consolidation has taken absorbed ones."""
    is_absorbed = isinstance(memory, Reflection) and memory.absorbed
    return memory is not None and bool(memory.unconfirmed) and not is_absorbed


async def make_review(runtime: Runtime, work: Callable[[Reviewer], T]) -> T:
    """Run one decision in a thread, and compute the vectors that it needs.

    Raises:
        ProviderError: embedding failed; nothing was written.
    """
    return await with_vectors(runtime, lambda vectors: work(Reviewer(runtime, vectors)))


async def settle_overdue(runtime: Runtime, agent_id: str | None = None) -> dict[str, int]:
    """Settle the items in doubt that were not reviewed in time; return the counts by action.

    Raises:
        ProviderError: embedding failed; the other items wait.
    """
    runtime, counts = runtime.for_run(), {"accept": 0, "reject": 0}
    for item in await in_thread(Reviewer(runtime).overdue, agent_id):
        report = await make_review(runtime, partial(Reviewer.settle, item=item))
        counts[report.action] += 1
    return counts
