"""``edenmem fact dedup``: facts of one scope that say nearly the same, side by side, and merged."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from edenmem.cli.app import options
from edenmem.cli.app.choosing import check_hold_facts, choose_agent, resolve_accounts
from edenmem.cli.app.invocation import Invocation, invocation
from edenmem.cli.commands.memory.dedup_views import (
    choose,
    print_groups,
    print_merges,
    print_proposals,
    show_merge,
)
from edenmem.cli.terminal.prompts import confirm, person_is_there
from edenmem.errors import (
    ConfigError,
    ConflictError,
    EdenmemError,
    ExitCode,
    InputError,
    NotFoundError,
    UsageError,
)

if TYPE_CHECKING:
    from edenmem.embed.protocol import Embedder
    from edenmem.engine.edits.near_duplicates import (
        FactGroup,
        FactMerger,
        Merge,
        MergeReport,
        Proposal,
    )
    from edenmem.llm.protocol import LLM

T = TypeVar("T")


def dedup(
    ctx: typer.Context,
    agent: options.Agent = None,
    kinds: options.Kinds = None,
    user: options.User = None,
    account: options.Account = None,
    floor: Annotated[
        int,
        typer.Option(
            "--floor", min=50, max=100, metavar="PERCENT", help="How near two vectors have to be."
        ),
    ] = 95,
    llm: Annotated[
        bool, typer.Option("--llm", help="Let a model propose what to merge, and into what.")
    ] = False,
    limit: options.Limit = 50,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="With --llm: merge what it proposes, do not ask.")
    ] = False,
    dry_run: options.DryRun = False,
) -> None:
    """Find facts of one scope that say nearly the same, and merge them.

    Each scope of the agent is looked through by itself, by words and by vectors. A group is shown
    side by side; you pick the fact to keep or write one sentence for all or, with --llm, a model
    proposes it. The oldest fact keeps its id and its history; the others stay in history, and
    'fact restore' brings each back.

    \b
    edenmem fact dedup --agent mira --dry-run
    edenmem fact dedup --agent mira --user lena --llm
    edenmem fact dedup --agent mira --llm --yes --format json
    """
    run = invocation(ctx)
    check_hold_facts(kinds or ())
    if yes and not (llm or dry_run):
        raise UsageError(
            "--yes takes what a model proposes: without --llm each group is asked about",
            hint="add --llm, or leave --yes out and choose by hand",
        )
    if not (dry_run or llm or person_is_there()):
        raise UsageError(
            "nobody is here to choose what to merge",
            hint="--llm lets a model propose it, --dry-run only shows the groups",
        )
    chosen = choose_agent(run, agent)
    owners = resolve_accounts(run, user, account, agent_id=chosen.id)

    async def find(merger: FactMerger, model: LLM | None) -> list[FactGroup]:
        found = merger.groups(chosen.id, kinds=kinds or (), user_ids=owners, floor=floor / 100)
        return list(itertools.islice(found, options.fetch(limit)))

    groups = _with_merger(run, find)
    if limit and len(groups) > limit:
        groups.pop()
        run.out.note(f"only the first {limit} groups; --limit 0 takes all")
    if llm and groups:
        _by_model(run, groups, yes=yes, dry_run=dry_run)
    elif dry_run or not groups:
        print_groups(run, groups)
    else:
        _by_hand(run, groups)


def _by_model(run: Invocation, groups: Sequence[FactGroup], *, yes: bool, dry_run: bool) -> None:
    async def propose(merger: FactMerger, model: LLM | None) -> list[Proposal]:
        if model is None:
            from edenmem.engine.factory import LLM_HINT

            raise ConfigError("--llm needs a language model and none is configured", hint=LLM_HINT)
        return await merger.propose(model, groups)

    if not (yes or dry_run or person_is_there()):
        confirm("", yes=False)  # tells what to add, before a model is paid
    proposals = _with_merger(run, propose, llm=True)
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

    async def make(merger: FactMerger, model: LLM | None) -> list[MergeReport]:
        made = []
        for merge in merges:
            try:
                made.append(await merger.merge(merge))
            except (ConflictError, NotFoundError, InputError) as error:
                missed.append(error)  # of this group alone: the others were agreed to as well
        return made

    reports = _with_merger(run, make)
    print_merges(run, reports)
    for error in missed:
        run.out.note(f"not merged: {error.message}")
    if partly or missed or any(report.stayed for report in reports):
        raise typer.Exit(ExitCode.SOME_FAILED)


def _with_merger(
    run: Invocation, work: Callable[[FactMerger, LLM | None], Awaitable[T]], *, llm: bool = False
) -> T:
    async def main(model: LLM | None, embedder: Embedder | None) -> T:
        from edenmem.engine.edits.near_duplicates import FactMerger

        merger = FactMerger(run.store, run.settings, embedder=embedder, actor=run.actor)
        return await work(merger, model)

    return run.with_models(main, llm=llm)
