"""Move the memory of one account to another: ``user merge``.

Links between accounts belong to the platform and do not change. Memory is first added to the
target, with a derived ID, and then removed from the source. After an interruption nothing is
lost, and a second run moves the rest without duplicates. Each step is a regular change, with
history and audit, and ``undo --run`` undoes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Literal, TypeVar

import msgspec

from edenmem.engine.edits import checks
from edenmem.engine.edits.vectors import TextVector
from edenmem.engine.runtime.runtime import Runtime
from edenmem.engine.scopes.overview import word_limit_of
from edenmem.errors import UsageError
from edenmem.models.changes import (
    AddFact,
    AddReflection,
    Change,
    ChangeSet,
    ChangeStatus,
    HoldItem,
    RemoveFact,
    RemoveHeld,
    RemoveReflection,
    RevertConsolidation,
    ReviseFact,
    SetPrivacy,
    WriteConsolidation,
)
from edenmem.models.ids import derived_id
from edenmem.models.memory import (
    Consolidation,
    Fact,
    Held,
    Reflection,
    join_fields,
    join_times,
)
from edenmem.models.scope import Scope, ScopeKind
from edenmem.models.search import FactFilter
from edenmem.store.protocol.store import batched
from edenmem.text import word_count

#: Facts and reflections per set of changes.
BATCH = 200
#: Passes over an account; a pass moves what other writers changed during the one before.
_PASSES = 3

_M = TypeVar("_M", Fact, Reflection, Held)
TextMove = Literal["none", "moved", "pending"]


class AccountMerge(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a merge for one agent, or its preview.

    ``twins`` counts facts that the target already had, and ``keyless`` those that move without
    their key, because another fact of the target has it. ``text`` is "moved" if the target had no
    text, and "pending" if its lines became pending reflections of the target. ``left`` counts
    items that stayed because of concurrent changes.
    """

    agent_id: str
    facts: int = 0
    twins: int = 0
    keyless: int = 0
    reflections: int = 0
    held: int = 0
    text: TextMove = "none"
    left: int = 0


