"""`random`: the best of many plans drawn at random."""

import random
from dataclasses import dataclass

from nest_opt.plan.placement import DeviceMap
from nest_opt.planners.protocol import Outcome
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
            trial = trials.attempt(drawn.degrees, drawn.device_map, drawn.ends)
            if trial and (best is None or trial.value_ps < best.value_ps):
                best = trial
        return best
