"""Check the database, its files, backups and indexes, and the stored vectors."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from edenmem.engine.doctor.context import DoctorContext, describe_error, found
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
from edenmem.engine.factory import LLM_HINT, check_local_model, embedder_hint
from edenmem.engine.formation.sharing import former_in_force
from edenmem.engine.runtime.llm_session import ping
from edenmem.errors import ConfigError, EdenmemError, ProviderError, StoreDamaged, StoreError
from edenmem.llm import NO_LLM
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
        yield found("connection", "place", info.location, detail)
    if not info.initialized and not any(info.counts.values()):
        yield found("connection", "place", info.location, "no edenmem database yet")
        return
    server = f" ({info.server_version})" if info.server_version else ""
    yield Remark("connection", f"{info.location}{server} responds in {milliseconds:.0f} ms")


def schema(context: DoctorContext) -> Iterator[CheckFinding | Remark]:
    """Check that no schema migration is pending."""
    steps = context.store.migrations.schema()
    for step in steps:
        if step.applied_at is None:
            yield found("schema", "migration", step.name, "pending")
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
            yield found("migrations", "migration", run.id, detail)


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
            yield found("permissions", "place", str(file), detail)


def _has_secret(path: Path) -> bool:
    try:
        return _SECRET.search(path.read_text(encoding="utf-8")) is not None
    except (OSError, UnicodeDecodeError):
        return False  # an unreadable file was not used as configuration


def database(context: DoctorContext) -> Iterator[CheckFinding | Remark]:
    """Report damage found by the database's own check."""
    if context.is_mongodb:
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
        known = list_backups(folder, *series, until=context.now)
    except OSError as error:
        yield found("backups", "place", str(folder), f"unreadable: {error.strerror}")
        return
    if not known:
        yield found("backups", "place", str(folder), "has no backup of this store")
        return
    newest = known[0]
    hours = (context.now - newest.made_at) / timedelta(hours=1)
    age = f"{hours:.0f} hours" if hours < _HOURS_OF_DAYS else f"{hours / 24:.0f} days"
    if hours > wanted.max_age_hours:
        detail = f"is {age} old; the limit is {wanted.max_age_hours} hours"
        yield found("backups", "place", str(newest.path), detail)
    context.progress("the newest backup", 0)
    damage = verify_backup(newest.path)
    if damage:
        detail = f"is damaged: {damage}"
        yield found("backups", "place", str(newest.path), detail, State.PROBLEM)
    yield Remark("backups", f"the last of {len(known)} is {age} old")


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


#: State, and advice other than that of the check, on ordinary indexes by status.
_ORDINARY: Mapping[str, tuple[State | None, Advice | None]] = {
    "missing": (None, None),
    "different": (
        None,
        Advice("Queries are slow, or duplicates are stored.", "edenmem index create --update"),
    ),
    "conflicting": (
        State.PROBLEM,
        Advice("No fact can be added or changed.", "edenmem index create --replace"),
    ),
    "unavailable": (
        State.PROBLEM,
        Advice(
            "Without this index, duplicates are stored.",
            "reshard the collection; edenmem/docs/mongodb.md lists valid shard keys",
        ),
    ),
    "foreign": (
        State.NOTE,
        Advice(
            "A unique index of another program may reject facts.",
            "nothing, if the index is needed; otherwise drop it in the database",
        ),
    ),
}


def _ordinary(index: IndexState) -> Iterator[CheckFinding]:
    if index.status not in _ORDINARY:
        return
    state, advice = _ORDINARY[index.status]
    detail = index.note
    if index.status in ("missing", "different"):
        # Known failure 47: a dropped unique index went unnoticed.
        kind, state = ("unique index", State.PROBLEM) if index.unique else ("index", None)
        how = "; ".join(index.differences) if index.status == "different" else "missing"
        detail = f"{kind} of {index.collection}: {how}"
    yield found("indexes", "index", index.name, detail, state, advice, related=(index.status,))


def _search(index: IndexState) -> Iterator[CheckFinding | Remark]:
    state, detail = None, "cannot be queried"
    match index.status:
        case "unavailable" | "unwanted":
            yield Remark("search-indexes", index.note)
            return
        case "foreign":
            yield Remark("search-indexes", f"{index.name}: {index.note}")
            return
        case "building":
            state, detail = State.NOTE, "is still being built"
        case "ready" if index.queryable:
            return
        case status if status != "ready":
            how = "; ".join(index.differences) or index.note
            detail = f"is {status}{how and f': {how}'}"
    yield found("search-indexes", "index", index.name, detail, state, related=(index.status,))


