"""The hierarchical network under which plans for levels can be searched on a graph.

Devices take the places of an order; the groups of a level are runs of it. A
level's latency and bandwidth are the worst of any two devices that share one
of its groups, under what is assumed to be under way at once:

- `alone`: nothing else. A hop or a transfer of the graph that has its links to
  itself never takes longer than at its level here. Transfers that share links
  may: optimistic where a plan's traffic meets.
- `rings`: as `alone`, and all groups of the level pass one step of a ring at
  once, over consecutive devices and over every stride that is the size of
  a group of a lower level (as data-parallel ranks lie behind pipelines or
  tensor-parallel blocks). Rings at other strides, and traffic of several
  levels at once, may still be slower than here.
- `any`: as `alone`, and every device sends to at most one other and receives
  from at most one, all within groups of the level: no such transfers of equal
  size take longer than at the level here, whichever devices they join. All
  rings and pairwise exchanges are such; the steps of a tree, and traffic of
  two collectives at once, are not. Pessimistic for whatever meets less.

In each, a level takes the worst pair for all: plans are never rewarded for
using the better half of a group. So an optimum over these levels is a plan
whose transfers do no worse on the graph (as far as said above); it need not be
the graph's best plan, and a bound for these levels does not bound the graph.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Literal

import numpy as np

from nest_opt.errors import InstanceError
from nest_opt.network.distances import PairTable
from nest_opt.network.flows import Flow
from nest_opt.network.graph_network import GraphNetwork
from nest_opt.problem.base import MAX_BYTES
from nest_opt.problem.cluster import HierarchicalSpec, LevelSpec

Traffic = Literal["alone", "rings", "any"]

# Pairs of so many devices are routed one by one.
MAX_ROUTED_DEVICES = 512
# From so many devices on, all paths at once are found sooner than one search each.
MANY_ROUTES = 128
_DIGITS = 30


@dataclass(frozen=True)
class Worst:
    """The worst of a level: the greatest latency, and the least bytes/s."""

    latency_s: Fraction
    rate: Fraction


def derived_hierarchy(
    network: GraphNetwork,
    order: Sequence[int],
    sizes: Sequence[int],
    traffic: Traffic = "rings",
) -> HierarchicalSpec:
    """Derive the levels of a graph under an order of its devices.

    Latencies are rounded up and bandwidths down to 30 digits, if need be.

    Parameters
    ----------
    network
        The graph and its routes.
    order
        All devices, by the number that they get in the hierarchy.
    sizes
        Devices in a group of each level but the outermost, which holds all.
    traffic
        See the module.

    Raises
    ------
    InstanceError
        If the order is none of all devices, a size does not divide the next,
        or pairs would have to be routed one by one (`any`, and all with equal
        costs shared) on more devices than that is done for.
    """
    _check(network, order, sizes)
    bounds = [*sizes, len(order)]
    if len(order) == 1:
        worst = [Worst(Fraction(0), Fraction(MAX_BYTES))]
    elif network.router.sharing:
        worst = [_worst_routed(network, order, size) for size in bounds]
    else:
        if traffic == "rings" and len(order) > MANY_ROUTES:
            network.tabulate()
        table = network.pair_table()
        worst = [_worst_of_table(table, order, size) for size in bounds]
    rates = [found.rate for found in worst]
    if traffic == "rings":
        rates = [
            min((rate, *_ring_rates(network, order, bounds[: level + 1])))
            for level, rate in enumerate(rates)
        ]
    elif traffic == "any" and len(order) > 1:
        rates = [
            min(rate, _any_rate(network, order, size))
            for rate, size in zip(rates, bounds, strict=True)
        ]
    return levels_of_worst(
        bounds, [Worst(found.latency_s, rate) for found, rate in zip(worst, rates, strict=True)]
    )


def levels_of_worst(bounds: Sequence[int], worst: Sequence[Worst]) -> HierarchicalSpec:
    """Return the levels of groups of so many devices and of these terms, the outermost last.

    Latencies are rounded up and bandwidths down to 30 digits, if need be.
    """
    counts = [bounds[0], *(-(-outer // inner) for inner, outer in pairwise(bounds))]
    return HierarchicalSpec(
        type="hierarchical",
        levels=tuple(
            LevelSpec(
                name=f"level-{level}",
                size=count,
                bandwidth_bytes_per_s=_decimal(min(found.rate, Fraction(MAX_BYTES)), ROUND_FLOOR),
                latency_s=_decimal(found.latency_s, ROUND_CEILING),
            )
            for level, (count, found) in enumerate(zip(counts, worst, strict=True))
        ),
    )


def _check(network: GraphNetwork, order: Sequence[int], sizes: Sequence[int]) -> None:
    if sorted(order) != list(range(network.device_count)):
        raise InstanceError(
            f"order: found {len(order)} places, each of the {network.device_count} devices once "
            "is needed: correct it"
        )
    for inner, outer in pairwise([1, *sizes]):
        if outer <= inner or outer % inner or outer >= len(order):
            raise InstanceError(
                f"sizes: found {outer} after {inner}, a larger multiple below {len(order)} (all "
                "devices) is needed: correct it"
            )


def _decimal(number: Fraction, rounding: str) -> Decimal:
    context = Context(prec=_DIGITS, rounding=rounding)
    return context.divide(Decimal(number.numerator), Decimal(number.denominator))


def _groups(order: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    for start in range(0, len(order), size):
        yield order[start : start + size]


def _worst_of_table(table: PairTable, order: Sequence[int], size: int) -> Worst:
    latency, width = 0, len(table.graph.bandwidths) - 1
    for group in _groups(order, size):
        sites, counts = np.unique(table.site_of[list(group)], return_counts=True)
        block = np.ix_(sites, sites)
        latency = max(latency, int(table.latency[block].max()))
        widths = table.width[block]
        # A site's diagonal is for two of its devices: of one it says nothing.
        alone = np.flatnonzero(counts == 1)
        widths[alone, alone] = width
        width = min(width, int(widths.min()))
    return Worst(Fraction(latency, table.graph.latency_unit), table.graph.bandwidths[width])


def _worst_routed(network: GraphNetwork, order: Sequence[int], size: int) -> Worst:
    _check_routed(network)
    routes = [
        route
        for group in _groups(order, size)
        for source in group
        for route in network.routes(source, group)
        if route.rate is not None
    ]
    return Worst(
        max((route.latency_s for route in routes), default=Fraction(0)),
        min(
            (route.rate for route in routes if route.rate is not None), default=Fraction(MAX_BYTES)
        ),
    )


def _check_routed(network: GraphNetwork) -> None:
    if network.device_count > MAX_ROUTED_DEVICES:
        raise InstanceError(
            f"network: found {network.device_count:,} devices, at most {MAX_ROUTED_DEVICES} are "
            "routed pair by pair: take traffic 'alone' or 'rings', without sharing of equal costs"
        )


def _ring_rates(
    network: GraphNetwork, order: Sequence[int], bounds: Sequence[int]
) -> Iterator[Fraction]:
    """Yield the slowest rate of a step of rings in all groups of a level, stride by stride."""
    for stride in (1, *bounds[:-1]):
        flows = []
        for group in _groups(order, bounds[-1]):
            for first in range(min(stride, len(group))):
                ring = group[first::stride]
                if len(ring) > 1:
                    successors = (*ring[1:], ring[0])
                    flows += [Flow(*pair, 1) for pair in zip(ring, successors, strict=True)]
        # Every loaded link is on the route of some flow; of equal ones the fullest counts.
        ranks, capacities = network.graph.capacity_ranks
        most: dict[int, Fraction | int] = {}
        for number, load in network.link_loads(flows).items():
            rank = ranks[number]
            if load > most.get(rank, 0):
                most[rank] = load
        yield from (capacities[rank] / load for rank, load in most.items())


def _any_rate(network: GraphNetwork, order: Sequence[int], size: int) -> Fraction:
    """Return the least rate while every device sends to one other and receives from one.

    The flows on a link are at most the devices that would send over it, and at
    most those that would receive over it, each counted with the largest
    share that any of its flows puts there.
    """
    _check_routed(network)
    sending: dict[int, dict[int, Fraction]] = {}
    receiving: dict[int, dict[int, Fraction]] = {}
    for group in _groups(order, size):
        for source in group:
            for target, route in zip(group, network.routes(source, group), strict=True):
                for number, share in route.shares:
                    for ends, device in ((sending, source), (receiving, target)):
                        known = ends.setdefault(number, {})
                        known[device] = max(share, known.get(device, share))
    return min(
        (
            network.graph.links[number].capacity
            / min(sum(sending[number].values()), sum(receiving[number].values()))
            for number in sending
        ),
        default=Fraction(MAX_BYTES),
    )
