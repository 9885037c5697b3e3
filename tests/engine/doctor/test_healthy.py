"""Nothing is found where nothing is wrong."""

from __future__ import annotations

from tests.engine.doctor.conftest import examine, found
from tests.support.ward import Ward


def test_a_healthy_memory_has_no_findings(ward: Ward) -> None:
    report = examine(ward)
    assert found(report) == {}
    assert report.reachable
