"""Texts of others that name the subject: drafted anew by a model, checked, and written."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from edenmem.embed.protocol import Embedder
from edenmem.engine.consolidation.draft import without_version
from edenmem.engine.edits.editor import Editor
from edenmem.engine.erasure.mentions import Names
from edenmem.engine.erasure.reports import (
    Mention,
    MentionDecision,
    RewritingRefused,
    Treatment,
)
from edenmem.engine.runtime.answers import TextAnswer
from edenmem.engine.runtime.llm_session import Asker
from edenmem.engine.runtime.usage import keep_usage
from edenmem.errors import ConflictError, NotFoundError, ProviderError, UsageError
from edenmem.llm.protocol import LLM
from edenmem.models.changes import Actor
from edenmem.models.forgetting import Subject
from edenmem.models.ids import utc_now
from edenmem.settings.schema import Settings
from edenmem.store.protocol.store import Store
from edenmem.text import clean, word_count

#: Why, in the audit entry; it says nothing of whom.
REASON = "rewritten because somebody asked to be forgotten"


class Rewriter:
    """Drafts and writes; see `edenmem.engine.erasure.forgetting.Forgetter`."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        *,
        llm: LLM | None,
        embedder: Embedder | None,
        actor: Actor,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self._llm = llm
        self._settings = settings
        self._editors = [
            Editor(store, settings, embedder=one, actor=actor, clock=clock)
            for one in ([embedder, None] if embedder is not None else [None])
        ]
        self._store = store
        self._clock = clock

    async def draft(self, subject: Subject, mention: Mention) -> MentionDecision:
        """What a model makes of a mention: its text without the subject, or its removal if nothing
        would be left. Nothing is written.

        Raises:
            RewritingRefused: its answer still names the subject, or is no such text.
            UsageError: no model is configured.
            ProviderError: the model could not be asked.
        """
        if self._llm is None:
            raise UsageError(
                "rewriting texts needs a language model and none is configured",
                hint="keep them (--mentions keep, --learned keep), change them by hand"
                " (ask), or configure one",
            )
        text = mention.text or ""
        limit = max(mention.word_limit, word_count(text))
        asker = Asker(self._llm, f"forget/{mention.target_type}/{mention.target_id}")
        try:
            answer = await asker.ask(
                "forget",
                TextAnswer,
                model=self._settings.llm.slow_model,
                names=subject.names,
                removed=mention.removed,
                learned=bool(mention.learned),
                text=text,
                words=word_count(text),
                word_limit=limit,
            )
        finally:
            agent_id = mention.scope.agent_id if mention.scope is not None else ""
            await keep_usage(self._store, agent_id, "forgetting", asker.spent, at=self._clock())
        written = without_version(clean(answer.text)).strip()
        if not written and mention.removable:
            return MentionDecision(mention=mention, treatment="remove")
        if written == text.strip() and not Names(subject.names).are_in(written):
            # A text that absorbed something may have been rewritten by a run that was cut off.
            treatment: Treatment = "redact" if mention.removed else "keep"
            return MentionDecision(mention=mention, treatment=treatment, text=written)
        return self.validate(subject, mention, written)

    def validate(self, subject: Subject, mention: Mention, text: str) -> MentionDecision:
        """The text as it may be written in place of the mention's, whoever wrote it.

        Raises:
            RewritingRefused: it is blank, over its limit, or still names the subject.
        """
        text = clean(text).strip()
        if not text:
            raise RewritingRefused("the new text is blank")
        if "<<<" in text and "<<<" not in (mention.text or ""):
            raise RewritingRefused("the new text repeats the marks that fence data in the prompt")
        words, before = word_count(text), word_count(mention.text or "")
        if words > max(mention.word_limit, before):
            raise RewritingRefused(f"the new text has {words} words, more than it may have")
        left = Names(subject.names).contexts(text)
        if left:
            raise RewritingRefused(f"the new text still names what is to be forgotten: {left[0]}")
        return MentionDecision(mention=mention, treatment="rewrite", text=text)

    async def write(self, decision: MentionDecision) -> str | None:
        """Carry a decision out, by the audited road; why it could not be, or None."""
        try:
            for editor in self._editors:
                try:
                    await self._write(editor, decision)
                except ProviderError:
                    if editor is self._editors[-1]:
                        raise
                    continue  # the vector can be made later; the name must go now
                return None
        except (ConflictError, NotFoundError, UsageError) as error:
            mention = decision.mention
            return f"{mention.target_type} {mention.target_id}: {error.message}"
        return None

    async def _write(self, editor: Editor, decision: MentionDecision) -> None:
        mention = decision.mention
        if decision.treatment == "rewrite" and mention.target_type == "fact":
            await editor.edit_fact(
                mention.target_id,
                decision.text,
                expected_version=mention.version,
                allow_long=True,
                reason=REASON,
            )
        elif decision.treatment == "rewrite" and mention.target_type == "reflection":
            await editor.edit_reflection(
                mention.target_id,
                decision.text,
                expected_version=mention.version,
                allow_long=True,
                reason=REASON,
            )
        elif decision.treatment == "rewrite" and mention.scope is not None:
            await editor.edit_consolidation(
                mention.scope,
                decision.text,
                expected_version=mention.version,
                allow_long=True,
                reason=REASON,
            )
        elif decision.treatment == "remove" and mention.target_type == "fact":
            await editor.delete_fact(
                mention.target_id, expected_version=mention.version, reason=REASON
            )
        elif decision.treatment == "remove":
            await editor.delete_reflection(
                mention.target_id, expected_version=mention.version, reason=REASON
            )
