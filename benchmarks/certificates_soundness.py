"""Exactly what is true is proved: checker of certificates = search = brute force.

    python benchmarks/certificates_soundness.py --count 2000 --seed 0

Every problem draws from the whole space at once (`tests/whole_space.py`), and is looked at
under one of the three objectives in turn, or under all with `--all-objectives`. The search's
optimum must be provable and the proof accepted; one more must not be provable, nor accepted
with the same evidence or with one proof for everything; likewise of single device maps and
groups, where each proof is asked alone. Checker and brute force must have the same cells,
checker and search the same load, fill and sync for every interval of random cells. One problem
in `--brute` is solved by brute force as well. Then, on `--free` problems where it matters where
devices are, what is proved of the free family is held against the integer program. Problems that
the checker does not know are counted and left out. Prints how often each comparison was made;
exits with 1 if one fails.
"""

import argparse
import contextlib
import multiprocessing
import signal
import sys
import time
import traceback
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from certificate_agreement import (  # noqa: E402
    OBJECTIVES,
    Compared,
    compare_all,
    compare_free,
    uniform_free_data,
)
from certificate_mutations import best_value  # noqa: E402
from whole_space import whole_space_data  # noqa: E402

from nest_opt import InstanceError, Problem  # noqa: E402
from nest_opt.certify.brute_force import brute_force  # noqa: E402
from nest_opt.plan.evaluate import Costs  # noqa: E402
from nest_opt.problem.validation import build  # noqa: E402

# Seeds that a process looks at before another takes its place: solvers leave memory behind.
SEEDS_A_PROCESS = 200
CHUNK = 4


def heed_no_interrupt() -> None:
    """Leave interrupts of the study to the process that started it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def whole(brute: int, every: bool, seed: int) -> tuple[int, Compared]:
    """Compare on a problem of the whole space; whatever is raised is a difference as well."""
    compared = Compared()
    objectives = OBJECTIVES if every else (OBJECTIVES[seed % len(OBJECTIVES)],)
    try:
        data = whole_space_data(seed)
        compared = compare_all(data, seed, objectives)
        if brute and seed % brute == 0 and compared.counts["problems"]:
            problem = build(Problem, data, "problem")
            same = brute_force(problem).value_ps == best_value(Costs(problem))
            compared.expect("brute force has the search's optimum", same)
    except Exception:  # The study must outlive any defect that it finds.
        compared.differences.append(traceback.format_exc(limit=-3))
    return seed, compared


def free(seed: int) -> tuple[int, Compared]:
    """Compare on a problem of the free family, its stages all alike."""
    data, compared = uniform_free_data(seed), Compared()
    try:
        compare_free(data, compared)
        compared.counts["problems of the free family"] += 1
    except InstanceError:
        compared.counts["skipped: no legal degrees"] += 1
    except Exception:  # As above.
        compared.differences.append(traceback.format_exc(limit=-3))
    return seed, compared


def main() -> int:
    """Run the study; return 1 on a difference."""
    parser = argparse.ArgumentParser(description="Hold the checker of certificates against search.")
    parser.add_argument("--count", type=int, default=2000, help="problems of the whole space")
    parser.add_argument("--seed", type=int, default=0, help="first seed")
    parser.add_argument(
        "--brute", type=int, default=10, help="brute force on every so many; 0: none"
    )
    parser.add_argument("--free", type=int, default=100, help="problems of the free family")
    parser.add_argument("--all-objectives", action="store_true", help="each problem under all")
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    console, start = Console(width=120), time.perf_counter()
    counts, failed = Counter[str](), 0
    first = arguments.seed
    of = partial(whole, arguments.brute, arguments.all_objectives)
    context = multiprocessing.get_context("spawn")
    # What is done when the study is interrupted is told.
    with (
        context.Pool(arguments.processes, heed_no_interrupt, (), SEEDS_A_PROCESS // CHUNK) as pool,
        Progress(console=console) as progress,
        contextlib.suppress(KeyboardInterrupt),
    ):

        def take(task: Any, found: tuple[int, Compared], sort: str) -> int:
            seed, compared = found
            counts.update(compared.counts)
            for difference in compared.differences:
                console.print(f"{sort} {seed}: {difference}", markup=False)
            done = compared.counts["problems"] + compared.counts["problems of the free family"]
            progress.advance(task, done)
            return len(compared.differences)

        task = progress.add_task("free family", total=arguments.free)
        seeds = range(arguments.seed, arguments.seed + arguments.free)
        for found in pool.imap_unordered(free, seeds, CHUNK):
            failed += take(task, found, "free seed")
        task = progress.add_task("whole space", total=arguments.count)
        # Some are left out: more are drawn until there are enough.
        while (missing := arguments.count - counts["problems"]) > 0:
            seeds = range(first, first + missing)
            first += missing
            for found in pool.imap_unordered(of, seeds, CHUNK):
                failed += take(task, found, "seed")
    table = Table("count", "", title="Comparisons")
    for name, number in sorted(counts.items()):
        table.add_row(str(number), name)
    console.print(table)
    console.print(
        f"{counts['problems']} problems, of up to {first - arguments.seed} drawn: "
        f"{failed} differences, {time.perf_counter() - start:.0f} s"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
