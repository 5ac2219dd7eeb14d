"""Dynamic program = brute force = evaluator = oracle = integer program, on seeded tiny problems.

    python benchmarks/crosscheck.py --count 3000 --seed 0

Every problem draws from the whole space at once (`tests/whole_space.py`). The
dynamic program and brute force must agree on value, plan and infeasibility;
the oracle values the best plan and a random one; one problem in three is
solved by the integer program as well (`--program 1`: all of them), which must
agree on value, bound and status. Prints what the problems and their best plans
make use of, and which features never met in a best plan. On a disagreement it
shrinks the problem as far as the disagreement lasts, writes it to a file and
exits with 1. With `--save FILE` results are kept in a file, and a run that was
ended goes on from there.

`--space parts` draws from the generators of one feature each instead: of ten
seeds one asks for the artifact's cost model, one for other schedules, one ties
parameters of the last layer to the first's, two let tp or sp differ by stage, and
one has layers that branch in any order, where they are few enough.
"""

import argparse
import json
import multiprocessing
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from agreement import Comparison, compare  # noqa: E402
from branching_instances import branching_data  # noqa: E402
from milp_agreement import program_difference, programs_know  # noqa: E402
from plan_features import (  # noqa: E402
    meetings,
    plan_features,
    possible_meetings,
    problem_features,
    space_features,
)
from random_instances import (  # noqa: E402
    random_artifact_data,
    random_data,
    random_staged_data,
)
from random_schedule_problems import random_schedule_data  # noqa: E402
from tied_instances import tied_data  # noqa: E402
from whole_space import whole_space_data  # noqa: E402

from nest_opt import InstanceError, Problem  # noqa: E402
from nest_opt.plan.evaluate import Costs, evaluate  # noqa: E402
from nest_opt.problem.files import to_json_data, to_json_text  # noqa: E402
from nest_opt.problem.validation import build  # noqa: E402
from nest_opt.shrink import shrink  # noqa: E402

Draw = Callable[[int], dict[str, Any]]

# Of each 10 seeds of `parts`, those whose problems are of a sort of their own.
SORTS: dict[int, Draw] = {
    4: lambda seed: branching_data(seed) or random_data(seed),
    5: tied_data,
    6: random_schedule_data,
    7: random_staged_data,
    8: random_staged_data,
    9: random_artifact_data,
}
WRITTEN_FAILURES = 5
# Seeds that a process checks before another takes its place: solvers leave memory behind.
SEEDS_A_PROCESS = 400


@dataclass(frozen=True)
class Outcome:
    """What one seed gave: a disagreement or None, and what it covers."""

    seed: int
    difference: str | None
    artifact: bool
    feasible: bool = False
    plans: int = 0
    program: bool = False
    of_problem: tuple[str, ...] = ()
    of_plan: tuple[str, ...] = ()


@dataclass(frozen=True)
class Check:
    """How a seed is checked: where its problem is from, and which share the program solves."""

    space: str
    program: int

    def data(self, seed: int) -> dict[str, Any]:
        """Return the problem of a seed."""
        if self.space == "whole":
            return whole_space_data(seed)
        return SORTS.get(seed % 10, random_data)(seed)

    def compare(self, data: dict[str, Any], with_program: bool) -> Comparison:
        """Hold search, brute force and oracle against each other, and perhaps the program."""
        found = compare(data)
        if found.difference is None and with_program and programs_know(found.problem):
            found = replace(found, difference=program_difference(found.problem, found.brute))
        return found

    def asks_program(self, seed: int) -> bool:
        """Whether the integer program solves a seed's problem."""
        return self.program > 0 and seed % self.program == 0 and self.space == "whole"


def check_seed(check: Check, seed: int) -> Outcome:
    """Compare on one seed; whatever is raised is a disagreement as well."""
    artifact = False
    try:
        data = check.data(seed)
        artifact = data["job"].get("cost_model") == "artifact"
        comparison = check.compare(data, check.asks_program(seed))
        if comparison.difference is None and not artifact:
            return _covered(check, seed, comparison)
    except Exception:  # The harness must outlive any defect that it finds.
        return Outcome(seed, traceback.format_exc(limit=-3), artifact)
    brute = comparison.brute
    return Outcome(seed, comparison.difference, artifact, brute.placement is not None, brute.plans)


