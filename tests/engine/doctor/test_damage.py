"""Each kind of damage is found exactly; safe repairs are made; nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from edenmem.models.backup import RecordKind
from edenmem.models.memory import Fact, Reflection
from tests.engine.doctor.conftest import examine, fix, found
from tests.support.damage import Damage, cases
from tests.support.exhaustive import sample
from tests.support.ward import Ward

_SLOW = {"sqlite": (), "mongo": pytest.mark.slow}
CASES = [
    pytest.param(kind, damage, id=f"{kind}-{damage.name}", marks=_SLOW[kind])
    for kind, damage in [
        *((kind, damage) for kind, damage in cases() if kind == "sqlite"),
        *sample(((kind, damage) for kind, damage in cases() if kind == "mongo"), 5),
    ]
]


def said(ward: Ward) -> set[str]:
    """Return all current and former contents of memory."""
    contents = set()
    for kind in ("fact", "reflection"):
        for record in ward.store.walk.documents([RecordKind(kind)]):
            if isinstance(record.record, Fact | Reflection):
                contents.add(record.record.content)
    return contents | set(_history(ward))


def _history(ward: Ward) -> Iterator[str]:
    """Return all contents in history and the log."""
    for entry in ward.store.log.audit():
        for document in (entry.before, entry.after):
            if document and "content" in document:
                yield document["content"]
        if entry.target_type == "fact":
            for version in ward.store.history.versions("fact", entry.target_id):
                yield version.content


@pytest.mark.parametrize(("kind", "damage"), CASES)
def test_damage_is_found_and_repaired(
    request: pytest.FixtureRequest, kind: str, damage: Damage
) -> None:
    ward: Ward = request.getfixturevalue(f"on_{kind}")
    expected = damage.do(ward)
    report = examine(ward)
    assert found(report) == expected
    before = said(ward) if damage.repaired else set()

    fixable = [check for check in report.checks if check.fixable]
    assert bool(fixable) is damage.repaired or expected.keys() & {"indexes"}
    if not damage.repaired:
        return
    done, after = fix(ward, *expected)
    assert not any(repair.refused for repair in done.repairs), done
    assert set(found(after)) <= set(damage.left)
    if kind == "sqlite":  # where a second look at everything costs next to nothing
        assert set(found(examine(ward))) == set(damage.left)
    assert before <= said(ward)
