"""``fact why`` and ``consolidation why``: the origin of a memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from edenmem.cli.app import options
from edenmem.cli.app.choosing import choose_scope
from edenmem.cli.app.invocation import Invocation, invocation
from edenmem.cli.app.views import scope_name, usage_line
from edenmem.engine.history.descriptions import (
    Section,
    fact_fields,
    fact_sections,
    senders_of,
    text_sections,
)

if TYPE_CHECKING:
    from edenmem.engine.history.why import FactWhy, TextWhy


def fact_why(
    ctx: typer.Context,
    fact: Annotated[str, typer.Argument(metavar="FACT", help="ID or ID prefix.")],
) -> None:
    """Show the origin of a fact.

    Prints its messages, the decision, and what it replaced.

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
        int | None, typer.Option("--version", min=1, metavar="N", help="Only version N.")
    ] = None,
) -> None:
    """Show the origin of each version of a text, newest first.

    \b
    edenmem consolidation why --agent mira --user lena
    edenmem consolidation why --agent mira --user lena --version 3
    """
    run = invocation(ctx)
    scope = choose_scope(run, named)
    found = run.service.history.text_why(scope, version)
    run.out.report(found, lambda: print_text(run, found))


def print_fact(run: Invocation, why: FactWhy) -> None:
    """Print the origin of a fact."""
    place = scope_name(run, why.fact.home)
    cost = usage_line(why.models) if why.models else ""
    run.out.fields([*fact_fields(why, place), ("cost", cost)])
    names = run.service.scopes.labels(senders_of(why))
    _print_sections(run, fact_sections(why, names))


def print_text(run: Invocation, found: Sequence[TextWhy]) -> None:
    """Print the sources of the versions of a text."""
    run.out.fields([("where", scope_name(run, found[0].scope))])
    _print_sections(run, text_sections(found))


def _print_sections(run: Invocation, sections: Iterable[Section]) -> None:
    for section in sections:
        run.out.line()
        run.out.paragraph("", section.title, indent=2)
        for lead, text in section.paragraphs:
            run.out.paragraph(lead, text, indent=4)
