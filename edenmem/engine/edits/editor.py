"""Edit facts, reflections, texts, policies and agents. All functions block."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeVar

import msgspec

from edenmem.acceptance.secrets import find_secret
from edenmem.engine.consolidation.draft import fix_sentences, keep_fixed, without_version
from edenmem.engine.edits import checks
from edenmem.engine.edits.checks import check_fields, check_result
from edenmem.engine.edits.vectors import TextVector, TextVectors, with_vectors
from edenmem.engine.formation.sharing import keep_proof
from edenmem.engine.reports import EditReport
from edenmem.engine.runtime.runtime import Runtime
from edenmem.engine.scopes.overview import fact_buffer_max_of, retention_changes, word_limit_of
from edenmem.engine.scopes.references import other_scopes, unknown_version
from edenmem.errors import NotFoundError, UsageError
from edenmem.memory import plain as plain
from edenmem.memory import preview
from edenmem.models.changes import (
    AddFact,
    AddReflection,
    Change,
    ChangeSet,
    ChangeStatus,
    HistoryEntry,
    RemoveFact,
    RemoveReflection,
    ReviseFact,
    ReviseReflection,
    SetAgentToggles,
    SetPrivacy,
    WriteConsolidation,
    WritePolicy,
)
from edenmem.models.host import Agent
from edenmem.models.ids import new_id
from edenmem.models.memory import (
    NO_FIELDS,
    Consolidation,
    Fact,
    FactFields,
    FixedSentence,
    Policy,
    Reflection,
    content_hash,
)
from edenmem.models.scope import Scope, ScopeKind
from edenmem.text import iso, many, one_line

T = TypeVar("T")
_Kind = Literal["fact", "reflection"]


def _unchanged(
    document: Fact | Reflection | Consolidation | Policy | Agent, dry_run: bool
) -> EditReport:
    """Return the report of a change without effect, which is not made."""
    data = plain(document)
    return EditReport(
        action="none",
        target_type=type(document).__name__.lower(),
        target_id=document.id,
        before=data,
        after=data,
        dry_run=dry_run,
        notices=("already the case",),
    )


def version_of(history: Sequence[HistoryEntry], version: int, what: str) -> HistoryEntry:
    """Return the history entry of a version; the latest of several (for a restored fact).

    Raises:
        NotFoundError: the version does not exist.
    """
    found = [entry for entry in history if entry.version == version and entry.action != "delete"]
    if found:
        return found[-1]
    raise unknown_version(what, version, {entry.version for entry in history})


class Editor:
    """Edit memory. `make_edit` runs an edit from an event loop.

    All methods take ``reason`` (for the audit entry) and ``dry_run``. They raise `NotFoundError`
    if the target, agent or user does not exist, `ConflictError` if the target changed since
    ``expected_version``, and `UsageError` if the content is empty or, without ``allow_long``, too
    long. Methods that store the text of a fact raise `VectorWanted` before they write if
    ``vectors`` lacks its vector.
    """

    def __init__(self, runtime: Runtime, vectors: TextVectors | None = None) -> None:
        self._store = runtime.store
        self._settings = runtime.settings
        self._actor = runtime.actor
        self._clock = runtime.clock
        self._vectors = vectors or TextVectors(runtime)

    # -- facts ---------------------------------------------------------------------------------

    def add_fact(
        self,
        scope: Scope,
        content: str,
        *,
        private: bool = False,
        session_id: str | None = None,
        fields: FactFields = NO_FIELDS,
        allow_long: bool = False,
        reason: str = "",
        dry_run: bool = False,
    ) -> EditReport:
        """Add a fact. If the scope already has it, the action of the report is "none".

        A known fact that expires earlier lasts as long as the new one.

        Raises:
            KeyTaken: another fact of the scope has the key.
        """
        if scope.kind is ScopeKind.SESSION:
            raise UsageError(
                "a session scope has no facts",
                hint="add the fact to the user, group, shard or agent, or add a reflection",
            )
        text = self._text(content, "fact", allow_long)
        fields = self._fields(fields)
        policy = self._check_open(scope, session_id)
        fact = Fact(
            id=new_id(),
            **scope.fields(session_id=session_id),
            content=text,
            hash="",
            formed_at=self._clock(),
            private=private,
        ).with_fields(fields)
        adding = AddFact(fact=fact, reason=reason)
        there = self._store.memory.facts_by_hashes(scope, [fact.hash]).get(fact.hash)
        if there is not None and fact.outlasts(there):
            return self._apply(adding, "fact", dry_run)
        if there is not None:
            return _unchanged(there, dry_run)
        vector = self._vector(text, dry_run)
        fact = msgspec.structs.replace(
            fact, embedding=vector.embedding, embedding_model=vector.model
        )
        adding = msgspec.structs.replace(adding, fact=fact)
        maximum = fact_buffer_max_of(self._settings, scope, policy)
        gone = self.list_beyond(maximum, adding, scope)
        notices = vector.notices
        if gone:
            removed = "would remove" if dry_run else "removed"
            notice = f"the scope is limited to {maximum:,} facts; {removed} the oldest"
            notices = (*notices, f"{notice} ({len(gone):,})")
        notices = (*warn(text, fact.id, dry_run), *notices)
        return self._apply(adding, "fact", dry_run, notices, removals=gone)

    def list_beyond(self, maximum: int, adding: AddFact, scope: Scope) -> list[RemoveFact]:
        """Return removals of the facts that exceed the limit after the addition."""
        if not maximum:
            return []
        places = self.changeable(scope)
        return retention_changes(self._store, scope, places, maximum, [adding], self._clock())

    def changeable(self, scope: Scope) -> tuple[Scope, ...]:
        """Return the scopes whose facts a new fact may change: of all accounts, unless paused."""
        others = other_scopes(self._store, scope)
        policies = self._store.memory.policies(others)
        is_open = (each for each in others if each not in policies or policies[each].active)
        return (scope, *is_open)

    def _fields(self, fields: FactFields, old: FactFields = NO_FIELDS) -> FactFields:
        """Return valid fields.

        Raises:
            UsageError: a field is invalid, or the new time of expiry is past.
        """
        checked = check_fields(fields)
        at = checked.expires_at
        if at is not None and at != old.expires_at and at <= self._clock():
            raise UsageError(f"the time of expiry is past: {iso(at)}")
        return checked

    def restore_fact(
        self,
        fact_id: str,
        *,
        version: int | None = None,
        reason: str = "",
        dry_run: bool = False,
    ) -> EditReport:
        """Restore a deleted fact under its ID, or an earlier text, as a new version.

        Args:
            fact_id: ID of a current or deleted fact.
            version: Version to restore; optional for a deleted fact (default: the last one).
            reason: Reason for the audit entry.
            dry_run: Write nothing.

        Raises:
            UsageError: the fact is not deleted, and ``version`` is missing.
            NotFoundError: the fact or version never existed.
        """
        history = self._store.history.versions("fact", fact_id)
        fact = self._store.memory.fact(fact_id)
        if fact is None:
            deleted = next((entry for entry in reversed(history) if entry.snapshot), None)
            if deleted is None or deleted.snapshot is None:
                raise NotFoundError(f"fact not found, current or deleted: {fact_id}")
            return self._undelete(deleted.snapshot, history, version, reason, dry_run)
        if version is None:
            known = ", ".join(dict.fromkeys(str(entry.version) for entry in history))
            raise UsageError(
                f"the fact is not deleted (version {fact.version}), and --version is missing",
                hint=f"versions: {known}",
            )
        then, reason = version_of(history, version, "fact"), reason or f"version {version} restored"
        return self._revise(fact, then.content, then.fields, reason, dry_run)

    def _revise(
        self, fact: Fact, text: str, fields: FactFields, reason: str, dry_run: bool
    ) -> EditReport:
        if (text, fields) == (fact.content, fact.fields):
            return _unchanged(fact, dry_run)
        is_new = text != fact.content
        vector = self._vector(text, dry_run) if is_new else TextVector()
        change = ReviseFact(
            scope=fact.home,
            fact_id=fact.id,
            expected_version=fact.version,
            content=text,
            at=self._clock(),
            embedding=vector.embedding,
            embedding_model=vector.model,
            fields=fields,
            times=None if is_new else fact.times,
            reason=reason,
        )
        warnings = warn(text, fact.id, dry_run) if is_new else ()
        return self._apply(change, "fact", dry_run, (*warnings, *vector.notices))

    def _undelete(
        self,
        snapshot: Fact,
        history: list[HistoryEntry],
        version: int | None,
        reason: str,
        dry_run: bool,
    ) -> EditReport:
        checks.check_scope_known(self._store, snapshot.home)
        # A new version number keeps the history in between valid.
        fact = msgspec.structs.replace(
            snapshot, version=max(entry.version for entry in history) + 1, updated_at=self._clock()
        )
        vector, notices = TextVector(), tuple[str, ...]()
        then = version_of(history, version, "fact") if version else snapshot
        text = then.content
        fact = fact.with_fields(then.fields)
        if fact.has_expired(self._clock()):
            fact = fact.with_fields(fact.fields.until(None))
            notices = ("the time of expiry is past, and was removed",)
        if text != snapshot.content:
            vector = self._vector(text, dry_run)
            fact = msgspec.structs.replace(
                fact,
                content=text,
                hash=content_hash(text, fact.key),
                previous_content=snapshot.content,
                embedding=vector.embedding,
                embedding_model=vector.model,
            )
        change = AddFact(fact=fact, reason=reason or "restored")
        return self._apply(change, "fact", dry_run, (*notices, *vector.notices))

    def _vector(self, text: str, dry_run: bool) -> TextVector:
        return TextVector() if dry_run else self._vectors.of(text)

    # -- reflections ---------------------------------------------------------------------------

    def add_reflection(
        self,
        scope: Scope,
        content: str,
        *,
        session_id: str | None = None,
        private: bool = False,
        allow_long: bool = False,
        reason: str = "",
        dry_run: bool = False,
    ) -> EditReport:
        """Add a reflection to the end of the scope's buffer."""
        text = self._text(content, "reflection", allow_long)
        policy = self._check_open(scope, session_id)
        reflection = Reflection(
            id=new_id(),
            **scope.fields(session_id=session_id),
            content=text,
            formed_at=self._clock(),
            private=private,
        )
        change = AddReflection(
            reflection=reflection,
            word_limit=word_limit_of(self._store, self._settings, scope, policy),
            reason=reason,
        )
        return self._apply(change, "reflection", dry_run)

    # -- facts and reflections -----------------------------------------------------------------

    def edit(
        self,
        memory_id: str,
        content: str | None = None,
        *,
        expected_version: int,
        fields: FactFields | None = None,
        allow_long: bool = False,
        reason: str = "",
        dry_run: bool = False,
    ) -> EditReport:
        """Replace the text of a fact or pending reflection, or the fields of a fact.

        The old ones stay in the history. None keeps the text or the fields.

        Raises:
            KeyTaken: another fact of the scope has the key.
            UsageError: the reflection is already part of a consolidated text.
        """
        before = self._stored(memory_id, expected_version)
        kind: _Kind = "fact" if isinstance(before, Fact) else "reflection"
        text = before.content if content is None else self._text(content, kind, allow_long)
        if isinstance(before, Fact):
            fields = before.fields if fields is None else self._fields(fields, before.fields)
            return self._revise(before, text, fields, reason, dry_run)
        if before.absorbed:
            raise UsageError(
                "the reflection is already part of the consolidated text",
                hint="edit the text: edenmem consolidation edit",
            )
        if text == before.content:
            return _unchanged(before, dry_run)
        change = ReviseReflection(
            scope=before.home,
            reflection_id=before.id,
            expected_version=before.version,
            content=text,
            at=self._clock(),
            reason=reason,
        )
        return self._apply(change, kind, dry_run)

    def delete(
        self,
        memory_id: str,
        *,
        expected_version: int | None = None,
        reason: str = "",
        dry_run: bool = False,
    ) -> EditReport:
        """Delete a fact or reflection, which an undo restores.

        A text that absorbed the reflection does not change.
        """
        before = self._stored(memory_id, expected_version)
        if not dry_run:
            keep_proof(self._store, before, self._clock())
        if isinstance(before, Fact):
            return self._apply(RemoveFact.of(before, self._clock(), reason), "fact", dry_run)
        removal = RemoveReflection.of(before, self._clock(), reason)
        return self._apply(removal, "reflection", dry_run)

    def set_private(
        self, memory_id: str, private: bool, *, reason: str = "", dry_run: bool = False
    ) -> EditReport:
        """Exclude a fact or reflection from propagation, or allow it again."""
        before = self._stored(memory_id)
        kind: _Kind = "fact" if isinstance(before, Fact) else "reflection"
        change = SetPrivacy(
            scope=before.home,
            target_type=kind,
            target_id=memory_id,
            private=private,
            at=self._clock(),
            reason=reason,
        )
        return self._apply(change, kind, dry_run)

    def _stored(self, memory_id: str, expected_version: int | None = None) -> Fact | Reflection:
        memory = self._store.memory
        found = memory.fact(memory_id) or memory.reflection(memory_id)
        if found is None:
            raise NotFoundError(
                f"fact or reflection not found: {memory_id}",
                hint=f"restore deleted memory: edenmem restore {memory_id}",
            )
        checks.check_version(type(found).__name__.lower(), found.version, expected_version)
        return found

    def _text(self, content: str, kind: _Kind, allow_long: bool) -> str:
        words = self._settings.formation
        limit = words.fact_words if kind == "fact" else words.reflection_words
        return checks.text_of(content, what=kind, limit=limit, allow_long=allow_long)

    # -- texts ---------------------------------------------------------------------------------

    def edit_consolidation(
        self,
        scope: Scope,
        content: str,
        *,
        expected_version: int,
        allow_long: bool = False,
        fixes: bool = True,
        reason: str = "",
        dry_run: bool = False,
    ) -> EditReport:
        """Write the next version of the scope's text; pending reflections stay pending.

        With ``fixes``, consolidation keeps the added and changed sentences word for word.
        """
        policy = checks.check_scope_known(self._store, scope)
        before = self._store.memory.consolidations([scope]).get(scope)
        checks.check_version("text", before.version if before else 0, expected_version)
        limit = word_limit_of(self._store, self._settings, scope, policy, before)
        text = checks.text_of(
            without_version(content), what="text", limit=limit, allow_long=allow_long
        )
        if before is not None and text == before.consolidated_content:
            return _unchanged(before, dry_run)
        report = self._write_text(scope, before, text, limit, reason, dry_run, fixes=fixes)
        if why := checks.find_secret_in(text, "text"):
            notices = (f"warning: {why}: it is in every prompt", *report.notices)
            report = msgspec.structs.replace(report, notices=notices)
        return report

    def restore_consolidation(
        self, scope: Scope, version: int, *, reason: str = "", dry_run: bool = False
    ) -> EditReport:
        """Restore an earlier text as a new version; pending reflections stay pending."""
        policy = checks.check_scope_known(self._store, scope)
        history = self._store.history.versions("consolidation", "", scope=scope)
        text = version_of(history, version, "text").content
        before = self._store.memory.consolidations([scope]).get(scope)
        if before is not None and text == before.consolidated_content:
            return _unchanged(before, dry_run)
        limit = word_limit_of(self._store, self._settings, scope, policy, before)
        why = reason or f"version {version} restored"
        return self._write_text(scope, before, text, limit, why, dry_run)

    def _write_text(
        self,
        scope: Scope,
        before: Consolidation | None,
        text: str,
        limit: int,
        reason: str,
        dry_run: bool,
        *,
        fixes: bool = False,
    ) -> EditReport:
        fixed = keep_fixed(before.fixed if before else (), text)
        released: tuple[FixedSentence, ...] = ()
        if fixes:
            fixed, released = fix_sentences(
                before, text, by=self._actor.name, at=self._clock(), limit=limit
            )
        change = WriteConsolidation(
            scope=scope,
            expected_version=before.version if before else 0,
            content=text,
            word_limit=limit,
            at=self._clock(),
            fixed=fixed,
            reason=reason,
        )
        return self._apply(change, "consolidation", dry_run, _name_fixed(fixed, released, limit))

    # -- policies and agents -------------------------------------------------------------------

    def set_policy(
        self,
        scope: Scope,
        changes: Mapping[str, object],
        *,
        expected_version: int | None = None,
        reason: str = "",
        dry_run: bool = False,
    ) -> EditReport:
        """Change settings of a scope; None restores the default of its kind.

        A policy creates its shard.
        """
        before = checks.check_scope_known(self._store, scope, new_shard=True)
        base = before or Policy(id=new_id(), **scope.fields())
        checks.check_version("policy", base.version, expected_version)
        after = checks.change_policy(base, changes)
        if after == base and (before is not None or scope.shard_name is None):
            return _unchanged(base, dry_run)
        change = WritePolicy(
            policy=after, expected_version=base.version, at=self._clock(), reason=reason
        )
        return self._apply(change, "policy", dry_run)

    def set_agent(
        self,
        agent_id: str,
        *,
        user_memory: bool | None = None,
        agent_memory: bool | None = None,
        reason: str = "",
        dry_run: bool = False,
    ) -> EditReport:
        """Switch an agent's user or agent memory on or off."""
        if user_memory is None and agent_memory is None:
            raise UsageError("nothing to change: specify user memory, agent memory, or both")
        checks.check_agent_known(self._store, agent_id)
        before = self._store.host.agent(agent_id)
        assert before is not None
        change = SetAgentToggles(
            agent_id=agent_id,
            at=self._clock(),
            user_memory_enabled=user_memory,
            agent_memory_enabled=agent_memory,
            reason=reason,
        )
        toggles = {"user_memory_enabled": user_memory, "agent_memory_enabled": agent_memory}
        wanted = {name: value for name, value in toggles.items() if value is not None}
        after = msgspec.structs.replace(before, **wanted)
        if after == before:
            return _unchanged(before, dry_run)
        return self._apply(change, "agent", dry_run)

    # -- checks and store access -------------------------------------------------------------------

    def _check_open(self, scope: Scope, session_id: str | None) -> Policy | None:
        """Check that the scope accepts new memory of this session, and return its policy."""
        policy = checks.check_scope_known(self._store, scope)
        checks.check_open(policy, scope)
        if scope.session_id is not None and session_id not in (None, scope.session_id):
            raise UsageError("a reflection of a session scope must come from that session")
        if session_id is not None:
            checks.check_session_known(self._store, session_id)
        return policy

    def _apply(
        self,
        change: Change,
        target_type: str,
        dry_run: bool,
        notices: tuple[str, ...] = (),
        removals: Sequence[RemoveFact] = (),
    ) -> EditReport:
        changes = ChangeSet(actor=self._actor, at=self._clock(), changes=(change, *removals))
        if dry_run:
            effect, *_ = preview(changes, self._store.changes.load_state)
            result, entry = effect.result, effect.entry
        else:
            self._vectors.close()
            result, *_ = self._store.changes.apply(changes)
            entry = self._store.log.audit_entry(result.change_id)
        check_result(result, target_type)
        before, after = (entry.before, entry.after) if entry is not None else (None, None)
        if result.status is ChangeStatus.DUPLICATE:
            was = "would be" if dry_run else "was"
            gone = f", and {before['id']} {was} removed in its favor" if before else ""
            if before and after:
                gone = f"; it now expires {after.get('expires_at') or 'never'}"
            notices = (f"the scope already has this fact: {result.target_id}{gone}",)
            after = plain(self._store.memory.fact(result.target_id))
        return EditReport(
            action=str(type(change).__struct_config__.tag),
            target_type=target_type,
            target_id=result.target_id,
            before=before,
            after=after,
            dry_run=dry_run,
            result=result,
            notices=notices,
        )


