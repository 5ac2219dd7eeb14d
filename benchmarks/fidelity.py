"""How far predicted iteration times are from published training runs.

    NEST_OPT_DATA=... python benchmarks/fidelity.py --write
    NEST_OPT_DATA=... python benchmarks/fidelity.py --fit

The first predicts every row of the table of published runs that is fit for it, each source
with constants fitted without it, ranks the configurations of each sweep, and writes the
sections on time and ranking of `docs/fidelity.md` and the figures beside it. The second
prints the constants alone, as the catalogue has them. Both take about ten minutes.
"""

import argparse
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import median

from plotting import new_figure, save_figure, save_rows
from published_runs import (
    PublishedRun,
    facts,
    predicted_s,
    published_runs,
    run_flops,
    single_node_runs,
)

from nest_opt.models.hardware import find_accelerator
from nest_opt.prediction.fit import Fit, Fitting, Measured, Shares

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "fidelity.md"
FIGURES = ROOT / "docs" / "figures"
BEGIN, END = "<!-- begin {} -->", "<!-- end {} -->"
FITTED = {"A100": "a100-80", "H100": "h100"}
SHOWN_WORST = 10
# Of a sweep: distinct configurations at least, and how near the best its choice has to be.
LEAST_SWEEP, NEAR_BEST = 5, 1.05


@dataclass(frozen=True)
class Predicted:
    """A row with its predicted time and that of the baseline."""

    row: PublishedRun
    predicted_s: float
    baseline_s: float | None = None

    @property
    def error(self) -> float:
        """Predicted over measured time, less 1."""
        return self.predicted_s / self.row.measured_s - 1

    @property
    def baseline_error(self) -> float | None:
        """The same of the baseline."""
        return None if self.baseline_s is None else self.baseline_s / self.row.measured_s - 1


def quantile(values: Iterable[float], share: float) -> float:
    """Return a quantile, linear between the two values beside it."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def limits(family: str) -> Shares:
    """Return the largest shares of a family: what its kernels attain by themselves."""
    accelerator = find_accelerator(FITTED[family])
    return Shares(
        round_share(accelerator.matmul_efficiency.value),
        round_share(accelerator.memory_efficiency.value),
    )


def fitting(rows: Sequence[PublishedRun], family: str) -> Fitting[PublishedRun]:
    """Return the 16-bit rows of a family, ready to be fitted."""
    return Fitting(
        (
            Measured(row.source, row.measured_s, row)
            for row in rows
            if row.family == family and row.precision == "16-bit"
        ),
        predicted_s,
        limits(family),
    )


def baseline_seconds(row: PublishedRun, efficiency: float) -> float:
    """Return FLOPs over an efficiency of the peak, and the bubble of an even pipeline."""
    return run_flops(row) / efficiency


def held_out(fit: Fitting[PublishedRun]) -> tuple[list[Predicted], dict[str, Fit]]:
    """Return all rows of a family by the fits without their sources, and these fits."""
    predicted, fits = [], {}
    for source, (found, times) in fit.held_out().items():
        fits[source] = found
        own = [item.run for item in fit.runs if item.source == source]
        efficiency = constant_efficiency([item.run for item in fit.runs if item.source != source])
        predicted += [
            Predicted(row, time, baseline_seconds(row, efficiency))
            for row, time in zip(own, times, strict=True)
        ]
    return predicted, fits


def constant_efficiency(rows: Sequence[PublishedRun]) -> float:
    """Return the one efficiency that fits best, a source counting once: see `run_flops`."""
    by_source = defaultdict(list)
    for row in rows:
        by_source[row.source].append(run_flops(row) / row.measured_s)
    tried = [place / 500 for place in range(50, 500)]
    return min(
        tried,
        key=lambda share: sum(
            sum(abs(_log(found / share)) for found in shares) / len(shares)
            for shares in by_source.values()
        ),
    )
