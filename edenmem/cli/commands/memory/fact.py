"""``edenmem fact``: facts, the atomic statements that search finds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from edenmem.cli.app import options
from edenmem.cli.app.choosing import (
    check_hold_facts,
    choose_agent,
    choose_reader,
    choose_scope,
)
from edenmem.cli.app.framework import Command, group
from edenmem.cli.app.invocation import Invocation, invocation
from edenmem.cli.app.views import (
    HISTORY,
    agent_name,
    fact_columns,
    held_columns,
    print_edit,
    print_edits,
    scope_name,
)
from edenmem.cli.commands.memory.fact_dedup import dedup
from edenmem.cli.commands.memory.why import fact_why
from edenmem.cli.commands.search.searchable import await_search
from edenmem.cli.terminal.data import keys_of, to_data
from edenmem.cli.terminal.editing import change_text, read_text_option
from edenmem.cli.terminal.prompts import ask_text, confirm
from edenmem.cli.terminal.times import parse_duration
from edenmem.engine.reports import EditReport
from edenmem.errors import UsageError
from edenmem.models.host import Agent
from edenmem.models.memory import Fact, Held
from edenmem.models.scope import Scope
from edenmem.models.search import FactFilter
from edenmem.text import many, one_line

if TYPE_CHECKING:
    from edenmem.engine.edits.editor import Editor

app = group("List, show, add, edit, restore, explain and merge facts.")

_Which = Annotated[str, typer.Argument(metavar="FACT", help="ID or ID prefix.")]


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
    unconfirmed: Annotated[
        bool, typer.Option("--unconfirmed", help="Only facts that their sources do not fully show.")
    ] = False,
    held: Annotated[
        bool, typer.Option("--held", help="Instead, facts and reflections that wait for review.")
    ] = False,
    limit: options.Limit = 50,
    vectors: options.Vectors = False,
) -> None:
    """List facts of an agent, newest first. Add --user or --group to include theirs.

    \b
    edenmem fact list --agent mira
    edenmem fact list --agent mira --user lena -s user --since 7d
    """
    run = invocation(ctx)
    begin, end = options.period(since, until)
    if held and (begin or end or unconfirmed or vectors):
        raise UsageError(
            "--held cannot be combined with --since, --until, --unconfirmed, --vectors"
        )
    chosen = choose_agent(run, agent)
    check_hold_facts(kinds or ())
    scopes = run.service.scopes.readable(chosen, **choose_reader(run, chosen, owners, kinds))
    if held:
        _list_held(run, chosen, scopes, session, limit)
        return
    facts = run.service.memory.facts(
        FactFilter(
            scopes=scopes,
            since=begin,
            until=end,
            session_id=run.resolver.session(session).id if session else None,
            unconfirmed=unconfirmed,
        ),
        limit=options.fetch(limit),
        with_vectors=vectors,
    )
    run.out.listing(
        facts,
        fact_columns(run),
        limit=limit,
        data=lambda fact: to_data(fact, vectors=vectors),
        empty="no facts",
        header=keys_of(Fact, vectors=vectors),
    )


def _list_held(
    run: Invocation, agent: Agent, scopes: tuple[Scope, ...], session: str | None, limit: int
) -> None:
    """List items that wait for review, with those of a session's own scope if it is named."""
    source = run.resolver.session(session).id if session else None
    if source is not None:
        scopes = (*scopes, Scope.session(agent.id, source))
    found = run.service.memory.held(scopes)
    run.out.listing(
        (each for each in found if source in (None, each.session_id)),
        held_columns(run),
        limit=limit,
        data=to_data,
        empty="nothing waits for review",
        header=keys_of(Held),
    )


@app.command("show", cls=Command)
def show(ctx: typer.Context, fact: _Which, vectors: options.Vectors = False) -> None:
    """Show a fact in full.

    \b
    edenmem fact show 65a1f0
    """
    run = invocation(ctx)
    found = run.service.memory.find_fact(fact)
    if vectors:
        found = run.service.memory.fact(found.id, with_vector=True) or found
    run.out.record(
        found, _fields(run, found), text=found.content, data=lambda f: to_data(f, vectors=vectors)
    )


def _times(count: int) -> str | None:
    return {0: None, 1: "once"}.get(count, f"{count:,} times")


def _fields(run: Invocation, fact: Fact) -> list[tuple[str, object]]:
    return [
        ("id", fact.id),
        ("agent", agent_name(run, fact.agent_id)),
        ("scope", scope_name(run, fact.home, within_agent=True)),
        ("said", fact.said_at),
        ("formed", fact.formed_at),
        ("updated", fact.updated_at),
        ("version", fact.version),
        ("private", fact.private),
        ("quote", fact.quote or None),
        ("unconfirmed", fact.unconfirmed or None),
        ("session", fact.session_id),
        ("messages", list(fact.source_message_ids)),
        ("retrieved", _times(fact.access_count)),
        ("last retrieved", fact.last_accessed_at),
        ("vector model", fact.embedding_model or "none yet"),
        ("before", fact.previous_content),
    ]


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
    wait: options.Wait = False,
    timeout: options.WaitTimeout = "60s",
    dry_run: options.DryRun = False,
    reason: options.Reason = "",
) -> None:
    """Add a fact to a scope.

    \b
    edenmem fact add --agent mira --content "The walk is on Saturday."
    edenmem fact add --agent mira --scope user --user lena "Lena likes tea."
    """
    run = invocation(ctx)
    check_hold_facts([named.kind] if named.kind else ())
    seconds = parse_duration(timeout, "--timeout").total_seconds()
    new = read_text_option(text if content is None else content, file)
    scope = choose_scope(run, named, new_group=True)
    if new is None:
        new = ask_text("text", "TEXT, --content or --file")
    embeddings = "" if dry_run else run.service.embeddings.first_destination()
    if embeddings:
        run.out.note(f"embeddings: {embeddings}")
    report = run.edit(
        lambda editor: editor.add_fact(
            scope, new, private=private, allow_long=allow_long, reason=reason, dry_run=dry_run
        ),
        embed=not dry_run,
    )
    print_edit(run, report)
    if not dry_run:
        await_search(run, report.target_id, wait=wait, seconds=seconds)


