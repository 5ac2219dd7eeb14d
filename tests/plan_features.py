"""What a problem and its best plan make use of: the coverage of random problems."""

from collections.abc import Collection
from itertools import combinations
from math import prod

from nest_opt import solve
from nest_opt.certify.brute_force import enumerate_plans
from nest_opt.plan.evaluate import (
    Costs,
    Evaluation,
    block_groups,
    evaluate,
    hop_ends,
    placement_cell,
)
from nest_opt.plan.placement import Placement
from nest_opt.problem import Problem
from nest_opt.problem.profile import GROUPS


def problem_features(problem: Problem) -> set[str]:
    """Return what a problem has, whatever its best plan."""
    levels = problem.cluster.network.levels
    bandwidths = [level.bandwidth_bytes_per_s for level in levels]
    sizes = [level.size for level in levels]
    constraints = {constraint.type for constraint in problem.constraints}
    facts = {
        f"objective {problem.job.objective}": True,
        f"levels {len(levels)}": True,
        "a group size not a power of two": any(size.bit_count() != 1 for size in sizes),
        "a bandwidth rises with the level": bandwidths != sorted(bandwidths, reverse=True),
        "fewer devices than places": problem.cluster.device_count < prod(sizes),
        "edges given": problem.model.edges is not None,
        "layers in any order": problem.search.layer_order == "any",
        **{f"{name} may differ by stage": True for name in problem.search.per_stage},
        **{f"constraint {name}": True for name in constraints},
        **{f"schedule {name}": True for name in problem.search.schedule},
    }
    return {name for name, holds in facts.items() if holds}


def plan_features(problem: Problem, placement: Placement, evaluation: Evaluation) -> set[str]:
    """Return what the best plan has, and what decided that it is the best."""
    k, device_map = placement.configurations[0], placement.device_map
    sizes = [high - low for chunks in placement.intervals for low, high in chunks]
    streams = placement.microbatch * k.ep * placement.replicas
    modes = set(placement.recompute)
    rounds = evaluation.rounds
    facts = {
        f"m {rounds if rounds < 4 else 'of 4 and more'}": True,
        f"pitch {pitch_kind(problem, placement)} with all allowed": len(problem.search.pitch) == 3,
        "order dp-inner with both allowed": placement.order == "dp-inner"
        and len(problem.search.order) == 2,
        "stages differ in tp": len({k.tp for k in placement.configurations}) > 1,
        "stages differ in sp": len({k.sp for k in placement.configurations}) > 1,
        OTHER_ORDER: placement.layer_order is not None,
        f"schedule {placement.schedule.name}": True,
        "S > 1": placement.stages > 1,
        "d > 1": placement.replicas > 1,
        "S > 1 and d > 1": placement.stages > 1 and placement.replicas > 1,
        "tp > 1": k.tp > 1,
        "cp > 1": k.cp > 1,
        "ep > 1": k.ep > 1,
        "sp": k.sp,
        "a call is hidden": any(
            call.hidden_s and k.degree(call.group) > 1
            for kind in problem.model.used_types
            for call in kind.by_key[placement.microbatch, k].collectives
        ),
        "order dp-inner": placement.order == "dp-inner",
        f"pitch {pitch_kind(problem, placement)}": True,
        "replicas see different levels": replicas_differ(problem, placement),
        "a group inside a block straddles": block_straddles(problem, placement),
        "recompute full somewhere": "full" in modes,
        "recompute full and none": {"full", "none"} <= modes,
        "recompute selective somewhere": "selective" in modes,
        "recompute selective and another": "selective" in modes and len(modes) > 1,
        "stages of unequal size": max(sizes) > min(sizes) + 1,
        "devices idle": device_map.devices_used < problem.cluster.device_count,
        "padded batch": problem.job.global_batch % streams != 0,
        "sync in the value": sync_counts(evaluation),
        "not bottleneck-optimal in its cell": beyond_bottleneck(problem, placement, evaluation),
        "memory binds": improves(problem, evaluation.value_ps, "memory"),
        "constraints bind": bool(problem.constraints)
        and improves(problem, evaluation.value_ps, "constraints"),
        **{
            f"{name} binds": improves(problem, evaluation.value_ps, name)
            for name in {constraint.type for constraint in problem.constraints}
        },
    }
    return {name for name, holds in facts.items() if holds}


