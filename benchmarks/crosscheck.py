"""Dynamic program = brute force = evaluator = oracle, on many seeded tiny problems.

    python benchmarks/crosscheck.py --count 3000 --seed 0

Prints what the problems and their best plans make use of. On a disagreement
it shrinks the problem as far as the disagreement lasts, writes it to a file
and exits with 1. A seed in 10 asks for the artifact's cost model, one for other schedules, one
ties parameters of the last layer to the first's, two let tp or sp differ by stage, and one has
layers that branch in any order, where they are few enough.
"""

import argparse
import multiprocessing
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from agreement import Comparison, compare  # noqa: E402
from branching_instances import branching_data  # noqa: E402
from plan_features import plan_features, problem_features  # noqa: E402
from random_instances import (  # noqa: E402
    random_artifact_data,
    random_data,
    random_staged_data,
)
from random_schedule_problems import random_schedule_data  # noqa: E402
from tied_instances import tied_data  # noqa: E402

from nest_opt import InstanceError, Problem  # noqa: E402
from nest_opt.plan.evaluate import Costs, evaluate  # noqa: E402
from nest_opt.problem.files import to_json_data, to_json_text  # noqa: E402
from nest_opt.problem.validation import build  # noqa: E402
from nest_opt.shrink import shrink  # noqa: E402

# Of each 10 seeds, those whose problems are of a sort of their own.
SORTS: dict[int, Callable[[int], dict[str, Any]]] = {
    4: lambda seed: branching_data(seed) or random_data(seed),
    5: tied_data,
    6: random_schedule_data,
    7: random_staged_data,
    8: random_staged_data,
    9: random_artifact_data,
}
WRITTEN_FAILURES = 5


@dataclass(frozen=True)
class Outcome:
    """What one seed gave: a disagreement or None, and what it covers."""

    seed: int
    difference: str | None
    artifact: bool
    feasible: bool = False
    plans: int = 0
    of_problem: frozenset[str] = field(default_factory=frozenset)
    of_plan: frozenset[str] = field(default_factory=frozenset)


def data_of(seed: int) -> dict[str, Any]:
    """Return the problem of a seed."""
    return SORTS.get(seed % 10, random_data)(seed)


def check_seed(seed: int) -> Outcome:
    """Compare on one seed; whatever is raised is a disagreement as well."""
    data = data_of(seed)
    artifact = data["job"].get("cost_model") == "artifact"
    try:
        comparison = compare(data)
        if comparison.difference is None and not artifact:
            return _covered(seed, comparison)
    except Exception:  # The harness must outlive any defect that it finds.
        return Outcome(seed, traceback.format_exc(limit=-3), artifact)
    brute = comparison.brute
    return Outcome(seed, comparison.difference, artifact, brute.placement is not None, brute.plans)


def _covered(seed: int, comparison: Comparison) -> Outcome:
    problem, brute = comparison.problem, comparison.brute
    of_plan: set[str] = set()
    if brute.placement is not None:
        evaluation = evaluate(Costs(problem), brute.placement)
        of_plan = plan_features(problem, brute.placement, evaluation)
        if brute.optima > 1:
            of_plan.add("several optimal plans")
    return Outcome(
        seed,
        None,
        False,
        brute.placement is not None,
        brute.plans,
        frozenset(problem_features(problem)),
        frozenset(of_plan),
    )


def disagrees(problem: Problem) -> bool:
    """Whether a problem shows a disagreement, or anything else is raised."""
    try:
        return compare(to_json_data(problem)).difference is not None
    except InstanceError:
        return False
    except Exception:  # As in check_seed.
        return True


def write_smallest(seed: int, folder: Path) -> Path:
    """Shrink the problem of a seed while it disagrees, and write it."""
    path = folder / f"crosscheck-seed-{seed}.json"
    problem = build(Problem, data_of(seed), f"seed {seed}")
    path.write_text(to_json_text(shrink(problem, disagrees)))
    return path


def run(seeds: range, processes: int, console: Console) -> list[Outcome]:
    """Check all seeds."""
    outcomes = []
    with (
        multiprocessing.get_context("spawn").Pool(processes) as pool,
        Progress(console=console) as progress,
    ):
        task = progress.add_task("problems", total=len(seeds))
        for outcome in pool.imap_unordered(check_seed, seeds, chunksize=8):
            outcomes.append(outcome)
            progress.advance(task)
            if outcome.difference:
                console.print(f"seed {outcome.seed}: {outcome.difference}", markup=False)
    return outcomes


def coverage(outcomes: list[Outcome]) -> Table:
    """Return the table of what the problems and the best plans make use of."""
    default = [outcome for outcome in outcomes if not outcome.artifact]
    feasible = [outcome for outcome in default if outcome.feasible]
    artifact = [outcome for outcome in outcomes if outcome.artifact]
    table = Table("of", "share", "count", "", title="Coverage")

    def rows(of: str, total: int, counts: Counter[str]) -> None:
        for name, count in sorted(counts.items()):
            table.add_row(of, f"{count / total:.1%}", str(count), name)
        table.add_section()

    problems = Counter(name for outcome in default for name in outcome.of_problem)
    problems["infeasible or without legal degrees"] = len(default) - len(feasible)
    rows("problems", max(1, len(default)), problems)
    rows("best plans", max(1, len(feasible)), Counter(n for o in feasible for n in o.of_plan))
    of_artifact = Counter({"a plan exists": sum(outcome.feasible for outcome in artifact)})
    rows("artifact model", max(1, len(artifact)), of_artifact)
    return table


def main() -> int:
    """Run the cross-check; return 1 on a disagreement."""
    parser = argparse.ArgumentParser(description="Cross-check the dynamic program.")
    parser.add_argument("--count", type=int, default=3000, help="number of problems")
    parser.add_argument("--seed", type=int, default=0, help="first seed")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--output", type=Path, default=Path(), help="folder for failing problems")
    arguments = parser.parse_args()
    console = Console()
    start = time.perf_counter()
    seeds = range(arguments.seed, arguments.seed + arguments.count)
    outcomes = run(seeds, arguments.processes, console)
    console.print(coverage(outcomes))
    failed = sorted(outcome.seed for outcome in outcomes if outcome.difference)
    console.print(
        f"{len(outcomes)} problems, {sum(outcome.plans for outcome in outcomes)} plans valued one "
        f"by one, {len(failed)} disagreements, {time.perf_counter() - start:.0f} s"
    )
    for seed in failed[:WRITTEN_FAILURES]:
        path = write_smallest(seed, arguments.output)
        console.print(f"seed {seed}, shrunk: {path}", markup=False)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