class UserMerger:
    """Move memory between accounts. Blocks."""

    def __init__(self, runtime: Runtime) -> None:
        self._store = runtime.store
        self._settings = runtime.settings
        self._actor = runtime.actor
        self._clock = runtime.clock

    def merge(
        self,
        source_id: str,
        target_id: str,
        *,
        agent_id: str | None = None,
        reason: str = "",
        dry_run: bool = False,
    ) -> Iterator[AccountMerge]:
        """Move the memory of an account to another, agent by agent.

        Facts, reflections, held items and the text move; versions, audit entries and the policy
        stay. A fact that the target already has is removed, and its sources are added to the
        target's fact.

        Args:
            source_id: The account to move memory from.
            target_id: The account to move memory to.
            agent_id: Only the memory of this agent.
            reason: Reason for the audit entries.
            dry_run: Count only.

        Raises:
            UsageError: both are the same account, or the target's scope is paused.
            NotFoundError: the agent or the target does not exist.
        """
        if source_id == target_id:
            raise UsageError("cannot merge an account into itself", hint="specify two accounts")
        memory = self._store.memory
        kinds, owners = [ScopeKind.USER], [source_id]
        found = memory.scopes(agent_id=agent_id, kinds=kinds, user_ids=owners)
        agent_ids = {each.scope.agent_id for each in found}
        # held items are not memory: a scope may have nothing else
        held = memory.held(None, agent_id=agent_id)
        agent_ids |= {each.agent_id for each in held if each.user_id == source_id}
        pairs = [(Scope.user(each, source_id), Scope.user(each, target_id)) for each in agent_ids]
        pairs.sort()
        for _, target in pairs:
            checks.check_open(checks.check_scope_known(self._store, target), target)
        for source, target in pairs:
            done = self._count(source, target)
            if done == AccountMerge(agent_id=source.agent_id):
                continue
            yield done if dry_run else self._move(source, target, done, reason)

    def _count(self, source: Scope, target: Scope) -> AccountMerge:
        facts = twins = keyless = 0
        for batch in batched(self._store.memory.facts(FactFilter(scopes=(source,))), BATCH):
            arriving, known = self._meet(batch, target)
            twins += sum(fact.hash in known for fact in arriving)
            facts += sum(fact.hash not in known for fact in arriving)
            keyless += sum(a.key != b.key for a, b in zip(batch, arriving, strict=True))
        texts = self._store.memory.consolidations((source, target))
        return AccountMerge(
            agent_id=source.agent_id,
            facts=facts,
            twins=twins,
            keyless=keyless,
            reflections=sum(1 for _ in self._store.memory.reflections((source,))),
            held=sum(1 for _ in self._store.memory.held((source,))),
            text=_text_move(texts.get(source), texts.get(target)),
        )

    def _move(
        self, source: Scope, target: Scope, planned: AccountMerge, reason: str
    ) -> AccountMerge:
        reason = reason or f"merged from account {source.owner}"
        for _ in range(_PASSES):
            for batch in batched(
                self._store.memory.facts(FactFilter(scopes=(source,)), with_vectors=True), BATCH
            ):
                self._move_facts(batch, target, reason)
            limit = self._word_limit(target, None)
            for part in batched(list(self._store.memory.reflections((source,)))[::-1], BATCH):
                self._replace(
                    {
                        each.id: [
                            AddReflection(
                                reflection=_at(each, target), word_limit=limit, reason=reason
                            )
                        ]
                        for each in part
                    },
                    {each.id: RemoveReflection.of(each, self._clock(), reason) for each in part},
                )
            moved = {each.id for each in self._store.memory.held((target,))}
            for held in batched(list(self._store.memory.held((source,))), BATCH):
                copies = {each.id: _at(each, target) for each in held}
                self._replace(
                    {
                        id: [] if copy.id in moved else [HoldItem(held=copy, reason=reason)]
                        for id, copy in copies.items()
                    },
                    {id: RemoveHeld(scope=source, held_id=id, reason=reason) for id in copies},
                )
            self._move_text(source, target, reason)
            rest = self._count(source, target)
            left = rest.facts + rest.twins + rest.reflections + rest.held + (rest.text != "none")
            if not left:
                break
        return msgspec.structs.replace(planned, left=left)

    # -- facts -------------------------------------------------------------------------------

    def _meet(self, facts: Sequence[Fact], target: Scope) -> tuple[list[Fact], dict[str, Fact]]:
        """Return facts as they arrive, and those that the target has, by hash.

        A fact arrives without its key if another fact of the target has the key.
        """
        memory = self._store.memory
        known = dict(memory.facts_by_hashes(target, [fact.hash for fact in facts]))
        arriving = []
        for fact in facts:
            if fact.key is not None and fact.hash not in known:
                keyed = FactFilter(scopes=(target,), key=fact.key)
                if any(True for _ in memory.facts(keyed, limit=1)):
                    fact = fact.with_fields(msgspec.structs.replace(fact.fields, key=None))
            arriving.append(fact)
        known |= memory.facts_by_hashes(target, [fact.hash for fact in arriving])
        return arriving, known

    def _move_facts(self, facts: Sequence[Fact], target: Scope, reason: str) -> None:
        arriving, known = self._meet(facts, target)
        arrivals: dict[str, list[Change]] = {}
        for fact in arriving:
            twin = known.get(fact.hash)
            if twin is not None:
                arrivals[fact.id] = join_facts(twin, [fact], at=self._clock(), reason=reason)
            else:
                arrivals[fact.id] = [AddFact(fact=_at(fact, target), reason=reason)]
        removals = {fact.id: RemoveFact.of(fact, self._clock(), reason) for fact in facts}
        self._replace(arrivals, removals)

    # -- texts -------------------------------------------------------------------------------

    def _move_text(self, source: Scope, target: Scope, reason: str) -> None:
        texts = self._store.memory.consolidations((source, target))
        old, new = texts.get(source), texts.get(target)
        if old is None or _text_move(old, new) == "none":
            return
        if not self._has_had(target, old.consolidated_content):
            arrivals = self._text_arrivals(old, new, target, reason)
            if len(self._apply_arrivals(arrivals)) < len(arrivals):
                return
        self._apply(
            [
                RevertConsolidation(
                    scope=source,
                    expected_version=old.version,
                    content="",
                    word_limit=old.word_limit,
                    at=self._clock(),
                    reverted_versions=old.unpropagated_versions,
                    reason=reason,
                )
            ]
        )

    def _has_had(self, scope: Scope, text: str) -> bool:
        """Check whether an interrupted merge already moved the text.

        Its version must be in the history, without a restore after it.
        """
        for entry in reversed(self._store.history.versions("consolidation", "", scope=scope)):
            if entry.content == text:
                return True
            if entry.action == "restore":
                return False
        return False

    def _text_arrivals(
        self, old: Consolidation, new: Consolidation | None, target: Scope, reason: str
    ) -> dict[str, list[Change]]:
        """Return the changes that add the text, or its lines as pending reflections."""
        now, limit = self._clock(), self._word_limit(target, new)
        if _text_move(old, new) == "moved":
            write = WriteConsolidation(
                scope=target,
                expected_version=new.version if new else 0,
                content=old.consolidated_content,
                word_limit=limit,
                at=now,
                fixed=old.fixed,
                reason=reason,
            )
            return {old.id: [write]}
        lines = pieces(old.consolidated_content, self._settings.formation.reflection_words)
        arrivals: dict[str, list[Change]] = {}
        for number, line in enumerate(lines):
            reflection = Reflection(
                id=derived_id("user merge", target.key, old.id, str(old.version), str(number)),
                scope=target.kind,
                agent_id=target.agent_id,
                user_id=target.user_id,
                content=line,
                formed_at=old.updated_at or old.last_consolidated_at or now,
            )
            arrivals[reflection.id] = [
                AddReflection(reflection=reflection, word_limit=limit, reason=reason)
            ]
        return arrivals

    # -- applying changes --------------------------------------------------------------------

    def _replace(self, arrivals: dict[str, list[Change]], removals: Mapping[str, Change]) -> None:
        """Add memory to the target, and remove what arrived from the source."""
        arrived = self._apply_arrivals(arrivals)
        self._apply([change for id, change in removals.items() if id in arrived])

    def _apply_arrivals(self, arrivals: dict[str, list[Change]]) -> set[str]:
        """Apply the changes of each key, and return the keys without a failed change."""
        changes = [change for each in arrivals.values() for change in each]
        copies = [each.reflection.id for each in changes if isinstance(each, AddReflection)]
        before = self._store.memory.reflections_by_ids(copies) if copies else {}
        wanted = [
            each
            for each in changes
            if not isinstance(each, AddReflection) or each.reflection.id not in before
        ]
        refused = self._apply(wanted)
        return {key for key, each in arrivals.items() if not any(one.id in refused for one in each)}

    def _apply(self, changes: Sequence[Change]) -> set[str]:
        """Apply changes, and return the IDs of the failed ones."""
        if not changes:
            return set()
        change_set = ChangeSet(actor=self._actor, at=self._clock(), changes=tuple(changes))
        return {
            result.change_id
            for result in self._store.changes.apply(change_set)
            if result.status not in (ChangeStatus.APPLIED, ChangeStatus.ALREADY)
        }

    def _word_limit(self, scope: Scope, text: Consolidation | None) -> int:
        policy = self._store.memory.policies((scope,)).get(scope)
        return word_limit_of(self._store, self._settings, scope, policy, text)


