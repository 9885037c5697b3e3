"""What a formation comes to, in numbers: as planned for its record, as applied for its report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from edenmem.engine.reports import FormationReport
from edenmem.models.changes import (
    AddFact,
    AddReflection,
    Change,
    ChangeResult,
    ChangeStatus,
    RemoveFact,
    ReviseFact,
)
from edenmem.models.formation import Decision


def summary_of(changes: Iterable[Change], decisions: Iterable[Decision]) -> dict[str, Any]:
    """The numbers that a formation's record keeps for lists."""
    ops = Counter(type(change) for change in changes)
    actions = Counter(decision.action for decision in decisions)
    return {
        "facts": ops[AddFact],
        "revised": ops[ReviseFact],
        "removed": ops[RemoveFact],
        "reflections": ops[AddReflection],
        "known": actions["NONE"],
        "rejected": actions["REJECTED"],
    }


def report_of_changes(
    report: FormationReport, changes: Sequence[Change], results: Iterable[ChangeResult]
) -> FormationReport:
    """``report`` with the numbers of what ``changes`` really did.

    Skipped are facts that were known already, whether deduplication or the store found it. A
    fact that was revised in vain, because its target had changed, counts as added.
    """
    by_id = {change.id: change for change in changes}
    facts: Counter[str] = Counter()
    reflections: Counter[str] = Counter()
    for result in results:
        match by_id.get(result.change_id), result.status:
            case (_, ChangeStatus.CONFLICT | ChangeStatus.MISSING) | (None, _):
                continue
            case AddFact(), ChangeStatus.DUPLICATE:
                facts["skipped"] += 1
            case (AddFact(), _) | (ReviseFact(), ChangeStatus.ADDED_INSTEAD):
                facts["added"] += 1
            case ReviseFact(), _:
                facts["revised"] += 1
            case RemoveFact(), _:
                facts["removed"] += 1
            case AddReflection() as change, _:
                reflections[change.reflection.scope] += 1
    known = sum(1 for decision in report.decisions if decision.action == "NONE")
    return msgspec.structs.replace(
        report,
        facts_added=facts["added"],
        facts_revised=facts["revised"],
        facts_removed=facts["removed"],
        facts_skipped=facts["skipped"] + known,
        reflections={str(kind): number for kind, number in reflections.items()},
    )
