"""A network of pairs as levels: what a set of devices costs is what its pairs do.

A pair has a latency and the seconds of a byte, the worse of its two directions.
A set has the worst latency and the worst seconds a byte of its pairs. Every such
two numbers that a set can have are a *level*; levels are numbered such that none
is better than one before it, so that on a network of nested groups they are
its own. Where a pair of more latency has more bandwidth than another, two
levels may be such that neither is worse than the other; `worst` joins them.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import combinations, pairwise
from typing import NamedTuple

from nest_opt.errors import InstanceError
from nest_opt.network.pairs import PairNetwork
from nest_opt.network.ring import ring_passes
from nest_opt.network.spread import Spreads, flat_rates
from nest_opt.problem.cluster import Algorithm
from nest_opt.problem.profile import Operation

# All pairs are asked for, and the largest sets of near devices are searched.
MAX_PAIR_DEVICES = 1024
# Each has a row of every table.
MAX_PAIR_LEVELS = 512
# Devices up to which sets near each other are searched for, not only bounded.
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
    device_count
        Devices, numbered from 0.
    terms
        Those of every two devices u < v.

    Raises
    ------
    InstanceError
        If there are fewer than 2 devices, or too many devices or levels.
    """

    def __init__(self, device_count: int, terms: Mapping[tuple[int, int], PairTerms]) -> None:
        _check_devices(device_count)
        self._terms = _levels(set(terms.values()))
        self._number = {found: place for place, found in enumerate(self._terms) if place}
        self._most_sets: dict[tuple[int, int], int] = {}
        self._rows = [[0] * device_count for _ in range(device_count)]
        for (u, v), found in terms.items():
            self._rows[u][v] = self._rows[v][u] = self._number[found]

    @classmethod
    def of(cls, pairs: PairNetwork) -> "PairLevels":
        """Return the levels of a network of pairs: of both directions, the worse one.

        Raises
        ------
        InstanceError
            As the class.
        """
        count = pairs.device_count
        _check_devices(count)
        return cls(count, {(u, v): _worse(pairs, u, v) for u, v in combinations(range(count), 2)})

    def hopeful(self) -> "PairLevels":
        """Return a network of fewer levels that is never slower: (95).

        The latency of two devices is the least of any two with their seconds a
        byte, so that levels are few. Of values that hops and collectives of many bytes
        decide, its optimum is a close bound.
        """
        least: dict[Fraction, Fraction] = {}
        # None is better than one with more seconds a byte: levels stay a chain.
        real = {self._terms[level] for row in self._rows for level in row if level}
        for latency_s, byte_s in sorted(real, key=lambda t: t.byte_s, reverse=True):
            before = min(least.values(), default=latency_s)
            least[byte_s] = min(latency_s, before, least.get(byte_s, latency_s))
        return PairLevels(
            self.device_count,
            {
                (u, v): PairTerms(least[t.byte_s], t.byte_s)
                for u, v in combinations(range(self.device_count), 2)
                if (t := self._terms[self._rows[u][v]])
            },
        )

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

    @property
    def group_sizes(self) -> tuple[int, ...]:
        """A bound on the devices of a set of each level or a better one: the last has all alone.

        Unlike those of nested groups they are no runs of device numbers.
        """
        count = self.device_count
        return (1, *(count - 1 for _ in range(self.level_count - 2)), count)

    @cached_property
    def thresholds(self) -> tuple[int, ...]:
        """Levels of which each reaches the one before, the better ones first, to bound others by.

        All but 0, if they are a chain; else the best at each number of seconds a byte.
        """
        if self.is_chain:
            return tuple(range(1, self.level_count))
        found: dict[Fraction, int] = {}
        for level in range(1, self.level_count):
            best = found.setdefault(self._terms[level].byte_s, level)
            if self.reaches(best, level):
                found[self._terms[level].byte_s] = level
        return tuple(found[byte_s] for byte_s in sorted(found))

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

    @property
    def spreads(self) -> Spreads:
        """What the time of a collective over copies depends on: the level alone."""
        return Spreads(self.group_sizes, flat_rates(self.level_count))

    def spread(self, devices: Sequence[int]) -> int:
        """Return the level of a set of distinct devices."""
        return self.level(devices)

    def worst_spread(self, spreads: Iterable[int]) -> int:
        """Return the least level at which nothing is faster than at any of some."""
        return self.worst(spreads)

    def reaches(self, level: int, other: int) -> bool:
        """Whether a level is no better than another."""
        return level >= other and self._terms[level].reaches(self._terms[other])

    def steps(self) -> Iterator[tuple[int, int]]:
        """Yield every two levels, the better one first, that reach each other without a third."""
        if self.is_chain:
            yield from pairwise(range(1, self.level_count))
            return
        for high in range(1, self.level_count):
            below = [low for low in range(1, high) if self.reaches(high, low)]
            for low in below:
                if not any(low != mid and self.reaches(mid, low) for mid in below):
                    yield low, high

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
        """Return the terms of the best threshold on which so many devices may be near."""
        return self._terms[self.least(devices, 1)]

    def least(self, size: int, count: int) -> int:
        """Return a level that `count` sets of `size` devices each, apart, reach at their worst."""
        if size < 2:
            return 0
        after = (*self.thresholds[1:], None)
        return next(
            level
            for level, beyond in zip(self.thresholds, after, strict=True)
            if beyond is None or self.most_sets(size, beyond) >= count
        )

    def most_sets(self, size: int, level: int) -> int:
        """Return a bound on sets of so many devices, with no device in common, below a level.

        For two devices it is the largest matching, else what parts have room for whose
        devices each are in such a set.
        """
        key = size, level
        if key not in self._most_sets:
            near = [
                sum(
                    1 << other
                    for other, found in enumerate(row)
                    if found and not self.reaches(found, level)
                )
                for row in self._rows
            ]
            self._most_sets[key] = _most_sets(near, size)
        return self._most_sets[key]

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


