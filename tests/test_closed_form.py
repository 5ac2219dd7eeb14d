"""Bounds in closed form: those of one group and those of many at once are the same, and bounds."""

import random

import numpy as np
import pytest

from nest_opt.cost.objective import batch_time_ps, objective_weights
from nest_opt.cost.schedule import runs
from nest_opt.dp.closed_form import closed_form_ps, closed_forms, layer_times
from nest_opt.problem.job import Objective
from nest_opt.problem.schedule import Schedule

OBJECTIVES: tuple[Objective, ...] = ("fill-drain", "nest", "bottleneck")
SCHEDULES = (Schedule(), Schedule("gpipe"), Schedule("interleaved", 2), Schedule("zb-h1"))


def drawn(seed: int) -> tuple[random.Random, list[int], list[int]]:
    """Return a source, and times of layers with those of their weights' gradients; some are 0."""
    rng = random.Random(seed)
    times = [rng.choice((0, rng.randint(0, 30), rng.randint(0, 3))) for _ in range(6)]
    return rng, times, [rng.randint(0, time) for time in times]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_no_split_of_layers_is_below(objective: Objective, schedule: Schedule) -> None:
    """Of random stages of random layers and hops, none has an objective below the bound."""
    tight = 0
    for seed in range(200):
        rng, times, gradients = drawn(seed)
        bound_of = layer_times(np.array(times), np.array(gradients))
        for stages in range(1, 5):
            rounds = rng.choice((1, 2, 3, stages, 2 * stages, 12))
            if not runs(schedule, stages, rounds):
                continue
            # A stage of an interleaved schedule may be any layers: its chunks are.
            place = [rng.randrange(stages) for _ in times]
            hops = [rng.choice((0, 0, 5)) if stages > 1 else 0 for _ in range(stages)]
            value = batch_time_ps(
                objective,
                rounds,
                [sum(t for t, p in zip(times, place, strict=True) if p == s) + hops[s]
                 for s in range(stages)],
                [0] * stages,
                [0] * stages,
                schedule,
                [sum(w for w, p in zip(gradients, place, strict=True) if p == s)
                 for s in range(stages)],
            )  # fmt: skip
            weights = objective_weights(objective, stages, rounds, schedule)
            bound = closed_form_ps(bound_of, sum(hops), stages, weights)
            assert bound <= value, (seed, stages, rounds)
            tight += bound == value
    assert tight > 50


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_many_at_once_are_those_of_one(objective: Objective, schedule: Schedule) -> None:
    """In floats, each is the bound of its number of stages, less what that was rounded up by."""
    for seed in range(100):
        rng, times, gradients = drawn(seed)
        layers = layer_times(np.array(times), np.array(gradients))
        rounds = rng.randint(1, 24)
        choices = [stages for stages in range(1, 7) if runs(schedule, stages, rounds)]
        if not choices:
            continue
        weights = [objective_weights(objective, s, rounds, schedule) for s in choices]
        hops = np.array([rng.randint(0, 9) if s > 1 else 0 for s in choices], np.float64)
        every = closed_forms(layers, hops, choices, weights)
        for found, hop, stages, each in zip(every, hops, choices, weights, strict=True):
            exact = closed_form_ps(layers, int(hop), stages, each)
            # Even shares of time are rounded up before they are weighted, those of loads after.
            up = 1 if each.has_loads else 1 + each.max_weight / each.chunks
            assert exact - up <= found <= exact + 1e-9, (seed, stages, rounds)
