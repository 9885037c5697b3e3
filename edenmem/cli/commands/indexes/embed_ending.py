"""``edenmem embed switch``: ways out of a switch to another embedding model."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from edenmem.cli.app.invocation import Invocation
from edenmem.cli.commands.indexes.switch_views import print_ending, print_standing, standing_data
from edenmem.cli.terminal.prompts import confirm

if TYPE_CHECKING:
    from edenmem.engine.embeddings.switch import SwitchEnder, SwitchEnding, Tell
    from edenmem.models.switch import SwitchPhase
#: Facts after which a person is told how far it is.
_TOLD = 10_000


class SwitchAction(StrEnum):
    """What can be done about a switch."""

    BACK = "back"
    DROP_OLD = "drop-old"
    ABANDON = "abandon"


class _Way(NamedTuple):
    phases: tuple[SwitchPhase, ...]
    question: str
    go: Callable[[SwitchEnder, Tell], SwitchEnding]


_WAYS = {
    SwitchAction.BACK: _Way(
        ("switched",), "Bring {old} back into force?", lambda ender, tell: ender.back()
    ),
    SwitchAction.DROP_OLD: _Way(
        ("switched", "settling", "clearing"),
        "Drop the vectors of {old} for good?",
        lambda ender, tell: ender.drop_old(tell),
    ),
    SwitchAction.ABANDON: _Way(
        ("filling", "abandoning"),
        "Take away what was prepared of {new}?",
        lambda ender, tell: ender.abandon(tell),
    ),
}


def end_switch(
    run: Invocation, action: SwitchAction, *, patience: float, yes: bool, dry_run: bool
) -> None:
    """Ask, and do it; ``patience`` is how many seconds a search index may take."""
    from edenmem.engine.embeddings.switch import SwitchEnder, switch_status

    ender = SwitchEnder(run.store, run.settings, timeout=patience)
    way = _WAYS[action]
    under_way = ender.expect(*way.phases)
    found = switch_status(run.store) if dry_run else None
    if found is not None:
        if run.out.is_data:
            run.out.objects([{"dry_run": True, "action": action, **standing_data(*found)}])
        else:
            print_standing(run, *found)
        return
    question = way.question.format(old=under_way.previous, new=under_way.model)
    if not confirm(question, yes=yes):
        run.out.note("nothing was changed")
        return

    last = ("", 0)

    def report_progress(what: str, done: int) -> None:
        nonlocal last
        if (what, done // _TOLD) != last:
            last = (what, done // _TOLD)
            run.out.progress(f"{what} … {done:,} facts" if done else f"{what} …")

    print_ending(run, way.go(ender, report_progress))
