"""Money as people read it: US dollars, to the hundredth of a cent."""

from __future__ import annotations


def format_amount(cost: float) -> str:
    """The figure alone, for a column whose title names the currency."""
    return f"{cost:.4f}"


def format_cost(cost: float | None) -> str:
    """What something costs, in words; None: no price is known."""
    if cost is None:
        return "cost unknown"
    return f"${format_amount(cost)}" if cost else "no cost"
