"""Forget a user, session, group, agent or single facts, with all traces.

The steps; an interrupted forgetting resumes with the same arguments:

1. Record the start, which blocks all later writes of the subject (`edenmem.models.forgetting`).
2. Revoke tokens, and settle formations: messages count as formed, and claims cannot record.
3. Rewrite or remove memory of others that names the subject or was learned from it, as decided,
   and empty older copies. For facts, empty all copies of their texts, before step 4.
4. Remove the subject's memory, derived memory first.
5. Remove conversations, on request and if edenmem stores them.
6. Clear the cache of query vectors, and read all texts to find remaining traces.
7. Rewrite the files.
8. Record the end, with one audit entry without content, and seal the log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial

import msgspec

from edenmem.engine.consolidation.draft import without_version
from edenmem.engine.edits.editor import Editor, make_edit
from edenmem.engine.erasure.mentions import names_of
from edenmem.engine.erasure.passages import trace_facts, trace_reflections, walk_passages
from edenmem.engine.erasure.person import gather, subject_of_receipt, to_markdown
from edenmem.engine.erasure.reports import (
    ForgetPlan,
    ForgetReport,
    Mention,
    MentionDecision,
    RewritingRefused,
    Treatment,
    receipt_of,
)
from edenmem.engine.erasure.survey import (
    Survey,
    check_conversations,
    find_remains,
    find_subject,
    settle_formations,
)
from edenmem.engine.erasure.sweep import Sweep
from edenmem.engine.formation.recheck import apply_recorded
from edenmem.engine.runtime.answers import TextAnswer
from edenmem.engine.runtime.concurrency import in_thread
from edenmem.engine.runtime.llm_session import Asker
from edenmem.engine.runtime.runtime import Runtime, require_llm
from edenmem.engine.runtime.usage import keep_usage
from edenmem.engine.seals.hashes import Receipt, hash_receipt
from edenmem.engine.seals.sealer import Sealer, hash_emptied
from edenmem.engine.tokens import withdraw_tokens
from edenmem.errors import ConflictError, NotFoundError, ProviderError, UsageError
from edenmem.models.forgetting import Forgetting, Passage, Subject, block
from edenmem.models.ids import derived_id
from edenmem.models.records import AuditEntry
from edenmem.settings.paths import stage_folder
from edenmem.store.protocol.store import batched
from edenmem.text import clean, word_count

#: Reason in the audit entry, without the name of the subject.
REASON = "rewritten for a request to be forgotten"


def validate_rewrite(subject: Subject, mention: Mention, text: str) -> MentionDecision:
    """Check the new text of a mention.

    Raises:
        RewritingRefused: the text is blank, too long, or still names the subject.
    """
    text = clean(text).strip()
    if not text:
        raise RewritingRefused("the new text is blank")
    if "<<<" in text and "<<<" not in (mention.text or ""):
        raise RewritingRefused("the new text contains fence marks of the prompt")
    words, before = word_count(text), word_count(mention.text or "")
    if words > max(mention.word_limit, before):
        limit = max(mention.word_limit, before)
        raise RewritingRefused(f"the new text has {words} words, the limit is {limit}")
    left = names_of(subject).contexts(text)
    if left:
        raise RewritingRefused(f"the new text still names the subject: {left[0]}")
    return MentionDecision(mention=mention, treatment="rewrite", text=text)


def _write(editor: Editor, decision: MentionDecision) -> None:
    mention, version = decision.mention, decision.mention.version
    match decision.treatment, mention.target_type:
        case "rewrite", "fact" | "reflection":
            editor.edit(
                mention.target_id,
                decision.text,
                expected_version=version,
                allow_long=True,
                reason=REASON,
            )
        case "rewrite", _ if mention.scope is not None:
            editor.edit_consolidation(
                mention.scope,
                decision.text,
                expected_version=version,
                allow_long=True,
                fixes=False,
                reason=REASON,
            )
        case "remove", _:
            editor.delete(mention.target_id, expected_version=version, reason=REASON)


#: Passages to empty per step.
_AT_ONCE = 500
#: Places with copies of texts, which are emptied together with the text.
_COPIES = frozenset({"previous", "doubt", "history", "audit", "formation", "context"})


class Forgetter:
    """Forget subjects on behalf of the runtime's actor.

    Args:
        runtime: ``llm`` rewrites texts of others; without one, rewriting raises `UsageError`.
            ``query_shelf`` is cleared.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._store = runtime.store
        self._settings = runtime.settings
        self._actor = runtime.actor
        self._clock = runtime.clock
        self._shelf = runtime.query_shelf
        self._sealer = Sealer(runtime)
        self.find_subject = partial(find_subject, runtime.store)
        self.gather = partial(gather, runtime)
        self.to_markdown = partial(to_markdown, runtime.store)
        self.check_conversations = partial(check_conversations, runtime.store)

    async def plan(self, subject: Subject) -> ForgetPlan:
        """Find everything about a subject. Changes nothing."""
        return await in_thread(Survey(self._store, self._settings, subject).plan)

    async def check(self, receipt: Receipt) -> dict[str, int]:
        """Return what came back of the subject of a receipt, by kind. Changes nothing.

        What the receipt says was left is no return.
        """
        subject = await in_thread(subject_of_receipt, self._store, receipt.subject)
        back = Counter[str]()
        if subject is not None:
            plan = await self.plan(subject)
            back.update(plan.counts)
            gone = plan.conversations.keys() & receipt.removed.keys()
            back.update({kind: plan.conversations[kind] for kind in gone})
            back["mentions"] = max(0, len(plan.mentions) - receipt.mentions.get("kept", 0))
        again = await in_thread(lambda: sum(1 for _ in Sweep(self._runtime).find()))
        back["written again by another program"] = again
        return {kind: number for kind, number in back.items() if number}

    async def draft(self, plan: ForgetPlan, mention: Mention) -> MentionDecision:
        """Ask the model for a mention's text without the subject, or propose to remove the mention.

        Writes nothing.

        Raises:
            RewritingRefused: the answer is invalid, or still names the subject.
            ConfigError: no language model is configured.
            ProviderError: the model failed.
        """
        subject, text = plan.subject, mention.text or ""
        llm = require_llm(
            self._runtime.llm,
            otherwise="keep the texts (--mentions keep, --learned keep), or edit them (ask)",
        )
        asker = Asker(llm, f"forget/{mention.target_type}/{mention.target_id}")
        try:
            answer = await asker.ask(
                "forget",
                TextAnswer,
                model=self._settings.llm.slow_model,
                names=subject.names,
                statements=subject.kind == "fact",
                removed=mention.removed,
                learned=bool(mention.learned),
                text=text,
                words=word_count(text),
                word_limit=max(mention.word_limit, word_count(text)),
            )
        finally:
            agent_id = mention.scope.agent_id if mention.scope is not None else ""
            await keep_usage(self._store, agent_id, "forgetting", asker.spent, at=self._clock())
        written = without_version(clean(answer.text)).strip()
        if not written and mention.removable:
            return MentionDecision(mention=mention, treatment="remove")
        if written == text.strip() and not names_of(subject).are_in(written):
            # An interrupted run may have rewritten the text already.
            treatment: Treatment = "redact" if mention.removed else "keep"
            return MentionDecision(mention=mention, treatment=treatment, text=written)
        return validate_rewrite(subject, mention, written)

    async def forget(
        self,
        plan: ForgetPlan,
        decisions: Sequence[MentionDecision] = (),
        *,
        messages: bool = False,
        failed: Sequence[str] = (),
    ) -> ForgetReport:
        """Execute a plan. Mentions without a decision are kept.

        Args:
            plan: The result of `plan`.
            decisions: Decisions about mentions.
            messages: Also remove conversations; see `check_conversations`.
            failed: Failed decisions, to be reported as unfinished.

        Raises:
            ConflictError: another writer changes the same memory; run the command again.
        """
        begun = await in_thread(self._begin, plan, messages)
        run_id = derived_id("forgotten", plan.subject.id, begun.begun_at.isoformat())
        if plan.traces.facts:
            await in_thread(self._check_unchanged, plan)
        at = self._clock()
        removed: Counter[str] = Counter()
        removed["tokens"] += await in_thread(withdraw_tokens, self._runtime, plan.subject)
        removed.update(await in_thread(settle_formations, self._store, plan.traces, at=at))
        unfinished = [*failed, *await self._write(decisions, "rewrite")]
        copies = 0
        decided = {one.mention.key for one in decisions}
        decisions = [
            *decisions,
            *(  # copies that are emptied without a decision
                MentionDecision(mention=mention, treatment="redact")
                for mention in plan.mentions
                if mention.emptied and mention.key not in decided
            ),
        ]
        if any(one.mention.removed for one in decisions):
            # Before the absorbed reflections go, by which a later run would find these texts.
            copies += await in_thread(self._empty_copies, plan, decisions, run_id)
        unfinished += await self._write(decisions, "remove")
        await in_thread(self._block_removed, begun, decisions)
        of_facts = bool(plan.traces.facts)
        if of_facts:
            # Before the facts go, by which a later run would find their copies and messages.
            await in_thread(self._apply_recorded, decisions, at)
            copies += await in_thread(self._empty_copies, plan, decisions, run_id)
        if messages and of_facts:
            removed.update(await in_thread(self._store.erasure.erase_messages, plan.traces))
        erase = partial(self._store.erasure.erase, plan.traces, plan.derived, at=at, run=run_id)
        removed.update(await in_thread(erase))
        copies += await in_thread(self._empty_copies, plan, decisions, run_id)
        if messages and not of_facts:
            removed.update(await in_thread(self._store.erasure.erase_messages, plan.traces))
        if self._shelf is not None:
            await in_thread(self._shelf.clear)
        kept = _find_kept(plan, decisions)
        named = {mention.key for mention in kept if mention.mentioned}
        remains = await in_thread(find_remains, self._store, plan, named)
        # Include the removals of an interrupted run, which were counted at its start.
        counts = {
            kind: number
            for kind in {**begun.counts, **removed}
            if (number := max(begun.counts.get(kind, 0), removed[kind]))
        }
        unfinished += (
            f"{document} is unreadable and may be about the subject: set it aside with 'edenmem"
            " doctor --check readable --fix'"
            for document in remains.unreadable
        )
        compaction = await in_thread(self._store.database.compact)
        if not compaction.done:
            unfinished.append(compaction.left)
        treatments = Counter(decision.treatment for decision in decisions)
        report = ForgetReport(
            id=run_id,
            subject=plan.subject,
            by=self._actor,
            begun_at=begun.begun_at,
            finished_at=self._clock(),
            removed=counts,
            mentions={
                "found": len(plan.mentions),
                "rewritten": treatments["rewrite"],
                "removed": treatments["remove"],
                "emptied": treatments["redact"],
                "kept": len(kept),
                "copies emptied": copies,
            },
            left=_count_left(plan, kept, messages=messages),
            stays=plan.stays,
            remains=remains,
            compaction=compaction,
            unfinished=tuple(unfinished),
        )
        await in_thread(self._close, report)
        if reason := await in_thread(self._sealer.seal_if_possible):
            # A receipt that says so differs from the one in the log, and has no proof.
            return msgspec.structs.replace(report, unfinished=(*unfinished, reason))
        proof = await in_thread(self._sealer.prove, run_id)
        return msgspec.structs.replace(report, proof=proof)

    # -- steps -------------------------------------------------------------------------------

    def _begin(self, plan: ForgetPlan, messages: bool) -> Forgetting:
        """Record the start, with the blocks of later writes."""
        for stage in stage_folder().glob("*.stage"):
            stage.unlink(missing_ok=True)  # v1 memory that an interrupted migration has read
        subject, traces = plan.subject, plan.traces
        parents = (one.id for one in trace_reflections(self._store, traces))
        blocked = {
            "scope": (scope.key for scope in traces.scopes),
            "session": dict.fromkeys((*traces.own, *traces.sources)),
            "reflection": (*parents, *plan.derived),
            "fact": traces.facts,
            "message": traces.messages,
            "held": traces.held,
            "called": map(str.casefold, subject.called),
            "removed": traces.messages if messages else (),
        }
        return self._store.erasure.begin_forgetting(
            Forgetting(
                id=subject.id,
                kind=subject.kind,
                begun_at=self._clock(),
                counts=plan.counts,
                blocks=tuple(block(what, id) for what, ids in blocked.items() for id in ids),
            )
        )

    def _check_unchanged(self, plan: ForgetPlan) -> None:
        """Check that the plan has everything that facts reveal, now that they cannot change.

        Raises:
            ConflictError: another writer changed a fact after the plan was made.
        """
        (found, texts), traces = trace_facts(self._store, plan.subject.facts), plan.traces
        if not (
            {*texts} <= {*plan.subject.names}
            and {*found.messages} <= {*traces.messages}
            and {*found.facts} <= {*traces.facts}
        ):
            raise ConflictError(
                "another writer changed a fact while it was to be erased",
                hint="run the same command again",
            )

    def _block_removed(self, begun: Forgetting, decisions: Sequence[MentionDecision]) -> None:
        """Keep removed memory of others out of later imports.

        Not from the start: their removal would be refused.
        """
        memory = self._store.memory
        gone = [
            block(one.mention.target_type, one.mention.target_id)
            for one in decisions
            if one.treatment == "remove"
            and memory.fact(one.mention.target_id) is None
            and memory.reflection(one.mention.target_id) is None
        ]
        if gone:
            blocks = (*begun.blocks, *gone)
            self._store.erasure.begin_forgetting(msgspec.structs.replace(begun, blocks=blocks))

    async def _write(self, decisions: Sequence[MentionDecision], treatment: Treatment) -> list[str]:
        """Make the edits of one treatment, and return the errors."""
        failures = []
        for decision in (one for one in decisions if one.treatment == treatment):
            edit, mention = partial(_write, decision=decision), decision.mention
            try:
                try:
                    await make_edit(self._runtime, edit)
                except ProviderError:  # remove the name now, and embed the text later
                    await make_edit(msgspec.structs.replace(self._runtime, embedder=None), edit)
            except (ConflictError, NotFoundError, UsageError) as error:
                failures.append(f"{mention.target_type} {mention.target_id}: {error.message}")
        return failures

    def _apply_recorded(self, decisions: Sequence[MentionDecision], at: datetime) -> None:
        """Apply the outcomes of formations whose records will be emptied."""
        for mention in (one.mention for one in decisions if one.treatment == "redact"):
            if mention.target_type == "formation":
                formation = self._store.formations.formation(mention.target_id)
                if formation is not None:
                    apply_recorded(self._store, formation, now=at, is_checked=True)

    def _empty_copies(
        self, plan: ForgetPlan, decisions: Sequence[MentionDecision], run_id: str
    ) -> int:
        """Empty copies of treated texts, and return their number.

        These are copies that name the subject, and all copies of texts that were learned from the
        subject or absorbed its memory.
        """
        treated = {one.mention.key for one in decisions if one.treatment != "keep"}
        # Only the new text of these may stay, even in copies that do not name the subject.
        replaced = {
            one.mention.key: one.text
            for one in decisions
            if one.mention.key in treated and (one.mention.removed or one.mention.learned)
        }
        names = names_of(plan.subject)
        kept = {mention.key for mention in _find_kept(plan, decisions)}

        def find_copies() -> Iterator[Passage]:
            for passage in walk_passages(self._store):
                key = (passage.target_type, passage.target_id)
                if passage.kind not in _COPIES or key in kept:
                    continue
                if passage.text != replaced.get(key, passage.text) or (
                    (key in treated or passage.kind == "context")
                    and names
                    and names.are_in(passage.text)
                ):
                    yield passage

        redact = partial(self._store.erasure.redact, run=run_id)
        return sum(redact(part) for part in batched(find_copies(), _AT_ONCE))

    def _close(self, report: ForgetReport) -> None:
        subject, counts = report.subject, report.removed
        entry = AuditEntry(
            id=report.id,
            change_set_id=subject.id,
            at=report.finished_at,
            actor=self._actor,
            action="forget",
            target_type=subject.kind,
            target_id=subject.id,
            agent_id=subject.agent_id or "",
            after={
                "removed": counts,
                "emptied": hash_emptied(self._store, report.id),
                "receipt": hash_receipt(receipt_of(report)),
            },
        )
        self._store.erasure.close_forgetting(
            subject.id, at=report.finished_at, counts=counts, entry=entry
        )


def _find_kept(plan: ForgetPlan, decisions: Sequence[MentionDecision]) -> list[Mention]:
    treated = {one.mention.key for one in decisions if one.treatment != "keep"}
    return [mention for mention in plan.mentions if mention.key not in treated]


#: Kinds of memory, as `ForgetReport.left` names them.
_PLURALS = {"consolidation": "texts", "policy": "policies"}


def _count_left(plan: ForgetPlan, kept: Sequence[Mention], *, messages: bool) -> dict[str, int]:
    """Count conversations, and memory outside of the traces that was kept."""
    counts = Counter({} if messages else plan.conversations)
    for mention in kept:
        what = _PLURALS.get(mention.target_type, f"{mention.target_type}s")
        if mention.text is None:
            what = "older copies"
        named = "repeating a text" if plan.subject.kind == "fact" else "mentioning the subject"
        counts[f"{what} {named if mention.mentioned else 'learned from the messages'}"] += 1
    return dict(counts)
