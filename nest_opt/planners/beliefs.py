"""What a planner that ignores a part of the costs takes a problem to be."""

from collections.abc import Sequence
from decimal import Context, Decimal
from fractions import Fraction
from typing import Literal

from nest_opt.network import planned_levels
from nest_opt.network.protocol import build_network
from nest_opt.problem import Problem
from nest_opt.problem.base import MAX_BYTES

Belief = Literal["none", "inner", "mean", "outer"]
_DIGITS = Context(prec=15)


def with_one_bandwidth(problem: Problem, belief: Belief) -> Problem:
    """Return a problem with all levels of its network alike.

    Of a network that is not hierarchical these are the levels that it is
    planned by. Groups stay as they are: which devices form a node is needed to
    say which plans there are, and costs no time any more.

    Parameters
    ----------
    problem
        The problem.
    belief
        What bandwidth and latency all levels have. `none`: 10^15 bytes/s, the
        most that the format has, and no latency. `inner`, `outer`: those of the
        innermost level, and of the outermost that the devices need. `mean`: the
        arithmetic means over these levels. The bandwidth of a level is what a
        transfer gets there, the least of the levels up to it.
    """
    network = planned_levels(problem.cluster)
    used = build_network(problem.cluster).level((0, problem.cluster.device_count - 1)) + 1
    levels = network.levels[:used]
    rates = [min(level.bandwidth_bytes_per_s for level in levels[: n + 1]) for n in range(used)]
    bandwidth, latency = {
        "none": (Decimal(MAX_BYTES), Decimal(0)),
        "inner": (rates[0], levels[0].latency_s),
        "outer": (rates[-1], levels[-1].latency_s),
        "mean": (_mean(rates), _mean([level.latency_s for level in levels])),
    }[belief]
    alike = {"bandwidth_bytes_per_s": bandwidth, "latency_s": latency}
    changed = tuple(level.model_copy(update=alike) for level in network.levels)
    return _with_cluster(problem, {"network": network.model_copy(update={"levels": changed})})


def without_memory_limit(problem: Problem) -> Problem:
    """Return a problem whose devices have 10^15 bytes, the most that the format has."""
    ample = {"memory_bytes": MAX_BYTES, "usable_share": 1, "reserve_bytes": 0}
    kinds = {
        name: kind.model_copy(update=ample) for name, kind in problem.cluster.device_kinds.items()
    }
    return _with_cluster(problem, {"device_kinds": kinds})


def _mean(values: Sequence[Decimal]) -> Decimal:
    """Return the arithmetic mean, to 15 digits."""
    total, count = sum(map(Fraction, values), Fraction(0)), len(values)
    return _DIGITS.divide(Decimal(total.numerator), Decimal(total.denominator * count))


def _with_cluster(problem: Problem, update: dict[str, object]) -> Problem:
    return problem.model_copy(update={"cluster": problem.cluster.model_copy(update=update)})
