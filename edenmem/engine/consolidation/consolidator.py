"""Consolidate pending reflections into the text of their scope.

The model drafts the whole new text. After validation the text is written in one atomic change,
which names the previous version and the absorbed reflections. After any failure the text and the
buffer are unchanged, and the next run retries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial

import msgspec
from msgspec.structs import replace

from edenmem.engine.consolidation import draft as consolidation_draft
from edenmem.engine.consolidation.draft import Assignment, Draft, DraftRefused
from edenmem.engine.consolidation.propagation import propagate, wants_propagation
from edenmem.engine.formation.formation_input import PERSONA_CHARACTERS
from edenmem.engine.formation.transcript import cut_middle, tidy_name
from edenmem.engine.reports import ConsolidationReport, FixedConflict
from edenmem.engine.runtime.answers import ConsolidateAnswer, Contradiction, TextAnswer
from edenmem.engine.runtime.concurrency import gather_all, in_thread
from edenmem.engine.runtime.llm_session import Asker
from edenmem.engine.runtime.runtime import Runtime, require_llm
from edenmem.engine.runtime.usage import keep_usage
from edenmem.engine.scopes.overview import (
    consolidate_at_of,
    most_words,
    slow_model_of,
    why_not_due,
    word_limit_of,
)
from edenmem.engine.scopes.references import other_scopes
from edenmem.errors import (
    ConfigError,
    ContextOverflow,
    EdenmemError,
    NotFoundError,
    ProviderAnswerInvalid,
    ProviderError,
    ReplayMiss,
    StoreReadOnly,
    UnavailableError,
)
from edenmem.models.changes import ChangeResult, ChangeSet, ChangeStatus, WriteConsolidation
from edenmem.models.formation import PROOF_WAIT, CallUsage, Decision
from edenmem.models.ids import derived_id
from edenmem.models.memory import (
    MOST_FAILURES,
    FailedDrafts,
    Policy,
    Reflection,
)
from edenmem.models.scope import Scope, ScopeKind
from edenmem.text import clean, word_count


class _NeedsReview(Exception):
    """A newer reflection contradicts a fixed sentence.

    ``pairs`` are the number of the sentence, from 1, and the ID of the reflection.
    """

    def __init__(self, pairs: tuple[tuple[int, str], ...]) -> None:
        super().__init__()
        self.pairs = pairs


class _State(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a scope at the beginning of an attempt; ``work`` has all pending reflections.

    ``key`` is the key in replay files, made of names, which a new database keeps.
    """

    scope: Scope
    policy: Policy | None
    work: Assignment
    key: str
    model: str
    threshold: int
    version: int
    is_taken: bool
    propagates: bool
    unpropagated: tuple[int, ...]
    failed: FailedDrafts | None

    @property
    def fingerprint(self) -> str:
        """Return the same value while nothing changes that a model could answer differently."""
        work = self.work
        return derived_id(
            *("draft", str(self.version), work.current, str(work.word_limit), self.model),
            work.instructions or "",
            *(f"{each.id}/{each.version}" for each in work.reflections),
        )

    @property
    def failures(self) -> FailedDrafts:
        """Return the failed drafts from the same input."""
        if self.failed is not None and self.failed.fingerprint == self.fingerprint:
            return self.failed
        return FailedDrafts(self.fingerprint, 0)

    @property
    def is_over_limit(self) -> bool:
        """Return whether the text is over its limit."""
        return word_count(self.work.current) > self.work.word_limit