def _trial(context: DoctorContext) -> Iterator[CheckFinding]:
    """Run a search: the reported status of an index is not enough."""
    scope = next((each.scope for each in context.scopes if each.facts), None)
    if scope is None:
        return
    filter = FactFilter(scopes=(scope,))
    try:
        context.store.search.text_candidates(filter, ["memory"], limit=1)
    except StoreError as error:
        yield found("search-indexes", "place", "text search", error.message)


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
        detail = f"{many(agent.facts, 'fact')}: {', '.join(parts)}"
        scope = Scope.agent(agent.agent_id)
        finding = found("vectors", "agent", agent.agent_id, detail, scope=scope)
        yield finding._replace(items=agent.stale)
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
        yield found("vectors", "place", "language", notice, State.NOTE, advice)


def local_model(context: DoctorContext) -> Iterator[CheckFinding | Remark]:
    """Check the checksums of the local model's files."""
    try:
        checked = check_local_model(context.settings)
    except (ConfigError, ProviderError) as error:
        yield found("local-model", "place", "local model", describe_error(error))
        return
    if not checked:
        yield Remark("local-model", "no local model is in use")


def models(context: DoctorContext) -> Iterator[CheckFinding | Remark]:
    """Yield the configured models and, if requested, whether they respond."""
    providers, is_online = context.providers, context.is_online
    for what, fault in providers.faults.items():
        yield found("providers", "provider", what, fault, State.PROBLEM)
    called, script = list[str](), ""
    if providers.embedder is not None:
        called.append(providers.embedder.model)
    elif "embedding" not in providers.faults:
        advice = Advice("Search by meaning needs an embedding model.", embedder_hint())
        detail = "no embedding model"
        yield found("providers", "provider", "embedding", detail, State.NOTE, advice)
    if providers.llm is not None and providers.llm.is_scripted:  # needs no test
        script = providers.llm.description
    elif providers.llm is not None:
        called.append(providers.llm.description)
    elif "llm" not in providers.faults:
        advice = Advice("Formation and consolidation need a language model.", LLM_HINT)
        yield found("providers", "provider", "llm", NO_LLM, State.NOTE, advice)
    failures = list(_test_models(context)) if is_online else []
    yield from failures
    named, is_one = ", ".join(called), len(called) == 1
    if script and is_online:
        yield Remark("providers", f"{script} was not tested")
    elif script and not called:
        yield Remark("providers", script)
    if called and not is_online:
        untested = f"{named} not called; --online calls {'it' if is_one else 'them'}"
        text = f"{untested}; {script}" if script else untested
        yield Remark("providers", text, state=State.UNTESTED)
    elif called and not failures:
        yield Remark("providers", f"{named} {'responds' if is_one else 'respond'}")


def _test_models(context: DoctorContext) -> Iterator[CheckFinding]:
    """Call the models, and yield the ones that do not respond."""
    providers, llm = context.providers, context.settings.llm
    calls: dict[str, Callable[[], Coroutine[Any, Any, object]]] = {}
    if (embedder := providers.embedder) is not None:
        calls["embedding"] = lambda: embedder.embed(["Is anybody there?"], role="query")
    if (model := providers.llm) is not None and not model.is_scripted:
        calls |= {name: partial(ping, model, name) for name in (llm.fast_model, llm.slow_model)}
    for name, call in calls.items():
        try:
            providers.runner.run(call())
        except EdenmemError as error:
            yield found("providers", "provider", name, describe_error(error), State.PROBLEM)


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
    return lambda context: (CheckFinding(check, each) for each in STORED[check](context))


def readings(context: DoctorContext) -> Iterator[CheckFinding]:
    """Yield sessions with messages read by neither edenmem nor the platform, or by both."""
    for reading in context.store.formations.find_readings(agent_id=context.agent_id):
        for check, count, what in (
            ("unread", reading.unread, "skipped by the platform"),
            ("read-twice", reading.twice, "read twice"),
        ):
            if count:
                detail, agent_id = f"{many(count, 'message')} {what}", reading.agent_id
                yield found(check, "session", reading.session_id, detail, agent_id=agent_id)


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
