"""Known failure 73: an endpoint's invalid token count was stored and broke every reader."""

from __future__ import annotations

from typing import Any

import pytest

from edenmem.models.backup import RecordKind
from edenmem.models.formation import CallUsage, calls_from
from edenmem.models.statistics import sum_by_model
from tests.support.builders import some
from tests.support.damage import NO_USAGE
from tests.support.forgetting import forget
from tests.support.ward import Ward

READ_AS = (
    CallUsage(task="facts", model="m", estimated=True),
    CallUsage(task="facts", model="m", estimated=True),
    CallUsage(task="facts", model="m", output_tokens=3, estimated=True),
    CallUsage(task="", model="", estimated=True),
    CallUsage(task="dedup", model="m", input_tokens=100, output_tokens=20, cost=0.5),
    CallUsage(task="", model="", estimated=True),
)


def test_invalid_counts_are_read_as_estimated_zeros() -> None:
    assert calls_from(NO_USAGE) == READ_AS
    assert calls_from(None) == ()


def test_records_of_older_versions_are_valid() -> None:
    old = [{"task": "facts", "model": "m", "input_tokens": 9, "output_tokens": 2, "cost": None}]
    assert calls_from(old) == (CallUsage(task="facts", model="m", input_tokens=9, output_tokens=2),)


@pytest.mark.parametrize("stored", ["text", 7, {"task": "facts"}, True])
def test_usage_that_is_not_a_list_is_read_as_none(stored: Any) -> None:
    assert calls_from(stored) == ()


@pytest.mark.parametrize("usage", [NO_USAGE, [], "text"], ids=["nonsense", "nothing", "no list"])
def test_an_invalid_record_is_read_summed_exported_and_erased(ward: Ward, usage: Any) -> None:
    ward.set("formation", ward.ids.applied, usage=usage)
    formation = some(ward.store.formations.formation(ward.ids.applied))
    assert formation.usage == (READ_AS if usage is NO_USAGE else ())
    assert formation in list(ward.store.formations.list_formations())
    exported = {record.id: record for record in ward.store.walk.documents([RecordKind.FORMATION])}[
        ward.ids.applied
    ]
    assert (exported.fault, exported.record) == ("", formation)

    totals = {total.model: total for total in sum_by_model(ward.store.usage.usage_by_day())}
    if usage is NO_USAGE:
        assert (totals["m"].input_tokens, totals["m"].output_tokens) == (100, 23)
        assert totals["m"].cost == 0.5
    assert all(day.input_tokens in (0, 100) for day in ward.store.usage.usage_by_day())

    report = forget(ward.store, session=ward.ids.chat)
    assert report.complete
