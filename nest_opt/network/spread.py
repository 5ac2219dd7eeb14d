"""Spreads: what the time of a collective over copies depends on, as one integer.

Where each device has a port of its own on every level, a group with several ranks in
each node leaves a node by as many ports. What counts is the level of the group, which
has the latency, and its bandwidth: of each level below, the least number of its ranks
in a group that it touches, times the bandwidth of a device on the next one (77). The
bandwidths that occur on a network are numbered, 0 the largest, so that a spread is

    level + levels * number of the bandwidth.

Both parts may only slow a call down. Where one port leaves each group, (4), the level
decides the bandwidth as well: all numbers are 0, and a spread is a level.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from operator import ge, mul
from typing import TypeAlias

# Per level from 1 on, the number of its bandwidth with 1, 2, ... ranks in each group of the
# level below; more ranks than it lists have the last one.
Rates: TypeAlias = tuple[tuple[int, ...], ...]


def flat_rates(levels: int) -> Rates:
    """Return the rates of a network where the level decides the bandwidth."""
    return ((0,),) * (levels - 1)


def port_rates(
    sizes: Sequence[int], bandwidths: Sequence[Fraction]
) -> tuple[Rates, tuple[Fraction, ...]]:
    """Return the rates of a network of one port a device, and the numbered bandwidths.

    Parameters
    ----------
    sizes
        Subgroups of a group of each level, innermost first.
    bandwidths
        Of a device on each level, bytes/s.
    """
    of_levels = []
    for held, bandwidth in zip(accumulate(sizes, mul), bandwidths[1:], strict=False):
        # No group gets more than what its ranks send inside their innermost ones.
        most = min(held, ceil_ratio(bandwidths[0], bandwidth))
        of_levels.append([min(bandwidths[0], count * bandwidth) for count in range(1, most + 1)])
    found = sorted({bandwidths[0], *(rate for level in of_levels for rate in level)}, reverse=True)
    number = {bandwidth: place for place, bandwidth in enumerate(found)}
    return tuple(tuple(number[rate] for rate in level) for level in of_levels), tuple(found)


def ceil_ratio(whole: Fraction, part: Fraction) -> int:
    """Return the least number of parts that make up a whole."""
    return -(-whole // part)


def every_spread(rates: Rates, copies: int) -> tuple[int, ...]:
    """Return every spread that so many ranks may have, or the worst of several sets of them.

    On levels above the first one that holds them all as well, as tables have it.
    """
    levels, seen, found = len(rates) + 1, set[int](), [0]
    for level, of_level in enumerate(rates, start=1):
        # Where ranks are in two groups or more, some group has no more than half of them.
        seen |= set(of_level[: max(1, copies // 2)])
        found += [level + levels * number for number in sorted(seen)]
    return tuple(found)


@dataclass(frozen=True)
class Spreads:
    """The spreads of a network.

    Attributes
    ----------
    group_sizes
        Devices in one group of each level, innermost first.
    rates
        Numbers of bandwidths by least counts.
    """

    group_sizes: tuple[int, ...]
    rates: Rates

    @cached_property
    def is_flat(self) -> bool:
        """Whether the level alone decides the time."""
        return all(of_level == (0,) for of_level in self.rates)

    @property
    def levels(self) -> int:
        """Number of levels."""
        return len(self.group_sizes)

    def level(self, spread: int) -> int:
        """Return the level of a spread."""
        return spread % self.levels

    def bandwidth(self, spread: int) -> int:
        """Return the number of the bandwidth of a spread."""
        return spread // self.levels

    def number(self, level: int, least_counts: Sequence[int]) -> int:
        """Return the spread of a set of ranks.

        Parameters
        ----------
        level
            The level of the set.
        least_counts
            For each level below, from 0 on, the least number of ranks in a group that has any.
        """
        slowest = max(
            (
                of_level[min(count, len(of_level)) - 1]
                for of_level, count in zip(self.rates[:level], least_counts, strict=True)
            ),
            default=0,
        )
        return level + self.levels * slowest

    def of(self, devices: Sequence[int]) -> int:
        """Return the spread of distinct devices: (1) and (77)."""
        counts = []
        for size in self.group_sizes:
            held = Counter(device // size for device in devices)
            if len(held) == 1:
                break
            counts.append(min(held.values()))
        return self.number(len(counts), counts)

    def single_port(self, level: int) -> int:
        """Return the worst spread on a level: some group below it has one rank."""
        return self.number(level, [1] * level)

    def best(self, copies: int, level: int) -> int:
        """Return a spread that none of so many ranks beats, on a level or above.

        On every level below, the ranks are in two groups at least, and in as many as
        hold them; the group with the fewest has no more than an equal share.
        """
        groups = [max(2, -(-copies // size)) for size in self.group_sizes[:level]]
        return self.number(level, [max(1, copies // count) for count in groups])

    def join(self, spreads: Iterable[int]) -> int:
        """Return the spread that several sets of ranks count as together: the worst of each part.

        No set takes longer than that.
        """
        listed = list(spreads)
        return max(map(self.level, listed)) + self.levels * max(map(self.bandwidth, listed))

    def maximal(self, members: Iterable[tuple[int, ...]]) -> frozenset[tuple[int, ...]]:
        """Return the tuples of spreads that no other one dominates, part by part."""
        distinct = set(members)
        if len(distinct) == 1:
            return frozenset(distinct)
        parts = {
            member: [part for spread in member for part in divmod(spread, self.levels)]
            for member in distinct
        }
        return frozenset(
            member
            for member in distinct
            if not any(
                other != member and all(map(ge, parts[other], parts[member])) for other in distinct
            )
        )
