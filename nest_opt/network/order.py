"""An order of the devices of a graph in which neighbours are near, and so are groups of them.

The groups of a level are runs of equal length of the order (only the last may
be shorter), as the levels of a hierarchical network need. They are grown from
the inside outwards by the time of a transfer between their members, then
improved by exchanging devices, and last arranged so that consecutive devices
are near too.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import gcd
from typing import Any

import numpy as np
import numpy.typing as npt

from nest_opt.errors import InstanceError
from nest_opt.network.distances import MAX_SITES, PairTable, pair_table
from nest_opt.network.graph import LinkGraph
from nest_opt.network.routing import Metric

MAX_LEVELS = 6
# Large enough that bandwidth decides before latency.
REFERENCE_BYTES = 10**7
MIN_SPLIT = 8
TIED_CANDIDATES = 8

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class DeviceOrder:
    """An order of devices, and the groups in it.

    Attributes
    ----------
    devices
        Device numbers of the graph, by their place in the order.
    sizes
        Devices in a group of each level but the outermost, which holds all;
        each divides the next.
    inside_ps
        What the order was improved for: the sum over all pairs that share a
        group, once a level, of the time of a transfer of the reference size.
    chain_ps
        The sum of those times over consecutive devices. Between devices of one
        site, where sites are ordered as wholes, neither counts anything.
    """

    devices: tuple[int, ...]
    sizes: tuple[int, ...]
    inside_ps: int
    chain_ps: int


def device_order(
    graph: LinkGraph,
    sizes: Sequence[int] | None = None,
    metric: Metric = "latency",
    seed: int = 0,
    passes: int = 10,
    reference_bytes: int = REFERENCE_BYTES,
) -> DeviceOrder:
    """Order the devices of a connected graph.

    Parameters
    ----------
    sizes
        Devices in a group of each level but the outermost, innermost first;
        None: those that the graph shows, see `natural_sizes`.
    metric
        What routes minimise, see `Router`.
    seed, passes
        Of the local search: the order in which devices are tried, and how
        often each at most.
    reference_bytes
        The transfer whose time says how near two devices are.

    Raises
    ------
    InstanceError
        If a size does not divide the next, or there are more devices than
        are compared pair by pair.
    """
    table = pair_table(graph, metric)
    times = table.times_ps(reference_bytes)
    chosen = natural_sizes(table, times) if sizes is None else tuple(sizes)
    _check_sizes(chosen, graph.device_count)
    # Sums over all pairs must stay in int64.
    scale = 1 + 4 * int(times.max()) * graph.device_count**2 // 2**62
    near = _by_device(table, times // scale, chosen)
    starts = [_grown(near, chosen, dense_first) for dense_first in (True, False)]
    best = min(starts, key=lambda order: _inside(near, order, chosen))
    order = _exchanged(near, best, chosen, random.Random(seed), passes)
    order = _arranged(near, order, chosen)
    devices = tuple(int(device) for unit in order for device in near.members[unit])
    return DeviceOrder(
        devices, chosen, scale * _inside(near, order, chosen), scale * _chain(near, order)
    )


@dataclass(frozen=True)
class _Near:
    """Times between units: single devices, or sites of equally many.

    Attributes
    ----------
    times
        (U, U) int64 picoseconds, symmetric, 0 on the diagonal.
    members
        The devices of every unit.
    """

    times: Array
    members: tuple[tuple[int, ...], ...]

    @property
    def size(self) -> int:
        """Devices in a unit."""
        return len(self.members[0])


def _by_device(table: PairTable, times: Array, sizes: Sequence[int]) -> _Near:
    count = table.graph.device_count
    if count <= MAX_SITES:
        between = times[np.ix_(table.site_of, table.site_of)].copy()
        np.fill_diagonal(between, 0)
        return _Near(between, tuple((device,) for device in range(count)))
    members: list[list[int]] = [[] for _ in range(len(times))]
    for device, site in enumerate(table.site_of):
        members[site].append(device)
    size = len(members[0])
    if any(len(devices) != size for devices in members) or any(n % size for n in sizes):
        raise InstanceError(
            f"order: found {count:,} devices, at most {MAX_SITES:,} are compared one by one, and "
            "more only if equally many hang on every switch and divide all sizes of groups: give "
            "such sizes, or the order itself"
        )
    between = times.copy()
    np.fill_diagonal(between, 0)
    return _Near(between, tuple(map(tuple, members)))


def _check_sizes(sizes: Sequence[int], devices: int) -> None:
    if len(sizes) >= MAX_LEVELS:
        raise InstanceError(
            f"sizes: found {len(sizes)} levels below the outermost, at most {MAX_LEVELS - 1} are "
            "allowed: leave some out"
        )
    for size in sizes:
        if not 1 < size < devices:
            raise InstanceError(
                f"sizes: found {size}, more than 1 and less than {devices} (all devices) is "
                "needed: leave it out"
            )
    for inner, outer in pairwise(sizes):
        if outer <= inner or outer % inner:
            raise InstanceError(
                f"sizes: found {inner} and then {outer}, a larger multiple is needed: groups of a "
                "level consist of whole groups of the one below"
            )


def natural_sizes(table: PairTable, times: Array) -> tuple[int, ...]:
    """Return sizes of groups that a graph shows.

    At every time that some pair has, devices joined by pairs that are no
    farther form parts (single linkage). Where all parts but a smaller last
    one are equal they are the groups of a level, else their greatest common
    divisor is. A part whose farthest pair is farther than that, so that it
    has no inside of its own (a torus), is split by the prime factors of its
    size into groups of at least 8.
    """
    parts = _linkage(table, times)
    devices = table.graph.device_count
    sizes: list[int] = []
    for counts, loose in parts:
        others = sorted(counts)[1:]
        group = others[-1] if others and len(set(others)) == 1 else gcd(*counts)
        inside = sizes[-1] if sizes else 1
        if group % inside or group <= inside:
            continue
        if loose:
            sizes += _split(inside, group)
        elif group < devices:
            sizes.append(group)
        if group >= devices:
            break
    found = [size for size in dict.fromkeys(sizes) if 1 < size < devices]
    while len(found) >= MAX_LEVELS:
        # The step that loses least: between the two sizes that are closest.
        ratios = [outer / inner for inner, outer in pairwise(found)]
        del found[ratios.index(min(ratios))]
    return tuple(found)


def _linkage(table: PairTable, times: Array) -> list[tuple[list[int], bool]]:
    """Return, by rising time, devices of every part, and whether one is wider than the time."""
    site_sizes = [int(size) for size in table.site_sizes]
    edges = sorted(
        [(int(times[site, site]), site, site) for site, n in enumerate(site_sizes) if n > 1]
        + _spanning_tree(times)
    )
    root = list(range(len(times)))
    inner = [1 if size > 1 else 0 for size in site_sizes]
    members: dict[int, list[int]] = {site: [site] for site in root}
    found = []
    for place, (time, one, other) in enumerate(edges):
        if one == other:
            inner[one] = 0
        else:
            kept, gone = root[one], root[other]
            for site in members[gone]:
                root[site] = kept
            members[kept] += members.pop(gone)
        if place + 1 < len(edges) and edges[place + 1][0] == time:
            continue
        counts = []
        loose = False
        for sites in members.values():
            apart = [site for site in sites if inner[site]]
            counts += [1] * sum(site_sizes[site] for site in apart)
            if len(apart) < len(sites):
                counts.append(sum(site_sizes[s] for s in sites if not inner[s]))
            loose = loose or bool(times[np.ix_(sites, sites)].max() > time)
        found.append((counts, loose))
    return found


def _spanning_tree(times: Array) -> list[tuple[int, int, int]]:
    """Return the (time, site, site) of a minimum spanning tree (Prim 1957)."""
    count = len(times)
    near, via = times[0].copy(), np.zeros(count, np.intp)
    waiting = np.ones(count, dtype=bool)
    waiting[0] = False
    found = []
    for _ in range(count - 1):
        candidates = np.flatnonzero(waiting)
        site = int(candidates[np.argmin(near[candidates])])
        found.append((int(near[site]), int(via[site]), site))
        waiting[site] = False
        closer = times[site] < near
        near[closer], via[closer] = times[site][closer], site
    return found


def _split(inside: int, group: int) -> list[int]:
    """Return sizes from one to a larger multiple of it, in steps of at least `MIN_SPLIT`."""
    ratio, step, sizes = group // inside, 1, []
    factor = 2
    while ratio > 1:
        if ratio % factor:
            factor += 1
            continue
        ratio //= factor
        step *= factor
        if step >= MIN_SPLIT:
            inside, step = inside * step, 1
            sizes.append(inside)
    return [*sizes, group]


def _grown(near: _Near, sizes: Sequence[int], dense_first: bool) -> list[int]:
    """Return an order of units, groups grown one after another, level by level."""
    groups = [[unit] for unit in range(len(near.members))]
    times = near.times
    size = near.size
    whole = len(groups)
    for wanted in sizes:
        ratio = wanted // size
        if ratio == 1:
            continue
        grown = _grow(times[:whole, :whole], ratio, dense_first)
        if whole < len(groups):
            # The group that is not full comes last.
            if len(grown[-1]) == ratio:
                grown.append([])
            grown[-1].append(whole)
        merged = [[unit for group in each for unit in groups[group]] for each in grown]
        flat = [group for each in grown for group in each]
        starts = np.cumsum([0, *map(len, grown)])[:-1]
        sums = np.add.reduceat(np.add.reduceat(times[np.ix_(flat, flat)], starts, 0), starts, 1)
        counts = np.array([len(each) for each in grown], np.int64)
        times = sums // np.multiply.outer(counts, counts)
        np.fill_diagonal(times, 0)
        groups, size = merged, wanted
        full = wanted // near.size
        whole = sum(len(group) == full for group in groups)
    top = _grow(times[:whole, :whole], whole, dense_first)[0] if whole else []
    return [unit for group in [*top, *range(whole, len(groups))] for unit in groups[group]]


def _grow(times: Array, ratio: int, dense_first: bool) -> list[list[int]]:
    """Deal units into groups of `ratio`; what is left over forms the last."""
    count = len(times)
    nearest = np.sort(times, axis=1)[:, 1 : min(ratio, count)].sum(1) if dense_first else None
    total = times.sum(1)
    waiting = np.ones(count, dtype=bool)
    found: list[list[int]] = []
    while waiting.any():
        keys = [np.arange(count), -total]
        if found:
            keys.append(times[found[-1]].sum(0))
        if nearest is not None:
            keys.append(nearest)
        order = np.lexsort(keys)
        seed = int(order[waiting[order]][0])
        group = [seed]
        waiting[seed] = False
        away = times[seed].copy()
        while len(group) < ratio and waiting.any():
            unit = _next(times, away, waiting)
            group.append(unit)
            waiting[unit] = False
            away += times[unit]
        found.append(group)
    return found


def _next(times: Array, away: Array, waiting: Array) -> int:
    """Return the nearest unit to a group, of several the one that leaves the nearest next."""
    candidates = np.flatnonzero(waiting)
    here = away[candidates]
    tied = candidates[here == here.min()][:TIED_CANDIDATES]
    if len(tied) == 1 or len(candidates) < 3:
        return int(tied[0])
    then = here + times[np.ix_(tied, candidates)]
    then[tied[:, None] == candidates] = np.iinfo(np.int64).max
    return int(tied[np.argmin(then.min(1))])


def _inside(near: _Near, order: Sequence[int], sizes: Sequence[int]) -> int:
    """Return the sum over levels and groups of the times between units of a group."""
    total = 0
    ordered = near.times[np.ix_(order, order)]
    for size in sizes:
        step = max(size // near.size, 1)
        total += sum(
            int(ordered[start : start + step, start : start + step].sum())
            for start in range(0, len(order), step)
        )
    return total // 2


def _chain(near: _Near, order: Sequence[int]) -> int:
    return int(near.times[list(order[:-1]), list(order[1:])].sum())


def _exchanged(
    near: _Near, order: list[int], sizes: Sequence[int], chance: random.Random, passes: int
) -> list[int]:
    """Exchange units between groups while the time inside them falls.

    Every unit in turn, in a random order, changes places with the one that
    gains most; until a pass gains nothing.
    """
    count, times = len(order), near.times
    steps = [size for size in sizes if size > near.size]
    if not steps:
        return order
    levels = [_Groups(times, order, step // near.size) for step in steps]
    units = list(range(count))
    for _ in range(passes):
        gained = False
        chance.shuffle(units)
        for unit in units:
            change = levels[0].change(unit)
            for level in levels[1:]:
                change += level.change(unit)
            other = int(np.argmin(change))
            if change[other] < 0:
                gained = True
                for level in levels:
                    level.exchange(unit, other)
        if not gained:
            break
    exchanged = levels[0].unit_at
    return [int(unit) for unit in exchanged]


class _Groups:
    """The groups of one level, and the time from every unit to all units of each.

    Attributes
    ----------
    place, unit_at
        (U,) the place of every unit in the order, and the unit at every place.
    group
        (U,) the group of every unit.
    sums
        (groups, U) the time from a unit to all units of a group.
    own
        (U,) the time from a unit to all units of its own group.
    """

    def __init__(self, times: Array, order: Sequence[int], step: int) -> None:
        self.times = times
        count = len(order)
        self.unit_at = np.array(order, np.intp)
        self.place = np.empty(count, np.intp)
        self.place[self.unit_at] = np.arange(count)
        self.group = self.place // step
        starts = np.arange(0, count, step)
        self.sums = np.add.reduceat(times[self.unit_at], starts, axis=0)
        self.own = self.sums[self.group, np.arange(count)]

    def change(self, unit: int) -> Array:
        """Return (U,) what changing places with each other unit adds to the time inside groups."""
        group = self.group[unit]
        found: Array = self.sums[:, unit][self.group]
        found += self.sums[group]
        found -= self.own
        found -= 2 * self.times[unit]
        found -= self.own[unit]
        found[self.group == group] = 0
        return found

    def exchange(self, unit: int, other: int) -> None:
        """Let two units change places."""
        for values in (self.place, self.group):
            values[unit], values[other] = values[other], values[unit]
        self.unit_at[self.place[unit]], self.unit_at[self.place[other]] = unit, other
        one, two = self.group[unit], self.group[other]
        if one == two:
            return
        differ = self.times[unit] - self.times[other]
        self.sums[one] += differ
        self.sums[two] -= differ
        for group in (one, two):
            members = self.group == group
            self.own[members] = self.sums[group][members]


def _arranged(near: _Near, order: list[int], sizes: Sequence[int]) -> list[int]:
    """Arrange the groups inside each group, outermost first, so that the chain gets shorter.

    Groups keep their members: only whole groups, and devices in the
    innermost, change places or turn round.
    """
    steps = [size // near.size for size in sizes if size > near.size]
    outer = [*steps[1:], len(order)] if steps else [len(order)]
    for inside, around in reversed([*zip([1, *steps], [*steps[:1], *outer], strict=True)]):
        for start in range(0, len(order), around):
            end = min(start + around, len(order))
            before = order[start - 1] if start else None
            after = order[end] if end < len(order) else None
            order[start:end] = _turned(near.times, order[start:end], inside, before, after)
    return order


def _turned(
    times: Array, units: list[int], inside: int, before: int | None, after: int | None
) -> list[int]:
    """Reverse runs of groups (and each group in them) while the chain gets shorter (2-opt).

    A group that is not full stays the last.
    """
    groups = [units[start : start + inside] for start in range(0, len(units), inside)]
    movable = len(groups) if len(groups[-1]) == inside else len(groups) - 1
    if movable < 2:
        return units
    follower = after if movable == len(groups) else groups[-1][0]
    gained = True
    while gained:
        gained = False
        for low in range(movable - 1):
            first = np.array([group[0] for group in groups[:movable]])
            last = np.array([group[-1] for group in groups[:movable]])
            left = before if low == 0 else int(last[low - 1])
            highs = np.arange(low + 1, movable)
            right = first[low + 2 :] if low + 2 <= movable else first[:0]
            change = np.zeros(len(highs), np.int64)
            if left is not None:
                change += times[left, last[highs]] - times[left, first[low]]
            inner = len(right)
            change[:inner] += times[first[low], right] - times[last[highs[:inner]], right]
            if follower is not None:
                change[-1] += times[first[low], follower] - times[last[-1], follower]
            best = int(np.argmin(change))
            if change[best] < 0:
                high = low + 1 + best
                groups[low : high + 1] = [group[::-1] for group in groups[low : high + 1]][::-1]
                gained = True
    return [unit for group in groups for unit in group]
