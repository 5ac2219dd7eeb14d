"""Ablations: the search of this package with a part of the costs, or of the choices, taken away.

Each is the package's own dynamic program on a problem that leaves something
out. The plan that is best there is then evaluated and checked in full, so that
what it loses is what the part that was left out is worth.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from nest_opt.dp.search import SearchResult
from nest_opt.dp.sources import cell_source
from nest_opt.dp.staged_search import search_all
from nest_opt.plan.check import check
from nest_opt.plan.evaluate import Costs, evaluate
from nest_opt.plan.placement import Placement
from nest_opt.planners.beliefs import Belief, with_one_bandwidth, without_memory_limit
from nest_opt.planners.manual import equal_ends
from nest_opt.planners.protocol import Outcome
from nest_opt.planners.trials import Trial, Trials, outcome
from nest_opt.problem import Problem
from nest_opt.problem.constraints import ForbiddenBoundary


@dataclass(frozen=True)
class OneBandwidthPlanner:
    """The best plan for a network all of whose levels are alike, or cost nothing.

    Attributes
    ----------
    belief
        What all levels are taken to be.
    """

    name: str
    belief: Belief

    def plan(self, problem: Problem) -> Outcome:
        """Return the plan that is best on that network, with the device map that it has there."""
        return outcome(self.name, problem, self._believed)

    def _believed(self, trials: Trials) -> Trial | str | None:
        placement = best_placement(with_one_bandwidth(trials.problem, self.belief))
        if placement is None:
            return "no plan fits, whatever the network"
        return judged(trials, placement)


@dataclass(frozen=True)
class MemoryLastPlanner:
    """The best plan for devices of ample memory, made to fit afterwards.

    Its microbatch and configuration stay; ZeRO levels, recomputation, device
    map and boundaries are chosen anew. If no such plan fits there may be more
    stages, with fewer replicas where devices run out; then the microbatch is
    the next smaller one.

    Attributes
    ----------
    first
        Whether S is raised step by step, each S with as many of the replicas as
        there are devices for, and the first that fits is taken; else the best
        of all S from that of the plan on, with as many replicas or fewer.
    """

    name: str
    first: bool

    def plan(self, problem: Problem) -> Outcome:
        """Return the plan, or what it becomes."""
        return outcome(self.name, problem, self._fitting)

    def _fitting(self, trials: Trials) -> Trial | str | None:
        placement = best_placement(without_memory_limit(trials.problem))
        if placement is None:
            return "no plan is legal, whatever the memory"
        repairs = _stepwise if self.first else _at_once
        for narrowed in repairs(trials, placement):
            repaired = best_placement(narrowed)
            if repaired is None:
                trials.tried += 1
                trials.refused["memory or a constraint"] += 1
                continue
            trial = judged(trials, repaired)
            if trial:
                return trial
        return None


@dataclass(frozen=True)
class EqualStagesPlanner:
    """The best plan whose stages have equally many blocks, all else chosen jointly.

    A first and a last layer that are like no other go on top, as of `manual`.
    """

    name: str = "equal-stages"

    def plan(self, problem: Problem) -> Outcome:
        """Return the best plan of the numbers of stages that divide the blocks."""
        return outcome(self.name, problem, self._best)

    def _best(self, trials: Trials) -> Trial | str | None:
        best: Trial | None = None
        for narrowed in _equal_spaces(trials):
            placement = best_placement(narrowed)
            if placement is None:
                trials.tried += 1
                trials.refused["memory or a constraint"] += 1
                continue
            trial = judged(trials, placement)
            if trial and (best is None or trial.value_ps < best.value_ps):
                best = trial
        return best


def best_placement(problem: Problem) -> Placement | None:
    """Return the best placement of a problem by the dynamic program, None if there is none.

    Raises
    ------
    KeyboardInterrupt
        If the search was cut short, which a planner has no use for.
    """
    costs = Costs(problem)
    found: SearchResult = search_all(costs, cell_source(costs))
    if found.status == "interrupted":
        raise KeyboardInterrupt
    return found.placement


def judged(trials: Trials, placement: Placement) -> Trial | None:
    """Evaluate and check a placement by the problem's own costs; None if it is not legal."""
    trials.tried += 1
    evaluation = evaluate(trials.costs, placement)
    broken = check(trials.costs, placement, evaluation)
    if broken:
        trials.refused[broken[0].rule] += 1
        return None
    return Trial(placement, evaluation)


