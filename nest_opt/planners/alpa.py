"""`alpa`: the stages of Alpa's inter-operator pass, all on submeshes of one shape.

Source: Zheng et al. 2022, "Alpa: Automating Inter- and Intra-Operator
Parallelism for Distributed Deep Learning" (OSDI, arXiv:2201.12023). Section 5:
stages of layers on submeshes that cover all devices, each a power of two of a
node's devices or a number of whole nodes; equation (2), the sum of stage times
plus B - 1 times the largest, minimised by a DP for each limit on the largest;
transfers between stages are left out. Section 4: an ILP over the strategies of
all operators, which has one strategy to choose here, where all stages share a
configuration: enumerating its values solves it.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from nest_opt.planners.memory import Array
from nest_opt.planners.protocol import Outcome
from nest_opt.planners.stage_times import INFINITE, StageTimes, sync_times
from nest_opt.planners.trials import Degrees, Trial, Trials, outcome
from nest_opt.problem import Problem


class _Open(NamedTuple):
    """A choice of degrees and S: with a bound on its cost, or solved, with its stage ends."""

    cost_ps: int
    degrees: Degrees
    stages: int
    ends: tuple[int, ...] | None


@dataclass(frozen=True)
class AlpaPlanner:
    """The plan of least believed cost whose submeshes cover all devices.

    Attributes
    ----------
    most_tried
        Candidates that are put before the checker, best first, until one is legal.
    """

    most_tried: int = 20
    name: str = "alpa"

    def plan(self, problem: Problem) -> Outcome:
        """Return the legal plan of least believed cost."""
        return outcome(self.name, problem, self._first_legal)

    def _first_legal(self, trials: Trials) -> Trial | str | None:
        found = False
        for degrees, ends in _best_first(trials):
            found = True
            device_map = trials.map(degrees, len(ends), "dp-inner")
            if device_map is not None:
                trial = trials.attempt(degrees, device_map, ends)
                if trial:
                    return trial
            if trials.tried == self.most_tried:
                return None
        if not found:
            return "no submeshes of one shape cover all devices with stages that fit in memory"
        return None


def submesh_sizes(node_size: int, devices: int) -> list[int]:
    """Return the devices of Alpa's submeshes: powers of two below a node's, and whole nodes."""
    powers = [2**exponent for exponent in range(node_size.bit_length()) if 2**exponent < node_size]
    return [*powers, *range(node_size, devices + 1, node_size)]


def _best_first(trials: Trials) -> Iterator[tuple[Degrees, tuple[int, ...]]]:
    """Yield degrees and stage ends in the order of believed cost."""
    heap = [
        _Open(_bound(trials, degrees, stages), degrees, stages, None)
        for degrees, stages in _choices(trials)
    ]
    heapq.heapify(heap)
    while heap:
        first = heapq.heappop(heap)
        if first.ends is not None:
            yield first.degrees, first.ends
            continue
        solved = _solved(trials, first.degrees, first.stages)
        if solved:
            heapq.heappush(heap, solved)


def _choices(trials: Trials) -> Iterator[tuple[Degrees, int]]:
    """Yield degrees and S for which submeshes of one shape cover all devices."""
    devices = trials.problem.cluster.device_count
    sizes = set(submesh_sizes(trials.node_size, devices))
    for degrees in trials.plain_degrees:
        size = degrees.replicas * degrees.configuration.block_size
        stages, rest = divmod(devices, size)
        if size in sizes and not rest and stages in trials.stage_counts(degrees):
            yield degrees, stages


def _bound(trials: Trials, degrees: Degrees, stages: int) -> int:
    """Return a bound on the cost: no stage is below the mean."""
    total = StageTimes(trials, degrees, None).total_ps()
    return total + (trials.rounds(degrees) - 1) * -(-total // stages)


def _solved(trials: Trials, degrees: Degrees, stages: int) -> _Open | None:
    """Return the stages of least sum plus (m - 1) times the largest, None if nothing fits."""
    believed, rounds = StageTimes(trials, degrees, None), trials.rounds(degrees)
    size = degrees.replicas * degrees.configuration.block_size
    # The gradients' all-reduce counts as a share of it in each round (Alpa's auto-sharding pass,
    # `grad_acc_num_micro_batches`).
    sync = sync_times(trials, degrees, trials.costs.network.level((0, size - 1))) // rounds
    times = [
        np.minimum(believed.of_stage(place, stages) + sync, INFINITE)
        for place in range(1, stages + 1)
    ]
    best: _Open | None = None
    limit = INFINITE - 1
    while True:
        found = least_sum(times, limit)
        if found is None:
            return best
        ends, total, largest = found
        cost = total + (rounds - 1) * largest
        if best is None or cost < best.cost_ps:
            best = _Open(cost, degrees, stages, ends)
        # A lower limit only raises the sum, and no largest stage is below the mean.
        if total + (rounds - 1) * -(-total // stages) >= best.cost_ps:
            return best
        limit = largest - 1


def least_sum(times: list[Array], limit: int) -> tuple[tuple[int, ...], int, int] | None:
    """Return (ends, sum, largest) of the stages of least sum with none above a limit.

    `times` is by place from the end, shape (n + 1, n + 1) each.
    """
    n = len(times[0]) - 1
    least = np.full(n + 1, INFINITE, np.int64)
    least[n] = 0
    end_of = []
    for of_stage in times:
        allowed = np.where(of_stage <= limit, of_stage, INFINITE)
        sums = np.minimum(allowed + least[None, :], INFINITE)
        end_of.append(np.argmin(sums, axis=1))
        least = np.min(sums, axis=1)
    if least[0] >= INFINITE:
        return None
    ends, largest, low = [], 0, 0
    for place in range(len(times) - 1, -1, -1):
        ends.append(int(end_of[place][low]))
        largest = max(largest, int(times[place][low, ends[-1]]))
        low = ends[-1]
    return tuple(ends), int(least[0]), largest
