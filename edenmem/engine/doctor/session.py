"""Repair the findings of `doctor` that are safe to repair.

Memory is changed only through `Store.changes`, with one run ID in all audit entries: `log` shows
the run, and `undo` reverts it. Derived data (indexes, counts, flags) is rebuilt. Each repair checks
its findings again, and can be interrupted and repeated: repaired damage is not found again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import msgspec

from edenmem.engine.doctor import surroundings
from edenmem.engine.doctor.context import DoctorContext, describe_error, open_providers
from edenmem.engine.doctor.examination import examine, find
from edenmem.engine.doctor.report import DoctorReport, FixReport, Repair
from edenmem.engine.edits.checks import expire
from edenmem.engine.edits.user_merging import join_facts
from edenmem.engine.embeddings.choice import settle
from edenmem.engine.erasure.sweep import Returned, Sweep
from edenmem.engine.formation.claims import Claims
from edenmem.engine.formation.recheck import apply_recorded
from edenmem.engine.runtime.runtime import Runtime
from edenmem.engine.scopes.overview import word_limit_of
from edenmem.engine.scopes.references import other_scopes
from edenmem.errors import ConfigError, ProviderError, StoreError
from edenmem.memory.formations import release
from edenmem.models.changes import (
    Change,
    ChangeSet,
    RemoveFact,
    RepairBuffer,
    ReviseFact,
)
from edenmem.models.formation import Formation
from edenmem.models.ids import new_id
from edenmem.models.integrity import Finding
from edenmem.models.memory import Fact, content_hash
from edenmem.models.records import SET_ASIDE, AuditEntry
from edenmem.models.scope import Scope
from edenmem.store.protocol.store import batched

#: Number of findings repaired together.
_BATCH = 100
#: Maximum number of reported reasons.
_REASONS = 20


class Outcome(NamedTuple):
    """The result of a batch: the number of repairs, and reasons for the rest."""

    repaired: int = 0
    refused: tuple[str, ...] = ()


RepairBatch = Callable[[Sequence[Finding]], Outcome]


class DoctorSession:
    """The examination of a store, and its repairs in one run.

    Blocks, so that Ctrl-C ends it immediately.
    """

    def __init__(self, runtime: Runtime, context: DoctorContext, checks: frozenset[str]) -> None:
        self._runtime = runtime.for_run()
        self._actor = self._runtime.actor
        self._context = context
        self._checks = checks
        self._store = context.store
        self._claims = Claims(
            context.store.formations, context.settings.formation, lambda: context.now
        )
        # In this order: interrupted work first; duplicates before the unique indexes that reject
        # them and before hashes, which would conflict with them.
        self._actions: dict[str, tuple[str, RepairBatch]] = {
            "file": (
                "create missing triggers; rewrite a damaged file, if all rows can be read",
                self._file,
            ),
            "recorded": (
                "apply recorded formations",
                self._take_over(
                    lambda taken: apply_recorded(self._store, taken, now=self._context.now)
                ),
            ),
            "claims": (
                "release for the next run",
                self._take_over(lambda taken: self._claims.step(taken, release, count=False)),
            ),
            "readable": ("move unreadable documents into the log", self._set_aside),
            "forgotten": ("remove for good", self._forgotten),
            "duplicates": (
                "keep the oldest with all sources, move the others to history",
                self._duplicates,
            ),
            "indexes": ("create missing indexes", self._indexes),
            "expired": (
                "move to history",
                lambda found: Outcome(
                    expire(self._runtime, agent_ids=[each.agent_id for each in found])
                ),
            ),
            "hashes": ("hash and embed the text as a new version", self._hashes),
            "buffers": ("rebuild the buffer from pending reflections", self._buffers),
            "counters": ("recount", self._counters),
            "vector-damage": (
                "remove, so that a backfill recreates them",
                lambda found: Outcome(self._store.vectors.drop_vectors(_ids(found))),
            ),
            "search-indexes": ("rebuild from the facts", self._search_indexes),
            "progress": (
                "move the platform's cursor forward",
                lambda found: Outcome(sum(map(self._store.formations.advance_cursor, _ids(found)))),
            ),
        }

    def examine(self) -> DoctorReport:
        """Run the checks."""
        return examine(self._context, self._checks)

    def examine_again(self, report: DoctorReport, fixed: FixReport) -> DoctorReport:
        """Return the report with fresh results of the repaired checks."""
        self._context = replace(self._context)  # without what it has read
        done = frozenset(repair.check for repair in fixed.repairs)
        # These repairs can remove vectors.
        if "file" in done:  # damage stopped the others
            done = self._checks
        done |= {"vectors"} & self._checks if done & {"hashes", "vector-damage"} else frozenset()
        after = {c.name: c for c in examine(self._context, done).checks} if done else {}
        checks = tuple(after.get(check.name, check) for check in report.checks)
        return DoctorReport(location=report.location, checks=checks, reachable=report.reachable)

    @property
    def _run_id(self) -> str:
        return self._actor.run_id or ""

    def plan(self, report: DoctorReport) -> FixReport:
        """Return the repairs for a report's findings, without writing."""
        found = {check.name: check for check in report.checks if check.fixable}
        return FixReport(
            run_id=self._run_id,
            dry_run=True,
            repairs=tuple(
                Repair(
                    check=name,
                    action=action,
                    found=found[name].count,
                    examples=found[name].examples,
                )
                for name, (action, _) in self._actions.items()
                if name in found
            ),
        )

    def repair(self, plan: FixReport) -> FixReport:
        """Execute a plan on the current findings; a failed repair does not stop the others."""
        done = tuple(map(self._repair, plan.repairs))
        return FixReport(run_id=self._run_id, dry_run=False, repairs=done)

    def _repair(self, repair: Repair) -> Repair:
        self._context.progress(f"repairing {repair.check}", 0)
        _, repair_batch = self._actions[repair.check]
        repaired, refused = 0, list[str]()
        try:
            for batch in batched(find(self._context, repair.check), _BATCH):
                outcome = repair_batch(batch)
                repaired += outcome.repaired
                refused += outcome.refused
                self._context.progress(f"repairing {repair.check}", repaired)
        except Exception as error:  # noqa: BLE001 - reported; other repairs continue
            refused.append(describe_error(error))
        reasons = tuple(dict.fromkeys(refused))[:_REASONS]
        return msgspec.structs.replace(repair, repaired=repaired, refused=reasons)

    def _apply(self, changes: Iterable[Change]) -> Outcome:
        made = tuple(changes)
        results = self._store.changes.apply(
            ChangeSet(actor=self._actor, at=self._context.now, changes=made)
        )
        return Outcome(
            sum(result.ok for result in results),
            tuple(f"{r.target_id}: {r.detail}" for r in results if not r.ok),
        )

    # -- memory ------------------------------------------------------------------------------

    def _set_aside(self, findings: Sequence[Finding]) -> Outcome:
        refused = tuple(
            f"{finding.target_type} {finding.target_id}: restore it from a backup"
            for finding in findings
            if not self._store.walk.set_aside(
                AuditEntry(
                    id=new_id(),
                    change_set_id=new_id(),
                    at=self._context.now,
                    actor=self._actor,
                    action=SET_ASIDE,
                    target_type=finding.target_type,
                    target_id=finding.target_id,
                    agent_id=finding.agent_id,
                    reason=f"doctor: {finding.detail}",
                )
            )
        )
        return Outcome(len(findings) - len(refused), refused)

    def _forgotten(self, findings: Sequence[Finding]) -> Outcome:
        refused = tuple(f"{each.target_id}: {each.detail}" for each in findings if each.related)
        found = [
            Returned(target_type=each.target_type, target_id=each.target_id, scope=each.scope)
            for each in findings
            if not each.related
        ]
        return Outcome(self._context.sweep.remove(found), refused)

    def _duplicates(self, findings: Sequence[Finding]) -> Outcome:
        twins: dict[str, tuple[Fact, list[Fact]]] = {}
        refused: list[str] = []
        for finding in findings:
            fact, kept = (
                self._store.memory.fact(each) for each in (finding.target_id, *finding.related)
            )
            if (
                fact is None
                or kept is None
                or fact.content != kept.content
                or fact.home not in (kept.home, *other_scopes(self._store, kept.home))
            ):
                refused.append(f"{finding.target_id}: its duplicate is gone or was changed")
                continue
            twins.setdefault(kept.id, (kept, []))[1].append(fact)
        repaired = 0
        for kept, facts in twins.values():
            outcome = self._join(kept, facts)
            repaired += outcome.repaired
            refused += outcome.refused
        return Outcome(repaired, tuple(refused))

    def _join(self, kept: Fact, facts: Sequence[Fact]) -> Outcome:
        """Add the sources of facts to their twin, and remove these facts."""
        at, reason = self._context.now, f"doctor: same text as the older fact {kept.id}"
        joined = self._apply(join_facts(kept, facts, at=at, reason=reason))
        if joined.refused:
            return Outcome(0, joined.refused)
        return self._apply(RemoveFact.of(fact, at, reason) for fact in facts)

    def _hashes(self, findings: Sequence[Finding]) -> Outcome:
        facts = [
            fact
            for finding in findings
            if (fact := self._store.memory.fact(finding.target_id)) is not None
            and fact.hash != content_hash(fact.content, fact.key)
        ]
        # The text index has the old words, but an update would remove the new ones.
        self._rebuild("text")
        embedder = self._context.providers.embedder
        texts = [fact.content for fact in facts]
        made: Sequence[bytes | None] = [None] * len(texts)
        if embedder is not None and not self._store.switches.platform_model(embedder.model):
            made = self._context.providers.vectors(texts)
        return self._apply(
            ReviseFact(
                scope=fact.home,
                fact_id=fact.id,
                expected_version=fact.version,
                content=fact.content,
                at=fact.changed_at,  # a repair does not make the fact newer
                times=fact.times,
                embedding=vector,
                embedding_model=embedder.model if embedder and vector else None,
                reason="doctor: the hash did not match the text",
            )
            for fact, vector in zip(facts, made, strict=True)
        )

    def _buffers(self, findings: Sequence[Finding]) -> Outcome:
        repairs: list[Change] = []
        scopes = tuple(_scopes(findings))
        policies = self._store.memory.policies(scopes)
        for scope in scopes:
            self._store.changes.finish_absorbing(scope)
            repairs.append(
                RepairBuffer(
                    scope=scope,
                    at=self._context.now,
                    word_limit=word_limit_of(
                        self._store, self._context.settings, scope, policies.get(scope)
                    ),
                    reason="doctor: the buffer did not match the state of reflections",
                )
            )
        outcome = self._apply(repairs)
        return Outcome(len(findings) if not outcome.refused else 0, outcome.refused)

    # -- work --------------------------------------------------------------------------------

    def _take_over(self, finish: Callable[[Formation], object]) -> RepairBatch:
        """Return the repair that finishes formations of workers that are gone."""

        def repair(findings: Sequence[Finding]) -> Outcome:
            refused = []
            for id in _ids(findings):
                found = self._store.formations.formation(id)
                taken = found and self._claims.take_over(found)
                if taken is None:
                    refused.append(f"{id}: taken over by another worker")
                else:
                    finish(taken)
            return Outcome(len(findings) - len(refused), tuple(refused))

        return repair

    # -- derived data ------------------------------------------------------------------------

    def _file(self, findings: Sequence[Finding]) -> Outcome:
        if all(finding.target_type == "trigger" for finding in findings):
            return Outcome(self._store.database.repair_schema())
        lost = self._store.database.rewrite_file()
        if lost:
            return Outcome(refused=tuple(f"{each.target_id}: {each.detail}" for each in lost))
        self._rebuild("vector")
        return Outcome(len(findings))

    def _counters(self, findings: Sequence[Finding]) -> Outcome:
        outcome = self._apply(
            RepairBuffer(scope=scope, at=self._context.now, reason="doctor: wrong count")
            for scope in _scopes(findings)
        )
        self._store.statistics.recount()
        return Outcome(len(findings) if not outcome.refused else 0, outcome.refused)

    def _indexes(self, findings: Sequence[Finding]) -> Outcome:
        wish = surroundings.wish_of(self._context)
        repaired, refused = 0, []
        for finding in findings:
            if "conflicting" in finding.related:
                refused.append(f"{finding.target_id}: edenmem index create --replace")
                continue
            if "missing" not in finding.related:
                refused.append(
                    f"{finding.target_id}: edenmem index create --update {finding.target_id}"
                )
                continue
            try:
                self._store.indexes.create_index(finding.target_id, wish)
                repaired += 1
            except StoreError as error:
                refused.append(f"{finding.target_id}: {error.message}")
        return Outcome(repaired, tuple(refused))

    def _search_indexes(self, findings: Sequence[Finding]) -> Outcome:
        info = self._context.info
        if info is None or info.kind != "sqlite":
            command = "edenmem index create search, or edenmem index create --update search"
            return Outcome(refused=tuple(f"{each.target_id}: {command}" for each in findings))
        wish = surroundings.wish_of(self._context)
        named = [finding for finding in findings if finding.target_type == "index"]
        for finding in named:
            self._store.indexes.update_index(finding.target_id, wish)
        if not named:  # search failed although no index is damaged
            self._rebuild("text")
        return Outcome(len(findings))

    def _rebuild(self, kind: str) -> None:
        """Rebuild SQLite's search index of a kind; MongoDB updates its own."""
        info = self._context.info
        if info is not None and info.kind == "sqlite":
            wish = surroundings.wish_of(self._context)
            for state in self._store.indexes.list_indexes(wish):
                if state.kind == kind and state.status != "unwanted":
                    self._store.indexes.update_index(state.name, wish)