def _most_sets(near: Sequence[int], size: int) -> int:
    """Return a bound on disjoint cliques of a size, from the neighbours of each device as bits."""
    count = len(near)
    if size == 2:
        import networkx as nx

        graph = nx.Graph(
            (u, v) for u in range(count) for v in range(u) if near[u] >> v & 1
        )  # fmt: skip
        return len(nx.max_weight_matching(graph, maxcardinality=True))
    if count <= _MAX_SEARCHED:
        members = [u for u in range(count) if _has_clique(near, near[u], size - 1)]
    else:
        members = [u for u in range(count) if near[u].bit_count() >= size - 1]
    left, total = sum(1 << u for u in members), 0
    while left:
        part = left & -left
        grown = part
        while grown:
            u = grown.bit_length() - 1
            fresh = near[u] & left & ~part
            part |= fresh
            grown = (grown ^ 1 << u) | fresh
        left &= ~part
        total += part.bit_count() // size
    return total


def _has_clique(near: Sequence[int], among: int, size: int) -> bool:
    """Whether there are so many devices among some that are all near each other."""
    if size == 0:
        return True
    while among.bit_count() >= size:
        low = among & -among
        if _has_clique(near, among & near[low.bit_length() - 1], size - 1):
            return True
        among ^= low
    return False


def _check_devices(count: int) -> None:
    if not 2 <= count <= MAX_PAIR_DEVICES:
        raise InstanceError(
            f"network: found {count:,} devices, 2 to {MAX_PAIR_DEVICES:,} are allowed where "
            "costs are those of pairs: use the levels of the graph"
        )


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
    if any(not (a.reaches(b) or b.reaches(a)) for a in found for b in found):
        # What a set reaches by its bandwidth alone, whatever its latency.
        found |= {PairTerms(best.latency_s, terms.byte_s) for terms in pairs}
    if len(found) >= MAX_PAIR_LEVELS:
        raise InstanceError(_too_many(len(found)))
    ordered = sorted(found, key=lambda t: (t.latency_s + _SIZE_BYTES * t.byte_s, t.latency_s))
    return [best, *ordered]


def _too_many(found: int) -> str:
    return (
        f"network: found {found:,} different latencies or bandwidths of sets of devices, fewer "
        f"than {MAX_PAIR_LEVELS} are needed where costs are those of pairs: round those of links"
    )
