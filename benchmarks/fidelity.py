"""How far predicted iteration times are from published training runs.

    NEST_OPT_DATA=... python benchmarks/fidelity.py [--write] [--fit]

Predicts every row of the table of published runs that is fit for it, each source with constants
fitted without it, and ranks the configurations of each sweep. `--write` puts both into
docs/fidelity.md and draws the figures beside it. `--fit` prints the constants alone, as the
catalogue has them. Two minutes.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, cycle
from math import log
from pathlib import Path
from statistics import mean, median
from typing import TYPE_CHECKING

import click
from plotting import new_figures, save_figure, save_rows
from published_runs import (
    PublishedRun,
    facts,
    peak_s,
    predicted_s,
    published_runs,
    single_node_runs,
)

from nest_opt.models.hardware import find_accelerator
from nest_opt.prediction.fit import Fit, Fitting, Measured, share_limits

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "fidelity.md"
FIGURES = ROOT / "docs" / "figures"
MARKERS = "<!-- {} -->\n", "<!-- {} end -->\n"
# Families with several sources, and the accelerator whose catalogue entry limits them.
FITTED = {"A100": "a100-80", "H100": "h100"}
WORST = 10
# Of the groups of a figure.
MARKS = "os^vD<>P*Xhp"
# Distinct configurations that a sweep needs, and how near the best its first choice has to be.
LEAST_SWEEP, NEAR_BEST = 5, 1.05
ONE_NODE = "vTrain, one node"
# Rows for a line and one beside it.
LEAST_LINE = 3
# Why rows are off, as far as is known, by the beginnings of their ids.
_TP_16 = (
    "tensor parallelism over two nodes: its collectives are charged one port a node, since ports "
    "count for copies of parameters alone"
)
_ZERO_3 = (
    "DeepSpeed of 2021 gathered weights no faster than one port of a node allows (some 20 GB/s a "
    "GPU); all 8 are assumed; by one port (`collectives: flat`) errors are +2% to +34%"
)
_RING = "511 steps of a ring at the network's latency, of which NCCL pays most inside nodes"
_HEADS = "heads of a width that is no multiple of 8, which tensor cores are slow at: not modelled"
_EXPERTS = "experts: their small products and sorting attain more than the shares say"
_UNFUSED = "narrow model on H100, where kernels without products are charged most"
REASONS = {
    **dict.fromkeys([f"vtrain-multi-L{line}" for line in (23, 24, 25, 26, 27, 41)], _TP_16),
    "sc21-t2-ZeRO-3": _ZERO_3,
    **dict.fromkeys(["mosaic-L84", "mosaic-L85"], _RING),
    **dict.fromkeys(["mosaic-L145", "mosaic-L148", "mosaic-L149"], _UNFUSED),
    **dict.fromkeys(["bloom-582", "bloom-740", "bloom-833", "bloom-838"], _HEADS),
    "bloom-791": "two stages: the sync of 24 replicas took longer than the ports say (BigScience)",
    **dict.fromkeys(["dgxc-Llama4", "dgxc-Grok"], _EXPERTS),
}


@dataclass(frozen=True)
class Predicted:
    """A row with its predicted time and, of fitted families, that of the baseline."""

    row: PublishedRun
    predicted_s: float
    baseline_s: float = 0.0

    @property
    def error(self) -> float:
        """Predicted over measured time, less 1."""
        return self.predicted_s / self.row.measured_s - 1

    @property
    def baseline_error(self) -> float:
        """The same of the baseline."""
        return self.baseline_s / self.row.measured_s - 1


def quantile(values: Iterable[float], share: float) -> float:
    """Return a quantile, linear between the two values beside it."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def fitting(rows: Sequence[PublishedRun], family: str) -> Fitting[PublishedRun]:
    """Return the rows of a family, ready to be fitted."""
    measured = (Measured(row.source, row.measured_s, row) for row in rows if row.family == family)
    accelerator = find_accelerator(FITTED[family])
    return Fitting(measured, predicted_s, share_limits(accelerator))


