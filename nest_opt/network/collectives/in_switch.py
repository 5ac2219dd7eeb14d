"""Sums inside switches: NVLink SHARP, and SHARP in InfiniBand switches."""

from fractions import Fraction

from nest_opt.network.collectives.shape import Collective, Family, Shape, Spread, uniform
from nest_opt.network.collectives.tree import above_node


def in_switch(operation: Collective, spread: Spread) -> Shape | None:
    """Return the shape of sums inside the innermost level's switches, trees above (NVLS).

    Each of c ranks reads the sum of its c-th part, for which the switch reads
    that part of every rank, and writes it to all: a whole buffer and a c-th go
    out of each rank, and as many bytes in. (nccl-tests, doc/PERFORMANCE.md,
    has n + 1 in its factor for reduction in the network; on 5 to 8 H200 the
    factor (n + 1) / n leaves one bandwidth, within 2%.) One step up and one
    down. A broadcast is written once, and copied by the switch.
    """
    if operation == "all-reduce":
        steps, volumes = above_node(spread)
        up_and_down, read_and_written = _inside(spread.counts[0])
        stream: Family = "stream"
        return Shape(
            ("switch", *(stream,) * len(steps)),
            (up_and_down, *steps),
            (read_and_written, *volumes),
            overlapped=True,
        )
    if operation == "broadcast" and len(spread.counts) == 1:
        several = int(spread.ranks > 1)
        return uniform("switch", (several,), (Fraction(several),), overlapped=True)
    return None


def in_all_switches(operation: Collective, spread: Spread) -> Shape | None:
    """Return the shape of sums inside the switches of every level (SHARP).

    Above the node a subgroup sends its sum once and receives the total once
    (Graham et al. 2016, SHARP): one buffer each way, shared by its devices.
    """
    if operation != "all-reduce":
        return None
    up_and_down, read_and_written = _inside(spread.counts[0])
    above = list(zip(spread.counts[1:], spread.below[1:], strict=True))
    return uniform(
        "switch",
        (up_and_down, *(2 * (count > 1) for count, _ in above)),
        (read_and_written, *(Fraction(int(count > 1), below) for count, below in above)),
        overlapped=True,
    )


def _inside(count: int) -> tuple[int, Fraction]:
    """Return steps and buffers of `count` ranks at one switch that adds up."""
    return (2, Fraction(count + 1, count)) if count > 1 else (0, Fraction(0))
