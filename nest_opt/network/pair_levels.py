"""A network of pairs as levels: what a set of devices costs is what its pairs do.

A pair has a latency and the seconds of a byte, the worse of its two directions.
A set has the worst latency and the worst seconds a byte of its pairs. Every such
two numbers that a set can have are a *level*; levels are numbered such that none
is better than one before it, so that on a network of nested groups they are
its own. Where a pair of more latency has more bandwidth than another, two
levels may be such that neither is worse than the other; `worst` joins them.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import combinations
from typing import NamedTuple

from nest_opt.errors import InstanceError
from nest_opt.network.pairs import PairNetwork
from nest_opt.network.ring import ring_passes
from nest_opt.problem.cluster import Algorithm
from nest_opt.problem.profile import Operation

# All pairs are asked for, and the largest sets of near devices are searched.
MAX_PAIR_DEVICES = 1024
# Each has a row of every table.
MAX_PAIR_LEVELS = 512
# Devices up to which the largest sets near each other are found, not only bounded.
_MAX_SEARCHED = 64
# What levels are numbered by.
_SIZE_BYTES = 10_000_000


class PairTerms(NamedTuple):
    """Seconds of latency, and seconds a byte."""

    latency_s: Fraction
    byte_s: Fraction

    def join(self, other: "PairTerms") -> "PairTerms":
        """Return the worse of both, term by term."""
        return PairTerms(max(self.latency_s, other.latency_s), max(self.byte_s, other.byte_s))

    def reaches(self, other: "PairTerms") -> bool:
        """Whether neither term is better than the other's."""
        return self.latency_s >= other.latency_s and self.byte_s >= other.byte_s


class PairLevels:
    """The `Network` whose sets of devices cost what their worst pairs do.

    Level 0 is that of a device alone; it takes what the best terms of any pair do,
    and is never that of two.

    Parameters
    ----------
    pairs
        Where times between two devices come from.

    Raises
    ------
    InstanceError
        If there are fewer than 2 devices, or too many devices or levels.
    """

    def __init__(self, pairs: PairNetwork) -> None:
        self.pairs = pairs
        count = pairs.device_count
        if not 2 <= count <= MAX_PAIR_DEVICES:
            raise InstanceError(
                f"network: found {count:,} devices, 2 to {MAX_PAIR_DEVICES:,} are allowed where "
                "costs are those of pairs: use the levels of the graph"
            )
        terms = {
            (u, v): _worse(pairs, u, v) for u, v in combinations(range(count), 2)
        }  # fmt: skip
        self._terms = _levels(set(terms.values()))
        number = {found: place for place, found in enumerate(self._terms) if place}
        self._rows = [[0] * count for _ in range(count)]
        for (u, v), found in terms.items():
            self._rows[u][v] = self._rows[v][u] = number[found]
        self._number = number

    @property
    def device_count(self) -> int:
        """Devices are numbered 0 to one less."""
        return len(self._rows)

    @property
    def level_count(self) -> int:
        """Number of levels."""
        return len(self._terms)

    @cached_property
    def is_chain(self) -> bool:
        """Whether of any two levels one is no better than the other."""
        return all(a.reaches(b) for b, a in zip(self._terms, self._terms[1:], strict=False))

    @cached_property
    def group_sizes(self) -> tuple[int, ...]:
        """Most devices that a set of each level or a better one can have, or a bound on that.

        Unlike those of nested groups they are no runs of device numbers.
        """
        count = self.device_count
        last = self.level_count - 1
        if not self.is_chain or count > _MAX_SEARCHED:
            return (1, *(count - 1 for _ in range(1, last)), count)
        return (1, *(self._largest(level) for level in range(1, last)), count)

    @cached_property
    def sites(self) -> tuple[tuple[int, ...], ...]:
        """Devices that are alike: any two of a site can change places, whatever else there is."""
        found: list[list[int]] = []
        for device in range(self.device_count):
            for site in found:
                if self._alike(site[0], device):
                    site.append(device)
                    break
            else:
                found.append([device])
        return tuple(map(tuple, found))

    @cached_property
    def site_of(self) -> tuple[int, ...]:
        """The number of every device's site."""
        found = {device: number for number, site in enumerate(self.sites) for device in site}
        return tuple(found[device] for device in range(self.device_count))

    def pair_level(self, one: int, other: int) -> int:
        """Return the level of two devices."""
        return self._rows[one][other]

    def level(self, devices: Collection[int]) -> int:
        """Return the level of a set of devices (0 for a single one)."""
        members = list(devices)
        return self.worst(
            level
            for place, one in enumerate(members)
            for level in {self._rows[one][other] for other in members[place + 1 :]}
        )

    def worst(self, levels: Iterable[int]) -> int:
        """Return the least level that is no better than any of some; 0 for none."""
        found = sorted(set(levels))
        if not found:
            return 0
        if self.is_chain or len(found) == 1:
            return found[-1]
        terms = self._terms[found[-1]]
        for level in found:
            terms = terms.join(self._terms[level])
        return self._number[terms] if found[-1] else 0

    def reaches(self, level: int, other: int) -> bool:
        """Whether a level is no better than another."""
        return level >= other and self._terms[level].reaches(self._terms[other])

    def joins(self) -> Iterator[tuple[int, int, int]]:
        """Yield every two levels that are no better than each other in turn, and their worst."""
        if not self.is_chain:
            for one, other in combinations(range(1, self.level_count), 2):
                if not self.reaches(other, one):
                    yield one, other, self.worst((one, other))

    def hop_s(self, size_bytes: Fraction, level: int) -> Fraction:
        """Return the exact seconds of one point-to-point transfer."""
        return self._terms[level].latency_s + size_bytes * self._terms[level].byte_s

    def fastest_algorithm(
        self, operation: Operation, ranks: int, level: int, size_bytes: Fraction
    ) -> Algorithm:
        """Return the ring, which is all that pairs know."""
        return "ring"

    def collective_s(
        self, operation: Operation, ranks: int, level: int, algorithm: Algorithm
    ) -> tuple[Fraction, Fraction]:
        """Return a flat ring's (seconds, seconds per byte of the full buffer)."""
        passes, terms = ring_passes(operation, ranks), self._terms[level]
        return passes * terms.latency_s, Fraction(passes, ranks) * terms.byte_s

    def best_terms(self, devices: int) -> PairTerms:
        """Return the terms of the best level on which so many devices are near each other.

        Levels are tried as they are numbered. On more devices than are searched,
        the terms of the best pair.
        """
        if self.device_count > _MAX_SEARCHED:
            return self._terms[0]
        found = (level for level in range(self.level_count) if self._largest(level) >= devices)
        return self._terms[next(found)]

    def parts(self, level: int) -> tuple[tuple[int, ...], ...]:
        """Return the devices that pairs below a level join, directly or by others."""
        left, found = set(range(self.device_count)), []
        while left:
            part, waiting = [], [min(left)]
            left -= set(waiting)
            while waiting:
                device = waiting.pop()
                part.append(device)
                near = {
                    other for other in left if not self.reaches(self._rows[device][other], level)
                }
                left -= near
                waiting += sorted(near)
            found.append(tuple(sorted(part)))
        return tuple(found)

    def _alike(self, one: int, other: int) -> bool:
        return all(
            a == b
            for device, (a, b) in enumerate(zip(self._rows[one], self._rows[other], strict=True))
            if device not in (one, other)
        )

    def _largest(self, level: int) -> int:
        """Return the most devices with every two at a level or a better one (a clique)."""
        near = [
            sum(1 << other for other, found in enumerate(row) if 0 < found <= level)
            for row in self._rows
        ]
        return _clique(near, (1 << self.device_count) - 1, 0, 0)


