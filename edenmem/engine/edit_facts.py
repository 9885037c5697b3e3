"""Facts by hand: add, edit, delete, restore."""

from __future__ import annotations

import msgspec

from edenmem.engine import edit_checks as checks
from edenmem.engine.edit_road import EditRoad, owner_fields, unchanged, version_of
from edenmem.engine.offload import in_thread
from edenmem.engine.reports import EditReport
from edenmem.engine.vector_status import misfit_notice
from edenmem.errors import NotFoundError, ProviderError, UsageError
from edenmem.models.changes import (
    AddFact,
    HistoryEntry,
    RemoveFact,
    ReviseFact,
)
from edenmem.models.ids import new_id
from edenmem.models.memory import Fact, content_hash
from edenmem.models.scope import Scope

WITHOUT_VECTOR = (
    "--set embedding.provider=none stores it now, "
    "and 'edenmem embed backfill' adds its vector later"
)
NO_VECTOR = (
    "stored without a vector, so it is found by its words only; "
    "'edenmem embed backfill' adds one when there is an embedding model"
)


class FactEdits(EditRoad):
    """Changes of facts; see `edenmem.engine.editing.Editor`."""

    async def add_fact(
        self,
        scope: Scope,
        content: str,
        *,
        private: bool = False,
        session_id: str | None = None,
        allow_long: bool = False,
        reason: str = "",
        dry_run: bool = False,
    ) -> EditReport:
        """Add a fact. One that the scope has already is left as it is: the action is "none"."""
        checks.check_holds_facts(scope)
        text = self._fact_text(content, allow_long)
        policy = await in_thread(checks.check_scope_known, self._store, scope)
        checks.check_open(policy, scope)
        if session_id is not None:
            await in_thread(checks.check_session_known, self._store, session_id)
        fact = Fact(
            id=new_id(),
            **owner_fields(scope, session_id=session_id),
            content=text,
            hash=content_hash(text),
            formed_at=self._clock(),
            private=private,
        )
        there = (await in_thread(self._store.facts_by_hashes, scope, [fact.hash])).get(fact.hash)
        if there is not None:
            return unchanged("fact", there, dry_run)
        notices: tuple[str, ...] = ()
        if not dry_run:
            vector, model, notices = await self._vector(text)
            fact = msgspec.structs.replace(fact, embedding=vector, embedding_model=model)
        change = AddFact(fact=fact, reason=reason)
        return await self._apply(change, "fact", fact.id, None, fact, dry_run, notices)

    async def edit_fact(
        self,
        fact_id: str,
        content: str,
        *,
        expected_version: int,
        allow_long: bool = False,
        reason: str = "",
        dry_run: bool = False,
    ) -> EditReport:
        """Give a fact a new text; the old one stays in its history."""
        fact = await self._fact(fact_id, expected_version)
        text = self._fact_text(content, allow_long)
        return await self._revise(fact, text, reason, dry_run)

    async def delete_fact(
        self,
        fact_id: str,
        *,
        expected_version: int | None = None,
        reason: str = "",
        dry_run: bool = False,
    ) -> EditReport:
        """Take a fact away; `restore_fact` brings it back."""
        fact = await self._fact(fact_id, expected_version)
        change = RemoveFact(
            scope=fact.home,
            fact_id=fact.id,
            expected_version=fact.version,
            at=self._clock(),
            reason=reason,
        )
        return await self._apply(change, "fact", fact.id, fact, None, dry_run)

    async def restore_fact(
        self,
        fact_id: str,
        *,
        version: int | None = None,
        reason: str = "",
        dry_run: bool = False,
    ) -> EditReport:
        """Bring back a deleted fact under its id, or an earlier text; either as a new version.

        Args:
            fact_id: Of a fact that is, or was.
            version: Whose text to bring back. A deleted fact needs none: it says what it said.
            reason: Kept in the audit entry.
            dry_run: Write nothing.

        Raises:
            UsageError: the fact is not deleted, and no version is named.
            NotFoundError: there never was such a fact or version.
        """
        history = await in_thread(self._store.history, "fact", fact_id)
        fact = await in_thread(self._store.fact, fact_id)
        if fact is None:
            deleted = next((entry for entry in reversed(history) if entry.snapshot), None)
            if deleted is None or deleted.snapshot is None:
                raise NotFoundError(f"there is no fact {fact_id}, and none was deleted")
            return await self._undelete(deleted.snapshot, history, version, reason, dry_run)
        if version is None:
            raise UsageError(
                f"the fact is not deleted; it is at version {fact.version}",
                hint="name the version whose text to bring back (--version)",
            )
        text = version_of(history, version, "fact").content
        return await self._revise(fact, text, reason or f"version {version} restored", dry_run)

    async def _revise(self, fact: Fact, text: str, reason: str, dry_run: bool) -> EditReport:
        if text == fact.content:
            return unchanged("fact", fact, dry_run)
        now = self._clock()
        vector, model, notices = (None, None, ()) if dry_run else await self._vector(text)
        change = ReviseFact(
            scope=fact.home,
            fact_id=fact.id,
            expected_version=fact.version,
            content=text,
            at=now,
            embedding=vector,
            embedding_model=model,
            reason=reason,
        )
        after = msgspec.structs.replace(
            fact,
            content=text,
            hash=content_hash(text),
            version=fact.version + 1,
            previous_content=fact.content,
            updated_at=now,
            embedding_model=model,
        )
        return await self._apply(change, "fact", fact.id, fact, after, dry_run, notices)

    async def _undelete(
        self,
        snapshot: Fact,
        history: list[HistoryEntry],
        version: int | None,
        reason: str,
        dry_run: bool,
    ) -> EditReport:
        await in_thread(checks.check_scope_known, self._store, snapshot.home)
        # a version that no entry of the history has, made now: what was in between stays true
        fact = msgspec.structs.replace(
            snapshot, version=max(entry.version for entry in history) + 1, updated_at=self._clock()
        )
        notices: tuple[str, ...] = ()
        text = version_of(history, version, "fact").content if version else snapshot.content
        if text != snapshot.content:
            vector, model, notices = (None, None, ()) if dry_run else await self._vector(text)
            fact = msgspec.structs.replace(
                fact,
                content=text,
                hash=content_hash(text),
                previous_content=snapshot.content,
                embedding=vector,
                embedding_model=model,
            )
        change = AddFact(fact=fact, reason=reason or "restored")
        return await self._apply(change, "fact", fact.id, None, fact, dry_run, notices)

    async def _fact(self, fact_id: str, expected_version: int | None) -> Fact:
        fact = await in_thread(self._store.fact, fact_id)
        if fact is None:
            raise NotFoundError(
                f"there is no fact {fact_id}",
                hint=f"if it was deleted: edenmem fact restore {fact_id}",
            )
        checks.check_version("fact", fact.version, expected_version)
        return fact

    async def _vector(self, text: str) -> tuple[bytes | None, str | None, tuple[str, ...]]:
        """The text's vector and its model; without an embedder neither, and a word about it."""
        if self._embedder is None:
            return None, None, (NO_VECTOR,)
        notice = await in_thread(misfit_notice, self._store, self._settings, self._embedder.model)
        if notice:
            return None, None, (notice,)
        try:
            embedding = await self._embedder.embed([text])
        except ProviderError as error:
            error.add_hint(WITHOUT_VECTOR)
            raise
        return embedding.vectors[0], self._embedder.model, ()

    def _fact_text(self, content: str, allow_long: bool) -> str:
        limit = self._settings.formation.fact_words
        return checks.text_of(content, what="fact", limit=limit, allow_long=allow_long)
