"""What the rooms of the engine offer to an operator; `MemoryService` has one of each.

A part is a record of functions that are bound to one runtime. It imports its room when it is made.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING

import msgspec

from edenmem.engine.runtime.runtime import Runtime
from edenmem.errors import ConfigError

if TYPE_CHECKING:
    from edenmem.engine.embeddings.backfill import Backfiller
    from edenmem.engine.embeddings.switch import ModelSwitcher, SwitchPlan
    from edenmem.engine.evaluation.queries import LabelledQuery
    from edenmem.engine.evaluation.tuning import Comparison, Tuning
    from edenmem.engine.exchange.edits import ApplyReport, Edit
    from edenmem.engine.exchange.files import Source
    from edenmem.engine.exchange.importer import Importer
    from edenmem.engine.exchange.mem0 import Mem0Lines
    from edenmem.engine.history.undo import MissingVectors, UndoStep
    from edenmem.engine.indexes.atlas_trial import AtlasReport
    from edenmem.engine.stats.statistics import MemoryStatistics
    from edenmem.settings.schema import Settings


class Accounts:
    """Agents and people where no platform adds them, and the merging of their memory."""

    def __init__(self, runtime: Runtime) -> None:
        from edenmem.engine.edits.checks import add_account
        from edenmem.engine.edits.user_merging import UserMerger

        self.add = partial(add_account, runtime)
        self.merge = UserMerger(runtime).merge


class Sessions:
    """Conversations from elsewhere."""

    def __init__(self, runtime: Runtime) -> None:
        from edenmem.engine.sessions.importer import import_sessions

        self.import_lines = partial(import_sessions, runtime)


class Chats:
    """Chats that pass through a proxy. What is not async blocks."""

    def __init__(self, runtime: Runtime) -> None:
        from edenmem.engine.chats import names, sessions
        from edenmem.engine.chats.memory import ChatMemory

        self.find_agent = partial(names.find_agent, runtime)
        self.find_user = partial(names.find_user, runtime)
        self.add_user = partial(names.add_user, runtime)
        self.find_turn = partial(sessions.find_turn, runtime)
        self.store_turn = partial(sessions.store_turn, runtime)
        self.store_answer = partial(sessions.store_answer, runtime)
        self.memory = ChatMemory(runtime)


class Stats:
    """Memory in numbers."""

    def __init__(self, runtime: Runtime) -> None:
        from edenmem.engine.stats.statistics import gather

        self._store = runtime.store
        self.gather = partial(gather, runtime.store, runtime.settings)

    def page(self, statistics: MemoryStatistics) -> str:
        """Return the numbers as a page with charts."""
        from edenmem.engine.stats.page import page

        return page(statistics, self._store, place=self._store.database.info().location)


class Embeddings:
    """The vectors of facts, and the switch to another model."""

    def __init__(self, runtime: Runtime) -> None:
        from edenmem.engine.embeddings.languages import language_advice
        from edenmem.engine.embeddings.status import platform_advice, vector_advice
        from edenmem.engine.embeddings.switch import SwitchEnder, check_not_staged, switch_status

        self._runtime = runtime
        self.advise = partial(vector_advice, runtime.store, runtime.settings)
        self.platform_advice = partial(platform_advice, runtime)
        self.language_advice = partial(language_advice, runtime)
        self.switch_status = partial(switch_status, runtime.store)
        self.check_not_staged = partial(check_not_staged, runtime.store)
        self.ender = partial(SwitchEnder, runtime)

    @cached_property
    def backfiller(self) -> Backfiller:
        """Makes the vectors that facts lack; `ConfigError` without an embedding model."""
        from edenmem.engine.embeddings.backfill import Backfiller

        return Backfiller(self._runtime)

    @asynccontextmanager
    async def switching(self, settings: Settings) -> AsyncIterator[ModelSwitcher]:
        """Yield what switches to the embedding model of these settings.

        Raises:
            ConfigError: they name none.
            UsageError: the provider that they name has another.
        """
        from edenmem.engine import factory
        from edenmem.engine.embeddings.switch import ModelSwitcher, check_model_name

        new = factory.open_embedder(settings, budget=factory.open_budget(settings))
        if new is None:
            raise ConfigError(
                "there is no embedding model to switch to", hint=factory.EMBEDDER_HINT
            )
        try:
            check_model_name(settings, new.model)
            yield ModelSwitcher(
                msgspec.structs.replace(self._runtime, settings=settings, embedder=new)
            )
        finally:
            await new.close()

    async def compare(
        self, switcher: ModelSwitcher, plan: SwitchPlan, queries: Sequence[LabelledQuery]
    ) -> Comparison:
        """Measure what the model in force and the new one find; see `compare_models`."""
        from edenmem.engine.evaluation.tuning import compare_models

        return await compare_models(plan.switch, queries, old=self._runtime, new=switcher.runtime)


class Evaluations:
    """How well search finds what it should."""

    def __init__(self, runtime: Runtime) -> None:
        from edenmem.engine.evaluation.evaluator import Evaluator
        from edenmem.engine.evaluation.queries import read_queries

        self._settings = runtime.settings.search
        self._evaluator = Evaluator(runtime)
        self.read = partial(read_queries, runtime.store)
        self.evaluate = self._evaluator.evaluate

    async def tune(self, queries: Sequence[LabelledQuery], *, recipes: Sequence[str]) -> Tuning:
        """Look for better settings; see `tuning.tune`."""
        from edenmem.engine.evaluation.tuning import tune

        return await tune(self._evaluator, queries, self._settings, recipes=recipes)


class Checkups:
    """The health of a store."""

    def __init__(self, runtime: Runtime) -> None:
        from edenmem.engine.doctor.session import open_session

        self._runtime = runtime
        self.open = partial(open_session, runtime)

    def try_atlas(self, *, timeout: float, progress: Callable[[str], None]) -> AtlasReport:
        """Try search on the configured cluster, in a place of its own; see `AtlasCheck`."""
        from edenmem.engine.indexes.atlas_trial import AtlasCheck

        analyzer = self._runtime.settings.search.analyzer
        return AtlasCheck(
            self._runtime.store, analyzer=analyzer, timeout=timeout, progress=progress
        ).run()


class Exchange:
    """Memory as files: complete, or as Markdown to edit."""

    def __init__(self, runtime: Runtime) -> None:
        from edenmem.engine.exchange.backups import BackupWriter
        from edenmem.engine.exchange.edits import plan_edits
        from edenmem.engine.exchange.exporter import Exporter
        from edenmem.engine.exchange.folders import FolderExporter

        self._runtime = runtime
        self.write = Exporter(runtime.store).write
        self.back_up = BackupWriter(runtime.store, clock=runtime.clock).write
        self.write_folder = FolderExporter(runtime.store).write
        self.plan_folder = partial(plan_edits, store=runtime.store)

    @cached_property
    def importer(self) -> Importer:
        """Takes files into the store."""
        from edenmem.engine.exchange.importer import Importer

        return Importer(self._runtime)

    def read_mem0(
        self, source: Source, *, agent: str | None, user: str | None, add_missing: bool
    ) -> Mem0Lines:
        """The memories of a file from mem0, for the importer; see `Mem0Lines`."""
        from edenmem.engine.exchange.mem0 import Mem0Lines

        return Mem0Lines(
            source,
            self._runtime.store,
            now=self._runtime.clock(),
            agent=agent,
            user=user,
            add_missing=add_missing,
        )

    async def take_folder(self, edits: Sequence[Edit], *, allow_long: bool) -> ApplyReport:
        """Make the edits of a folder; see `apply_edits`."""
        from edenmem.engine.exchange.edits import apply_edits

        return await apply_edits(edits, self._runtime, allow_long=allow_long)


class Undo:
    """Changes taken back: one, or all of a run."""

    def __init__(self, runtime: Runtime) -> None:
        from edenmem.engine.history.undo import MissingVectors, Undoer
        from edenmem.engine.migration.migrations import migration_of

        self._runtime = runtime
        self._undoer = Undoer(runtime)
        #: What was brought back without a vector; see `make_vectors`.
        self.missing = MissingVectors()
        self.plan = self._undoer.plan
        self.migration_of = partial(migration_of, runtime.store)

    def entry(self, entry_id: str, *, force: bool, reason: str) -> UndoStep:
        """Take one entry back; see `Undoer.undo`."""
        step = self._undoer.undo(entry_id, force=force, reason=reason)
        self.missing.note(step)
        return step

    def run(self, run_id: str, *, force: bool, dry_run: bool, reason: str) -> Iterator[UndoStep]:
        """Take back all that a run changed; see `rollback.undo_run`."""
        from edenmem.engine.migration.migrations import undo_run

        for step in undo_run(self._runtime, run_id, force=force, dry_run=dry_run, reason=reason):
            self.missing.note(step)
            yield step

    async def make_vectors(self, missing: MissingVectors) -> str:
        """Give facts that an undo brought back their vectors; see `MissingVectors.make`."""
        return await missing.make(self._runtime)