def _clique(near: Sequence[int], left: int, size: int, best: int) -> int:
    """Return the size of the largest clique among `left`, added to `size`, or `best`."""
    if not left:
        return max(size, best)
    while left and size + left.bit_count() > best:
        low = left & -left
        best = _clique(near, left & near[low.bit_length() - 1], size + 1, best)
        left ^= low
    return best


def _worse(pairs: PairNetwork, u: int, v: int) -> PairTerms:
    """Return the terms of two devices, the worse of both directions."""
    found = []
    for source, target in ((u, v), (v, u)):
        latency = pairs.transfer_s(source, target, 0)
        found.append(PairTerms(latency, pairs.transfer_s(source, target, 1) - latency))
    return found[0].join(found[1])


def _levels(pairs: set[PairTerms]) -> list[PairTerms]:
    """Return the terms that sets of devices can have, none better than one before; 0 the best."""
    best = PairTerms(min(t.latency_s for t in pairs), min(t.byte_s for t in pairs))
    latencies = {t.latency_s for t in pairs}
    if len(latencies) * len({t.byte_s for t in pairs}) > MAX_PAIR_LEVELS**2:
        raise InstanceError(_too_many(len(latencies)))
    found = {a.join(b) for a in pairs for b in pairs} | {best}
    if len(found) >= MAX_PAIR_LEVELS:
        raise InstanceError(_too_many(len(found)))
    ordered = sorted(found, key=lambda t: (t.latency_s + _SIZE_BYTES * t.byte_s, t.latency_s))
    return [best, *ordered]


def _too_many(found: int) -> str:
    return (
        f"network: found {found:,} different latencies or bandwidths of sets of devices, fewer "
        f"than {MAX_PAIR_LEVELS} are needed where costs are those of pairs: round the links' numbers"
    )
