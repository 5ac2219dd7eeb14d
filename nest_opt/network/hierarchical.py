"""The hierarchical network: nested groups, a bandwidth and a latency per level."""

from collections.abc import Collection
from fractions import Fraction
from itertools import accumulate
from operator import mul

from nest_opt.problem.cluster import HierarchicalSpec
from nest_opt.problem.profile import Operation

# Rounds of a ring over n ranks, in units of n - 1.
_RING_PASSES: dict[Operation, int] = {
    "all-reduce": 2,
    "all-gather": 1,
    "reduce-scatter": 1,
    "all-to-all": 1,
}


class HierarchicalNetwork:
    """Devices numbered along nested groups, innermost level 0 first.

    Bandwidths need not fall with the level, so what a transfer at level l
    gets is the least bandwidth of levels 0 to l: it passes through all of
    them.

    """

    def __init__(self, spec: HierarchicalSpec) -> None:
        self._group_sizes = tuple(accumulate((level.size for level in spec.levels), mul))
        self._latency_s = tuple(Fraction(level.latency_s) for level in spec.levels)
        self._bandwidth = tuple(
            accumulate((Fraction(level.bandwidth_bytes_per_s) for level in spec.levels), min)
        )

    @property
    def group_sizes(self) -> tuple[int, ...]:
        """Devices in one group of each level; groups are runs of device numbers."""
        return self._group_sizes

    @property
    def level_count(self) -> int:
        """Number of levels."""
        return len(self._group_sizes)

    def level(self, devices: Collection[int]) -> int:
        """Return the smallest level one of whose groups holds all the devices."""
        first, last = min(devices), max(devices)
        return next(
            level for level, size in enumerate(self._group_sizes) if first // size == last // size
        )

    def hop_s(self, size_bytes: Fraction, level: int) -> Fraction:
        """Return latency plus bytes over effective bandwidth, in exact seconds."""
        return self._latency_s[level] + size_bytes / self._bandwidth[level]

    def collective_s(
        self, operation: Operation, ranks: int, level: int
    ) -> tuple[Fraction, Fraction]:
        """Return a flat ring's (seconds, seconds per byte of the full buffer).

        A ring passes k = 2 (n - 1) messages for an all-reduce and n - 1 for
        the other operations, each 1/n of the buffer (Thakur et al. 2005).
        """
        rounds = _RING_PASSES[operation] * (ranks - 1)
        return (
            rounds * self._latency_s[level],
            Fraction(rounds, ranks) / self._bandwidth[level],
        )