OTHER_ORDER = "layers in another order than listed"
# What any problem of the whole space may combine; of its best plans, any two should meet.
MEETING = (
    "tp > 1",
    "cp > 1",
    "ep > 1",
    "sp",
    "d > 1",
    "order dp-inner",
    "recompute full somewhere",
    "recompute selective somewhere",
    "schedule gpipe",
    "schedule interleaved",
    "schedule zb-h1",
    "zero 1",
    "zero 2",
    "zero 3",
    "zero of experts differs",
    "zero in runs",
    "tied ends exchange",
    "tree counts",
    "a call is hidden",
    "memory binds",
    "constraints bind",
    "devices idle",
    "stages differ",
    OTHER_ORDER,
)
# No plan has both: one schedule and one level a plan, stages that differ have no chunks, and
# stages of another order know neither chunks, nor ties, nor stages that differ.
APART = (
    *(
        {OTHER_ORDER, other}
        for other in ("schedule interleaved", "tied ends exchange", "stages differ")
    ),
    {"schedule gpipe", "schedule interleaved", "schedule zb-h1"},
    {"zero 1", "zero 2", "zero 3"},
    {"stages differ", "schedule interleaved"},
)


def meetings(features: Collection[str]) -> set[str]:
    """Return which two features meet in a plan."""
    here = [name for name in MEETING if name in features]
    return {f"{one} + {other}" for one, other in combinations(here, 2)}


def possible_meetings() -> set[str]:
    """Return all that can meet."""
    return {
        f"{one} + {other}"
        for one, other in combinations(MEETING, 2)
        if not any({one, other} <= apart for apart in APART)
    }


def space_features(problem: Problem, placement: Placement, evaluation: Evaluation) -> set[str]:
    """Return what of the whole space a best plan has, beyond `plan_features`."""
    zero, name = placement.zero, placement.schedule.name
    key = placement.microbatch, placement.configurations[-1]
    tied = problem.model.types[-1].by_key[key].tied_parameters
    is_exchanged = tied and problem.job.bytes_per_parameter.gradients
    profiles = [kind.by_key[key] for kind in problem.model.used_types]
    facts = {
        f"zero {max(zero.dense, zero.expert)}": bool(zero),
        "zero of experts differs": zero.dense != zero.expert,
        "zero in runs": zero.instances > 1,
        "zero chosen among levels": len(problem.zeros) > 1 and bool(zero),
        "tied ends exchange": bool(is_exchanged) and placement.stages > 1,
        "tied ends exchange shares": bool(is_exchanged)
        and placement.stages > 1
        and zero.dense >= 2,
        "tied in one stage": bool(tied) and placement.stages == 1,
        "expert parameters": any(profile.expert_parameters for profile in profiles),
        "tree counts": tree_counts(problem, placement, evaluation),
        "stages differ": len(set(placement.configurations)) > 1,
        "a schedule chosen among several": len(problem.search.schedules) > 1,
        f"{name} beats 1f1b": "1f1b" in problem.search.schedule and name != "1f1b",
        "zb-h1 with sync in the value": name == "zb-h1" and sync_counts(evaluation),
        "interleaved with m > S": name == "interleaved" and evaluation.rounds > placement.stages,
        "three chunks": placement.schedule.chunks == 3,
    }
    return {name for name, holds in facts.items() if holds}


