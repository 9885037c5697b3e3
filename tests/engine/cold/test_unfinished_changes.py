"""A cold run settles what a process that died left of its changes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from tests.engine.cold.conftest import Quiet


async def test_changes_that_were_cut_off_are_settled_first(quiet: Quiet, monkeypatch: Any) -> None:
    asked = []
    real = quiet.store.finish_changes
    monkeypatch.setattr(
        quiet.store, "finish_changes", lambda *, before: asked.append(before) or real(before=before)
    )
    await quiet.run(dry_run=True)
    assert asked == []
    await quiet.run()
    assert asked == [quiet.clock() - timedelta(minutes=10)]
