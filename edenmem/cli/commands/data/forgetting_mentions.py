"""What is to become of texts of others that name the subject: asked, drafted, or kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from edenmem.cli.app.invocation import Invocation
from edenmem.cli.terminal.editing import EditorFile, show_diff
from edenmem.cli.terminal.prompts import ask_choice, confirm
from edenmem.engine.erasure.reports import (
    ForgetPlan,
    Mention,
    MentionDecision,
    MentionMode,
    RewritingRefused,
)
from edenmem.engine.factory import LLM_HINT
from edenmem.errors import ProviderError, UsageError

if TYPE_CHECKING:
    from edenmem.embed.protocol import Embedder
    from edenmem.engine.erasure.forgetting import Forgetter
    from edenmem.llm.protocol import LLM


Making = Callable[["LLM | None", "Embedder | None"], "Forgetter"]


class MentionReview:
    """Makes the decisions, one mention after the other; ``failed`` are those that could not be
    carried out as wished."""

    def __init__(self, run: Invocation, plan: ForgetPlan, make: Making) -> None:
        self._run = run
        self._plan = plan
        self._make = make
        self.failed: list[str] = []

    def decide(self, mentions: MentionMode, learned: MentionMode) -> list[MentionDecision]:
        """A decision for each mention; those without one are kept.

        Raises:
            UsageError: a model is to write and none is configured.
        """
        found = (self._decide(one, one.mode(mentions, learned)) for one in self._plan.mentions)
        return [decision for decision in found if decision is not None]

    def _decide(self, mention: Mention, mode: MentionMode) -> MentionDecision | None:
        match mention.treatment(mode):
            case "ask":
                return self._ask(mention)
            case "rewrite":
                decision = self._draft(mention)
                if decision is not None:
                    self._show(decision)
                return decision
            case "keep":
                if mode is not MentionMode.KEEP:
                    option = "--learned" if mention.learned else "--mentions"
                    why = f"only a rewrite takes it out ({option} rewrite)"
                    if mention.target_type == "policy":
                        why = "change it with 'edenmem scope policy', then run this again"
                    self._fail(mention, why)
                return None
            case treatment:
                return MentionDecision(mention=mention, treatment=treatment)

    # -- by the model --------------------------------------------------------------------------

    def _draft(self, mention: Mention) -> MentionDecision | None:
        async def work(llm: LLM | None, embedder: Embedder | None) -> MentionDecision:
            return await self._make(llm, embedder).draft(self._plan, mention)

        self._run.out.progress(f"asking the model about {mention.target_type} {mention.target_id}")
        try:
            return self._run.with_models(work, llm=True)
        except (RewritingRefused, ProviderError) as error:
            self._fail(mention, error.message)
            return None

    def _fail(self, mention: Mention, why: str) -> None:
        self.failed.append(f"{mention.target_type} {mention.target_id} was kept: {why}")

    # -- by a person ---------------------------------------------------------------------------

    def _ask(self, mention: Mention) -> MentionDecision | None:
        out = self._run.out
        out.note("")
        out.note(f"{mention.target_type} {mention.target_id} {_WHY[mention.learned]}:")
        # Who decides on a fact has to see all of it; of a long text, the places that matter.
        whole = mention.text if mention.target_type in ("fact", "reflection") else None
        for line in [whole] if whole else mention.contexts or ["(it absorbed reflections that go)"]:
            out.note(f"  {line}")
        while True:
            decision, again = self._choose(mention)
            if not again:
                return decision

    def _choose(self, mention: Mention) -> tuple[MentionDecision | None, bool]:
        """The decision, and whether to ask again."""
        option = "--learned" if mention.learned else "--mentions"
        match ask_choice("what to do", option, _choices(mention)):
            case "keep":
                return None, False
            case "redact":
                return MentionDecision(mention=mention, treatment="redact"), False
            case "remove":
                return MentionDecision(mention=mention, treatment="remove"), False
            case "rewrite":
                try:
                    decision = self._draft(mention)
                except UsageError as error:  # no model is configured
                    self._run.out.note(f"{error.message}: {LLM_HINT}")
                    return None, True
                if decision is None:
                    self._run.out.note(self.failed.pop())
                    return None, True
            case _:
                decision = self._edit(mention)
                if decision is None:
                    return None, True
        self._show(decision)
        return (decision, False) if confirm("Take this?", yes=False) else (None, True)

    def _edit(self, mention: Mention) -> MentionDecision | None:
        edited = EditorFile(mention.text or "", mention.target_type)
        edited.path.unlink(missing_ok=True)

        async def work(llm: LLM | None, embedder: Embedder | None) -> MentionDecision:
            return self._make(llm, embedder).validate_rewrite(self._plan, mention, edited.text)

        try:
            return self._run.with_models(work)
        except RewritingRefused as error:
            self._run.out.note(error.message)
            return None

    def _show(self, decision: MentionDecision) -> None:
        if self._run.out.is_data:
            return
        mention = decision.mention
        what = f"{mention.target_type} {mention.target_id}"
        after = decision.text if decision.treatment == "rewrite" else ""
        show_diff(self._run.out, mention.text or "", after, old=what, new=f"{what} (new)")


_WHY = {
    "": "names what is to be forgotten",
    "alone": "was learned from what is to be forgotten",
    "unclear": "was learned from what is to be forgotten, and perhaps from others",
}


def _choices(mention: Mention) -> list[tuple[str, str]]:
    keep = ("keep", "keep it as it is")
    if mention.text is None:
        return [("redact", f"empty its older copies ({mention.copies:,})"), keep]
    remove = ("remove", "remove it as a whole")
    if mention.fixed:
        return [remove, keep] if mention.removable else [keep]
    rewrite = [("rewrite", "have the model write it without"), ("edit", "change it in $EDITOR")]
    return [*rewrite, *([remove] if mention.removable else []), keep]
