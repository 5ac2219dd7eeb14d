"""What the rest of the package asks of a network."""

from collections.abc import Collection, Iterable, Sequence
from fractions import Fraction
from typing import Protocol

from nest_opt.network.hierarchical import HierarchicalNetwork
from nest_opt.network.planned import planned_levels
from nest_opt.network.spread import Spreads
from nest_opt.problem.cluster import Algorithm, Cluster
from nest_opt.problem.profile import Operation


class Network(Protocol):
    """Times between devices, by the level that a set of devices spans.

    A level is an integer from 0 (fastest) to `level_count` - 1; for equal
    bytes and ranks no level is faster than the one below it.
    """

    @property
    def group_sizes(self) -> tuple[int, ...]:
        """Devices in one group of each level; groups are runs of device numbers."""
        ...

    @property
    def level_count(self) -> int:
        """Number of levels."""
        ...

    def level(self, devices: Collection[int]) -> int:
        """Return the level of a set of devices (0 for a single one)."""
        ...

    @property
    def spreads(self) -> Spreads:
        """What the time of a collective over copies depends on."""
        ...

    def spread(self, devices: Sequence[int]) -> int:
        """Return the spread of a set of distinct devices."""
        ...

    def worst_spread(self, spreads: Iterable[int]) -> int:
        """Return the spread that several sets of ranks count as together."""
        ...

    def worst(self, levels: Iterable[int]) -> int:
        """Return the least level at which nothing is faster than at any of some; 0 for none."""
        ...

    def hop_s(self, size_bytes: Fraction, level: int) -> Fraction:
        """Return the exact seconds of one point-to-point transfer."""
        ...

    def fastest_algorithm(
        self, operation: Operation, ranks: int, spread: int, size_bytes: Fraction
    ) -> Algorithm:
        """Return the algorithm that a collective of this size would use."""
        ...

    def collective_s(
        self, operation: Operation, ranks: int, spread: int, algorithm: Algorithm
    ) -> tuple[Fraction, Fraction]:
        """Return a collective's exact (seconds, seconds per byte of the full buffer)."""
        ...


def build_network(cluster: Cluster) -> Network:
    """Build the network that a cluster describes, by its levels."""
    return HierarchicalNetwork(planned_levels(cluster))