def held_out(fit: Fitting[PublishedRun]) -> tuple[list[Predicted], dict[str, Fit]]:
    """Return all rows of a family by the fits without their sources, and these fits."""
    peaks = [peak_s(item.run) for item in fit.runs]
    found, fits = [], {}
    for source, (without, times) in fit.held_out().items():
        fits[source] = without
        efficiency = constant_efficiency(
            (item.source, peak / item.measured_s)
            for item, peak in zip(fit.runs, peaks, strict=True)
            if item.source != source
        )
        own = [
            (item.run, peak)
            for item, peak in zip(fit.runs, peaks, strict=True)
            if item.source == source
        ]
        found += [
            Predicted(row, time, peak / efficiency)
            for (row, peak), time in zip(own, times, strict=True)
        ]
    return found, fits


def constant_efficiency(attained: Iterable[tuple[str, float]]) -> float:
    """Return the efficiency that fits best by the loss of `Fitting`, a source counting once."""
    by_source: dict[str, list[float]] = defaultdict(list)
    for source, share in attained:
        by_source[source].append(share)
    return min(
        (place / 500 for place in range(50, 500)),
        key=lambda tried: mean(
            mean(abs(log(share / tried)) for share in shares) for shares in by_source.values()
        ),
    )


@dataclass(frozen=True)
class Sweep:
    """Distinct configurations of one model on the same devices, with the same batch.

    Attributes
    ----------
    source, name
        Of the rows, and what they agree in.
    tau
        Kendall's tau of predicted and measured times.
    lost
        Measured time of the configuration that is predicted fastest, over the best, less 1.
    """

    source: str
    name: str
    configurations: int
    tau: float
    lost: float


