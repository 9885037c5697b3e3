"""Check the database, its files, backups and indexes, and the stored vectors."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path

from edenmem.engine.doctor.context import DoctorContext
from edenmem.engine.doctor.report import Advice, CheckFinding, Remark, State
from edenmem.engine.embeddings.status import (
    BACKFILL,
    language_notice,
    multilingual_hint,
    vector_advice,
    vector_status,
)
from edenmem.engine.exchange.exporter import (
    ExportRequest,
    backup_series,
    list_backups,
    verify_backup,
)
from edenmem.engine.factory import check_local_model
from edenmem.engine.formation.sharing import former_in_force
from edenmem.errors import ConfigError, ProviderError, StoreDamaged, StoreError
from edenmem.models.formation import Reading
from edenmem.models.indexes import IndexState, IndexWish
from edenmem.models.integrity import Finding
from edenmem.models.migration import RunState, tell_state
from edenmem.models.scope import Scope
from edenmem.models.search import FactFilter
from edenmem.store.protocol.database import StoreInfo
from edenmem.text import many

#: Secrets in configuration files: API keys, and passwords in URLs.
_SECRET = re.compile(r'^\s*\w*api_key\s*=\s*"[^"]|://[^/\s"]*:[^@\s"]+@', re.MULTILINE)

#: Below this age, hours are shown instead of days.
_HOURS_OF_DAYS = 72


def connection(context: DoctorContext) -> Iterator[CheckFinding | Remark]:
    """Check that the database responds, and measure how fast.

    Raises:
        StoreError: the database does not respond.
    """
    begun = time.perf_counter()
    try:
        context.info = info = context.store.database.info()
    except StoreDamaged as error:  # see the check of the file
        context.info = StoreInfo(kind="sqlite", location=error.location, initialized=True)
        yield Remark("connection", error.message)
        return
    milliseconds = (time.perf_counter() - begun) * 1000
    if info.write_obstacle:
        detail = f"{info.write_obstacle}; 'A replica set' in edenmem/docs/mongodb.md has the steps"
        yield CheckFinding("connection", _finding(info.location, detail))
    if not info.initialized and not any(info.counts.values()):
        yield CheckFinding("connection", _finding(info.location, "no edenmem database yet"))
        return
    server = f" ({info.server_version})" if info.server_version else ""
    yield Remark("connection", f"{info.location}{server} responds in {milliseconds:.0f} ms")


def schema(context: DoctorContext) -> Iterator[CheckFinding | Remark]:
    """Check that no schema migration is pending."""
    steps = context.store.migrations.schema()
    for step in steps:
        if step.applied_at is None:
            finding = Finding(target_type="migration", target_id=step.name, detail="pending")
            yield CheckFinding("schema", finding)
    if steps and steps[-1].applied_at is not None:
        yield Remark("schema", f"version {int(steps[-1].name.partition('_')[0])}")


def migrations(context: DoctorContext) -> Iterator[CheckFinding]:
    """Yield interrupted migrations from v1 and interrupted rollbacks."""
    runs = context.store.migrations.migration_runs()
    for run in runs:
        state = tell_state(run, runs, context.now)
        detail = ""
        if state is RunState.INTERRUPTED:
            detail = f"interrupted after {run.done:,} of {run.total:,} items of {run.source}"
        elif state is RunState.PARTLY and run.finished_at is None:
            detail = f"its rollback was interrupted: edenmem migrate rollback {run.id}"
        if detail:
            finding = Finding(target_type="migration", target_id=run.id, detail=detail)
            yield CheckFinding("migrations", finding)


def permissions(context: DoctorContext) -> Iterator[CheckFinding]:
    """Check that other accounts on this machine cannot read memories or keys."""
    files = [Path(path) for path in context.files if _has_secret(path)]
    info = context.info
    if info is not None and info.kind == "sqlite":
        files += [Path(info.location + suffix) for suffix in ("", "-wal")]
    for file in files if os.name == "posix" else ():
        if not file.exists():
            continue
        mode = stat.S_IMODE(file.stat().st_mode)
        if mode & 0o077:
            detail = f"mode is {mode:03o}, expected 600"
            yield CheckFinding("permissions", _finding(str(file), detail))


def _has_secret(path: Path) -> bool:
    try:
        return _SECRET.search(path.read_text(encoding="utf-8")) is not None
    except (OSError, UnicodeDecodeError):
        return False  # an unreadable file was not used as configuration


def database(context: DoctorContext) -> Iterator[CheckFinding | Remark]:
    """Report damage found by the database's own check."""
    if context.info is not None and context.info.kind == "mongodb":
        yield Remark("file", "not checked: MongoDB manages its own files")
    for finding in context.store.database.file_faults():
        yield CheckFinding("file", finding)


