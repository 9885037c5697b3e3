"""Counts of a cold run."""

from __future__ import annotations

from edenmem.engine.cold.report import ColdReport
from edenmem.engine.reports import ConsolidationReport
from edenmem.models.ids import new_id, utc_now
from edenmem.models.scope import Scope


def test_texts_that_wait_for_a_person_are_counted() -> None:
    """Nothing else in a cron run names a scope that is stuck."""
    scope = Scope.agent(new_id())
    report = ColdReport(started_at=utc_now())
    report.count_texts(
        [
            ConsolidationReport(scope=scope, outcome=outcome)
            for outcome in ("written", "stuck", "waiting_for_review", "not_due")
        ]
    )
    assert (report.consolidations, report.texts_waiting) == (1, 2)
