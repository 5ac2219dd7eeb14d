"""What the closed forms of pipeline schedules miss, against the event simulator.

    python benchmarks/schedules.py --count 2000 --seed 0

Prints four tables. The first three are of (formula - simulated) / simulated:
random placements of the random problems of the tests, valued by each objective
and run with their hops and syncs, under 1F1B and under every schedule; and random
stages without hops. The fourth is of choices: all plans of a random problem are
simulated, once of 1F1B alone and once of all schedules, and the one that an
objective takes is compared with the fastest. `docs/schedules.md` shows them all.
"""

import argparse
import random
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import schedule_formulas as formulas  # noqa: E402
from random_instances import random_problem  # noqa: E402
from random_placements import random_placement  # noqa: E402
from random_schedules import random_scheduled_placement, with_schedules  # noqa: E402

from nest_opt.certify.brute_force import enumerate_cells, enumerate_plans  # noqa: E402
from nest_opt.cost.objective import batch_time_ps  # noqa: E402
from nest_opt.plan.evaluate import Costs, Evaluation, evaluate  # noqa: E402
from nest_opt.plan.placement import Placement  # noqa: E402
from nest_opt.problem.job import OBJECTIVES, Objective  # noqa: E402
from nest_opt.problem.schedule import SCHEDULES, ScheduleName  # noqa: E402
from nest_opt.simulate import (  # noqa: E402
    StageTimes,
    gpipe,
    interleaved,
    one_f_one_b,
    simulate,
    zb_h1,
    zb_h2,
)
from nest_opt.simulate.plan import simulate_plan, stage_times  # noqa: E402

# A pipeline is even where its slowest stage takes at most a tenth more than the mean.
EVEN = 1.1
# Problems with more plans are left out of the third table.
MOST_PLANS = 2000
# Label of a row of the table, and (formula - simulated) / simulated.
Miss = tuple[str, float]


def plan_misses(seed: int) -> Iterator[Miss]:
    """Yield what each objective misses on a random plan of at least two stages; maybe nothing."""
    problem = random_problem(seed)
    placement = random_placement(random.Random(seed), problem)
    if placement is None or len(placement.ends) < 2:
        return
    costs = Costs(problem)
    evaluation = evaluate(costs, placement)
    stages, rounds = evaluation.stages, evaluation.rounds
    simulated = simulate_plan(costs, placement, evaluation).iteration_ps
    if simulated == 0:
        return
    times = [stage.time_ps for stage in stages]
    even = max(times) * len(times) <= EVEN * sum(times)
    group = f"{_rounds_group(rounds, len(stages))}, {'even' if even else 'uneven'}"
    for objective in OBJECTIVES:
        yield f"{group}|{objective}", value_ps(evaluation, objective) / simulated - 1


def value_ps(evaluation: Evaluation, objective: Objective) -> int:
    """Return the value of a plan by another objective than its problem's."""
    stages = evaluation.stages
    return batch_time_ps(
        objective,
        evaluation.rounds,
        [stage.time_ps for stage in stages],
        [stage.sync_ps for stage in stages],
        [stage.backward_before_ps for stage in stages],
        evaluation.schedule,
        [stage.weight_gradient_ps for stage in stages],
    )


def schedule_misses(seed: int) -> Iterator[Miss]:
    """Yield what the objectives miss on a random plan of each schedule that runs one."""
    problem = with_schedules(random_problem(seed))
    costs = Costs(problem)
    for name in SCHEDULES:
        placement = random_scheduled_placement(random.Random(seed), problem, name)
        if placement is None:
            continue
        evaluation = evaluate(costs, placement)
        simulated = simulate_plan(costs, placement, evaluation).iteration_ps
        if simulated == 0:
            continue
        large = evaluation.rounds >= 4 * len(evaluation.stages)
        group = f"{name}, {'m >= 4 S' if large else 'm < 4 S'}"
        if name == "zb-h1":
            group += f", {_weight_group(costs, placement, evaluation)}"
        for objective in ("fill-drain", "nest"):
            yield f"{group}|{objective}", value_ps(evaluation, objective) / simulated - 1


def _weight_group(costs: Costs, placement: Placement, evaluation: Evaluation) -> str:
    """Say whether W is at most F and B, hops included, on all stages: where (69) is exact."""
    times = stage_times(costs, placement, evaluation)
    longest = any(
        t.backward_weight_ps > min(t.forward_ps + t.hop_in_ps, t.backward_input_ps + t.hop_out_ps)
        for t in times
    )
    return "some W > F or B" if longest else "W <= F, B"


def _rounds_group(rounds: int, stages: int) -> str:
    if rounds < stages:
        return "m < S"
    return "S <= m < 4 S" if rounds < 4 * stages else "m >= 4 S"


def random_stages(rng: random.Random, size: int, kind: str) -> list[formulas.Stage]:
    """Return stages: `even` within 10 % and `uneven` within 80 % of the mean, `crossed` by part."""
    spread = 10 if kind == "even" else 80
    times = [rng.randint(100 - spread, 100 + spread) for _ in range(size)]
    if kind == "crossed":
        b, w = ([rng.randint(20, 180) for _ in times] for _ in "bw")
        return list(zip(times, b, w, strict=True))
    # Medians of table 9 of Qi et al. 2023: B takes about as long as F, W 0.7 of it.
    return [(10 * t, 10 * t, 7 * t) for t in times]


