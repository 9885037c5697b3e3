"""Operator functions of the engine, grouped by area; properties of `MemoryService`.

Each class holds functions bound to one runtime, and imports its area on creation.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING

import msgspec

from edenmem.engine.runtime.concurrency import in_thread
from edenmem.engine.runtime.runtime import Runtime
from edenmem.errors import ConfigError

if TYPE_CHECKING:
    from edenmem.engine.embeddings.backfill import Backfiller
    from edenmem.engine.embeddings.switch import ModelSwitcher, SwitchEnder
    from edenmem.engine.history.undo import UndoStep
    from edenmem.models.indexes import SearchTrial
    from edenmem.settings.schema import Settings


class Accounts:
    """Add agents and accounts where no platform does, and merge accounts."""

    def __init__(self, runtime: Runtime) -> None:
        from edenmem.engine.edits.checks import add_account
        from edenmem.engine.edits.user_merging import UserMerger

        self.add = partial(add_account, runtime)
        self.merge = UserMerger(runtime).merge


class Chats:
    """Manage proxied chats. Functions that are not async block."""

    def __init__(self, runtime: Runtime) -> None:
        from edenmem.engine.chats import sessions
        from edenmem.engine.chats.memory import ChatMemory

        self.find_agent = partial(sessions.find_agent, runtime)
        self.find_user = partial(sessions.find_user, runtime)
        self.add_user = partial(sessions.add_user, runtime)
        self.find_turn = partial(sessions.find_turn, runtime)
        self.store_turn = partial(sessions.store_turn, runtime)
        self.store_answer = partial(sessions.store_answer, runtime)
        self.is_forgotten = partial(sessions.is_forgotten, runtime)
        self.due_at = partial(sessions.due_at, runtime)
        self.find_recent = partial(sessions.find_recent, runtime)
        self.memory = ChatMemory(runtime)


class Stats:
    """Compute statistics."""

    def __init__(self, runtime: Runtime) -> None:
        from edenmem.engine.statistics import gather

        self.gather = partial(gather, runtime.store)


class Embeddings:
    """Manage the vectors of facts, and switch models."""

    def __init__(self, runtime: Runtime) -> None:
        from edenmem.engine.embeddings import choice, status
        from edenmem.engine.search.scale import explain_scale

        self._runtime = runtime
        self.explain_provider = partial(choice.explain, runtime.settings, runtime.store)
        self.describe_destination = partial(
            choice.describe_destination, runtime.settings, runtime.store
        )
        self.first_destination = partial(choice.first_destination, runtime.settings, runtime.store)
        self.explain_scale = partial(explain_scale, runtime.settings, runtime.store)
        self.advise = partial(status.vector_advice, runtime.store, runtime.settings)
        self.platform_advice = partial(status.platform_advice, runtime)
        self.language_advice = partial(status.language_advice, runtime)
        self.switch_status = partial(status.switch_status, runtime.store)
        self.check_not_staged = partial(status.check_not_staged, runtime.store)

    @property
    def ender(self) -> Callable[..., SwitchEnder]:
        """Return what makes the ending of the current switch."""
        from edenmem.engine.embeddings.switch import SwitchEnder

        return partial(SwitchEnder, self._runtime)

    async def load(self) -> None:
        """Load a local model now, so that the first search does not wait for it.

        Raises:
            EdenmemError: the model cannot be loaded.
        """
        from edenmem.engine.embeddings.choice import settle
        from edenmem.engine.factory import embedder_kind

        runtime = self._runtime
        settled = await in_thread(settle, runtime.settings, runtime.store)
        if runtime.embedder is not None and embedder_kind(settled.embedding) == "local":
            await runtime.embedder.embed(["ready"], role="query")

    @cached_property
    def backfiller(self) -> Backfiller:
        """Compute missing vectors; raises `ConfigError` without an embedding model."""
        from edenmem.engine.embeddings.backfill import Backfiller

        return Backfiller(self._runtime)

    @asynccontextmanager
    async def switching(self, settings: Settings) -> AsyncIterator[ModelSwitcher]:
        """Yield the switcher to the embedding model of these settings.

        Raises:
            ConfigError: the settings have no embedding model.
            UsageError: the provider has a different model than the settings.
        """
        from edenmem.engine import factory
        from edenmem.engine.embeddings.switch import ModelSwitcher, check_model_name

        new = factory.open_embedder(settings, budget=factory.open_budget(settings))
        if new is None:
            raise ConfigError("no embedding model to switch to", hint=factory.embedder_hint())
        try:
            check_model_name(settings, new.model)
            yield ModelSwitcher(
                msgspec.structs.replace(self._runtime, settings=settings, embedder=new)
            )
        finally:
            await new.close()


class Checkups:
    """Check the health of a store."""

    def __init__(self, runtime: Runtime) -> None:
        from edenmem.engine.doctor.session import open_session

        self._runtime = runtime
        self.open = partial(open_session, runtime)

    def try_atlas(self, *, timeout: float, progress: Callable[[str], None]) -> SearchTrial:
        """Test search on the configured cluster, in a scratch collection.

        Raises:
            StoreError: the database cannot be reached, or has no search commands.
        """
        from edenmem.engine.indexes import poll

        store, analyzer = self._runtime.store, self._runtime.settings.search.analyzer
        info = store.database.info()
        trial = store.indexes.try_search(analyzer, partial(poll, timeout=timeout), progress)
        return msgspec.structs.replace(
            trial, location=info.location, server_version=info.server_version
        )


class Exchange:
    """Export and import memory, complete or as Markdown for editing, and conversations."""

    def __init__(self, runtime: Runtime) -> None:
        from edenmem.engine.exchange import conversion, edits, exporter, folders, importer, systems
        from edenmem.engine.sessions.importer import import_sessions

        store = runtime.store
        self.write = partial(exporter.export_records, store, clock=runtime.clock)
        self.salvage = partial(exporter.salvage, runtime)
        self.back_up = partial(exporter.back_up, runtime)
        self.write_folder = partial(folders.export_folder, store)
        self.write_for = partial(systems.write_for, store, clock=runtime.clock)
        self.convert = partial(conversion.Conversion, runtime)
        self.import_records = partial(importer.import_records, runtime)
        self.import_sessions = partial(import_sessions, runtime)
        self.plan_folder = partial(edits.plan_edits, store=store)
        self.take_folder = partial(edits.apply_edits, runtime=runtime)


class Undo:
    """Undo one change, or all changes of a run."""

    def __init__(self, runtime: Runtime) -> None:
        from edenmem.engine.history.undo import Undoer, make_vectors
        from edenmem.engine.migration.migrations import migration_of

        self._runtime = runtime
        self._undoer = Undoer(runtime)
        #: Facts restored without a vector; see `make_vectors`.
        self.missing: set[str] = set()
        self.plan = self._undoer.plan
        self.make_vectors = partial(make_vectors, runtime)
        self.migration_of = partial(migration_of, runtime.store)

    def entry(self, entry_id: str, *, force: bool, reason: str) -> UndoStep:
        """Undo one entry; see `Undoer.undo_decision`."""
        steps = self._undoer.undo_decision(entry_id, force=force, reason=reason)
        first, *_ = self._note(steps)
        return first

    def run(self, run_id: str, *, force: bool, dry_run: bool, reason: str) -> Iterator[UndoStep]:
        """Undo all changes of a run; see `rollback.undo_run`."""
        from edenmem.engine.migration.migrations import undo_run

        steps = undo_run(self._runtime, run_id, force=force, dry_run=dry_run, reason=reason)
        return self._note(steps)

    def _note(self, steps: Iterable[UndoStep]) -> Iterator[UndoStep]:
        for step in steps:
            if step.entry.target_type == "fact" and step.outcome.value == "done":
                is_bare = step.after is not None and not step.after.get("embedding_model")
                (self.missing.add if is_bare else self.missing.discard)(step.entry.target_id)
            yield step