def tree_counts(problem: Problem, placement: Placement, evaluation: Evaluation) -> bool:
    """Whether the plan's value is another where all collectives take the ring."""
    if "tree" not in problem.cluster.network.algorithms:
        return False
    network = problem.cluster.network.model_copy(update={"algorithms": ("ring",)})
    cluster = problem.cluster.model_copy(update={"network": network})
    costs = Costs(problem.model_copy(update={"cluster": cluster}))
    return evaluate(costs, placement).value_ps != evaluation.value_ps


def pitch_kind(problem: Problem, placement: Placement) -> str:
    """Return the first of tight, level and spread that a placement's pitch is."""
    sizes = [k.block_size for k in placement.configurations]
    units = [sum(sizes)]
    if placement.order == "dp-inner":
        choices = (
            {k.block_size for _, k in problem.candidates} if problem.search.per_stage else sizes
        )
        units = [placement.replicas * size for size in choices if size >= max(sizes)]
    if placement.pitch in units:
        return "tight"
    levels = [level.size for level in problem.cluster.network.levels]
    groups = [prod(levels[: number + 1]) for number in range(len(levels))]
    rounded = {-(-unit // group) * group for group in groups for unit in units}
    return "level" if placement.pitch in rounded else "spread"


def replicas_differ(problem: Problem, placement: Placement) -> bool:
    """Whether some stage's hops or groups lie on other levels in another replica."""
    network, device_map = Costs(problem).network, placement.device_map
    for stage in range(placement.stages):
        seen = set()
        for replica in range(placement.replicas):
            block = device_map.block(replica, stage)
            levels = [
                network.level(ranks)
                for group in GROUPS
                for ranks in block_groups(block, placement.configurations[stage], group)
            ]
            if stage + 1 < placement.stages:
                ends = hop_ends(device_map, placement.configurations, replica, stage, stage + 1)
                levels += [network.level(pair) for pair in ends]
            seen.add(tuple(levels))
        if len(seen) > 1:
            return True
    return False


def block_straddles(problem: Problem, placement: Placement) -> bool:
    """Whether some block's group spans a level that one aligned to device 0 would not."""
    network, device_map = Costs(problem).network, placement.device_map
    for stage, k in enumerate(placement.configurations):
        for group in GROUPS:
            aligned = max(network.level(r) for r in block_groups(range(k.block_size), k, group))
            for replica in range(placement.replicas):
                block = device_map.block(replica, stage)
                if max(network.level(r) for r in block_groups(block, k, group)) > aligned:
                    return True
    return False


def sync_counts(evaluation: Evaluation) -> bool:
    """Whether gradient synchronisation adds to the value."""
    if evaluation.objective == "fill-drain":
        return any(stage.exposed_sync_ps for stage in evaluation.stages)
    return evaluation.objective == "nest" and any(stage.sync_ps for stage in evaluation.stages)


def beyond_bottleneck(problem: Problem, placement: Placement, evaluation: Evaluation) -> bool:
    """Whether a plan of the same cell has a faster slowest stage."""
    if problem.constraints:
        return False
    plans = enumerate_plans(Costs(problem), placement_cell(problem, placement))
    least = min(max(stage.time_ps for stage in plan.stages) for plan in plans)
    return least < max(stage.time_ps for stage in evaluation.stages)


def improves(problem: Problem, value_ps: int, without: str) -> bool:
    """Whether the best plan gets better without memory limit, constraints, or those of a type."""
    if without != "memory":
        kept = tuple(c for c in problem.constraints if without not in ("constraints", c.type))
        relaxed = problem.model_copy(update={"constraints": kept})
    else:
        kinds = {
            name: kind.model_copy(update={"memory_bytes": 10**15})
            for name, kind in problem.cluster.device_kinds.items()
        }
        cluster = problem.cluster.model_copy(update={"device_kinds": kinds})
        relaxed = problem.model_copy(update={"cluster": cluster})
    result = solve(relaxed)
    assert result.evaluation is not None
    return result.evaluation.value_ps < value_ps
