"""Figures of the studies: one style, and the same bytes in every run.

A figure is an SVG beside the CSV file that it was drawn from. Text stays text, so that a
figure can be searched; ids come from a fixed salt and no date is written, so that a second
run changes nothing.
"""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def new_figure(width_in: float = 7.0, height_in: float = 4.0) -> tuple["Figure", "Axes"]:
    """Return an empty figure and its axes: see `new_figures`."""
    figure, (axes,) = new_figures(1, width_in, height_in)
    return figure, axes


def new_figures(
    count: int, width_in: float = 7.0, height_in: float = 4.0
) -> tuple["Figure", tuple["Axes", ...]]:
    """Return an empty figure and its axes, side by side, without a window or any global state.

    Raises
    ------
    SystemExit
        If matplotlib is not installed; the message says how to install it.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise SystemExit(
            "matplotlib: not installed, needed to draw: pip install 'nest_opt[plots]'"
        ) from error
    matplotlib.rcParams.update({"svg.hashsalt": "nest_opt", "svg.fonttype": "none"})
    figure = Figure(figsize=(width_in, height_in), layout="constrained")
    found = tuple(figure.add_subplot(1, count, place + 1) for place in range(count))
    for axes in found:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.3, linewidth=0.5)
    return figure, found


def save_figure(figure: "Figure", path: Path) -> None:
    """Write a figure as SVG, without what differs from run to run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


def save_rows(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write the data behind a figure as CSV."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
