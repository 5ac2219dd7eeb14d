"""Predicted against measured times of collectives; writes the tables of docs/collectives.md.

    python benchmarks/collectives.py --data ../shared/data/facts            (prints)
    python benchmarks/collectives.py --data ../shared/data/facts --write    (writes the page)
    python benchmarks/collectives.py --data ../shared/data/facts --fit      (constants anew)

Rows of nccl.csv of at least 1 MiB whose size and number of ranks are known. Nothing is fitted to a
row: constants belong to a fabric and stand in nest_opt/models/fabrics.py with their sources.
"""

import csv
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import log
from pathlib import Path
from statistics import median

import click

from nest_opt.models.fabrics import (
    NETWORK_FABRICS,
    NODE_FABRICS,
    build_fabric,
    build_torus_fabric,
)
from nest_opt.models.hardware_page import printed
from nest_opt.network.collectives import (
    AlgorithmName,
    Calibration,
    Collective,
    CollectiveTime,
    Fabric,
    Measurement,
    Spread,
    Torus,
    calibrate,
    calibrate_together,
    collective_time,
    error_at,
    predict,
    relative_errors,
    torus_time,
)
from nest_opt.network.collectives.calibration import constants

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "collectives.md"
MARKER = "<!-- Everything below is written by python benchmarks/collectives.py --write -->"
LEAST_BYTES = 2**20
GIGA = 10**9
FAR = 0.35

# What copies of parameters do, which (77) is about.
SYNCS = ("all-reduce", "all-gather", "reduce-scatter")
OPERATIONS: dict[str, Collective] = {
    "all_reduce": "all-reduce",
    "all_gather": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "all_to_all": "all-to-all",
    "sendrecv": "send-receive",
}

# Beginning of a sweep's name: node, network and its GB/s per device and direction (hardware.csv
# and clusters.csv: 4 x 100 Gb/s for 8 GPUs are 6.25). The first that fits is taken.
PLACES: tuple[tuple[str, str, str | None, str | None], ...] = (
    ("aws-2xp4de", "a100", "efa", "6.25"),
    ("aws-2xp5", "h100", "efa", "50"),
    ("stas-b200-32", "b200", "efa", "50"),
    ("cw-h100", "h100", "infiniband", "50"),
    ("cw-gb200-72", "nvl72", None, None),
    ("cw-gb200", "nvl72", "nvl72-infiniband", "50"),
    ("nccl2409", "h100", "infiniband", "50"),
    ("nccltests283", "h100", "infiniband", "50"),
    ("nccl1531", "h800", "infiniband", "50"),
    ("vp-32", "h100", "infiniband", "50"),
    ("nccltests169", "a100", "infiniband", "12.5"),
    ("nccltests152", "a100", "infiniband", "12.5"),
    ("jz-a100-4n", "a100", "infiniband", "6.25"),
    ("jz-v100-1n", "v100-quad", None, None),
    ("jz-v100-16n", "v100-quad", "infiniband", "12.5"),
    ("vtrain-v100", "v100", None, None),
    ("stas-mi300x", "mi300x", None, None),
    ("stas-b200", "b200", None, None),
    ("stas-nvls-B200", "b200", None, None),
    ("stas-ring-B200", "b200", None, None),
    ("stas-a100", "a100", None, None),
    ("stas", "h100", None, None),
    ("aws-1xp5", "h100", None, None),
    ("dgx-h100", "h100", None, None),
    ("azure-a100", "a100", None, None),
    ("azure-h", "h100", None, None),
    ("nccl2169", "h100", None, None),
    ("nccltests314", "h20", None, None),
    ("vp-8", "h100", None, None),
    ("vtrain-a100", "a100", None, None),
    # The network is not stated; between nodes one pair gets 7.7 to 8.8 GB/s.
    ("galvatron", "a100", "infiniband", "12.5"),
)
TPU_LINK_BYTES_PER_S = 90 * GIGA
TPU_NETWORK_BYTES_PER_S = Fraction(25, 4) * GIGA

