"""The checker's face of each constraint: what breaks it in a placement.

`CHECKERS` maps a constraint's type to a function that yields its violations.
"""

from collections.abc import Callable, Iterator
from typing import Any

from nest_opt.plan.evaluate import Costs, Evaluation
from nest_opt.plan.placement import Placement
from nest_opt.plan.violation import Violation
from nest_opt.problem import Colocation, ForbiddenBoundary, HopLatency

Checker = Callable[[Any, Costs, Placement, Evaluation], Iterator[Violation]]


def check_colocation(
    constraint: Colocation, costs: Costs, placement: Placement, _: Evaluation
) -> Iterator[Violation]:
    """Yield a violation if the named layers are not all in one stage."""
    index = costs.problem.model.index
    stage_of = {
        name: next(s for s, end in enumerate(placement.ends) if index[name] < end)
        for name in constraint.layers
    }
    if len(set(stage_of.values())) > 1:
        where = ", ".join(f"{name!r} in stage {stage}" for name, stage in stage_of.items())
        yield Violation("colocation", where, "1 stage is allowed", "move the stage boundaries")


def check_forbidden_boundary(
    constraint: ForbiddenBoundary, costs: Costs, placement: Placement, _: Evaluation
) -> Iterator[Violation]:
    """Yield a violation if a stage ends right after the named layer."""
    cut = costs.problem.model.index[constraint.after] + 1
    if cut in placement.ends[:-1]:
        yield Violation(
            "forbidden-boundary",
            f"stage {placement.ends.index(cut)} ends after {constraint.after!r}",
            "no stage may end there",
            "move the stage boundary",
        )


def check_hop_latency(
    constraint: HopLatency, costs: Costs, placement: Placement, evaluation: Evaluation
) -> Iterator[Violation]:
    """Yield a violation for each stage with a hop, of any replica, above the limit."""
    levels = costs.problem.cluster.network.levels
    device_map = placement.device_map
    for stage in range(placement.stages - 1):
        level = max(
            costs.network.level(pair)
            for replica in range(placement.replicas)
            for pair in zip(
                device_map.block(replica, stage), device_map.block(replica, stage + 1), strict=True
            )
        )
        if levels[level].latency_s > constraint.limit_s:
            yield Violation(
                "hop-latency",
                f"hop from stage {stage} to {stage + 1}: {levels[level].latency_s} s "
                f"(level {levels[level].name!r})",
                f"at most {constraint.limit_s} s is allowed",
                "use fewer stages, another rank order or a pitch that keeps hops inside groups",
            )


CHECKERS: dict[str, Checker] = {
    "colocation": check_colocation,
    "forbidden-boundary": check_forbidden_boundary,
    "hop-latency": check_hop_latency,
}
