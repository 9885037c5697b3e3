"""How the origin of a memory reads: what was said, what was decided, what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from edenmem.cli.app import options
from edenmem.cli.app.choosing import choose_scope
from edenmem.cli.app.invocation import Invocation, invocation
from edenmem.cli.app.views import WEAK, describe_rejection, scope_name, usage_line
from edenmem.cli.commands.memory.change_views import action_words
from edenmem.cli.terminal.times import ago, iso
from edenmem.models.formation import Decision, FormationStatus
from edenmem.text import one_line

if TYPE_CHECKING:
    from edenmem.engine.history.why import FactWhy, Source, TextWhy
    from edenmem.models.changes import AuditEntry, HistoryEntry
    from edenmem.models.host import Message


def fact_why(
    ctx: typer.Context,
    fact: Annotated[str, typer.Argument(metavar="FACT", help="Its id or the id's beginning.")],
) -> None:
    """Show where a fact comes from: what was said, what was decided and why, what it replaced.

    \b
    edenmem fact why 65f3a1b2
    """
    run = invocation(ctx)
    found = run.service.history.fact_why(fact)
    run.out.one(found, lambda: print_fact(run, found))


def text_why(
    ctx: typer.Context,
    named: options.OneScope,
    version: Annotated[
        int | None, typer.Option("--version", min=1, metavar="N", help="Only this version.")
    ] = None,
) -> None:
    """Show what went into each version of a scope's text, newest first, and who wrote it.

    \b
    edenmem consolidation why --agent mira --user lena
    edenmem consolidation why --agent mira --user lena --version 3
    """
    run = invocation(ctx)
    scope = choose_scope(run, named)
    found = run.service.history.text_why(scope, version)
    run.out.report(found, lambda: print_text(run, found))


def print_fact(run: Invocation, why: FactWhy) -> None:
    """Print why there is a fact."""
    fact = why.fact
    run.out.fields(
        [
            ("fact", fact.id),
            ("says", fact.content),
            ("state", _state(why)),
            ("where", scope_name(run, fact.home)),
            ("version", fact.version),
            ("session", _session(why.source)),
            ("from", "a text given to 'edenmem remember'" if why.is_note else ""),
            ("formed", f"{iso(fact.formed_at)} ({ago(fact.formed_at)})"),
            ("formation", _formation(why)),
            ("models", ", ".join(dict.fromkeys(call.model for call in why.models))),
            ("cost", usage_line(why.models) if why.models else ""),
        ]
    )
    _print_messages(run, "what was said", why.source)
    for source in why.other_sources:
        _print_messages(run, f"what was said in session {_session(source)}", source)
    if why.decisions:
        _print_decisions(run, "what was decided", why.decisions)
    for later in why.later_formations:
        title = f"what formation {later.formation.id} decided later"
        _print_decisions(run, title, later.decisions)
    if why.rejected:
        _title(run, "what was rejected beside it")
        for decision in why.rejected:
            run.out.paragraph("  ", describe_rejection(decision), indent=4)
    if why.replaced:
        _title(run, "it said before")
        for text in why.replaced:
            run.out.paragraph("  ", text, indent=4)
    if why.changes:
        _title(run, "what happened to it")
        for entry in why.changes:
            run.out.paragraph("  ", _describe_entry(entry), indent=4)


def _state(why: FactWhy) -> str:
    return "; ".join(
        said for said, holds in (("removed", why.removed), (WEAK, why.fact.weak)) if holds
    )


def _formation(why: FactWhy) -> str | None:
    formation = why.formation
    if formation is not None and formation.status is FormationStatus.SUPERSEDED:
        at = f"{iso(formation.updated_at)} ({ago(formation.updated_at)})"
        return f"{formation.id}, superseded {at}: its messages were taken to be formed again"
    return why.fact.formation_id


def print_text(run: Invocation, found: Sequence[TextWhy]) -> None:
    """Print what went into the versions of a text."""
    scope = found[0].scope
    run.out.fields([("where", scope_name(run, scope))])
    for why in found:
        _title(run, _version_title(why.version))
        if why.change is not None and why.change.reason:
            run.out.paragraph("  ", why.change.reason, indent=4)
        if why.taken_back_by:
            run.out.paragraph("  ", f"taken back by {why.taken_back_by}", indent=4)
        for part in why.ingredients:
            if part.reflection is None:
                run.out.paragraph("  - ", f"{part.reflection_id}, removed since", indent=4)
                continue
            run.out.paragraph("  - ", part.reflection.content, indent=4)
            run.out.paragraph("    ", _origin(run, part.source, part.reflection), indent=4)


def _version_title(version: HistoryEntry) -> str:
    what = version.action if version.content else "taken back: no text"
    parts = [f"version {version.version}", what, ago(version.at)]
    return ", ".join([*parts, f"by {version.actor}"] if version.actor else parts)


def _origin(run: Invocation, source: Source, reflection: object) -> str:
    parts = [str(getattr(reflection, "id", ""))]
    if source.session_id:
        parts.append(f"session {_session(source)}")
    if source.messages:
        count = len(source.messages)
        parts.append("1 message" if count == 1 else f"{count} messages")
    origin = getattr(reflection, "propagated_from", ())
    if origin:
        parts.append(f"propagated from {', '.join(origin)}")
    return ", ".join(parts)


def _print_decisions(run: Invocation, title: str, decisions: Sequence[Decision]) -> None:
    _title(run, title)
    for decision in decisions:
        about = f" {decision.target_id}" if decision.target_id else ""
        told = "; ".join(filter(None, (decision.reason, WEAK if decision.weak else "")))
        reason = f": {told}" if told else ""
        run.out.paragraph("  ", f"{decision.action}{about}{reason}", indent=4)


def _print_messages(run: Invocation, title: str, source: Source) -> None:
    if not source.messages and not source.missing_message_ids:
        return
    _title(run, title)
    known = run.service.scopes.labels(
        [message.sender for message in source.messages if message.sender]
    )
    for message in source.messages:
        run.out.paragraph("  ", f"{_speaker(message, known)} {message.content}", indent=4)
    if missing := len(source.missing_message_ids):
        gone = "1 message is gone" if missing == 1 else f"{missing} messages are gone"
        run.out.paragraph("  ", gone, indent=4)


def _speaker(message: Message, known: dict[str, str]) -> str:
    who = message.name or known.get(message.sender or "", "") or message.role
    when = iso(message.created_at).replace("T", " ").removesuffix("Z")
    return one_line(f"{when} {who}:")


def _session(source: Source) -> str:
    if source.session is None:
        return f"{source.session_id}, not there any more" if source.session_id else ""
    label = source.session.label
    return label if label == source.session.id else f"{label} ({source.session.id})"


def _describe_entry(entry: AuditEntry) -> str:
    told = f"{ago(entry.at)}, {entry.actor.name}: {action_words(entry)} ({entry.id})"
    return f"{told}: {entry.reason}" if entry.reason else told


def _title(run: Invocation, text: str) -> None:
    run.out.line()
    run.out.paragraph("", text, indent=2)
