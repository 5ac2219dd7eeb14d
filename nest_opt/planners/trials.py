"""Trials: placements that a planner puts before the one evaluator and the one checker."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from nest_opt.cost.schedule import in_flight, rounds_per_batch
from nest_opt.cost.sharding import Sharding, fits_replicas
from nest_opt.errors import InstanceError
from nest_opt.plan.check import check
from nest_opt.plan.evaluate import (
    Costs,
    Evaluation,
    StageEvaluation,
    evaluate,
    evaluate_stage,
    evaluated_objective,
    stages_value_ps,
)
from nest_opt.plan.family import aligned_maps
from nest_opt.plan.placement import Cell, DeviceMap, Interval, Placement
from nest_opt.plan.plan import plan_from_placement
from nest_opt.plan.rules import require_checkers
from nest_opt.planners.memory import StageMemory
from nest_opt.planners.protocol import Outcome
from nest_opt.problem import Configuration, Problem
from nest_opt.problem.profile import Recompute
from nest_opt.problem.schedule import Schedule
from nest_opt.problem.zero import Zero

# Stages of which the evaluation is remembered: a change moves two of them at a time.
_REMEMBERED = 8192


@dataclass(frozen=True, order=True)
class Degrees:
    """All decisions of a plan but the stages and the device map.

    Attributes
    ----------
    microbatch, configuration, replicas
        b, the k of every stage, and d.
    zero, schedule
        What is sharded, and a pipeline schedule of one chunk a stage.
    """

    microbatch: int
    configuration: Configuration
    replicas: int
    zero: Zero
    schedule: Schedule

    @property
    def pair(self) -> tuple[int, Configuration]:
        """(microbatch size, configuration), the key of costs."""
        return self.microbatch, self.configuration


@dataclass(frozen=True)
class Trial:
    """A legal placement and its evaluation."""

    placement: Placement
    evaluation: Evaluation

    @property
    def value_ps(self) -> int:
        """The objective's value."""
        return self.evaluation.value_ps