def backups(context: DoctorContext) -> Iterator[CheckFinding | Remark]:
    """Check the age and the checksums of the newest scheduled backup of all memory."""
    wanted = context.settings.backup
    if not wanted.folder:
        yield Remark("backups", "no scheduled backups: backup.folder is not set")
        return
    folder = Path(wanted.folder)
    series = [
        backup_series(context.store, ExportRequest(vectors=vectors)) for vectors in (True, False)
    ]
    try:
        found = list_backups(folder, *series, until=context.now)
    except OSError as error:
        yield CheckFinding("backups", _finding(str(folder), f"unreadable: {error.strerror}"))
        return
    if not found:
        yield CheckFinding("backups", _finding(str(folder), "has no backup of this store"))
        return
    newest = found[0]
    hours = (context.now - newest.made_at) / timedelta(hours=1)
    age = f"{hours:.0f} hours" if hours < _HOURS_OF_DAYS else f"{hours / 24:.0f} days"
    if hours > wanted.max_age_hours:
        detail = f"is {age} old; the limit is {wanted.max_age_hours} hours"
        yield CheckFinding("backups", _finding(str(newest.path), detail))
    context.progress("the newest backup", 0)
    damage = verify_backup(newest.path)
    if damage:
        finding = _finding(str(newest.path), f"is damaged: {damage}")
        yield CheckFinding("backups", finding, State.PROBLEM)
    yield Remark("backups", f"the last of {len(found)} is {age} old")


# -- indexes -----------------------------------------------------------------------------------


def wish_of(context: DoctorContext) -> IndexWish:
    """Return the configured parameters of search indexes."""
    return IndexWish(
        dimensions=context.providers.dimensions, analyzer=context.settings.search.analyzer
    )


def indexes(context: DoctorContext) -> Iterator[CheckFinding | Remark]:
    """Check ordinary and search indexes."""
    states = context.store.indexes.list_indexes(wish_of(context))
    for state in states:
        if state.kind == "ordinary":
            yield from _ordinary(state)
        else:
            yield from _search(state)
    yield Remark("indexes", f"{sum(s.kind == 'ordinary' for s in states)} ordinary indexes exist")
    yield from _trial(context)


#: Advice on ordinary indexes by status, other than missing ones.
_INDEX_ADVICE = {
    "conflicting": Advice("No fact can be added or changed.", "edenmem index create --replace"),
    "different": Advice(
        "Queries are slow, or duplicates are stored.", "edenmem index create --update"
    ),
    "unavailable": Advice(
        "Without this index, duplicates are stored.",
        "reshard the collection; edenmem/docs/mongodb.md lists valid shard keys",
    ),
    "foreign": Advice(
        "A unique index of another program may reject facts.",
        "nothing, if the index is needed; otherwise drop it in the database",
    ),
}


_INDEX_STATES = {
    "conflicting": State.PROBLEM,
    "unavailable": State.PROBLEM,
    "foreign": State.NOTE,
}


def _ordinary(state: IndexState) -> Iterator[CheckFinding]:
    advice = _INDEX_ADVICE.get(state.status)
    if state.status in ("missing", "different"):
        # Known failure 47: a dropped unique index went unnoticed.
        weight = State.PROBLEM if state.unique else None
        kind = "unique index" if state.unique else "index"
        how = "missing" if state.status == "missing" else "; ".join(state.differences)
        detail = f"{kind} of {state.collection}: {how}"
        yield CheckFinding("indexes", _index(state, detail), weight, advice)
    elif advice is not None:
        weight = _INDEX_STATES.get(state.status)
        yield CheckFinding("indexes", _index(state, state.note), weight, advice)


def _search(state: IndexState) -> Iterator[CheckFinding | Remark]:
    match state.status:
        case "unavailable" | "unwanted":
            yield Remark("search-indexes", state.note)
        case "building":
            yield CheckFinding("search-indexes", _index(state, "is still being built"), State.NOTE)
        case "foreign":
            yield Remark("search-indexes", f"{state.name}: {state.note}")
        case "ready" if state.queryable:
            return
        case "ready":
            yield CheckFinding("search-indexes", _index(state, "cannot be queried"))
        case status:
            detail = "; ".join(state.differences) or state.note
            yield CheckFinding(
                "search-indexes", _index(state, f"is {status}{detail and f': {detail}'}")
            )


def _trial(context: DoctorContext) -> Iterator[CheckFinding]:
    """Run a search: the reported status of an index is not enough."""
    scope = next((each.scope for each in context.cache.scopes if each.facts), None)
    if scope is None:
        return
    filter = FactFilter(scopes=(scope,))
    try:
        context.store.search.text_candidates(filter, ["memory"], limit=1)
    except StoreError as error:
        yield CheckFinding("search-indexes", _finding("text search", error.message))


