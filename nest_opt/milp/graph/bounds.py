"""Lower bounds in closed form, and the stages that a cutoff leaves to a part. No Pyomo here.

All rest on one inequality. A stage of kind k with a load below V holds layers
of less than V on that kind, so for any weights w_k >= 0 the parts U of some
stages satisfy

    sum over u in U of min over k of w_k t_k(u) <= (V - 1) * sum over these stages of w_k.

Weights are integers, so that nothing is rounded.
"""

from collections.abc import Sequence

import numpy as np

from nest_opt.milp.graph.parts import Parts

# Of one unit of the commonest kind's time.
WEIGHT = 1000
QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)


def bound_ps(parts: Parts) -> int | None:
    """Return (G19), a lower bound on the largest load; None if some part fits nowhere.

    It is at least each part's time on its best kind, and each weighting's
    share of all parts.
    """
    best = []
    for part in range(parts.count):
        times = [
            time
            for kind in parts.kinds
            if (time := kind.time_ps[part]) is not None
            and kind.size_bytes[part] <= kind.usable_bytes
        ]
        if not times:
            return None
        best.append(min(times))
    shares = [0]
    for weights in weightings(parts):
        capacity = sum(w * k.devices for w, k in zip(weights, parts.kinds, strict=True))
        shares.append(-(-sum(weighted_times(parts, weights)) // capacity))
    return max(*shares, *best)


def windows(parts: Parts, kinds: Sequence[int], cutoff_ps: int | None) -> tuple[range, ...]:
    """Return (G18): per part, the stages that it can be in if all loads are below a cutoff.

    The parts before it along the precedence are in its stage or in earlier
    ones, which must have room for them; those after it likewise.

    Parameters
    ----------
    parts
        A placement graph, contiguous.
    kinds
        The kind of each stage.
    cutoff_ps
        What loads must be below; None for no such limit.
    """
    first = np.zeros(parts.count, dtype=int)
    last = np.full(parts.count, len(kinds) - 1)
    if cutoff_ps is None:
        return tuple(range(len(kinds)) for _ in range(parts.count))
    reaches = parts.reaches.astype(object)
    for weights in weightings(parts):
        times = np.array(weighted_times(parts, weights), dtype=object)
        room = np.array([weights[kind] * (cutoff_ps - 1) for kind in kinds], dtype=object)
        # Work that the stages from either end have room for, up to each stage.
        upto, from_end = room.cumsum(), room[::-1].cumsum()
        before, after = times @ reaches, reaches @ times
        first = np.maximum(first, (upto[:, None] < before).sum(axis=0))
        last = np.minimum(last, len(kinds) - 1 - (from_end[:, None] < after).sum(axis=0))
    return tuple(range(low, high + 1) for low, high in zip(first, last, strict=True))


def weightings(parts: Parts) -> list[tuple[int, ...]]:
    """Return weights of the kinds: how much faster or slower they are than the commonest.

    Speeds differ between parts, so the quantiles of the ratios are taken.
    """
    common = max(parts.kinds, key=lambda kind: kind.devices)
    ratios = []
    for kind in parts.kinds:
        ratio = [
            WEIGHT * base / time
            for base, time in zip(common.time_ps, kind.time_ps, strict=True)
            if base is not None and time
        ]
        ratios.append(np.quantile(ratio or [WEIGHT], QUANTILES))
    found = {tuple(int(weight) for weight in column) for column in np.array(ratios).T}
    return sorted(weights for weights in found if any(weights))


def weighted_times(parts: Parts, weights: Sequence[int]) -> list[int]:
    """Return per part its least weighted time over the kinds; 0 where no kind has it."""
    return [
        min(
            (
                weight * time
                for weight, kind in zip(weights, parts.kinds, strict=True)
                if (time := kind.time_ps[part]) is not None
            ),
            default=0,
        )
        for part in range(parts.count)
    ]