class Trials:
    """The evaluator as a planner sees it: it counts, and remembers why it refused.

    Parameters
    ----------
    problem
        A pipeline under the default cost model.

    Attributes
    ----------
    tried
        Placements so far.
    refused
        How many of them broke which rule first.
    """

    def __init__(self, problem: Problem) -> None:
        refuse_other(problem)
        require_checkers(problem)
        self.problem = problem
        self.costs = Costs(problem)
        self.tried = 0
        self.refused: Counter[str] = Counter()
        self._objective = evaluated_objective(problem)
        self._stage = lru_cache(_REMEMBERED)(self._evaluated_stage)

    @property
    def layers(self) -> int:
        """n, the number of layers."""
        return self.costs.table.layer_count

    @cached_property
    def node_size(self) -> int:
        """Devices of the innermost network group, as far as there are so many."""
        return min(self.costs.network.group_sizes[0], self.problem.cluster.device_count)

    @cached_property
    def degrees(self) -> tuple[Degrees, ...]:
        """Every choice of degrees that the search space has, schedules of several chunks aside.

        Raises
        ------
        InstanceError
            If there is none.
        """
        schedules = [s for s in self.problem.search.schedules if not s.is_interleaved]
        if not schedules:
            raise InstanceError(
                "search.schedule: found interleaved alone, the planners know schedules of one "
                "chunk a stage: add 1f1b, gpipe or zb-h1"
            )
        return tuple(
            Degrees(*pair, replicas, zero, schedule)
            for pair, legal in sorted(self.costs.table.replicas.items())
            for replicas in legal
            for zero in self.problem.zeros
            if fits_replicas(zero, replicas)
            for schedule in schedules
        )

    @cached_property
    def plain_degrees(self) -> tuple[Degrees, ...]:
        """Those with the least that may be sharded and the first schedule."""
        least = min(each.zero for each in self.degrees)
        first = min(each.schedule for each in self.degrees)
        return tuple(e for e in self.degrees if e.zero == least and e.schedule == first)

    def most_stages(self, degrees: Degrees) -> int:
        """Return the largest S that layers and devices allow."""
        block = degrees.configuration.block_size * degrees.replicas
        return min(self.layers, self.problem.cluster.device_count // block)

    def stage_counts(self, degrees: Degrees) -> list[int]:
        """Return every S that layers, devices and the search space allow."""
        asked = self.problem.search.pp
        return [
            count
            for count in range(1, self.most_stages(degrees) + 1)
            if asked is None or count in asked
        ]

    def maps(self, degrees: Degrees, stages: int) -> list[DeviceMap]:
        """Return the device maps of the aligned family."""
        return aligned_maps(
            self.costs.network.group_sizes,
            self.problem.cluster.device_count,
            degrees.configuration.block_size,
            degrees.replicas,
            stages,
            self.problem.search,
        )

    def map(self, degrees: Degrees, stages: int, order: str) -> DeviceMap | None:
        """Return the first map of a rank order, else the first of all; None if there is none."""
        maps = self.maps(degrees, stages)
        return next((m for m in maps if m.order == order), maps[0] if maps else None)

    def rounds(self, degrees: Degrees) -> int:
        """Return m."""
        rounds = rounds_per_batch(
            self.problem.job, degrees.microbatch, degrees.configuration.ep, degrees.replicas
        )
        assert rounds is not None
        return rounds

    def sharding(self, degrees: Degrees) -> Sharding:
        """Return what the costs of the ZeRO level depend on."""
        return Sharding(degrees.zero, degrees.replicas, self.rounds(degrees))

    def memory(self, degrees: Degrees) -> StageMemory:
        """Return the memory of every run of layers; of unsharded states it is one for all d."""
        sharding = self.sharding(degrees)
        if not degrees.zero:
            sharding = Sharding(degrees.zero, 1, 1)
        return self._memory(degrees.pair, sharding)

    @cached_property
    def _memory(self) -> Callable[[tuple[int, Configuration], Sharding], StageMemory]:
        @lru_cache(256)
        def memory(pair: tuple[int, Configuration], sharding: Sharding) -> StageMemory:
            return StageMemory(self.costs.table, pair, sharding)

        return memory

    def modes(self, degrees: Degrees, ends: Sequence[int]) -> tuple[Recompute, ...] | None:
        """Return the mode of least time that fits each stage, None if some stage has none."""
        memory, rounds, found = self.memory(degrees), self.rounds(degrees), []
        for stage, (low, high) in enumerate(zip((0, *ends), ends, strict=False)):
            flight = in_flight(degrees.schedule, stage, len(ends), rounds)
            mode = memory.mode(low, high, flight)
            if mode is None:
                return None
            found.append(mode)
        return tuple(found)

    def attempt(
        self,
        degrees: Degrees,
        device_map: DeviceMap,
        ends: Sequence[int],
        modes: Sequence[Recompute] | None = None,
    ) -> Trial | None:
        """Evaluate and check a placement; return None if it is not legal.

        Without `modes` each stage has the one of least time that fits.
        """
        self.tried += 1
        modes = modes or self.modes(degrees, ends)
        if modes is None:
            self.refused["memory"] += 1
            return None
        cell = Cell(
            degrees.microbatch,
            degrees.configuration,
            self.rounds(degrees),
            device_map,
            degrees.zero,
            degrees.schedule,
        )
        stages = tuple(
            self._stage(cell, stage, run, mode)
            for stage, (run, mode) in enumerate(
                zip(zip((0, *ends), ends, strict=False), modes, strict=True)
            )
        )
        value = stages_value_ps(self._objective, cell, stages)
        evaluation = Evaluation(self._objective, cell.rounds, stages, value, cell.schedule)
        placement = cell.placement(tuple(ends), tuple(modes))
        broken = check(self.costs, placement, evaluation)
        if broken:
            self.refused[broken[0].rule] += 1
            return None
        return Trial(placement, evaluation)

    def _evaluated_stage(
        self, cell: Cell, stage: int, run: Interval, mode: Recompute
    ) -> StageEvaluation:
        return evaluate_stage(self.costs, cell, stage, (run,), mode)

    def refusals(self) -> str:
        """Return how many placements were tried, and what they broke."""
        if not self.refused:
            return "no degrees that were tried have a number of stages and a device map"
        rules = ", ".join(f"{count:,} by {rule}" for rule, count in self.refused.most_common())
        return f"{self.tried:,} placements were tried, none is legal: refused {rules}"


def refuse_other(problem: Problem) -> None:
    """Refuse a problem that the planners have no costs for.

    Raises
    ------
    InstanceError
        If it is a placement graph, or asks for the artifact's cost model.
    """
    if problem.is_placement_graph:
        raise InstanceError(
            "job.transfer: found 'sender-once' (a placement graph), 'relay' is needed: the "
            "planners know pipelines alone; use `nest-opt solve`"
        )
    if problem.job.cost_model == "artifact":
        raise InstanceError(
            "job.cost_model: found 'artifact', 'default' is needed: the planners know the default "
            "cost model alone; benchmarks/paper.py scores the artifact's own baselines"
        )


def outcome(
    name: str, problem: Problem, propose: Callable[[Trials], "Trial | str | None"]
) -> Outcome:
    """Run a planner's search, and evaluate and check its answer anew.

    Parameters
    ----------
    name
        The planner's.
    problem
        The problem.
    propose
        Returns the planner's answer; a reason why it has none; or None where
        the trials tell the reason.
    """
    start = time.perf_counter()
    trials = Trials(problem)
    found = propose(trials)
    wall_s = time.perf_counter() - start
    if not isinstance(found, Trial):
        return Outcome(name, None, None, found or trials.refusals(), trials.tried, wall_s)
    evaluation = evaluate(trials.costs, found.placement)
    broken = check(trials.costs, found.placement, evaluation)
    if broken:
        return Outcome(name, None, None, str(broken[0]), trials.tried, wall_s)
    plan = plan_from_placement(problem, found.placement, evaluation.objective, evaluation.value_ps)
    return Outcome(name, plan, evaluation, None, trials.tried, wall_s)
