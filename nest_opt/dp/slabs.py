"""That no plan of a cell is below a target: slab by slab of its largest sync.

With all syncs at most x, let v be the least sum F + w max F. A plan whose max Z
is above L - 1 - v is at L or above, so what is left has max Z at most L - 1 - v: the
next x. When none is left, all is shown. The limits are what a checker needs to repeat it.
"""

from collections.abc import Sequence

from nest_opt.cost.objective import ObjectiveWeights
from nest_opt.dp.chain import INFINITE, UNLIMITED
from nest_opt.dp.passes import Passes, Stages
from nest_opt.dp.thresholds import load_weight


def slabs(
    pipelines: Sequence[Passes[Stages]], weights: ObjectiveWeights, target_ps: int
) -> tuple[int, ...] | None:
    """Return limits x1 > x2 > ... of max Z that show that no value is below a target.

    With x0 infinite, and -1 after the last one, plans with max Z in (x_(k + 1), x_k] have
    sum F + w max F >= target - 1 - x_(k + 1). None if some pipeline has a plan below
    the target.

    Parameters
    ----------
    pipelines
        Every plan is one of some pipeline of these.
    weights
        The objective.
    target_ps
        The target.
    """
    limits: list[int] = []
    most_sync = UNLIMITED
    while True:
        least = min(
            least_without_sync(pipeline, weights, most_sync, target_ps) for pipeline in pipelines
        )
        if least >= target_ps:
            return tuple(limits)
        below = target_ps - 1 - least
        if below >= most_sync or not weights.sync:
            return None
        limits.append(below)
        most_sync = below


def least_without_sync(
    pipeline: Passes[Stages], weights: ObjectiveWeights, most_sync: int, limit: int
) -> int:
    """Return the least sum F + w max F with syncs up to a limit, `limit` if it is no less."""
    weight, best = load_weight(weights), limit
    if not weights.sum_weight:
        slowest = pipeline.least_max_time(most_sync)
        return min(best, weight * slowest) if slowest < INFINITE else best
    most_time = UNLIMITED
    while True:
        total, stages = pipeline.least_sum_time(most_time, most_sync)
        if total >= min(INFINITE, best):
            return best
        slowest, _ = pipeline.measure(stages)
        best = min(best, total + weight * slowest)
        if not weight:
            return best
        most_time = min(slowest - 1, (best - 1 - total) // weight)
        if most_time < 0:
            return best