def _index(state: IndexState, detail: str) -> Finding:
    return Finding(
        target_type="index", target_id=state.name, detail=detail, related=(state.status,)
    )


def _finding(where: str, detail: str) -> Finding:
    return Finding(target_type="place", target_id=where, detail=detail)


# -- vectors -----------------------------------------------------------------------------------


def vectors(context: DoctorContext) -> Iterator[CheckFinding | Remark]:
    """Yield the agents that have facts without a vector of the configured model."""
    embedder, dimensions = context.providers.embedder, context.providers.dimensions
    if embedder is None:
        yield Remark("vectors", "no embedding model is configured")
        return
    status = vector_status(
        context.store,
        embedder.model,
        dimensions=dimensions if context.is_full else None,  # lengths are read from vectors
        agent_id=context.agent_id,
    )
    for agent in status.agents:
        if not agent.stale:
            continue
        counts = [
            (agent.missing, "without a vector"),
            (agent.wrong_length, "with one of wrong length"),
        ]
        counts += [(facts, f"with one of {model}") for model, facts in sorted(agent.others.items())]
        parts = [f"{facts:,} {what}" for facts, what in counts if facts]
        finding = Finding(
            target_type="agent",
            target_id=agent.agent_id,
            detail=f"{many(agent.facts, 'fact')}: {', '.join(parts)}",
            agent_id=agent.agent_id,
            scope=Scope.agent(agent.agent_id),
        )
        yield CheckFinding("vectors", finding, items=agent.stale)
    others = status.total.others
    advice = vector_advice(context.store, context.settings, embedder.model, others)
    if advice != BACKFILL:
        yield Remark("vectors", "", remedy=advice)


def languages(context: DoctorContext) -> Iterator[CheckFinding]:
    """Check a sample of facts for languages that the configured model does not know."""
    embedder = context.providers.embedder
    notice = language_notice(context.store, embedder.model) if embedder else ""
    if notice:
        advice = Advice("These facts are found by words, rarely by meaning.", multilingual_hint())
        yield CheckFinding("vectors", _finding("language", notice), State.NOTE, advice)


def local_model(context: DoctorContext) -> Iterator[CheckFinding | Remark]:
    """Check the checksums of the local model's files."""
    try:
        checked = check_local_model(context.settings)
    except (ConfigError, ProviderError) as error:
        hint = f"; {error.hint}" if error.hint else ""
        yield CheckFinding("local-model", _finding("local model", f"{error.message}{hint}"))
        return
    if not checked:
        yield Remark("local-model", "no local model is in use")


#: Checks that a store makes by itself.
STORED: Mapping[str, Callable[[DoctorContext], Iterable[Finding]]] = {
    "counters": lambda c: (
        each for each in c.store.statistics.miscounts() if c.agent_id in (None, each.agent_id)
    ),
    "vector-damage": lambda c: c.store.vectors.vector_faults(agent_id=c.agent_id),
    "duplicates": lambda c: c.store.memory.duplicate_facts(agent_id=c.agent_id),
    "progress": lambda c: c.store.host.find_lost_progress(agent_id=c.agent_id),
}


def stored(check: str) -> Callable[[DoctorContext], Iterator[CheckFinding]]:
    """Return the examination that reports the store's own findings for a check."""
    return lambda context: (CheckFinding(check, found) for found in STORED[check](context))


def readings(context: DoctorContext) -> Iterator[CheckFinding]:
    """Yield sessions with messages read by neither edenmem nor the platform, or by both."""
    for reading in context.store.formations.find_readings(agent_id=context.agent_id):
        if reading.unread:
            yield CheckFinding("unread", _about(reading, reading.unread, "skipped by the platform"))
        if reading.twice:
            yield CheckFinding("read-twice", _about(reading, reading.twice, "read twice"))


def former(context: DoctorContext) -> Iterator[Remark]:
    """Warn if the platform forms memory although edenmem is set to."""
    settings = context.settings.formation
    in_force = former_in_force(context.store, settings, context.now)
    if not in_force.shared:
        return
    newest = in_force.platform_memory_at
    if settings.former == "edenmem" and newest is not None:
        text = f"the platform stored memory at {newest:%Y-%m-%d %H:%M} UTC"
        yield Remark("former", text, state=State.WARNING)
    else:
        yield Remark("former", f"{in_force.former}: {in_force.why}")


def _about(reading: Reading, count: int, what: str) -> Finding:
    return Finding(
        target_type="session",
        target_id=reading.session_id,
        detail=f"{many(count, 'message')} {what}",
        agent_id=reading.agent_id,
    )
