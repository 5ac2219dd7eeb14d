"""The published placement graphs by the integer program: contiguous splits, then any split.

    python benchmarks/placement_graphs.py [--split contiguous] [--only resnet] [--time-limit 120]

Inputs are those of `dnn-partitioning` in the folder of public data (NEST_OPT_DATA, or
../shared/data beside the repository). A contiguous split is held against the
value that the authors' dynamic program printed; a search for any split begins
with the contiguous one. Exits with 1 on a difference.
"""

import argparse
import csv
import os
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from nest_opt.cost.graph_build import build_graph_table
from nest_opt.milp.graph.result import GraphSearch
from nest_opt.milp.graph.search import search
from nest_opt.milp.limits import SearchLimits
from nest_opt.models.dnn_partitioning import read_dnn_partitioning

ROOT = Path(__file__).resolve().parent.parent
PS_PER_MS = 10**9


@dataclass(frozen=True)
class Run:
    """One search, what it is held against in ms, and its seconds by wall and by processor."""

    name: str
    split: str
    reference_ms: str
    found: GraphSearch
    wall_s: float
    cpu_s: float

    @property
    def wrong(self) -> bool:
        """Whether a proved contiguous value differs from the six digits of the reference."""
        value = self.found.value_ps
        if self.split != "contiguous" or self.found.status != "optimal" or not self.reference_ms:
            return False
        return value is None or float(f"{value / PS_PER_MS:.6g}") != float(self.reference_ms)


def runs(folder: Path, arguments: argparse.Namespace) -> Iterable[Run]:
    """Solve the inputs one after the other."""
    limits = SearchLimits(time_limit_s=arguments.time_limit)
    with (folder / "reference.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if arguments.only in row["input"]]
    for row in rows:
        table = build_graph_table(read_dnn_partitioning(folder / row["input"]))
        start = None
        for split in ("contiguous", "any"):
            if arguments.split not in (split, "both"):
                continue
            of_split = replace(table, contiguous=split == "contiguous")
            wall, cpu = time.perf_counter(), time.process_time()
            found = search(of_split, limits, start)
            seconds = time.perf_counter() - wall, time.process_time() - cpu
            start = found.placement
            yield Run(row["input"], split, row["max_load_contiguous"], found, *seconds)


def report(console: Console, split: str, done: list[Run]) -> None:
    """Print the table of one split."""
    table = Table(title=f"{split} split, loads in ms")
    for column in (
        "input", "value", "contiguous reference", "bound", "gap", "status", "wall s", "cpu s",
        "start %", "build %", "solve %", "programs", "nodes",
    ):  # fmt: skip
        table.add_column(column, justify="left" if column in ("input", "status") else "right")
    for run in done:
        found, times = run.found, run.found.times
        gap = found.gap
        table.add_row(
            run.name.removesuffix(".json"),
            "-" if found.value_ps is None else f"{found.value_ps / PS_PER_MS:.6g}",
            run.reference_ms or "-",
            "-" if found.bound_ps is None else f"{found.bound_ps / PS_PER_MS:.6g}",
            "-" if gap is None else f"{100 * gap:.2f}%" if gap else "0",
            found.status + (" [red]DIFFERS[/]" if run.wrong else ""),
            f"{run.wall_s:.1f}",
            f"{run.cpu_s:.1f}",
            *(
                f"{100 * share / times.total_s:.0f}"
                for share in (times.start_s, times.build_s + times.handover_s, times.solve_s)
            ),
            f"{found.cells_solved} of {found.cells}",
            str(found.nodes),
        )
    console.print(table)
    walls, cpus = [run.wall_s for run in done], [run.cpu_s for run in done]
    console.print(
        f"{sum(run.found.gap == 0 for run in done)} of {len(done)} proved; wall: median "
        f"{median(walls):.1f} s, largest {max(walls):.1f} s; processor: median "
        f"{median(cpus):.1f} s, largest {max(cpus):.1f} s"
    )


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--split", choices=("contiguous", "any", "both"), default="both")
    parser.add_argument("--only", default="", help="part of an input's name")
    parser.add_argument("--time-limit", type=float, default=120, help="seconds for each search")
    arguments = parser.parse_args()
    console = Console(width=150)
    data = Path(os.environ.get("NEST_OPT_DATA", ROOT.parent / "shared" / "data"))
    folder = data / "dnn-partitioning"
    if not (folder / "reference.csv").is_file():
        console.print(f"no inputs at {folder}: set NEST_OPT_DATA to the folder of public data")
        return 2
    done = []
    for run in runs(folder, arguments):
        done.append(run)
        console.print(f"{run.name} {run.split}: {run.found.status}, {run.wall_s:.1f} s")
    for split in ("contiguous", "any"):
        of_split = [run for run in done if run.split == split]
        if of_split:
            report(console, split, of_split)
    return int(any(run.wrong for run in done))


if __name__ == "__main__":
    sys.exit(main())
