"""Objectives: the time of one batch from the times of its stages.

All are formulas for a 1F1B pipeline of S stages and m rounds, with F_i the
time of a round on stage i and Y_i, X_i its full and its exposed sync time.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from nest_opt.problem.job import Objective


@dataclass(frozen=True)
class ObjectiveWeights:
    """An objective as sum_weight * sum F + max_weight * max F + max Z.

    Z is the exposed sync X, the full sync Y, or nothing.
    """

    sum_weight: int
    max_weight: int
    sync: bool


def objective_weights(objective: Objective, stages: int, rounds: int) -> ObjectiveWeights:
    """Return the weights of an objective for S stages and m rounds."""
    if objective == "fill-drain":
        return ObjectiveWeights(1, rounds - 1, True)
    if objective == "nest":
        return ObjectiveWeights(0, rounds + stages - 1, True)
    return ObjectiveWeights(0, rounds, False)


def batch_time_ps(
    objective: Objective,
    rounds: int,
    stage_time_ps: Sequence[int],
    sync_ps: Sequence[int],
    backward_before_ps: Sequence[int],
) -> int:
    """Return the objective's value in picoseconds.

    Parameters
    ----------
    objective
        fill-drain: sum F + (m - 1) max F + max X, X_i = max(0, Y_i - backward
        time of the layers before stage i); nest: (m + S - 1) max F + max Y;
        bottleneck: m max F.
    rounds
        m, microbatches per pipeline.
    stage_time_ps, sync_ps, backward_before_ps
        F_i, Y_i and the plain backward time of all layers before stage i.
    """
    slowest = max(stage_time_ps)
    if objective == "fill-drain":
        exposed = (max(0, y - b) for y, b in zip(sync_ps, backward_before_ps, strict=True))
        return sum(stage_time_ps) + (rounds - 1) * slowest + max(exposed)
    if objective == "nest":
        return (rounds + len(stage_time_ps) - 1) * slowest + max(sync_ps)
    return rounds * slowest