def _ids(findings: Iterable[Finding]) -> list[str]:
    return [finding.target_id for finding in findings]


def _scopes(findings: Iterable[Finding]) -> Iterator[Scope]:
    """Yield the distinct scopes of findings."""
    yield from dict.fromkeys(finding.scope for finding in findings if finding.scope is not None)


@contextmanager
def open_session(
    runtime: Runtime,
    checks: frozenset[str],
    *,
    agent_id: str | None = None,
    full: bool = True,
    online: bool = False,
    files: Sequence[Path] = (),
    progress: Callable[[str, int], None] = lambda what, count: None,
) -> Iterator[DoctorSession]:
    """Open an examination with ``checks`` (see `edenmem.engine.doctor.report.select_checks`).

    Args:
        runtime: The store, the settings, and the actor of the repairs.
        checks: Names of checks.
        agent_id: Check only this agent's memory.
        full: Also run the checks that read all memory.
        online: Also call the models.
        files: The configuration files.
        progress: Called with the current subject and the number of examined items.
    """
    settings = runtime.settings
    with suppress(StoreError, ConfigError, ProviderError):  # the checks report it
        settings = settle(settings, runtime.store)
    with open_providers(settings) as providers:
        context = DoctorContext(
            store=runtime.store,
            settings=settings,
            providers=providers,
            sweep=Sweep(runtime, agent_id=agent_id),
            now=runtime.clock(),
            agent_id=agent_id,
            files=tuple(files),
            is_full=full,
            is_online=online,
            progress=progress,
        )
        yield DoctorSession(runtime, context, checks)