def join_facts(
    kept: Fact,
    others: Sequence[Fact],
    *,
    at: datetime,
    reason: str,
    content: str | None = None,
    vector: TextVector | None = None,
) -> list[Change]:
    """Return the changes that merge facts into one of them.

    Args:
        kept: The fact that stays.
        others: Facts with the same text, or those that ``content`` sums up.
        at: The time of the changes.
        reason: The reason for the audit entries.
        content: The new text; None keeps it.
        vector: The vector of a new text.
    """
    every = (kept, *others)
    text = kept.content if content is None else content
    sources = dict.fromkeys(id for fact in others for id in fact.source_message_ids)
    users = dict.fromkeys(id for fact in others for id in fact.related_users)
    fields = join_fields(every)
    is_known = sources.keys() <= {*kept.source_message_ids} and users.keys() <= {
        *kept.related_users
    }
    changes: list[Change] = []
    if not is_known or text != kept.content or fields != kept.fields:
        changes.append(
            ReviseFact(
                scope=kept.home,
                fact_id=kept.id,
                expected_version=kept.version,
                content=text,
                at=at,
                embedding=vector.embedding if vector else None,
                embedding_model=vector.model if vector else None,
                source_message_ids=tuple(sources),
                related_users=tuple(users),
                fields=fields,
                times=join_times(
                    (fact.said_at for fact in every), (fact.recent_at for fact in every)
                ),
                reason=reason,
            )
        )
    if not kept.private and any(fact.private for fact in others):
        changes.append(
            SetPrivacy(
                scope=kept.home,
                target_type="fact",
                target_id=kept.id,
                private=True,
                at=at,
                reason=reason,
            )
        )
    return changes


def pieces(text: str, words: int) -> list[str]:
    """Split a text into lines of at most ``words`` words, without bullets and headings."""
    found: list[str] = []
    for line in text.splitlines():
        piece = ""
        for word in line.strip().lstrip("-*•#").split():
            if piece and word_count(f"{piece} {word}") > words:
                found.append(piece)
                piece = ""
            piece = f"{piece} {word}".strip()
        if piece and not (piece.startswith("[") and piece.endswith("]")):
            found.append(piece)
    return found


def _text_move(old: Consolidation | None, new: Consolidation | None) -> TextMove:
    if old is None or not old.consolidated_content.strip():
        return "none"
    return "pending" if new is not None and new.consolidated_content.strip() else "moved"


def _at(memory: _M, target: Scope) -> _M:
    """Return a copy of the memory in the target scope."""
    copied = derived_id("user merge", target.key, memory.id)
    return msgspec.structs.replace(memory, id=copied, user_id=target.user_id)
