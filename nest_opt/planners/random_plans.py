"""`random`: the best of many plans drawn at random."""

import random
from dataclasses import dataclass

from nest_opt.cost.table import row_times
from nest_opt.plan.placement import DeviceMap
from nest_opt.planners.protocol import Outcome
from nest_opt.planners.stage_times import block_levels
from nest_opt.planners.trials import Degrees, Trial, Trials, outcome
from nest_opt.problem import Problem


@dataclass(frozen=True)
class Draw:
    """A placement, modes aside.

    Attributes
    ----------
    degrees, device_map
        All decisions but the stages.
    ends
        For each stage, one past its last layer.
    """

    degrees: Degrees
    device_map: DeviceMap
    ends: tuple[int, ...]


def draw(trials: Trials, generator: random.Random) -> Draw | None:
    """Draw degrees, then S, then a device map and cuts, each evenly; None where S has no map."""
    degrees = generator.choice(trials.degrees)
    counts = trials.stage_counts(degrees)
    if not counts:
        return None
    stages = generator.choice(counts)
    maps = trials.maps(degrees, stages)
    if not maps:
        return None
    cuts = sorted(generator.sample(range(1, trials.layers), stages - 1))
    return Draw(degrees, generator.choice(maps), (*cuts, trials.layers))


def least_ps(trials: Trials, drawn: Draw) -> int:
    """Return what a draw takes at least, without evaluating it: m rounds of the slowest stage.

    Nothing is repeated, hops and syncs are free, and groups are on the levels of the first
    block, which no other block is below. Under ZB-H1 a round may overlap more: 0.
    """
    degrees, table = drawn.degrees, trials.costs.table
    if degrees.schedule.name not in ("1f1b", "gpipe"):
        return 0
    pair = table.pairs[degrees.pair]
    times = row_times(pair, degrees.configuration, block_levels(trials, degrees))["none"]
    slowest = max(
        sum(times[row] for row in table.layer_rows[low:high])
        for low, high in zip((0, *drawn.ends), drawn.ends, strict=False)
    )
    return trials.rounds(degrees) * slowest


@dataclass(frozen=True)
class RandomPlanner:
    """The best of `budget` draws; each stage recomputes as little as fits.

    Attributes
    ----------
    seed, budget
        Of the generator; the draws.
    """

    seed: int = 0
    budget: int = 1000
    name: str = "random"

    def plan(self, problem: Problem) -> Outcome:
        """Return the best legal plan drawn."""
        return outcome(self.name, problem, self._best)

    def _best(self, trials: Trials) -> Trial | None:
        generator = random.Random(self.seed)
        best: Trial | None = None
        for _ in range(self.budget):
            drawn = draw(trials, generator)
            if drawn is None:
                continue
            if best and least_ps(trials, drawn) >= best.value_ps:
                trials.tried += 1
                continue
            trial = trials.attempt(drawn.degrees, drawn.device_map, drawn.ends)
            if trial and (best is None or trial.value_ps < best.value_ps):
                best = trial
        return best
