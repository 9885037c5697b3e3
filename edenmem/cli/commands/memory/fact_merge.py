"""``edenmem fact merge``: find near-duplicate facts of a scope, and merge them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeVar

import typer

from edenmem.cli.app import options
from edenmem.cli.app.choosing import check_hold_facts, choose_agent, resolve_accounts
from edenmem.cli.app.invocation import Invocation, invocation
from edenmem.cli.app.views import scope_name
from edenmem.cli.terminal.data import plan_data
from edenmem.cli.terminal.editing import show_diff
from edenmem.cli.terminal.prompts import ask_choice, ask_text, confirm, person_is_there
from edenmem.cli.terminal.tables import Column
from edenmem.errors import (
    ConflictError,
    EdenmemError,
    ExitCode,
    InputError,
    NotFoundError,
    UsageError,
)
from edenmem.models.memory import Fact
from edenmem.text import many, one_line

if TYPE_CHECKING:
    from edenmem.engine.edits.near_duplicates import FactGroup, Merge, MergeReport, Proposal
    from edenmem.engine.service import MemoryService


T = TypeVar("T")


def merge(
    ctx: typer.Context,
    named: options.Scopes,
    floor: Annotated[
        int,
        typer.Option(
            "--floor", min=50, max=100, metavar="PERCENT", help="Minimum similarity of vectors."
        ),
    ] = 95,
    llm: Annotated[bool, typer.Option("--llm", help="Ask a model to propose merges.")] = False,
    limit: options.Limit = 50,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="With --llm: accept all proposals.")
    ] = False,
    dry_run: options.DryRun = False,
) -> None:
    """Find near-duplicate facts within a scope, and merge them.

    Compares the facts of each scope by words and vectors. For each group of near-duplicates, choose
    the fact to keep or write one sentence for all; with --llm, a model proposes the sentence. The
    oldest fact keeps its ID and history. 'restore' brings the others back.

    \b
    edenmem fact merge --agent mira --dry-run
    edenmem fact merge --agent mira --user lena --llm
    edenmem fact merge --agent mira --llm --yes --format json
    """
    run = invocation(ctx)
    check_hold_facts(named.kinds or ())
    if yes and not (llm or dry_run):
        raise UsageError("--yes needs --llm", hint="add --llm, or remove --yes and choose by hand")
    chosen = choose_agent(run, named.agent)
    owners = resolve_accounts(run, named.user, named.account, agent_id=chosen.id)
    if not (dry_run or llm or person_is_there()):
        raise UsageError(
            "choosing what to merge needs a terminal",
            hint="use --llm for merges proposed by a model, or list the groups with --dry-run",
        )

    async def find(service: MemoryService) -> list[FactGroup]:
        found = service.duplicates.groups(
            chosen.id, kinds=named.kinds or (), user_ids=owners, floor=floor / 100
        )
        return list(itertools.islice(found, options.fetch(limit)))

    groups = run.serve(find)
    if limit and len(groups) > limit:
        groups.pop()
        run.out.note(f"showing the first {many(limit, 'group')}; --limit 0 shows all")
    if llm and groups:
        _by_model(run, groups, yes=yes, dry_run=dry_run)
    elif dry_run or not groups:
        print_groups(run, groups)
    else:
        _by_hand(run, groups)


def _by_model(run: Invocation, groups: Sequence[FactGroup], *, yes: bool, dry_run: bool) -> None:
    if not (yes or dry_run or person_is_there()):
        confirm("", yes=False)  # fails before a model is called
    proposals = run.serve(lambda service: service.duplicates.propose(groups), llm=True)
    if dry_run:
        print_proposals(run, proposals)
        return
    for proposal in proposals:
        for why in proposal.refused:
            run.out.note(f"{proposal.group.facts[0].id}: refused: {why}")
    merges = [merge for proposal in proposals for merge in proposal.merges]
    agreed = []
    for merge in merges:
        show_merge(run, merge)
        if confirm("Merge?", yes=yes):
            agreed.append(merge)
    _merge(run, agreed, partly=any(proposal.refused for proposal in proposals))


def _by_hand(run: Invocation, groups: Sequence[FactGroup]) -> None:
    merges = []
    for number, group in enumerate(groups, start=1):
        merge = choose(run, group, f"group {number} of {len(groups)}")
        if merge is not None:
            merges.append(merge)
    _merge(run, merges)


def _merge(run: Invocation, merges: Sequence[Merge], *, partly: bool = False) -> None:
    missed: list[EdenmemError] = []

    async def make(service: MemoryService) -> list[MergeReport]:
        made = []
        for merge in merges:
            try:
                made.append(await service.duplicates.merge(merge))
            except (ConflictError, NotFoundError, InputError) as error:
                missed.append(error)  # only this group; the others were confirmed too
        return made

    reports = run.serve(make)
    print_merges(run, reports)
    for error in missed:
        run.out.note(f"not merged: {error.message}")
    if partly or missed or any(report.stayed for report in reports):
        raise typer.Exit(ExitCode.SOME_FAILED)


_LEAVE, _WRITE = "leave", "write"


class _Row(NamedTuple):
    number: int
    fact: Fact
    score: float


_COLUMNS: list[Column[_Row]] = [
    Column("", lambda row: row.number, "number"),
    Column("fact", lambda row: row.fact.id, "id"),
    Column("near", lambda row: f"{row.score:.3f}", "number"),
    Column("when", lambda row: row.fact.recent_at, "time"),
    Column("content", lambda row: row.fact.content, "text"),
]


def show_group(run: Invocation, group: FactGroup, title: str) -> None:
    """Print the facts of a group, oldest first."""
    run.out.heading(f"{title}: {scope_name(run, group.scope)}")
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
    """Print all groups."""
    run.out.report(groups, lambda: _show_groups(run, groups))


def _show_groups(run: Invocation, groups: Sequence[FactGroup]) -> None:
    for number, group in enumerate(groups, start=1):
        show_group(run, group, f"group {number} of {len(groups)}")
        run.out.line()
    if not groups:
        run.out.note("no near-duplicates")


def print_proposals(run: Invocation, proposals: Sequence[Proposal]) -> None:
    """Print the merges that a model proposes."""
    run.out.report(proposals, lambda: _show_proposals(run, proposals), data=plan_data)


def _show_proposals(run: Invocation, proposals: Sequence[Proposal]) -> None:
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
    """Print a merge as a diff."""
    show_diff(
        run.out,
        "\n".join(fact.content for fact in (merge.kept, *merge.removed)),
        merge.content,
        old=f"{1 + len(merge.removed)} facts",
        new=f"{merge.kept.id}" + (f" ({one_line(merge.reason)})" if merge.reason else ""),
        to_stdout=to_stdout,
    )


def choose(run: Invocation, group: FactGroup, title: str) -> Merge | None:
    """Ask how to merge a group; None leaves it unchanged."""
    from edenmem.engine.edits.near_duplicates import merge_by_hand

    show_group(run, group, title)
    choices = [
        (_LEAVE, "leave unchanged"),
        *(
            (str(number), f"keep {number}: {one_line(fact.content)}")
            for number, fact in enumerate(group.facts, start=1)
        ),
        (_WRITE, "write one sentence for all"),
    ]
    chosen = ask_choice("what to do", "--llm", choices)
    if chosen == _LEAVE:
        return None
    if chosen == _WRITE:
        text = ask_text("sentence", "--llm", default=group.facts[-1].content)
    else:
        text = group.facts[int(chosen) - 1].content
    return merge_by_hand(group.facts, text, reason="merged by hand")


def print_merges(run: Invocation, reports: Sequence[MergeReport]) -> None:
    """Print merged facts; facts that were not removed go to stderr."""
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
            run.out.note(f"kept {fact_id}: {why}")
