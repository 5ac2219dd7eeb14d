"""`mcmc`: a Metropolis-Hastings walk over configurations and stage boundaries.

Source: the search of FlexFlow, Jia, Zaharia and Aiken 2019 (MLSys,
arXiv:1807.05358), section 6: from a strategy in use, propose a change, and
accept it with probability min(1, exp(beta (cost - new cost))). As there,
proposals are taken to be as likely in both directions.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import exp

from nest_opt.planners.manual import manual_trial
from nest_opt.planners.protocol import Outcome
from nest_opt.planners.random_plans import Draw, draw
from nest_opt.planners.trials import Degrees, Trial, Trials, outcome
from nest_opt.problem import Problem

_Move = Callable[[Trials, random.Random, Draw], Draw | None]


@dataclass(frozen=True)
class McmcPlanner:
    """The best plan that a walk of `budget` steps meets.

    Attributes
    ----------
    seed, budget
        Of the generator; draws for a start and steps from it.
    temperature
        A change that makes the batch longer by this share of it is accepted
        with probability 1 / e.
    """

    seed: int = 0
    budget: int = 2000
    temperature: float = 0.02
    name: str = "mcmc"

    def plan(self, problem: Problem) -> Outcome:
        """Return the best legal plan met."""
        return outcome(self.name, problem, self._best)

    def _best(self, trials: Trials) -> Trial | None:
        generator = random.Random(self.seed)
        start = self._start(trials, generator)
        if start is None:
            return None
        state, current = start
        best = current
        while trials.tried < self.budget:
            proposed = generator.choice(MOVES)(trials, generator, state)
            # What cannot be moved counts as a step too.
            trial = None
            if proposed is None:
                trials.tried += 1
            else:
                trial = trials.attempt(proposed.degrees, proposed.device_map, proposed.ends)
            if proposed is None or trial is None:
                continue
            if generator.random() < acceptance(current.value_ps, trial.value_ps, self.temperature):
                state, current = proposed, trial
                best = min(best, current, key=lambda each: each.value_ps)
        return best

    def _start(self, trials: Trials, generator: random.Random) -> tuple[Draw, Trial] | None:
        """Return the plan of the rules of `manual`, else the first legal one drawn at random."""
        state = _manual_draw(trials)
        while True:
            if state is not None:
                trial = trials.attempt(state.degrees, state.device_map, state.ends)
                if trial:
                    return state, trial
            else:
                trials.tried += 1
            if trials.tried >= self.budget:
                return None
            state = draw(trials, generator)


def acceptance(value_ps: int, new_ps: int, temperature: float) -> float:
    """Return the probability of a step: 1 / e for one that is longer by the temperature's share."""
    if new_ps <= value_ps:
        return 1.0
    return exp((value_ps - new_ps) / (temperature * value_ps)) if value_ps else 0.0


def _manual_draw(trials: Trials) -> Draw | None:
    """Return the placement of `manual`, which the walk does not count."""
    before = trials.tried
    trial = manual_trial(trials)
    trials.tried = before
    trials.refused.clear()
    if not isinstance(trial, Trial):
        return None
    placement = trial.placement
    degrees = Degrees(
        placement.microbatch,
        placement.configurations[0],
        placement.replicas,
        placement.zero,
        placement.schedule,
    )
    device_map = trials.map(degrees, placement.stages, placement.order)
    return None if device_map is None else Draw(degrees, device_map, placement.ends)


def even_ends(layers: int, stages: int) -> tuple[int, ...]:
    """Return stage ends with numbers of layers that differ by at most 1."""
    return tuple(layers * stage // stages for stage in range(1, stages + 1))


def shift_boundary(trials: Trials, generator: random.Random, state: Draw) -> Draw | None:
    """Move one stage boundary by one layer; None where that empties a stage."""
    if len(state.ends) == 1:
        return None
    ends = list(state.ends)
    ends[generator.randrange(len(ends) - 1)] += generator.choice((-1, 1))
    whole = [0, *ends]
    is_partition = all(low < high for low, high in zip(whole, ends, strict=False))
    return replace(state, ends=tuple(ends)) if is_partition else None


def split_or_merge(trials: Trials, generator: random.Random, state: Draw) -> Draw | None:
    """Cut a stage in two, or make one of two neighbours."""
    cuts = list(state.ends[:-1])
    if generator.random() < 0.5:
        free = sorted(set(range(1, trials.layers)) - set(cuts))
        if not free:
            return None
        cuts = sorted([*cuts, generator.choice(free)])
    elif cuts:
        cuts.remove(generator.choice(cuts))
    else:
        return None
    return _placed(trials, generator, state.degrees, (*cuts, trials.layers))


def change_degrees(trials: Trials, generator: random.Random, state: Draw) -> Draw | None:
    """Take other degrees with the stages that there are."""
    return _placed(trials, generator, generator.choice(trials.degrees), state.ends)


def change_all(trials: Trials, generator: random.Random, state: Draw) -> Draw | None:
    """Take other degrees and another S, with even stages."""
    degrees = generator.choice(trials.degrees)
    counts = trials.stage_counts(degrees)
    if not counts:
        return None
    return _placed(trials, generator, degrees, even_ends(trials.layers, generator.choice(counts)))


def change_map(trials: Trials, generator: random.Random, state: Draw) -> Draw | None:
    """Take another device map."""
    return _placed(trials, generator, state.degrees, state.ends)


def _placed(
    trials: Trials, generator: random.Random, degrees: Degrees, ends: tuple[int, ...]
) -> Draw | None:
    """Return stages on a device map drawn evenly, None where they have none."""
    if len(ends) not in trials.stage_counts(degrees):
        return None
    maps = trials.maps(degrees, len(ends))
    return Draw(degrees, generator.choice(maps), ends) if maps else None


MOVES: tuple[_Move, ...] = (
    shift_boundary,
    split_or_merge,
    change_degrees,
    change_all,
    change_map,
)