def stage_misses(rng: random.Random, kind: str, large: bool) -> Iterator[Miss]:
    """Yield what each schedule's formulas miss on random stages."""
    p, v = rng.randint(2, 8), rng.randint(2, 3)
    m = p * (rng.randint(4, 8) if large else rng.randint(1, 2))
    group = f"{kind}, {'m >= 4 S' if large else 'm = S, 2 S'}"
    stages = random_stages(rng, p, kind)
    times = [StageTimes(*stage) for stage in stages]

    def miss(name: str, formula: float, found: int) -> Miss:
        return f"{group}|{name}", formula / found - 1

    found = simulate(gpipe(p, m), times).compute_ps
    yield miss("GPipe: sum + (m - 1)(max F + max B)", formulas.gpipe(stages, m), found)
    found = simulate(one_f_one_b(p, m), times).compute_ps
    yield miss("1F1B: fill-drain", formulas.fill_drain(stages, m), found)
    yield miss("1F1B: GPipe's bound", formulas.gpipe(stages, m), found)
    yield miss("1F1B: through one stage", formulas.one_f_one_b_through(stages, m), found)
    found = simulate(interleaved(p, m, v), times * v).compute_ps
    yield miss("interleaved, equal chunks", formulas.interleaved(stages * v, m, v), found)
    chunks = random_stages(rng, p * v, kind)
    found = simulate(interleaved(p, m, v), [StageTimes(*c) for c in chunks]).compute_ps
    yield miss("interleaved: largest chunks", formulas.interleaved(chunks, m, v), found)
    yield miss("interleaved: mean chunks", formulas.interleaved_mean(chunks, m, v), found)
    found = simulate(zb_h1(p, m), times).compute_ps
    yield miss("ZB-H1: slowest stage", formulas.zb_h1(stages, m), found)
    yield miss("ZB-H1: through one stage", formulas.zb_h1_through(stages, m), found)
    if m >= 2 * p - 1:
        span = simulate(zb_h2(p, m), times).span_ps
        yield miss("ZB-H2 (span): any stage", formulas.zb_h2_span(stages, m), span)


def choice_misses(seed: int) -> Iterator[Miss]:
    """Yield how much slower than the fastest of all plans each objective's best plan runs."""
    yield from _choices(seed, "1f1b")
    yield from _choices(seed, *SCHEDULES)


def _choices(seed: int, *names: ScheduleName) -> Iterator[Miss]:
    problem = with_schedules(random_problem(seed), *names)
    costs = Costs(problem)
    plans: list[tuple[Evaluation, int]] = []
    for cell in enumerate_cells(problem):
        for plan in enumerate_plans(costs, cell):
            if len(plans) == MOST_PLANS:
                return
            placement = cell.placement(plan.ends, tuple(s.recompute for s in plan.stages))
            evaluation = Evaluation(
                "fill-drain", cell.rounds, plan.stages, plan.value_ps, cell.schedule
            )
            plans.append((evaluation, simulate_plan(costs, placement, evaluation).iteration_ps))
    fastest = min((simulated for _, simulated in plans), default=0)
    if fastest == 0 or len(plans) < 2:
        return
    for objective in OBJECTIVES:
        _, simulated = min(plans, key=lambda found: value_ps(found[0], objective))
        group = "all schedules" if len(names) > 1 else names[0]
        yield f"all plans of a problem, {group}|{objective}", simulated / fastest - 1


def table(title: str, misses: Iterator[Miss]) -> Table:
    """Return a table of the misses, a row for each label."""
    found: dict[str, list[float]] = defaultdict(list)
    for label, miss in misses:
        found[label].append(miss)
    result = Table(title=title, box=SIMPLE_HEAD)
    for name in ("pipelines", "formula"):
        result.add_column(name, no_wrap=True)
    for name in ("cases", "exact", "least", "median", "most", "|90 %|", "|max|"):
        result.add_column(name, justify="right", no_wrap=True)
    last = None
    for label, values in sorted(found.items(), key=lambda item: item[0].split("|")[0]):
        group, name = label.split("|")
        if last not in (None, group):
            result.add_section()
        sizes = sorted(map(abs, values))
        result.add_row(
            "" if group == last else group,
            name,
            str(len(values)),
            f"{sum(value == 0 for value in values) / len(values):.0%}",
            *(f"{x:+.1%}" for x in (min(values), statistics.median(values), max(values))),
            *(f"{x:.1%}" for x in (sizes[int(0.9 * (len(sizes) - 1))], sizes[-1])),
        )
        last = group
    return result


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=2000, help="plans, and pipelines per group")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    console = Console(width=125)

    def of_seeds(misses_of: Callable[[int], Iterator[Miss]], number: int) -> Iterator[Miss]:
        for seed in count(options.seed):
            misses = list(misses_of(seed))
            yield from misses
            number -= bool(misses)
            if number == 0:
                return

    def of_stages() -> Iterator[Miss]:
        rng = random.Random(options.seed)
        for kind in ("even", "uneven", "crossed"):
            for large in (False, True):
                for _ in range(options.count // 2):
                    yield from stage_misses(rng, kind, large)

    plans = of_seeds(plan_misses, options.count)
    console.print(table("random plans under 1F1B: (objective - simulated) / simulated", plans))
    schedules = of_seeds(schedule_misses, options.count)
    title = "random plans of every schedule: (objective - simulated) / simulated"
    console.print(table(title, schedules))
    console.print(table("random stages: (formula - simulated) / simulated", of_stages()))
    choices = of_seeds(choice_misses, options.count // 10)
    console.print(table("each objective's choice: (its time - fastest) / fastest", choices))


if __name__ == "__main__":
    main()
