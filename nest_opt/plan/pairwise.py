"""Costs of a problem whose network is asked pair by pair: equations (90) and (91)."""

from collections.abc import Sequence
from dataclasses import replace

from nest_opt.errors import InstanceError
from nest_opt.network.pair_levels import PairLevels
from nest_opt.network.pairs import PairNetwork
from nest_opt.plan.evaluate import Costs
from nest_opt.plan.placement import ListedMap, Placement
from nest_opt.problem import Problem

# Constraints that are about layers, stages and degrees, not about levels and their groups.
WITHOUT_LEVELS = frozenset(
    ("colocation", "anti-colocation", "pinned-layers", "forbidden-boundary", "degree-limit")
)


def pairwise_costs(problem: Problem, network: PairNetwork | PairLevels) -> Costs:
    """Return the costs of a problem on a network of pairs, whatever its cluster says of levels.

    Plans are then about the network's own device numbers.

    Parameters
    ----------
    problem
        The problem; of its cluster the kind and the number of devices count.
    network
        The network, of as many devices.

    Raises
    ------
    InstanceError
        If the numbers of devices differ, the problem has a cost model of its own, or a
        constraint that names levels; and as `PairLevels`.
    """
    devices = problem.cluster.device_count
    if network.device_count != devices:
        raise InstanceError(
            f"network: found {network.device_count:,} devices, the problem's cluster has "
            f"{devices:,}: give it as many"
        )
    if problem.is_placement_graph or problem.job.cost_model == "artifact":
        raise InstanceError(
            "job: found a placement graph or cost_model artifact, costs of pairs are of the "
            "default cost model alone: use the problem's own network"
        )
    for number, constraint in enumerate(problem.constraints):
        if constraint.type not in WITHOUT_LEVELS:
            raise InstanceError(
                f"constraints[{number}]: found {constraint.type!r}, which is about levels, and "
                f"pairs have none; allowed are {', '.join(sorted(WITHOUT_LEVELS))}: remove it"
            )
    levels = network if isinstance(network, PairLevels) else PairLevels.of(network)
    return Costs(problem, given_network=levels)


def on_devices(placement: Placement, order: Sequence[int]) -> Placement:
    """Return a placement with its devices written out, place p of an order for device p.

    A plan for the levels of an order of a graph's devices becomes one for the graph.
    """
    blocks = placement.device_map
    return replace(
        placement,
        order="listed",
        pitch=0,
        devices=ListedMap(
            tuple(
                tuple(
                    tuple(order[device] for device in blocks.block(replica, stage))
                    for replica in range(placement.replicas)
                )
                for stage in range(placement.stages)
            )
        ),
    )
