"""The integer program against checker, evaluator, dynamic program and brute force, at length.

    python benchmarks/milp.py --count 1000 --seed 0

Two runs over seeded tiny problems in small integers. Equivalence: every
placement of a problem, legal or not, fixed in the program, for the first
`--fixed` problems that have at most `--placements` of them. Optima: value,
bound and infeasibility of the exact search, for `--count` problems. Prints
how often, and what the seconds were spent on; exits with 1 on a difference.
"""

import argparse
import multiprocessing
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from milp_agreement import (  # noqa: E402
    compare_fixed,
    compare_optimum,
    exact_coefficients,
    placement_count,
)
from milp_instances import whole_number_data  # noqa: E402

from nest_opt import Problem  # noqa: E402
from nest_opt.problem.validation import build  # noqa: E402

# Seeds looked at for each problem that equivalence takes.
SEEDS_PER_FIXED = 4


@dataclass(frozen=True)
class Outcome:
    """What a seed gave: counts by name, seconds by use, a difference or None."""

    seed: int
    counts: Counter[str]
    seconds: tuple[float, ...] = ()
    difference: str | None = None


def fixed(seed: int, most: int) -> Outcome:
    """Fix every placement of the problem of a seed, unless there are too many."""
    try:
        problem = build(Problem, whole_number_data(seed), f"seed {seed}")
        cells = exact_coefficients(problem)
        if cells is None or not 0 < sum(map(placement_count, cells)) <= most:
            return Outcome(seed, Counter())
        found = compare_fixed(problem, cells)
    except Exception:  # The harness must outlive any defect that it finds.
        return Outcome(seed, Counter(), difference=traceback.format_exc(limit=-3))
    counts = Counter(problems=1, placements=found.placements, illegal=found.illegal)
    return Outcome(seed, counts, difference=found.difference)


def optimum(seed: int) -> Outcome:
    """Compare optima on the problem of a seed."""
    try:
        found = compare_optimum(build(Problem, whole_number_data(seed), f"seed {seed}"))
    except Exception:  # As in `fixed`.
        return Outcome(seed, Counter(), difference=traceback.format_exc(limit=-3))
    if found is None:
        return Outcome(seed, Counter())
    search = found.found
    counts = Counter(
        {
            "problems": 1,
            "infeasible": int(search.placement is None),
            "started from a plan": int(found.started),
            "with coefficients above 1e4": int(not search.exact_units),
            "cells": search.cells,
            "programs": search.cells_solved,
            "settled by bounds alone": int(search.bound_by == "closed form"),
        }
    )
    return Outcome(seed, counts, astuple(search.times), found.difference)


def collect(
    outcomes: Iterable[Outcome], target: int, what: str, console: Console
) -> tuple[Counter[str], list[float], int]:
    """Add up outcomes until the target number of problems; return counts, seconds, differences."""
    counts: Counter[str] = Counter()
    seconds = [0.0] * 5
    differences = 0
    with Progress(console=console) as progress:
        task = progress.add_task(what, total=target)
        for outcome in outcomes:
            counts += outcome.counts
            for place, value in enumerate(outcome.seconds):
                seconds[place] += value
            if outcome.difference:
                differences += 1
                console.print(f"seed {outcome.seed}: {outcome.difference}", markup=False)
            progress.update(task, completed=counts["problems"])
            if counts["problems"] >= target:
                break
    return counts, seconds, differences


def main() -> int:
    """Run both comparisons; return 1 on a difference."""
    parser = argparse.ArgumentParser(description="Cross-check the integer program.")
    parser.add_argument("--count", type=int, default=1000, help="problems for optima")
    parser.add_argument("--fixed", type=int, default=200, help="problems for equivalence")
    parser.add_argument("--placements", type=int, default=600, help="most placements of one")
    parser.add_argument("--seed", type=int, default=0, help="first seed")
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    console = Console()
    first, differences = arguments.seed, 0
    with multiprocessing.get_context("spawn").Pool(arguments.processes) as pool:
        begin = time.perf_counter()
        seeds = range(first, first + SEEDS_PER_FIXED * arguments.fixed)
        work = pool.imap_unordered(partial(fixed, most=arguments.placements), seeds, chunksize=2)
        counts, _, wrong = collect(work, arguments.fixed, "fixed placements", console)
        differences += wrong
        console.print(
            f"equivalence: {dict(counts)}, {wrong} differences, {time.perf_counter() - begin:.0f} s"
        )
        pool.terminate()
    with multiprocessing.get_context("spawn").Pool(arguments.processes) as pool:
        begin = time.perf_counter()
        # Some seeds have no legal degrees and do not count.
        seeds = range(first, first + 2 * arguments.count)
        work = pool.imap_unordered(optimum, seeds, chunksize=4)
        counts, seconds, wrong = collect(work, arguments.count, "optima", console)
        differences += wrong
        console.print(
            f"optima: {dict(counts)}, {wrong} differences, {time.perf_counter() - begin:.0f} s"
        )
        pool.terminate()
    bounds, build_s, handover, solve, total = seconds
    console.print(
        f"seconds of the searches: bounds {bounds:.1f}, build {build_s:.1f}, hand-over "
        f"{handover:.1f}, solve {solve:.1f}, in all {total:.1f}; build and hand-over take "
        f"{(build_s + handover) / max(total, 1e-9):.0%}"
    )
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
