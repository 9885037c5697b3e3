"""Read versions, the log and the origin of memories for operators. All functions block."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from edenmem.engine.history.why import FactWhy, fact_why, source_of, text_why
from edenmem.engine.scopes.references import Resolver, load_labels, unknown_version
from edenmem.errors import AmbiguousReference, NotFoundError
from edenmem.memory.inverse import undo_id
from edenmem.models.changes import AuditEntry, HistoryEntry
from edenmem.models.scope import Scope
from edenmem.store.protocol.log import AuditKey
from edenmem.store.protocol.store import Store


class TextChange(NamedTuple):
    """Two versions of a text."""

    old_version: int
    new_version: int
    before: str
    after: str


class HistoryReader:
    """Read earlier states of memory, and their changes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.find_id = partial(find_logged_id, store)
        self.entries = store.log.audit
        self.text_why = partial(text_why, store)
        self.source_of = partial(source_of, store)

    def fact_versions(self, text: str) -> list[HistoryEntry]:
        """Return all versions of a current or deleted fact."""
        return self._store.history.versions("fact", Resolver(self._store).fact_id(text))

    def text_versions(self, scope: Scope) -> list[HistoryEntry]:
        """Return all versions of a scope's text, oldest first.

        Raises:
            NotFoundError: the scope has no text yet.
        """
        versions = self._store.history.versions("consolidation", "", scope=scope)
        if not versions:
            label = load_labels(self._store, [scope]).full(scope)
            raise NotFoundError(f"{label} has no text yet")
        return versions

    def compare_texts(
        self, scope: Scope, *, old: int | None = None, new: int | None = None
    ) -> TextChange:
        """Return two versions of a scope's text (default: the latest two).

        Raises:
            NotFoundError: the scope has no text yet, or not this version.
        """
        contents = {entry.version: entry.content for entry in self.text_versions(scope)} | {0: ""}
        after = max(contents) if new is None else new
        before = max(v for v in contents if v < after) if old is None and after > 0 else old or 0
        for version in (before, after):
            if version not in contents:
                raise unknown_version("text", version, contents.keys() - {0})
        return TextChange(before, after, contents[before], contents[after])

    def entry(self, text: str) -> AuditEntry:
        """Return the log entry with this ID or ID prefix.

        Raises:
            NotFoundError: the entry does not exist.
            AmbiguousReference: several IDs match.
        """
        entry_id = self.find_id("entry", text)
        found = self._store.log.audit_entry(entry_id)
        if found is None:
            raise NotFoundError(f"log entry not found: {entry_id}")
        return found

    def undone_by(self, entry: AuditEntry) -> str | None:
        """Return the ID of the entry that undid this one."""
        undone = self._store.log.audit_entry(undo_id(entry.id))
        return undone.id if undone else None

    def fact_why(self, text: str) -> FactWhy:
        """Return the origin of a current or removed fact; see `why.fact_why`.

        Raises:
            NotFoundError: the fact never existed.
            AmbiguousReference: several IDs match.
        """
        try:
            fact_id = Resolver(self._store).fact_id(text)
        except NotFoundError as unknown:  # only the log may know a removed fact
            try:
                fact_id = self.find_id("target", text)
            except NotFoundError:
                raise unknown from None
        return fact_why(self._store, fact_id)


_WHAT: dict[AuditKey, str] = {
    "entry": "log entry",
    "target": "changed object",
    "run": "run",
}


def find_logged_id(store: Store, key: AuditKey, text: str) -> str:
    """Return the full ID of an entry, of a changed or deleted object, or of a run.

    Raises:
        NotFoundError: no ID matches.
        AmbiguousReference: several IDs match.
    """
    wanted = text.strip().lower()
    found = store.log.find_audited(key, wanted)
    if wanted in found or len(found) == 1:
        return wanted if wanted in found else found[0]
    if not found:
        raise NotFoundError(
            f"{_WHAT[key]} not found: {text!r}",
            hint=_run_of_entry(store, key, wanted)
            or "list entries: edenmem log (a unique ID prefix of 4 digits is enough)",
        )
    raise AmbiguousReference(key, text, list(found))


def _run_of_entry(store: Store, key: AuditKey, wanted: str) -> str | None:
    """Return a hint if the ID belongs to an entry instead of a run."""
    entries = store.log.find_audited("entry", wanted) if key == "run" else ()
    entry = store.log.audit_entry(entries[0]) if len(entries) == 1 else None
    if entry is None or not entry.actor.run_id:
        return None
    return f"this is a log entry of run {entry.actor.run_id}"
