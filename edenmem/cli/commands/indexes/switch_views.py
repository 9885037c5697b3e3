"""How a switch of the embedding model is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edenmem.cli.app.invocation import Invocation
from edenmem.cli.terminal.data import to_data
from edenmem.cli.terminal.tables import Column

if TYPE_CHECKING:
    from edenmem.engine.embeddings.status import VectorStatus
    from edenmem.engine.embeddings.switch import SwitchEnding
    from edenmem.engine.evaluation.tuning import Comparison, RecipePair
    from edenmem.models.switch import VectorSwitch

#: What each phase means to whoever looks.
_SAID = {
    "filling": "being prepared; {previous} is in force",
    "switched": "made; vectors of {previous} are kept and still searched",
    "settling": "made; vectors of {previous} are being dropped",
    "clearing": "made; vectors of {previous} are dropped, the rest is being cleared",
    "abandoning": "being abandoned; {previous} is in force",
}


def standing(switch: VectorSwitch) -> str:
    """Where a switch stands, in words."""
    return _SAID[switch.phase].format(previous=switch.previous)


def print_standing(run: Invocation, switch: VectorSwitch, status: VectorStatus) -> None:
    """Print a switch that is under way, and what to do about it on stderr."""
    from edenmem.models.switch import WAY_ON

    total = status.total
    run.out.fields(
        [
            ("switch to", f"{switch.model} ({switch.dimensions:,} dimensions)"),
            ("  is", standing(switch)),
            ("  vectors", f"{total.current:,} of {total.facts:,} facts have a new one"),
        ]
    )
    run.out.note(WAY_ON[switch.phase])


def standing_data(switch: VectorSwitch, status: VectorStatus) -> dict[str, Any]:
    """A switch that is under way, as data."""
    return to_data(switch) | {"in_force": switch.in_force, "vectors": to_data(status.total)}


def comparison_data(comparison: Comparison) -> dict[str, Any]:
    """A comparison as data."""
    return to_data(comparison) | {"loss": comparison.loss}


def print_comparison(run: Invocation, comparison: Comparison) -> None:
    """Print what both models find, recipe by recipe."""
    run.out.fields([("old", comparison.old_model), ("new", comparison.new_model)])
    k = comparison.top_k
    columns: list[Column[RecipePair]] = [
        Column("recipe", lambda pair: pair.recipe),
        Column(f"recall@{k} old", lambda pair: pair.old.recall, "number"),
        Column("new", lambda pair: pair.new.recall, "number"),
        Column("MRR@10 old", lambda pair: pair.old.mrr, "number"),
        Column("new", lambda pair: pair.new.mrr, "number"),
        Column("nDCG@10 old", lambda pair: pair.old.ndcg, "number"),
        Column("new", lambda pair: pair.new.ndcg, "number"),
    ]
    run.out.listing(comparison.pairs, columns)


def print_ending(run: Invocation, ending: SwitchEnding) -> None:
    """Print what became of a switch."""
    run.out.report([ending], lambda: _show_ending(run, ending))


def _show_ending(run: Invocation, ending: SwitchEnding) -> None:
    done = {"drop-old": "facts settled", "abandon": "vectors removed"}.get(ending.action)
    run.out.fields(
        [
            ("in force", ending.in_force),
            (done or "facts", f"{ending.facts:,}" if done else None),
            ("stale", f"{ending.stale:,} facts" if ending.stale else None),
        ]
    )
    if ending.stale:
        run.out.note(
            f"{ending.stale:,} facts have no vector of {ending.in_force}; 'edenmem embed "
            "backfill' with it configured makes them"
        )