async def make_edit(runtime: Runtime, work: Callable[[Editor], T]) -> T:
    """Run one edit in a thread, and compute the vector that it needs.

    Raises:
        ProviderError: embedding failed; nothing was written.
    """
    return await with_vectors(runtime, lambda vectors: work(Editor(runtime, vectors)))


def _name_fixed(
    fixed: Sequence[FixedSentence], released: Sequence[FixedSentence], limit: int
) -> tuple[str, ...]:
    """Return notices about the fixed sentences of a text, and those without room."""
    notices = []
    if fixed:
        notices.append(f"consolidation keeps {many(len(fixed), 'sentence')} word for word")
    if released:
        names = "; ".join(one_line(each.text) for each in released)
        share = f"at most a third of {limit:,} words can be fixed"
        notices.append(f"{share}; no longer fixed: {names}")
    return tuple(notices)


def warn(text: str, fact_id: str, dry_run: bool) -> tuple[str, ...]:
    """Return a warning about a text that agents may not store."""
    secret = find_secret(text)
    why = f"the fact contains {secret}" if secret else checks.find_objection(text)
    if why is None:
        return ()
    if dry_run:
        remedy = ""
    elif secret:  # a deleted fact stays in the history
        remedy = f"; to erase it with all copies: 'edenmem forget --fact {fact_id}'"
    else:
        remedy = f"; to delete it: 'edenmem delete {fact_id}'"
    return (f"warning: {why}{remedy}",)