@app.command("edit", cls=Command)
def edit(
    ctx: typer.Context,
    fact: _Which,
    content: options.Content = None,
    file: options.File = None,
    allow_long: options.AllowLong = False,
    private: Annotated[
        bool | None, typer.Option("--private/--no-private", help="Forbid or allow propagation.")
    ] = None,
    wait: options.Wait = False,
    timeout: options.WaitTimeout = "60s",
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
    reason: options.Reason = "",
) -> None:
    """Edit the text of a fact, in $EDITOR or with --content. Concurrent edits conflict (exit 4).

    \b
    edenmem fact edit 65f3a0c2
    edenmem fact edit 65f3a0c2 --content "It starts at 18:00." --yes --reason new
    """
    run = invocation(ctx)
    seconds = parse_duration(timeout, "--timeout").total_seconds()
    found = run.service.memory.find_fact(fact)
    new = read_text_option(content, file)
    if private is not None:
        report = run.edit(
            lambda editor: editor.set_private(
                "fact", found.id, private, reason=reason, dry_run=dry_run
            )
        )
        print_edit(run, report)
        if new is None:
            return

    def write(text: str, only_try: bool) -> EditReport:
        return run.edit(
            lambda editor: editor.edit_fact(
                found.id,
                text,
                expected_version=found.version,
                allow_long=allow_long,
                reason=reason,
                dry_run=only_try,
            ),
            embed=not only_try,
        )

    written = change_text(
        run.out,
        found.content,
        name=f"fact-{found.id}",
        given=new,
        yes=yes,
        dry_run=dry_run,
        write=write,
        show=lambda report: print_edit(run, report),
    )
    if written is not None:
        await_search(run, found.id, wait=wait, seconds=seconds)


@app.command("delete", cls=Command)
def delete(
    ctx: typer.Context,
    facts: Annotated[list[str], typer.Argument(metavar="FACT…", help="IDs or ID prefixes.")],
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
    reason: options.Reason = "",
) -> None:
    """Delete facts. 'fact restore' brings them back from history; 'forget --fact' erases them.

    \b
    edenmem fact delete 65a1f0 --dry-run
    edenmem fact delete 65a1f0 65b2c4 --yes --reason "said in jest"
    """
    run = invocation(ctx)
    found = [run.service.memory.find_fact(fact) for fact in facts]
    for fact in found:
        run.out.note(f"{fact.id}  {one_line(fact.content, 60)}")
    count = many(len(found), "fact")
    if not dry_run and not confirm(f"Delete {count}?", yes=yes):
        run.out.note("nothing was changed")
        return

    def work(editor: Editor) -> list[EditReport]:
        return [
            editor.delete_fact(
                fact.id, expected_version=fact.version, reason=reason, dry_run=dry_run
            )
            for fact in found
        ]

    print_edits(run, run.edit(work))


@app.command("history", cls=Command)
def history(ctx: typer.Context, fact: _Which) -> None:
    """Show all versions of a fact; deleted facts need the full ID.

    \b
    edenmem fact history 65a1f0
    """
    run = invocation(ctx)
    versions = run.service.history.fact_versions(fact)
    run.out.listing(versions, HISTORY, empty="no earlier versions")


@app.command("restore", cls=Command)
def restore(
    ctx: typer.Context,
    fact: _Which,
    version: Annotated[
        int | None, typer.Option("--version", min=1, metavar="N", help="Version to restore.")
    ] = None,
    wait: options.Wait = False,
    timeout: options.WaitTimeout = "60s",
    dry_run: options.DryRun = False,
    reason: options.Reason = "",
) -> None:
    """Restore a deleted fact, or an earlier version of a fact.

    \b
    edenmem fact restore 65a1f0 --version 1
    """
    run = invocation(ctx)
    seconds = parse_duration(timeout, "--timeout").total_seconds()
    fact_id = run.resolver.fact_id(fact)
    report = run.edit(
        lambda editor: editor.restore_fact(
            fact_id, version=version, reason=reason, dry_run=dry_run
        ),
        embed=not dry_run,
    )
    print_edit(run, report, verbs=("restore", "restored"))
    if not dry_run:
        await_search(run, fact_id, wait=wait, seconds=seconds)


app.command("dedup", cls=Command)(dedup)
app.command("why", cls=Command)(fact_why)
