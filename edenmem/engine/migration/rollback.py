"""Taking a run back: what it made and nobody has touched since goes, everything else stays.

The log says what the run did. Each entry is judged by what is there now: a fact that was edited, a
reflection that went into a text, a text that has a newer version stay as they are and are listed.
A rollback that was cut off is repeated: what is gone is gone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from edenmem.engine.migration.reports import KeptChange, RollbackReport
from edenmem.engine.migration.run import held
from edenmem.errors import NotFoundError
from edenmem.models.changes import (
    Actor,
    AuditEntry,
    Change,
    ChangeSet,
    ChangeStatus,
    RemoveAgent,
    RemoveFact,
    RemovePolicy,
    RemoveReflection,
    RemoveUser,
    RevertConsolidation,
    SetAgentToggles,
    WritePolicy,
)
from edenmem.models.ids import derived_id, new_id
from edenmem.models.memory import Consolidation, Policy, ScopeSummary
from edenmem.models.migration import RunState
from edenmem.models.scope import Scope, ScopeKind
from edenmem.store.protocol.store import Store, batched

#: What a change that is not made leaves: the reason, or "" if there is nothing left to take back.
Verdict = Change | str


class Now:
    """What is there of the targets of one batch of entries."""

    def __init__(self, store: Store, entries: Sequence[AuditEntry]) -> None:
        def of(kind: str) -> list[AuditEntry]:
            return [entry for entry in entries if entry.target_type == kind]

        def scopes(kind: str) -> list[Scope]:
            return list(dict.fromkeys(e.scope for e in of(kind) if e.scope is not None))

        facts, reflections = of("fact"), of("reflection")
        self.facts = (
            store.facts_by_ids(scopes("fact"), [e.target_id for e in facts]) if facts else {}
        )
        self.reflections = (
            store.reflections_by_ids([e.target_id for e in reflections]) if reflections else {}
        )
        policies = scopes("policy")
        self.policies = store.policies(policies) if policies else {}


class Judge:
    """Judges the entries of one run."""

    def __init__(self, store: Store, run_id: str, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._run_id = run_id
        self._clock = clock

    def own(self, entry: AuditEntry) -> dict[str, Any]:
        """What the change that takes an entry back says of itself."""
        return {
            "id": derived_id("rollback", self._run_id, entry.id),
            "undoes": entry.id,
            "reason": f"rollback of the run {self._run_id}",
        }

    def judged(self, entry: AuditEntry, now: Now) -> Verdict:
        """The change that takes an entry back, or why there is none."""
        own = self.own(entry)
        match entry.action, entry.scope:
            case "add_fact", Scope() as scope:
                return self._fact(entry, scope, now, own)
            case "add_reflection", Scope() as scope:
                return self._reflection(entry, scope, now, own)
            case "write_policy", Scope() as scope:
                return self._policy(entry, scope, now, own)
            case "set_agent_toggles", _:
                return self._toggles(entry, own)
            case "add_agent", _:
                return RemoveAgent(agent_id=entry.target_id, **own)
            case "add_user", _:
                return RemoveUser(user_id=entry.target_id, **own)
        return f"a change of the kind {entry.action} is not one of a migration"

    def _fact(self, entry: AuditEntry, scope: Scope, now: Now, own: dict[str, Any]) -> Verdict:
        fact = now.facts.get(entry.target_id)
        if fact is None:
            return ""
        if fact.version != version_of(entry):
            return "it was edited since"
        return RemoveFact(
            scope=scope,
            fact_id=fact.id,
            expected_version=fact.version,
            at=self._clock(),
            **own,
        )

    def _reflection(
        self, entry: AuditEntry, scope: Scope, now: Now, own: dict[str, Any]
    ) -> Verdict:
        reflection = now.reflections.get(entry.target_id)
        if reflection is None or reflection.home != scope:
            return ""
        if reflection.absorbed and not (entry.after or {}).get("absorbed"):
            return "it went into a consolidated text since"
        if reflection.version != version_of(entry):
            return "it was edited since"
        return RemoveReflection(
            scope=scope,
            reflection_id=reflection.id,
            expected_version=reflection.version,
            at=self._clock(),
            **own,
        )

    def _policy(self, entry: AuditEntry, scope: Scope, now: Now, own: dict[str, Any]) -> Verdict:
        policy = now.policies.get(scope)
        if policy is None:
            return ""
        if policy.version != version_of(entry):
            return "it was changed since"
        if entry.before is None:
            return RemovePolicy(
                scope=scope, expected_version=policy.version, at=self._clock(), **own
            )
        before = msgspec.convert(entry.before, Policy)
        return WritePolicy(policy=before, expected_version=policy.version, at=self._clock(), **own)

    def _toggles(self, entry: AuditEntry, own: dict[str, Any]) -> Verdict:
        agent = self._store.agent(entry.target_id)
        before, after = entry.before or {}, entry.after or {}
        if agent is None or before == after:
            return ""
        if agent.agent_memory_enabled == before.get("agent_memory_enabled"):
            return ""  # as it was before the run, by whomever
        if agent.agent_memory_enabled != after.get("agent_memory_enabled"):
            return "its memory was switched since"
        return SetAgentToggles(
            agent_id=agent.id,
            at=self._clock(),
            agent_memory_enabled=bool(before.get("agent_memory_enabled")),
            **own,
        )


def version_of(entry: AuditEntry) -> int:
    """The version that the entry's target had after it."""
    return int((entry.after or {}).get("version") or 0)


