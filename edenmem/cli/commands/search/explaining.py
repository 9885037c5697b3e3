"""What the stages of a search said of a fact, as people read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edenmem.cli.app.invocation import Invocation
from edenmem.engine.reports import Dropped


def tell_stages(run: Invocation, explain: Mapping[str, Mapping[str, Any]]) -> None:
    """Print a line for each stage: its rank, its score, and its other figures."""
    for stage, said in explain.items():
        run.out.indented(f"   {stage:<9} ", figures(said))


def tell_dropped(run: Invocation, dropped: Dropped) -> None:
    """Print where a fact was cut, and why."""
    named = dropped.why.startswith(dropped.stage)
    why = dropped.why if named else f"{dropped.stage}: {dropped.why}"
    if run.out.is_data:
        run.out.note(f"   {dropped.fact_id}  {why}")
    else:
        run.out.indented(f"   {dropped.fact_id}  ", why)


def figures(said: object) -> str:
    """Names and figures on one line."""
    match said:
        case Mapping():
            return ", ".join(
                f"{name} ({figures(value)})"
                if isinstance(value, Mapping)
                else f"{name} {figures(value)}"
                for name, value in said.items()
                if value is not None
            )
        case bool():
            return "yes" if said else "no"
        case float():
            return f"{said:.3f}"
        case list() | tuple():
            return " ".join(figures(value) for value in said)
        case _:
            return str(said)