DOUBTS: tuple[tuple[str, str], ...] = (
    (
        "galvatron-allreduce",
        "no size: the profiler keeps nccl-tests' average bus bandwidth over all sizes, one group "
        "at a time; network not stated",
    ),
    (
        "galvatron-p2p",
        "no size: average bus bandwidth of sendrecv_perf, or 64 MiB over ms, by version of the "
        "profiler; network not stated",
    ),
    (
        "nccl2409",
        "reported as a fault: 13 of 50 GB/s a connection, where perftest gets 49; the issue's "
        "all-gather and reduce-scatter are of 256 MiB, its send-receive of 2 ranks",
    ),
    (
        "nccltests169",
        "rounded, sizes from 1 to 8 GiB in one figure; falls from 100 to 40 GB/s between 2 and 6 "
        "nodes",
    ),
    ("nccltests152", "no size; the reporter thought it low (30 of 100 GB/s)"),
    ("nccltests283", "rounded, from a figure in the text"),
    ("nccl2169", "reported as a fault: throughput drops above 512 MB"),
    (
        "jz-v100-1n",
        "the script's throughput counts the bytes twice: 48.4 ms for 4e9 bytes, not 26.0 ms for "
        "4 GiB, which is below the bound; 44.0 are predicted for the former",
    ),
    (
        "jz-v100-16n",
        "the script's throughput counts the bytes twice: 1.16 s, not 0.62 s; the source reports a "
        "fault with this network",
    ),
    ("jz-a100-4n", "4e9 bytes, not 4 GiB; before tuning"),
    (
        "tpu-v6e256",
        "the benchmark's psum divides by the ranks twice: the buffer may be a 256th of the matrix",
    ),
    (
        "tpu-dcn",
        "a pair of chips in two slices, not 512 ranks, and perhaps half of the matrix",
    ),
)

# Sound rows that no constant is fitted to: newer software halves their times on equal hardware.
OLD_SOFTWARE = ("aws-2xp5-eks",)

WHY: tuple[tuple[str, str], ...] = (
    ("azure-a100", "small buffers: four sources take 50 to 102 us for 1 MiB on 8 A100"),
    ("vtrain-a100", "small buffers: four sources take 50 to 102 us for 1 MiB on 8 A100"),
    ("galvatron-sp-all2all", "small buffers: its all-to-all takes 110 us on 8 GPUs below 8 MiB"),
    ("dgx-h100", "small buffers: 1 MiB on 8 H100 takes 27 to 46 us"),
    ("nccltests314", "H20, whose NVLink is taken to be H100's; 59 us whatever the size"),
    ("aws-2xp5-eks", "older network software: same hardware as aws-2xp5 and up to twice the time"),
    ("aws-2xp5", "small buffers: EFA's steps lie between those of p5 and the slower ones of p4de"),
    (
        "stas-b200-32",
        "where the two protocols cross; EFA's constants lie between those of three machines",
    ),
)


@dataclass(frozen=True)
class Row:
    """A row of nccl.csv, and what is predicted for it."""

    sweep: str
    fabric: str
    source: str
    measurement: Measurement
    found: CollectiveTime
    unfitted_s: float
    old_s: float
    ports_s: float

    @property
    def error(self) -> float:
        """Predicted over measured time, less 1."""
        return float(self.found.time_s) / self.measurement.time_s - 1

    @property
    def unfitted_error(self) -> float:
        """The same with NCCL's own calls, protocols and steps."""
        return self.unfitted_s / self.measurement.time_s - 1

    @property
    def old_error(self) -> float:
        """The same of equation (4) of the formulation."""
        return self.old_s / self.measurement.time_s - 1

    @property
    def ports_error(self) -> float:
        """The same of equation (77)."""
        return self.ports_s / self.measurement.time_s - 1

    @property
    def doubt(self) -> str | None:
        """Why the row is doubtful."""
        return lookup(DOUBTS, self.sweep)


