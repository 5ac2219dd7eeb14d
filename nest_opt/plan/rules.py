"""The checker's face of each constraint: what breaks it in a placement.

`CHECKERS` maps a constraint's type to a function that yields its violations.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

from nest_opt.errors import InstanceError
from nest_opt.network import planned_levels
from nest_opt.plan.evaluate import Costs, Evaluation, hop_ends
from nest_opt.plan.placement import AnyCell, Placement
from nest_opt.plan.violation import Violation
from nest_opt.problem import (
    AntiColocation,
    Colocation,
    DegreeLimit,
    FailureDomains,
    ForbiddenBoundary,
    HopLatency,
    PinnedLayers,
    Power,
    Problem,
    TpInsideNode,
    rule_of,
)
from nest_opt.problem.base import listed

Checker = Callable[[Any, Costs, Placement, Evaluation], Iterator[Violation]]


def _stages_of(layers: tuple[str, ...], costs: Costs, placement: Placement) -> dict[str, int]:
    """Return the stage that each of some layers is in."""
    stages = dict.fromkeys(layers, 0)
    ids = costs.problem.model.ids
    for stage, places in enumerate(placement.stage_layers):
        stages.update((ids[place], stage) for place in places if ids[place] in stages)
    return stages


def check_colocation(
    constraint: Colocation, costs: Costs, placement: Placement, _: Evaluation
) -> Iterator[Violation]:
    """Yield a violation if the named layers are not all in one stage."""
    stage_of = _stages_of(constraint.layers, costs, placement)
    if len(set(stage_of.values())) > 1:
        where = ", ".join(f"{name!r} in stage {stage}" for name, stage in stage_of.items())
        yield Violation("colocation", where, "1 stage is allowed", "move the stage boundaries")


def check_anti_colocation(
    constraint: AntiColocation, costs: Costs, placement: Placement, _: Evaluation
) -> Iterator[Violation]:
    """Yield a violation for each stage that has several of the named layers."""
    stage_of = _stages_of(constraint.layers, costs, placement)
    for stage in sorted(set(stage_of.values())):
        together = [name for name in constraint.layers if stage_of[name] == stage]
        if len(together) > 1:
            yield Violation(
                "anti-colocation",
                f"{len(together)} of the layers ({', '.join(map(repr, together))}) in stage "
                f"{stage}",
                "1 in a stage is allowed",
                "move the stage boundaries, or use more stages",
            )


def check_pinned_layers(
    constraint: PinnedLayers, costs: Costs, placement: Placement, _: Evaluation
) -> Iterator[Violation]:
    """Yield a violation if a named layer is in another stage, or there is no such stage."""
    asked = constraint.stage_of(placement.stages)
    if asked is None:
        yield Violation(
            "pinned-layers",
            f"{placement.stages} stages",
            f"at least {constraint.least_stages} are needed for stage {constraint.stage}",
            "use more stages",
        )
        return
    for name, stage in _stages_of(constraint.layers, costs, placement).items():
        if stage != asked:
            yield Violation(
                "pinned-layers",
                f"{name!r} in stage {stage}",
                f"stage {asked} is needed",
                "move the stage boundaries",
            )


def check_forbidden_boundary(
    constraint: ForbiddenBoundary, costs: Costs, placement: Placement, _: Evaluation
) -> Iterator[Violation]:
    """Yield a violation if the named layer is the last of a chunk, the last chunk's aside."""
    last = costs.problem.model.index[constraint.after]
    order = range(placement.ends[-1]) if placement.layer_order is None else placement.layer_order
    for chunk, end in enumerate(placement.ends[:-1]):
        if order[end - 1] == last:
            yield Violation(
                "forbidden-boundary",
                f"stage {chunk % placement.stages} ends after {constraint.after!r}",
                "no stage may end there",
                "move the stage boundary",
            )


def check_hop_latency(
    constraint: HopLatency, costs: Costs, placement: Placement, evaluation: Evaluation
) -> Iterator[Violation]:
    """Yield a violation for each stage with a hop, of any replica, above the limit."""
    levels = planned_levels(costs.problem.cluster).levels
    device_map = placement.device_map
    # With chunks the pipeline goes round, from the last stage to the first.
    hops = placement.stages if placement.schedule.is_interleaved else placement.stages - 1
    for stage in range(hops):
        after = (stage + 1) % placement.stages
        level = max(
            costs.network.level(pair)
            for replica in range(placement.replicas)
            for pair in hop_ends(device_map, placement.configurations, replica, stage, after)
        )
        if levels[level].latency_s > constraint.limit_s:
            yield Violation(
                "hop-latency",
                f"hop from stage {stage} to {after}: {levels[level].latency_s} s "
                f"(level {levels[level].name!r})",
                f"at most {constraint.limit_s} s is allowed",
                "use fewer stages, another rank order or a pitch that keeps hops inside groups",
            )


