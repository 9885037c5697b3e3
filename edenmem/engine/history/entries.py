"""Resolve IDs and ID prefixes of the log."""

from __future__ import annotations

from edenmem.errors import AmbiguousReference, NotFoundError
from edenmem.store.protocol.log import AuditKey
from edenmem.store.protocol.store import Store

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