class Consolidator:
    """Consolidate the texts of scopes.

    Args:
        runtime: Without an ``llm`` every call that needs a model raises `ConfigError`.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._store = runtime.store
        self._settings = runtime.settings
        self._llm = runtime.llm
        self._actor = runtime.actor
        self._clock = runtime.clock

    async def due(self, scopes: Sequence[Scope], *, at_once: bool = False) -> list[Scope]:
        """Return the active scopes at their threshold, or with a pending propagation.

        ``at_once``: the threshold is one reflection.
        """
        return await in_thread(self._due, tuple(dict.fromkeys(scopes)), at_once)

    async def consolidate_many(
        self,
        scopes: Iterable[Scope],
        *,
        force: bool = False,
        at_once: bool = False,
        dry_run: bool = False,
    ) -> list[ConsolidationReport]:
        """Consolidate scopes concurrently; return the reports in the order of the scopes.

        A failed scope does not stop the others. After ``cold.outage_after`` outages in a row the
        others are not tried.

        Raises:
            ConfigError: no language model is configured.
        """
        limit = asyncio.Semaphore(self._settings.consolidation.concurrency)
        in_a_row = 0

        async def one(scope: Scope) -> ConsolidationReport:
            nonlocal in_a_row
            async with limit:
                if in_a_row >= self._settings.cold.outage_after:
                    return ConsolidationReport(scope=scope, outcome="not_tried")
                try:
                    report = await self.consolidate(
                        scope, force=force, at_once=at_once, dry_run=dry_run
                    )
                except ConfigError:
                    raise  # affects every scope
                except EdenmemError as error:
                    report = ConsolidationReport(
                        scope=scope,
                        outcome="failed",
                        error=error.message,
                        is_outage=is_outage(error),
                    )
                in_a_row = in_a_row + 1 if report.is_outage else 0
                return report

        return await gather_all(one(scope) for scope in dict.fromkeys(scopes))

    async def consolidate(
        self, scope: Scope, *, force: bool = False, at_once: bool = False, dry_run: bool = False
    ) -> ConsolidationReport:
        """Consolidate the scope's pending reflections into its text, if the scope is due.

        If one prompt cannot hold all of them, the oldest are absorbed and the others stay pending;
        the report's ``left`` counts them.

        Args:
            scope: The scope.
            force: Ignore the threshold, a pause, failed drafts, contradictions to fixed sentences
                and a loss of text; without pending reflections, shorten or rewrite the text.
            at_once: The threshold is one reflection.
            dry_run: Draft the text with the model, but write nothing.

        Returns:
            The report. A failed model call or a rejected draft is reported as "failed" with the
            reason, not raised.

        Raises:
            NotFoundError: the agent does not exist.
            ConfigError: no language model is configured.
            StoreError: the database cannot be used.
        """
        usage: list[CallUsage] = []
        try:
            report = await self._consolidate(
                scope, usage, force=force, at_once=at_once, dry_run=dry_run
            )
        finally:
            with suppress(*([StoreReadOnly] if dry_run else [])):
                await keep_usage(
                    self._store, scope.agent_id, "consolidation", usage, at=self._clock()
                )
        if dry_run:
            return report
        outcome = await propagate(self._runtime, scope)
        return replace(
            report,
            usage=(*report.usage, *outcome.usage),
            propagated=outcome.added,
            propagation=outcome.decisions,
            propagation_error=outcome.error,
        )

    async def _consolidate(
        self, scope: Scope, usage: list[CallUsage], *, force: bool, at_once: bool, dry_run: bool
    ) -> ConsolidationReport:
        """Return the report; add calls to ``usage``."""
        attempts = self._settings.consolidation.conflict_retries + 1
        had_pending = False
        for _ in range(attempts):
            state = await in_thread(self._load, scope)
            report = partial(_report, state, usage)
            outcome = _idle(state, force=force, at_once=at_once)
            if had_pending and not state.work.reflections:
                outcome = "nothing_pending"  # another writer was faster
            had_pending |= bool(state.work.reflections)
            if outcome:
                return report(outcome)
            if not dry_run:
                await in_thread(self._store.database.require_writable)
            taken = _fitting(state.work, self._settings.formation.max_characters)
            asker = Asker(require_llm(self._llm), state.key)
            asker.spent = usage
            try:
                draft = await self._draft(state, taken, asker, force=force)
            except _NeedsReview as review:
                failed = replace(state.failures, reviews=review.pairs)
                if not dry_run:
                    await in_thread(self._store.changes.set_failed_drafts, scope, failed)
                return _report(replace(state, failed=failed), usage, "waiting_for_review")
            except (ProviderError, DraftRefused) as error:
                if not dry_run and not is_outage(error) and not isinstance(error, ReplayMiss):
                    failed = FailedDrafts(state.fingerprint, state.failures.count + 1)
                    await in_thread(self._store.changes.set_failed_drafts, scope, failed)
                if isinstance(error, ContextOverflow):
                    error.add_hint("lower the scope's word limit")
                    return report("failed", error=error.advised_message)
                return report("failed", error=error.message, is_outage=is_outage(error))
            if dry_run:
                return report("dry_run", draft=draft)
            if not draft.taken and draft.text == state.work.current:
                return report("unchanged", dropped=draft.dropped)
            result = await in_thread(self._write, state, draft)
            if result.ok:
                return report("written", draft=draft)
            if result.status is not ChangeStatus.CONFLICT:
                return report("failed", error=result.detail or result.status)
        conflicts = "1 conflicting write" if attempts == 1 else f"{attempts} conflicting writes"
        return report("failed", error=f"gave up after {conflicts}")

    # -- store access, in a thread -------------------------------------------------------------

    def _due(self, scopes: tuple[Scope, ...], at_once: bool) -> list[Scope]:
        documents = self._store.memory.consolidations(scopes)
        existing = [scope for scope in scopes if scope in documents]
        policies = self._store.memory.policies(existing)

        def why_not(scope: Scope, policy: Policy | None) -> str:
            threshold = consolidate_at_of(self._store, self._settings, scope, policy)
            pending = len(documents[scope].unabsorbed_ids)
            return why_not_due(policy, pending, 1 if at_once else threshold)

        return [
            scope
            for scope in existing
            if documents[scope].unpropagated_versions or not why_not(scope, policies.get(scope))
        ]

    def _load(self, scope: Scope) -> _State:
        agent = self._store.host.agent(scope.agent_id)
        if agent is None:
            raise NotFoundError(f"unknown agent: {scope.agent_id}")
        # Read the version before the buffer, so that a concurrent write leads to a conflict.
        others = other_scopes(self._store, scope)
        documents = self._store.memory.consolidations((scope, *others))
        document = documents.get(scope)
        policy = self._store.memory.policies((scope,)).get(scope)
        pending = tuple(self._store.memory.pending(scope))
        owner, version = self._owner_name(scope), document.version if document else 0
        names = (scope.kind, agent.username, *([owner] if owner else []), str(version))
        instructions = policy and (policy.consolidation_instructions or policy.memory_instructions)
        work = Assignment(
            kind=scope.kind,
            # Users choose their names and the titles of sessions: these are untrusted.
            owner=tidy_name(owner or agent.label) or f"one {scope.kind}",
            agent=tidy_name(agent.label),
            persona=cut_middle(clean(agent.persona).strip(), PERSONA_CHARACTERS),
            current=document.consolidated_content if document else "",
            known=tuple(
                text
                for each in others
                if each in documents and (text := documents[each].consolidated_content.strip())
            ),
            fixed=document.fixed if document else (),
            reflections=pending,
            instructions=instructions or None,
            word_limit=word_limit_of(self._store, self._settings, scope, policy, document),
            now=self._clock(),
            takes_orders=policy is not None and bool(policy.orders),
        )
        return _State(
            scope=scope,
            policy=policy,
            work=work,
            key="/".join(names),
            model=(policy and policy.slow_model)
            or slow_model_of(self._store, self._settings, agent),
            threshold=consolidate_at_of(self._store, self._settings, scope, policy),
            version=version,
            is_taken=self._is_taken(pending),
            propagates=wants_propagation(self._settings, scope, policy),
            unpropagated=document.unpropagated_versions if document else (),
            failed=self._store.memory.failed_drafts((scope,)).get(scope),
        )

    def _is_taken(self, pending: Sequence[Reflection]) -> bool:
        """Return whether the platform may be consolidating the scope.

        It begins after adding reflections, and replaces the text without comparing it.
        """
        since = self._clock() - PROOF_WAIT
        is_new = any(
            each.formed_at > since and each.formation_id is None and not each.propagated_from
            for each in pending
        )
        return is_new and self._store.database.is_beside_platform()

    def _owner_name(self, scope: Scope) -> str:
        if scope.kind is ScopeKind.USER:
            user = self._store.host.users_by_ids((scope.owner,)).get(scope.owner)
            return user.username if user else scope.owner
        if scope.kind is ScopeKind.SESSION:
            session = self._store.host.session(scope.owner)
            return session.label if session else scope.owner
        return scope.owner

    def _write(self, state: _State, draft: Draft) -> ChangeResult:
        now = self._clock()
        is_scripted = self._llm is not None and self._llm.is_scripted
        author = "scripted answers, no model" if is_scripted else state.model
        change = WriteConsolidation(
            scope=state.scope,
            expected_version=state.version,
            content=draft.text,
            word_limit=state.work.word_limit,
            at=now,
            absorbed_ids=tuple(reflection.id for reflection in draft.taken),
            propagate=state.propagates,
            reason=f"consolidated by {author}",
        )
        (result,) = self._store.changes.apply(
            ChangeSet(actor=self._actor, at=now, changes=(change,))
        )
        return result

    # -- model calls ---------------------------------------------------------------------------

    async def _draft(
        self, state: _State, taken: Sequence[Reflection], asker: Asker, *, force: bool
    ) -> Draft:
        """Return a draft that may be written.

        After failed drafts from the same input, fewer reflections are tried.

        Raises:
            DraftRefused: the model's texts were too long, too short or not usable.
            _NeedsReview: without ``force``, a reflection contradicts a fixed sentence.
        """
        taken = taken[: max(len(taken) >> 2 * state.failures.count, 1)]
        work, current = replace(state.work, reflections=taken), state.work.current
        most, is_over = most_words(work.word_limit), state.is_over_limit
        keeps = force or is_over
        if taken or not is_over:
            draft = await self._ask(state, work, asker, force=force)
        else:
            draft = await self._shorten(state, work, current, asker)
        if word_count(draft.text) > most and asker.asked[-1] != "shorten":
            draft = await self._shorten(state, work, draft.text, asker)
        if not keeps and (lost := consolidation_draft.find_loss(draft.text, work)):
            draft = await self._ask(state, work, asker, force=force, lost=lost)
        if word_count(draft.text) > most and len(taken) > 1:
            work = replace(work, reflections=taken[: len(taken) // 2])
            draft = await self._ask(state, work, asker, force=force)
        if not keeps and consolidation_draft.find_loss(draft.text, work):
            raise DraftRefused(
                f"the model's text has {word_count(draft.text)} words, the previous one had"
                f" {word_count(current)}; more than a third would be lost"
            )
        # A text over its limit is never stuck: it may shrink step by step.
        limit = max(most, word_count(current) - 1 if is_over else 0)
        consolidation_draft.demand_length(draft.text, limit)
        return draft

    async def _ask(
        self,
        state: _State,
        work: Assignment,
        asker: Asker,
        *,
        force: bool,
        lost: tuple[str, ...] = (),
    ) -> Draft:
        answer = await asker.ask(
            "consolidate",
            ConsolidateAnswer,
            model=state.model,
            **consolidation_draft.prompt_values(work, lost),
        )
        pairs = tuple(_contradictions(answer.contradictions, work))
        if pairs and not force:
            raise _NeedsReview(pairs)
        return consolidation_draft.review_draft(answer.text, work)

    async def _shorten(self, state: _State, work: Assignment, text: str, asker: Asker) -> Draft:
        answer = await asker.ask(
            "shorten",
            TextAnswer,
            model=state.model,
            kind=work.kind,
            text=text,
            words=word_count(text),
            word_limit=work.word_limit,
            fixed=work.fixed,
        )
        return consolidation_draft.review_draft(answer.text, work)


def is_outage(error: EdenmemError) -> bool:
    """Return whether an error affects all scopes: a model or the store is unavailable."""
    is_of_one = isinstance(error, ProviderAnswerInvalid | ContextOverflow | ReplayMiss)
    return isinstance(error, UnavailableError) and not is_of_one


def _contradictions(found: Iterable[Contradiction], work: Assignment) -> Iterator[tuple[int, str]]:
    """Yield each fixed sentence with the newer reflection that contradicts it.

    A person who fixed a sentence later knew better.
    """
    for each in found:
        if 1 <= each.fixed <= len(work.fixed) and 1 <= each.reflection <= len(work.reflections):
            reflection = work.reflections[each.reflection - 1]
            if reflection.dated_at > work.fixed[each.fixed - 1].at:
                yield each.fixed, reflection.id


def _idle(state: _State, *, force: bool, at_once: bool) -> str:
    """Return why a scope is not due, or ""."""
    pending = state.work.reflections
    if force:
        has_work = pending or (state.work.current.strip() and not state.unpropagated)
        return "" if has_work else "nothing_pending"
    threshold = 1 if at_once else state.threshold
    if why_not := why_not_due(state.policy, len(pending), threshold):
        return why_not
    if state.is_taken and not at_once:
        return "waiting"
    if state.failures.is_final:
        return "waiting_for_review" if state.failures.reviews else "stuck"
    return ""


def _fitting(work: Assignment, characters: int) -> tuple[Reflection, ...]:
    """Return the oldest pending reflections that fit into one prompt, at least one."""
    room = characters - len(work.current) - sum(map(len, work.known))
    for count, reflection in enumerate(work.reflections):
        room -= len(reflection.content)
        if room < 0:
            return work.reflections[: max(count, 1)]
    return work.reflections


def _report(
    state: _State,
    usage: Sequence[CallUsage],
    outcome: str,
    *,
    draft: Draft | None = None,
    error: str | None = None,
    dropped: tuple[Decision, ...] = (),
    is_outage: bool = False,
) -> ConsolidationReport:
    """Return a report; ``draft`` is the new text, in a dry run too."""
    work = state.work
    after = work.current if draft is None else draft.text
    taken = () if draft is None else draft.taken
    pending = {each.id: each.content for each in work.reflections}
    if outcome == "stuck":
        error = (
            f"the last {MOST_FAILURES} drafts were refused; not tried again until text, word"
            " limit, model or pending reflections change, or with --force"
        )
    return ConsolidationReport(
        scope=state.scope,
        outcome=outcome,
        version=state.version + (draft is not None),
        absorbed=len(taken),
        left=len(pending) - len(taken),
        words=word_count(after),
        word_limit=work.word_limit,
        before=work.current,
        after=after,
        usage=tuple(usage),
        error=error,
        is_outage=is_outage,
        dropped=draft.dropped if draft else dropped,
        restored=draft.restored if draft else (),
        conflicts=tuple(
            FixedConflict(
                fixed=work.fixed[number - 1].text,
                by=work.fixed[number - 1].by,
                reflection=pending.get(reflection_id, ""),
            )
            for number, reflection_id in state.failures.reviews
            if outcome == "waiting_for_review" and 1 <= number <= len(work.fixed)
        ),
    )