def check_degree_limit(
    constraint: DegreeLimit, _: Costs, placement: Placement | AnyCell, __: Evaluation | None = None
) -> Iterator[Violation]:
    """Yield a violation if the degree breaks one of its limits."""
    configurations = placement.configurations
    values = {
        "microbatch": [placement.microbatch],
        "tp": [k.tp for k in configurations],
        "cp": [k.cp for k in configurations],
        "ep": [k.ep for k in configurations],
        "dp": [placement.device_map.replicas],
        "pp": [placement.device_map.stages],
    }[constraint.degree]
    for value in sorted(set(values)):
        if not constraint.allows(value):
            yield Violation(
                "degree-limit",
                f"{constraint.degree} {value}",
                f"{constraint} is needed",
                f"use another {constraint.degree}",
            )


def check_tp_inside_node(
    constraint: TpInsideNode,
    costs: Costs,
    placement: Placement | AnyCell,
    _: Evaluation | None = None,
) -> Iterator[Violation]:
    """Yield a violation for the first tensor-parallel group in several of the level's groups."""
    size = planned_levels(costs.problem.cluster).group_size(constraint.level)
    for replica, stage, block in _blocks(placement):
        tp = placement.configurations[stage].tp
        for first in range(0, len(block), tp):
            ranks = block[first : first + tp]
            if len({device // size for device in ranks}) > 1:
                yield Violation(
                    "tp-inside-node",
                    f"a tp group of stage {stage}, replica {replica} on devices {min(ranks)} to "
                    f"{max(ranks)}",
                    f"1 {constraint.level!r} of {size} devices must hold it",
                    "lower tp, or use a pitch of whole groups",
                )
                return


def check_failure_domains(
    constraint: FailureDomains,
    costs: Costs,
    placement: Placement | AnyCell,
    _: Evaluation | None = None,
) -> Iterator[Violation]:
    """Yield a violation if a group of the level has devices of too many replicas."""
    size = planned_levels(costs.problem.cluster).group_size(constraint.level)
    held = {
        (device // size, replica) for replica, _, block in _blocks(placement) for device in block
    }
    replicas = Counter(group for group, _ in held)
    group, most = max(replicas.items(), key=lambda item: (item[1], -item[0]))
    if most > constraint.at_most:
        yield Violation(
            "failure-domains",
            f"{most} replicas with devices in {constraint.level!r} {group}",
            f"at most {constraint.at_most} of them may share one",
            "use fewer replicas, another rank order or a pitch of whole groups",
        )


def check_power(
    constraint: Power, costs: Costs, placement: Placement | AnyCell, _: Evaluation | None = None
) -> Iterator[Violation]:
    """Yield a violation if the devices in use in a group of the level draw too much."""
    cluster = costs.problem.cluster
    size = planned_levels(cluster).group_size(constraint.level)
    used = Counter(device // size for _, _, block in _blocks(placement) for device in block)
    group, devices = max(used.items(), key=lambda item: (item[1], -item[0]))
    watts = cluster.device_kind.watts
    assert watts is not None
    drawn = devices * Fraction(watts)
    if drawn > constraint.limit_w:
        yield Violation(
            "power",
            f"{float(drawn):g} W in {constraint.level!r} {group} ({devices} devices in use)",
            f"at most {constraint.limit_w} W is allowed",
            "use fewer devices, or a pitch that spreads them",
        )


def _blocks(placement: Placement | AnyCell) -> Iterator[tuple[int, int, Sequence[int]]]:
    """Yield (replica, stage, devices) of every block."""
    device_map = placement.device_map
    for replica in range(device_map.replicas):
        for stage in range(device_map.stages):
            yield replica, stage, device_map.block(replica, stage)


# Those that depend on degrees and device map alone: a cell keeps or breaks them.
CELL_RULES: dict[str, Callable[[Any, Costs, Placement | AnyCell], Iterator[Violation]]] = {
    "degree-limit": check_degree_limit,
    "tp-inside-node": check_tp_inside_node,
    "failure-domains": check_failure_domains,
    "power": check_power,
}

CHECKERS: dict[str, Checker] = {
    "colocation": check_colocation,
    "anti-colocation": check_anti_colocation,
    "pinned-layers": check_pinned_layers,
    "forbidden-boundary": check_forbidden_boundary,
    "hop-latency": check_hop_latency,
    "degree-limit": check_degree_limit,
    "tp-inside-node": check_tp_inside_node,
    "failure-domains": check_failure_domains,
    "power": check_power,
}


def require_checkers(problem: Problem) -> None:
    """Refuse a constraint that nobody can check.

    Raises
    ------
    InstanceError
        If a user's constraint is of a name that was not registered.
    """
    for number, constraint in enumerate(problem.constraints):
        name = rule_of(constraint)
        if name not in CHECKERS:
            known = listed(rule[5:] for rule in CHECKERS if rule.startswith("user:")) or "none"
            raise InstanceError(
                f"constraints[{number}].name: found {name[5:]!r}, a registered one is needed "
                f"({known}): run the file that calls nest_opt.register, or correct the name"
            )


def violations_of(
    costs: Costs, placement: Placement, evaluation: Evaluation
) -> Iterator[Violation]:
    """Yield what breaks a problem's constraints, memory aside."""
    for constraint in costs.problem.constraints:
        yield from CHECKERS[rule_of(constraint)](constraint, costs, placement, evaluation)
