"""What a planner believes of the times of stages: for all runs of layers at once.

The times are the table's, at levels that the planner takes for granted. The
evaluator alone knows the levels that a placement has.
"""

from dataclasses import dataclass

import numpy as np

from nest_opt.cost.schedule import in_flight
from nest_opt.cost.sharding import CopyLevels, step_sync
from nest_opt.cost.table import CLASSES, row_times
from nest_opt.planners.memory import Array
from nest_opt.planners.trials import Degrees, Trials

# Above any sum of stage times, with room for one addition.
INFINITE = 2**61


def block_levels(trials: Trials, degrees: Degrees) -> tuple[int, int, int]:
    """Return the levels of the tp, cp and ep groups of the block that starts at device 0."""
    k, network = degrees.configuration, trials.costs.network
    return (
        network.level((0, k.tp - 1)),
        network.level((0, k.tp * k.cp - 1)),
        network.level((0, k.block_size - 1)),
    )


@dataclass(frozen=True)
class StageTimes:
    """The believed time of a round of every run of layers, under each mode.

    Attributes
    ----------
    trials, degrees
        The problem, and the degrees.
    hop_level
        Of all hops; None leaves hops out.
    """

    trials: Trials
    degrees: Degrees
    hop_level: int | None

    def of_stage(self, place_from_end: int, stages: int | None = None) -> Array:
        """Return the times as s-th stage from the end, of S if that is known.

        Each run has the mode of least time that fits; INFINITE is none. Under
        1F1B and GPipe S does not matter.
        """
        count = stages or place_from_end
        stage = count - place_from_end
        return self._fitting(in_flight(self.degrees.schedule, stage, count, self._rounds))

    @property
    def _rounds(self) -> int:
        return self.trials.rounds(self.degrees)

    def _fitting(self, flight: int) -> Array:
        table, memory = self.trials.costs.table, self.trials.memory(self.degrees)
        costs = table.pairs[self.degrees.pair]
        rows = row_times(costs, self.degrees.configuration, block_levels(self.trials, self.degrees))
        times = np.full((table.layer_count + 1,) * 2, INFINITE, np.int64)
        for mode in reversed(memory.modes):
            times = np.where(memory.fits(mode, flight), memory.sums(rows[mode]), times)
        if self.hop_level is not None:
            hops = np.array(costs.hop_ps[self.hop_level], np.int64)
            hops[[0, -1]] = 0
            times = np.minimum(times + hops[:, None] + hops[None, :], INFINITE)
        return times

    def total_ps(self) -> int:
        """Return the time of all layers in one stage with all the memory it wants, hops aside."""
        table = self.trials.costs.table
        rows = row_times(
            table.pairs[self.degrees.pair],
            self.degrees.configuration,
            block_levels(self.trials, self.degrees),
        )
        return sum(rows["none"][row] for row in table.layer_rows)


def sync_times(trials: Trials, degrees: Degrees, level: int) -> Array:
    """Return the sync of every run of layers, all copies being at one level: (15) and (63).

    They spread as well as they can on it.
    """
    table, sharding = trials.costs.table, trials.sharding(degrees)
    memory = trials.memory(degrees)
    total = np.zeros((table.layer_count + 1,) * 2, np.int64)
    for name in CLASSES:
        copies = sharding.inside(degrees.configuration, name), sharding.zero.runs(name)
        spreads = CopyLevels(*(trials.costs.network.spreads.best(n, level) for n in copies))
        cost = step_sync(table, degrees.configuration, name, sharding, spreads)
        if cost is not None:
            parameters = memory.sums(table.pairs[degrees.pair].parameters[name])
            total += np.where(parameters > 0, cost.fixed_ps + memory.sums(cost.row_ps), 0)
    return total
