"""What the record of a formation says in words."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from edenmem.models.changes import ChangeSet
from edenmem.models.forgetting import list_texts
from edenmem.models.formation import Decision


def wording_of(decisions: Sequence[Decision], error: str | None, changes: ChangeSet | None) -> str:
    """All texts of decisions, an error and recorded changes, a line each."""
    said = [part for decision in decisions for part in (decision.content, decision.reason)]
    for change in changes.changes if changes is not None else ():
        said.append(getattr(change, "content", ""))
        for name in ("fact", "or_add", "reflection"):
            added = getattr(change, name, None)
            said += list_texts(msgspec.to_builtins(added)) if added is not None else []
    return "\n".join(part for part in (*said, error or "") if part)