_BATCH = 500
_NAMED = 1000


class Rollback:
    """Takes one run back."""

    def __init__(
        self,
        store: Store,
        run_id: str,
        *,
        actor: Actor,
        clock: Callable[[], datetime],
    ) -> None:
        self._store = store
        self._run_id = run_id
        self._actor = msgspec.structs.replace(actor, run_id=new_id())
        self._clock = clock
        self._judge = Judge(store, run_id, clock)
        # Texts and accounts come last: of a text all versions of the run must be known, and an
        # account goes only when it has no memory and no agents any more. Versions: after, before,
        # entry.
        self._texts: dict[Scope, list[tuple[int, int, str]]] = {}
        self._accounts: dict[str, list[str]] = {"add_agent": [], "add_user": []}
        # A shard is there by its settings: they go only when nothing is left in it.
        self._shards: dict[Scope, str] = {}
        self._taken: Counter[tuple[Scope, str]] = Counter()
        self._removed: dict[str, int] = {}
        self._kept: list[KeptChange] = []
        self._kept_total = 0

    def run(
        self, *, dry_run: bool = False, tell: Callable[[int], None] = lambda changes: None
    ) -> RollbackReport:
        """Take it back, or only say what would become of it. Blocks.

        Raises:
            NotFoundError: there is no such run.
            StoreError: the database cannot be used; the same call goes on.
        """
        run = self._store.migration_run(self._run_id)
        if run is None:
            raise NotFoundError(
                f"there is no run {self._run_id}", hint="'edenmem migrate status' lists them"
            )
        looked = 0
        for entries in batched(self._store.audit(run_id=run.id), _BATCH):
            self._take_back(self._now_or_last(entries), dry_run=dry_run)
            looked += len(entries)
            tell(looked)
        for scopes in batched(self._texts, _BATCH):
            self._take_back_texts(scopes, dry_run=dry_run)
        for scopes in batched(self._shards, _BATCH):
            self._take_back_shards(scopes, dry_run=dry_run)
        for accounts in self._accounts.values():
            for ids in batched(accounts, _BATCH):
                found = self._store.audit_entries(ids)
                self._take_back([found[id] for id in ids if id in found], dry_run=dry_run)
        if not dry_run:
            now = self._clock()
            run = msgspec.structs.replace(
                run, state=RunState.ROLLED_BACK, updated_at=now, finished_at=now
            )
            self._store.put_migration_run(run)
        return RollbackReport(
            run=run,
            removed=dict(self._removed),
            kept=tuple(self._kept),
            kept_total=self._kept_total,
            dry_run=dry_run,
        )

    def _now_or_last(self, entries: Sequence[AuditEntry]) -> list[AuditEntry]:
        """Those that are taken back now; the others are remembered."""
        now = []
        for entry in entries:
            if entry.action == "write_consolidation" and entry.scope is not None:
                versions = version_of(entry), int((entry.before or {}).get("version") or 0)
                self._texts.setdefault(entry.scope, []).append((*versions, entry.id))
            elif entry.action in self._accounts:
                self._accounts[entry.action].append(entry.id)
            elif _makes_shard(entry) and entry.scope is not None:
                self._shards[entry.scope] = entry.id
            else:
                now.append(entry)
        return now

    def _take_back(self, entries: Sequence[AuditEntry], *, dry_run: bool) -> None:
        now = Now(self._store, entries)
        changes: list[tuple[AuditEntry, Change]] = []
        for entry in entries:
            verdict = self._judge.judged(entry, now)
            if isinstance(verdict, str):
                if verdict:
                    self._keep(entry, verdict)
            else:
                changes.append((entry, verdict))
        self._apply(changes, dry_run=dry_run)

    def _apply(self, changes: Sequence[tuple[AuditEntry, Change]], *, dry_run: bool) -> None:
        if not changes:
            return
        if dry_run:
            for entry, _ in changes:
                self._count(entry)
            return
        change_set = ChangeSet(
            actor=self._actor, at=self._clock(), changes=tuple(change for _, change in changes)
        )
        results = self._store.apply(change_set)
        for (entry, _), result in zip(changes, results, strict=True):
            if result.status is ChangeStatus.APPLIED:
                self._count(entry)
            elif not result.ok:
                self._keep(entry, result.detail)

    def _take_back_texts(self, scopes: Sequence[Scope], *, dry_run: bool) -> None:
        texts = self._store.consolidations(scopes)
        entries = self._store.audit_entries(
            [entry_id for scope in scopes for _, _, entry_id in self._texts[scope]]
        )
        changes: list[tuple[AuditEntry, Change]] = []
        for scope in scopes:
            text = texts.get(scope)
            if text is None:
                continue
            # Versions of the run that stand upon each other, from the current one down: what was
            # before the lowest of them is what comes back.
            lowest: tuple[int, int, str] | None = None
            current = text.version
            for step in sorted(self._texts[scope], reverse=True):
                if step[0] == current:
                    lowest, current = step, step[1]
            if lowest is not None:
                entry = entries[lowest[2]]
                changes.append((entry, self._reverted(scope, text, entry)))
            elif text.consolidated_content.strip():
                newest = max(self._texts[scope])[2]
                self._keep(entries[newest], "its text has a newer version")
        self._apply(changes, dry_run=dry_run)

    def _take_back_shards(self, scopes: Sequence[Scope], *, dry_run: bool) -> None:
        entries = self._store.audit_entries([self._shards[scope] for scope in scopes])
        agents = dict.fromkeys(scope.agent_id for scope in scopes)
        full = {
            summary.scope
            for agent_id in agents
            for summary in self._store.scopes(agent_id=agent_id, kinds=[ScopeKind.SHARD])
            if self._is_left_in(summary, dry_run=dry_run)
        }
        empty = []
        for scope in scopes:
            entry = entries[self._shards[scope]]
            if scope in full:
                self._keep(entry, "the shard has memory that the run did not make")
            else:
                empty.append(entry)
        self._take_back(empty, dry_run=dry_run)

    def _is_left_in(self, summary: ScopeSummary, *, dry_run: bool) -> bool:
        """Whether a shard has memory beyond what is taken back (a dry run takes nothing yet)."""

        def gone(kind: str) -> int:
            return self._taken[summary.scope, kind] if dry_run else 0

        return (
            summary.facts > gone("fact")
            or summary.pending > gone("reflection")
            or bool(summary.words and not gone("consolidation"))
        )

    def _reverted(self, scope: Scope, text: Consolidation, entry: AuditEntry) -> Change:
        before = entry.before or {}
        return RevertConsolidation(
            scope=scope,
            expected_version=text.version,
            content=str(before.get("consolidated_content") or ""),
            word_limit=int(before.get("word_limit") or text.word_limit),
            at=self._clock(),
            reverted_versions=tuple(after for after, _, _ in self._texts[scope]),
            **self._judge.own(entry),
        )

    def _count(self, entry: AuditEntry) -> None:
        if entry.scope is not None and not (entry.after or {}).get("absorbed"):
            self._taken[entry.scope, entry.target_type] += 1
        self._removed[entry.target_type] = self._removed.get(entry.target_type, 0) + 1

    def _keep(self, entry: AuditEntry, reason: str) -> None:
        self._kept_total += 1
        if len(self._kept) < _NAMED:
            kept = KeptChange(
                target_type=entry.target_type, target_id=entry.target_id, reason=reason
            )
            self._kept.append(kept)


def roll_back(
    store: Store,
    run_id: str,
    *,
    actor: Actor,
    clock: Callable[[], datetime],
    dry_run: bool = False,
    tell: Callable[[int], None] = lambda changes: None,
) -> RollbackReport:
    """Take a run back while no migration is at work; see `Rollback`.

    Raises:
        ConflictError: a migration is at work.
        NotFoundError: there is no such run.
        StoreError: the database cannot be used.
    """
    work = Rollback(store, run_id, actor=actor, clock=clock)
    if dry_run:
        return work.run(dry_run=True, tell=tell)
    with held(store, actor, clock):
        return work.run(tell=tell)


def _makes_shard(entry: AuditEntry) -> bool:
    scope = entry.scope
    is_shard = scope is not None and scope.kind is ScopeKind.SHARD
    return is_shard and entry.action == "write_policy" and entry.before is None
