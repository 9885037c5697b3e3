"""Ids in the log by what a person types: whole, or their beginnings."""

from __future__ import annotations

from edenmem.errors import AmbiguousReference, NotFoundError
from edenmem.store.protocol.log import AuditKey
from edenmem.store.protocol.store import Store

_WHAT: dict[AuditKey, str] = {
    "entry": "entry in the log",
    "target": "thing that was ever changed",
    "run": "run that changed anything",
}


def find_logged_id(store: Store, key: AuditKey, text: str) -> str:
    """The whole id of an entry, of what was changed (even if it is gone), or of a run.

    Raises:
        NotFoundError: none begins so.
        AmbiguousReference: several do.
    """
    wanted = text.strip().lower()
    found = store.log.find_audited(key, wanted)
    if wanted in found or len(found) == 1:
        return wanted if wanted in found else found[0]
    if not found:
        raise NotFoundError(
            f"there is no {_WHAT[key]} {text!r}",
            hint=_run_of_entry(store, key, wanted)
            or "'edenmem log' lists the latest; 4 digits of an id are enough if no other "
            "begins with them",
        )
    raise AmbiguousReference(key, text, list(found))


def _run_of_entry(store: Store, key: AuditKey, wanted: str) -> str | None:
    """What to say to somebody who took an entry for a run."""
    entries = store.log.find_audited("entry", wanted) if key == "run" else ()
    entry = store.log.audit_entry(entries[0]) if len(entries) == 1 else None
    if entry is None or not entry.actor.run_id:
        return None
    return f"it is an entry in the log, of the run {entry.actor.run_id}"
