"""A fabric: links, what collectives attain of them, and what a call and a step cost."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from typing import Literal

from nest_opt.errors import InstanceError
from nest_opt.network.collectives.exchange import binomial, bruck, direct, pairwise, scatter_gather
from nest_opt.network.collectives.halving import halving_doubling
from nest_opt.network.collectives.hierarchical import hierarchical
from nest_opt.network.collectives.in_switch import in_all_switches, in_switch
from nest_opt.network.collectives.ring import flat_ring, ring
from nest_opt.network.collectives.shape import Collective, Family, Shape, Spread
from nest_opt.network.collectives.tree import chain_tree, tree

AlgorithmName = Literal[
    "ring",
    "flat-ring",
    "tree",
    "chain-tree",
    "halving-doubling",
    "hierarchical",
    "in-switch",
    "in-all-switches",
    "pairwise",
    "direct",
    "bruck",
    "binomial",
    "scatter-gather",
]
ALGORITHMS: dict[AlgorithmName, Callable[[Collective, Spread], Shape | None]] = {
    "ring": ring,
    "flat-ring": flat_ring,
    "tree": tree,
    "chain-tree": chain_tree,
    "halving-doubling": halving_doubling,
    "hierarchical": hierarchical,
    "in-switch": in_switch,
    "in-all-switches": in_all_switches,
    "pairwise": pairwise,
    "direct": direct,
    "bruck": bruck,
    "binomial": binomial,
    "scatter-gather": scatter_gather,
}
# What NCCL chooses from: its rings leave a node by all of its ports, its trees
# are chains inside a node, and all-to-all and send-receive are direct.
NCCL_ALGORITHMS: tuple[AlgorithmName, ...] = ("ring", "chain-tree", "in-switch", "direct")


@dataclass(frozen=True)
class Link:
    """What joins the subgroups of one level.

    Attributes
    ----------
    bandwidths_bytes_per_s
        Peak per device and direction: one value, or one for each number of
        ranks that take part, where that decides which links are used (meshes
        of few links): the value for c ranks is at place c - 1.
    shares
        Attained share of the peak with large buffers, by family; a family
        that is not named cannot use the link.
    ports
        Most devices of a subgroup whose ways out one call uses; None: all.
    """

    bandwidths_bytes_per_s: tuple[Fraction, ...]
    shares: Mapping[Family, Fraction]
    ports: int | None = None

    def __post_init__(self) -> None:
        if not self.bandwidths_bytes_per_s or min(self.bandwidths_bytes_per_s) <= 0:
            raise InstanceError(
                f"link: found bandwidths {list(map(float, self.bandwidths_bytes_per_s))} bytes/s, "
                "more than 0 is needed: correct them"
            )
        for family, share in self.shares.items():
            if not 0 < share <= 1:
                raise InstanceError(
                    f"link: found a share of {float(share)} of the bandwidth for {family}, above 0 "
                    "and at most 1 is needed: correct share or bandwidth"
                )

    def bandwidth(self, ranks: int) -> Fraction:
        """Return the peak bandwidth of a device where so many take part."""
        place = min(ranks, len(self.bandwidths_bytes_per_s)) - 1
        return self.bandwidths_bytes_per_s[place]


@dataclass(frozen=True)
class Protocol:
    """A way to hand over chunks: quick and narrow, or slow to start and wide.

    Attributes
    ----------
    base_s
        Seconds of a call, whatever it does.
    steps_s
        Seconds of a step over each level.
    shares
        Share of what each level's links attain that this protocol gets.
    """

    name: str
    base_s: Fraction
    steps_s: tuple[Fraction, ...]
    shares: tuple[Fraction, ...]

    def __post_init__(self) -> None:
        if self.base_s < 0 or min(self.steps_s) < 0:
            raise InstanceError(
                f"protocol {self.name}: found a negative time, at least 0 s is needed for a call "
                "and for each step: correct it"
            )
        for share in self.shares:
            if not 0 < share <= 1:
                raise InstanceError(
                    f"protocol {self.name}: found a share of {float(share)}, above 0 and at most "
                    "1 is needed: correct it"
                )


@dataclass(frozen=True)
class Fabric:
    """Links of all levels, innermost first, and what a library does with them."""

    name: str
    links: tuple[Link, ...]
    protocols: tuple[Protocol, ...]
    algorithms: tuple[AlgorithmName, ...]

    def __post_init__(self) -> None:
        if not self.links or not self.protocols:
            raise InstanceError(
                f"fabric {self.name}: found {len(self.links)} links and {len(self.protocols)} "
                "protocols, at least 1 of each is needed: add one"
            )
        for protocol in self.protocols:
            if {len(protocol.steps_s), len(protocol.shares)} != {len(self.links)}:
                raise InstanceError(
                    f"fabric {self.name}: protocol {protocol.name} has {len(protocol.steps_s)} "
                    f"steps and {len(protocol.shares)} shares, {len(self.links)} of each are "
                    "needed (one a link): correct it"
                )

    def peaks(self, spread: Spread) -> tuple[Fraction, ...]:
        """Return each level's effective peak: what passes a level passes those below."""
        self.check(spread)
        pairs = zip(self.links, spread.counts, strict=False)
        return tuple(accumulate((link.bandwidth(count) for link, count in pairs), min))

    def check(self, spread: Spread) -> None:
        """Refuse a spread over more levels than there are links.

        Raises
        ------
        InstanceError
            If it has more.
        """
        if len(spread.counts) > len(self.links):
            raise InstanceError(
                f"fabric {self.name}: found ranks over {len(spread.counts)} levels, at most "
                f"{len(self.links)} are allowed (its links): leave out levels or add links"
            )