def _covered(check: Check, seed: int, comparison: Comparison) -> Outcome:
    problem, brute = comparison.problem, comparison.brute
    of_plan: set[str] = set()
    if brute.placement is not None:
        evaluation = evaluate(Costs(problem), brute.placement)
        of_plan = plan_features(problem, brute.placement, evaluation)
        of_plan |= space_features(problem, brute.placement, evaluation)
        if brute.optima > 1:
            of_plan.add("several optimal plans")
    return Outcome(
        seed,
        None,
        False,
        brute.placement is not None,
        brute.plans,
        check.asks_program(seed) and programs_know(problem),
        tuple(sorted(problem_features(problem))),
        tuple(sorted(of_plan)),
    )


def disagrees(check: Check, with_program: bool, problem: Problem) -> bool:
    """Whether a problem shows a disagreement, or anything else is raised."""
    try:
        return check.compare(to_json_data(problem), with_program).difference is not None
    except InstanceError:
        return False
    except Exception:  # As in check_seed.
        return True


def write_smallest(check: Check, seed: int, folder: Path) -> Path:
    """Shrink the problem of a seed while it disagrees, and write it."""
    path = folder / f"crosscheck-seed-{seed}.json"
    problem = build(Problem, check.data(seed), f"seed {seed}")
    holds = partial(disagrees, check, check.asks_program(seed))
    path.write_text(to_json_text(shrink(problem, holds)))
    return path


def saved(path: Path | None) -> dict[int, Outcome]:
    """Return the outcomes that a file holds, by seed."""
    if path is None or not path.exists():
        return {}
    lines = path.read_text().splitlines()
    return {outcome.seed: outcome for outcome in (Outcome(**json.loads(line)) for line in lines)}


def run(
    check: Check, seeds: Sequence[int], processes: int, console: Console, save: Path | None
) -> list[Outcome]:
    """Check all seeds."""
    outcomes = []
    with (
        multiprocessing.get_context("spawn").Pool(
            processes, maxtasksperchild=SEEDS_A_PROCESS // 8
        ) as pool,
        Progress(console=console) as progress,
    ):
        task = progress.add_task("problems", total=len(seeds))
        for outcome in pool.imap_unordered(partial(check_seed, check), seeds, chunksize=8):
            outcomes.append(outcome)
            if save is not None:
                with save.open("a") as file:
                    file.write(json.dumps(asdict(outcome)) + "\n")
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


def never_met(outcomes: list[Outcome]) -> list[str]:
    """Return which two features met in no best plan."""
    return sorted(possible_meetings().difference(*(meetings(o.of_plan) for o in outcomes)))


def main() -> int:
    """Run the cross-check; return 1 on a disagreement."""
    parser = argparse.ArgumentParser(description="Cross-check all that finds best plans.")
    parser.add_argument("--count", type=int, default=3000, help="number of problems")
    parser.add_argument("--seed", type=int, default=0, help="first seed")
    parser.add_argument("--space", choices=("whole", "parts"), default="whole")
    parser.add_argument(
        "--program", type=int, default=3, help="solve every so many by the integer program; 0: none"
    )
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--output", type=Path, default=Path(), help="folder for failing problems")
    parser.add_argument("--save", type=Path, help="file to keep results in, and to go on from")
    arguments = parser.parse_args()
    console = Console()
    start = time.perf_counter()
    check = Check(arguments.space, arguments.program)
    seeds = range(arguments.seed, arguments.seed + arguments.count)
    known = saved(arguments.save)
    outcomes = [known[seed] for seed in seeds if seed in known]
    left = [seed for seed in seeds if seed not in known]
    outcomes += run(check, left, arguments.processes, console, arguments.save)
    console.print(coverage(outcomes))
    if check.space == "whole":
        apart = never_met(outcomes)
        told = ", ".join(apart) or "none"
        console.print(
            f"features that never met in a best plan: {len(apart)} of "
            f"{len(possible_meetings())} pairs: {told}",
            markup=False,
        )
    failed = sorted(outcome.seed for outcome in outcomes if outcome.difference)
    console.print(
        f"{len(outcomes)} problems, {sum(outcome.plans for outcome in outcomes)} plans valued one "
        f"by one, {sum(outcome.program for outcome in outcomes)} solved by the integer program, "
        f"{len(failed)} disagreements, {time.perf_counter() - start:.0f} s"
    )
    for seed in failed[:WRITTEN_FAILURES]:
        path = write_smallest(check, seed, arguments.output)
        console.print(f"seed {seed}, shrunk: {path}", markup=False)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
