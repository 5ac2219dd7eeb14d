"""Sums inside switches: NVLink SHARP, and SHARP in InfiniBand switches."""

from fractions import Fraction

from nest_opt.network.collectives.shape import Collective, Family, Shape, Spread, uniform
from nest_opt.network.collectives.tree import above_node


def in_switch(operation: Collective, spread: Spread) -> Shape | None:
    """Return the shape of sums inside the innermost level's switches, trees above (NVLS).

    Each of c ranks reads the sum of its c-th part, which takes that part of
    every rank over the links, and writes it to all: (c + 1) / c buffers out
    and as many in. (nccl-tests, doc/PERFORMANCE.md, has the factor (n + 1) / n
    for in-network reduction; on 5 to 8 H200 it leaves one bandwidth, within
    2%.) One step up and one down. A broadcast is written once, and copied by the switch.
    """
    inside = spread.counts[0]
    steps, volumes = above_node(spread)
    stream: Family = "stream"
    if operation == "all-reduce":
        return Shape(
            ("switch", *(stream,) * len(steps)),
            (2 * (inside > 1), *steps),
            (Fraction(inside + 1, inside) if inside > 1 else Fraction(0), *volumes),
            overlapped=True,
        )
    if operation == "broadcast" and len(spread.counts) == 1:
        return uniform("switch", (int(inside > 1),), (Fraction(int(inside > 1)),), overlapped=True)
    return None


def in_all_switches(operation: Collective, spread: Spread) -> Shape | None:
    """Return the shape of sums inside the switches of every level (SHARP).

    Above the node a subgroup sends its sum once and receives the total once
    (Graham et al. 2016, SHARP): one buffer each way, shared by its devices.
    """
    if operation != "all-reduce":
        return None
    innermost = in_switch(operation, Spread(spread.counts[:1]))
    assert innermost is not None
    above = list(zip(spread.counts[1:], spread.below[1:], strict=True))
    return uniform(
        "switch",
        (*innermost.steps, *(2 * (count > 1) for count, _ in above)),
        (*innermost.volumes, *(Fraction(int(count > 1), below) for count, below in above)),
        overlapped=True,
    )
