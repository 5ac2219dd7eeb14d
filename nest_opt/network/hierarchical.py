"""The hierarchical network: nested groups, a bandwidth and a latency per level."""

from collections.abc import Collection, Iterable, Sequence
from fractions import Fraction
from itertools import accumulate
from operator import mul

from nest_opt.network.ring import ring_passes
from nest_opt.network.spread import Spreads, flat_rates, port_rates
from nest_opt.problem.cluster import Algorithm, HierarchicalSpec
from nest_opt.problem.profile import Operation


class HierarchicalNetwork:
    """Devices numbered along nested groups, innermost level 0 first.

    Bandwidths need not fall with the level, so what a transfer at level l
    gets is the least bandwidth of levels 0 to l: it passes through all of
    them.

    """

    def __init__(self, spec: HierarchicalSpec) -> None:
        self._group_sizes = tuple(accumulate((level.size for level in spec.levels), mul))
        self._algorithms = spec.algorithms
        self._latency_s = tuple(Fraction(level.latency_s) for level in spec.levels)
        self._bandwidth = tuple(
            accumulate((Fraction(level.bandwidth_bytes_per_s) for level in spec.levels), min)
        )
        # Of spreads, by number; where it follows from the level, there are none.
        self._shared: tuple[Fraction, ...] = ()
        rates = flat_rates(len(spec.levels))
        if spec.collectives == "ports":
            rates, self._shared = port_rates(
                [level.size for level in spec.levels],
                [Fraction(level.bandwidth_bytes_per_s) for level in spec.levels],
            )
        self._spreads = Spreads(self._group_sizes, rates)

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

    @property
    def spreads(self) -> Spreads:
        """What the time of a collective over copies depends on."""
        return self._spreads

    def spread(self, devices: Sequence[int]) -> int:
        """Return the spread of a set of distinct devices."""
        if self._spreads.is_flat:
            return self.level(devices)
        return self._spreads.of(devices)

    def worst_spread(self, spreads: Iterable[int]) -> int:
        """Return the spread that several sets of ranks count as together."""
        return self._spreads.join(spreads)

    def worst(self, levels: Iterable[int]) -> int:
        """Return the highest of some levels, 0 for none: every time grows with the level."""
        return max(levels, default=0)

    def hop_s(self, size_bytes: Fraction, level: int) -> Fraction:
        """Return latency plus bytes over effective bandwidth, in exact seconds."""
        return self._latency_s[level] + size_bytes / self._bandwidth[level]

    def fastest_algorithm(
        self, operation: Operation, ranks: int, spread: int, size_bytes: Fraction
    ) -> Algorithm:
        """Return the ring, or the tree where it is allowed and faster."""
        if "tree" not in self._algorithms or operation != "all-reduce":
            return "ring"
        ring, tree = self._ring_s(operation, ranks, spread), self._tree_s(ranks, spread)
        return "ring" if _total(ring, size_bytes) <= _total(tree, size_bytes) else "tree"

    def collective_s(
        self, operation: Operation, ranks: int, spread: int, algorithm: Algorithm
    ) -> tuple[Fraction, Fraction]:
        """Return a collective's (seconds, seconds per byte of the full buffer)."""
        if algorithm == "tree":
            return self._tree_s(ranks, spread)
        return self._ring_s(operation, ranks, spread)

    def _link(self, spread: int) -> tuple[Fraction, Fraction]:
        """Return the latency and the bandwidth of a spread."""
        level = self._spreads.level(spread)
        if self._shared:
            return self._latency_s[level], self._shared[self._spreads.bandwidth(spread)]
        return self._latency_s[level], self._bandwidth[level]

    def _tree_s(self, ranks: int, spread: int) -> tuple[Fraction, Fraction]:
        """Return the terms of an all-reduce over a double binary tree.

        Two trees of half the buffer each: every rank sends and receives the
        buffer up and down once, over ceil(log2 n) steps each way (NCCL 2.4;
        Sanders, Speck and Traeff 2009).
        """
        latency, bandwidth = self._link(spread)
        return 2 * (ranks - 1).bit_length() * latency, 2 / bandwidth

    def _ring_s(self, operation: Operation, ranks: int, spread: int) -> tuple[Fraction, Fraction]:
        """Return the terms of a ring over all ranks.

        A ring passes k messages, each 1/n of the buffer; see `ring_passes`.
        """
        latency, bandwidth = self._link(spread)
        rounds = ring_passes(operation, ranks)
        return rounds * latency, Fraction(rounds, ranks) / bandwidth


def _total(terms: tuple[Fraction, Fraction], size_bytes: Fraction) -> Fraction:
    return terms[0] + terms[1] * size_bytes
