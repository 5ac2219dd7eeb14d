"""Objectives: the time of one batch from the times of its stages.

All are formulas for a pipeline of S stages and m rounds, with F_i the time of
a round on stage i, W_i the plain time of its weight gradients, and Y_i, X_i its
full and its exposed sync time. What a schedule changes is the *fill* f_i of a
stage: what one microbatch costs there while the pipeline fills and drains.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from nest_opt.problem.job import Objective
from nest_opt.problem.schedule import ONE_F_ONE_B, Schedule


@dataclass(frozen=True)
class ObjectiveWeights:
    """An objective as (sum_weight * sum f + max L) / chunks, rounded up, + max Z.

    The fill is f = max(0, F - hidden_weight * W), here times v, and the load L =
    round_weight * F + fill_weight * f. Z is the exposed sync X, the full sync
    Y, or nothing.
    """

    sum_weight: int
    round_weight: int
    fill_weight: int
    sync: bool
    chunks: int = 1
    hidden_weight: int = 0

    @property
    def max_weight(self) -> int:
        """The weight of max F where nothing is hidden: the fill is F then."""
        return self.round_weight + self.fill_weight

    @property
    def has_loads(self) -> bool:
        """Whether the loads of stages are in no fixed ratio to F, since fills are not."""
        return self.hidden_weight > 0 and self.fill_weight != 0

    def fill_ps(self, stage_time_ps: int, weight_gradient_ps: int) -> int:
        """Return v times the fill of a stage."""
        return max(0, stage_time_ps - self.hidden_weight * weight_gradient_ps)

    def whole_ps(self, scaled_ps: int) -> int:
        """Return v times a time as the time, rounded up."""
        return -(-scaled_ps // self.chunks)


def objective_weights(
    objective: Objective, stages: int, rounds: int, schedule: Schedule = ONE_F_ONE_B
) -> ObjectiveWeights:
    """Return the weights of an objective for S stages and m rounds: equations (17) to (19).

    The fill of (69) is F under 1F1B and GPipe, F / v where v chunks take turns,
    and under ZB-H1 what is left of F less 2 W.
    """
    v, hidden = schedule.chunks, 2 if schedule.name == "zb-h1" else 0
    if objective == "fill-drain":
        return ObjectiveWeights(1, v * rounds, -1, True, v, hidden)
    if objective == "nest":
        return ObjectiveWeights(0, v * rounds, stages - 1, True, v, hidden)
    return ObjectiveWeights(0, v * rounds, 0, False, v, hidden)


def batch_time_ps(
    objective: Objective,
    rounds: int,
    stage_time_ps: Sequence[int],
    sync_ps: Sequence[int],
    backward_before_ps: Sequence[int],
    schedule: Schedule = ONE_F_ONE_B,
    weight_gradient_ps: Sequence[int] | None = None,
) -> int:
    """Return the objective's value in picoseconds, rounded up.

    Parameters
    ----------
    objective
        fill-drain: the largest, over stages k, of m F_k + the fills of the
        others, + max X, X_i = max(0, Y_i - the backward time that hides it);
        nest: the largest of m F_k + (S - 1) f_k, + max Y; bottleneck: m max F.
    rounds
        m, microbatches per pipeline.
    stage_time_ps, sync_ps, backward_before_ps
        F_i, Y_i and the backward time that hides sync of stage i.
    schedule
        Says what the fill is.
    weight_gradient_ps
        W_i; nothing but ZB-H1 asks for it.
    """
    weights = objective_weights(objective, len(stage_time_ps), rounds, schedule)
    parts = weight_gradient_ps or [0] * len(stage_time_ps)
    fills = [weights.fill_ps(f, w) for f, w in zip(stage_time_ps, parts, strict=True)]
    load = max(
        weights.round_weight * time + weights.fill_weight * fill
        for time, fill in zip(stage_time_ps, fills, strict=True)
    )
    value = weights.whole_ps(weights.sum_weight * sum(fills) + load)
    if objective == "fill-drain":
        exposed = (max(0, y - b) for y, b in zip(sync_ps, backward_before_ps, strict=True))
        return value + max(exposed)
    return value + (max(sync_ps) if weights.sync else 0)
