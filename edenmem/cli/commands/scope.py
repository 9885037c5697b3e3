"""``edenmem scope``: scopes and their policies."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Annotated

import typer

from edenmem.cli.app import options
from edenmem.cli.app.framework import Command, group
from edenmem.cli.app.invocation import Invocation
from edenmem.cli.app.parameters import suggest
from edenmem.cli.app.views import (
    edit_data,
    edit_line,
    print_edits,
    scope_fields,
    scope_name,
)
from edenmem.cli.terminal.tables import Column
from edenmem.engine.reports import EditReport, ScopeStatus
from edenmem.errors import NotFoundError, UsageError
from edenmem.models.memory import Policy
from edenmem.models.scope import Scope
from edenmem.text import cell

app = group("List and show scopes; set policies, pause and resume.")


def _state(status: ScopeStatus) -> str:
    """Return the state of a scope."""
    return "paused" if not status.active else "due" if status.due else ""


_SCOPES: list[Column[ScopeStatus]] = [
    Column("agent", lambda s: s.scope.agent_id, names="account"),
    Column("kind", lambda s: s.scope.kind),
    Column("owner", lambda s: s.scope, "text", "owner"),
    Column("facts", lambda s: s.facts, "number"),
    Column("pending", lambda s: f"{s.pending}/{s.consolidate_at}", "number"),
    Column("text", lambda s: f"v{s.version}" if s.version else "", "number"),
    Column("words", lambda s: f"{s.words}/{s.word_limit}" if s.version else "", "number"),
    Column("state", _state),
]


@app.command("list", cls=Command)
def list_scopes(
    run: Invocation,
    named: options.Scopes,
    due: Annotated[bool, typer.Option("--due", help="Only scopes due for consolidation.")] = False,
    limit: options.Limit = 100,
) -> None:
    """List scopes that contain memory, with their sizes and limits.

    \b
    edenmem scope list --agent mira --scope user
    edenmem scope list --due --format json
    """
    statuses = run.service.scopes.statuses(
        **options.choose_scopes(run, named), min_pending=1 if due else 0
    )
    if due:
        statuses = (status for status in statuses if status.due)
    run.out.listing(
        statuses,
        _SCOPES,
        limit=limit,
        empty="no memory yet",
        header=ScopeStatus,
    )


@app.command("show", cls=Command)
def show(
    run: Invocation,
    named: options.OneScope,
) -> None:
    """Show a scope: sizes, limits and text.

    \b
    edenmem scope show --agent mira --user lena
    """
    scope = options.choose_scope(run, named)
    status = run.service.scopes.status(scope)
    text = run.service.memory.text(scope)
    run.out.record(
        status,
        [
            *scope_fields(run, scope),
            ("state", _state(status) or "active"),
            ("facts", status.facts),
            ("pending", f"{status.pending} of {status.consolidate_at}"),
            ("oldest pending", status.oldest_pending_at),
            ("version", status.version or "no text yet"),
            ("words", f"{status.words} of {status.word_limit}"),
            ("consolidated", status.last_consolidated_at),
        ],
        text=text.consolidated_content if text else "",
    )


@app.command("policy", cls=Command)
def policy(
    run: Invocation,
    named: options.OneScope,
    memory_instructions: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="What to remember in this scope, and what not."),
    ] = None,
    consolidation_instructions: Annotated[
        str | None, typer.Option(metavar="TEXT", help="How to write the text.")
    ] = None,
    consolidate_at: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Consolidate at N pending reflections."),
    ] = None,
    word_limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Maximum number of words in the text.")
    ] = None,
    fact_buffer_max: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Maximum number of facts to keep (0 = no limit)."),
    ] = None,
    fast_model: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Model for extracting facts.")
    ] = None,
    slow_model: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Model for reflecting and consolidating.")
    ] = None,
    private: Annotated[
        bool | None,
        typer.Option("--private/--no-private", help="Never propagate from this scope."),
    ] = None,
    propagate: Annotated[
        bool | None,
        typer.Option(
            "--propagate/--no-propagate", help="Propagate general memories to wider scopes."
        ),
    ] = None,
    orders: Annotated[
        bool | None,
        typer.Option(
            "--orders/--no-orders", help="Also keep instructions to the agent in the shard."
        ),
    ] = None,
    review: Annotated[
        str | None,
        typer.Option(
            "--review",
            metavar="WHAT",
            help="What waits for 'edenmem review': nothing, doubtful or everything.",
        ),
    ] = None,
    default: Annotated[
        list[str] | None,
        typer.Option(
            "--default", metavar="NAME", help="Reset a field, such as word-limit (repeatable)."
        ),
    ] = None,
    dry_run: options.DryRun = False,
    reason: options.Reason = "",
) -> None:
    """Show or change the policy of a scope. --memory-instructions can create a shard.

    \b
    edenmem scope policy --agent mira --user lena --word-limit 400
    edenmem scope policy --agent mira --shard route --memory-instructions "Roads"
    edenmem scope policy --agent mira --default word-limit
    """
    values: dict[str, object] = {
        "memory_instructions": memory_instructions,
        "consolidation_instructions": consolidation_instructions,
        "consolidate_at": consolidate_at,
        "word_limit": word_limit,
        "fact_buffer_max": fact_buffer_max,
        "fast_model": fast_model,
        "slow_model": slow_model,
        "private": private,
        "propagate": propagate,
        "orders": orders,
        "review": review,
    }
    changes = {name: value for name, value in values.items() if value is not None}
    changes |= dict.fromkeys(_parse_defaults(default or (), values.keys() - {"private"}))
    # An unknown shard without instructions is a typing error.
    is_instructed = bool((memory_instructions or "").strip())
    scope = options.choose_scope(run, named, new=is_instructed, new_group=bool(changes))
    stored = run.service.scopes.policy(scope)
    if not changes:
        _show_policy(run, scope, stored)
        return
    report = run.edit(
        lambda editor: editor.set_policy(
            scope,
            changes,
            expected_version=stored.version if stored else 0,
            reason=reason,
            dry_run=dry_run,
        )
    )
    target = f"the policy of {scope_name(run, scope)}"
    if dry_run:
        _print_plan(run, report, f"{target}, a new shard" if _is_new_shard(run, scope) else target)
    else:
        print_edits(run, report, target=target)


def _parse_defaults(names: Sequence[str], known: Set[str]) -> list[str]:
    """Return the fields that ``--default`` names.

    Raises:
        UsageError: A field is unknown or has no default.
    """
    fields = [name.replace("-", "_") for name in names]
    for name, field in zip(names, fields, strict=True):
        if field not in known:
            takes = sorted(one.replace("_", "-") for one in known)
            near = suggest(name.replace("_", "-"), takes)
            raise UsageError(
                f"no such default: {name!r}", hint=near or f"one of: {', '.join(takes)}"
            )
    return fields


def _is_new_shard(run: Invocation, scope: Scope) -> bool:
    if scope.shard_name is None:
        return False
    try:
        run.resolver.scope(scope.kind, agent=scope.agent_id, shard=scope.shard_name)
    except NotFoundError:
        return True
    return False


def _print_plan(run: Invocation, report: EditReport, target: str) -> None:
    """Print a planned change of a policy, with each field before and after."""
    from edenmem.engine.edits.checks import POLICY_FIELDS  # loads the rules of acceptance

    run.out.notes(report.notices)
    after = report.after or {}
    before = report.before or dict.fromkeys(after) | {"private": False, "active": True}

    def describe(value: object) -> str:
        return "default" if value is None else cell(value)

    if run.out.data([report], edit_data):
        return
    run.out.line(edit_line(report, target=target))
    run.out.fields(
        [
            (
                f"  {field.replace('_', ' ')}",
                f"{describe(before.get(field))} → {describe(after[field])}",
            )
            for field in POLICY_FIELDS
            if field in after and after[field] != before.get(field)
        ]
    )


def _show_policy(run: Invocation, scope: Scope, stored: Policy | None) -> None:
    policy = stored or Policy(id="", **scope.fields())
    status = run.service.scopes.status(scope)
    defaults = getattr(run.settings.scopes, scope.kind.value)

    def or_default(value: object, default: object) -> str:
        return cell(value) if value is not None else f"{cell(default)} (default)"

    facts_kept = or_default(policy.fact_buffer_max, defaults.fact_buffer_max or "all")
    run.out.record(
        policy,
        [
            *scope_fields(run, scope),
            ("state", "active" if policy.active else "paused"),
            ("private", policy.private),
            ("propagates", or_default(policy.propagate, defaults.propagate)),
            ("orders", or_default(policy.orders, False) if scope.shard_name else None),
            ("review", or_default(policy.review, defaults.review)),
            ("consolidate at", or_default(policy.consolidate_at, status.consolidate_at)),
            ("word limit", or_default(policy.word_limit, status.word_limit)),
            ("facts kept", facts_kept),
            ("fast model", or_default(policy.fast_model, run.settings.llm.fast_model)),
            ("slow model", or_default(policy.slow_model, run.settings.llm.slow_model)),
            ("version", policy.version),
            ("updated", policy.updated_at),
        ],
        text="\n\n".join(
            f"{title}:\n{text}"
            for title, text in (
                ("memory instructions", policy.memory_instructions),
                ("consolidation instructions", policy.consolidation_instructions),
            )
            if text
        ),
    )


@app.command("pause", cls=Command)
def pause(
    run: Invocation,
    named: options.OneScope,
    dry_run: options.DryRun = False,
    reason: options.Reason = "",
) -> None:
    """Pause a scope: keep its memory, and refuse new memory.

    \b
    edenmem scope pause --agent mira --shard route --reason "moving"
    """
    _set_active(run, named, dry_run=dry_run, reason=reason, verbs=("pause", "paused"))


@app.command("resume", cls=Command)
def resume(
    run: Invocation,
    named: options.OneScope,
    dry_run: options.DryRun = False,
    reason: options.Reason = "",
) -> None:
    """Resume a paused scope.

    \b
    edenmem scope resume --agent mira --shard route
    """
    _set_active(run, named, dry_run=dry_run, reason=reason, verbs=("resume", "resumed"))


def _set_active(
    run: Invocation,
    named: options.OneScope,
    *,
    dry_run: bool,
    reason: str,
    verbs: tuple[str, str],
) -> None:
    scope = options.choose_scope(run, named)
    editor = run.service.editor
    change = editor.pause if verbs[0] == "pause" else editor.resume
    report = change(scope, reason=reason, dry_run=dry_run)
    print_edits(run, report, verbs=verbs, target=scope_name(run, scope))
