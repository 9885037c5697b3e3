"""Texts that are over the limit of their scope, shortened by a model where that is asked for.

The whole text is written first and stays in history as the version before; without a model, or if
its answer is refused, it stays the text: nothing is ever cut.
"""

from __future__ import annotations

from collections.abc import Sequence

from edenmem.engine.consolidation import draft as consolidation_draft
from edenmem.engine.consolidation.draft import Assignment, DraftRefused
from edenmem.engine.migration.items import MOVED, SHORTENED, Done, Rounds, change_id
from edenmem.engine.runtime.answers import TextAnswer
from edenmem.engine.runtime.concurrency import in_thread
from edenmem.engine.runtime.llm_session import Asker
from edenmem.engine.runtime.runtime import Runtime
from edenmem.engine.runtime.usage import Meter, keep_usage
from edenmem.errors import BudgetExceeded, ProviderAuthError, ProviderError
from edenmem.llm.protocol import LLM
from edenmem.models.changes import ChangeSet, WriteConsolidation
from edenmem.models.formation import UsageTotal
from edenmem.models.v1 import V1Item, V1Text
from edenmem.text import word_count

#: Texts kept whole that are named; all are counted by the plan.
_NAMED = 100
#: A shortened text with less than this share of the words that it may have lost too much.
_LEAST = 0.2
#: Answers in a row that fail for a reason that all others would share.
_HOPELESS = (ProviderAuthError, BudgetExceeded)


class Condenser:
    """Shortens the texts of one run."""

    def __init__(self, runtime: Runtime, *, rounds: Rounds) -> None:
        self._store = runtime.store
        self._settings = runtime.settings
        self._actor = runtime.actor
        self._rounds = rounds
        self._llm = runtime.llm
        self._clock = runtime.clock
        self._meter = Meter()
        self.condensed = 0
        self.kept_whole: list[str] = []

    @property
    def usage(self) -> tuple[UsageTotal, ...]:
        """What the model cost."""
        return self._meter.totals

    async def condense(self, done: Sequence[Done]) -> None:
        """Shorten what is over its limit among these items.

        Raises:
            StoreError: the database cannot be used.
        """
        for each in done:
            text = each.item.target
            if isinstance(text, V1Text) and text.words > text.word_limit and each.outcome in MOVED:
                await self._one(each.item, text)

    async def _one(self, item: V1Item, text: V1Text) -> None:
        size = f"{text.scope.key}: {text.words:,} words, the limit is {text.word_limit:,}"
        own = change_id(item, self._rounds.of(item), "condensed")
        if self._llm is None:
            self._keep(size)
        elif len(text.content) > self._settings.formation.max_characters:
            self._keep(f"{size}; too long for one prompt")
        elif not await in_thread(self._store.log.audit_entry, own):
            await self._ask(self._llm, item, text, own, size)

    def _keep(self, why: str) -> None:
        if len(self.kept_whole) < _NAMED:
            self.kept_whole.append(why)

    async def _ask(self, llm: LLM, item: V1Item, text: V1Text, own: str, size: str) -> None:
        asker = Asker(llm, f"migrate/{text.scope.key}")
        try:
            content = await self._shorten(asker, text)
        except (ProviderError, DraftRefused) as error:
            self._keep(f"{size}; {error.message}")
            if isinstance(error, _HOPELESS):
                self._llm = None
            return
        finally:
            self._meter.add(asker.spent)
            await keep_usage(self._store, item.agent_id, "migration", asker.spent, at=self._clock())
        if await in_thread(self._write, text, content, own):
            self.condensed += 1
        else:
            self._keep(f"{size}; somebody changed it meanwhile")

    async def _shorten(self, asker: Asker, text: V1Text) -> str:
        assignment = Assignment(
            kind=text.scope.kind,
            owner="",
            current="",
            reflections=(),
            instructions=None,
            word_limit=text.word_limit,
            now=self._clock(),
        )
        content = text.content
        for _ in range(2):
            answer = await asker.ask(
                "shorten",
                TextAnswer,
                model=self._settings.llm.slow_model,
                text=content,
                words=word_count(content),
                word_limit=text.word_limit,
            )
            content = consolidation_draft.validate_draft(answer.text, assignment)
            if word_count(content) <= text.word_limit:
                break
        consolidation_draft.demand_length(content, text.word_limit)
        if word_count(content) < text.word_limit * _LEAST:
            raise DraftRefused(f"the model's text has {word_count(content)} words left")
        return content

    def _write(self, text: V1Text, content: str, own: str) -> bool:
        current = self._store.memory.consolidations([text.scope]).get(text.scope)
        if current is None or current.consolidated_content != text.content:
            return False
        now = self._clock()
        change = WriteConsolidation(
            id=own,
            reason=SHORTENED,
            scope=text.scope,
            expected_version=current.version,
            content=content,
            word_limit=text.word_limit,
            at=now,
        )
        (result,) = self._store.changes.apply(
            ChangeSet(actor=self._actor, at=now, changes=(change,))
        )
        return result.ok
