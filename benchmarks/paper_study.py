"""The paper's comparison under the default cost model: what `paper.py` measures, row by row.

Part one: every planner and every ablation on each of the paper instances, beside the
optimum and its certificate. Part two: the ablations where the links outside the node
are slower, with ZeRO in the search space. Nothing that differs from run to run is in
a row.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from typing import NamedTuple

from paper_instances import CLUSTERS, DEVICES, FOLDER, SEQUENCE_LENGTHS

from nest_opt import bound, check, solve
from nest_opt.improvement.terms import term_changes
from nest_opt.network import planned_levels
from nest_opt.plan.evaluate import Costs, Evaluation, evaluate
from nest_opt.plan.family import aligned_maps
from nest_opt.plan.placement import Placement
from nest_opt.planners import Outcome, ablations, planners
from nest_opt.problem import Problem
from nest_opt.problem.files import read_problem

MODELS = tuple(SEQUENCE_LENGTHS)
RATIOS = (1, 2, 4, 8, 16)
# Of the second part: with more, a search on links sixteen times slower takes a minute.
ABLATION_DEVICES = 64
BASELINES = tuple(planners())
ABLATIONS = tuple(ablations())
# Planners that know no levels of the network.
AGNOSTIC = ("no-network", "inner-bandwidth", "mean-bandwidth", "outer-bandwidth")
OPTIMUM = "nest_opt"


class Task(NamedTuple):
    """One problem: a paper instance, perhaps with slower links outside the node."""

    model: str
    cluster: str
    devices: int
    ratio: int
    sharded: bool

    @property
    def name(self) -> str:
        """What progress calls it."""
        kind = f", outer links 1:{self.ratio}, ZeRO 0 to 3" if self.sharded else ""
        return f"{self.model}-{self.cluster}-{self.devices}{kind}"


class Row(NamedTuple):
    """What a planner makes of a problem; times in picoseconds, empty where there is none.

    Attributes
    ----------
    ratio, zero
        By what the bandwidths outside the node are divided; the ZeRO levels of the search space.
    value_ps
        Of its plan.
    bound_ps
        Of the optimum: what no plan of the family is below. It is certified, and the certificate
        checked, in part one.
    placed_ps
        Of an ablation's plan on the best of all device maps, its degrees and stages kept.
    mostly
        The term of the batch time that makes most of the difference to the optimum.
    plan
        Its degrees, or why it has none.
    """

    model: str
    cluster: str
    devices: int
    ratio: int
    zero: str
    planner: str
    value_ps: str
    bound_ps: str
    placed_ps: str
    mostly: str
    plan: str

    @property
    def excess(self) -> float | None:
        """By which share of the optimum's time the plan takes longer; None without a plan."""
        return int(self.value_ps) / int(self.bound_ps) - 1 if self.value_ps else None

    @property
    def placed_excess(self) -> float | None:
        """The same on the best device map."""
        return int(self.placed_ps) / int(self.bound_ps) - 1 if self.placed_ps else None

    @property
    def is_tie(self) -> bool:
        """Whether the plan takes exactly the optimum's time."""
        return self.value_ps == self.bound_ps


def tasks() -> list[Task]:
    """Return every problem of both parts."""
    whole = [
        Task(model, cluster, devices, 1, False)
        for cluster in CLUSTERS
        for model in MODELS
        for devices in DEVICES
    ]
    slower = [
        Task(model, cluster, ABLATION_DEVICES, ratio, True)
        for cluster in CLUSTERS
        for model in MODELS
        for ratio in RATIOS
    ]
    return whole + slower


def problem_of(task: Task) -> Problem:
    """Return the problem: the instance, and what the task changes of it."""
    problem = read_problem(FOLDER / f"{task.model}-{task.cluster}-{task.devices}.json")
    if not task.sharded:
        return problem
    network = planned_levels(problem.cluster)
    inner, *outer = network.levels
    slower = [
        level.model_copy(update={"oversubscription": level.oversubscription * task.ratio})
        for level in outer
    ]
    network = network.model_copy(update={"levels": (inner, *slower)})
    search = problem.search.model_copy(update={"zero": (0, 1, 2, 3)})
    cluster = problem.cluster.model_copy(update={"network": network})
    return problem.model_copy(update={"cluster": cluster, "search": search})