def _stepwise(trials: Trials, placement: Placement) -> Iterator[Problem]:
    """Yield the problem narrowed to one S and one d at a time, more and more stages."""
    for size in _microbatches(trials, placement):
        for stages, legal in _room(trials, placement, size).items():
            yield from _repair(trials, placement, size, (stages,), (max(legal),))


def _at_once(trials: Trials, placement: Placement) -> Iterator[Problem]:
    """Yield the problem narrowed to every S from that of a plan on, and its d or fewer."""
    for size in _microbatches(trials, placement):
        room = _room(trials, placement, size)
        if room:
            legal = tuple(sorted(set().union(*room.values())))
            yield from _repair(trials, placement, size, tuple(room), legal)


def _repair(
    trials: Trials,
    placement: Placement,
    microbatch: int,
    stages: tuple[int, ...],
    replicas: tuple[int, ...],
) -> Iterator[Problem]:
    """Yield the problem with these degrees and the plan's configuration, if it has any plan."""
    k, search = placement.configurations[0], trials.problem.search
    # A number of runs that divides no d is refused, where it is named.
    runs = tuple(h for h in search.zero_instances if any(d % h == 0 for d in replicas))
    if not runs:
        return
    values = {
        "microbatch": (microbatch,),
        "tp": tuple(sorted({each.tp for each in placement.configurations})),
        "sp": tuple(sorted({each.sp for each in placement.configurations})),
        "cp": (k.cp,),
        "ep": (k.ep,),
        "dp": replicas,
        "pp": stages,
        "zero_instances": runs,
    }
    yield _narrowed(trials.problem, values)


def _microbatches(trials: Trials, placement: Placement) -> list[int]:
    """Return the plan's microbatch and the smaller ones, largest first."""
    sizes = {size for size, _ in trials.costs.table.replicas if size <= placement.microbatch}
    return sorted(sizes, reverse=True)


def _room(trials: Trials, placement: Placement, microbatch: int) -> dict[int, list[int]]:
    """Return the numbers of replicas, up to the plan's, that each S from its own on leaves."""
    k, devices = placement.configurations[0], trials.problem.cluster.device_count
    legal, asked = trials.costs.table.replicas.get((microbatch, k), ()), trials.problem.search.pp
    found = {}
    for stages in range(placement.stages, trials.layers + 1):
        most = min(placement.replicas, devices // (stages * k.block_size))
        if asked is None or stages in asked:
            found[stages] = [replicas for replicas in legal if replicas <= most]
    return {stages: replicas for stages, replicas in found.items() if replicas}


def _equal_spaces(trials: Trials) -> Iterator[Problem]:
    """Yield the problem narrowed to each number of equal stages."""
    problem, ids = trials.problem, trials.problem.model.ids
    asked = problem.search.pp
    # Both refuse a space of interleaved schedules alone, whose stages have several chunks.
    most = max(map(trials.most_stages, trials.degrees))
    schedules = tuple(sorted({each.schedule.name for each in trials.degrees}))
    for stages in range(1, most + 1):
        ends = equal_ends(trials.costs.table.layer_rows, stages)
        if ends is None or (asked is not None and stages not in asked):
            continue
        # A constraint for each other place where a stage could end.
        others = tuple(
            ForbiddenBoundary(type="forbidden-boundary", after=layer)
            for place, layer in enumerate(ids[:-1], start=1)
            if place not in ends
        )
        values = {"pp": (stages,), "schedule": schedules, "layer_order": "listed"}
        narrowed = _narrowed(problem, values)
        yield narrowed.model_copy(update={"constraints": (*problem.constraints, *others)})


def _narrowed(problem: Problem, values: Mapping[str, object]) -> Problem:
    return problem.model_copy(update={"search": problem.search.model_copy(update=values)})
