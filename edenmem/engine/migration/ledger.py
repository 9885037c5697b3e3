"""The ledger of migrations, and the lease under which only one runs on a store at a time."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import datetime, timedelta

from edenmem.engine.migration.comparison import load_found, load_written, state_of
from edenmem.engine.migration.reports import RunOptions
from edenmem.engine.runtime.runtime import Runtime
from edenmem.errors import ConflictError, EdenmemError, StoreError
from edenmem.models.ids import new_id
from edenmem.models.migration import UNFINISHED, MigrationRun, RunState, tell_state
from edenmem.store.protocol.store import Store
from edenmem.store.sqlite.v1.staging import SqliteV1Stage
from edenmem.store.v1.source import V1Source

#: A lease expires after this time without renewal.
LEASE = timedelta(minutes=1)


@contextmanager
def hold_lease(runtime: Runtime) -> Iterator[None]:
    """Prevent other migrations from running meanwhile. Blocks.

    Raises:
        ConflictError: another migration is running.
        StoreError: the database cannot be used.
    """
    here = f" on {runtime.actor.host}, process "
    holder = f"{runtime.actor.name}{here}{os.getpid()} ({new_id()[-6:]})"

    def take() -> None:
        migrations, now = runtime.store.migrations, runtime.clock()
        held = migrations.take_migration_lease(holder, now=now, until=now + LEASE)
        if held is not None and _is_dead(held[0], here):
            migrations.end_migration_lease(held[0])
            held = migrations.take_migration_lease(holder, now=now, until=now + LEASE)
        if held is not None:
            other, until = held
            seconds = math.ceil((until - now).total_seconds())
            raise ConflictError(
                f"another migration is running on this store: {other}",
                hint=f"wait until it ends; if it was killed, retry in {seconds} s",
            )

    over = threading.Event()

    def keep() -> None:
        while not over.wait(LEASE.total_seconds() / 4):
            # A lost lease is harmless: another process would apply the same changes.
            with suppress(EdenmemError):
                take()

    take()
    keeper = threading.Thread(target=keep, name="edenmem-migration-lease", daemon=True)
    keeper.start()
    try:
        yield
    finally:
        over.set()
        keeper.join()
        with suppress(StoreError):  # the lease expires anyway
            runtime.store.migrations.end_migration_lease(holder)


def _is_dead(holder: str, here: str) -> bool:
    """Return whether the holder of a lease is a process of this host that ended."""
    _, is_here, process = holder.partition(here)
    number = process.partition(" ")[0]
    if not is_here or not number.isdecimal():
        return False
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        pass  # a process of another account
    return False


def resumable(store: Store, source: str, options: RunOptions) -> MigrationRun | None:
    """Return the unfinished run with the same source and options, or None."""
    for run in store.migrations.migration_runs():
        is_same = run.source == source and run.options == options.to_ledger()
        if is_same and run.state in UNFINISHED:
            return run
    return None


def find_same(
    store: Store, source: V1Source, options: RunOptions, now: datetime
) -> MigrationRun | None:
    """Return the verified run since which neither its source nor the store has changed.

    Such a run would do the same again: it decides by the source, the store and the log only.

    Raises:
        StoreError: a database cannot be used.
    """
    if resumable(store, source.location, options):
        return None
    runs, own, fingerprint = store.migrations.migration_runs(), options.to_ledger(), ""
    for run in runs:
        check = run.verification
        if (run.source, run.options) != (source.location, own) or check is None:
            continue
        if run.incomplete and not options.accept_incomplete:
            continue
        if not check.state or tell_state(run, runs, now) is not RunState.DONE:
            continue
        fingerprint = fingerprint or source.fingerprint()
        if fingerprint in check.state.split():
            with closing(SqliteV1Stage()) as stage:
                load_found(store, stage, check.agents)
                load_written(store, stage, sorted(each.id for each in runs), set())
                return run if check.state == state_of(store, fingerprint, stage) else None
    return None


def refuse_other_options(store: Store, options: RunOptions) -> None:
    """Refuse options that would give memory of an earlier run other places.

    Raises:
        ConflictError: an earlier run of the same agents had another ``--shards`` or ``--episodes``.
    """
    own = options.to_ledger()
    for run in store.migrations.migration_runs():
        theirs = run.options
        wrote = run.state in UNFINISHED or run.counts.get("migrated") or run.counts.get("merged")
        agents = set(own["agents"]), set(theirs.get("agents") or ())
        if (
            run.state is RunState.ROLLED_BACK
            or not wrote
            or (all(agents) and not set.intersection(*agents))
        ):
            continue
        for name in ("shards", "episodes"):
            if theirs.get(name) != own[name]:
                raise ConflictError(
                    f"run {run.id} used --{name} {theirs.get(name)}, not {own[name]}",
                    hint=f"use --{name} {theirs.get(name)}, or undo that run first:"
                    f" edenmem undo --run {run.id}",
                )
