"""The table of results."""

from __future__ import annotations

from collections.abc import Sequence

from tabulate import tabulate

from tests.benchmarks.measure import Row

_HEADERS = ("subject", "unit", "baseline", "its figure", "edenmem", "ratio", "to reach", "met")
_RIGHT = ("left", "left", "left", "right", "right", "right", "left", "left")


def render(rows: Sequence[Row], *, markdown: bool) -> str:
    """The rows as text."""
    return tabulate(
        [_cells(row) for row in rows],
        headers=_HEADERS,
        tablefmt="github" if markdown else "simple",
        colalign=_RIGHT,
        disable_numparse=True,
    )


def _cells(row: Row) -> tuple[str, ...]:
    met = {True: "yes", False: "no", None: ""}[row.met]
    return (
        row.subject,
        row.unit,
        row.baseline,
        "" if row.baseline_figure is None else _number(row.baseline_figure),
        _number(row.figure),
        "" if row.ratio is None else f"{row.ratio:.2f}",
        str(row.target or ""),
        met if row.agrees else f"{met} (results differ)".strip(),
    )


def _number(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 100 else f"{value:.3g}"
