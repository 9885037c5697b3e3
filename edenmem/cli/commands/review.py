"""``edenmem review``: decide what becomes memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from edenmem.cli.app import options
from edenmem.cli.app.framework import Command, group
from edenmem.cli.app.invocation import Invocation, end_if
from edenmem.cli.app.views import print_edits, scope_name
from edenmem.cli.terminal.editing import change_text, read_text_option, show_diff
from edenmem.cli.terminal.prompts import ask_key, person_is_there
from edenmem.cli.terminal.tables import Column
from edenmem.errors import ConflictError, EdenmemError, NotFoundError, UsageError
from edenmem.models.memory import ReviewItem
from edenmem.text import ago, many

if TYPE_CHECKING:
    from edenmem.engine.edits.reviewer import Reviewed
    from edenmem.engine.reports import EditReport
    from edenmem.engine.service import MemoryService
    from edenmem.models.host import Agent

app = group("Decide what becomes memory: items that are held, or in doubt.")

Items = Annotated[
    list[str], typer.Argument(metavar="ITEM…", help="IDs or ID prefixes of 'review list'.")
]


_COLUMNS: list[Column[ReviewItem]] = [
    Column("id", lambda item: item.id, "id"),
    Column("state", lambda item: item.state),
    Column("scope", lambda item: item.home, names="scope"),
    Column("since", lambda item: item.held_at, "time"),
    Column("content", lambda i: f"{i.content} ({i.reasons})" if i.reasons else i.content, "text"),
]

_HELP = {
    "y": "accept: a held item becomes memory, one in doubt is confirmed",
    "n": "reject: a held item is removed, one in doubt is deleted",
    "e": "edit the text, and accept it",
    "r": "accept, and replace the fact that it resembles",
    "s": "skip: decide later",
    "q": "quit",
    "?": "show these keys",
}


@app.command("walk", cls=Command)
def walk(run: Invocation, named: options.Scopes) -> None:
    """Decide about each item on a terminal (the default).

    Shows the quote, the reasons, similar facts, and the difference if it resembles one. Decisions
    are made at once; 'edenmem undo --last' takes back all of this run.

    \b
    edenmem review --agent mira
    edenmem review walk --agent mira --user lena
    """
    run.out.people_only()
    if not person_is_there():
        raise UsageError(
            "review needs a terminal", hint="in scripts: edenmem review list|accept|reject"
        )
    items = _find(run, named, options.choose_agent(run, named.agent))
    if not items:
        run.out.note("nothing waits for review")
    for number, item in enumerate(items, start=1):
        try:
            if not _decide(run, item.id, f"{number} of {len(items)}"):
                return
        except (ConflictError, NotFoundError) as error:  # another reviewer was faster
            run.out.note(f"not changed: {error.message}")


def _find(run: Invocation, named: options.Scopes, agent: Agent) -> list[ReviewItem]:
    """Return the items of an agent, and print which texts wait for a person."""
    users = options.resolve_accounts(run, named.user, named.account, agent_id=agent.id)
    editor, kinds = run.service.editor, named.kinds or ()
    for scope, found in editor.texts(agent.id, kinds=kinds, user_ids=users):
        run.out.note(
            f"the text of {scope_name(run, scope)} waits: “{found.reflection}” contradicts"
            f" “{found.fixed}” by {found.by}; see 'edenmem help formation'"
        )
    return list(editor.items(agent.id, kinds=kinds, user_ids=users))


def _show(run: Invocation, title: str, reviewed: Reviewed) -> None:
    """Print an item with what speaks for and against it."""
    item = reviewed.item
    about = f"{item.kind} of {scope_name(run, item.home)}, {item.state} {ago(item.held_at)}"
    run.out.line()
    run.out.heading(f"{title}: {about}")
    similar = [
        (f"similar {place}", f"{each.fact.content} ({ago(each.fact.recent_at)})")
        for place, each in enumerate(reviewed.similar, start=1)
        if each.fact is not reviewed.near
    ]
    run.out.fields(
        [
            ("content", item.content),
            ("quote", f"“{item.quote}”" if item.quote else ""),
            ("doubt", item.reasons),
            ("private", "yes" if item.private else ""),
            *similar,
        ]
    )
    if reviewed.near is not None:
        old = f"fact {reviewed.near.id}"
        show_diff(run.out, reviewed.near.content, item.content, old=old, new="this item")


def _decide(run: Invocation, item_id: str, title: str) -> bool:
    """Show an item, ask what to do with it, and do it; return False to quit."""
    reviewed = run.serve(lambda service: service.review_item(item_id))
    _show(run, title, reviewed)
    item, near = reviewed.item, reviewed.near
    replaces = near.id if near is not None and item.state == "held" else None
    keys = {key: key for key in _HELP if key != "r" or replaces}

    def accept(
        content: str | None, dry_run: bool = False, *, replaces: str | None = None
    ) -> EditReport:
        return run.serve(
            lambda service: service.accept_item(
                item.id,
                content=content,
                replaces=replaces,
                anyway=True,
                version=item.version,
                dry_run=dry_run,
            ),
        )

    while True:
        match ask_key(f"Accept this {item.kind}? [{','.join(keys)}]", keys, default="s"):
            case "y":
                print_edits(run, accept(None))
            case "r":
                print_edits(run, accept(None, replaces=replaces))
            case "n":
                print_edits(
                    run,
                    run.serve(lambda service: service.reject_item(item.id, version=item.version)),
                )
            case "e":
                written = change_text(
                    run.out,
                    item.content,
                    name=f"review-{item.id}",
                    given=None,
                    yes=False,
                    dry_run=False,
                    write=accept,
                    show=partial(print_edits, run),
                )
                if written is None:
                    continue
            case "?":
                run.out.fields([(key, _HELP[key]) for key in keys])
                continue
            case "q":
                return False
        return True


@app.command("list", cls=Command)
def list_items(run: Invocation, named: options.Scopes, limit: options.Limit = 50) -> None:
    """List what waits for review, held items first.

    Covers all scopes of all agents, or of --agent. Held items are no memory until they are
    accepted. Unconfirmed ones are memory, and marked.

    \b
    edenmem review list --agent mira
    edenmem review list --agent mira --user lena --format json
    """
    if named.agent or named.user:
        agents = [options.choose_agent(run, named.agent)]
    else:
        agents = list(run.service.host.agents())
    run.out.listing(
        [item for agent in agents for item in _find(run, named, agent)],
        _COLUMNS,
        limit=limit,
        empty="nothing waits for review",
        header=ReviewItem,
    )


@app.command("accept", cls=Command)
def accept(
    run: Invocation,
    items: Items,
    content: options.Content = None,
    file: options.File = None,
    replaces: Annotated[
        str | None,
        typer.Option("--replaces", metavar="FACT", help="Fact whose text the item replaces."),
    ] = None,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Also accept an item that resembles a fact.")
    ] = False,
    dry_run: options.DryRun = False,
    reason: options.Reason = "",
) -> None:
    """Accept items: make them memory, or confirm them.

    An item whose text is memory already confirms that fact. One that resembles a fact is refused
    (exit 4) without --replaces or --anyway.

    \b
    edenmem review accept 65f3a0c2
    edenmem review accept 65f3a0c2 --content "Lena's brother lives in Faro."
    """
    text = read_text_option(content, file)
    if len(items) > 1 and (text is not None or replaces):
        raise UsageError("--content, --file and --replaces take one item")
    fact_id = run.resolver.fact(replaces).id if replaces else None
    _each(
        run,
        items,
        lambda service, item: service.accept_item(
            item,
            content=text,
            replaces=fact_id,
            anyway=anyway,
            reason=reason,
            dry_run=dry_run,
        ),
    )


@app.command("reject", cls=Command)
def reject(
    run: Invocation,
    items: Items,
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
    reason: options.Reason = "",
) -> None:
    """Reject items: remove or delete them; 'undo' restores them.

    \b
    edenmem review reject 65f3a0c2 --yes --reason "said in jest"
    """
    run.confirm(f"Reject {many(len(items), 'item')}?", yes=yes or dry_run)
    _each(
        run,
        items,
        lambda service, item: service.reject_item(item, reason=reason, dry_run=dry_run),
    )


def _each(
    run: Invocation,
    items: list[str],
    decide: Callable[[MemoryService, str], Awaitable[EditReport]],
) -> None:
    """Decide about each item; one that fails does not stop the others."""
    failed: list[EdenmemError] = []

    async def work(service: MemoryService) -> list[EditReport]:
        reports = []
        for item in items:
            try:
                reports.append(await decide(service, item))
            except (ConflictError, NotFoundError) as error:
                if len(items) == 1:
                    raise
                failed.append(error)
        return reports

    print_edits(run, *run.serve(work))
    run.out.notes(error.message for error in failed)
    end_if(failed)