def measure(task: Task) -> list[Row]:
    """Return the rows of a problem: the optimum's, then each planner's.

    Raises
    ------
    RuntimeError
        If a planner's plan is better than the optimum, or the bound is not the optimum's
        value, certified.
    """
    problem = problem_of(task)
    best = solve(problem)
    if best.evaluation is None or best.plan is None or best.bound_ps is None:
        raise RuntimeError(f"{task.name}: the search has no plan: {best.status}")
    value, bound_ps = best.evaluation.value_ps, best.bound_ps
    if not task.sharded:
        bound_ps = certified_bound_ps(problem, best)
    if bound_ps != value:
        raise RuntimeError(f"{task.name}: value {value} ps and bound {bound_ps} ps, not equal")
    zero = "0,1,2,3" if task.sharded else "0"
    head = (task.model, task.cluster, task.devices, task.ratio, zero)
    rows = [Row(*head, OPTIMUM, str(value), str(bound_ps), "", "", degrees_text(best.plan))]
    chosen = ablations() if task.sharded else {**planners(), **ablations()}
    for name, planner in chosen.items():
        found = planner.plan(problem)
        if found.plan is None or found.evaluation is None:
            rows.append(Row(*head, name, "", str(bound_ps), "", "", f"none: {found.reason}"))
            continue
        if found.evaluation.value_ps < value:
            raise RuntimeError(f"{task.name}: {name} has {found.evaluation.value_ps} ps, better")
        placed = str(placed_ps(problem, found)) if name in AGNOSTIC else ""
        mostly = mostly_text(best.evaluation, found.evaluation)
        text = degrees_text(found.plan)
        own = str(found.evaluation.value_ps)
        rows.append(Row(*head, name, own, str(bound_ps), placed, mostly, text))
    return rows


def certified_bound_ps(problem: Problem, best) -> int:
    """Return the bound of the aligned family that a certificate proves, by the checker alone."""
    found = bound(problem, start=best)
    if found.certificate is None:
        raise RuntimeError(f"{problem.name}: no certificate: {found.uncertified}")
    return check(found.certificate, problem).least_ps


def placed_ps(problem: Problem, found: Outcome) -> int:
    """Return the least time of a plan's degrees and stages on any map of the aligned family."""
    costs, placement = Costs(problem), found.plan.placement()
    maps = aligned_maps(
        costs.network.group_sizes,
        problem.cluster.device_count,
        placement.configurations[0].block_size,
        placement.replicas,
        placement.stages,
        problem.search,
    )
    return min(evaluate(costs, moved(placement, each)).value_ps for each in maps)


def moved(placement: Placement, device_map) -> Placement:
    """Return a placement on another device map."""
    return replace(placement, order=device_map.order, pitch=device_map.pitch)


def mostly_text(best: Evaluation, other: Evaluation) -> str:
    """Return the term that makes most of the difference to the optimum; empty at a tie."""
    if best.value_ps == other.value_ps:
        return ""
    terms = term_changes(best, other)
    return max(terms, key=lambda name: terms[name])


def degrees_text(plan) -> str:
    """Return a plan's degrees in short."""
    stages = plan.stages
    repeat = sum(stage.recompute != "none" for stage in stages)
    sequence = " sp" if plan.sp else ""
    return (
        f"b {plan.microbatch} tp {plan.tp}{sequence} ep {plan.ep} dp {plan.dp} pp {len(stages)} "
        f"zero {plan.zero} {plan.order}, {repeat} of {len(stages)} stages recompute"
    )


def measure_all(asked: Sequence[Task], processes: int, log: Callable[[str], None]) -> list[Row]:
    """Measure problems in processes of their own; the rows are in the order of the tasks."""
    start, found = time.perf_counter(), {}
    # The long ones first, so that no process is left over with one.
    queue = sorted(asked, key=lambda task: (-task.devices, -task.ratio))
    pool = ProcessPoolExecutor(processes)
    try:
        running = {pool.submit(measure, task): task for task in queue}
        for done in as_completed(running):
            task = running[done]
            found[task] = done.result()
            seconds = time.perf_counter() - start
            log(f"{len(found)} of {len(asked)}, {seconds:.0f} s: {task.name}")
    finally:
        pool.shutdown(cancel_futures=True)
    return [row for task in asked for row in found[task]]
