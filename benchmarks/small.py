"""The small instances in both families: optima, gaps, and where the seconds go.

    python benchmarks/small.py [--only tp-by-stage] [--time-limit 60]

Each problem of `instances/small` is solved by the dynamic program, and settled
by integer programs in the aligned and in the free family, the dynamic program's plan as first
incumbent. Prints values, the share of the aligned optimum that the free one
saves, seconds by wall and processor, and the share of building and handing
over. Exits with 1 if something is not settled or the aligned optima differ.
"""

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.table import Table

from nest_opt import solve
from nest_opt.milp.exact import exact
from nest_opt.milp.result import ExactSearch
from nest_opt.problem import Problem
from nest_opt.problem.files import read_problem

FOLDER = Path(__file__).resolve().parent.parent / "instances" / "small"
PS_PER_S = 10**12
FAMILIES: tuple[Literal["aligned", "free"], ...] = ("aligned", "free")


@dataclass(frozen=True)
class Run:
    """One search in one family, and its seconds by wall and by processor."""

    found: ExactSearch
    wall_s: float
    cpu_s: float

    @property
    def programs_s(self) -> tuple[float, float]:
        """Seconds of building and handing over, and of these with solving."""
        times = self.found.times
        before = times.build_s + times.handover_s
        return before, before + times.solve_s


def search(problem: Problem, family: Literal["aligned", "free"], limit_s: float) -> Run:
    """Settle a problem in a family."""
    wall, cpu = time.perf_counter(), time.process_time()
    start = solve(problem).plan
    placement = start.placement() if start else None
    left_s = max(0.0, limit_s - (time.perf_counter() - wall))
    found = exact(problem, start=placement, time_limit_s=left_s, family=family)
    return Run(found, time.perf_counter() - wall, time.process_time() - cpu)


def row(name: str, runs: dict[str, Run]) -> tuple[str, ...]:
    """Return a problem's row of the table."""
    aligned, free = (runs[family].found for family in FAMILIES)
    cells = [name]
    cells += [f"{f.value_ps / PS_PER_S:.4f}" if f.value_ps else "-" for f in (aligned, free)]
    saved = 1 - free.value_ps / aligned.value_ps if free.value_ps and aligned.value_ps else None
    cells.append("-" if saved is None else f"{100 * saved:.1f}%")
    for run in runs.values():
        cells.append(f"{run.found.status}, {run.found.cells_solved} of {run.found.cells}")
        cells.append(f"{run.wall_s:.1f} / {run.cpu_s:.1f}")
    return tuple(cells)


def main() -> int:
    """Settle what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", default="", help="part of an instance's name")
    parser.add_argument("--time-limit", type=float, default=60, help="seconds for each search")
    asked = parser.parse_args()
    console = Console(width=150)
    table = Table()
    for column in ("instance", "aligned s", "free s", "saved", "aligned cells", "wall / cpu s"):
        table.add_column(column)
    for column in ("free cells", "wall / cpu s"):
        table.add_column(column)
    before = total = 0.0
    wrong = 0
    for path in sorted(FOLDER.glob("*.json")):
        if asked.only not in path.stem:
            continue
        problem = read_problem(path)
        runs = {family: search(problem, family, asked.time_limit) for family in FAMILIES}
        table.add_row(*row(path.stem, runs))
        for run in runs.values():
            spent = run.programs_s
            before, total = before + spent[0], total + spent[1]
            wrong += run.found.status != "optimal"
        wrong += runs["aligned"].found.value_ps != solve(problem).bound_ps
        console.print(f"{path.stem}: {runs['free'].found.status}, {runs['free'].wall_s:.1f} s")
    console.print(table)
    share = before / total if total else 0.0
    console.print(f"building and hand-over: {100 * share:.0f}% of {total:.1f} s of programs")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
