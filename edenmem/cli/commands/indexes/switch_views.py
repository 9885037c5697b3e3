"""Views of a switch of the embedding model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edenmem.cli.app.invocation import Invocation
from edenmem.cli.terminal.data import to_data
from edenmem.cli.terminal.tables import Column
from edenmem.text import many

if TYPE_CHECKING:
    from edenmem.engine.embeddings.status import VectorStatus
    from edenmem.engine.embeddings.switch import SwitchEnding
    from edenmem.engine.evaluation.tuning import Comparison, RecipePair
    from edenmem.models.switch import VectorSwitch

#: Phase → description.
_SAID = {
    "filling": "being prepared; {previous} is in use",
    "switched": "done; vectors of {previous} are kept and still searched",
    "settling": "done; vectors of {previous} are being dropped",
    "clearing": "done; vectors of {previous} are dropped, the rest is being cleared",
    "abandoning": "being abandoned; {previous} is in use",
}


def standing(switch: VectorSwitch) -> str:
    """Describe the phase of a switch."""
    return _SAID[switch.phase].format(previous=switch.previous)


def print_standing(run: Invocation, switch: VectorSwitch, status: VectorStatus) -> None:
    """Print a pending switch, and the next command on stderr."""
    from edenmem.models.switch import WAY_ON

    total = status.total
    run.out.fields(
        [
            ("switch to", f"{switch.model} ({switch.dimensions:,} dimensions)"),
            ("  state", standing(switch)),
            ("  vectors", f"{total.current:,} of {many(total.facts, 'fact')}"),
        ]
    )
    run.out.note(WAY_ON[switch.phase])


def standing_data(switch: VectorSwitch, status: VectorStatus) -> dict[str, Any]:
    """Return a pending switch as data."""
    return to_data(switch) | {"in_force": switch.in_force, "vectors": to_data(status.total)}


def comparison_data(comparison: Comparison) -> dict[str, Any]:
    """Return a comparison as data."""
    return to_data(comparison) | {"loss": comparison.loss}


def print_comparison(run: Invocation, comparison: Comparison) -> None:
    """Print the scores of both models for each recipe."""
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
    """Print the result of an action on a switch."""
    run.out.report([ending], lambda: _show_ending(run, ending))


def _show_ending(run: Invocation, ending: SwitchEnding) -> None:
    done = {"drop-old": "facts settled", "abandon": "vectors removed"}.get(ending.action)
    run.out.fields(
        [
            ("model", ending.in_force),
            (done or "facts", f"{ending.facts:,}" if done else None),
            ("stale", many(ending.stale, "fact") if ending.stale else None),
        ]
    )
    if ending.stale:
        run.out.note(
            f"{many(ending.stale, 'fact')} without a vector of {ending.in_force}: configure this"
            " model and run 'edenmem embed backfill'"
        )