@dataclass(frozen=True)
class Line:
    """A time that is affine in the bytes: exact seconds, and seconds per byte."""

    fixed_s: Fraction
    per_byte_s: Fraction

    def time_s(self, size_bytes: Fraction | int) -> Fraction:
        """Return the seconds for a buffer."""
        return self.fixed_s + self.per_byte_s * size_bytes


def line(fabric: Fabric, protocol: Protocol, shape: Shape, spread: Spread) -> Line | None:
    """Return the time of a shape over a spread, or None where a link refuses its family.

    Steps and the call add up to the fixed part (alpha); the bytes of levels
    that work at the same time take as long as the slowest, else as all together
    (beta): Hockney's model, level by level.
    """
    per_byte = []
    for level, volume in enumerate(shape.volumes):
        rate = _attained(fabric, protocol, shape, spread, level)
        if volume and rate is None:
            return None
        per_byte.append(volume / rate if rate else Fraction(0))
    fixed = protocol.base_s + sum(
        (count * seconds for count, seconds in zip(shape.steps, protocol.steps_s, strict=False)),
        Fraction(0),
    )
    return Line(fixed, max(per_byte) if shape.overlapped else sum(per_byte, Fraction(0)))


def _attained(
    fabric: Fabric, protocol: Protocol, shape: Shape, spread: Spread, level: int
) -> Fraction | None:
    """Return the bytes/s of a device at a level: the least of those passed; None if refused."""
    rates, below = [], spread.below
    for place in range(level + 1):
        link = fabric.links[place]
        share = link.shares.get(shape.families[place])
        if share is not None:
            used = Fraction(min(link.ports or below[place], below[place]), below[place])
            attained = share * protocol.shares[place]
            rates.append(link.bandwidth(spread.counts[place]) * attained * used)
        elif shape.volumes[place]:
            return None
    return min(rates, default=None)


def shapes(
    fabric: Fabric, operation: Collective, spread: Spread
) -> Iterator[tuple[AlgorithmName, Shape]]:
    """Yield the fabric's algorithms that do the operation, with their shapes."""
    fabric.check(spread)
    for name in fabric.algorithms:
        shape = ALGORITHMS[name](operation, spread)
        if shape is not None:
            yield name, shape
