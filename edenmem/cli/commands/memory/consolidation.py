"""``edenmem consolidation``: the one text of each scope that is always in the prompt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

import msgspec
import typer

from edenmem.cli.app import options
from edenmem.cli.app.choosing import choose_scope, choose_scopes
from edenmem.cli.app.framework import Command, group
from edenmem.cli.app.invocation import Invocation, invocation
from edenmem.cli.app.views import (
    HISTORY,
    agent_name,
    consolidation_columns,
    print_edit,
    scope_name,
)
from edenmem.cli.commands.memory.why import text_why
from edenmem.cli.terminal.editing import change_text, read_text_option, show_diff
from edenmem.cli.terminal.prompts import confirm
from edenmem.engine.reports import EditReport
from edenmem.engine.scopes.overview import word_limit_of
from edenmem.errors import NotFoundError
from edenmem.models.changes import HistoryEntry
from edenmem.models.memory import Consolidation
from edenmem.models.scope import Scope
from edenmem.store.protocol.store import batched
from edenmem.text import word_count

app = group("Consolidated texts: what is always in an agent's prompt.")

_BATCH = 200
_Version = Annotated[
    int, typer.Option("--version", min=1, metavar="N", help="The version to go back to.")
]


@app.command("list", cls=Command)
def list_texts(
    ctx: typer.Context,
    named: options.Scopes,
    limit: options.Limit = 50,
) -> None:
    """List the texts of all scopes, or of those named.

    \b
    edenmem consolidation list --agent mira
    """
    run = invocation(ctx)
    wanted = choose_scopes(run, named)

    def texts() -> Iterator[Consolidation]:
        stored = run.store.memory.scopes(**wanted)
        for batch in batched((s.scope for s in stored if s.version), _BATCH):
            yield from _in_force(run, run.store.memory.consolidations(batch)).values()

    run.out.listing(
        texts(), consolidation_columns(run), limit=limit, empty="no texts yet", header=Consolidation
    )


@app.command("show", cls=Command)
def show(
    ctx: typer.Context,
    named: options.OneScope,
) -> None:
    """Show the text of one scope.

    \b
    edenmem consolidation show --agent mira --user lena
    """
    run = invocation(ctx)
    scope = choose_scope(run, named)
    text = _text(run, scope)
    run.out.record(
        text,
        [
            ("agent", agent_name(run, scope.agent_id)),
            ("scope", scope_name(run, scope, within_agent=True)),
            ("version", text.version or "no text yet"),
            ("words", f"{word_count(text.consolidated_content)} of {text.word_limit}"),
            ("pending", len(text.unabsorbed_ids)),
            ("consolidated", text.last_consolidated_at),
            ("updated", text.updated_at),
        ],
        text=text.consolidated_content,
    )


def _in_force(run: Invocation, texts: Mapping[Scope, Consolidation]) -> dict[Scope, Consolidation]:
    """The texts with the word limits in force. The stored ones date from the last change of each
    text, and the platform's are its own default."""
    policies = run.store.memory.policies(list(texts))
    return {
        scope: msgspec.structs.replace(
            text, word_limit=word_limit_of(run.settings, scope, policies.get(scope))
        )
        for scope, text in texts.items()
    }


def _text(run: Invocation, scope: Scope) -> Consolidation:
    text = _in_force(run, run.store.memory.consolidations([scope])).get(scope)
    if text is None:
        raise NotFoundError(
            f"{scope_name(run, scope)} has no text yet",
            hint="'edenmem consolidate' makes one of what is pending",
        )
    return text


@app.command("edit", cls=Command)
def edit(
    ctx: typer.Context,
    named: options.OneScope,
    content: options.Content = None,
    file: options.File = None,
    allow_long: options.AllowLong = False,
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
    reason: options.Reason = "",
) -> None:
    """Change the text of a scope, in $EDITOR or as given; a scope without one gets its first.

    \b
    edenmem consolidation edit --agent mira --user lena
    edenmem consolidation edit --agent mira --file mira.md --yes
    """
    run = invocation(ctx)
    new = read_text_option(content, file)
    scope = choose_scope(run, named, new_group=True)
    stored = run.store.memory.consolidations([scope]).get(scope)

    def write(text: str, only_try: bool) -> EditReport:
        return run.edit(
            lambda editor: editor.edit_consolidation(
                scope,
                text,
                expected_version=stored.version if stored else 0,
                allow_long=allow_long,
                reason=reason,
                dry_run=only_try,
            )
        )

    change_text(
        run.out,
        stored.consolidated_content if stored else "",
        name=f"{scope.kind}-text",
        given=new,
        yes=yes,
        dry_run=dry_run,
        write=write,
        tell=lambda report: print_edit(run, report),
    )


@app.command("history", cls=Command)
def history(
    ctx: typer.Context,
    named: options.OneScope,
) -> None:
    """List every version of a scope's text, oldest first.

    \b
    edenmem consolidation history --agent mira --user lena
    """
    run = invocation(ctx)
    scope = choose_scope(run, named)
    run.out.listing(_versions(run, scope), HISTORY)


def _versions(run: Invocation, scope: Scope) -> list[HistoryEntry]:
    versions = run.store.history.versions("consolidation", "", scope=scope)
    if not versions:
        raise NotFoundError(f"{scope_name(run, scope)} has no text yet")
    return versions


@app.command("diff", cls=Command)
def diff(
    ctx: typer.Context,
    named: options.OneScope,
    old: Annotated[
        int | None, typer.Option("--from", min=0, metavar="N", help="Else the version before.")
    ] = None,
    new: Annotated[
        int | None, typer.Option("--to", min=1, metavar="N", help="Else the latest version.")
    ] = None,
) -> None:
    """Show what changed between two versions of a scope's text.

    \b
    edenmem consolidation diff --agent mira --user lena
    """
    run = invocation(ctx)
    scope = choose_scope(run, named)
    versions = {entry.version: entry.content for entry in _versions(run, scope)} | {0: ""}
    after = max(versions) if new is None else new
    before = max(v for v in versions if v < after) if old is None and after > 0 else old or 0
    for version in (before, after):
        if version not in versions:
            known = ", ".join(str(v) for v in sorted(versions) if v)
            raise NotFoundError(f"there is no version {version}", hint=f"there are {known}")
    old_text, new_text = versions[before], versions[after]
    run.out.report(
        [{"from": before, "to": after, "before": old_text, "after": new_text}],
        lambda: show_diff(
            run.out,
            old_text,
            new_text,
            old=f"version {before}",
            new=f"version {after}",
            to_stdout=True,
        ),
        data=dict,
    )


@app.command("restore", cls=Command)
def restore(
    ctx: typer.Context,
    version: _Version,
    named: options.OneScope,
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
    reason: options.Reason = "",
) -> None:
    """Make an earlier version the text again, as a new version.

    \b
    edenmem consolidation restore --agent mira --user lena --version 2
    """
    run = invocation(ctx)
    scope = choose_scope(run, named)
    versions = {entry.version: entry.content for entry in _versions(run, scope)}
    if version not in versions:
        known = ", ".join(str(one) for one in sorted(versions))
        raise NotFoundError(f"there is no version {version}", hint=f"there are {known}")
    if not run.out.is_data:
        current = versions[max(versions)]
        show_diff(run.out, current, versions[version], old="current", new=f"version {version}")
    if not dry_run and not confirm("Restore it?", yes=yes):
        run.out.note("nothing was changed")
        return
    report = run.edit(
        lambda editor: editor.restore_consolidation(scope, version, reason=reason, dry_run=dry_run)
    )
    print_edit(run, report)


app.command("why", cls=Command)(text_why)