def lookup(table: Iterable[tuple[str, str]], sweep: str) -> str | None:
    """Return the text of the first beginning that a sweep's name has."""
    return next((text for start, text in table if sweep.startswith(start)), None)


def place(sweep: str, nodes: int) -> tuple[Fabric, str]:
    """Return a sweep's fabric, and the bandwidth of its network as printed."""
    _, node, network, gigas = next(entry for entry in PLACES if sweep.startswith(entry[0]))
    if nodes == 1 or network is None or gigas is None:
        return build_fabric(node), ""
    return build_fabric(node, network, Fraction(gigas) * GIGA), gigas


def spread_of(data: dict[str, str]) -> Spread:
    """Return how a row's ranks lie: racks, not trays, are the nodes of an NVL72."""
    ranks, nodes = int(data["n_gpus"]), int(data["nodes"])
    if "GB200" in data["hardware"]:
        return Spread((ranks,) if ranks <= 72 else (72, ranks // 72))
    return Spread((ranks,) if nodes == 1 else (ranks // nodes, nodes))


def unfitted(fabric: Fabric) -> Fabric:
    """Return a fabric with the calls, shares and steps of NCCL's LL128 and Simple."""
    levels = range(len(fabric.links))
    constants = ((14, (1.9, 4), 0.92), (8.4, (3.4, 14), 1))
    return replace(
        fabric,
        links=tuple(replace(link, ports=None) for link in fabric.links),
        protocols=tuple(
            replace(
                protocol,
                base_s=Fraction(call) / 10**6,
                steps_s=tuple(Fraction(steps[level]) / 10**6 for level in levels),
                shares=tuple(Fraction(share) for _ in levels),
            )
            for protocol, (call, steps, share) in zip(fabric.protocols, constants, strict=True)
        ),
    )


def old_time_s(fabric: Fabric, measured: Measurement, has_ports: bool = False) -> float:
    """Return equation (4), or (77), with attained bandwidths, NCCL's steps, ring or tree."""
    operation, spread = measured.operation, measured.spread
    level = max(place for place, count in enumerate(spread.counts) if count > 1)
    share = float(fabric.links[level].shares["stream"])
    bandwidth = float(fabric.peaks(spread)[level]) * share
    if has_ports and operation in SYNCS:
        links = zip(fabric.links, spread.counts, spread.below, strict=False)
        bandwidth = min(
            float(link.bandwidth(count)) * float(link.shares["stream"]) * ranks
            for link, count, ranks in list(links)[: level + 1]
        )
    step, ranks = (3.4e-6, 14e-6)[min(level, 1)], spread.ranks
    size = measured.size_bytes
    if operation == "send-receive":
        return step + size / bandwidth
    rounds = (2 if operation == "all-reduce" else 1) * (ranks - 1)
    ring = rounds * (step + size / ranks / bandwidth)
    if operation != "all-reduce":
        return ring
    return min(ring, 2 * (ranks - 1).bit_length() * step + 2 * size / bandwidth)


def algorithms_of(notes: str) -> tuple[AlgorithmName, ...] | None:
    """Return the algorithms that a run was held to."""
    return ("ring",) if notes == "Ring" or "(ring)" in notes else None


def read_rows(path: Path) -> tuple[list[Row], list[str]]:
    """Return the rows that are used, and what is left out and why."""
    used, left = [], defaultdict(int)
    with path.open(newline="") as file:
        for data in csv.DictReader(file):
            if not data["bytes"].isdigit() or not data["n_gpus"].isdigit():
                left[f"{data['sweep']}: size or number of ranks not known"] += 1
            elif int(data["bytes"]) < LEAST_BYTES:
                left["below 1 MiB"] += 1
            else:
                used.append(read_row(data))
    return used, [f"{count} rows: {reason}" for reason, count in left.items()]


def read_row(data: dict[str, str]) -> Row:
    """Return a row with its prediction."""
    operation, size = OPERATIONS[data["op"]], int(data["bytes"])
    time_s, sweep = float(data["time_us"]) / 1e6, data["sweep"]
    if sweep.startswith("tpu"):
        return tpu_row(data, Measurement(operation, Spread((int(data["n_gpus"]),)), size, time_s))
    measured = Measurement(operation, spread_of(data), size, time_s, algorithms_of(data["notes"]))
    fabric, gigas = place(sweep, len(measured.spread.counts))
    held = replace(fabric, algorithms=measured.algorithms or fabric.algorithms)
    found = collective_time(held, operation, measured.spread, size)
    name = f"{fabric.name} {gigas}".strip()
    bare = predict(unfitted(held), [measured])[0]
    old, ports = (old_time_s(fabric, measured, has_ports) for has_ports in (False, True))
    return Row(sweep, name, data["source"], measured, found, bare, old, ports)


def tpu_row(data: dict[str, str], measured: Measurement) -> Row:
    """Return a row of TPU v6e: a torus, or pairs of chips in two slices."""
    torus = Torus((16, 16), (True, True))
    bandwidth = Fraction(TPU_LINK_BYTES_PER_S)
    if data["nodes"] == "2":
        torus, bandwidth = Torus((2,), (False,)), TPU_NETWORK_BYTES_PER_S
    fabric = build_torus_fabric(bandwidth)
    found = torus_time(fabric, measured.operation, torus, measured.size_bytes)
    old = 2 * (torus.ranks - 1) * (1e-6 + measured.size_bytes / torus.ranks / float(bandwidth) / 4)
    bare = float(found.time_s)
    return Row(data["sweep"], "tpu-v6e", data["source"], measured, found, bare, old, old)


def statistics(errors: Sequence[float]) -> str:
    """Return median and 90th percentile of absolute errors, as cells."""
    return f"{median(map(abs, errors)):.1%} | {error_at(errors, 0.9):.1%}"


def error_lines(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the table of errors, overall and by fabric."""
    yield (
        "| fabric | rows | median | p90 | sound rows | median | p90 "
        "| NCCL's calls: median | p90 | (4): median | p90 | (77): median | p90 |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|---|---|---|"
    groups: dict[str, list[Row]] = {"all": list(rows)}
    for row in rows:
        groups.setdefault(row.fabric, []).append(row)
    for name, members in groups.items():
        sound = [row.error for row in members if row.doubt is None]
        cells = (
            f"{len(members)} | {statistics([row.error for row in members])}",
            f"{len(sound)} | {statistics(sound) if sound else ' | '}",
            statistics([row.unfitted_error for row in members]),
            statistics([row.old_error for row in members]),
            statistics([row.ports_error for row in members]),
        )
        yield f"| {name} | {' | '.join(cells)} |"


def far_lines(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the table of rows that are far off, several of one sweep in one line."""
    yield "| sweep | operation | ranks | MiB | error | why |"
    yield "|---|---|---|---|---|---|"
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        if abs(row.error) > FAR and row.doubt is None:
            groups[row.sweep, row.measurement.operation].append(row)
    for (sweep, operation), members in groups.items():
        sizes = [row.measurement.size_bytes >> 20 for row in members]
        errors = [row.error for row in members]
        counts = "x".join(map(str, members[0].measurement.spread.counts))
        yield (
            f"| {sweep} | {operation} | {counts} | {span(sizes, 'd')} | {span(errors, '+.0%')} "
            f"| {lookup(WHY, sweep) or ''} |"
        )


def doubt_lines(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the table of doubtful rows."""
    yield "| sweeps | rows | error | doubt |"
    yield "|---|---|---|---|"
    for start, reason in DOUBTS:
        members = [row for row in rows if row.sweep.startswith(start)]
        errors = [row.error for row in members]
        yield f"| {start} | {len(members)} | {span(errors, '+.0%')} | {reason} |"


def constant_lines() -> Iterator[str]:
    """Yield the table of the catalogue's constants."""
    yield "| fabric | constant | value | unit | guess | source |"
    yield "|---|---|---|---|---|---|"
    for fabric in (*NODE_FABRICS, *NETWORK_FABRICS):
        for name, figure in fabric.figures():
            if name.endswith("_s") and not name.endswith("_per_s"):
                value, unit = f"{float(figure.value) * 1e6:g}", "us"
            else:
                value, unit = printed(name, figure)
                unit = "" if name == "ports" else unit
            guess = "guess" if figure.guess else ""
            yield f"| {fabric.name} | {name} | {value} | {unit} | {guess} | {figure.source} |"


def span(values: Sequence[float], form: str) -> str:
    """Return the least and the largest of values."""
    least, most = format(min(values), form), format(max(values), form)
    return least if least == most else f"{least} to {most}"


def bound_lines(rows: Sequence[Row]) -> Iterator[str]:
    """Yield what the measured times say of the bounds."""
    below = [row for row in rows if row.measurement.time_s < row.found.bound.bytes_s]
    names = ", ".join(sorted({row.sweep for row in below})) or "none"
    shares = sorted(float(row.found.bound.bytes_s) / row.measurement.time_s for row in rows)
    yield (
        f"Measured times below the bound of the bytes at peak: {len(below)} of {len(rows)} rows "
        f"({names}). That bound is {median(shares):.0%} of the measured time in the middle row."
    )


def held_out_lines(rows: Sequence[Row]) -> Iterator[str]:
    """Yield errors of constants that were fitted without the source that they predict."""
    yield "| fabric | left out of the fit | rows | median | p90 |"
    yield "|---|---|---|---|---|"
    pooled: list[float] = []
    for node in ("a100-nvswitch", "h100-nvswitch"):
        members = [row for row in rows if row.fabric == node and row.doubt is None]
        for source in sorted({row.source for row in members}):
            kept = [row.measurement for row in members if row.source != source]
            tested = [row.measurement for row in members if row.source == source]
            fitted = calibrate(build_fabric(node), kept, is_fitted).fabric
            errors = relative_errors(fitted, tested)
            pooled += errors
            yield f"| {node} | {source} | {len(tested)} | {statistics(errors)} |"
    mesh = [row for row in rows if row.fabric == "v100-cube-mesh"]
    eight = [row.measurement for row in mesh if row.measurement.spread.ranks == 8]
    fewer = [row.measurement for row in mesh if row.measurement.spread.ranks < 8]
    errors = relative_errors(calibrate(build_fabric("v100"), eight, is_fitted).fabric, fewer)
    pooled += errors
    yield f"| v100-cube-mesh | groups of 2 to 7 GPUs | {len(fewer)} | {statistics(errors)} |"
    members = [row for row in in_fits(rows) if " + efa" in row.fabric]
    for fabric in sorted({row.fabric for row in members}):
        fitted = fit_efa([row for row in members if row.fabric != fabric])
        ((other, tested),) = by_fabric([row for row in members if row.fabric == fabric])
        errors = relative_errors(moved_to(other, fitted), tested)
        pooled += errors
        yield f"| efa | {fabric} | {len(tested)} | {statistics(errors)} |"
    yield f"| all of these | | {len(pooled)} | {statistics(pooled)} |"


def is_fitted(name: str) -> bool:
    """Whether a constant of a node is fitted: all but the steps, which are NCCL's."""
    return "step" not in name


def is_share(name: str) -> bool:
    """Whether a constant is the share that streams attain, which few rows can tell."""
    return name == "stream share of level 0"


def fit_efa(rows: Sequence[Row]) -> Calibration:
    """Fit the constants of EFA, which nodes of several kinds have in common."""
    return calibrate_together(by_fabric(rows), is_of_efa)


def is_of_efa(name: str) -> bool:
    """Whether a constant is of the network and has rows: there is no all-to-all over EFA."""
    return "level 1" in name and "exchange" not in name


def in_fits(rows: Iterable[Row]) -> list[Row]:
    """Return the rows that constants may be fitted to."""
    return [row for row in rows if row.doubt is None and row.sweep not in OLD_SOFTWARE]


def by_fabric(rows: Sequence[Row]) -> list[tuple[Fabric, list[Measurement]]]:
    """Return fabrics of two levels with the measurements on each."""
    found: dict[str, tuple[Fabric, list[Measurement]]] = {}
    for row in rows:
        fabric, _ = place(row.sweep, 2)
        found.setdefault(row.fabric, (fabric, []))[1].append(row.measurement)
    return list(found.values())


def moved_to(fabric: Fabric, fitted: Calibration) -> Fabric:
    """Return a fabric with the fitted constants of the network in place of its own."""
    values = dict(fitted.moved)
    for constant in constants(fabric):
        if constant.name in values:
            fabric = constant.put(fabric, Fraction(values[constant.name]))
    return fabric


def fit_lines(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the constants of the least squares, of every fabric that has rows for them."""
    sound = in_fits(rows)
    for node in NODE_FABRICS:
        members = [row.measurement for row in sound if row.fabric == node.name]
        if members:
            few = len(members) < 5
            fitted = calibrate(build_fabric(node.name), members, is_share if few else is_fitted)
            yield f"{node.name} ({len(members)} rows): {values_of(fitted)}"
    efa = [row for row in sound if " + efa" in row.fabric]
    yield f"efa ({len(efa)} rows): {values_of(fit_efa(efa))}"
    racks = [row for row in sound if " + nvl72" in row.fabric]
    ports, fitted = fit_ports(racks)
    yield f"nvl72-infiniband ({len(racks)} rows): ports {ports}, {values_of(fitted)}"


def fit_ports(rows: Sequence[Row]) -> tuple[int, Calibration]:
    """Return the ports of an NVL72 that one call uses, and the step, of the least squares."""
    ((fabric, members),) = by_fabric(rows)
    near, far = fabric.links
    tried = {
        ports: calibrate(
            replace(fabric, links=(near, replace(far, ports=ports))),
            members,
            lambda name: name == "bulk step on level 1 (s)",
        )
        for ports in range(4, 19)
    }
    return min(
        tried.items(),
        key=lambda item: sum(
            log(1 + error) ** 2 for error in relative_errors(item[1].fabric, members)
        ),
    )


def values_of(fitted: Calibration) -> str:
    """Return the names and values of fitted constants."""
    return ", ".join(f"{name} {value:.3g}" for name, value in fitted.moved)


@click.command()
@click.option(
    "--data", type=click.Path(exists=True, file_okay=False, path_type=Path), required=True
)
@click.option("--write", is_flag=True, help="Write the page's tables.")
@click.option("--fit", is_flag=True, help="Print the constants of the least squares instead.")
def main(data: Path, write: bool, fit: bool) -> None:
    """Compare predicted with measured times and print or write the tables."""
    rows, left = read_rows(data / "nccl.csv")
    if fit:
        click.echo("\n".join(fit_lines(rows)))
        return
    sections: tuple[tuple[str, Callable[[], Iterable[str]]], ...] = (
        ("Errors", lambda: error_lines(rows)),
        ("Bounds", lambda: bound_lines(rows)),
        ("Held out", lambda: held_out_lines(rows)),
        (f"Rows off by more than {FAR:.0%}", lambda: far_lines(rows)),
        ("Doubtful rows", lambda: doubt_lines(rows)),
        ("Constants", constant_lines),
    )
    lines = [f"Used: {len(rows)} rows. Left out: {'; '.join(left)}."]
    for title, make in sections:
        lines += ["", f"## {title}", "", *make()]
    text = "\n".join(lines) + "\n"
    if write:
        head, _, _ = PAGE.read_text(encoding="utf-8").partition(MARKER)
        PAGE.write_text(f"{head}{MARKER}\n\n{text}", encoding="utf-8")
    else:
        click.echo(text, nl=False)


if __name__ == "__main__":
    main()