def sweeps(predicted: Iterable[Predicted]) -> Iterator[Sweep]:
    """Yield the sweeps of enough configurations; repeated ones count as their mean."""
    groups: dict[tuple[str, ...], dict[object, list[Predicted]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for item in predicted:
        groups[item.row.sweep][item.row.configuration].append(item)
    for key, configurations in groups.items():
        pairs = [
            (items[0].predicted_s, mean(item.row.measured_s for item in items))
            for items in configurations.values()
        ]
        if len(pairs) >= LEAST_SWEEP:
            best = min(measured for _, measured in pairs)
            lost = min(pairs)[1] / best - 1
            yield Sweep(key[0], ", ".join(key[2:]), len(pairs), kendall(pairs), lost)


def kendall(pairs: Sequence[tuple[float, float]]) -> float:
    """Return Kendall's tau-b of pairs of numbers."""
    balance, first, second = 0, 0, 0
    for (a, b), (c, d) in combinations(pairs, 2):
        balance += ((a > c) - (a < c)) * ((b > d) - (b < d))
        first += a != c
        second += b != d
    return balance / (first * second) ** 0.5 if first and second else 0.0


def percent(value: float) -> str:
    """Return a share in percent."""
    return f"{100 * value:.1f}%"


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Yield the lines of a table in markdown."""
    yield "| " + " | ".join(header) + " |"
    yield "|" + "---|" * len(header)
    for row in rows:
        yield "| " + " | ".join(map(str, row)) + " |"
    yield ""


Errors = Sequence[Predicted]


def _row(name: Sequence[object], rows: Errors, *, baseline: bool) -> list[object]:
    errors = [item.error for item in rows]
    sizes = [abs(error) for error in errors]
    cells = [*name, len(rows), percent(median(sizes)), percent(quantile(sizes, 0.9))]
    cells.append(f"{100 * median(errors):+.1f}%")
    if baseline:
        plain = [abs(item.baseline_error) for item in rows]
        cells += [percent(median(plain)), percent(quantile(plain, 0.9))]
    return cells


def _grouped(
    rows: Errors, key: Callable[[Predicted], tuple[str, ...]]
) -> Iterator[tuple[tuple[str, ...], list[Predicted]]]:
    groups: dict[tuple[str, ...], list[Predicted]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    yield from sorted(groups.items())


def time_section(
    rows: Errors, fits: dict[str, dict[str, Fit]], apart: Errors, alone: Errors
) -> Iterator[str]:
    """Yield the lines of the section on time."""
    header = ["accelerator", "left out and predicted", "product share", "elementwise share"]
    header += ["rows", "median", "p90", "middle error", "baseline median", "baseline p90"]
    yield "Each source by constants fitted without it:"
    yield ""

    def by_source() -> Iterator[list[object]]:
        for (family, source), own in _grouped(
            rows, lambda item: (item.row.family, item.row.source)
        ):
            shares = fits[family][source].shares
            yield _row([family, source, shares.product, shares.elementwise], own, baseline=True)
        for (family,), own in _grouped(rows, lambda item: (item.row.family,)):
            yield _row([family, "all", "", ""], own, baseline=True)
        yield _row(["all", "all", "", ""], rows, baseline=True)

    yield from table(header, by_source())
    yield "Reported apart, by constants of the catalogue that none of these rows had a part in:"
    yield ""
    short = ["accelerator", "precision", "source", "rows", "median", "p90", "middle error"]
    key = lambda item: (item.row.family, item.row.precision, item.row.source)  # noqa: E731
    yield from table(short, (_row(name, own, baseline=False) for name, own in _grouped(apart, key)))
    yield "Small models on one node, by the constants fitted without vTrain; `launch_s` was"
    yield "fitted to these rows, and bears on none of the table above:"
    yield ""
    yield from table(
        ["devices", *short[3:]],
        (
            _row(name, own, baseline=False)
            for name, own in _grouped(alone, lambda item: (item.row.sweep[6],))
        ),
    )
    yield f"The {WORST} worst rows:"
    yield ""
    worst = sorted(rows, key=lambda item: -abs(log(1 + item.error)))[:WORST]
    yield from table(
        ["row", "measured", "predicted", "error", "why"],
        (
            (
                item.row.id,
                f"{item.row.measured_s:.3g} s",
                f"{item.predicted_s:.3g} s",
                f"{100 * item.error:+.0f}%",
                reason(item.row),
            )
            for item in worst
        ),
    )


def reason(row: PublishedRun) -> str:
    """Return why a row is off, as far as is known."""
    for start, why in REASONS.items():
        if row.id.startswith(start):
            return why
    return "not known"


def ranking_section(found: Sequence[Sweep], alone: Errors) -> Iterator[str]:
    """Yield the lines of the section on ranking; `alone` are the rows on one node."""
    header = ["sweeps", "number", "median tau", "within 5% of the best", "most lost"]

    def row(name: str, of: Sequence[Sweep]) -> tuple[object, ...]:
        near = sum(sweep.lost <= NEAR_BEST - 1 for sweep in of) / len(of)
        taus = f"{median(sweep.tau for sweep in of):.2f}"
        return (name, len(of), taus, percent(near), percent(max(sweep.lost for sweep in of)))

    groups: dict[str, list[Sweep]] = defaultdict(list)
    for sweep in found:
        groups[sweep.source].append(sweep)
    whole = [sweep for sweep in found if sweep.source != ONE_NODE]
    yield from table(
        header,
        [
            row("all", found),
            row(f"all but {ONE_NODE}", whole),
            *(row(*group) for group in sorted(groups.items())),
        ],
    )
    yield from table(
        ["sweep", "configurations", "tau", "lost"],
        (
            (
                f"{sweep.source}, {sweep.name}",
                sweep.configurations,
                f"{sweep.tau:.2f}",
                percent(sweep.lost),
            )
            for sweep in sorted(whole, key=lambda sweep: (sweep.source, sweep.name))
        ),
    )
    off = off_the_line(item.row for item in alone)
    yield (
        f"Of the rows on one node, {len(off)} are predicted by two others that differ from them in "
        f"global batch alone: off by {100 * median(off):.4f}% in the middle, {100 * max(off):.4f}% "
        "at most."
    )


def off_the_line(rows: Iterable[PublishedRun]) -> list[float]:
    """Return how far rows are from the line of two others that differ in global batch alone.

    Relative to their measured times. Of three rows or more that agree in all else, the two
    with the smallest batches give the line.
    """
    groups: dict[object, list[tuple[int, float]]] = defaultdict(list)
    for row in rows:
        *same, batch = row.sweep
        groups[*same, row.configuration].append((int(batch), row.measured_s))
    found = []
    for points in groups.values():
        if len(points) >= LEAST_LINE:
            (first, low), (second, high), *others = sorted(points)
            slope = (high - low) / (second - first)
            found += [abs(low + slope * (at - first) - time) / time for at, time in others]
    return found


def write_section(name: str, lines: Iterable[str]) -> None:
    """Write a section of the page between its markers.

    Raises
    ------
    SystemExit
        If the page has no such markers.
    """
    begin, end = (marker.format(name) for marker in MARKERS)
    page = PAGE.read_text(encoding="utf-8")
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise SystemExit(f"{PAGE}: found no {begin.strip()} with its end: add both")
    text = "\n".join(lines).rstrip("\n")
    PAGE.write_text(f"{before}{begin}\n{text}\n\n{end}{after}", encoding="utf-8")


def _scatter(
    axes: "Axes", rows: Errors, name_of: Callable[[PublishedRun], str], ends: Sequence[float]
) -> None:
    groups = _grouped(rows, lambda item: (name_of(item.row),))
    for mark, ((name,), own) in zip(cycle(MARKS), groups, strict=False):
        axes.scatter(
            [item.row.measured_s for item in own],
            [item.predicted_s for item in own],
            s=10,
            alpha=0.6,
            marker=mark,
            label=f"{name} ({len(own)})",
        )
    axes.plot(ends, ends, linewidth=0.8, color="black")
    axes.set(xscale="log", yscale="log", xlabel="measured iteration time, s")
    axes.legend(frameon=False, fontsize="small")


def draw(rows: Errors) -> None:
    """Draw predicted against measured time, by accelerator and by source, and write the points."""
    times = [item.row.measured_s for item in rows]
    figure, (left, right) = new_figures(2, 10.0, 5.0)
    _scatter(left, rows, lambda row: row.family, (min(times), max(times)))
    _scatter(right, rows, lambda row: row.source, (min(times), max(times)))
    left.set_ylabel("predicted without the row's source, s")
    save_figure(figure, FIGURES / "fidelity_time.svg")
    save_rows(
        FIGURES / "fidelity_time.csv",
        ["row", "source", "accelerator", "measured_s", "predicted_s", "baseline_s"],
        (
            [
                item.row.id,
                item.row.source,
                item.row.family,
                f"{item.row.measured_s:.6g}",
                f"{item.predicted_s:.6g}",
                f"{item.baseline_s:.6g}",
            ]
            for item in rows
        ),
    )


@click.command()
@click.option("--write", is_flag=True, help="Write the sections of docs/fidelity.md, and draw.")
@click.option("--fit", "fit_only", is_flag=True, help="Print the constants fitted to all sources.")
def main(write: bool, fit_only: bool) -> None:
    """Compare predicted iteration times with published ones."""
    directory = facts()
    if directory is None:
        raise SystemExit("NEST_OPT_DATA: found no folder facts there: name the public data")
    rows = list(published_runs(directory))
    main_rows = [row for row in rows if row.precision == "16-bit" and row.family in FITTED]
    predicted, fits, apart = [], {}, []
    for family in FITTED:
        fit = fitting(main_rows, family)
        whole = fit.fit()
        print(f"{family}: {whole.shares}, loss {whole.loss:.3f} on {whole.rows} rows")
        if not fit_only:
            found, fits[family] = held_out(fit)
            predicted += found
    if fit_only:
        return
    apart = [Predicted(row, predicted_s(row)) for row in rows if row not in main_rows and row.runs]
    shares = fits["A100"]["vTrain"].shares
    alone = [Predicted(row, predicted_s(row, shares)) for row in single_node_runs(directory)]
    ranked = list(sweeps([*predicted, *alone]))
    sections = {
        "time": list(time_section(predicted, fits, apart, alone)),
        "ranking": list(ranking_section(ranked, alone)),
    }
    for lines in sections.values():
        print("\n".join(lines))
    if write:
        for name, lines in sections.items():
            write_section(name, lines)
        draw(predicted)


if __name__ == "__main__":
    main()
