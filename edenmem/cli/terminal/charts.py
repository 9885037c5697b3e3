"""Text charts for a terminal."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from edenmem.engine.stats.page import ticks_of

#: Marks of the series in a chart, distinguishable without color.
_MARKS = ("█", "░", "▒", "▓")
_STYLE = re.compile(r"\x1b\[[0-9;]*m")


def draw_stacked_bars(
    labels: Sequence[str], series: Mapping[str, Sequence[float]], *, width: int, height: int = 10
) -> str:
    """Draw stacked vertical bars, one for each label.

    Args:
        labels: Short labels below the bars.
        series: Name → a number for each label.
        width: Columns; at most 100 are used.
        height: Lines.

    Returns:
        Lines without styles or control codes.
    """
    import plotext

    plotext.clear_figure()
    plotext.theme("clear")
    plotext.plotsize(min(width, 100), height)
    plotext.frame(False)
    marks = list(_MARKS[: len(series)])
    plotext.stacked_bar(list(labels), [list(row) for row in series.values()], marker=marks)
    highest = max(map(sum, zip(*series.values(), strict=True)), default=0)
    ticks = [tick for tick in ticks_of(highest) if tick % 1 == 0]  # counts are integers
    plotext.yticks(ticks, [f"{tick:,.0f}" for tick in ticks])
    labeled = _choose_labels(labels, min(width, 100))
    plotext.xticks(labeled, [labels[place - 1] for place in labeled])
    drawn = _STYLE.sub("", plotext.build())
    plotext.clear_figure()
    legend = "   ".join(f"{mark} {name}" for mark, name in zip(marks, series, strict=True))
    return "\n".join([*(line.rstrip() for line in drawn.splitlines()), f"  {legend}"])


def _choose_labels(labels: Sequence[str], width: int) -> list[int]:
    """Return positions, from 1, of evenly spaced labels that fit, including the last.

    Otherwise plotext drops arbitrary labels, most often the newest.
    """
    room = max(map(len, labels), default=0) + 3
    distance = max(1, -(-len(labels) * room // max(width - 6, room)))
    return list(range(len(labels), 0, -distance))[::-1]
