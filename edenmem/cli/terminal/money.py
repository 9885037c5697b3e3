"""Amounts in US dollars, to the hundredth of a cent."""

from __future__ import annotations


def format_amount(cost: float) -> str:
    """Format an amount without the currency."""
    return f"{cost:.4f}"


def format_cost(cost: float | None) -> str:
    """Format a cost with the currency; None is an unknown price."""
    if cost is None:
        return "cost unknown"
    return f"${format_amount(cost)}" if cost else "no cost"
