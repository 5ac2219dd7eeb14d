"""Lower bounds of collectives: what no algorithm can do without on given links."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from nest_opt.network.collectives.fabric import AlgorithmName, Fabric
from nest_opt.network.collectives.shape import Collective, Spread, ceil_log2
from nest_opt.network.collectives.torus import Torus, exchange_share

# Algorithms in which a rank sends to, or a switch adds up for, many at once.
_MANY_AT_ONCE: tuple[AlgorithmName, ...] = ("in-switch", "in-all-switches", "direct")


@dataclass(frozen=True)
class Bound:
    """A time that no algorithm is below.

    Attributes
    ----------
    call_s
        Least seconds of a call.
    latency_s
        Seconds of the steps that there must be.
    bytes_s
        Seconds of the bytes that must pass the scarcest links at their peak.
    """

    call_s: Fraction
    latency_s: Fraction
    bytes_s: Fraction

    @property
    def time_s(self) -> Fraction:
        """The bound: steps and bytes may hide each other, the call hides nothing."""
        return self.call_s + max(self.latency_s, self.bytes_s)

    @property
    def binding(self) -> Literal["latency", "bytes"]:
        """Which of the two is the larger."""
        return "latency" if self.latency_s > self.bytes_s else "bytes"


def lower_bound(
    fabric: Fabric, operation: Collective, spread: Spread, size_bytes: Fraction | int
) -> Bound:
    """Return the lower bound of a collective over a spread."""
    if spread.ranks == 1:
        return Bound(Fraction(0), Fraction(0), Fraction(0))
    volumes = cut_volumes(fabric, operation, spread)
    return bound_of_volumes(fabric, operation, spread, volumes, size_bytes)


def bound_of_volumes(
    fabric: Fabric,
    operation: Collective,
    spread: Spread,
    volumes: Sequence[Fraction],
    size_bytes: Fraction | int,
) -> Bound:
    """Return the bound of what each device of a level's subgroups must send or receive.

    It has its links of that level and of all above for it. In a mesh of few
    links the peak is what the rings through it get.
    """
    peaks = fabric.peaks(spread)
    crossed = [level for level, count in enumerate(spread.counts) if count > 1]
    seconds = [
        volumes[level] / sum(peaks[above] for above in crossed if above >= level)
        for level in crossed
    ]
    outermost = min(protocol.steps_s[crossed[-1]] for protocol in fabric.protocols)
    return Bound(
        min(protocol.base_s for protocol in fabric.protocols),
        max(outermost, _one_port_s(fabric, operation, spread)),
        max(seconds) * size_bytes,
    )


def cut_volumes(fabric: Fabric, operation: Collective, spread: Spread) -> tuple[Fraction, ...]:
    """Return the least bytes that cross each level, per device and byte of the buffer.

    Of the N subgroups of g ranks each below a level:

    - all-gather and reduce-scatter: all but g / n of the result enters, of the input leaves, a
      subgroup (Chan et al. 2007, lower bounds);
    - all-reduce: every element is received N - 1 times for the sums and N - 1
      times as a result, if devices add up: 2 (N - 1) / N a subgroup (Patarasuk
      and Yuan 2009); with sums in switches, once each way;
    - all-to-all: what a subgroup's ranks hold for others, (n - g) / n of each rank's buffer;
    - broadcast: the buffer enters each subgroup; send-receive: all of it by one device.
    """
    ranks = spread.ranks
    found = []
    for level, (below, groups) in enumerate(zip(spread.below, spread.groups, strict=True)):
        if operation in ("all-gather", "reduce-scatter"):
            volume = Fraction(ranks - below, ranks * below)
        elif operation == "all-to-all":
            volume = Fraction(ranks - below, ranks)
        elif operation == "all-reduce":
            once = _adds_up(fabric, spread, level)
            volume = (Fraction(1) if once else 2 * Fraction(groups - 1, groups)) / below
        elif operation == "broadcast":
            volume = Fraction(1, below)
        else:
            outermost = all(count == 1 for count in spread.counts[level + 1 :])
            volume = Fraction(int(outermost))
        found.append(volume)
    return tuple(found)


def torus_bound(
    fabric: Fabric, operation: Collective, torus: Torus, size_bytes: Fraction | int
) -> Bound:
    """Return the lower bound of a collective on a torus or mesh.

    Latency: the diameter. Bytes: those into the device with the fewest links, (n - 1) / n or
    1 buffer; for an all-reduce also 2 (n - 1) buffers over all links; for an
    all-to-all those that halve an axis: floor(d^2 / 4) / d buffers over a
    link of a line, half as many over one of a ring.
    """
    if torus.ranks == 1:
        return Bound(Fraction(0), Fraction(0), Fraction(0))
    ranks = torus.ranks
    fewest = sum(2 if joined else 1 for _, joined in torus.axes)
    links = sum(2 * (ranks if joined else ranks - ranks // size) for size, joined in torus.axes)
    volume = Fraction(ranks - 1, ranks * fewest)
    if operation == "all-reduce":
        volume = max(Fraction(1, fewest), Fraction(2 * (ranks - 1), links))
    elif operation == "all-to-all":
        volume = max(exchange_share(size, joined) for size, joined in torus.axes)
    elif operation == "broadcast":
        volume = Fraction(1, fewest)
    elif operation == "send-receive":
        volume = Fraction(1, 2 * len(torus.axes))
    return Bound(
        min(protocol.base_s for protocol in fabric.protocols),
        torus.diameter * min(protocol.steps_s[0] for protocol in fabric.protocols),
        volume * size_bytes / fabric.links[0].bandwidth(1),
    )


def _one_port_s(fabric: Fabric, operation: Collective, spread: Spread) -> Fraction:
    """Return the seconds until what one rank has can have reached all, one message at a time.

    ceil(log2 n) steps, each at least that of the quickest level (Chan et al. 2007).
    Zero where ranks or switches serve many at once.
    """
    if operation == "send-receive" or set(fabric.algorithms) & set(_MANY_AT_ONCE):
        return Fraction(0)
    levels = range(len(spread.counts))
    step = min(protocol.steps_s[level] for protocol in fabric.protocols for level in levels)
    return ceil_log2(spread.ranks) * step


def _adds_up(fabric: Fabric, spread: Spread, level: int) -> bool:
    """Whether switches of this level or above may add up for the fabric's algorithms."""
    if "in-all-switches" in fabric.algorithms:
        return any("switch" in link.shares for link in fabric.links[level : len(spread.counts)])
    return level == 0 and "in-switch" in fabric.algorithms and "switch" in fabric.links[0].shares
