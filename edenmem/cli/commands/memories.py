"""``edenmem fact|reflection|consolidation``: lists of memory, and new entries."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from edenmem.cli.app import options
from edenmem.cli.app.framework import Command, group
from edenmem.cli.app.invocation import Invocation, end_if
from edenmem.cli.app.views import FACTS, REFLECTIONS, TEXTS, print_edits, scope_name
from edenmem.cli.commands.change import await_search, edit, edit_target
from edenmem.cli.commands.show import show_text
from edenmem.cli.terminal.data import keys_of, to_data
from edenmem.cli.terminal.editing import read_text_option, show_diff
from edenmem.cli.terminal.prompts import ask_choice, ask_text, person_is_there
from edenmem.cli.terminal.tables import Column
from edenmem.engine.scopes.references import Target
from edenmem.errors import ConflictError, EdenmemError, InputError, NotFoundError, UsageError
from edenmem.models.ids import utc_now
from edenmem.models.memory import NO_FIELDS, Consolidation, Fact, Reflection
from edenmem.models.scope import Scope, ScopeKind
from edenmem.models.search import FactFilter
from edenmem.text import many, one_line

if TYPE_CHECKING:
    from edenmem.engine.edits.near_duplicates import FactGroup, MergeReport
    from edenmem.engine.service import MemoryService


fact_app = group("List, add, edit and merge facts.")
reflection_app = group("List and add reflections.")
consolidation_app = group("List, show, compare and edit consolidated texts.")


@fact_app.command("list", cls=Command)
def list_facts(
    run: Invocation,
    agent: options.Agent = None,
    kinds: options.Kinds = None,
    *,
    owners: options.Owners,
    session: options.Session = None,
    since: options.Since = None,
    until: options.Until = None,
    tags: options.WithTags = None,
    key: options.WithKey = None,
    expired: Annotated[
        bool, typer.Option("--expired", help="Instead, facts that have expired.")
    ] = False,
    unconfirmed: Annotated[
        bool, typer.Option("--unconfirmed", help="Only facts that their sources do not fully show.")
    ] = False,
    limit: options.Limit = 50,
    vectors: options.Vectors = False,
) -> None:
    """List facts of an agent, newest first. Add --user or --group to include theirs.

    \b
    edenmem fact list --agent mira
    edenmem fact list --agent mira --user lena -s user --since 7d
    edenmem fact list --agent mira --tag home
    """
    begin, end = options.period(since, until)
    chosen = options.choose_agent(run, agent)
    options.check_hold_facts(kinds or ())
    scopes = run.service.scopes.readable(
        chosen, **options.choose_reader(run, chosen, owners, kinds)
    )
    facts = run.service.memory.facts(
        FactFilter(
            scopes=scopes,
            since=begin,
            until=end,
            session_id=run.resolver.session(session).id if session else None,
            tags=tuple(tags or ()),
            key=key,
            unconfirmed=unconfirmed,
            expired_at=utc_now() if expired else None,
        ),
        limit=options.fetch(limit),
        with_vectors=vectors,
    )
    run.out.listing(
        facts,
        FACTS,
        limit=limit,
        data=lambda fact: to_data(fact, vectors=vectors),
        empty="no facts",
        header=keys_of(Fact, vectors=vectors),
    )
    if not any((owners.user, owners.account, owners.group, kinds, run.out.is_data)):
        others = [ScopeKind.USER, ScopeKind.GROUP]
        statuses = run.service.scopes.statuses(agent_id=chosen.id, kinds=others)
        if any(status.facts for status in statuses):
            run.out.note("facts of users and groups are not listed: add --user or --group")


@fact_app.command("add", cls=Command)
def add(
    run: Invocation,
    text: Annotated[str | None, typer.Argument(metavar="[TEXT]", help="Text of the fact.")] = None,
    *,
    named: options.FactScope,
    content: options.Content = None,
    file: options.File = None,
    allow_long: options.AllowLong = False,
    private: options.Private = False,
    fields: options.FactFieldOptions,
    wait: options.Wait = False,
    dry_run: options.DryRun = False,
    reason: options.Reason = "",
) -> None:
    """Add a fact to a scope.

    \b
    edenmem fact add --agent mira "The hall is closed." --tag hall --expires 90d
    edenmem fact add --agent mira --content "The walk is on Saturday."
    edenmem fact add --agent mira --scope user --user lena "Lena likes tea."
    """
    options.check_hold_facts([named.kind] if named.kind else ())
    scope, new = read_new(run, named, text, content, file)
    embeddings = "" if dry_run else run.service.embeddings.first_destination()
    if embeddings:
        run.out.note(f"embeddings: {embeddings}")
    report = run.edit(
        lambda editor: editor.add_fact(
            scope,
            new,
            private=private,
            fields=fields.change(NO_FIELDS),
            allow_long=allow_long,
            reason=reason,
            dry_run=dry_run,
        ),
        embed=not dry_run,
    )
    print_edits(run, report)
    if not dry_run:
        await_search(run, report.target_id, wait=wait)


def read_new(
    run: Invocation,
    named: options.FactScope,
    text: str | None,
    content: str | None,
    file: str | None,
) -> tuple[Scope, str]:
    """Return the scope and the text of a new memory; ask for what is missing."""
    new = read_text_option(text if content is None else content, file)
    scope = options.choose_scope(run, named, new_group=True)
    return scope, ask_text("text", "TEXT, --content or --file") if new is None else new


fact_app.command("edit", cls=Command)(edit)


@fact_app.command("merge", cls=Command)
def merge(
    run: Invocation,
    named: options.Scopes,
    limit: options.Limit = 50,
    dry_run: options.DryRun = False,
) -> None:
    """Find near-duplicate facts within a scope, and merge them.

    Compares the facts of each scope by words and vectors. For each group of near-duplicates, choose
    the fact to keep, or write one sentence for all. The oldest fact keeps its ID and history.
    'restore' brings the others back.

    \b
    edenmem fact merge --agent mira --dry-run
    edenmem fact merge --agent mira --user lena
    """
    options.check_hold_facts(named.kinds or ())
    chosen = options.choose_agent(run, named.agent)
    owners = options.resolve_accounts(run, named.user, named.account, agent_id=chosen.id)
    if not (dry_run or person_is_there()):
        raise UsageError(
            "choosing what to merge needs a terminal", hint="list the groups with --dry-run"
        )

    def find(service: MemoryService) -> list[FactGroup]:
        found = service.duplicates.groups(chosen.id, kinds=named.kinds or (), user_ids=owners)
        return list(itertools.islice(found, options.fetch(limit)))

    groups = run.with_models(find)
    if limit and len(groups) > limit:
        groups.pop()
        run.out.note(f"showing the first {many(limit, 'group')}; --limit 0 shows all")
    if dry_run or not groups:
        if run.out.data(groups):
            return
        for number, group in enumerate(groups, start=1):
            _show_group(run, group, number, len(groups))
            run.out.line()
        if not groups:
            run.out.note("no near-duplicates")
    else:
        texts = [
            _choose(run, group, number, len(groups)) for number, group in enumerate(groups, start=1)
        ]
        chosen_texts = zip(groups, texts, strict=True)
        _merge(run, [(group.facts, text) for group, text in chosen_texts if text is not None])


def _merge(run: Invocation, merges: Sequence[tuple[Sequence[Fact], str]]) -> None:
    """Merge facts, and print the merged ones; facts that were not removed go to stderr."""
    missed: list[EdenmemError] = []

    async def make(service: MemoryService) -> list[MergeReport]:
        made = []
        for facts, text in merges:
            try:
                made.append(await service.duplicates.merge(facts, text))
            except (ConflictError, NotFoundError, InputError) as error:
                missed.append(error)  # only this group; the others were chosen too
        return made

    reports = run.serve(make)
    columns: list[Column[MergeReport]] = [
        Column("kept", lambda report: report.kept_id, "id"),
        Column("removed", lambda report: len(report.removed), "number"),
        Column("content", lambda report: report.content, "text"),
    ]
    run.out.listing(reports, columns, empty="nothing was merged")
    stayed = [each for report in reports for each in report.stayed]
    run.out.notes(f"kept {fact_id}: {why}" for fact_id, why in stayed)
    run.out.notes(f"not merged: {error.message}" for error in missed)
    end_if(missed or stayed)


def _show_group(run: Invocation, group: FactGroup, number: int, total: int) -> None:
    """Print the facts of a group, oldest first."""
    run.out.heading(f"group {number} of {total}: {scope_name(run, group.scope)}")
    rows = list(zip(itertools.count(1), group.facts, group.scores))
    columns: list[Column[tuple[int, Fact, float]]] = [
        Column("", lambda row: row[0], "number"),
        Column("fact", lambda row: row[1].id, "id"),
        Column("near", lambda row: row[2], "number"),
        Column("when", lambda row: row[1].recent_at, "time"),
        Column("content", lambda row: row[1].content, "text"),
    ]
    run.out.listing(rows, columns)


def _choose(run: Invocation, group: FactGroup, number: int, total: int) -> str | None:
    """Ask for the text of the merged fact; None leaves the group unchanged."""
    _show_group(run, group, number, total)
    keep = [
        (str(place), f"keep {place}: {one_line(fact.content)}")
        for place, fact in enumerate(group.facts, start=1)
    ]
    choices = [("", "leave unchanged"), *keep, ("write", "write one sentence for all")]
    chosen = ask_choice("what to do", "the choice", choices)
    if not chosen:
        return None
    if chosen == "write":
        return ask_text("sentence", "the sentence", default=group.facts[-1].content)
    return group.facts[int(chosen) - 1].content


# -- reflections and texts ------------------------------------------------------------------------


@reflection_app.command("list", cls=Command)
def list_reflections(
    run: Invocation,
    named: options.OneScope,
    account: options.Account = None,
    pending: Annotated[
        bool | None,
        typer.Option(
            "--pending/--absorbed", help="Only pending or only absorbed ones.  [default: both]"
        ),
    ] = None,
    since: options.Since = None,
    until: options.Until = None,
    limit: options.Limit = 50,
) -> None:
    """List reflections of a scope or agent, newest first.

    \b
    edenmem reflection list --agent mira --pending
    edenmem reflection list --agent mira --since 7d
    edenmem reflection list --agent mira --user lena
    """
    begin, end = options.period(since, until)
    is_of_user = bool(named.user or account)
    usual = ScopeKind.USER if is_of_user else ScopeKind.AGENT
    if named.group or named.shard or named.session or named.kind not in (None, usual):
        scopes: tuple[Scope, ...] = (options.choose_scope(run, named),)
    else:
        agent_id = options.choose_agent(run, named.agent).id
        if is_of_user:
            owners = options.resolve_accounts(run, named.user, account, agent_id=agent_id)
            scopes = tuple(Scope.user(agent_id, owner) for owner in owners or ())
        else:
            scopes = run.service.scopes.of_agent(agent_id, [named.kind] if named.kind else [])
    run.out.listing(
        run.service.memory.reflections(
            scopes,
            absorbed=None if pending is None else not pending,
            since=begin,
            before=end,
            limit=options.fetch(limit),
        ),
        REFLECTIONS,
        limit=limit,
        empty="no reflections",
        header=Reflection,
    )


@reflection_app.command("add", cls=Command)
def add_reflection(
    run: Invocation,
    text: Annotated[
        str | None, typer.Argument(metavar="[TEXT]", help="Text of the reflection.")
    ] = None,
    *,
    named: options.OneScope,
    content: options.Content = None,
    file: options.File = None,
    allow_long: options.AllowLong = False,
    private: options.Private = False,
    dry_run: options.DryRun = False,
    reason: options.Reason = "",
) -> None:
    """Add a reflection, pending until its scope is consolidated.

    \b
    edenmem reflection add --agent mira --user lena "Wants short answers."
    """
    scope, new = read_new(run, named, text, content, file)
    report = run.edit(
        lambda editor: editor.add_reflection(
            scope, new, private=private, allow_long=allow_long, reason=reason, dry_run=dry_run
        )
    )
    print_edits(run, report)


@consolidation_app.command("list", cls=Command)
def list_texts(
    run: Invocation,
    named: options.Scopes,
    limit: options.Limit = 50,
) -> None:
    """List consolidated texts.

    \b
    edenmem consolidation list --agent mira
    """
    run.out.listing(
        run.service.memory.texts(**options.choose_scopes(run, named)),
        TEXTS,
        limit=limit,
        empty="no texts yet",
        header=Consolidation,
    )


@consolidation_app.command("show", cls=Command)
def show(
    run: Invocation,
    named: options.OneScope,
) -> None:
    """Show the text of a scope.

    \b
    edenmem consolidation show --agent mira --user lena
    """
    show_text(run, options.choose_scope(run, named))


@consolidation_app.command("edit", cls=Command)
def edit_text(
    run: Invocation,
    named: options.OneScope,
    content: options.Content = None,
    file: options.File = None,
    allow_long: options.AllowLong = False,
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
    reason: options.Reason = "",
) -> None:
    """Edit or create the text of a scope, in $EDITOR or with --content.

    \b
    edenmem consolidation edit --agent mira --user lena
    edenmem consolidation edit --agent mira --file mira.md --yes
    """
    new = read_text_option(content, file)
    target = Target("scope", "", options.choose_scope(run, named, new_group=True))
    edit_target(run, target, new, allow_long=allow_long, yes=yes, dry_run=dry_run, reason=reason)


@consolidation_app.command("diff", cls=Command)
def diff(
    run: Invocation,
    named: options.OneScope,
    old: Annotated[
        int | None,
        typer.Option(
            "--from", min=0, metavar="N", help="First version.  [default: the one before --to]"
        ),
    ] = None,
    new: Annotated[
        int | None,
        typer.Option("--to", min=1, metavar="N", help="Second version.  [default: the latest]"),
    ] = None,
) -> None:
    """Show the difference between two versions of a text.

    \b
    edenmem consolidation diff --agent mira --user lena
    """
    scope = options.choose_scope(run, named)
    change = run.service.history.compare_texts(scope, old=old, new=new)
    data = {
        "from": change.old_version,
        "to": change.new_version,
        "before": change.before,
        "after": change.after,
    }
    if not run.out.data([data], dict):
        show_diff(
            run.out,
            change.before,
            change.after,
            old=f"version {change.old_version}",
            new=f"version {change.new_version}",
            to_stdout=True,
        )
