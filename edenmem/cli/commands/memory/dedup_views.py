"""How near-duplicates look side by side, and how a person chooses between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from edenmem.cli.terminal.data import to_data
from edenmem.cli.terminal.editing import show_diff
from edenmem.cli.terminal.prompts import ask_choice, ask_text
from edenmem.cli.terminal.tables import Column
from edenmem.engine.scopes.labels import load_labels
from edenmem.models.memory import Fact
from edenmem.models.scope import Scope
from edenmem.text import one_line

if TYPE_CHECKING:
    from edenmem.cli.app.invocation import Invocation
    from edenmem.engine.edits.near_duplicates import FactGroup, Merge, MergeReport, Proposal

_LEAVE, _WRITE = "leave", "write"


class _Row(NamedTuple):
    number: int
    fact: Fact
    score: float


_COLUMNS: list[Column[_Row]] = [
    Column("", lambda row: row.number, "number"),
    Column("fact", lambda row: row.fact.id, "id"),
    Column("near", lambda row: f"{row.score:.3f}", "number"),
    Column("formed", lambda row: row.fact.formed_at, "time"),
    Column("content", lambda row: row.fact.content, "text"),
]


def show_group(run: Invocation, group: FactGroup, title: str) -> None:
    """Print a group side by side, oldest first."""
    run.out.heading(f"{title}: {_scope(run, group.scope)}")
    run.out.listing(
        [
            _Row(number, fact, score)
            for number, (fact, score) in enumerate(
                zip(group.facts, group.scores, strict=True), start=1
            )
        ],
        _COLUMNS,
    )


def print_groups(run: Invocation, groups: Sequence[FactGroup]) -> None:
    """Print the groups that there are."""
    if run.out.is_data:
        run.out.objects(to_data(group) for group in groups)
        return
    for number, group in enumerate(groups, start=1):
        show_group(run, group, f"group {number} of {len(groups)}")
        run.out.line()
    if not groups:
        run.out.note("no facts of one scope say nearly the same")


def print_proposals(run: Invocation, proposals: Sequence[Proposal]) -> None:
    """Print what a model would merge."""
    if run.out.is_data:
        run.out.objects({"dry_run": True, **to_data(proposal)} for proposal in proposals)
        return
    for number, proposal in enumerate(proposals, start=1):
        show_group(run, proposal.group, f"group {number} of {len(proposals)}")
        for merge in proposal.merges:
            show_merge(run, merge, to_stdout=True)
        if not proposal.merges:
            run.out.line("nothing to merge")
        for why in proposal.refused:
            run.out.safe(f"refused: {why}")
        run.out.line()


def show_merge(run: Invocation, merge: Merge, *, to_stdout: bool = False) -> None:
    """Print a merge as a diff: several sentences become one."""
    show_diff(
        run.out,
        "\n".join(fact.content for fact in (merge.kept, *merge.removed)),
        merge.content,
        old=f"{1 + len(merge.removed)} facts",
        new=f"{merge.kept.id}" + (f" ({one_line(merge.reason)})" if merge.reason else ""),
        to_stdout=to_stdout,
    )


def choose(run: Invocation, group: FactGroup, title: str) -> Merge | None:
    """What a person wants to become of a group; None: leave it."""
    from edenmem.engine.edits.near_duplicates import merge_by_hand

    show_group(run, group, title)
    choices = [
        (_LEAVE, "leave them as they are"),
        *(
            (str(number), f"keep {number}: {one_line(fact.content)}")
            for number, fact in enumerate(group.facts, start=1)
        ),
        (_WRITE, "write one sentence for all of them"),
    ]
    chosen = ask_choice("what to do", "--llm", choices)
    if chosen == _LEAVE:
        return None
    if chosen == _WRITE:
        text = ask_text("the sentence", "--llm", default=group.facts[-1].content)
    else:
        text = group.facts[int(chosen) - 1].content
    return merge_by_hand(group.facts, text, reason="merged by hand")


def print_merges(run: Invocation, reports: Sequence[MergeReport]) -> None:
    """Print what was merged; what stayed is told on stderr."""
    run.out.listing(
        reports,
        [
            Column("kept", lambda report: report.merge.kept.id, "id"),
            Column("removed", lambda report: len(report.removed), "number"),
            Column("content", lambda report: report.merge.content, "text"),
        ],
        empty="nothing was merged",
    )
    for report in reports:
        for fact_id, why in report.stayed:
            run.out.note(f"{fact_id} stays: {why}")


def _scope(run: Invocation, scope: Scope) -> str:
    return load_labels(run.store, [scope]).full(scope)
