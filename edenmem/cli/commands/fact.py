"""``edenmem fact``: facts, the atomic statements that search finds."""

from __future__ import annotations

from typing import Annotated

import typer

from edenmem.cli.app import options
from edenmem.cli.app.framework import Command, group
from edenmem.cli.app.invocation import Invocation, invocation
from edenmem.cli.app.views import FACTS, print_edits
from edenmem.cli.commands.edit import await_search, edit
from edenmem.cli.terminal.data import keys_of, to_data
from edenmem.cli.terminal.editing import read_text_option
from edenmem.cli.terminal.prompts import ask_text
from edenmem.models.ids import utc_now
from edenmem.models.memory import NO_FIELDS, Fact
from edenmem.models.scope import Scope, ScopeKind
from edenmem.models.search import FactFilter

app = group("List, add, edit and merge facts.")


@app.command("list", cls=Command)
def list_facts(
    ctx: typer.Context,
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
    run = invocation(ctx)
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


@app.command("add", cls=Command)
def add(
    ctx: typer.Context,
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
    run = invocation(ctx)
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


app.command("edit", cls=Command)(edit)


@app.command("merge", cls=Command)
def merge(
    ctx: typer.Context,
    refs: Annotated[list[str], typer.Argument(metavar="FACT…", help="IDs or ID prefixes.")],
    content: options.Content = None,
    file: options.File = None,
    allow_long: options.AllowLong = False,
    dry_run: options.DryRun = False,
    reason: options.Reason = "",
) -> None:
    """Merge two or more facts of a scope into one, with the sources of all.

    The text is that of the newest fact, or --content. The fact that has it is kept, or else the
    oldest, with its ID and history. 'restore' brings the others back.

    \b
    edenmem fact merge 65a1f0 65b2c4 --dry-run
    edenmem fact merge 65a1f0 65b2c4 --content "Lena drinks tea every morning."
    """
    run = invocation(ctx)
    facts = [run.resolver.fact_id(ref) for ref in refs]
    text = read_text_option(content, file)
    reports = run.edit(
        lambda editor: editor.merge_facts(
            facts, text, allow_long=allow_long, reason=reason, dry_run=dry_run
        ),
        embed=not dry_run,
    )
    print_edits(run, *reports)
